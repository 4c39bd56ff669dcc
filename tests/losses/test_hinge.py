"""The hinge: closed forms, the tails of its Gaussian averages, and the exact law of its latent."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from softmargin.losses import Hinge

P_LIMIT = 1e-4  # Kolmogorov-Smirnov, fixed seeds: sound draws fail one case in ten thousand


def test_loglik_and_score_by_hand():
    y, c = np.array([1.0, 1.0, -1.0, -1.0, 1.0]), np.array([1.0, 0.25, 3.0, 1.0, 1.0])
    f = np.array([0.0, -2.0, 0.5, -4.0, 1.5])
    np.testing.assert_allclose(Hinge().loglik(y, c, f), [-2.0, -1.5, -9.0, 0.0, 0.0])
    np.testing.assert_allclose(Hinge().score(y, c, f), [2.0, 0.5, -6.0, 0.0, 0.0])


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_expect_is_the_mean_field_message(c):
    """w = c / sqrt(u^2 + v), b = y (w + c), bound = -c (u + sqrt(u^2 + v))."""
    y, f, v = np.array([1.0, -1.0, 1.0]), np.array([0.4, 0.4, 3.0]), np.array([0.09, 0.0, 2.0])
    u = 1 - y * f
    w, b, bound = Hinge().expect(y, np.full(3, c), f, v)
    np.testing.assert_allclose(w, c / np.sqrt(u**2 + v), rtol=1e-14)
    np.testing.assert_allclose(b, y * (w + c), rtol=1e-14)
    np.testing.assert_allclose(bound, -c * (u + np.sqrt(u**2 + v)), rtol=1e-14)


def test_a_row_without_weight_says_nothing_even_at_the_margin():
    one = np.ones(1)
    message = Hinge().expect(one, 0 * one, one, 0 * one)
    assert message.w[0] == 0.0 and message.b[0] == 0.0


@pytest.mark.parametrize("t", [-37.0, -20.0, -10.0, -6.5, -6.000001, -5.999999, -4.0, 0.0, 3.0, 8.4, 8.6, 30.0, 40.0])
@pytest.mark.parametrize("s", [1e-6, 1.0, 1e4])
def test_average_is_accurate_in_the_tails(t, s):
    """E max(u, 0) = s phi(t) (integral over z > 0 of z e^(t z - z^2/2)) for u ~ N(t s, s^2), without cancellation."""
    y, c, f, v = np.array([-1.0]), np.array([0.7]), np.array([t * s - 1.0]), np.array([s * s])
    t = (1.0 + f[0]) / s  # as rounded
    if t > 0:
        mean = t * s + s * integrate.quad(lambda z: z * stats.norm.pdf(z + t), 0, 10)[0]
        level = stats.norm.sf(-t)
    else:
        mean = s * stats.norm.pdf(t) * integrate.quad(lambda z: z * math.exp(t * z - z * z / 2), 0, 12)[0]
        level = stats.norm.cdf(t)
    w, b, bound = Hinge().gaussian(y, c, f, v)
    assert bound[0] == pytest.approx(-1.4 * mean, rel=1e-10)
    assert w[0] == pytest.approx(1.4 * stats.norm.pdf(t) / s, rel=1e-10, abs=1e-300)
    assert b[0] - w[0] * f[0] == pytest.approx(-1.4 * level, rel=1e-10, abs=1e-9 * w[0] * abs(f[0]))


def test_gaussian_without_variance_is_the_loss_itself():
    rng = np.random.default_rng(0)
    y, c, f = np.where(rng.random(200) < 0.5, 1.0, -1.0), rng.exponential(size=200), 3 * rng.normal(size=200)
    w, b, bound = Hinge().gaussian(y, c, f, np.zeros(200))
    np.testing.assert_allclose(bound, Hinge().loglik(y, c, f), atol=1e-12)
    np.testing.assert_allclose(b - w * f, Hinge().score(y, c, f), atol=1e-12)


def latent_cdf(u, c):
    """Distribution function of lam from the augmented density lam^(-1/2) exp(-(u + c lam)^2 / (2 lam)), normalised."""
    v = c * abs(u)
    if v > 1.0:
        t = math.log(v) + np.linspace(-1, 1, 40_001) * min(14.0 / math.sqrt(v) + 20.0 / v, 30.0)
    else:
        t = np.linspace(-90.0, 8.0, 40_001)
    lam = np.exp(t) / c**2
    # (u + c lam)^2 = (|u| - c lam)^2 + 4 c max(u, 0) lam; the second term is free of lam after the division
    density = np.exp(0.5 * t - (abs(u) - c * lam) ** 2 / (2 * lam))
    total = np.concatenate(([0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))))
    return lambda x: np.interp(np.log(x * c**2), t, total / total[-1])


def test_reference_law_is_the_generalised_inverse_gaussian():
    """GIG(1/2, c^2, u^2), and chi-squared on one degree of freedom at the margin."""
    for u, c in ((1.0, 1.0), (0.3, 3.0), (-2.0, 0.25)):
        law = stats.geninvgauss(0.5, c * abs(u), scale=abs(u) / c)
        points = law.ppf([0.05, 0.5, 0.95])
        np.testing.assert_allclose(latent_cdf(u, c)(points), [0.05, 0.5, 0.95], atol=1e-5)
    points = stats.chi2(1).ppf([0.01, 0.5, 0.99])
    np.testing.assert_allclose(latent_cdf(0.0, 2.0)(points / 4.0), [0.01, 0.5, 0.99], atol=1e-5)


def drawn(u, c, y, n, seed):
    """Draws of lam = 1/w and the message that came with them."""
    rng = np.random.default_rng(seed)
    rows = Hinge().draw(rng, np.full(n, y), np.full(n, c), np.full(n, y * (1.0 - u)))
    return rows, 1.0 / rows.w


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("size", [0.0, 1e-8, 1e-3, 1.0, 1e3, 1e8])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_latent_has_its_exact_law(c, size, side):
    u = 1.0 - (1.0 - side * size)  # as rounded in f
    rows, lam = drawn(u, c, side, 4000, seed=int(4 * c) + 10)
    np.testing.assert_allclose(rows.b, side * (rows.w + c), rtol=1e-14)
    assert stats.kstest(latent_cdf(u, c)(lam), "uniform").pvalue > P_LIMIT


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e3])
def test_a_wrong_factor_is_rejected(size):
    """Negative control: twice the latent, and c forgotten in its law, both fail the same test."""
    _, lam = drawn(size, 3.0, 1.0, 4000, seed=1)
    assert stats.kstest(latent_cdf(size, 3.0)(2.0 * lam), "uniform").pvalue < 1e-8
    assert stats.kstest(latent_cdf(size, 1.0)(lam), "uniform").pvalue < 1e-8


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_latent_moments(c):
    """E 1/lam = c/|u| and E lam = |u|/c + 1/c^2, to 4 standard errors."""
    _, lam = drawn(0.8, c, -1.0, 40_000, seed=5)
    for sample, wanted in ((1 / lam, c / 0.8), (lam, 0.8 / c + 1 / c**2)):
        assert abs(sample.mean() - wanted) < 4 * sample.std() / math.sqrt(len(sample))
