"""The normal prior against densities from SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from softmargin.priors import HalfCauchy, InverseGamma, Ridge

FREE = np.array([True, False, False, False])
BETA, VAR = np.array([2.0, -0.7, 0.1, 1.4]), np.array([9.0, 0.2, 0.05, 0.4])


def test_fixed_scale_is_an_average_of_the_normal_log_density():
    """E log N(beta; 0, s^2) = log N(mean) - var / (2 s^2)."""
    prior = Ridge(scale=0.5, intercept_scale=10.0).bind(FREE)
    sd = np.array([10.0, 0.5, 0.5, 0.5])
    message = prior.expect(BETA, VAR)
    wanted = (stats.norm.logpdf(BETA, scale=sd) - VAR / (2 * sd**2)).sum()
    assert message.bound == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(message.precision, sd**-2.0)
    assert message.values == {"scale": pytest.approx(0.5)}
    assert prior.mode(BETA).bound == pytest.approx(stats.norm.logpdf(BETA, scale=sd).sum(), rel=1e-12)
    np.testing.assert_allclose(prior.start().precision, sd**-2.0)


def test_inverse_gamma_integrates_to_a_multivariate_t():
    """With tau integrated out the shrunk coefficients have a t law with 2 a degrees of freedom and scale b/a."""
    a, b = 1.7, 0.6
    prior = Ridge(hyperprior=InverseGamma(a, b), intercept_scale=10.0).bind(FREE)
    law = stats.multivariate_t(np.zeros(3), b / a * np.eye(3), df=2 * a)
    wanted = law.logpdf(BETA[1:]) + stats.norm.logpdf(BETA[0], scale=10.0)
    assert prior.expect(BETA, np.zeros(4)).bound == pytest.approx(wanted, rel=1e-10)


def test_default_mode_uses_a_gamma_precision():
    """The mode over (beta, tau) with tau ~ Gamma(2, 1): 1/s^2 = (p/2 + 1)/(1 + |beta|^2/2), intercept left out."""
    message = Ridge(intercept_scale=10.0).bind(FREE).mode(BETA)
    tau = (1.5 + 1) / (1 + 0.5 * BETA[1:] @ BETA[1:])
    np.testing.assert_allclose(message.precision, [0.01, tau, tau, tau])
    assert message.values["scale"] == pytest.approx(tau**-0.5)
    wanted = stats.gamma.logpdf(tau, 2.0) + stats.norm.logpdf(BETA[1:], scale=tau**-0.5).sum()
    assert message.bound == pytest.approx(wanted + stats.norm.logpdf(BETA[0], scale=10.0), rel=1e-12)


def test_mode_counts_the_directions_that_rows_can_see():
    """Three rows and an intercept leave two directions; a third shrunk coefficient says nothing about the scale."""
    message = Ridge(intercept_scale=10.0).bind(FREE, 3).mode(BETA)
    tau = (2 / 2 + 1) / (1 + 0.5 * BETA[1:] @ BETA[1:])
    np.testing.assert_allclose(message.precision, [0.01, tau, tau, tau])
    assert Ridge().bind(FREE, 400).mode(BETA).bound == Ridge().bind(FREE).mode(BETA).bound


def test_exact_averages_are_those_of_the_quadratic():
    for prior in (Ridge(), Ridge(scale=0.5)):
        a, b = prior.bind(FREE).expect(BETA, VAR), prior.bind(FREE).gaussian(BETA, VAR)
        assert a.bound == b.bound and np.array_equal(a.precision, b.precision)
        np.testing.assert_allclose(b.pull(BETA), -b.precision * BETA)


def test_half_cauchy_has_no_joint_mode():
    prior = Ridge(hyperprior=HalfCauchy(2.0)).bind(FREE)
    with pytest.raises(ValueError, match="degenerates at zero; use InverseGamma"):
        prior.mode(BETA)
    assert prior.at_scale(0.5).mode(BETA).bound == pytest.approx(Ridge(scale=0.5).bind(FREE).mode(BETA).bound)


@pytest.mark.parametrize("hyperprior", [HalfCauchy(1.0), InverseGamma(2.0, 1.0)])
def test_the_intercept_has_no_part_in_the_scale(hyperprior):
    prior = Ridge(hyperprior=hyperprior).bind(FREE)
    moved, more = BETA + np.array([500.0, 0, 0, 0]), VAR + np.array([1e4, 0, 0, 0])
    np.testing.assert_allclose(prior.expect(moved, more).precision, prior.expect(BETA, VAR).precision)
    same = [prior.draw(np.random.default_rng(1), prior.start(), beta).values["scale"] for beta in (BETA, moved)]
    assert same[0] == same[1]
    larger = prior.expect(BETA * np.array([1, 2, 2, 2]), VAR)  # the others have, and in this direction
    assert larger.values["scale"] > 1.2 * prior.expect(BETA, VAR).values["scale"]


def test_along_stretch_and_hyperprior():
    prior = Ridge(intercept_scale=10.0).bind(FREE)
    state = prior.stretched(prior.start(), math.log(0.3))
    assert state.values["scale"] == pytest.approx(0.3)
    np.testing.assert_allclose(state.precision, [0.01, 1 / 0.09, 1 / 0.09, 1 / 0.09])
    sd, grow = np.array([10.0, 0.3, 0.3, 0.3]), math.exp(0.4)
    along = prior.along(state, BETA)
    wanted = stats.norm.logpdf(grow * BETA, scale=sd).sum() - stats.norm.logpdf(BETA, scale=sd).sum()
    assert along(0.4) - along(0.0) == pytest.approx(wanted, rel=1e-12)
    scale = 0.3 * grow
    log_density = math.log(2.0) + stats.t.logpdf(scale, 10.0) + math.log(scale)
    assert prior.stretch(state)(0.4) == pytest.approx(log_density, rel=1e-12)


def test_nothing_to_shrink():
    """With an intercept alone no scale is learned and the bound is its normal density."""
    prior = Ridge(hyperprior=InverseGamma(2.0, 1.0), intercept_scale=10.0).bind(np.array([True]))
    assert prior.stretch(prior.start()) is None
    bound = prior.expect(np.array([3.0]), np.zeros(1)).bound
    assert bound == pytest.approx(stats.norm.logpdf(3.0, scale=10.0), rel=1e-12)


def test_fixed_scale_is_not_drawn():
    prior = Ridge(scale=0.5).bind(FREE)
    state = prior.start()
    assert prior.draw(np.random.default_rng(0), state, BETA) is state
    assert prior.stretch(state) is None


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, "learned"])
def test_a_scale_is_positive_or_learned(scale):
    with pytest.raises(ValueError, match="must be a positive number or 'learn'; got"):
        Ridge(scale=scale)


def test_an_intercept_scale_is_positive():
    with pytest.raises(ValueError, match="intercept_scale must be a positive number; got 0"):
        Ridge(intercept_scale=0)
