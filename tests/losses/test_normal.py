"""The normal law and the arithmetic behind it, against SciPy."""

import math

import numpy as np
import pytest
from scipy import special, stats

from softmargin.losses.formulas.normal import log_cdf, log_mills, positive_part, tail_draw
from softmargin.rows.arithmetic import exp_negative, log1p_unit, mills

POINTS = np.concatenate((np.linspace(0.0, 37.6, 4001), np.logspace(-12, 0, 100)))


def test_exponential_is_right_to_rounding():
    x = -0.5 * POINTS**2
    found = np.array([exp_negative(value) for value in x])
    # an exponent of size x is itself only known to x units in the last place
    np.testing.assert_array_less(np.abs(found / np.exp(x) - 1.0), 4e-16 * (4.0 - x))
    assert exp_negative(-709.0) == 0.0 and exp_negative(-np.inf) == 0.0 and exp_negative(0.0) == 1.0


def test_logarithm_is_right_to_rounding():
    x = np.concatenate((np.linspace(0.0, 1.0, 1001)[1:], np.logspace(-300, 0, 100)))
    np.testing.assert_allclose([log1p_unit(value) for value in x], np.log1p(x), rtol=5e-16)


def test_mills_ratio_is_right_to_rounding():
    found = np.array([mills(a) for a in POINTS])
    np.testing.assert_allclose(found, np.sqrt(0.5 * np.pi) * special.erfcx(POINTS * np.sqrt(0.5)), rtol=2e-15)


@pytest.mark.parametrize("a", [0.5, 3.0, 20.0])
def test_mills_ratio_solves_its_equation(a):
    """``M' = a M - 1``, by a difference of fifth order."""
    h = 1e-3
    slope = (8.0 * (mills(a + h) - mills(a - h)) - (mills(a + 2 * h) - mills(a - 2 * h))) / (12.0 * h)
    assert slope == pytest.approx(a * mills(a) - 1.0, rel=1e-7)


def test_log_cdf_and_its_derivatives():
    x = np.concatenate((np.linspace(-40.0, 9.0, 491), [-1e6, -300.0, -12.001, -11.999]))
    level, slope, curvature = np.array([log_cdf(value) for value in x]).T
    ratio = math.sqrt(2.0 / math.pi) / special.erfcx(-x / math.sqrt(2.0))
    np.testing.assert_allclose(level, special.log_ndtr(x), rtol=2e-14)
    np.testing.assert_array_less(np.abs(slope / ratio - 1.0), 4e-16 * (4.0 + 0.5 * np.maximum(x, 0.0) ** 2))
    near = x > -10.0
    np.testing.assert_allclose(curvature[near], (ratio * (x + ratio))[near], rtol=1e-12)
    far = x < -30.0  # r (x + r) = 1 - 1/x^2 + 6/x^4 - ...
    np.testing.assert_allclose(curvature[far], 1.0 - x[far] ** -2 + 6.0 * x[far] ** -4, rtol=1e-7)


@pytest.mark.parametrize("z", [-1e5, -40.0, -2.0, 0.0, 1.5, 30.0])
def test_log_mills(z):
    wanted = special.log_ndtr(z) + 0.5 * z * z + 0.5 * math.log(2.0 * math.pi)
    if z < -100.0:
        wanted = -math.log(-z) - z**-2
    assert log_mills(z) == pytest.approx(wanted, abs=1e-12)


def test_positive_part_is_finite_however_far_out():
    for m in (-1e300, 1e300):
        mean, share, density = positive_part(m, 1e-10)
        assert (mean, share, density) == (max(m, 0.0), float(m > 0.0), 0.0)


@pytest.mark.parametrize("z", [3.0, 0.0, -0.49, -0.51, -2.0, -50.0])
def test_draws_of_a_normal_that_is_positive(z):
    rng = np.random.default_rng(3)
    sample = np.array([tail_draw(rng, z) for _ in range(4_000)])
    assert stats.kstest(sample, stats.truncnorm(-z, np.inf, loc=z).cdf).pvalue > 1e-4
