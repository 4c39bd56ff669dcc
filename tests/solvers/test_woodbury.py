"""The Gaussian of more coefficients than rows against the plain solve."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.designs import Dense, design_for, standardize
from softmargin.solvers.woodbury import WoodburyGaussian


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_mean_solve_and_draws(sparse, intercept):
    rng = np.random.default_rng(0)
    raw = np.where(rng.random((9, 14)) < 0.7, rng.normal(size=(9, 14)), 0.0)
    X = sp.csr_matrix(raw) if sparse else raw
    design = design_for(X, standardize(X, np.ones(9), intercept=intercept))
    q = design.shape[1]
    rows = design.rows(np.arange(9))
    w, linear = 10.0 ** rng.uniform(-6, 6, size=9), rng.normal(size=q)
    precision = 10.0 ** rng.uniform(-2, 3, size=q)
    if intercept:
        precision[0] = 1e-8
    A = (rows.T * w) @ rows + np.diag(precision)
    gaussian = WoodburyGaussian.from_rows(design, w, linear, precision)
    np.testing.assert_allclose(A @ gaussian.mean, linear, rtol=1e-6, atol=1e-6)
    rhs = rng.normal(size=q)
    np.testing.assert_allclose(gaussian.solve(rhs), np.linalg.solve(A, rhs), rtol=1e-5, atol=1e-9)


def test_draws_have_the_covariance():
    rng = np.random.default_rng(1)
    design = Dense.plain(rng.normal(size=(3, 5)), intercept=True)
    w, precision = np.array([0.5, 2.0, 1.0]), np.array([0.3, 1.0, 2.0, 0.5, 1.5, 3.0])
    rows = design.rows(np.arange(3))
    covariance = np.linalg.inv((rows.T * w) @ rows + np.diag(precision))
    gaussian = WoodburyGaussian.from_rows(design, w, np.ones(6), precision)
    draws = np.array([gaussian.draw(rng) for _ in range(20000)])
    error = np.sqrt(2.0 / 20000) * np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert (np.abs(np.cov(draws.T) - covariance) < 5 * error).all()
    assert (np.abs(draws.mean(axis=0) - gaussian.mean) < 5 * np.sqrt(covariance.diagonal() / 20000)).all()
