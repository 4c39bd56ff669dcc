"""Rows on a device, with NumPy in its place: a step of an engine is that of rows in memory, to rounding."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from device_problems import on_device
from engine_problems import build, simulated
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC, BayesianSVR
from softmargin.core.loop import run
from softmargin.engines.mode.screening import few_rows
from softmargin.engines.mode.smoothed_start import many_rows, picked
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.estimators.given.devices import DeviceMatrix
from softmargin.inference.functions import INFERENCES, inference_for
from softmargin.inference.many_rows import of_many_rows
from softmargin.losses import EpsilonInsensitive, Hinge, Squared
from softmargin.priors import Lasso, Ridge
from softmargin.rows.device.libraries import HOST
from softmargin.solvers.gaussian import LAPACK

N = 5000  # three cells, the last one short


def problem(prior, loss=None):
    X, y = simulated(N, 7)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, N)
    return replace(build(X, y, c=weight, prior=prior), loss=loss or Hinge())


CASES = {
    "vb": (GaussianVI(), Ridge(), None),
    "vb of regression, lasso": (GaussianVI(), Lasso(), EpsilonInsensitive(0.3)),
    "meanfield": (MeanField(), Ridge(), None),
    "meanfield of squares": (MeanField(), Ridge(), Squared()),
    "map": (EM(smoothing=0.03), Ridge(scale=0.7), None),  # sharper kinks amplify last bits
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_rows_in_memory(name):
    engine, prior, loss = CASES[name]
    here = problem(prior, loss)
    there = on_device(here)
    for steps in (1, 3):
        wanted, found = run(engine, here, max_iter=steps).state, run(engine, there, max_iter=steps).state
        np.testing.assert_allclose(found.q.mean, wanted.q.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.objective, wanted.objective, rtol=1e-11)
        if name != "map":
            np.testing.assert_allclose(found.q.root, wanted.q.root, rtol=1e-8, atol=1e-11)
        for own, other in zip(found.rows.fetch(), wanted.rows.fetch(), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-9)


def test_a_sweep_draws_the_latents_of_rows_in_memory():
    here, sampler = problem(Ridge(scale=0.5)), gibbs(2, scale_moves=False)
    wanted, found = run(sampler, here, max_iter=1).state, run(sampler, on_device(here), max_iter=1).state
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own.beta, other.beta, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(own.loglik, other.loglik, rtol=1e-7)


def test_picked_rows_are_home_with_their_factors():
    there = on_device(problem(Ridge(scale=0.5)))
    few = picked(there, np.arange(50))
    assert there.space.algebra is not LAPACK and few.space.algebra is LAPACK
    near = np.arange(N) < 40
    assert few_rows(there, near, ~near)[0].space.algebra is LAPACK
    np.testing.assert_allclose(few.blocks.matvec(np.ones(8)), there.blocks.matvec(np.ones(8))[:50], rtol=1e-12)


@pytest.mark.parametrize("inference", ["vb", "map", "meanfield"])
def test_estimators_take_a_matrix_on_a_device(inference):
    X, y = simulated(3000, 4)
    X = X * np.geomspace(0.01, 100.0, 4) + np.arange(4)
    home = BayesianSVC(inference=inference).fit(X, y)
    there = BayesianSVC(inference=inference).fit(DeviceMatrix(HOST, X), y)
    np.testing.assert_allclose(there.coef_, home.coef_, rtol=1e-6)
    rows = DeviceMatrix(HOST, X[:100])
    np.testing.assert_allclose(there.predict_proba(rows), home.predict_proba(X[:100]), atol=1e-6)
    np.testing.assert_array_equal(there.predict(rows), home.predict(X[:100]))


def test_regression_and_draws_take_a_matrix_on_a_device():
    X, _ = simulated(3000, 4)
    y = X[:, 0] + np.random.default_rng(0).laplace(size=len(X))
    home, there = BayesianSVR().fit(X, y), BayesianSVR().fit(DeviceMatrix(HOST, X), y)
    np.testing.assert_allclose(there.coef_, home.coef_, rtol=1e-6, atol=1e-9)
    for inference, prior in (("gibbs", "ridge"), ("hmc", "ridge"), ("hmc", "lasso")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of so few draws
            drawn = BayesianSVR(prior, inference, draws=50, warmup=20, chains=2).fit(DeviceMatrix(HOST, X), y)
        assert np.abs(drawn.coef_ - home.coef_).max() < 0.05


def test_many_rows_are_chosen_on_a_few_at_home_and_fitted_where_they_are():
    X, y = simulated(25_000, 3)
    here = build(X, y, prior=Ridge())
    there = on_device(here)
    assert many_rows(there) and many_rows(here)
    assert inference_for("vb", here) is of_many_rows and inference_for("vb", there) is INFERENCES["vb"]
