"""The logit and its Polya-Gamma latent, for every weight and every predictor."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from softmargin.losses import Logit
from softmargin.losses.formulas.polya_gamma import _FAR, _MANY, _TERMS

P_LIMIT = 1e-4  # Kolmogorov-Smirnov, fixed seeds: sound draws fail one case in ten thousand


def polya_gamma(rng, h, z):
    """Draws of PG(h, z), as the weights of rows."""
    return Logit().draw(rng, np.ones(len(h)), h, z).w


def test_loglik_score_and_messages_by_hand():
    y, c = np.array([1.0, -1.0, 1.0]), np.array([1.0, 2.0, 0.5])
    f, v = np.array([0.0, math.log(3.0), -2.0]), np.array([0.0, 0.0, 1.5])
    np.testing.assert_allclose(Logit().loglik(y, c, f)[:2], [-math.log(2.0), -2.0 * math.log(4.0)])
    np.testing.assert_allclose(Logit().score(y, c, f)[:2], [0.5, -1.5])
    w, b, bound = Logit().expect(y, c, f, v)
    xi = math.sqrt(4.0 + 1.5)
    assert w[0] == pytest.approx(0.25)
    assert w[2] == pytest.approx(0.5 * math.tanh(xi / 2.0) / (2.0 * xi))
    np.testing.assert_allclose(b, 0.5 * c * y)
    assert bound[2] == pytest.approx(0.5 * (-math.log1p(math.exp(-xi)) + (-2.0 - xi) / 2.0))


def test_the_averaged_weight_is_right_to_rounding():
    """Near zero too, and where the series ends."""
    xi = np.concatenate(([0.0], np.logspace(-160, 3, 500), [0.1 - 1e-12, 0.1, 0.1 + 1e-12]))
    one = np.ones(len(xi))
    safe = np.maximum(xi, 1e-8)
    np.testing.assert_allclose(Logit().expect(one, one, xi, 0.0 * one).w, 0.5 * np.tanh(0.5 * safe) / safe, rtol=1e-14)


def moments(h, z):
    """Mean and variance of PG(h, z)."""
    if z < 1e-3:
        return h / 4.0, h / 24.0
    tanh, square = math.tanh(0.5 * z), 4.0 * math.exp(-z) / (1.0 + math.exp(-z)) ** 2
    return 0.5 * h * tanh / z, 0.25 * h * (2.0 * tanh - z * square) / z**3


def cdf(h, z):
    """Distribution function of PG(h, z) from the alternating series of its density (Polson, Scott and Windle)."""
    mean, variance = moments(h, z)
    sd = math.sqrt(variance)
    low, high = max(mean - 12.0 * sd, 1e-4 * mean), mean + min(30.0 * sd, 4.0)
    omega = np.geomspace(low, high, 20_001) if low < 0.1 * mean else np.linspace(low, high, 20_001)
    x = 4.0 * omega
    n = np.arange(60.0)[:, None]
    a = 2.0 * n + h
    size = np.exp(gammaln(n + h) - gammaln(n + 1.0) - gammaln(h)) * a * np.exp(-0.5 * (a * a - h * h) / x)
    series = ((-1.0) ** n * size).sum(axis=0)
    # the tilt exp(-z^2 omega/2) and the leading exp(-h^2/(2 x)) are one square, up to a constant
    density = np.maximum(series, 0.0) * x**-1.5 * np.exp(-0.125 * (z * x - 2.0 * h) ** 2 / x)
    total = np.concatenate(([0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(omega))))
    return lambda value: np.interp(value, omega, total / total[-1])


@pytest.mark.parametrize("h", [0.1, 0.4, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("z", [0.0, 1.0, 6.0, 35.0, 37.0, 1e3])
def test_polya_gamma_has_its_exact_law(h, z):
    drawn = polya_gamma(np.random.default_rng(2), np.full(4000, h), np.full(4000, -z))
    assert stats.kstest(cdf(h, z)(drawn), "uniform").pvalue > P_LIMIT
    wrong = polya_gamma(np.random.default_rng(2), np.full(4000, 1.3 * h), np.full(4000, z))
    assert stats.kstest(cdf(h, z)(wrong), "uniform").pvalue < 1e-8


@pytest.mark.parametrize("h", [0.2, 0.7, 1.0, 3.3, 20.0])
@pytest.mark.parametrize("z", [1e-4, 0.5, 8.0, 35.9, 36.1, 1e6])
def test_polya_gamma_moments(h, z):
    """Mean and variance to 4 standard errors of 60000 draws."""
    drawn = polya_gamma(np.random.default_rng(7), np.full(60_000, h), np.full(60_000, z))
    mean, variance = moments(h, z)
    for sample, wanted in ((drawn, mean), ((drawn - mean) ** 2, variance)):
        assert abs(sample.mean() - wanted) < 4 * sample.std() / math.sqrt(len(sample))


def log_characteristic(h, z, t):
    """Log characteristic function of four times PG(h, 2z)."""

    def log_cosh(x):
        return x + np.log1p(np.exp(-2.0 * x))

    return h * (log_cosh(z + 0j) - log_cosh(np.sqrt(z * z - 2j * t)))


def log_characteristic_of_gammas(h, z, t):
    """The same of the sum of gammas that large shapes are drawn as."""
    _, variance = moments(1.0, 2.0 * z)
    mean, second = (1.0 if z == 0.0 else math.tanh(z) / z), 16.0 * variance
    total = 0.0
    for k in range(_TERMS):
        size = 2.0 / (((k + 0.5) * math.pi) ** 2 + z * z)
        total, mean, second = total - h * np.log1p(-1j * t * size), mean - size, second - size * size
    return total - h * mean * mean / second * np.log1p(-1j * t * second / mean)


@pytest.mark.parametrize("h", [_MANY, 1e3])
@pytest.mark.parametrize(("z", "limit"), [(0.0, 1e-9), (1.0, 1e-9), (3.0, 1e-8), (8.0, 1e-6), (_FAR, 1e-5)])
def test_large_shapes_are_off_by_no_probability_above_the_stated_one(h, z, limit):
    """The distance of two distribution functions is at most the integral of |difference of transforms|/(pi t)."""
    t = np.linspace(1e-6, 60.0, 40_001) / (4.0 * math.sqrt(moments(h, 2.0 * z)[1]))
    gap = np.abs(np.exp(log_characteristic(h, z, t)) - np.exp(log_characteristic_of_gammas(h, z, t)))
    assert np.trapezoid(gap / t, t) / math.pi < limit
    assert gap[-1] < 1e-20  # nothing beyond


@pytest.mark.parametrize("z", [0.0, 2.0, 30.0])
def test_large_shapes_meet_the_sum_of_exact_draws_at_the_switch(z):
    n, h = 20_000, _MANY + 2.0
    large = polya_gamma(np.random.default_rng(3), np.full(n, h), np.full(n, z))
    exact = sum(polya_gamma(np.random.default_rng(s), np.full(n, 0.5 * h), np.full(n, z)) for s in (4, 5))
    assert stats.ks_2samp(large, exact).pvalue > P_LIMIT
    cubes = [((drawn - moments(h, z)[0]) / math.sqrt(moments(h, z)[1])) ** 3 for drawn in (large, exact)]
    error = math.sqrt(sum(cube.var() for cube in cubes) / n)
    assert abs(cubes[0].mean() - cubes[1].mean()) < 4 * error


@pytest.mark.parametrize("h", [1e5, 1e9, 1e15])
def test_the_work_does_not_grow_with_the_shape(h):
    z = np.repeat([0.0, 1.0, 10.0, 100.0], 500)
    drawn = polya_gamma(np.random.default_rng(0), np.full(len(z), h), z).reshape(4, -1)
    for sample, (mean, variance) in zip(drawn, (moments(h, value) for value in z[::500]), strict=True):
        assert abs(sample.mean() - mean) < 4 * math.sqrt(variance / 500) + 1e-14 * mean
        assert abs(sample.var() / variance - 1.0) < 4 * math.sqrt(2.0 / 500)


def test_shape_zero_is_zero_and_the_far_law_meets_the_near_one():
    np.testing.assert_array_equal(polya_gamma(np.random.default_rng(0), np.zeros(3), np.array([0.0, 2.0, 50.0])), 0.0)
    near, far = (
        polya_gamma(np.random.default_rng(s), np.ones(20_000), np.full(20_000, z)) for s, z in ((0, 35.99), (1, 36.01))
    )
    assert stats.ks_2samp(near, far).pvalue > P_LIMIT


def test_far_away():
    """Predictors of a million: everything is finite, and the latent's mean is 1/(2 |f|)."""
    f = np.array([-1e6, -800.0, 800.0, 1e6])
    y, c = np.ones(4), np.ones(4)
    faces = [
        Logit().loglik(y, c, f),
        Logit().score(y, c, f),
        *Logit().expect(y, c, f, c),
        *Logit().gaussian(y, c, f, c),
    ]
    assert all(np.isfinite(face).all() for face in faces)
    np.testing.assert_allclose(Logit().loglik(y, c, f)[:2], f[:2])
    np.testing.assert_allclose(Logit().expect(y, c, f, 0 * c).w, 0.5 / np.abs(f))


@pytest.mark.parametrize("weight", [0.4, 1.0, 30.0])
def test_a_predictor_that_is_no_number_ends_a_draw(weight):
    """By rejection it would go on for ever, and could not be interrupted."""
    found = Logit().draw(np.random.default_rng(0), np.ones(2), np.full(2, weight), np.array([np.nan, 0.3]))
    assert np.isnan(found.w[0]) and found.w[1] > 0.0
