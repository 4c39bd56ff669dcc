"""Tables 1 to 5 of Zhang, Dai, Wang and Jordan (2010), as printed."""

from __future__ import annotations

from typing import NamedTuple

Found = tuple[float, float, float]  # error in per cent, its standard deviation, seconds (0: not given)


class Published(NamedTuple):
    """A line of a table: file, training and test rows, most active rows, and what each method found."""

    file: str
    train: int
    test: int
    most: int
    found: tuple[Found, ...]

    @property
    def fbgkm(self) -> Found:
        """The paper's own method, the last of each line."""
        return self.found[-1]


# BSVM, CSVM, BGKM, FBGKM
TABLE_2 = {
    "BCI": Published(
        "ssl_bci", 300, 100, 100, ((28.15, 2.15, 2615), (29.40, 2.58, 2596), (29.35, 2.82, 1063), (29.83, 2.36, 688))
    ),
    "g241d": Published(
        "ssl_g241d",
        300,
        1200,
        200,
        ((17.15, 1.68, 4339), (17.63, 1.15, 4365), (16.37, 1.11, 1819), (16.30, 0.89, 1451)),
    ),
    "Digit1": Published(
        "ssl_digit1", 300, 1200, 200, ((4.86, 0.74, 5248), (4.88, 0.75, 5210), (4.87, 0.65, 2459), (4.85, 0.67, 2011))
    ),
    "COIL2": Published(
        "ssl_coil2", 300, 1200, 200, ((9.71, 0.81, 4988), (9.86, 0.71, 4996), (9.16, 0.99, 2454), (9.797, 0.32, 1502))
    ),
    "USPS 0 1": Published(
        "usps 0 1", 500, 1500, 200, ((0.40, 0.30, 21330), (0.35, 0.11, 20470), (0.28, 0.05, 6013), (0.28, 0.06, 2700))
    ),
    "USPS 0 9": Published(
        "usps 0 9", 500, 1500, 200, ((1.36, 0.36, 22390), (1.40, 0.29, 22300), (1.36, 0.28, 6479), (1.37, 0.24, 2974))
    ),
    "Letters A B": Published(
        "letter A B", 300, 1255, 100, ((0.92, 0.59, 2009), (0.95, 0.45, 2007), (0.75, 0.24, 914), (0.77, 0.24, 593))
    ),
    "Letters A C": Published(
        "letter A C", 300, 1225, 100, ((0.83, 0.15, 2026), (0.93, 0.27, 2042), (0.87, 0.15, 896), (0.84, 0.15, 596))
    ),
}

# NewsGroups by the number of training rows, at most 200 active: BSVM, CSVM, BGKM, FBGKM
_BY_ROWS = {
    300: ((5.99, 1.44, 5949), (5.84, 0.80, 5830), (5.37, 0.52, 2467), (5.08, 0.49, 2085)),
    400: ((5.65, 0.98, 11730), (5.83, 0.93, 11710), (5.10, 0.35, 4674), (5.05, 0.39, 2804)),
    500: ((5.62, 0.80, 22860), (5.08, 0.33, 22910), (4.92, 0.28, 6270), (4.83, 0.25, 2910)),
    600: ((5.77, 0.61, 34580), (5.13, 0.20, 34610), (4.92, 0.43, 8340), (4.74, 0.28, 2973)),
    700: ((5.63, 0.82, 51950), (4.82, 0.21, 51860), (4.44, 0.36, 12070), (4.61, 0.52, 3610)),
    800: ((5.14, 0.59, 77540), (5.10, 0.16, 77570), (4.49, 0.47, 16730), (4.56, 0.34, 4327)),
}
TABLE_3 = {n: Published("news20_w1000", n, 1985 - n, 200, found) for n, found in _BY_ROWS.items()}
SIZES = tuple(_BY_ROWS)

# NewsGroups with 800 training rows by the most active rows: FBGKM
_BY_MOST = {
    300: (4.55, 0.46, 6522),
    400: (4.62, 0.45, 7189),
    500: (4.64, 0.37, 8536),
    600: (4.75, 0.48, 10330),
    700: (4.72, 0.28, 11700),
}
TABLE_4 = {most: Published("news20_w1000", 800, 1185, most, (found,)) for most, found in _BY_MOST.items()}
LARGEST = tuple(_BY_MOST)

# SVM, IVM, FBGKM; no times are given
TABLE_5 = {
    "Ringnorm": Published("ringnorm", 400, 7000, 400, ((2.03, 0.19, 0), (1.97, 0.29, 0), (1.51, 0.10, 0))),
    "Thyroid": Published("thyroid", 140, 75, 140, ((4.80, 2.98, 0), (5.00, 3.02, 0), (4.60, 2.65, 0))),
    "Twonorm": Published("twonorm", 400, 7000, 400, ((2.90, 0.25, 0), (2.45, 0.15, 0), (2.86, 0.21, 0))),
    "Waveform": Published("waveform", 400, 4600, 400, ((9.98, 0.43, 0), (10.13, 0.47, 0), (9.80, 0.31, 0))),
}
