"""Kernels: their formulas, lengths, the mean distance, and what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel

from softmargin.designs.kernel.kernels import Kernel, check_kernel, mean_distance, resolve


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(7, 3)), rng.normal(size=(4, 3))


def table(k, X, Z):
    return np.array([[k(x, z) for z in Z] for x in X])


def test_rbf_is_the_paper_form_without_a_factor_two(rows):
    X, Z = rows
    kernel = resolve("rbf", 0.7, X)
    expected = table(lambda x, z: np.exp(-((x - z) ** 2).sum() / 0.49), X, Z)
    np.testing.assert_allclose(kernel.matrix(X, Z), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.matrix(X), table(lambda x, z: np.exp(-((x - z) ** 2).sum() / 0.49), X, X))


def test_laplacian_divides_the_city_block_distance(rows):
    X, Z = rows
    expected = table(lambda x, z: np.exp(-np.abs(x - z).sum() / 0.7), X, Z)
    np.testing.assert_allclose(resolve("laplacian", 0.7, X).matrix(X, Z), expected, rtol=1e-12)


def test_rows_far_from_zero_keep_their_digits(rows):
    X, Z = rows
    near = resolve("rbf", 1.3, X).matrix(X, Z)
    far = resolve("rbf", 1.3, X + 1e7).matrix(X + 1e7, Z + 1e7)
    np.testing.assert_allclose(far, near, atol=1e-7)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly", "linear", "cosine"])
def test_diagonal_is_that_of_the_matrix_and_sparse_equals_dense(rows, name):
    X, Z = rows
    kernel = resolve(name, 2.0, X)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(kernel.matrix(X)), rtol=1e-12)
    sparse = resolve(name, 2.0, sp.csr_array(X)).matrix(sp.csr_array(X), sp.csr_array(Z))
    np.testing.assert_allclose(sparse, kernel.matrix(X, Z), rtol=1e-9)


def test_objects_follow_the_length_or_keep_their_own(rows):
    X, Z = rows
    given = Matern(length_scale=0.3, nu=1.5)
    np.testing.assert_allclose(resolve(given, 2.0, X).matrix(X, Z), Matern(length_scale=2.0, nu=1.5)(X, Z))
    kept = resolve(given, None, X)
    assert kept.length == 0.3
    np.testing.assert_allclose(kept.matrix(X, Z), given(X, Z))
    np.testing.assert_allclose(kept.diagonal(X), given.diag(X))
    assert resolve(given, "mean-distance", X).length == pytest.approx(mean_distance(X))
    assert given.length_scale == 0.3, "the object of the user is left alone"
    assert resolve(RBF(1.0) + WhiteKernel(), "learn", X).length is None


def test_with_length_changes_only_the_length(rows):
    X, _ = rows
    kernel = resolve("rbf", "mean-distance", X)
    np.testing.assert_array_equal(kernel.with_length(2.0).matrix(X), resolve("rbf", 2.0, X).matrix(X))
    with pytest.raises(ValueError, match="has no length"):
        resolve("linear", 1.0, X).with_length(2.0)


def test_function_of_two_matrices(rows):
    X, Z = rows
    kernel = resolve(lambda A, B: A @ B.T + 1.0, "learn", X)
    np.testing.assert_allclose(kernel.matrix(X, Z), X @ Z.T + 1.0)
    np.testing.assert_allclose(kernel.diagonal(X), (X * X).sum(axis=1) + 1.0)
    with pytest.raises(ValueError, match="must return"):
        resolve(lambda A, B: (A @ B.T)[0], None, X).matrix(X, Z)


def test_mean_distance_by_hand_and_with_copies(rows):
    X, _ = rows
    pairs = [np.linalg.norm(X[i] - X[j]) for i in range(7) for j in range(i)]
    assert mean_distance(X) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert mean_distance(sp.csr_array(X)) == pytest.approx(np.mean(pairs), rel=1e-7)
    count = np.array([1, 2, 1, 3, 1, 1, 2])
    assert mean_distance(np.repeat(X, count, axis=0)) == pytest.approx(mean_distance(X, count.astype(float)), rel=1e-12)
    assert mean_distance(np.ones((5, 2))) == 1.0


def test_mean_distance_of_many_rows_is_that_of_some():
    X = np.random.default_rng(0).normal(size=(4000, 2))
    assert mean_distance(X) == pytest.approx(np.sqrt(np.pi), rel=0.03)  # E |N(0, 2 I)| in the plane


@pytest.mark.parametrize(
    ("kernel", "length", "message"),
    [
        ("gauss", 1.0, "unknown kernel 'gauss'"),
        ("rbf", -1.0, "must be positive"),
        ("rbf", "mean", "'mean-distance'"),
        (3.0, 1.0, "must be a name"),
    ],
)
def test_refused(rows, kernel, length, message):
    with pytest.raises(ValueError, match=message):
        resolve(kernel, length, rows[0])


def test_matrices_that_are_no_kernel(rows):
    X, _ = rows
    K = resolve("rbf", 1.0, X).matrix(X)
    check_kernel(K)
    with pytest.raises(ValueError, match="not symmetric"):
        check_kernel(K + np.triu(np.ones((7, 7)), 1))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        check_kernel(K - 2.0 * np.eye(7))
    with pytest.raises(ValueError, match="square"):
        check_kernel(K[:3])
    with pytest.raises(ValueError, match="NaN or infinite"):
        check_kernel(np.full((2, 2), np.nan))


def test_white_noise_is_that_of_a_row_with_itself(rows):
    X, Z = rows
    kernel = resolve(RBF(1.0) + WhiteKernel(0.3), "mean-distance", X)
    np.testing.assert_allclose(np.diag(kernel.matrix(X)), kernel.diagonal(X))
    np.testing.assert_allclose(kernel.matrix(X), RBF(1.0)(X) + 0.3 * np.eye(len(X)))
    np.testing.assert_allclose(kernel.matrix(X, Z), RBF(1.0)(X, Z))


def test_no_rows_to_compare_with_give_a_matrix_without_columns():
    assert Kernel("rbf", 1.0).matrix(np.ones((3, 2)), np.ones((0, 2))).shape == (3, 0)
