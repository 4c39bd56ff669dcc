"""Hamiltonian draws through the estimator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris

from softmargin import BayesianSVC
from softmargin.inference import draws as drawing
from softmargin.priors import Lasso, Ridge


def overlapping(n=150, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] - X[:, 1] + rng.normal(size=n) > 0, "b", "a")


@pytest.mark.soak
@pytest.mark.parametrize("prior", [Ridge(scale=0.7), Lasso(scale=0.5), "ridge", "horseshoe"], ids=str)
def test_the_same_posterior_as_gibbs(prior):
    X, y = overlapping()
    settings = {"learning_rate": 0.5, "random_state": 0, "chains": 4}
    few = 2 if prior == "horseshoe" else 1
    one = BayesianSVC(prior, "hmc", draws=800 // few, **settings).fit(X, y).summary()
    two = BayesianSVC(prior, "gibbs", draws=1200 // few, warmup=200, **settings).fit(X, y).summary()
    error = np.sqrt(one["sd"] ** 2 / one["ess"] + two["sd"] ** 2 / two["ess"])
    assert (np.abs(one["mean"] - two["mean"]) < 4.0 * error).all()
    np.testing.assert_allclose(one["sd"], two["sd"], rtol=0.15)


def test_seed_threads_and_sparse_columns():
    X, y = overlapping()
    X[np.abs(X) < 0.4] = 0.0
    model = BayesianSVC(inference="hmc", draws=100, random_state=5, learning_rate=0.5)
    first = model.fit(X, y).posterior_.draws
    np.testing.assert_array_equal(clone(model).fit(X, y).posterior_.draws, first)
    np.testing.assert_array_equal(clone(model).set_params(n_jobs=2).fit(X, y).posterior_.draws, first)
    thin = clone(model).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(thin.coef_, model.coef_, atol=0.2)
    assert model.n_iter_ == 200  # of the thousand sweeps of warm-up a hundred are made
    assert model.to_arviz()["posterior"]["coef"].shape == (4, 100, 4)


def test_many_classes_and_wide_data():
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert BayesianSVC(inference="hmc", draws=100, random_state=0).fit(X, y).score(X, y) > 0.95
        rng = np.random.default_rng(0)
        W = rng.normal(size=(40, 120))
        label = np.where(W[:, 0] + 0.5 * rng.normal(size=40) > 0, 1, 0)
        wide = BayesianSVC(Ridge(scale=0.3), "hmc", draws=100, random_state=0).fit(W, label)
    assert wide.score(W, label) > 0.9


def test_a_chain_that_hardly_moves_is_reported(monkeypatch):
    X, y = overlapping()
    monkeypatch.setattr(drawing, "ACCEPTED", 1.1)
    with pytest.warns(UserWarning, match="hardly moves"):
        BayesianSVC(inference="hmc", draws=20, random_state=0, learning_rate=0.5).fit(X, y)


def test_what_hmc_cannot_do_is_said():
    X, y = overlapping()
    with pytest.raises(ValueError, match="use inference='gibbs'"):
        BayesianSVC("spike-slab", "hmc", learning_rate=0.5).fit(X, y)
    with pytest.raises(ValueError, match="unknown engine_options"):
        BayesianSVC(inference="hmc", engine_options={"steps": 3}, learning_rate=0.5).fit(X, y)
