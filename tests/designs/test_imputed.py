"""Rows with missing entries against plain linear algebra row by row."""

import tracemalloc

import numpy as np
import pytest

from softmargin.designs import standardize
from softmargin.designs.imputed import given_observed, standardize_observed
from softmargin.designs.missing_patterns import missing_patterns, rotate, to_coordinates, whiten


def holes(n=40, d=4, seed=0):
    """Correlated columns with cells knocked out; one row is complete and one has nothing left."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + np.arange(d)
    X[rng.random((n, d)) < 0.3] = np.nan
    X[3], X[7] = np.arange(d), np.nan
    return X


def law(d=4, seed=1):
    """A mean and a precision."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, 2 * d))
    return rng.standard_normal(d), A @ A.T / d


def conditional(x, mean, precision):
    """Mean and covariance of a whole row given its observed cells, from the covariance matrix."""
    covariance, missing = np.linalg.inv(precision), np.isnan(x)
    full, spread = np.where(missing, 0.0, x), np.zeros_like(precision)
    M, O = np.flatnonzero(missing), np.flatnonzero(~missing)
    weights = covariance[np.ix_(M, O)] @ np.linalg.inv(covariance[np.ix_(O, O)])
    full[M] = mean[M] + weights @ (x[O] - mean[O])
    spread[np.ix_(M, M)] = covariance[np.ix_(M, M)] - weights @ covariance[np.ix_(O, M)]
    return full, spread


def plain(design, mean, precision, X):
    """Rows with the intercept in front, and their covariances."""
    found = [conditional(x, mean, precision) for x in X]
    rows = np.array([row for row, _ in found])
    lead, d = int(design.intercept), X.shape[1]
    spreads = np.zeros((len(X), d + lead, d + lead))
    spreads[:, lead:, lead:] = [spread for _, spread in found]
    return np.concatenate((np.ones((len(X), lead)), rows), axis=1), spreads


@pytest.mark.parametrize("intercept", [True, False])
def test_products_are_averages_over_rows(intercept):
    X, (mean, precision), rng = holes(), law(), np.random.default_rng(2)
    design = given_observed(X, mean, precision, intercept=intercept)
    rows, spreads = plain(design, mean, precision, X)
    q = rows.shape[1]
    np.testing.assert_allclose(design.rows(np.arange(len(X))), rows, atol=1e-12)
    w, b, beta, root = rng.random(len(X)), rng.standard_normal(len(X)), rng.standard_normal(q), rng.random((q, q))
    for lo, hi in ((0, None), (0, 17), (5, 6), (8, 40)):
        at = slice(lo, hi)
        A, linear = design.gram(w[at], b[at], lo, hi)
        moment = rows[at, :, None] * rows[at, None, :] + spreads[at]
        np.testing.assert_allclose(A, np.einsum("i,iab->ab", w[at], moment), atol=1e-11)
        np.testing.assert_allclose(linear, rows[at].T @ b[at], atol=1e-12)
        np.testing.assert_allclose(design.rmatvec(b[at], lo, hi), linear, atol=1e-12)
        np.testing.assert_allclose(design.matvec(beta, lo, hi), rows[at] @ beta, atol=1e-12)
        quad = np.einsum("iab,ac,bc->i", moment, root, root)
        np.testing.assert_allclose(design.row_quad(root, lo, hi), quad, atol=1e-11)
        excess = np.einsum("iab,a,b->i", spreads[at], beta, beta)
        np.testing.assert_allclose(design.excess(beta, lo, hi), excess, atol=1e-11)
        slope = np.einsum("i,iab,b->a", w[at], spreads[at], beta)
        np.testing.assert_allclose(design.excess_slope(w[at], beta, lo, hi), slope, atol=1e-11)
    lead = int(intercept)
    np.testing.assert_allclose(design.scatter(np.ones(design.shape[0])), spreads.sum(axis=0)[lead:, lead:], atol=1e-11)


def test_cells_and_volume():
    X, (mean, precision) = holes(), law()
    design = given_observed(X, mean, precision, intercept=True)
    cells, volume = design.cells(), 0.0
    assert len(cells.row) == np.isnan(X).sum()
    for i, x in enumerate(X):
        full, spread = conditional(x, mean, precision)
        at, M = cells.row == i, np.flatnonzero(np.isnan(x))
        np.testing.assert_array_equal(cells.column[at], M)
        np.testing.assert_allclose(cells.mean[at], full[M], atol=1e-12)
        np.testing.assert_allclose(cells.sd[at] ** 2, spread.diagonal()[M], atol=1e-12)
        volume += np.linalg.slogdet(spread[np.ix_(M, M)])[1] if len(M) else 0.0
    assert design.log_volume(np.ones(design.shape[0])) == pytest.approx(volume, abs=1e-10)


