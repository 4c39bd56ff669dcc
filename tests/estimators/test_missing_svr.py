"""Regression with missing entries of X."""

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVR

DRAWS = {"draws": 600, "warmup": 150, "chains": 2, "random_state": 0}


def holes(n=150, share=0.15, seed=0):
    """Three correlated columns, entries of the last two knocked out."""
    rng = np.random.default_rng(seed)
    X = 0.7 * rng.standard_normal((n, 1)) + 0.7 * rng.standard_normal((n, 3))
    y = 5.0 + X @ [2.0, -1.0, 0.5] + 0.8 * rng.standard_normal(n)
    full = X.copy()
    X[:, 1:][rng.random((n, 2)) < share] = np.nan
    return X, y, full


@pytest.mark.parametrize("likelihood", ["squared", "epsilon-insensitive"])
def test_the_bound_rises_and_agrees_with_draws(likelihood):
    """Coefficients within a third of a standard deviation of exact draws, entries and noise likewise."""
    X, y, full = holes()
    fit = BayesianSVR(likelihood=likelihood).fit(X, y)
    assert np.diff(fit.trace_).min() > -1e-9 * abs(fit.trace_[-1])
    drawn = BayesianSVR(inference="gibbs", likelihood=likelihood, **DRAWS).fit(X, y)
    one, other = fit.summary(), drawn.summary()
    error = other["sd"] / np.sqrt(other["ess"])
    assert (np.abs(one["mean"] - other["mean"]) < 4.0 * error + 0.33 * other["sd"]).all()
    assert (one["sd"] / other["sd"]).between(0.6, 1.1).all()
    assert fit.noise_ == pytest.approx(drawn.noise_, rel=0.12)
    at = fit.imputed_["row"].to_numpy(), fit.imputed_["feature"].str[1:].astype(int).to_numpy()
    assert np.isnan(X[at]).all() and len(fit.imputed_) == np.isnan(X).sum()
    apart = (fit.imputed_["mean"] - drawn.imputed_["mean"]) / drawn.imputed_["sd"]
    assert np.sqrt((apart**2).mean()) < 0.15
    off = (full[at] - fit.imputed_["mean"]) / fit.imputed_["sd"]
    assert 0.8 < np.sqrt((off**2).mean()) < 1.2  # what was there lies where the model says


def test_trajectories_agree_with_gibbs():
    X, y, _ = holes(n=80)
    short = {"likelihood": "squared", "draws": 500, "warmup": 100, "chains": 2}
    one = BayesianSVR(inference="gibbs", random_state=1, **short).fit(X, y)
    two = BayesianSVR(inference="hmc", random_state=2, **short).fit(X, y)
    a, b = one.summary(), two.summary()
    error = np.sqrt(a["sd"] ** 2 / a["ess"] + b["sd"] ** 2 / b["ess"])
    assert (np.abs(a["mean"] - b["mean"]) / error).max() < 4.0
    np.testing.assert_allclose(b["sd"] / a["sd"], 1.0, atol=0.2)


@pytest.mark.parametrize("inference", ["vb", "map"])
def test_new_rows_with_holes_and_groups(inference):
    """Intervals of incomplete rows are wider and cover; groups go with them."""
    X, y, _ = holes(n=300)
    g = np.arange(300) % 10
    y = y + np.linspace(-3.0, 3.0, 10)[g]
    model = BayesianSVR(inference=inference).fit(X[:200], y[:200], groups=g[:200])
    low, high = model.predict_interval(X[200:], level=0.9, groups=g[200:]).T
    assert 0.8 < ((low < y[200:]) & (y[200:] < high)).mean() <= 1.0
    incomplete = np.isnan(X[200:]).any(axis=1)
    assert (high - low)[incomplete].mean() > (high - low)[~incomplete].mean()
    assert np.corrcoef(model.random_effects_["groups"]["mean"], np.arange(10))[0, 1] > 0.95
    assert len(model.imputed_) == np.isnan(X[:200]).sum()


def test_indicators_are_the_plain_way():
    X, y, _ = holes()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = BayesianSVR(missing="indicator").fit(frame, y)
    by_hand = frame.fillna(frame.mean()).assign(b_gone=frame["b"].isna() * 1.0, c_gone=frame["c"].isna() * 1.0)
    plain = BayesianSVR().fit(by_hand, y)
    assert model.summary().index.tolist() == ["Intercept", "a", "b", "c", "missing(b)", "missing(c)"]
    np.testing.assert_allclose(model.predict(frame), plain.predict(by_hand), rtol=1e-8)
