"""Regression with groups: closed forms under normal noise, units of y, known and new groups."""

import itertools

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVR, RandomEffect
from softmargin.priors import Ridge, SpikeSlab

NOISE, SCALE, BETWEEN = 0.8, 0.6, 0.5
DRAWS = {"draws": 1500, "warmup": 100, "chains": 2, "random_state": 0}


def responses(n=60, groups=6, unit=1.0, seed=0, between=1.0):
    """Rows with a slope, a shift per group and normal noise of standard deviation ``0.7 unit``."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, 2)), columns=["dose", "age"])
    g = np.resize([f"g{k:02d}" for k in range(groups)], n)
    shift = between * rng.standard_normal(groups)
    y = 3.0 + X["dose"] - 0.5 * X["age"] + shift[np.arange(n) % groups] + 0.7 * rng.standard_normal(n)
    return X, unit * y.to_numpy(), g, unit * shift


def known(inference, **options):
    """Everything but the coefficients is given, in standard deviations of y."""
    effect = (
        [RandomEffect("groups", scale=BETWEEN)] if "random_effects" not in options else options.pop("random_effects")
    )
    how = {"likelihood": "squared", "noise": NOISE, "random_effects": effect, "tol": 1e-13} | options
    return BayesianSVR(Ridge(scale=SCALE, intercept_scale=1e4), inference, **how)


def closed_form(X, y, g):
    """Posterior mean and covariance of intercept, slopes and effects in units of y, columns standardized."""
    Z = np.column_stack((np.ones(len(y)), (X - X.mean()) / X.std(ddof=0), pd.get_dummies(g).to_numpy(float)))
    r, spread = (y - y.mean()) / y.std(), y.std()
    D = np.concatenate(([1e-8], np.full(2, SCALE**-2), np.full(Z.shape[1] - 3, BETWEEN**-2)))
    covariance = np.linalg.inv(Z.T @ Z / NOISE**2 + np.diag(D))
    mean = spread * covariance @ (Z.T @ r) / NOISE**2
    mean[0] += y.mean()
    return Z, mean, spread**2 * covariance


def left_out_error(Z, y, mean, covariance):
    """Root mean squared error of rows predicted without themselves."""
    taken = np.einsum("ia,ab,ib->i", Z, covariance, Z) / (NOISE * y.std()) ** 2
    return np.sqrt(np.mean(((y - Z @ mean) / (1.0 - taken)) ** 2))


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map"])
def test_normal_noise_is_a_normal_posterior(inference):
    """Coefficients, effects and predictors of known and new groups, and rows left out, in closed form."""
    X, y, g, _ = responses()
    frame = X.assign(groups=g)
    model = known(inference).fit(frame, y)
    Z, mean, covariance = closed_form(X, y, g)
    np.testing.assert_allclose(model._fitted.joint.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(frame), Z @ mean, rtol=1e-6)
    np.testing.assert_allclose(model.random_effects_["groups"]["mean"], mean[3:], rtol=1e-5, atol=1e-6)
    wanted = model.variance_components_.loc[("groups", "Intercept")]
    assert wanted["sd"] == pytest.approx(BETWEEN * y.std())
    assert wanted["intraclass"] == pytest.approx(BETWEEN**2 / (BETWEEN**2 + NOISE**2))
    new = frame.assign(groups="elsewhere")
    np.testing.assert_allclose(model.predict(new), Z[:, :3] @ mean[:3], rtol=1e-6)
    if inference == "map":
        return
    _, sd = model.predict(frame, return_std=True)
    np.testing.assert_allclose(sd**2, np.einsum("ia,ab,ib->i", Z, covariance, Z), rtol=1e-6)
    np.testing.assert_allclose(model.random_effects_["groups"]["sd"], np.sqrt(covariance.diagonal()[3:]), rtol=1e-6)
    _, sd = model.predict(new, return_std=True)
    own = np.einsum("ia,ab,ib->i", Z[:, :3], covariance[:3, :3], Z[:, :3])
    np.testing.assert_allclose(sd**2, own + (BETWEEN * y.std()) ** 2, rtol=1e-6)
    assert model.loo_.rmse == pytest.approx(left_out_error(Z, y, mean, covariance), rel=1e-5)


@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
def test_draws_are_those_of_the_normal_posterior(inference):
    X, y, g, _ = responses()
    model = known(inference, **DRAWS).fit(X.assign(groups=g), y)
    Z, mean, covariance = closed_form(X, y, g)
    draws, sd = model._fitted.joint.draws, np.sqrt(covariance.diagonal())
    batches = draws.reshape(60, -1, len(mean)).mean(axis=1)
    z = (batches.mean(axis=0) - mean) / (batches.std(axis=0, ddof=1) / np.sqrt(60))
    assert np.abs(z).max() < 4.0
    np.testing.assert_allclose(draws.reshape(-1, len(mean)).std(axis=0), sd, rtol=0.1)
    assert model.loo_.rmse == pytest.approx(left_out_error(Z, y, mean, covariance), rel=0.01)


def test_selection_beside_groups_equals_enumeration():
    """Normal noise and given scales: inclusion probabilities of two columns against the evidences of four models."""
    X, y, g, _ = responses(n=30, groups=5)
    X, y = X.to_numpy() * [0.1, 0.6], y - y.mean()
    prior, indicator = SpikeSlab(0.4, scale=0.7, intercept_scale=2.0), pd.get_dummies(g).to_numpy(float)
    logs, models = [], list(itertools.product((0, 1), repeat=2))
    for gamma in models:
        inside = np.flatnonzero(gamma)
        sd = np.concatenate(([2.0], np.full(len(inside), 0.7), np.full(5, BETWEEN)))
        Z = np.column_stack((np.ones(30), X[:, inside], indicator)) * sd
        cov = Z @ Z.T + NOISE**2 * np.eye(30)
        evidence = -0.5 * (np.linalg.slogdet(cov)[1] + y @ np.linalg.solve(cov, y))
        logs.append(evidence + len(inside) * np.log(0.4) + (2 - len(inside)) * np.log(0.6))
    weight = np.exp(np.array(logs) - max(logs))
    exact = (weight / weight.sum()) @ np.array(models)
    assert 0.1 < exact.min() < exact.max() < 0.95
    how = {"likelihood": "squared", "noise": NOISE, "standardize": False, "fit_intercept": True}
    effects = [RandomEffect(2, scale=BETWEEN)]
    model = BayesianSVR(prior, "gibbs", random_effects=effects, **how, **DRAWS)
    model.fit(np.column_stack((X, np.arange(30) % 5)), y)
    assert (np.abs(model.inclusion_ - exact) < 4.0 * model.inclusion_error_).all()


def test_known_and_new_groups_end_to_end():
    """Levels and spreads in the units of y; intervals cover in groups that were seen and in others."""
    rng, unit = np.random.default_rng(7), 1000.0
    X, y, g, shift = responses(n=400, groups=40, unit=unit, between=2.0, seed=5)
    model = BayesianSVR().fit(X, y, groups=g)
    small = BayesianSVR().fit(X, y / unit, groups=g)
    table = model.random_effects_["groups"]
    np.testing.assert_allclose(table["mean"], unit * small.random_effects_["groups"]["mean"], rtol=1e-6)
    assert np.corrcoef(table["mean"], shift)[0, 1] > 0.98
    covered = (table["lower"] < shift) & (shift < table["upper"])  # shifts are around their mean, which is not known
    assert covered.mean() > 0.8
    between = model.variance_components_.loc[("groups", "Intercept")]
    assert between["sd"] == pytest.approx(shift.std(), rel=0.15)
    assert between["sd"] == pytest.approx(
        unit * small.variance_components_.loc[("groups", "Intercept"), "sd"], rel=1e-6
    )
    assert between["intraclass"] == pytest.approx(4.0 / (4.0 + 0.7**2), abs=0.06)
    assert model.likelihood_ == "squared" and model.noise_ == pytest.approx(0.7 * unit, rel=0.1)
    more = pd.DataFrame(rng.standard_normal((4000, 2)), columns=["dose", "age"])
    truth = unit * (3.0 + more["dose"] - 0.5 * more["age"] + 0.7 * rng.standard_normal(4000))
    place = rng.integers(0, 40, 4000)
    for groups, effect in (
        (np.array([f"g{k:02d}" for k in range(40)])[place], shift[place]),
        (np.array([f"new{k}" for k in range(4000)]), 2.0 * unit * rng.standard_normal(4000)),
    ):
        low, high = model.predict_interval(more, level=0.9, groups=groups).T
        inside = (low < truth + effect) & (truth + effect < high)
        assert 0.86 < inside.mean() < 0.95
    assert model.score(X, y, groups=g) > 0.9
    with pytest.warns(UserWarning, match="none came with these"):
        alone = model.predict(more.head(3))
    np.testing.assert_allclose(alone, model.predict(more.head(3), groups=["new", "newer", "newest"]))
