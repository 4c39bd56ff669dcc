"""The check loss: its law of errors, its latent, and fitted quantiles."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from softmargin import BayesianSVR
from softmargin.losses import Check, EpsilonInsensitive, Squared
from softmargin.priors import Ridge


def test_by_hand():
    y, c, f = np.array([1.0, -1.0, 0.5]), np.array([1.0, 2.0, 1.0]), np.array([0.0, 1.0, 0.5])
    np.testing.assert_allclose(Check(0.9).loglik(y, c, f), [-1.8, -0.8, 0.0], atol=1e-15)
    np.testing.assert_allclose(Check(0.9).score(y, c, f)[:2], [1.8, -0.4])


def test_the_median_has_half_the_slope_of_no_band():
    y, c, f, v = np.array([1.0, -2.0]), np.array([0.7, 1.3]), np.array([0.4, 3.0]), np.array([0.3, 2.0])
    for face in ("expect", "gaussian"):
        found = getattr(Check(0.5), face)(y, 2.0 * c, f, v)
        wanted = getattr(EpsilonInsensitive(0.0), face)(y, c, f, v)
        np.testing.assert_allclose(found.bound, wanted.bound, rtol=1e-12)
        np.testing.assert_allclose(found.b - found.w * f, wanted.b - wanted.w * f, rtol=1e-11)


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.8])
def test_average_by_quadrature(quantile):
    y, c, f, v = 0.7, 1.3, -0.4, 2.25

    def loss(x):
        e = y - x
        return -2.0 * c * e * (quantile - (e < 0.0)) * stats.norm.pdf(x, f, 1.5)

    total = integrate.quad(loss, -15.0, y)[0] + integrate.quad(loss, y, 15.0)[0]
    one = np.ones(1)
    w, b, bound = Check(quantile).gaussian(y * one, c * one, f * one, v * one)
    assert bound[0] == pytest.approx(total, rel=1e-9)
    assert w[0] == pytest.approx(2.0 * c * stats.norm.pdf(y, f, 1.5), rel=1e-10)
    assert b[0] - w[0] * f == pytest.approx(2.0 * c * (quantile - stats.norm.cdf(f, y, 1.5)), rel=1e-9)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.7])
def test_the_augmented_density_less_the_conditional_is_constant(quantile):
    """Kozumi and Kobayashi: e is normal with mean (1 - 2q) c lam and variance lam given an exponential lam."""
    e, c = 0.8, 1.3
    lam = np.linspace(0.05, 4.0, 50)
    shift = (2.0 * quantile - 1.0) * c
    joint = -0.5 * (e + shift * lam) ** 2 / lam - 0.5 * (c * c - shift * shift) * lam - 0.5 * np.log(lam)
    law = stats.geninvgauss(0.5, c * e, scale=e / c).logpdf(lam)
    np.testing.assert_allclose(joint - law, (joint - law)[0], atol=1e-10)
    drawn = Check(quantile).draw(np.random.default_rng(2), np.full(4000, e), np.full(4000, c), np.zeros(4000))
    assert stats.kstest(1.0 / drawn.w, stats.geninvgauss(0.5, c * e, scale=e / c).cdf).pvalue > 1e-4
    np.testing.assert_allclose(drawn.b, drawn.w * e + shift, rtol=1e-12)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.3, math.nan])
def test_a_quantile_is_a_share(quantile):
    with pytest.raises(ValueError, match="quantile must be a number between 0 and 1"):
        Check(quantile)


def skewed(n=400):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, 2))
    return X, 10.0 + X @ [2.0, 0.0] + rng.exponential(1.5, size=n)


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "gibbs", "hmc"])
def test_every_inference_fits_the_quantile(inference):
    X, y = skewed()
    fit = BayesianSVR(Ridge(scale=10.0), inference, likelihood=Check(0.9), draws=200, chains=2, random_state=0)
    fit.fit(X, y)
    assert abs(np.mean(y < fit.predict(X)) - 0.9) < 0.03
    assert fit.coef_[0, 0] == pytest.approx(2.0, abs=0.25)
    assert fit.likelihood_ == "Check(quantile=0.9)" and not hasattr(fit, "epsilon_")


def test_intervals_hold_their_share_of_asymmetric_errors():
    rng = np.random.default_rng(3)
    X, side = rng.normal(size=(600, 2)), rng.random(600) < 0.8
    y = X @ [2.0, 0.0] + np.where(side, -rng.exponential(1.0 / 0.2, 600), rng.exponential(1.0 / 0.8, 600))
    fit = BayesianSVR(likelihood=Check(0.8)).fit(X, y)
    for level in (0.5, 0.9):
        low, high = fit.predict_interval(X, level).T
        assert abs(np.mean((low < y) & (y < high)) - level) < 4.0 * math.sqrt(level * (1.0 - level) / 600)


def test_losses_that_are_named_and_given_are_the_same():
    X, y = skewed(60)
    named, given = (BayesianSVR(likelihood=loss).fit(X, y) for loss in ("squared", Squared()))
    np.testing.assert_array_equal(named.coef_, given.coef_)
    assert given.likelihood_ == "squared"
