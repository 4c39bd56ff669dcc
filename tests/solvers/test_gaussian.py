"""The Gaussian from a precision matrix against NumPy's inverse and SciPy's density."""

import math

import numpy as np
import pytest
from scipy import stats

from softmargin.solvers import Gaussian

Z_LIMIT = 4.5


def example(p=6, seed=0, units=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3 * p, p)) * units
    return X.T @ X + np.diag(np.full(p, 0.1) * units**2), rng.normal(size=p) * units


def test_mean_covariance_logdet_and_entropy():
    A, linear = example()
    covariance = np.linalg.inv(A)
    q = Gaussian.from_precision(A, linear)
    np.testing.assert_allclose(q.mean, covariance @ linear, rtol=1e-10)
    np.testing.assert_allclose(q.root @ q.root.T, covariance, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(q.var, covariance.diagonal(), rtol=1e-10)
    np.testing.assert_allclose(np.tril(q.root, -1), 0.0)
    np.testing.assert_allclose(q.solve(np.arange(6.0)), covariance @ np.arange(6.0), rtol=1e-10)
    assert q.logdet == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12)
    assert q.entropy == pytest.approx(stats.multivariate_normal(q.mean, covariance).entropy(), rel=1e-10)


def test_the_precision_is_left_alone():
    A, linear = example()
    before = A.copy()
    Gaussian.from_precision(A, linear)
    assert np.array_equal(A, before)


def test_draws():
    """Mean and covariance of draws, each entry within 4.5 standard errors; a precision in its place would fail."""
    A, linear = example(p=3)
    q, n = Gaussian.from_precision(A, linear), 20_000
    rng = np.random.default_rng(1)
    draws = np.array([q.draw(rng) for _ in range(n)])
    covariance = np.linalg.inv(A)
    error = np.sqrt(covariance.diagonal() / n)
    assert np.all(np.abs(draws.mean(axis=0) - q.mean) < Z_LIMIT * error)
    spread = np.sqrt((np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - covariance) < Z_LIMIT * spread)
    assert not np.all(np.abs(np.cov(draws.T) - np.linalg.inv(2 * A)) < Z_LIMIT * spread)


@pytest.mark.parametrize("asked_before", [False, True])
def test_dilated_and_moved(asked_before):
    """Mean times e^t, covariance times e^2t, whether the root was computed before or not."""
    A, linear = example()
    q = Gaussian.from_precision(A, linear)
    if asked_before:
        assert q.root.shape == (6, 6) and q.var.shape == (6,)
    grown, covariance = q.dilated(0.7), np.linalg.inv(A)
    np.testing.assert_allclose(grown.mean, math.exp(0.7) * q.mean)
    np.testing.assert_allclose(grown.root @ grown.root.T, math.exp(1.4) * covariance, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(grown.var, math.exp(1.4) * covariance.diagonal(), rtol=1e-10)
    assert grown.logdet == pytest.approx(q.logdet - 2 * 6 * 0.7, rel=1e-12)
    np.testing.assert_allclose(grown.solve(linear), math.exp(1.4) * covariance @ linear, rtol=1e-9)
    moved = q.with_mean(np.arange(6.0))
    np.testing.assert_allclose(moved.mean, np.arange(6.0))
    np.testing.assert_allclose(moved.var, q.var, rtol=1e-14)


def test_units_of_columns_over_thirty_orders_of_magnitude():
    """The factorisation is as accurate as for columns of one size."""
    units = 10.0 ** np.array([-15, -6, 0, 3, 9, 15])
    A, linear = example()
    plain, scaled = Gaussian.from_precision(A, linear), Gaussian.from_precision(*example(units=units))
    np.testing.assert_allclose(scaled.mean * units, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(scaled.var * units**2, plain.var, rtol=1e-9)
    assert scaled.logdet == pytest.approx(plain.logdet + 2 * np.log(units).sum(), abs=1e-8)


@pytest.mark.parametrize("heavy", [1e4, 1e8, 1e12])
def test_rows_at_the_margin_with_enormous_weight(heavy):
    """Two rows of weight 1e12 among ordinary ones fix two predictors; the others keep their variance."""
    rng = np.random.default_rng(4)
    X, w = rng.normal(size=(30, 5)), np.ones(30)
    w[:2] = heavy
    b = w * (X @ np.arange(5.0))
    q = Gaussian.from_precision(X.T @ (X * w[:, None]) + np.eye(5) * 1e-3, X.T @ b)
    tolerance = 1e-13 * heavy + 1e-2
    np.testing.assert_allclose(X[:2] @ q.mean, X[:2] @ np.arange(5.0), atol=0.1 / math.sqrt(heavy))
    # limit: the two predictors known, the rest a Gaussian on the directions they leave
    left = np.linalg.svd(X[:2])[2][2:].T
    rest = left.T @ (X[2:].T @ X[2:] + np.eye(5) * 1e-3) @ left
    wanted = np.diag(left @ np.linalg.inv(rest) @ left.T)
    np.testing.assert_allclose(q.var, wanted, rtol=max(tolerance, 10 / heavy))


def test_not_positive_definite_is_said():
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        Gaussian.from_precision(np.array([[1.0, 2.0], [2.0, 1.0]]), np.zeros(2))


def test_singular_by_rounding_is_solved():
    """Two copies of a column and a prior far below rounding: their sum is determined, and finite."""
    x = np.random.default_rng(5).normal(size=50)
    X = np.stack([x, x], axis=1)
    q = Gaussian.from_precision(X.T @ X + 1e-18 * np.eye(2), X.T @ (3.0 * x))
    assert np.isfinite(q.mean).all()
    assert q.mean.sum() == pytest.approx(3.0, rel=1e-6)
