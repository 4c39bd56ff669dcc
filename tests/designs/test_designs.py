"""Designs: rows against their definition, ranges of rows, orders of storage; ``test_checks`` has every product."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from parts import DESIGNS, SPACES, dense_columns, sparse_columns, standardized

from softmargin.designs import Dense, Design, Sparse
from softmargin.designs.sparse import Implicit


@pytest.mark.parametrize("name", [name for name in DESIGNS if name not in SPACES])
def test_ranges_add_up(name):
    design = DESIGNS[name]()
    assert isinstance(design, Design)
    n, q = design.shape
    rng = np.random.default_rng(0)
    w, b = rng.exponential(size=n), rng.normal(size=n)
    whole, linear = design.gram(w, b)
    cuts = [0, n // 4, n // 2, n] if n > 3 else [0, n]
    parts = [design.gram(w[lo:hi], b[lo:hi], lo, hi) for lo, hi in pairwise(cuts)]
    size = np.abs(design.rows(np.arange(n))).max() ** 2 * n
    np.testing.assert_allclose(sum(part[0] for part in parts), whole, atol=1e-9 * size)
    np.testing.assert_allclose(sum(part[1] for part in parts), linear, atol=1e-9 * size)
    assert whole.shape == (q, q)
    np.testing.assert_allclose(whole, whole.T, atol=1e-12 * size)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [Dense, Sparse])
def test_rows_are_shifted_then_scaled(kind, intercept):
    """Columns are (X_j - shift_j) * scale_j with ones in front."""
    X = sparse_columns()
    shift, scale = np.linspace(-1, 2, 6), np.geomspace(0.1, 10, 6)
    design = kind(X if kind is Sparse else X.toarray(), shift, scale, intercept)
    wanted = (X.toarray() - shift) * scale
    if intercept:
        wanted = np.insert(wanted, 0, 1.0, axis=1)
    for index in (np.arange(23), [3, 3, 0], np.arange(23) % 2 == 0, slice(4, 9)):
        np.testing.assert_allclose(design.rows(index), wanted[index], rtol=1e-14, atol=1e-14)
    assert design.shape == wanted.shape


def test_order_in_memory_does_not_matter():
    X = dense_columns()
    beta = np.linspace(-1, 1, 5)
    a, b = standardized(X), standardized(np.asfortranarray(X))
    np.testing.assert_allclose(a.matvec(beta), b.matvec(beta), rtol=1e-12)
    np.testing.assert_allclose(a.gram(np.ones(23), np.ones(23))[0], b.gram(np.ones(23), np.ones(23))[0], atol=1e-10)


def test_sparse_is_dense():
    X = sparse_columns()
    a, b = standardized(X), standardized(X.toarray())
    np.testing.assert_allclose(a.rows(np.arange(23)), b.rows(np.arange(23)), atol=1e-12)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e6])
def test_columns_far_from_zero_lose_nothing(far):
    """Shifting a column by a number that is exact in binary leaves products as accurate as the data."""
    X = np.round(dense_columns(p=3) * 2**12) / 2**12
    plain, moved = standardized(X), standardized(X + far)
    beta, w = np.array([0.3, -1.0, 2.0, 0.5]), np.linspace(1, 2, 23)
    tolerance = 1e-9 * far / 1e3
    np.testing.assert_allclose(moved.matvec(beta), plain.matvec(beta), atol=tolerance)
    np.testing.assert_allclose(moved.gram(w, w)[0], plain.gram(w, w)[0], atol=23 * tolerance)
    np.testing.assert_allclose(moved.outer(), plain.outer(), atol=23 * tolerance)


def shuffled(X):
    """The same matrix with the entries of every row stored backwards."""
    X = X.tocsr(copy=True)
    for i in range(X.shape[0]):
        row = slice(X.indptr[i], X.indptr[i + 1])
        X.indices[row], X.data[row] = X.indices[row][::-1].copy(), X.data[row][::-1].copy()
    X.has_sorted_indices = False
    return X


def test_entries_of_a_sparse_row_come_in_any_order():
    X, w = sparse_columns(), np.linspace(1, 2, 23)
    other = shuffled(X)
    assert not other.has_sorted_indices
    assert np.array_equal(other.toarray(), X.toarray())
    np.testing.assert_allclose(standardized(other).gram(w, w)[0], standardized(X).gram(w, w)[0], atol=1e-9)


def test_stored_zeros_are_zeros():
    X = sparse_columns()
    full = sp.csr_matrix((X.toarray().ravel(), np.tile(np.arange(6), 23), np.arange(0, 139, 6)), shape=(23, 6))
    assert full.nnz > X.nnz
    w = np.linspace(1, 2, 23)
    np.testing.assert_allclose(standardized(full).gram(w, w)[0], standardized(X).gram(w, w)[0], atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_stored_entries_and_what_is_taken_off_make_the_rows(intercept):
    """Rows times a factor; and their squared lengths, over any range."""
    X, factor = sparse_columns(), np.linspace(-2.0, 3.0, 23)
    design = Implicit(X, np.linspace(-1, 2, 6), np.geomspace(0.1, 10, 6), intercept)
    data, off = design.entries(factor)
    slopes = design.rows(np.arange(23))[:, int(intercept) :]
    stored = sp.csr_matrix((data, X.indices, X.indptr), X.shape).toarray()
    np.testing.assert_allclose(stored - factor[:, None] * off, factor[:, None] * slopes, atol=1e-12)
    for lo, hi in ((0, 23), (5, 9), (7, 7)):
        np.testing.assert_allclose(design.norms(lo, hi), (slopes[lo:hi] ** 2).sum(axis=1), rtol=1e-12)
