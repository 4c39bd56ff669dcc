"""Products with triangular matrices, in place."""

import numpy as np
import pytest

from softmargin.designs._blas import times_triangle
from softmargin.designs.dense import Dense


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (40, 67)])
def test_rows_times_an_upper_triangle(shape):
    rng = np.random.default_rng(0)
    rows, root = rng.standard_normal(shape), np.triu(rng.standard_normal((shape[1], shape[1])))
    expected = rows @ root
    found = times_triangle(rows, root)
    assert found is rows
    np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 3), (30, 30), (30, 7), (30, 41)])
@pytest.mark.parametrize("triangular", [True, False])
def test_moments_of_predictors(shape, triangular):
    """Roots of every shape, of few columns and of many: only square triangles take the shorter way."""
    rng = np.random.default_rng(1)
    X = rng.normal(5.0, 2.0, (3000, shape[0] - 1))
    design = Dense(X, X.mean(axis=0), 1.0 / X.std(axis=0))
    mean, root = rng.standard_normal(shape[0]), rng.standard_normal(shape)
    root = np.triu(root) if triangular else root
    Z = np.column_stack((np.ones(3000), (X - X.mean(axis=0)) / X.std(axis=0)))
    f, v = design.moments(mean, root, 700, 2900)
    np.testing.assert_allclose(f, Z[700:2900] @ mean, atol=1e-11)
    np.testing.assert_allclose(v, ((Z[700:2900] @ root) ** 2).sum(axis=1), rtol=1e-11)
    np.testing.assert_allclose(design.row_quad(root, 700, 2900), v, rtol=1e-13)
    np.testing.assert_allclose(design.row_quad(np.asfortranarray(root), 700, 2900), v, rtol=1e-13)
    short = root.astype(np.float32)
    np.testing.assert_allclose(design.row_quad(short), design.row_quad(short.astype(float)), rtol=1e-13)


def test_rows_without_weight_keep_their_linear_term():
    rng = np.random.default_rng(2)
    X, w, b = rng.standard_normal((50, 4)), rng.exponential(size=50), rng.standard_normal(50)
    w[::3] = 0.0
    A, c = Dense.plain(X, intercept=True).gram(w, b)
    Z = np.column_stack((np.ones(50), X))
    np.testing.assert_allclose(A, (Z.T * w) @ Z, atol=1e-12)
    np.testing.assert_allclose(c, Z.T @ b, atol=1e-12)
