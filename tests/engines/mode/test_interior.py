"""The interior point: steps solve the linearised optimality conditions; rough directions lead to the same mode."""

from dataclasses import replace

import numpy as np
import pytest
from engine_problems import build, penalty_of, rows_of

from softmargin.core.model import Model
from softmargin.engines.mode import interior
from softmargin.engines.mode import screening as reduced
from softmargin.engines.mode._interior_compiled import advanced, aim_at_zero, aim_centred, moved, products
from softmargin.engines.mode.interior import InteriorPoint, exact_mode, path
from softmargin.engines.mode.newton import Newton
from softmargin.engines.mode.smoothed_start import approach
from softmargin.priors import Lasso, Ridge


def problem(n=40, p=5, seed=0, heavy=False, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_cauchy((n, p)) if heavy else rng.standard_normal((n, p))
    f = X @ rng.standard_normal(p)
    y = np.where(f / np.median(np.abs(f)) + rng.standard_normal(n) > 0.3, 1.0, -1.0)
    options = {"prior": Ridge(scale=0.7), "c": rng.uniform(0.3, 2.0, n)} | options
    return build(X, y, **options)


def test_both_directions_solve_the_linearised_conditions():
    model = problem()
    X, y, c = rows_of(model), model.y, model.c
    n, D = len(y), penalty_of(model).precision
    rng = np.random.default_rng(1)
    beta, f = rng.standard_normal(X.shape[1]), rng.standard_normal(n)  # predictors that are not yet X beta
    xi, s = rng.uniform(0.1, 2.0, (2, n))
    g = c * rng.uniform(0.1, 1.9, n)
    v = 2.0 * c - g
    rows = xi, s, v, g
    w, toward, message, total = aim_at_zero(y, f, *rows)
    np.testing.assert_allclose(total, xi @ v + s @ g, rtol=1e-13)
    A = X.T @ (w[:, None] * X) + np.diag(D)
    stationary = D * beta - X.T @ (y * g)

    def check(dbeta, dxi, ds, dg, first, second):
        np.testing.assert_allclose(y * (f + X @ dbeta) - 1.0 + (xi + dxi) - (s + ds), 0.0, atol=1e-10)
        np.testing.assert_allclose(D * (beta + dbeta), X.T @ (y * (g + dg)), atol=1e-10)
        np.testing.assert_allclose(v * dxi - xi * dg, first - xi * v, atol=1e-10)
        np.testing.assert_allclose(g * ds + s * dg, second - s * g, atol=1e-10)

    dbeta = np.linalg.solve(A, X.T @ message - stationary)
    dxi, ds, dg, falls = moved(y, X @ dbeta, *rows, w, toward, -xi, -s)
    check(dbeta, dxi, ds, dg, 0.0, 0.0)
    assert falls[0] == pytest.approx(max((-dxi / xi).max(), (-ds / s).max()), rel=1e-12)
    assert falls[1] == pytest.approx(max((dg / v).max(), (-dg / g).max()), rel=1e-12)
    length, dual = 0.4, 0.7
    new = advanced(*rows, dxi, ds, dg, length, dual)
    np.testing.assert_allclose(new[2] + new[3], 2.0 * c, rtol=1e-13)
    after = products(*rows, dxi, ds, dg, length, dual)
    assert after == pytest.approx(new[0] @ new[2] + new[1] @ new[3], rel=1e-12)
    target = 0.03
    a, b, toward, message = aim_centred(y, f, *rows, w, dxi, ds, dg, target)
    first, second = target + dxi * dg, target - ds * dg
    dbeta = np.linalg.solve(A, X.T @ message - stationary)
    dxi, ds, dg, _ = moved(y, X @ dbeta, *rows, w, toward, a, b)
    check(dbeta, dxi, ds, dg, first, second)


@pytest.mark.parametrize("prior", [Ridge(scale=0.05), Ridge(scale=3.0), Lasso(scale=0.1)])
def test_rough_directions_lead_to_the_same_mode(monkeypatch, prior):
    model = problem(400, 12, prior=prior, heavy=True)
    penalty, used = penalty_of(model), []
    direction = Model.direction

    def counted(self, *arguments):
        used.append(True)
        return direction(self, *arguments)

    monkeypatch.setattr(Model, "direction", counted)
    rough = exact_mode(model, penalty, 1e-9)
    assert used
    monkeypatch.setattr(interior, "_ROUGH", np.inf)
    used.clear()
    plain = exact_mode(model, penalty, 1e-9)
    assert not used
    assert max(rough.certificate.gap, plain.certificate.gap) <= 1e-10
    np.testing.assert_allclose(rough.beta, plain.beta, atol=1e-7 * np.abs(plain.beta).max())


def test_a_rough_direction_is_taken_only_where_it_solves_the_equations(monkeypatch):
    model = problem(300, 6)
    rng = np.random.default_rng(4)
    w, message = rng.uniform(0.1, 2.0, 300), rng.normal(size=300)
    diagonal, shift = penalty_of(model).precision, rng.normal(size=7)
    gaussian, ahead = interior._rough(model, w, message, diagonal, shift, None)
    exact, wanted = interior._exact(model, w, message, diagonal, shift, None)
    np.testing.assert_allclose(gaussian.mean, exact.mean, atol=1e-5 * np.abs(exact.mean).max())
    np.testing.assert_allclose(ahead, wanted, atol=1e-5 * np.abs(wanted).max())
    solver = Model.solver
    for factor, good in ((1.005, True), (1.05, False)):  # a matrix that is off by as much is a step that is
        monkeypatch.setattr(Model, "direction", lambda self, w, *rest, k=factor: solver(self, k * w, *rest))
        assert (interior._rough(model, w, message, diagonal, shift, None) is not None) == good


def test_the_matrix_in_single_precision():
    model = problem(300, 7)
    design = model.blocks.design
    w, b = np.random.default_rng(2).uniform(0.0, 5.0, (2, 300))
    A, c = design.gram(w, b)
    rough, same = design.single().gram(w, b)
    assert rough.dtype == np.float64
    np.testing.assert_allclose(rough, A, atol=1e-5 * np.abs(A).max())
    assert np.abs(rough - A).max() > 0.0
    np.testing.assert_allclose(same, c, rtol=1e-13)


def scaled_problem(size):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(60) > 0.0, 1.0, -1.0)
    X[:, 0] *= size
    return build(X, y, prior=Ridge(scale=1.0), standardized=False)


