"""Uncalibrated probabilities against quadrature, and the tables and warnings about mixing."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from parts import dense_columns
from scipy import integrate, stats
from scipy.special import expit

from softmargin.designs import standardize
from softmargin.losses.probability import pseudo_probability, sign_probability
from softmargin.posterior import diagnostics
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior
from softmargin.posterior.diagnostics import Wanted, drawn_from, not_mixed, sampled
from softmargin.posterior.inference_data import to_arviz
from softmargin.rows.streams import Streams


def pseudo(f, rate):
    """L(1)/(L(1) + L(-1)) with L(y) = exp(-2 rate max(1 - y f, 0))."""
    return expit(2 * rate * (max(1 + f, 0.0) - max(1 - f, 0.0)))


def quadrature(m, v, rate):
    s = math.sqrt(v)
    ends = [m - 10 * s, *sorted(x for x in (-1.0, 0.0, 1.0, m) if abs(x - m) < 10 * s), m + 10 * s]
    pieces = [
        integrate.quad(lambda f: pseudo(f, rate) * stats.norm.pdf(f, m, s), lo, hi, epsabs=1e-12, limit=200)[0]
        for lo, hi in pairwise(ends)
        if hi > lo
    ]
    return sum(pieces)


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("v", [1e-10, 1e-4, 0.05, 1.0, 30.0, 1e4])
def test_pseudo_probability(v, rate):
    f = np.array([-25.0, -3.0, -1.0, -0.4, 0.0, 0.2, 0.999, 1.0, 1.3, 6.0, 40.0])
    got = pseudo_probability(f, np.full(len(f), v), rate)
    np.testing.assert_allclose(got, [quadrature(m, v, rate) for m in f], atol=1e-8)
    np.testing.assert_allclose(pseudo_probability(-f, np.full(len(f), v), rate), 1 - got, atol=1e-9)
    assert np.all(np.diff(got) >= -1e-9) and got[0] < 0.5 < got[-1]


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_pseudo_probability_without_variance(rate):
    f = np.array([-30.0, -1.5, -0.3, 0.0, 0.8, 2.0])
    wanted = [pseudo(x, rate) for x in f]
    np.testing.assert_allclose(pseudo_probability(f, np.zeros(6), rate), wanted, atol=1e-8)
    assert pseudo(0.8, rate) == pytest.approx(expit(4 * rate * 0.8))  # the factor: 4 inside the margin


def test_pseudo_probability_without_variance_at_the_margin():
    got = pseudo_probability(np.array([-1.0, 1.0]), np.zeros(2), 1.0)
    np.testing.assert_allclose(got, [expit(-4.0), expit(4.0)], rtol=1e-8)


def test_sign_probability():
    f, v = np.array([0.7, -0.7, 0.0, 2.0, -2.0, 0.0]), np.array([4.0, 4.0, 4.0, 0.0, 0.0, 0.0])
    half = stats.norm.cdf(0.35)
    np.testing.assert_allclose(sign_probability(f, v), [half, 1 - half, 0.5, 1.0, 0.0, 0.5], rtol=1e-12)


def chains(apart=0.0, n_chains=4, draws=300):
    """Independent normal draws of four coefficients and an intercept; the second half of the chains may be apart."""
    rng = np.random.default_rng(0)
    X = dense_columns()
    columns = standardize(X, np.ones(23))
    z = rng.normal(size=(n_chains, draws, 5))
    z[n_chains // 2 :, :, 1] += apart
    flat = z.reshape(-1, 5)
    root = np.linalg.cholesky(np.cov(flat.T))
    scale = rng.exponential(size=(n_chains, draws))
    weights, loglik = np.full(scale.size, 1 / scale.size), -rng.exponential(size=(n_chains, draws))
    square = float((scale**2).mean())
    return DrawsPosterior(columns, None, flat.mean(axis=0), square, root, scale.ravel(), weights, z, loglik)


def test_the_column_whose_chains_are_apart_is_found():
    good, bad = chains().in_blocks().mixing(), chains(apart=3.0).in_blocks().mixing()
    assert good["r_hat"].max() < 1.02 and np.all((good["ess"] > 600) & (good["ess"] < 2500))
    assert bad["r_hat"][1] > 1.5 and bad["ess"][1] < 20
    assert bad["r_hat"][2] < 1.02  # only the column whose chains are apart, and what it moves


def test_sentence_has_the_number():
    assert re.search(r"largest R-hat is 1\.\d\d .*raise draws and warmup", not_mixed([chains(), chains(apart=3.0)]))
    assert not not_mixed([chains()])
    assert not not_mixed([])
    assert not not_mixed([chains(apart=3.0, n_chains=1)])  # one chain cannot disagree


@pytest.mark.parametrize(
    ("worst", "shown"), [(2.2149, "2.21"), (1.0504, "1.0504"), (1.05 + 1e-9, "1.050000001"), (np.inf, "inf")]
)
def test_the_number_is_seen_to_be_above_its_limit(worst, shown, monkeypatch):
    monkeypatch.setattr(diagnostics, "r_hat", lambda _: np.array([1.0, worst, np.nan]))
    assert f"the largest R-hat is {shown} (wanted: at most 1.05)" in not_mixed([chains()])


def arviz_of(posterior, inference, draws, seed):
    drawn = drawn_from(posterior, Wanted(draws), Streams.from_random_state(seed))
    drawn = sampled(posterior.columns, posterior, *drawn)
    return to_arviz(drawn, ["a", "b", "c", "d"], inference)


def test_arviz_has_draws_on_the_users_scale():
    pytest.importorskip("arviz")
    posterior = chains()
    data = arviz_of(posterior, "gibbs", 10, 0)
    coef, intercept = posterior.columns.to_user(posterior.draws)
    group = data["posterior"]
    assert group["coef"].dims == ("chain", "draw", "feature")
    assert list(group["coef"].coords["feature"].to_numpy()) == ["a", "b", "c", "d"]
    np.testing.assert_allclose(group["coef"].to_numpy(), coef)
    np.testing.assert_allclose(group["intercept"].to_numpy(), intercept)
    np.testing.assert_allclose(group["scale"].to_numpy(), posterior.scale)
    np.testing.assert_allclose(data["sample_stats"]["loglik"].to_numpy(), posterior.loglik)
    assert group.attrs["approximation"] == 0 and group.attrs["inference"] == "gibbs"


def test_arviz_draws_from_an_approximation_and_says_so():
    pytest.importorskip("arviz")
    other = chains()
    scales, weights = np.array([0.7, 0.9]), np.array([0.25, 0.75])
    posterior = GaussianPosterior(other.columns, None, np.arange(5.0), 0.73, 0.1 * np.eye(5), scales, weights)
    data = arviz_of(posterior, "vb", 4000, 1)
    group = data["posterior"]
    assert group.attrs["approximation"] == 1
    assert group["coef"].shape == (1, 4000, 4)
    assert abs((group["scale"].to_numpy() == 0.9).mean() - 0.75) < 4.5 * math.sqrt(0.75 * 0.25 / 4000)
    slopes = group["coef"].to_numpy()[0] / posterior.columns.scale
    assert np.all(np.abs(slopes.mean(axis=0) - np.arange(1.0, 5.0)) < 4.5 * 0.1 / math.sqrt(4000))
    assert np.all(np.abs(slopes.std(axis=0) / 0.1 - 1) < 4.5 / math.sqrt(8000))
    again = arviz_of(posterior, "vb", 4000, 1)
    assert np.array_equal(again["posterior"]["coef"].to_numpy(), group["coef"].to_numpy())


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.09])
def test_pseudo_probability_at_small_rates(rate):
    """Small rates take the smooth rule for the tails; it equals quadrature too."""
    for f, v in ((0.3, 0.5), (-2.0, 4.0), (5.0, 9.0)):

        def integrand(x, f=f, v=v):
            score = 2.0 * rate * (max(1.0 + x, 0.0) - max(1.0 - x, 0.0))
            return 1.0 / (1.0 + np.exp(-score)) * np.exp(-0.5 * (x - f) ** 2 / v) / np.sqrt(2.0 * np.pi * v)

        s = np.sqrt(v)
        wanted = integrate.quad(integrand, f - 9 * s, f + 9 * s, points=[-1.0, 1.0], limit=300)[0]
        got = pseudo_probability(np.array([f]), np.array([v]), rate)[0]
        assert got == pytest.approx(wanted, abs=1e-8)
