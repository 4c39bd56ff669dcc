"""Inducing points: features against the kernel they come from, designs in memory and by blocks, derivatives."""

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.checks import check_design
from softmargin.designs.kernel.inducing import Inducing, InducingMap, Loose, choose_points, inducing_map
from softmargin.designs.kernel.kernels import resolve
from softmargin.designs.standardize import standardize


def rows(n=40, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p)) * np.geomspace(0.5, 5.0, p)


def generator():
    return np.random.default_rng(1)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
def test_features_and_rest_are_the_kernel(kernel):
    X = rows()
    k = resolve(kernel, 2.0, X)
    features = InducingMap.of(k, X[:12], unit=1.7)
    phi, rest = features.features(X)
    Kmm, Knm = k.matrix(X[:12]), k.matrix(X, X[:12])
    explained = Knm @ np.linalg.solve(Kmm, Knm.T)
    scale = float(k.diagonal(X).max())
    np.testing.assert_allclose(phi @ phi.T, explained / 1.7, atol=1e-5 * scale)
    np.testing.assert_allclose(rest, (k.diagonal(X) - explained.diagonal()) / 1.7, atol=1e-5 * scale)
    assert rest[12:].max() > 1e-3 * scale  # the other rows are not determined
    assert rest[:12].max() < 1e-6 * scale  # the points are


@pytest.mark.parametrize("intercept", [True, False])
def test_designs_multiply_as_their_rows(intercept):
    X = rows(n=50)
    features = inducing_map(resolve("rbf", 3.0, X), X, 7, generator())
    held = features.design(X, intercept=intercept)
    assert isinstance(held, Loose)
    lazy = Inducing(features, X, intercept)
    check_design(held)
    check_design(lazy)
    np.testing.assert_array_equal(lazy.rows(np.arange(50)), held.rows(np.arange(50)))
    np.testing.assert_array_equal(lazy.rest, held.rest)
    index = np.array([3, 4, 40])
    np.testing.assert_allclose(lazy.pick(index).rows(np.arange(3)), held.pick(index).rows(np.arange(3)), rtol=1e-12)
    np.testing.assert_allclose(lazy.pick(index).rest, held.rest[index], atol=1e-12)


def test_a_mapped_file_and_single_precision_are_rows_like_any(tmp_path):
    X = rows(n=60).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    kernel = resolve("rbf", 3.0, X.astype(float))
    one = inducing_map(kernel, mapped, 5, generator()).design(mapped)
    other = inducing_map(kernel, X.astype(float), 5, generator()).design(X.astype(float))
    np.testing.assert_allclose(one.X, other.X, atol=1e-6)


def test_the_kernel_sees_rescaled_columns():
    X = rows()
    columns = standardize(X, np.ones(len(X)))
    scaled = (X - columns.shift) * columns.scale
    kernel = resolve("rbf", 2.0, scaled)
    one = inducing_map(kernel, X, 6, generator(), columns)
    other = inducing_map(kernel, scaled, 6, generator())
    np.testing.assert_allclose(one.features(X)[0], other.features(scaled)[0], rtol=1e-9)
    np.testing.assert_allclose(one.turned(X)[1], other.turned(scaled)[1], rtol=1e-9)


def test_sparse_rows():
    X = sp.random(50, 8, 0.4, format="csr", random_state=0)
    features = inducing_map(resolve("rbf", 1.5, X), X, 6, generator())
    dense = InducingMap.of(features.kernel, features.landmarks)
    np.testing.assert_allclose(features.features(X)[0], dense.features(X.toarray())[0], atol=1e-13)


@pytest.mark.parametrize("unit", [1.0, 2.5])
def test_derivative_of_the_features_in_log_length(unit):
    X = rows()
    features = InducingMap.of(resolve("rbf", 3.0, X), X[::5] + 0.1, unit=unit)
    phi, turned = features.turned(X)
    np.testing.assert_allclose(phi, features.features(X)[0])
    step = 1e-5
    up, down = (features.at_length(3.0 * np.exp(sign * step)).features(X) for sign in (1.0, -1.0))
    np.testing.assert_allclose(turned, (up[0] - down[0]) / (2.0 * step), atol=1e-7)
    np.testing.assert_allclose(-2.0 * (phi * turned).sum(axis=1), (up[1] - down[1]) / (2.0 * step), atol=1e-7)


