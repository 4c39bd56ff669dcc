"""Refits at one scale with the spread of the scale, where it is exactly what it is taken for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from softmargin.designs import Dense
from softmargin.loo.refits import spread
from softmargin.rows.in_memory import Blocks


def problem(factor, share):
    """A fit with mean m and covariance C, and a mixture with mean ``factor`` m and covariance C + ``share`` m m'."""
    rng = np.random.default_rng(0)
    X, mean, root = rng.standard_normal((40, 3)), rng.standard_normal(3), rng.standard_normal((3, 3))
    model = SimpleNamespace(blocks=Blocks(Dense.plain(X), np.ones(40), np.ones(40)))
    more = np.linalg.cholesky(root @ root.T + share * np.outer(mean, mean))
    return (
        model,
        SimpleNamespace(q=SimpleNamespace(mean=mean, root=root)),
        SimpleNamespace(mean=factor * mean, root=more),
    )


def test_means_move_by_a_factor_and_variances_by_a_share_of_their_squares():
    model, vi, posterior = problem(1.1, 0.3)
    f, v = np.array([-2.0, 0.0, 1.0]), np.array([0.5, 1.0, 2.0])
    moved, wider = spread(f, v, model, vi, posterior)
    np.testing.assert_allclose(moved, 1.1 * f)
    np.testing.assert_allclose(wider, v + 0.3 * f**2)


def test_a_scale_that_is_given_changes_nothing():
    model, vi, posterior = problem(1.0, 0.0)
    f, v = np.array([-2.0, 0.0, 1.0]), np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(spread(f, v, model, vi, posterior), (f, v), atol=1e-12)
    assert spread(f, v, model, None, posterior) == (f, v)


def test_without_predictors_there_is_nothing_to_learn_from():
    model, vi, posterior = problem(1.0, 0.0)
    vi.q.mean = np.zeros(3)
    f, v = np.ones(2), np.ones(2)
    np.testing.assert_array_equal(spread(f, v, model, vi, posterior), (f, v))
