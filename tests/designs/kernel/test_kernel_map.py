"""Kernel features: products give the kernel back, and the variance left out is that of the conditional prior."""

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.designs.kernel.features import copies, kernel_map, rescaled
from softmargin.designs.kernel.kernels import resolve
from softmargin.designs.standardize import standardize


@pytest.fixture
def rows():
    rng = np.random.default_rng(5)
    return rng.normal(size=(30, 2)), rng.normal(size=(6, 2))


class Roots:
    """Stands in for a generator: its draws are the identity, so that a root comes out itself."""

    def standard_normal(self, shape):
        return np.eye(*shape)


@pytest.mark.parametrize("name", ["rbf", "poly", "linear"])
def test_products_of_features_are_the_kernel(rows, name):
    X, Z = rows
    kernel = resolve(name, 0.8, X)
    found, F = kernel_map(kernel, X, np.ones(30))
    unit = np.diag(kernel.matrix(X)).mean()
    assert found.unit == pytest.approx(unit)
    np.testing.assert_allclose(F @ F.T, kernel.matrix(X) / unit, atol=1e-7)
    again, outside = found.features(X)
    np.testing.assert_allclose(again, F, atol=1e-6)
    np.testing.assert_allclose(outside, 0.0, atol=1e-6)
    seen, _ = found.features(Z)
    np.testing.assert_allclose(seen @ F.T, kernel.matrix(Z, X) / unit, atol=1e-7)


def test_what_features_leave_out_is_the_conditional_prior(rows):
    X, Z = rows
    kernel = resolve("rbf", 0.5, X)
    found, _ = kernel_map(kernel, X, np.ones(30))
    across, own = kernel.matrix(Z, X), kernel.matrix(Z)
    expected = own - across @ np.linalg.solve(kernel.matrix(X) + 1e-12 * np.eye(30), across.T)
    assert expected.diagonal().max() > 0.05
    np.testing.assert_allclose(found.features(Z)[1], expected.diagonal(), atol=1e-6)
    root = found.remainder(Z, Roots(), 6)
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-6)


def test_unit_counts_rows_by_their_weight(rows):
    X, _ = rows
    count = np.arange(30) % 3 + 1.0
    weighted, _ = kernel_map(resolve("linear", None, X), X, count)
    repeated = np.repeat(X, count.astype(int), axis=0)
    assert weighted.unit == pytest.approx(kernel_map(resolve("linear", None, X), repeated, np.ones(60))[0].unit)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_singular_kernels_have_fewer_features(rows, length):
    X = np.repeat(rows[0], 3, axis=0)
    kernel = resolve("rbf", length, X)
    found, F = kernel_map(kernel, X, np.ones(90))
    assert F.shape[1] <= 30
    np.testing.assert_allclose(F @ F.T, kernel.matrix(X), atol=1e-7)
    assert np.isfinite(found.features(rows[1])[0]).all()


def test_precomputed_rows_are_numbered(rows):
    X, Z = rows
    kernel = resolve("rbf", 0.8, X)
    plain, F = kernel_map(kernel, X[3:20], np.ones(17))
    K = resolve("precomputed", None, X)
    given, same = kernel_map(K, kernel.matrix(X)[3:20], np.ones(17), at=np.arange(3, 20))
    np.testing.assert_array_equal(F, same)
    np.testing.assert_allclose(given.features(kernel.matrix(Z, X))[0], plain.features(Z)[0], atol=1e-12)
    np.testing.assert_allclose(given.features(kernel.matrix(Z, X))[1], plain.features(Z)[1], atol=1e-12)


def test_kernels_that_are_none(rows):
    X, _ = rows
    with pytest.raises(ValueError, match="not positive semi-definite"):
        kernel_map(resolve("sigmoid", None, 3.0 * X), 3.0 * X, np.ones(30))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        kernel_map(resolve(lambda A, B: -(A @ B.T), None, X), X, np.ones(30))
    with pytest.raises(ValueError, match="zero on every row"):
        kernel_map(resolve("linear", None, X), 0.0 * X, np.ones(30))


def test_rescaled_columns(rows):
    X, _ = rows
    X = np.column_stack((X * [1.0, 100.0] + 5.0, np.ones(30)))
    columns = standardize(X, np.ones(30))
    scaled = rescaled(X, columns)
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 1.0])
    sparse = rescaled(sp.csr_array(X), columns)
    np.testing.assert_allclose(sparse.toarray() - scaled, np.broadcast_to(columns.shift * columns.scale, (30, 2)))
    assert rescaled(X, None) is X


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_copies_are_found_in_an_order_of_their_own(form):
    X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, -0.0], [1.0, 0.0], [0.0, 2.0]])
    label = np.array([1.0, 1.0, 1.0, -1.0, 1.0])
    first, inverse = copies(form(X), label)
    assert len(first) == 3
    np.testing.assert_array_equal(X[first][inverse], X)
    np.testing.assert_array_equal(label[first][inverse], label)
    order = np.array([3, 1, 4, 0, 2])
    again, _ = copies(form(X[order]), label[order])
    np.testing.assert_array_equal(X[order][again], X[first])
    np.testing.assert_array_equal(label[order][again], label[first])
