"""Sweeps and joint moves of the multipliers: slopes by differences, optimality, equations and gaps by dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, penalty_of
from scipy.optimize import approx_fprime

from softmargin.designs.sparse import Implicit
from softmargin.engines.mode import dual_descent as descent
from softmargin.engines.mode._dual_descent_compiled import slopes, sweep, towards
from softmargin.engines.mode.dual_descent import Descent
from softmargin.engines.mode.duality_gap import certify
from softmargin.engines.mode.newton import Newton
from softmargin.priors import Ridge
from softmargin.solvers.cg.solver import Iterative


def problem(n=40, p=60, *, scale=0.3, intercept=True, standardized=True, long=False, seed=0):
    """A model of sparse rows, its penalty and the rows as the kernels take them; the last row is empty."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, p, density=6 / p, random_state=rng, format="csr", data_rvs=lambda k: rng.normal(1.0, 1.0, k))
    X = sp.vstack([X[: n - 1], sp.csr_matrix((1, p))]).tocsr()
    if long:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    f = X @ rng.normal(size=p) + rng.normal(size=n)
    y, c = np.where(f > np.median(f), 1.0, -1.0), rng.uniform(0.3, 2.0, n)
    model = build(X, y, c=c, prior=Ridge(scale=scale), intercept=intercept, standardized=standardized)
    design = model.blocks.design
    design = Implicit(design.X, design.shift, design.scale, design.intercept)
    model = replace(model, blocks=model.blocks.redesigned(design), space=Iterative(design))
    penalty = penalty_of(model)
    return model, penalty, descent._rows_of(model, penalty)


def signed(model, penalty):
    """The rows ``y_i x_i / sqrt(tau)`` as a dense matrix, without the intercept."""
    Z = model.blocks.design.rows(np.arange(len(model.y)))[:, int(model.blocks.design.intercept) :]
    return model.y[:, None] * Z / np.sqrt(penalty.precision[-1])


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(("intercept", "standardized"), [(False, False), (True, True), (True, False)])
def test_slopes_are_those_of_the_dual(intercept, standardized, long):
    """The dual with an intercept of variance rho around ``keep * base``; by differences of its value."""
    model, penalty, rows = problem(intercept=intercept, standardized=standardized, long=long)
    Z, base = signed(model, penalty), 0.7 if intercept else 0.0
    g = np.random.default_rng(1).uniform(0.0, 1.0, len(model.y)) * rows.top

    def dual(g):
        total = float(model.y @ g)
        return 0.5 * np.sum((Z.T @ g) ** 2) + 0.5 * rows.rho * total**2 + rows.keep * base * total - g.sum()

    got = slopes(rows, g, base)
    np.testing.assert_allclose(got, approx_fprime(g, dual, 1e-5), atol=2e-3 * np.abs(got).max())
    kernel = Z @ Z.T + rows.rho * np.outer(model.y, model.y)
    np.testing.assert_allclose(got, kernel @ g + model.y * rows.keep * base - 1.0, atol=1e-10)
    np.testing.assert_allclose(rows.size, kernel.diagonal(), atol=1e-10)
    if not intercept:
        assert rows.rho == 0.0


@pytest.mark.parametrize("scale", [0.02, 0.3, 3.0])
def test_sweeps_end_where_no_multiplier_wants_to_move(scale):
    """Multipliers that are left out too soon come back with the next call."""
    _, _, rows = problem(80, 160, scale=scale, intercept=False)
    g, state = np.zeros(80), np.array([descent._SEED], dtype=np.uint64)
    before = 0.0
    for _ in range(30):
        assert sweep(rows, g, 0.0, 40, -1.0, state) == 0.0
        value = -descent._value(g, slopes(rows, g, 0.0))
        assert value <= before + 1e-12
        before = value
    slope = slopes(rows, g, 0.0)
    assert (g >= 0.0).all() and (g <= rows.top).all()
    assert (slope[g == 0.0] > -1e-7).all() and (slope[g == rows.top] < 1e-7).all()
    assert np.abs(slope[(g > 0.0) & (g < rows.top)]).max(initial=0.0) < 1e-7
    assert (g == rows.top)[-1]  # an empty row is short of the margin whatever the coefficients


def test_one_sweep_takes_every_multiplier_to_its_best_value_once():
    """The order is a permutation: with rows that share no column, one sweep solves the problem."""
    X = sp.diags(np.arange(1.0, 31.0)).tocsr()
    model = build(X, np.ones(30), prior=Ridge(scale=1.0), intercept=False)
    design = Implicit(X, np.zeros(30), np.ones(30), False)
    model = replace(model, blocks=model.blocks.redesigned(design), space=Iterative(design))
    rows, g = descent._rows_of(model, penalty_of(model)), np.zeros(30)
    sweep(rows, g, 0.0, 1, -1.0, np.array([descent._SEED], dtype=np.uint64))
    np.testing.assert_allclose(g, np.minimum(np.arange(1.0, 31.0) ** -2.0, 2.0), rtol=1e-12)


