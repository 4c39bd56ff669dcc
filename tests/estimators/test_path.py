"""Modes along a grid of scales."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import softmargin
from softmargin import BayesianSVC
from softmargin.engines.mode import path as mode_path
from softmargin.priors import Bridge, Lasso, Ridge


def problem(n=200, p=15, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.geomspace(0.1, 10.0, p)
    return X, np.where(X[:, 0] / X[:, 0].std() - X[:, 3] / X[:, 3].std() + rng.normal(size=n) > 0, "yes", "no")


@pytest.mark.parametrize(("name", "prior"), [("lasso", Lasso), ("ridge", Ridge)])
def test_every_point_is_the_mode_of_the_estimator(name, prior):
    X, y = problem()
    scales = np.array([0.3, 0.01, 0.05, 2.0])  # in no order
    fits = softmargin.path(X, y, scales, prior=name)
    np.testing.assert_array_equal(fits.scales, scales)
    assert fits.gap.max() <= 1e-8
    for k, scale in enumerate(scales):
        one = BayesianSVC(prior(scale=scale), "map", learning_rate=1.0).fit(X, y)
        np.testing.assert_allclose(fits.coef[k], one.coef_[0], rtol=1e-6, atol=1e-8)
        assert fits.objective[k] == pytest.approx(-one.trace_[-1] + penalty_constant(one, scale, name), rel=1e-8)


def penalty_constant(model, scale, name):
    """Normalising constants in the log joint density that the objective of a path leaves out."""
    p = model.coef_.shape[1]
    own = p * (np.log(2.0 * scale) if name == "lasso" else 0.5 * np.log(2.0 * np.pi * scale**2))
    return -own - 0.5 * np.log(2.0 * np.pi * 1e8)


def test_default_grid_starts_where_every_slope_is_zero():
    X, y = problem()
    fits = softmargin.path(X, y)
    assert fits.size[0] == 0
    assert fits.size[3] > 0
    assert fits.size[-1] > 10
    assert len(fits.scales) == 50
    assert (np.diff(fits.scales) > 0).all()


def test_standardized_coefficients_are_per_spread_of_the_column():
    X, y = problem()
    for standardized in (True, False):
        fits = softmargin.path(X, y, [0.5], standardize=standardized)
        np.testing.assert_allclose(fits.standardized[0], fits.coef[0] * X.std(axis=0), rtol=1e-10)


def test_wide_data_have_exact_zeros():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 300))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=40) > 0, 1, 0)
    fits = softmargin.path(X, y)
    assert fits.gap.max() <= 1e-8
    assert fits.size.max() <= 41


def test_sparse_names_and_weights():
    X, y = problem()
    X[np.abs(X) < np.abs(X).mean(axis=0) * 0.5] = 0.0
    scales = [0.05, 0.5]
    dense = softmargin.path(X, y, scales)
    np.testing.assert_allclose(softmargin.path(sp.csr_matrix(X), y, scales).coef, dense.coef, rtol=1e-6, atol=1e-9)
    frame = pd.DataFrame(X, columns=[f"v{j}" for j in range(X.shape[1])])
    named = softmargin.path(frame, y, scales)
    assert named.feature_names[3] == "v3"
    assert named.to_frame()["v3"].tolist() == named.coef[:, 3].tolist()
    weight = np.ones(len(y))
    weight[:50] = 2.0
    weight[-3:] = 0.0
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    np.testing.assert_allclose(
        softmargin.path(X, y, scales, sample_weight=weight).coef,
        softmargin.path(X[repeated], y[repeated], scales).coef,
        rtol=1e-6,
        atol=1e-9,
    )


def test_interrupted_path_keeps_what_it_has(monkeypatch):
    X, y = problem()
    step, calls = mode_path.ModePath.step, []

    def stopping(self, *args):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return step(self, *args)

    monkeypatch.setattr(mode_path.ModePath, "step", stopping)
    with pytest.warns(ConvergenceWarning, match="stopped after 3 of 6"):
        fits = softmargin.path(X, y, [1.0, 0.5, 0.1, 0.05, 0.01, 2.0])
    np.testing.assert_array_equal(fits.scales, [0.1, 0.05, 0.01])
    assert len(fits.coef) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scales": []}, "scales must be a list of positive numbers"),
        ({"scales": [1.0, -1.0]}, "scales must be a list of positive numbers"),
        ({"scales": [1.0], "prior": Bridge(0.5)}, "convex penalty"),
        ({"scales": [1.0], "prior": "spike"}, "unknown prior"),
        ({"scales": [1.0], "prior": "spike-slab"}, "penalty"),
        ({"scales": [1.0], "learning_rate": 0.0}, "learning_rate must be"),
        ({"scales": "ridge"}, "got 'ridge': a prior goes by name"),
    ],
)
def test_bad_input(arguments, message):
    X, y = problem()
    with pytest.raises((ValueError, TypeError), match=message):
        softmargin.path(X, y, **arguments)


def test_an_estimator_in_place_of_rows_is_told_what_is_wanted():
    X, y = problem()
    with pytest.raises(ValueError, match="leave the estimator out"):
        softmargin.path(softmargin.BayesianSVC(), X, y)
