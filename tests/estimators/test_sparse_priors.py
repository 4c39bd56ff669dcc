"""Lasso, bridge and horseshoe through the estimator."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import arviz
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.interpolate import CubicSpline
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from softmargin import BayesianSVC
from softmargin.priors import Bridge, Horseshoe, InverseGamma, Lasso, Ridge


def sparse_truth(n=300, p=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] - X[:, 1] + 0.7 * X[:, 2] + 0.7 * rng.normal(size=n) > 0, 1, 0)


def linear_program(X, sign, scale):
    """Least value of 2 sum hinge + sum |beta| / scale over standardized columns and a free intercept, by HiGHS."""
    Z = np.column_stack((np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0))) * sign[:, None]
    n, p = Z.shape
    rate = np.full(p, 1.0 / scale)
    rate[0] = 0.0
    A = sp.hstack([sp.csr_matrix(-Z), sp.csr_matrix(Z), -sp.eye(n)])
    return linprog(np.r_[rate, rate, np.full(n, 2.0)], A_ub=A, b_ub=-np.ones(n), method="highs").fun


def objective(model, X, sign, scale):
    hinge = np.maximum(1.0 - sign * (X @ model.coef_[0] + model.intercept_[0]), 0.0).sum()
    return 2.0 * hinge + np.abs(model.coef_[0] * X.std(axis=0)).sum() / scale


def real_data(name):
    folder = os.environ.get("SOFTMARGIN_DATA")
    if not folder:
        pytest.skip("SOFTMARGIN_DATA is not set")
    if name == "colon":
        data = np.load(Path(folder) / "colon.npz")
        return data["X"].astype(float), data["y"].astype(float)
    frame = pd.read_csv(Path(folder) / f"{name}.csv.gz")
    return frame.iloc[:, :-1].to_numpy(float), frame.iloc[:, -1].to_numpy(float)


@pytest.mark.parametrize("scale", [0.02, 0.2, 2.0])
def test_lasso_mode_equals_a_linear_program(scale):
    X, y = sparse_truth()
    model = BayesianSVC(Lasso(scale=scale), "map", learning_rate=1.0).fit(X, y)
    best = linear_program(X, 2.0 * y - 1.0, scale)
    assert objective(model, X, 2.0 * y - 1.0, scale) == pytest.approx(best, rel=1e-8)
    assert model.gap_ <= 1e-8
    if scale == 0.02:
        assert 0 < (model.coef_[0] == 0.0).sum() < 12


@pytest.mark.parametrize(("name", "scale"), [("heart", 0.05), ("spam", 0.02), ("colon", 0.05), ("colon", 1.0)])
def test_lasso_mode_equals_a_linear_program_on_real_data(name, scale):
    X, y = real_data(name)
    model = BayesianSVC(Lasso(scale=scale), "map", learning_rate=1.0).fit(X, y)
    assert objective(model, X, y, scale) == pytest.approx(linear_program(X, y, scale), rel=1e-8)
    assert model.gap_ <= 1e-8
    if name != "heart":
        assert (model.coef_[0] == 0.0).sum() > 5


def test_em_reaches_the_lasso_mode():
    X, y = sparse_truth()
    newton = BayesianSVC(Lasso(scale=0.1), "map", learning_rate=1.0).fit(X, y)
    em = BayesianSVC(
        Lasso(scale=0.1), "map", learning_rate=1.0, engine_options={"algorithm": "em"}, max_iter=3000, tol=1e-10
    ).fit(X, y)
    np.testing.assert_allclose(em.coef_, newton.coef_, atol=1e-4)
    assert em.gap_ <= 1e-6 and (np.diff(em.trace_) > -1e-8).all()


def test_bridge_at_two_is_ridge():
    """exp(-|b/s|^2) is a normal density with standard deviation s / sqrt(2)."""
    X, y = sparse_truth()
    for inference in ("vb", "meanfield"):
        bridge = BayesianSVC(Bridge(2.0, scale=0.5), inference, learning_rate=0.5, tol=1e-10).fit(X, y)
        ridge = BayesianSVC(Ridge(scale=0.5 / np.sqrt(2.0)), inference, learning_rate=0.5, tol=1e-10).fit(X, y)
        np.testing.assert_allclose(bridge.coef_, ridge.coef_, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(bridge.summary()["sd"], ridge.summary()["sd"], rtol=1e-4)


@pytest.mark.parametrize(
    "prior",
    [
        Lasso(scale=0.4),
        Lasso(),
        Bridge(0.5, scale=0.1),
        Bridge(1.5),
        Bridge("learn", hyperprior=InverseGamma(3.0, 1.0)),
        Horseshoe(scale=0.3),
        Horseshoe(),
    ],
    ids=str,
)
def test_draws_equal_quadrature(prior):
    """One shrunk coefficient and no intercept: posterior mean and variance by quadrature over (beta, scale, alpha)."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 1))
    y = np.where(X[:, 0] + rng.normal(size=12) > 0, 1, -1)
    model = BayesianSVC(
        prior,
        "gibbs",
        learning_rate=0.5,
        fit_intercept=False,
        standardize=False,
        draws=1500,
        warmup=300,
        random_state=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    grid = np.linspace(-6.0, 12.0, 9001)
    fine = 1e-4 * np.sinh(np.linspace(-12.0, 12.0, 4001))  # resolves spikes at zero
    grid = np.unique(np.concatenate((grid, fine[np.abs(fine) < 6.0])))
    loglik = -np.maximum(1.0 - np.outer(grid, y * X[:, 0]), 0.0).sum(axis=1)  # 2 c = 1
    log_prior = log_marginal_prior(prior, grid)
    mass = np.exp(loglik + log_prior - (loglik + log_prior).max()) * np.gradient(grid)
    mass /= mass.sum()
    mean = mass @ grid
    sd = np.sqrt(mass @ (grid - mean) ** 2)
    draws = model.posterior_.draws[..., 0]
    z = (draws.mean() - mean) / (draws.std() / np.sqrt(float(arviz.ess(draws))))
    assert abs(z) < 4.0
    squares = (draws - mean) ** 2
    z = (squares.mean() - sd**2) / (squares.std() / np.sqrt(float(arviz.ess(squares))))
    assert abs(z) < 4.0


def log_marginal_prior(prior, grid):
    """log p(beta) with the scale (and alpha) integrated out, for one coefficient."""
    bound = prior.bind(np.array([False]))
    learned = getattr(prior, "alpha", 1.0) == "learn"
    alphas = np.linspace(0.2, 2.0, 62)[1:-1] if learned else [None]
    size = np.maximum(np.abs(grid), 1e-9)
    knots = np.geomspace(1e-9, size.max() * 1.01, 60)
    total = np.full(len(knots), -np.inf)
    for alpha in alphas:
        state = bound.start()
        if alpha is not None:
            state = state._replace(values=state.values | {"alpha": alpha})
        density = bound.stretch(state)
        for t in [0.0] if density is None else np.linspace(-12.0, 12.0, 61 if learned else 121):
            moved = state if density is None else bound.stretched(state, t)
            log_p = np.array([bound.logpdf(moved, np.array([b])) for b in knots])
            total = np.logaddexp(total, log_p + (0.0 if density is None else density(t)))
    return CubicSpline(np.log(knots), total)(np.log(size))


@pytest.mark.parametrize("inference", ["vb", "meanfield", "gibbs"])
@pytest.mark.parametrize("prior", [Lasso(), Bridge(0.7), Horseshoe()], ids=["lasso", "bridge", "horseshoe"])
def test_signals_stand_out(prior, inference):
    X, y = sparse_truth()
    model = BayesianSVC(prior, inference, draws=300, warmup=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        table = model.fit(X, y).summary()
    strength = (table["mean"] / table["sd"]).abs()[1:].to_numpy()
    assert set(np.argsort(-strength)[:3]) == {0, 1, 2}
    ridge = BayesianSVC(inference="vb").fit(X, y)
    assert np.abs(model.coef_[0, 3:]).sum() < np.abs(ridge.coef_[0, 3:]).sum()


def test_bridge_mode_is_sparse_and_the_best_of_its_starts():
    X, y = sparse_truth()
    model = BayesianSVC(Bridge(0.5, 0.01), "map", learning_rate=1.0, max_iter=2000).fit(X, y)
    assert set(model.get_support(indices=True)) >= {0, 1, 2} and (model.coef_ == 0.0).sum() >= 3
    single = [
        BayesianSVC(
            Bridge(0.5, 0.01), "map", learning_rate=1.0, max_iter=2000, engine_options={"starts": (start,)}
        ).fit(X, y).trace_[-1]
        for start in (0.01, 1.0, 100.0)
    ]  # fmt: skip
    assert model.trace_[-1] == pytest.approx(max(single))


def test_selector_in_a_pipeline():
    X, y = sparse_truth()
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(12)])
    pipe = make_pipeline(BayesianSVC(Lasso(scale=0.02), "map", learning_rate=1.0), BayesianSVC()).fit(frame, y)
    kept = pipe[0].get_feature_names_out()
    assert {"gene0", "gene1", "gene2"} <= set(kept) and len(kept) < 12
    assert pipe[0].transform(frame).shape == (300, len(kept))
    assert pipe.score(frame, y) > 0.8
    assert not hasattr(BayesianSVC(), "transform")


