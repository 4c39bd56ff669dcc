"""The mode against independent convex solvers, its certificate, the active set, and learned scales."""

import math

import numpy as np
import pytest
from engine_problems import (
    build,
    copies,
    penalty_of,
    quadratic_programme,
    real_data,
    ridge_objective,
    rows_of,
    simulated,
)
from sklearn.svm import LinearSVC

from softmargin import BayesianSVC
from softmargin.core.loop import run
from softmargin.engines.mode._barriers import edges_of
from softmargin.engines.mode.active_set import finish, leave_one_out
from softmargin.engines.mode.duality_gap import certify
from softmargin.engines.mode.interior import InteriorPoint
from softmargin.engines.mode.newton import Newton
from softmargin.engines.vi.fixed_point import EM
from softmargin.priors import HalfCauchy, InverseGamma, Lasso, Ridge

VARIANCES = (0.05, 0.5, 5.0)


def mode(model):
    """The mode at a fixed scale, and the precision it belongs to."""
    return run(Newton(), model, max_iter=50).state.point, penalty_of(model).precision


def weights(n, seed=1):
    return np.random.default_rng(seed).uniform(0.2, 3.0, n)


def agrees_with_clarabel(model):
    point, precision = mode(model)
    ours = ridge_objective(model, point.beta, precision)
    theirs = ridge_objective(model, quadratic_programme(model, precision), precision)
    assert point.certificate.objective == pytest.approx(ours, rel=1e-12)
    assert abs(ours - theirs) <= 1e-8 * theirs
    assert -1e-14 <= point.certificate.gap <= 1e-8
    return point


# --- the optimum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_objective_equals_convex_solver(variance, weighted, intercept):
    X, y = simulated(60, 4, seed=2)
    c = weights(60) if weighted else 1.0
    agrees_with_clarabel(build(X, y, c=c, intercept=intercept, prior=Ridge(scale=math.sqrt(variance))))


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("intercept", [False, True])
def test_more_columns_than_rows(variance, intercept):
    """The rotated coordinates give the objective and the predictors of the coefficients themselves."""
    X, y = simulated(25, 80, seed=4)
    prior = Ridge(scale=math.sqrt(variance) / 10)
    primal = build(X, y, c=weights(25), intercept=intercept, prior=prior)
    dual = build(X, y, c=weights(25), intercept=intercept, prior=prior, dual=True)
    assert dual.size == 25 + intercept
    point = agrees_with_clarabel(primal)
    rotated = agrees_with_clarabel(dual)
    assert rotated.certificate.objective == pytest.approx(point.certificate.objective, rel=1e-9)
    np.testing.assert_allclose(rotated.f, point.f, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "variances"),
    [
        ("heart", VARIANCES),
        ("titanic", VARIANCES),
        ("spam", VARIANCES),
        ("a9a", (0.05,)),
        pytest.param("a9a", (5.0,), marks=pytest.mark.soak),
    ],
)
def test_real_data_equal_convex_solver(name, variances):
    X, y = real_data(name)
    for variance in variances:
        agrees_with_clarabel(build(X, y, standardized=True, prior=Ridge(scale=math.sqrt(variance))))