def test_draws_of_what_is_left_have_its_covariance():
    X = rows(n=6)
    features = InducingMap.of(resolve("rbf", 3.0, X), X[:2])
    drawn = features.remainder(X, generator(), 40_000)
    phi, rest = features.features(X)
    covariance = features.kernel.matrix(X) - phi @ phi.T
    np.testing.assert_allclose(covariance.diagonal(), rest, atol=1e-12)
    # the error of a covariance of N draws is at most sqrt(2/N) times the variances, 1 here
    np.testing.assert_allclose(np.cov(drawn), covariance, atol=4.0 * np.sqrt(2.0 / 40_000))


def test_points_are_all_distinct_rows_or_a_cover():
    X = rows(n=300, p=2)
    few = choose_points(np.vstack((X[:5], X[:5])), 8, generator())
    np.testing.assert_array_equal(few, np.unique(X[:5], axis=0))
    points = choose_points(X, 20, generator())
    assert points.shape == (20, 2)

    def distance(Z):
        return np.min(((X[:, None] - Z[None]) ** 2).sum(axis=2), axis=1).mean()

    assert distance(points) < 0.8 * distance(X[:20])
    np.testing.assert_array_equal(points, choose_points(X, 20, generator()))


def test_errors_say_what_to_do():
    X = rows()
    with pytest.raises(ValueError, match="n_inducing must be at least 1"):
        choose_points(X, 0, generator())
    with pytest.raises(ValueError, match="kernel function"):
        InducingMap.of(resolve("precomputed", None, np.eye(3)), np.eye(3))
    with pytest.raises(ValueError, match="give length_scale a number"):
        InducingMap.of(resolve("laplacian", 1.0, X), X[:3]).turned(X)


def test_centres_are_means_of_the_rows_next_to_them():
    """Clouds far apart: k-means ends where every centre is the mean of a cloud."""
    rng = np.random.default_rng(0)
    middle = 100.0 * np.arange(5)[:, None] * [1.0, -1.0]
    X = np.repeat(middle, 8, axis=0) + rng.normal(size=(40, 2))
    points = choose_points(X, 5, np.random.default_rng(1))
    means = X.reshape(5, 8, 2).mean(axis=1)
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], means, rtol=1e-9)


def test_centres_are_closer_to_the_rows_than_rows_themselves():
    X = np.random.default_rng(0).normal(size=(600, 3))
    points = choose_points(X, 30, np.random.default_rng(1))

    def inertia(centres):
        return ((X[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).sum()

    labels = ((X[:, None] - points[None]) ** 2).sum(axis=2).argmin(axis=1)
    moved = np.array([X[labels == k].mean(axis=0) for k in range(30)])
    assert inertia(moved) > 0.99 * inertia(points), "another round moves them little"
    for seed in range(5):
        rows = X[np.random.default_rng(seed).choice(600, 30, replace=False)]
        assert inertia(points) < 0.8 * inertia(rows)


def test_points_that_others_determine_are_left_out():
    X = np.random.default_rng(0).normal(size=(300, 2))
    wide, narrow = (resolve("rbf", length, X) for length in (20.0, 0.3))
    few = inducing_map(wide, X, 100, np.random.default_rng(1))
    assert few.size < 40
    assert few.features(X)[1].max() < 1e-5
    assert inducing_map(narrow, X, 100, np.random.default_rng(1)).size == 100


def test_rows_that_are_picked_keep_their_own_undetermined_variance():
    rng = np.random.default_rng(0)
    features, rest = rng.standard_normal((7, 3)), rng.uniform(0.1, 0.9, 7)
    some = Loose.of(features, rest, intercept=True).pick(np.array([5, 0, 2]))
    np.testing.assert_array_equal(some.rest, rest[[5, 0, 2]])
    np.testing.assert_array_equal(some.rows(np.arange(3))[:, 1:], features[[5, 0, 2]])
