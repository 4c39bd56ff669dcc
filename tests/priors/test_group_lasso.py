"""The group lasso, and the dimensions that priors on class coefficients count."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from softmargin.priors import Bridge, GroupLasso, HalfCauchy, Horseshoe, InverseGamma, Lasso, Ridge
from softmargin.priors.bridge import BoundBridge

K, P = 3, 2
FREE = np.tile([True, False, False], K)  # one intercept and two variables in each of three classes


def coefficients(seed=0):
    """Class coefficients that sum to zero."""
    beta = np.random.default_rng(seed).normal(size=(K, 1 + P))
    return (beta - beta.mean(axis=0)).ravel()


def contrast_lengths(beta):
    return np.sqrt((beta.reshape(K, -1)[:, 1:] ** 2).sum(axis=0))


def test_mixing_law():
    """``exp(-|x|)`` in k - 1 dimensions is a normal with omega ~ Gamma(k/2, 1/2), normalisers included."""
    for k in (2, 3, 5):
        m = k - 1
        log_volume = math.log(2.0) + 0.5 * m * math.log(math.pi) - gammaln(0.5 * m) + gammaln(m)
        for length in (0.3, 1.7):

            def density(omega, m=m, k=k, length=length):
                normal = -0.5 * m * math.log(2.0 * math.pi * omega) - 0.5 * length**2 / omega
                gamma = (0.5 * k - 1.0) * math.log(omega) - 0.5 * omega - gammaln(0.5 * k) + 0.5 * k * math.log(0.5)
                return math.exp(normal + gamma)

            total = quad(density, 0.0, 200.0, limit=400)[0]
            assert math.log(total) == pytest.approx(-length - log_volume, abs=1e-6)


def test_density_integrates_to_one():
    """Over the two dimensions of one variable's three coefficients that sum to zero."""
    free = np.zeros(3, dtype=bool)
    A = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    t = np.linspace(-14.0, 14.0, 301)
    for prior, scale in ((GroupLasso(scale=0.7), 0.7), (Lasso(scale=0.7), 0.7), (Ridge(scale=0.7), 0.7)):
        bound = prior.bind(free, classes=3)
        state = bound.start()
        assert state.values["scale"] == scale
        value = np.array([[math.exp(bound.logpdf(state, np.array([a, b]) @ A)) for b in t] for a in t])
        total = np.trapezoid(np.trapezoid(value, t, axis=1), t)
        assert total == pytest.approx(1.0, abs=3e-3)


def test_draws_of_the_local_scales_average_to_the_density():
    """N(0, 1/precision) over drawn precisions is the density, up to a factor free of the coefficients."""
    bound, beta, rng = GroupLasso(scale=0.8).bind(FREE, classes=K), coefficients(), np.random.default_rng(1)
    start, shrunk = bound.start(), ~FREE
    drawn = np.array([bound.draw(rng, start, beta).precision[shrunk] @ beta[shrunk] ** 2 for _ in range(4000)])
    sample = np.exp(-0.5 * (1.44 - 1.0) * drawn)
    lengths = contrast_lengths(beta).sum() / 0.8
    assert abs(sample.mean() - math.exp(-0.2 * lengths)) < 4.0 * sample.std() / math.sqrt(4000)


@pytest.mark.parametrize("name", ["group", "lasso", "ridge", "horseshoe", "bridge"])
def test_bound_has_the_slopes_it_claims(name):
    prior = {"group": GroupLasso(), "lasso": Lasso(), "ridge": Ridge(), "horseshoe": Horseshoe(), "bridge": Bridge(0.7)}
    bound = prior[name].bind(FREE, classes=K)
    beta, var = coefficients(2), np.random.default_rng(3).uniform(0.1, 0.5, len(FREE))
    for face in (bound.expect, bound.gaussian):
        message = face(beta, var)
        for j in range(len(beta)):
            step = 1e-5 * np.eye(len(beta))[j]
            slope = (face(beta + step, var).bound - face(beta - step, var).bound) / 2e-5
            assert slope == pytest.approx(message.pull(beta)[j], rel=1e-4, abs=1e-7)
            slope = (face(beta, var + step).bound - face(beta, var - step).bound) / 2e-5
            assert slope == pytest.approx(-0.5 * message.precision[j], rel=1e-4, abs=1e-7)