def test_horseshoe_has_no_mode():
    X, y = sparse_truth(50, 3)
    with pytest.raises(ValueError, match="no mode away from zero; use inference='vb' or 'gibbs'"):
        BayesianSVC("horseshoe", "map").fit(X, y)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_learned_alpha_needs_draws(inference):
    X, y = sparse_truth(50, 3)
    with pytest.raises(ValueError, match="alpha='learn' needs draws: use inference='gibbs'"):
        BayesianSVC(Bridge("learn"), inference).fit(X, y)


@pytest.mark.parametrize("alpha", [0.0, 2.1, -1.0, "auto"])
def test_alpha_is_checked(alpha):
    with pytest.raises(ValueError, match=r"alpha must be a number in \(0, 2\] or 'learn'"):
        Bridge(alpha)


@pytest.mark.parametrize("prior", [Lasso(scale=0.1), Bridge(0.7, scale=0.1), Horseshoe(scale=0.1)], ids=str)
def test_wide_data(prior):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 200))
    y = np.where(X[:, 0] - X[:, 1] > 0, 1, 0)
    X[:, 0] += 2.0 * y
    for inference in ("map", "vb", "gibbs"):
        if inference == "map" and isinstance(prior, Horseshoe):
            continue
        model = BayesianSVC(prior, inference, draws=100, warmup=100, chains=2, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        assert np.abs(model.coef_[0]).argmax() == 0
        assert model.score(X, y) > 0.9


@pytest.mark.parametrize("prior", [Lasso(scale=0.3), "horseshoe", Bridge(1.5)], ids=str)
def test_many_columns_are_fitted_without_a_matrix_of_their_size(prior, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 90))
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=30) > 0, 1, 0)
    monkeypatch.setattr("softmargin.core.model._DENSE", 0)  # so few columns have a matrix otherwise
    for inference in ("vb", "meanfield"):
        wide = BayesianSVC(prior, inference, learning_rate=0.5, tol=1e-8).fit(X, y)
        assert not isinstance(wide.posterior_.root, np.ndarray)
        with monkeypatch.context() as patch:
            patch.setattr("softmargin.core.model._WIDE", 1e9)
            narrow = BayesianSVC(prior, inference, learning_rate=0.5, tol=1e-8)
            if inference == "vb" and not isinstance(prior, str) and prior.scale == 0.3:  # no mixture over scales
                narrow.fit(X, y)
                np.testing.assert_allclose(wide.predict_proba(X), narrow.predict_proba(X), atol=1e-6)
                np.testing.assert_allclose(wide.summary()["sd"], narrow.summary()["sd"], rtol=1e-5)
            elif inference == "meanfield":
                narrow.fit(X, y)
                np.testing.assert_allclose(wide.coef_, narrow.coef_, rtol=1e-4, atol=1e-6)
                np.testing.assert_allclose(wide.summary()["sd"], narrow.summary()["sd"], rtol=1e-4)
        assert wide.sample(X[:3], 7).shape == (3, 7)
