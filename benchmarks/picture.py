"""One picture of the page: how many times faster than its peer each comparison came out, on a logarithmic axis.

Reads the tables of ``docs/evidence/benchmarks.md`` and draws ``docs/evidence/benchmarks.png``. One line per comparison,
from its worst to its best case, one point per case; to the left of one the peer is ahead.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import common

PICTURE = common.PAGE.with_suffix(".png")
OURS, LINE, TEXT = "#1f5a8a", "#9db8cc", "#333333"

Row = dict[str, str]


def tables(page: str, name: str) -> Iterator[list[Row]]:
    """The tables between the two marks of a comparison, each a list of rows by heading."""
    part = page.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
    for block in re.findall(r"(?:^\|.*\|\n?)+", part, flags=re.MULTILINE):
        head, _, *rest = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        yield [dict(zip(head, cells, strict=True)) for cells in rest]


def value(cell: str) -> float:
    """A number of a table; a bound counts as its number."""
    return float(cell.lstrip("> "))


def column(page: str, name: str, heading: str, keep: Callable[[Row], bool] = lambda row: True) -> list[float]:
    """The ratios of one column."""
    rows = next(tables(page, name))
    return [value(row[heading]) for row in rows if keep(row) and row[heading] != "-"]


def lengths(page: str) -> list[float]:
    """Effective draws of the length of the coefficients: gibbs over the plain sampler."""
    rate = {
        (row["set"], row["prior"], row["sampler"]): value(row["length / s"]) for row in next(tables(page, "sampling"))
    }
    return [rate[key] / rate[*key[:2], "gibbs, plain"] for key in rate if key[2] == "gibbs"]


def calibration(page: str) -> list[float]:
    """Time of the calibrated squared hinge over ours."""
    times = list(tables(page, "probabilities"))[2]
    return [
        value(row["squared hinge, temperature"]) / value(row["softmargin"]) for row in times if row["set"] != "mean"
    ]


def comparisons(page: str) -> dict[str, list[float]]:
    """What is drawn, from the top."""

    def hmc(chains: int) -> list[float]:
        wanted = f"hmc, {chains} chains"
        return column(page, "sampling", "worst, ratio to NUTS", lambda row: row["sampler"] == wanted)

    return {
        "hmc, 4 chains: effective draws\nover NUTS (NumPyro)": hmc(4),
        "hmc, 16 chains: the same": hmc(16),
        "gibbs: effective draws of |beta|\nover Polson and Scott": lengths(page),
        "map: time of LinearSVC (LIBLINEAR)\nto 1e-6, sparse X to 1e-4": column(page, "modes", "LIBLINEAR / ours"),
        "map, lasso: time of HiGHS": column(page, "selection_lasso", "ratio"),
        "defaults: time of the quicker\nsearched peer": column(page, "self_tuning", "quicker peer / softmargin"),
        "probabilities: time of a searched,\ncalibrated SVM": calibration(page),
    }


def draw(found: dict[str, list[float]], target: Path) -> None:
    """The picture."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for place, ratios in enumerate(found.values()):
        axis.plot([min(ratios), max(ratios)], [place, place], color=LINE, linewidth=2, zorder=1)
        axis.plot(ratios, [place] * len(ratios), "o", color=OURS, markersize=5, markeredgecolor="white", zorder=2)
    axis.axvline(1.0, color=TEXT, linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yticks(range(len(found)), list(found), fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("times as fast as the peer, one point a data set and setting", fontsize=9, color=TEXT)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.tick_params(colors=TEXT, length=0)
    axis.grid(axis="x", color="#e6e6e6", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="read the page, draw nothing")
    options.add_argument("--output", type=Path, default=PICTURE, metavar="FILE", help="picture to write")
    chosen = options.parse_args()
    found = comparisons(common.PAGE.read_text(encoding="utf-8"))
    for name, ratios in found.items():
        print(name.replace("\n", " "), "|", ", ".join(map(common.number, sorted(ratios))))
    if not chosen.quick:
        draw(found, chosen.output)


if __name__ == "__main__":
    main()
