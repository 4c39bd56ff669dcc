"""Moments of columns: weights as counts, units, constants, sparse as dense, and the way back to the user's scale."""

import numpy as np
import pytest
import scipy.sparse as sp
from parts import dense_columns, sparse_columns

from softmargin.designs import design_for, standardize

KINDS = [pytest.param(np.asarray, id="dense"), pytest.param(sp.csr_matrix, id="sparse")]


@pytest.mark.parametrize("kind", KINDS)
def test_moments(kind):
    """Mean 0 and standard deviation 1 under the weights."""
    X, weight = dense_columns(), np.linspace(0.5, 2, 23)
    columns = standardize(kind(X), weight)
    mean = np.average(X, axis=0, weights=weight)
    np.testing.assert_allclose(columns.shift, mean, rtol=1e-12)
    np.testing.assert_allclose(1 / columns.scale**2, np.average((X - mean) ** 2, axis=0, weights=weight), rtol=1e-9)
    assert list(columns.keep) == [0, 1, 2, 3] and columns.n_features == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
def test_weights_are_repeated_rows(kind, intercept):
    X, count = dense_columns(), np.arange(23) % 4
    a = standardize(kind(X[count > 0]), count[count > 0].astype(float), intercept=intercept)
    b = standardize(kind(np.repeat(X, count, axis=0)), np.ones(count.sum()), intercept=intercept)
    np.testing.assert_allclose(a.shift, b.shift, rtol=1e-12)
    np.testing.assert_allclose(a.scale, b.scale, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("unit", [1e-200, 1e-12, 1e12, 1e200])
def test_units_do_not_matter(kind, intercept, unit):
    X, weight = dense_columns(), np.ones(23)
    units = np.array([1.0, unit, 1 / unit, 1.0])
    plain, other = kind(X), kind(X * units)
    a, b = (standardize(Z, weight, intercept=intercept) for Z in (plain, other))
    np.testing.assert_allclose(b.scale * units, a.scale, rtol=1e-9)
    rows = np.arange(23)
    np.testing.assert_allclose(design_for(other, b).rows(rows), design_for(plain, a).rows(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, -1e9, 1e-30])
def test_constant_columns_are_left_out(kind, value):
    X = np.insert(dense_columns(), 1, value, axis=1)
    columns = standardize(kind(X), np.linspace(0.1, 3, 23))
    assert list(columns.keep) == [0, 2, 3, 4] and columns.n_features == 5
    assert design_for(kind(X), columns).shape == (23, 5)
    coef, _ = columns.to_user(np.arange(5.0))
    assert coef[1] == 0.0 and np.all(coef[[0, 2, 3, 4]] != 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_intercept_columns_are_divided_by_their_root_mean_square(kind):
    """Centring would change the model; a constant column is then an intercept and stays."""
    X = np.insert(dense_columns(), 1, 3.0, axis=1)
    X[:, 0] = 0.0
    columns = standardize(kind(X), np.ones(23), intercept=False)
    assert list(columns.keep) == [1, 2, 3, 4]
    assert not columns.shift.any()
    np.testing.assert_allclose(columns.scale, np.mean(X[:, 1:] ** 2, axis=0) ** -0.5, rtol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_is_dense(intercept):
    X, weight = sparse_columns(), np.linspace(0.5, 2, 23)
    a = standardize(X, weight, intercept=intercept)
    b = standardize(X.toarray(), weight, intercept=intercept)
    assert list(a.keep) == list(b.keep)
    np.testing.assert_allclose(a.shift, b.shift, atol=1e-14)
    np.testing.assert_allclose(a.scale, b.scale, rtol=1e-12)


def test_columns_as_given():
    """Neither divided nor centred: the prior of the intercept is about these very columns."""
    X = dense_columns()
    for intercept in (False, True):
        columns = standardize(X, np.ones(23), intercept=intercept, power=0.0)
        assert not columns.shift.any()
        assert np.all(columns.scale == 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_way_back_gives_the_same_predictor(kind, intercept):
    X = np.insert(dense_columns(), 2, -4.0, axis=1)
    columns = standardize(kind(X), np.ones(23), intercept=intercept)
    design = design_for(kind(X), columns)
    beta = np.random.default_rng(1).normal(size=(2, 3, design.shape[1]))
    coef, start = columns.to_user(beta)
    assert coef.shape == (2, 3, 5) and start.shape == (2, 3)
    for k in np.ndindex(2, 3):
        np.testing.assert_allclose(X @ coef[k] + start[k], design.matvec(beta[k]), atol=1e-10)
        assert start[k] == pytest.approx(columns.intercept_direction() @ beta[k], abs=1e-12)


@pytest.mark.parametrize("far", [1e4, 1e6, 2.0**23])
def test_columns_far_from_zero(far):
    X = np.round(dense_columns(p=3) * 2**12) / 2**12
    a, b = standardize(X, np.ones(23)), standardize(X + far, np.ones(23))
    np.testing.assert_allclose(b.scale, a.scale, rtol=1e-14 * far + 1e-12)


def test_columns_very_far_from_zero_are_not_constant():
    """A column of 64-bit numbers near 1e9 with spread 1, such as seconds since 1970, still has nine digits."""
    X = np.round(np.random.default_rng(0).normal(size=(200, 1)) * 2**12) / 2**12
    a, b = standardize(X, np.ones(200)), standardize(X + 2.0**30, np.ones(200))
    np.testing.assert_allclose(b.scale, a.scale, rtol=1e-6)


def stored_oddly(name):
    """A sparse matrix of 23 rows with a column that is stored in an odd way, and the same as a dense one."""
    X = sparse_columns().tocsc()
    odd, rows = np.zeros(23), np.arange(23)
    if name == "explicit zeros":
        data = odd
    elif name == "a constant with explicit zeros for the rest":
        data = odd = np.where(rows < 9, 3.0, 0.0)
    elif name == "negative":
        data = odd = -1.0 - rows % 3
    elif name == "a negative constant":
        data = odd = np.full(23, -2.0)
    else:
        rows, data = np.array([4, 7]), np.array([-3.0, -3.0])
        odd[rows] = data
    column = sp.csc_matrix((data, rows, [0, len(rows)]), shape=(23, 1))
    return sp.hstack([X, column]).tocsr(), np.column_stack((X.toarray(), odd))


ODD = [
    "explicit zeros", "a constant with explicit zeros for the rest", "negative", "a negative constant",
    "two negative entries",
]  # fmt: skip


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_columns_that_are_stored_oddly(name, intercept, long):
    X, dense = stored_oddly(name)
    assert X.nnz > np.count_nonzero(dense) or "zeros" not in name
    if long:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    for weight in (np.linspace(0.5, 2.0, 23), np.where(np.arange(23) < 9, 1.0, 0.0)):
        a, b = standardize(X, weight, intercept=intercept), standardize(dense, weight, intercept=intercept)
        assert list(a.keep) == list(b.keep)
        np.testing.assert_allclose(a.shift, b.shift, atol=1e-14)
        np.testing.assert_allclose(a.scale, b.scale, rtol=1e-12)
    # under the last weights only the first nine rows count
    assert (dense.shape[1] - 1 in a.keep) == {
        "explicit zeros": False, "a constant with explicit zeros for the rest": not intercept, "negative": True,
        "a negative constant": not intercept, "two negative entries": True,
    }[name]  # fmt: skip


@pytest.mark.parametrize("intercept", [False, True])
def test_entries_of_the_same_cell_are_added_up(intercept):
    plain = sparse_columns().tocoo()
    halves = sp.csr_matrix((np.tile(plain.data / 2.0, 2), (np.tile(plain.row, 2), np.tile(plain.col, 2))), plain.shape)
    twice = sp.csr_matrix(
        (np.repeat(halves.data / 2.0, 2), np.repeat(halves.indices, 2), 2 * halves.indptr), plain.shape
    )
    assert twice.nnz == 2 * plain.nnz and not twice.has_canonical_format
    a, b = (standardize(Z, np.linspace(0.5, 2, 23), intercept=intercept) for Z in (twice, plain.tocsr()))
    np.testing.assert_allclose(a.shift, b.shift, atol=1e-14)
    np.testing.assert_allclose(a.scale, b.scale, rtol=1e-12)
    assert twice.nnz == 2 * plain.nnz  # the given matrix is left as it was