@pytest.mark.slow
def test_many_rows_are_certified():
    """Twenty thousand rows and two hundred columns; the lower bound is recomputed from the multipliers."""
    X, y = simulated(20_000, 200, seed=0)
    model = build(X, y, prior=Ridge(scale=math.sqrt(0.5)))
    point, precision = mode(model)
    assert point.certificate.gap <= 1e-8
    rows = np.column_stack((np.ones(len(y)), X))
    objective = 2.0 * np.maximum(1.0 - y * (rows @ point.beta), 0.0).sum() + 0.5 * precision @ point.beta**2
    v = rows.T @ (y * np.clip(point.g, 0.0, 2.0))
    # the flat intercept turns a rounding error e of sum y g into e^2/(2 d): bounded instead by its optimal value
    shrunk = v[1:] @ (v[1:] / precision[1:])
    lower = point.g.sum() - 0.5 * shrunk - abs(v[0]) * (1.0 + np.abs(rows @ point.beta).max())
    assert objective - lower <= 1e-8 * objective


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_liblinear(scale, weighted):
    """``LinearSVC(loss="hinge", C=2 s^2)`` on the same columns has the same coefficients."""
    X, y = simulated(80, 4, seed=6)
    c = weights(80, seed=7) if weighted else np.ones(80)
    point, _ = mode(build(X, y, c=c, intercept=False, prior=Ridge(scale=scale)))
    peer = LinearSVC(loss="hinge", C=2 * scale**2, fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    peer.fit(X, y, sample_weight=c)
    np.testing.assert_allclose(point.beta, peer.coef_[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("variance", VARIANCES)
def test_many_copies_equal_weights(variance):
    """A row that stands for k copies has weight k; the mode of both forms is the same and both are certified."""
    X, y = copies()
    distinct, count = np.unique(np.column_stack((X, y)), axis=0, return_counts=True)
    prior = Ridge(scale=math.sqrt(variance))
    long = agrees_with_clarabel(build(X, y, prior=prior))
    short = agrees_with_clarabel(build(distinct[:, :3], distinct[:, 3], c=count.astype(float), prior=prior))
    assert long.certificate.objective == pytest.approx(short.certificate.objective, rel=1e-9)


# --- the certificate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
def test_certificate_is_valid_at_any_point(intercept):
    """The lower bound stays below the optimum, so the certified gap is never smaller than the true one."""
    X, y = simulated(40, 3, seed=8)
    model = build(X, y, c=weights(40), intercept=intercept, prior=Ridge(scale=0.7))
    point, precision = mode(model)
    optimum = ridge_objective(model, point.beta, precision)
    rng = np.random.default_rng(0)
    useful = 0
    for k in range(300):
        size = 10.0 ** rng.uniform(-6, 1)
        beta = point.beta + size * rng.standard_normal(model.size)
        if k % 3 == 0:  # multipliers anywhere, outside their box included
            g = model.c * rng.uniform(-1.0, 3.0, len(y))
        else:  # near the optimal ones
            g = point.g + size * model.c * rng.standard_normal(len(y))
        certificate = certify(model, beta, model.blocks.matvec(beta), g, penalty_of(model))
        assert certificate.objective == pytest.approx(ridge_objective(model, beta, precision), rel=1e-12)
        assert certificate.lower <= optimum * (1.0 + 1e-12)
        assert certificate.gap >= (certificate.objective - optimum) / certificate.objective - 1e-12
        useful += certificate.gap < 0.1
    assert useful > 50  # a bound of minus infinity would be valid as well


def test_certificate_along_the_interior_point():
    """Certified gap at least the true gap at every iterate, and small at the end."""
    X, y = simulated(60, 4, seed=9)
    model = build(X, y, prior=Ridge(scale=1.0))
    point, precision = mode(model)
    optimum = ridge_objective(model, point.beta, precision)
    engine = InteriorPoint(penalty_of(model))
    state = engine.init(model)
    gaps = []
    for iteration in range(30):
        state, info = engine.step(model, state, iteration)
        if info.done:
            break
        true = (ridge_objective(model, state.beta, precision) - optimum) / optimum
        assert info.change >= true - 1e-12
        gaps.append(info.change)
        if gaps[-1] <= 1e-10:
            break
    assert gaps[-1] <= 1e-10
    assert len(gaps) <= 20


# --- the active set -------------------------------------------------------------------------------------------


def margin_problem():
    X, y = simulated(60, 12, seed=10)
    model = build(X, y, c=weights(60), prior=Ridge(scale=0.15))
    point, _ = mode(model)
    assert point.margin.sum() == 7
    assert point.certificate.gap <= 1e-12
    return model, point


@pytest.mark.parametrize("pinned", [1, 3, 5, 8, 10])
@pytest.mark.parametrize("seed", [*range(3), 23])
def test_finish_releases_wrongly_pinned_rows(pinned, seed):
    """Rows put on the margin by mistake leave it, to the side where their multiplier belongs.

    With 8 and 10 of them there are more rows on the margin than coefficients, and the equations have no solution.
    """
    model, point = margin_problem()
    rng = np.random.default_rng(seed)
    margin = point.margin.copy()
    wrong = rng.choice(np.flatnonzero(~margin), size=pinned, replace=False)
    margin[wrong] = True
    beta = point.beta + 0.01 * rng.standard_normal(model.size)
    found = finish(model, beta, point.g, margin, penalty_of(model))
    np.testing.assert_array_equal(found.margin, point.margin)
    np.testing.assert_allclose(found.beta, point.beta, atol=1e-9)
    np.testing.assert_allclose(found.g, point.g, atol=1e-8)
    assert found.certificate.gap <= 1e-12


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", [0, 5, 17, 35])
def test_finish_solves_for_dependent_columns_under_a_lasso(seed):
    """Nothing bends their coefficients, so the equations of the margin do not determine them."""
    X = np.sign(np.random.default_rng(seed).standard_normal((6, 8)))
    point, _ = mode(build(X, 2.0 * (np.arange(6) % 2) - 1.0, prior=Lasso(scale=1.0)))
    assert point.certificate.gap <= 1e-10


def test_a_point_that_exchanges_do_not_improve_stays_as_it_is():
    """Far from the mode, with coefficients wrongly taken for zero, no exchange brings a smaller gap."""
    X, y = simulated(60, 12, seed=10)
    model = build(X, y, prior=Lasso(scale=0.3))
    point, _ = mode(model)
    active = np.ones(model.size, dtype=bool)
    active[1::2] = False
    margin = point.margin.copy()
    found = finish(model, point.beta, point.g, margin, penalty_of(model), active=active, changes=12)
    np.testing.assert_array_equal(active, np.arange(model.size) % 2 == 0, "what is given does not change")
    np.testing.assert_array_equal(found.active, active)
    np.testing.assert_array_equal(found.margin, margin)


def test_a_small_coefficient_that_the_path_has_not_shown_is_found_by_counting_equations():
    """Rows on the margin determine as many coefficients as there are of them that differ."""
    X, y = simulated(60, 12, seed=10)
    model = build(X, y, prior=Lasso(scale=0.3))
    point, _ = mode(model)
    penalty, path = penalty_of(model), run(InteriorPoint(penalty_of(model)), model, max_iter=200, tol=1e-9).state
    edges, number = edges_of(penalty), int(point.active.sum())
    assert point.margin.sum() == number < model.size and point.certificate.gap <= 1e-12
    np.testing.assert_array_equal(edges.active(path.edges), point.active)
    (p, q), dual = path.edges.positive, path.edges.dual
    at = int(np.argmax(np.maximum(p, q)))
    smaller = [np.where(np.arange(len(p)) == at, 1e-6 * each, each) for each in (p, q)]
    early = path.edges._replace(positive=tuple(smaller), dual=tuple(np.maximum(each, 1e-4) for each in dual))
    assert edges.active(early).sum() == number - 1
    np.testing.assert_array_equal(edges.active(early, number), point.active)


@pytest.mark.parametrize("forgotten", range(7))
def test_finish_finds_forgotten_rows(forgotten):
    """A margin row left out enters; it starts on the side its multiplier is nearer to."""
    model, point = margin_problem()
    margin = point.margin.copy()
    margin[np.flatnonzero(margin)[forgotten]] = False
    found = finish(model, point.beta + 0.01, point.g, margin, penalty_of(model))
    np.testing.assert_array_equal(found.margin, point.margin)
    np.testing.assert_allclose(found.beta, point.beta, atol=1e-9)


def test_finish_satisfies_the_optimality_conditions():
    """``D beta = X'(y g)``, g = 2c inside the margin, 0 beyond it, between on it, where ``y f = 1``."""
    model, point = margin_problem()
    precision = penalty_of(model).precision
    u = 1.0 - model.y * (rows_of(model) @ point.beta)
    np.testing.assert_allclose(precision * point.beta, rows_of(model).T @ (model.y * point.g), atol=1e-10)
    np.testing.assert_allclose(u[point.margin], 0.0, atol=1e-12)
    inside = ~point.margin & (u > 0)
    np.testing.assert_allclose(point.g[inside], 2.0 * model.c[inside], rtol=1e-12)
    np.testing.assert_array_equal(point.g[~point.margin & (u < 0)], 0.0)
    assert ((point.g > 0.0) & (point.g < 2.0 * model.c))[point.margin].all()


def test_finish_completes_em():
    """A few hundred EM steps are inexact; the active set makes them exact."""
    X, y = simulated(60, 4, seed=11)
    model = build(X, y, prior=Ridge(scale=1.0))
    point, _ = mode(model)
    state = run(EM(), model, max_iter=300, tol=1e-12).state
    g = model.y * (state.message.b - state.message.w * state.f)
    near = np.abs(1.0 - model.y * state.f) < 1e-4
    found = finish(model, state.q.mean, np.clip(g, 0.0, 2.0), near, penalty_of(model))
    assert found.certificate.gap <= 1e-12
    np.testing.assert_allclose(found.beta, point.beta, atol=1e-8)


# --- leave one out --------------------------------------------------------------------------------------------


def sets_of(point, c):
    """-1 beyond the margin, 0 on it, 1 inside."""
    return np.where(point.margin, 0, np.where(point.g > c, 1, -1))


def without(X, y, c, i, **options):
    """The mode without row i."""
    rest = np.arange(len(y)) != i
    return mode(build(X[rest], y[rest], c=c[rest], **options))[0]


@pytest.mark.parametrize(("n", "p", "scale", "signal"), [(40, 60, 0.1, 2.0), (60, 12, 0.1, 1.0), (60, 8, 0.05, 1.0)])
@pytest.mark.parametrize("intercept", [False, True])
def test_leave_one_out_equals_refits(n, p, scale, signal, intercept):
    """Exact where no other row changes its set, and nearer to the refits than the fitted predictors everywhere."""
    X, y = simulated(n, p, seed=12, signal=signal)
    c = weights(n, seed=3)
    options = {"intercept": intercept, "prior": Ridge(scale=scale)}
    model = build(X, y, c=c, **options)
    point, _ = mode(model)
    fast = leave_one_out(model, point, penalty_of(model), np.ones(n))
    exact, same = np.empty(n), np.zeros(n, dtype=bool)
    for i in range(n):
        other = without(X, y, c, i, **options)
        assert other.certificate.gap <= 1e-9
        exact[i] = rows_of(model)[i] @ other.beta
        rest = np.arange(n) != i
        same[i] = (sets_of(other, c[rest]) == sets_of(point, c)[rest]).all()
    assert (same & (np.abs(exact - point.f) > 1e-3)).sum() >= 3  # the comparison below is not empty
    np.testing.assert_allclose(fast[same], exact[same], atol=1e-4 if intercept else 1e-8)
    left_out, fitted = np.abs(fast - exact), np.abs(point.f - exact)
    assert np.sqrt(np.mean(left_out**2)) < 0.55 * np.sqrt(np.mean(fitted**2))


@pytest.mark.parametrize("intercept", [False, True])
def test_leave_part_of_a_row_out(intercept):
    """A row inside the margin loses a small part of its weight: no row changes its set, so the rule is exact."""
    X, y = simulated(40, 30, seed=12, signal=2.0)
    c = np.random.default_rng(2).integers(1, 5, 40).astype(float)
    options = {"intercept": intercept, "prior": Ridge(scale=0.05)}
    model = build(X, y, c=c, **options)
    point, _ = mode(model)
    part = np.full(40, 1e-3)
    moved = leave_one_out(model, point, penalty_of(model), part) - point.f
    rows = np.flatnonzero(~point.margin & (point.g > c))
    assert len(rows) >= 10
    assert point.margin.any()
    for i in rows:
        less = c.copy()
        less[i] *= 1.0 - part[i]
        other, _ = mode(build(X, y, c=less, **options))
        assert moved[i] == pytest.approx(other.f[i] - point.f[i], rel=1e-3 if intercept else 1e-6)
        assert moved[i] * y[i] < 0.0


@pytest.mark.parametrize("intercept", [False, True])
def test_margin_rows_that_keep_enough_weight_do_not_move(intercept):
    """A margin row whose multiplier fits the smaller box stays where it is, and so does the fit."""
    X, y = simulated(60, 12, seed=10)
    c = weights(60)
    options = {"intercept": intercept, "prior": Ridge(scale=0.15)}
    model = build(X, y, c=c, **options)
    point, _ = mode(model)
    share = point.g / (2.0 * c)
    part = np.full(60, 0.3)
    fast = leave_one_out(model, point, penalty_of(model), part)
    stay = np.flatnonzero(point.margin & (share < 0.65))
    leave = np.flatnonzero(point.margin & (share > 0.75))
    assert len(stay) >= 2
    np.testing.assert_array_equal(fast[stay], point.f[stay])
    assert (y[leave] * (fast - point.f)[leave] < 0.0).all()
    for i in stay:
        less = c.copy()
        less[i] *= 0.7
        other, _ = mode(build(X, y, c=less, **options))
        assert other.f[i] == pytest.approx(fast[i], abs=1e-7)


def test_leave_one_out_of_copies_equals_part_of_a_weight():
    """Ten copies of a row, each left out in turn, or one row of weight ten that loses a tenth."""
    X, y = simulated(30, 12, seed=10)
    count = np.random.default_rng(4).integers(1, 11, 30)
    prior = Ridge(scale=0.1)
    long = build(np.repeat(X, count, axis=0), np.repeat(y, count), prior=prior)
    short = build(X, y, c=count.astype(float), prior=prior)
    point, _ = mode(short)
    part = leave_one_out(short, point, penalty_of(short), 1.0 / count)
    assert point.margin.any()
    assert np.abs(part - point.f).max() > 0.01
    repeated = leave_one_out(long, mode(long)[0], penalty_of(long), np.ones(int(count.sum())))
    np.testing.assert_allclose(repeated, np.repeat(part, count), atol=1e-4)


# --- learned scale --------------------------------------------------------------------------------------------


def log_joint(model, a, b, log_scale):
    """Profile of the log joint density over the coefficients, in tau = scale^-2, up to constants."""
    fixed = model.with_prior(model.prior.at_scale(math.exp(log_scale)))
    point, precision = mode(fixed)
    tau, r = math.exp(-2.0 * log_scale), int((~model.free).sum())
    return -ridge_objective(model, point.beta, precision) + (0.5 * r + a - 1.0) * math.log(tau) - b * tau


@pytest.mark.parametrize(("a", "b"), [(2.0, 1.0), (3.0, 0.2), (1.5, 4.0)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "r"), [(80, 5), (60, 12)])
def test_learned_scale_is_stationary(a, b, intercept, n, r):
    """The scale is the conditional mode, the profile is flat there, and the point belongs to that very scale."""
    X, y = simulated(n, r, seed=13)
    model = build(X, y, intercept=intercept, prior=Ridge(hyperprior=InverseGamma(a, b)))
    outcome = run(Newton(), model, max_iter=100, tol=1e-10)
    assert outcome.converged
    state = outcome.state
    # the conditional mode given the coefficients: tau = (a + r/2 - 1)/(b + |beta|^2/2)
    shrunk = state.point.beta[~model.free]
    tau = (a + 0.5 * r - 1.0) / (b + 0.5 * shrunk @ shrunk)
    assert state.prior.values["scale"] ** -2 == pytest.approx(tau, rel=1e-9)
    assert state.tried == pytest.approx(state.wanted, abs=1e-6)
    # the profile is flat there, and lower on both sides
    h = 1e-3
    here = log_joint(model, a, b, state.tried)
    up, down = log_joint(model, a, b, state.tried + h), log_joint(model, a, b, state.tried - h)
    curvature = (2.0 * here - up - down) / h**2
    assert curvature > 0.1
    assert abs(up - down) / (2.0 * h) <= 1e-4 * curvature
    # the reported objective is the log joint density with its constants
    constant = a * math.log(b) - math.lgamma(a) - 0.5 * r * math.log(2 * math.pi)
    if intercept:
        constant += 0.5 * math.log(1e-8) - 0.5 * math.log(2 * math.pi)
    assert state.objective == pytest.approx(here + constant, rel=1e-9)


@pytest.mark.parametrize("data", ["simulated", "copies", "heart", "spam"])
def test_learned_scale_climbs_from_every_start(data):
    """Monotone from each start; where the starts end in one mode they end in the same one."""
    if data in ("heart", "spam"):
        X, y = real_data(data)
    else:
        X, y = simulated(80, 5, seed=13) if data == "simulated" else copies()
    model = build(X, y, standardized=True, prior=Ridge(hyperprior=InverseGamma(2.0, 1.0)))
    found = []
    for start in (0.1, 1.0, 10.0):
        engine = Newton(start=start)
        first = engine.init(model)
        assert first.tried == pytest.approx(math.log(start))
        outcome = run(engine, model, max_iter=100, tol=1e-8)
        assert outcome.converged
        assert outcome.n_iter <= 30
        trace = np.array([first.objective, *outcome.trace])
        assert (np.diff(trace) >= -1e-10 * np.abs(trace[1:])).all()
        assert outcome.state.point.certificate.gap <= 1e-8
        found.append((outcome.state.objective, outcome.state.prior.values["scale"]))
    np.testing.assert_allclose(found, np.broadcast_to(found[1], (3, 2)), rtol=1e-5)


def test_best_of_several_starts():
    """A hyperprior with two modes: the estimator keeps the better one."""
    X, y = simulated(40, 6, seed=14, signal=1.5)
    prior = Ridge(hyperprior=InverseGamma(1.0, 1e-3))
    model = build(X, y, standardized=True, prior=prior)
    ends = {}
    for start in (0.01, 0.1, 1.0, 10.0):
        state = run(Newton(start=start), model, max_iter=200, tol=1e-9).state
        ends[start] = (state.objective, state.prior.values["scale"])
    objectives = [objective for objective, _ in ends.values()]
    assert max(objectives) - min(objectives) > 1.0  # two modes indeed
    for starts in ((0.01, 1.0), (1.0, 0.01)):
        svc = BayesianSVC(prior=prior, inference="map", learning_rate=1.0, engine_options={"starts": starts}, tol=1e-9)
        svc.fit(X, y)
        best = max(ends[start] for start in starts)
        assert svc.trace_[-1] == pytest.approx(best[0], rel=1e-9)
        assert svc.scale_ == pytest.approx(best[1], rel=1e-6)


def test_half_cauchy_has_no_joint_mode():
    X, y = simulated(30, 2)
    with pytest.raises(ValueError, match="half-Cauchy"):
        run(Newton(), build(X, y, prior=Ridge(hyperprior=HalfCauchy(1.0))), max_iter=3)
