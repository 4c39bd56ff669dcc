import numpy as np
import pytest
from class_problems import convex_scores, simulated_classes
from engine_problems import build

from softmargin.core.loop import run
from softmargin.engines.mode.crammer_singer import score_mode
from softmargin.engines.mode.newton import Newton
from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.priors import Ridge


def problem(n, p, k, intercept, scale, seed=1):
    X, label = simulated_classes(n, p, k, seed)
    c = np.random.default_rng(seed).uniform(0.5, 2.0, n)
    rows = np.column_stack((np.ones(n), X)) if intercept else X
    return rows, label, c, np.concatenate((np.full(int(intercept), 1e-8), np.full(p, scale**-2.0)))


CASES = [
    (40, 3, 3, True, 1.0),
    (60, 5, 4, True, 0.3),
    (30, 2, 3, False, 2.0),
    (25, 40, 3, True, 0.5),
    (30, 2, 2, True, 1.0),
]


@pytest.mark.parametrize("case", CASES)
def test_mode_is_that_of_a_convex_solver(case):
    X, label, c, precision = problem(*case)
    point, _ = score_mode(X, label, c, precision, case[2])
    objective, beta = convex_scores(X, label, c, precision)
    assert point.objective == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(point.beta, beta - beta.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(point.beta.sum(axis=0), 0.0, atol=1e-12)
    assert -1e-12 < point.gap < 1e-8


def test_gap_bounds_the_distance_of_any_point():
    X, label, c, precision = problem(*CASES[0])
    best, on_the_way = score_mode(X, label, c, precision, 3)
    value = -CrammerSinger().loglik(label, c, X @ best.beta.T).sum() + 0.5 * (precision * best.beta**2).sum()
    assert best.objective == pytest.approx(value, rel=1e-12)
    short = (on_the_way.objective - best.objective) / on_the_way.objective
    assert 1e-8 < short <= on_the_way.gap


def test_multipliers_are_the_derivatives():
    X, label, c, precision = problem(*CASES[0])
    point, _ = score_mode(X, label, c, precision, 3)
    own = np.eye(3)[label]
    np.testing.assert_allclose(point.z.sum(axis=1), 2.0 * c, rtol=1e-10)
    assert (point.z > -1e-12).all()
    np.testing.assert_allclose(precision * point.beta, (2.0 * c[:, None] * own - point.z).T @ X, atol=1e-6)


def test_curvature_is_that_of_the_smooth_problem():
    """``W = diag h - h h'/sum h`` with h = z/s: it does not see a common shift and is positive."""
    X, label, c, precision = problem(*CASES[0])
    _, smooth = score_mode(X, label, c, precision, 3)
    np.testing.assert_allclose(smooth.curvature.sum(axis=2), 0.0, atol=1e-9 * np.abs(smooth.curvature).max())
    assert (np.linalg.eigvalsh(smooth.curvature)[:, 1:] > 0.0).all()


def test_two_classes_are_the_binary_machine():
    """The difference of two blocks N(0, s^2) in contrasts is N(0, 2 s^2)."""
    X, label = simulated_classes(50, 3, 2, 4)
    point, _ = score_mode(X, label, np.full(50, 0.7), np.full(3, 0.8**-2.0), 2)
    model = build(X, 2.0 * label - 1.0, c=0.7, intercept=False, prior=Ridge(scale=0.8 * np.sqrt(2.0)))
    state = run(Newton(), model, max_iter=200, tol=1e-10).state
    np.testing.assert_allclose(point.beta[1] - point.beta[0], state.point.beta, atol=1e-6)


def test_weights_are_repeated_rows_and_classes_may_be_renamed():
    X, label, _, precision = problem(*CASES[0])
    count = np.random.default_rng(2).integers(1, 4, len(label))
    once, _ = score_mode(X, label, count.astype(float), precision, 3)
    again, _ = score_mode(np.repeat(X, count, axis=0), np.repeat(label, count), np.ones(count.sum()), precision, 3)
    np.testing.assert_allclose(once.beta, again.beta, atol=1e-6)
    order = np.array([2, 0, 1])
    renamed, _ = score_mode(X, order[label], count.astype(float), precision, 3)
    np.testing.assert_allclose(renamed.beta[order], once.beta, atol=1e-6)