def test_columns_too_small_for_single_precision():
    model = scaled_problem(1e-30)
    assert exact_mode(model, penalty_of(model), 1e-9).certificate.gap <= 1e-9


def test_columns_too_large_for_single_precision():
    model = scaled_problem(1e25)
    assert model.direction(np.ones(60), model.y, penalty_of(model).precision) is None


def test_it_goes_on_from_where_it_stopped():
    model = problem(300, 6)
    penalty = penalty_of(model)
    start = path(model, penalty, 1e-3)
    assert 1e-9 < start.gap <= 1e-3
    on = path(model, penalty, 1e-9, start)
    assert on.gap <= 1e-9
    np.testing.assert_allclose(on.f, path(model, penalty, 1e-9).f, atol=1e-6)


def test_equations_that_cannot_be_solved_end_it(monkeypatch):
    """The best point so far is kept; without one the error is the user's to see."""
    model = problem(100, 4)
    penalty = penalty_of(model)
    start = path(model, penalty, 1e-3)

    def broken(self, *arguments):
        raise np.linalg.LinAlgError("no digits left")

    monkeypatch.setattr(Model, "solver", broken)
    engine = InteriorPoint(penalty)
    kept, info = engine.step(model, start, 50)
    assert info.done and kept is start
    with pytest.raises(np.linalg.LinAlgError, match="no digits left"):
        engine.step(model, engine.init(model), 50)


@pytest.mark.parametrize("seed", range(4))
def test_heavy_tails_and_few_rows(seed):
    """Starts from subsamples and few rows end in the mode of all rows, near or not."""
    model = problem(9000, 6, seed=seed, heavy=True, prior=Ridge(scale=10.0))
    penalty = penalty_of(model)
    wanted = exact_mode(model, penalty, 1e-9)
    for near in (None, approach(model, penalty)[0], replace_settled(approach(model, penalty)[0])):
        found = Newton().at(model, penalty, near)
        assert found.certificate.gap <= 1e-9
        assert found.certificate.objective == pytest.approx(wanted.certificate.objective, rel=2e-9)


def replace_settled(near):
    return near._replace(settled=not near.settled)


def test_a_mode_with_the_same_margin_needs_no_interior_point(monkeypatch):
    model = problem(6000, 5, seed=5)
    penalty = penalty_of(model)
    before = Newton().at(model, penalty)

    def unwanted(*arguments):
        raise AssertionError("exchanges were enough")

    monkeypatch.setattr(reduced, "path", unwanted)
    near = penalty._replace(precision=penalty.precision * (1.0 + 1e-7))
    after = Newton().at(model, near, before)
    assert after.certificate.gap <= 1e-9
    np.testing.assert_array_equal(after.margin, before.margin)
    wanted = exact_mode(replace(model), near, 1e-9)
    np.testing.assert_allclose(after.beta, wanted.beta, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", [14, 20, 33])
@pytest.mark.parametrize("prior", [Lasso(scale=1.0), Ridge(scale=100.0)])
def test_rows_of_very_uneven_weight(monkeypatch, prior, seed):
    """Single precision would lose the light rows beside the heavy ones; what rounding leaves in double it may leave."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 5))
    y = np.where(X @ rng.normal(size=5) / 5**0.5 + rng.normal(size=200) > 0.0, 1.0, -1.0)
    c = np.ceil(np.random.default_rng(100 + seed).pareto(0.3, 200))
    model = build(X, y, c=c, prior=prior)
    rough = exact_mode(model, penalty_of(model), 1e-9).certificate.gap
    monkeypatch.setattr(interior, "_ROUGH", np.inf)
    plain = exact_mode(model, penalty_of(model), 1e-9).certificate.gap
    assert rough <= 1e-9 + 2.0 * plain < 1e-7