def test_a_row_without_cells_has_the_population():
    X, (mean, precision) = holes(), law()
    design = given_observed(X, mean, precision, intercept=False)
    np.testing.assert_allclose(design.rows([7])[0], mean, atol=1e-13)
    spread = design.gram(np.ones(1), np.zeros(1), 7, 8)[0] - np.outer(mean, mean)
    np.testing.assert_allclose(spread, np.linalg.inv(precision), atol=1e-12)


def test_observed_cells_keep_their_values():
    X, (mean, precision) = holes(), law()
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(given_observed(X, mean, precision, intercept=True).dense.X[seen], X[seen])


@pytest.mark.parametrize("directions", [1, 2, 3, 9])
def test_rotation_makes_both_matrices_diagonal(directions):
    """``F Lambda^-1-whitened`` and ``F moment F'`` are diagonal together, pattern by pattern."""
    X, (_, precision) = holes(), law()
    G = np.random.default_rng(5).standard_normal((len(precision), directions))
    moment = G @ G.T
    patterns = missing_patterns(np.isnan(X))
    F, log_det = whiten(patterns, precision)
    F, size = rotate(patterns, F, G)
    for k in range(len(patterns.start) - 1):
        M = patterns.columns[patterns.start[k] : patterns.start[k + 1]]
        T = F[patterns.block[k] : patterns.block[k + 1]].reshape(len(M), len(M))
        np.testing.assert_allclose(T.T @ T, np.linalg.inv(precision[np.ix_(M, M)]), atol=1e-11)
        expected = np.diag(size[patterns.start[k] : patterns.start[k + 1]])
        np.testing.assert_allclose(T @ moment[np.ix_(M, M)] @ T.T, expected, atol=1e-10)
        assert log_det[k] == pytest.approx(np.linalg.slogdet(T)[1], abs=1e-11)
    R = np.random.default_rng(3).standard_normal((len(patterns.row), 4))
    z = to_coordinates(patterns, F, R)
    i, k = 4, patterns.kind[4]
    M = patterns.columns[patterns.start[k] : patterns.start[k + 1]]
    T = F[patterns.block[k] : patterns.block[k + 1]].reshape(len(M), len(M))
    np.testing.assert_allclose(z[patterns.cell[i] : patterns.cell[i + 1]], T @ R[i, M], atol=1e-13)


def test_a_precision_that_is_none_is_seen():
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        given_observed(holes(), np.zeros(4), -np.eye(4), intercept=True)


def test_rows_with_missing_cells_say_what_they_cannot_do():
    design = given_observed(holes(), *law(), intercept=True)
    assert not any(design.offers(name) for name in ("outer", "norms", "scaled", "take"))
    assert design.offers("excess")


@pytest.mark.parametrize("intercept", [True, False])
def test_columns_are_standardized_by_what_is_observed(intercept):
    X, weight = holes() * 7.0 + 50.0, np.linspace(0.5, 2.0, 40)
    columns = standardize_observed(X, weight, intercept=intercept)
    for j in range(4):
        seen = ~np.isnan(X[:, j])
        share = weight[seen] / weight[seen].sum()
        centre = share @ X[seen, j] if intercept else 0.0
        assert columns.shift[j] == pytest.approx(centre, rel=1e-12)
        assert columns.scale[j] ** -2 == pytest.approx(share @ (X[seen, j] - centre) ** 2, rel=1e-10)
    complete = np.where(np.isnan(X), 1.0, X)
    one, two = standardize_observed(complete, weight), standardize(complete, weight)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_empty_and_constant_columns():
    X = holes()
    X[:, 2] = np.where(np.isnan(X[:, 2]), np.nan, 5.0)
    np.testing.assert_array_equal(standardize_observed(X, np.ones(40)).keep, [0, 1, 3])
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 of X has no observed value; drop it"):
        standardize_observed(X, np.ones(40))


def test_cells_in_the_users_units():
    """Affine columns give affine cells, and a column that is left out shifts the numbering back."""
    X = np.insert(holes(), 1, 3.0, axis=1)
    columns = standardize_observed(X, np.ones(40))
    kept = (X[:, columns.keep] - columns.shift) * columns.scale
    cells = given_observed(kept, *law(), intercept=True).cells()
    user = cells.to_user(columns)
    np.testing.assert_array_equal(user.column, np.array([0, 2, 3, 4])[cells.column])
    sd = 1.0 / columns.scale[cells.column]
    np.testing.assert_allclose(user.mean, cells.mean * sd + columns.shift[cells.column])
    np.testing.assert_allclose(user.sd, cells.sd * sd)


def test_slopes_of_excess_variances_need_no_matrix_of_all_columns():
    X, rng = np.zeros((3, 700)), np.random.default_rng(4)
    X[:, :4] = np.nan
    design = given_observed(X, np.zeros(700), np.eye(700), intercept=True)
    w, beta = rng.random(3), rng.standard_normal(701)
    design.excess_slope(w, beta)  # compiled
    tracemalloc.start()
    slope = design.excess_slope(w, beta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(slope[1:5], w.sum() * beta[1:5], rtol=1e-13)
    assert not slope[0] and not slope[5:].any()
    assert peak < 8 * 701**2 / 20
