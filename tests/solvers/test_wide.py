"""The Gaussian of many more coefficients than rows against the dense one."""

import numpy as np
import pytest
from parts import dense_columns, sparse_columns, standardized

from softmargin.rows.in_memory import Blocks
from softmargin.solvers.gaussian import Gaussian
from softmargin.solvers.low_rank import WideNormal, noise, quadratic, squares


def both(intercept, sparse=False):
    X = sparse_columns(n=6, p=20) if sparse else dense_columns(n=6, p=20)
    design = standardized(X, intercept=intercept)
    rng = np.random.default_rng(0)
    n, q = design.shape
    w, linear = rng.gamma(1.0, size=n) * np.geomspace(1e-3, 1e3, n), rng.normal(size=q)
    precision = np.geomspace(0.1, 50.0, q)
    precision[: int(intercept)] = 1e-6
    rows = design.rows(np.arange(n))
    dense = Gaussian.from_precision(rows.T @ (w[:, None] * rows) + np.diag(precision), linear)
    return design, dense, WideNormal.from_rows(design, w, linear, precision)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_everything_equals_the_dense_gaussian(intercept, sparse):
    design, dense, wide = both(intercept, sparse)
    covariance = dense.root @ dense.root.T
    np.testing.assert_allclose(wide.mean, dense.mean, rtol=1e-7)
    np.testing.assert_allclose(wide.var, dense.var, rtol=1e-8)
    assert wide.logdet == pytest.approx(dense.logdet, rel=1e-10)
    assert wide.entropy == pytest.approx(dense.entropy, rel=1e-10)
    x = np.linspace(-1.0, 2.0, len(dense.mean))
    np.testing.assert_allclose(wide.solve(x), dense.solve(x), rtol=1e-6)
    assert quadratic(wide.root, x) == pytest.approx(x @ covariance @ x, rel=1e-8)
    np.testing.assert_allclose(squares(wide.root), squares(dense.root), rtol=1e-8)
    new = design if sparse else standardized(dense_columns(n=9, p=20), intercept=intercept)
    np.testing.assert_allclose(Blocks(new).row_quad(wide.root), Blocks(new).row_quad(dense.root), rtol=1e-7)


def test_noise_has_the_covariance():
    _, dense, wide = both(True)
    covariance = dense.root @ dense.root.T
    draws = noise(wide.root, np.random.default_rng(1), 200_000)
    unit = 1.0 / np.sqrt(covariance.diagonal())
    np.testing.assert_allclose(np.cov(draws.T) * np.outer(unit, unit), covariance * np.outer(unit, unit), atol=0.02)
    one = np.array([wide.draw(np.random.default_rng(k)) for k in range(4000)])
    np.testing.assert_allclose(one.std(axis=0) * unit, 1.0, atol=0.06)


def test_moving_and_spreading_keep_the_rest():
    design, dense, wide = both(True)
    wide.root  # noqa: B018  (what was computed is carried along)
    a, b = dense.dilated(0.3).with_mean(np.ones(21)), wide.dilated(0.3).with_mean(np.ones(21))
    np.testing.assert_allclose(b.var, a.var, rtol=1e-8)
    np.testing.assert_array_equal(b.mean, a.mean)
    assert b.logdet == pytest.approx(a.logdet, rel=1e-10)
    np.testing.assert_allclose(Blocks(design).row_quad(b.root), Blocks(design).row_quad(a.root), rtol=1e-7)