def test_sweeps_stop_when_few_multipliers_come_and_go():
    _, _, rows = problem(80, 40, intercept=False)
    found = []
    for settled in (1e9, -1.0):
        g = np.zeros(80)
        sweep(rows, g, 0.0, 20, settled, np.array([descent._SEED], dtype=np.uint64))
        found.append(g)
    once = np.zeros(80)
    sweep(rows, once, 0.0, 1, -1.0, np.array([descent._SEED], dtype=np.uint64))
    assert np.array_equal(found[0], once) and not np.array_equal(found[1], once)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_joint_move_solves_the_equations_of_its_rows(intercept):
    model, penalty, rows = problem(30, 200, intercept=intercept)
    rows = rows._replace(top=np.full(30, 1e6))  # nothing leaves its box
    g, index = np.full(30, 5e5), np.arange(0, 29, 2)
    Z, y = signed(model, penalty), model.y
    kernel = Z @ Z.T + rows.rho * np.outer(y, y)
    slope = slopes(rows, g, 0.2)
    d = towards(rows, index, slope, g, 1e-12 * float(np.abs(slope).max()), 0.0)
    np.testing.assert_allclose(d, np.linalg.solve(kernel[np.ix_(index, index)], -slope[index]), rtol=1e-6, atol=1e-3)


def test_a_joint_move_ends_early_where_a_multiplier_leaves_its_box():
    _, _, rows = problem(30, 200, intercept=False)
    rows = rows._replace(top=0.01 * rows.top)
    index, g = np.arange(29), rows.top / 2.0
    slope = slopes(rows, g, 0.0)
    early, late = (towards(rows, index, slope, g, 1e-12, clear) for clear in (0.5, 1e-12))
    assert ((g[index] + late < 0.0) | (g[index] + late > rows.top[index])).any()
    left = [np.sum(slopes(rows, g + np.append(d, 0.0), 0.0)[index] ** 2 / rows.size[index]) for d in (early, late)]
    assert left[1] < 1e-8 * left[0]


@pytest.mark.parametrize("lifted", [False, True])
def test_the_gap_from_the_slopes_is_that_of_the_certificate(lifted):
    """Far from the mode, and close to it where lifting rows over the margin pays."""
    model, penalty, rows = problem(40, 200, scale=30.0 if lifted else 0.3, intercept=False)
    g = np.random.default_rng(0).uniform(0.0, 0.05, 40) * rows.top
    if lifted:
        mode = Descent().at(model, penalty)
        g = np.where(mode.margin, mode.g * (1.0 + 1e-7 * np.linspace(-1.0, 1.0, 40)), mode.g)
    got = descent._gap(rows, g, slopes(rows, g, 0.0))
    beta = model.blocks.rmatvec(model.y * g) / penalty.precision
    plain = certify(model, beta, model.blocks.matvec(beta), g, penalty)
    wanted = Descent(gap=0.0)._point(model, penalty, rows, g, 0.0).certificate
    assert (wanted.gap < 0.5 * plain.gap) == lifted
    assert plain.lower > 0.0  # what the gap is relative to here; it is the objective there
    assert got * plain.lower == pytest.approx(wanted.objective - wanted.lower, rel=1e-5, abs=1e-14)


@pytest.mark.parametrize("intercept", [False, True])
def test_most_rows_at_the_ends_of_their_boxes(intercept):
    """The mode of the interior point where sweeps leave out most rows."""
    model, penalty, rows = problem(400, 150, scale=0.05, intercept=intercept)
    point = Descent().at(model, penalty)
    assert point.certificate.gap <= 1e-9
    assert 0 < point.margin.sum() < 100 and (point.g == rows.top).sum() > 100
    design = model.blocks.design
    gram = build(design.X, model.y, c=model.c, prior=Ridge(scale=0.05), intercept=intercept, standardized=True)
    wanted = Newton().at(gram, penalty)
    assert abs(point.certificate.objective - wanted.certificate.objective) <= 2e-9 * wanted.certificate.objective
    np.testing.assert_allclose(point.f, wanted.f, atol=1e-3)


@pytest.mark.parametrize("intercept", [False, True])
def test_many_rows_in_few_directions_need_no_other_engine(intercept, monkeypatch):
    """Almost as many rows are on the margin as there are directions; ever longer rounds of sweeps find them."""
    monkeypatch.delattr(descent, "exact_mode")
    model, penalty, _ = problem(600, 100, scale=1.0, intercept=intercept)
    point = Descent().at(model, penalty)
    assert point.certificate.gap <= 1e-9 and point.margin.sum() > 85


def test_the_same_bits_every_time():
    found = [Descent().at(*problem(100, 150)[:2]) for _ in range(2)]
    assert found[0].beta.tobytes() == found[1].beta.tobytes() and found[0].g.tobytes() == found[1].g.tobytes()
