"""Squared and epsilon-insensitive losses: closed forms, densities of the errors, and the two latents."""

import math
from itertools import pairwise

import numpy as np
import pytest
from parts import LOSSES, each
from scipy import integrate, stats

from softmargin.losses import EpsilonInsensitive, Hinge, Squared

REGRESSIONS = {name: case.loss for name, case in LOSSES.items() if case.loss.offers("log_normalizer")}


def test_epsilon_insensitive_by_hand():
    y, c = np.array([1.0, 1.0, -2.0, 0.0]), np.array([1.0, 3.0, 0.5, 1.0])
    f = np.array([1.2, 0.0, 0.0, -5.0])
    loss = EpsilonInsensitive(0.25)
    np.testing.assert_allclose(loss.loglik(y, c, f), [0.0, -4.5, -1.75, -9.5])
    np.testing.assert_allclose(loss.score(y, c, f), [0.0, 6.0, -1.0, 2.0])


def test_message_pulls_to_the_edges_of_the_band():
    """w = c/|u1| + c/|u2| and b = c (y - epsilon)/|u1| + c (y + epsilon)/|u2|: the ends +-c cancel."""
    y, c, f, e = np.array([1.0, -0.4]), np.array([0.7, 2.0]), np.array([0.2, 3.0]), 0.25
    below, above = np.abs(y - e - f), np.abs(f - y - e)
    w, b, _ = EpsilonInsensitive(e).expect(y, c, f, np.zeros(2))
    np.testing.assert_allclose(w, c / below + c / above, rtol=1e-12)
    np.testing.assert_allclose(b, c * (y - e) / below + c * (y + e) / above, rtol=1e-12)


def test_averages_are_those_of_two_hinges():
    """E max(|e| - epsilon, 0) = sum over both sides of s (phi(t) + t Phi(t)), exact under N(f, v)."""
    y, c, f, v, e = np.array([1.0]), np.array([0.6]), np.array([0.3]), np.array([0.5]), 0.2
    s, total, level, bend = math.sqrt(0.5), 0.0, 0.0, 0.0
    for side in (1.0, -1.0):
        t = (side * (1.0 - 0.3) - e) / s
        total += s * (stats.norm.pdf(t) + t * stats.norm.cdf(t))
        level += side * stats.norm.cdf(t)
        bend += stats.norm.pdf(t) / s
    w, b, bound = EpsilonInsensitive(e).gaussian(y, c, f, v)
    assert bound[0] == pytest.approx(-1.2 * total, rel=1e-12)
    assert w[0] == pytest.approx(1.2 * bend, rel=1e-12)
    assert b[0] - w[0] * 0.3 == pytest.approx(1.2 * level, rel=1e-12)


def test_draws_are_two_independent_hinge_latents():
    """The message is the sum of the hinge messages on y - epsilon - f and f - y - epsilon."""
    y, c, f, e, n = 0.5, 1.3, 0.1, 0.2, 20_000
    rows = EpsilonInsensitive(e).draw(np.random.default_rng(1), np.full(n, y), np.full(n, c), np.full(n, f))
    first = Hinge().draw(np.random.default_rng(2), np.ones(n), np.full(n, c), np.full(n, 1.0 - (y - e - f))).w
    second = Hinge().draw(np.random.default_rng(3), np.ones(n), np.full(n, c), np.full(n, 1.0 - (f - y - e))).w
    assert stats.ks_2samp(rows.w, first + second).pvalue > 1e-4
    assert stats.ks_2samp(rows.b, first * (y - e) + second * (y + e)).pvalue > 1e-4
    assert stats.ks_2samp(rows.b, first * (y + e) + second * (y - e)).pvalue < 1e-8


@pytest.mark.parametrize("loss", each(REGRESSIONS))
@pytest.mark.parametrize("kappa", [0.3, 1.0, 4.0])
def test_errors_have_a_density(loss, kappa):
    """exp(kappa l - log Z) integrates to one, and noise_cdf is its integral."""

    def density(e):
        level = loss.loglik(np.array([e]), np.array([kappa]), np.zeros(1))[0]
        return math.exp(level - float(loss.log_normalizer(kappa)))

    ends = (-400.0, -60.0, -2.0, -0.3, 0.0, 0.3, 2.0, 60.0, 400.0)
    parts = [integrate.quad(density, a, b, epsabs=1e-13, limit=200)[0] for a, b in pairwise(ends)]
    below = np.cumsum(parts)
    assert below[-1] == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(loss.noise_cdf(np.array(ends[1:]), kappa), below, atol=1e-9)