def test_mode_is_the_joint_density_at_the_best_scale():
    bound, beta = GroupLasso(hyperprior=InverseGamma(2.0, 1.0)).bind(FREE, classes=K), coefficients(4)
    message = bound.mode(beta)
    total, m = contrast_lengths(beta).sum(), P * (K - 1)
    assert 1.0 / message.values["scale"] == pytest.approx((m + 2.0 - 1.0) / (1.0 + total))
    for factor in (0.9, 1.1):
        rho = factor / message.values["scale"]
        state = bound.at_scale(1.0 / rho).start()
        density = bound.logpdf(state, beta) + math.log(rho) - rho  # Gamma(2, 1) of rho
        assert density < message.bound
    rho = 1.0 / message.values["scale"]
    best = bound.logpdf(bound.at_scale(1.0 / rho).start(), beta) + math.log(rho) - rho
    assert message.bound == pytest.approx(best, rel=1e-10)


@pytest.mark.parametrize("name", ["group", "lasso", "ridge", "horseshoe", "bridge"])
def test_scale_counts_the_dimensions(name):
    """p(k - 1) of them: the law of a drawn scale, and the density under (scale, beta) -> (g scale, g beta)."""
    hyper = InverseGamma(3.0, 2.0)
    prior = {
        "group": GroupLasso(hyperprior=hyper),
        "lasso": Lasso(hyperprior=hyper),
        "ridge": Ridge(hyperprior=hyper),
        "horseshoe": Horseshoe(hyperprior=hyper),
        "bridge": Bridge(0.7, hyperprior=hyper),
    }[name]
    bound, beta = prior.bind(FREE, classes=K), coefficients(5)
    beta[FREE] = 0.0
    state = bound.start()
    moved = bound.stretched(state, 0.4)
    change = bound.logpdf(moved, math.exp(0.4) * beta) - bound.logpdf(state, beta)
    assert change == pytest.approx(-0.4 * P * (K - 1), rel=1e-9)
    # the scale given the coefficients, by quadrature over its logarithm
    log_scale = bound.stretch(state)
    grid = np.linspace(-8.0, 8.0, 4001)
    mass = np.array([log_scale(t) + bound.logpdf(bound.stretched(state, t), beta) for t in grid])
    mass = np.exp(mass - mass.max())
    mass /= mass.sum()
    rng, drawn, at = np.random.default_rng(6), [], state
    for _ in range(6000):
        at = bound.draw(rng, at, beta)
        drawn.append(math.log(at.values["scale"]))
    batches = np.array([b.mean() for b in np.array_split(drawn, 30)])
    error = batches.std(ddof=1) / math.sqrt(30)
    assert abs(batches.mean() - mass @ grid) < 4.0 * error
    wrong = mass * np.exp(-P * grid)  # pk dimensions
    assert abs(batches.mean() - (wrong / wrong.sum()) @ grid) > 8.0 * error


def test_along_and_penalty():
    bound, beta = GroupLasso(scale=0.5, intercept_scale=3.0).bind(FREE, classes=K), coefficients(7)
    state = bound.start()
    along = bound.along(state, beta)
    change = bound.logpdf(state, math.exp(0.6) * beta) - bound.logpdf(state, beta)
    assert along(0.6) - along(0.0) == pytest.approx(change, rel=1e-10)
    precision, rate, blocks = bound.penalty(0.5)
    value = 0.5 * precision @ beta**2 + rate[1:] @ contrast_lengths(beta)
    zero = bound.logpdf(state, np.zeros(len(beta)))
    assert zero - bound.logpdf(state, beta) == pytest.approx(value, rel=1e-10)
    assert blocks == K and rate[0] == 0.0


def test_one_class_is_the_lasso():
    free = np.array([True, False, False])
    bound = GroupLasso(scale=0.4).bind(free)
    assert isinstance(bound, BoundBridge) and bound.alpha == 1.0
    beta = np.array([0.5, -1.0, 2.0])
    lasso = Lasso(scale=0.4).bind(free)
    assert bound.logpdf(bound.start(), beta) == lasso.logpdf(lasso.start(), beta)


def test_bad_scales_are_refused():
    with pytest.raises(ValueError, match="GroupLasso scale must be a positive number"):
        GroupLasso(scale=-1.0)
    with pytest.raises(ValueError, match="give alpha a number"):
        Bridge("learn").bind(FREE, classes=K)
    half_cauchy = GroupLasso(hyperprior=HalfCauchy(1.0)).bind(FREE, classes=K)
    with pytest.raises(ValueError, match="use InverseGamma"):
        half_cauchy.mode(coefficients())
