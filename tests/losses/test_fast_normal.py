"""The normal density and tail in plain arithmetic, against SciPy."""

import numpy as np
import pytest
from scipy import special, stats

from softmargin.losses._fast_normal import LARGEST, density, mills

POINTS = np.concatenate((np.linspace(0.0, LARGEST, 4001), np.logspace(-12, 0, 100)))


def test_density_is_right_to_rounding():
    found = np.array([density(a) for a in POINTS])
    # an exponent of size x is itself only known to x units in the last place
    np.testing.assert_array_less(np.abs(found / stats.norm.pdf(POINTS) - 1.0), 4e-16 * (4.0 + 0.5 * POINTS**2))
    assert density(-1.5) == density(1.5)


def test_mills_ratio_is_right_to_rounding():
    found = np.array([mills(a) for a in POINTS])
    np.testing.assert_allclose(found, np.sqrt(0.5 * np.pi) * special.erfcx(POINTS * np.sqrt(0.5)), rtol=2e-15)


@pytest.mark.parametrize("a", [0.5, 3.0, 20.0])
def test_mills_ratio_solves_its_equation(a):
    """``M' = a M - 1``, by a difference of fifth order."""
    h = 1e-3
    slope = (8.0 * (mills(a + h) - mills(a - h)) - (mills(a + 2 * h) - mills(a - 2 * h))) / (12.0 * h)
    assert slope == pytest.approx(a * mills(a) - 1.0, rel=1e-7)