@pytest.mark.parametrize("loss", each(REGRESSIONS))
@pytest.mark.parametrize(("kappa", "v"), [(0.3, 0.5), (1.0, 4.0), (40.0, 0.01), (0.7, 0.0), (3.0, 900.0)])
def test_predictive_density_averages_the_errors_over_the_predictor(loss, kappa, v):
    """log_predictive is the log of E exp(kappa l - log Z) over f ~ N(0, v), by quadrature, far in the tails too."""
    e = np.array([0.0, 0.29, -1.1, 6.0, -25.0])
    found = loss.log_predictive(e, np.full(5, v), kappa)
    if v == 0.0:
        wanted = loss.loglik(e, np.full(5, kappa), np.zeros(5)) - loss.log_normalizer(kappa)
        np.testing.assert_allclose(found, wanted, atol=1e-7)
        return
    width = getattr(loss, "epsilon", 0.0)
    for at, value in zip(e, found, strict=True):

        def log_density(f, at=at, top=0.0):
            level = loss.loglik(np.array([at]), np.array([kappa]), np.array([f]))[0]
            return level - float(loss.log_normalizer(kappa)) - 0.5 * f * f / v - 0.5 * math.log(2.0 * math.pi * v) - top

        grid = np.linspace(-60.0, 60.0, 4801)
        top = max(log_density(f) for f in grid)
        ends = np.unique(np.concatenate((np.linspace(-400.0, 400.0, 401), [at - width, at + width])))
        total = sum(
            integrate.quad(lambda f, top=top: math.exp(log_density(f, top=top)), a, b, epsabs=1e-15)[0]
            for a, b in pairwise(ends)
        )
        assert value == pytest.approx(top + math.log(total), abs=1e-8)


def test_no_band_is_laplace():
    e = np.linspace(-3.0, 3.0, 13)
    wanted = stats.laplace(scale=1.0 / 1.6).cdf(e)
    np.testing.assert_allclose(EpsilonInsensitive(0.0).noise_cdf(e, 0.8), wanted, rtol=1e-12)


def test_squared_is_the_normal_density():
    y, c, f, v = np.array([1.0]), np.array([4.0]), np.array([0.25]), np.array([0.09])
    level = Squared().loglik(y, c, f)[0] - Squared().log_normalizer(4.0)
    assert level == pytest.approx(stats.norm(0.25, 0.5).logpdf(1.0))
    w, b, bound = Squared().gaussian(y, c, f, v)
    assert (w[0], b[0]) == (4.0, 4.0)
    assert bound[0] == pytest.approx(-2.0 * (0.75**2 + 0.09))


@pytest.mark.parametrize("loss", [Squared(), EpsilonInsensitive(0.1)])
def test_far_away(loss):
    f = np.array([-1e6, 0.1, 0.2, 0.3, 1e6])
    y, c = np.full(5, 0.2), np.ones(5)
    faces = [loss.loglik(y, c, f), loss.score(y, c, f), *loss.expect(y, c, f, c), *loss.gaussian(y, c, f, c)]
    faces += loss.draw(np.random.default_rng(0), y, c, f)
    assert all(np.isfinite(face).all() for face in faces)


@pytest.mark.parametrize("epsilon", [-0.1, np.inf, np.nan])
def test_epsilon_must_not_be_negative(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a number of at least 0"):
        EpsilonInsensitive(epsilon)


@pytest.mark.parametrize("kappa", [0.3, 1.0, 40.0])
@pytest.mark.parametrize(
    "loss", [Squared(), EpsilonInsensitive(0.0), EpsilonInsensitive(0.2), EpsilonInsensitive(3.0)], ids=str
)
def test_variance_of_the_noise_is_that_of_its_density(loss, kappa):
    edge = getattr(loss, "epsilon", 0.0)

    def weighted(e):
        density = loss.loglik(np.array([e]), np.array([kappa]), np.zeros(1))[0] - loss.log_normalizer(kappa)
        return e * e * math.exp(density)

    far = edge + 40.0 * max(1.0 / kappa, kappa**-0.5)
    ends = [0.0, *([edge] if edge else []), far]
    direct = 2.0 * sum(integrate.quad(weighted, a, b, epsabs=1e-13, limit=200)[0] for a, b in pairwise(ends))
    assert loss.noise_variance(kappa) == pytest.approx(direct, rel=1e-8)
