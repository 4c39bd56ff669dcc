"""Missing predictors in the variational engines and in EM: bounds, optimality, invariances."""

import math
from dataclasses import replace

import numpy as np
import pytest
from engine_problems import build, log_integral, normal_logpdf
from missing_problems import COVARIATES, one_column, one_column_grid, unseen, with_holes
from parts import ENGINES
from scipy.optimize import minimize
from scipy.special import multigammaln
from scipy.stats import multivariate_normal

from softmargin.core.loop import run
from softmargin.designs.imputed import given_observed
from softmargin.engines.alternate import Alternate
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.losses import EpsilonInsensitive, Logit, Probit
from softmargin.priors import Bridge, Horseshoe, InverseGamma, LaplaceZero, Lasso, Ridge
from softmargin.solvers.full import Full
from softmargin.unknowns.covariates import CovariatePrior
from softmargin.unknowns.missing import completed

SCALE = 0.8  # of the prior in the direct computations


def alternate(engine):
    return Alternate(engine, mode=isinstance(engine, EM))


def hinge_average(y, c, f, v):
    """E of the hinge's log pseudo-likelihood under N(f, v), by quadrature up to the kink."""
    kink = min(max((1.0 - y * f) / math.sqrt(v), -12.0), 12.0)  # where y f = 1, in standard deviations towards it
    z = np.linspace(-12.0, kink, 4001)
    return -2.0 * c * np.trapezoid((1.0 - y * f - math.sqrt(v) * z) * np.exp(normal_logpdf(z, 1.0)), z)


def direct(name, model, state, x, spreads, mean, cov, old_precision):
    """``E log p - E log q`` row by row, for rows of mean x and covariance spreads, coefficients N(mean, cov)."""
    n, q = x.shape
    d, value = q - 1, 0.0
    for i in range(n):
        f = float(x[i] @ mean)
        second = np.trace((cov + np.outer(mean, mean)) @ (np.outer(x[i], x[i]) + spreads[i]))
        v, y, c = max(second - f * f, 0.0), model.y[i], model.c[i]
        if name == "vb":
            value += hinge_average(y, c, f, v)
        else:
            value -= c * (1.0 - y * f + math.sqrt((1.0 - y * f) ** 2 + v))
        M = np.flatnonzero(spreads[i].diagonal())
        if len(M):
            value += multivariate_normal(np.zeros(len(M)), spreads[i][np.ix_(M, M)]).entropy()
    sd = np.concatenate(([1e4], np.full(d, SCALE)))
    value += float((normal_logpdf(mean, sd) - 0.5 * cov.diagonal() / sd**2).sum())
    if name != "em":
        value += multivariate_normal(mean, cov).entropy()
    # covariates, with the formula for the inverse Wishart at its optimum written out anew
    nu, around = COVARIATES.degrees(d), np.linalg.inv(n * old_precision + np.eye(d) / COVARIATES.mean_scale**2)
    centre = around @ old_precision @ x[:, 1:].sum(axis=0)
    rate = COVARIATES.spread * np.eye(d) + n * around + spreads.sum(axis=0)[1:, 1:]
    rate = rate + (x[:, 1:] - centre).T @ (x[:, 1:] - centre)
    value += multivariate_normal(np.zeros(d), around).entropy() + float(
        normal_logpdf(centre, COVARIATES.mean_scale).sum()
    )
    value -= 0.5 * np.trace(around) / COVARIATES.mean_scale**2
    value += 0.5 * nu * d * math.log(COVARIATES.spread) - 0.5 * (nu + n) * np.linalg.slogdet(rate)[1]
    return value + multigammaln(0.5 * (nu + n), d) - multigammaln(0.5 * nu, d) - 0.5 * n * d * math.log(math.pi)


def parts_of(engine, state):
    """Rows with their covariances, and moments of the coefficients, as plain arrays."""
    design = state.unknowns[0].design
    n = design.shape[0]
    x = design.rows(np.arange(n))
    spreads = np.array([design.gram(np.ones(1), np.zeros(1), i, i + 1)[0] for i in range(n)])
    spreads -= x[:, :, None] * x[:, None, :]
    spreads[np.abs(spreads) < 1e-13] = 0.0
    mean, root = engine.coefficients(state.inner)
    return x, spreads, mean, root @ root.T


@pytest.mark.parametrize("name", ENGINES)
def test_objective_equals_direct_computation(name):
    """After one step and at the end; EM's coefficients have no density."""
    model, engine = with_holes(n=25, prior=Ridge(scale=SCALE)), ENGINES[name]
    missing, model = alternate(engine), unseen(model, COVARIATES)
    before = missing.init(model)
    for steps in (1, 30):
        for t in range(steps):
            last, (before, _) = before, missing.step(model, before, t)
        value = direct(name, model, before, *parts_of(engine, before), last.unknowns[0].law.precision)
        assert before.objective == pytest.approx(value, abs=2e-5)


@pytest.mark.parametrize("name", ENGINES)
def test_end_is_stationary(name):
    """No small change of a missing entry's mean or variance, or of a coefficient, raises the direct objective."""
    model, engine = with_holes(n=25, prior=Ridge(scale=SCALE)), ENGINES[name]
    state = run(alternate(engine), unseen(model, COVARIATES), max_iter=2000, tol=1e-14).state
    x, spreads, mean, cov = parts_of(engine, state)
    cells, h = state.unknowns[0].cells(), 1e-3

    def value(change, step):
        other = [array.copy() for array in (x, spreads, mean, cov)]
        change(other, step)
        return direct(name, model, state, *other, state.unknowns[0].law.precision)

    def cell(i, j):
        def change(arrays, step):
            arrays[0][i, j + 1] += step

        return change

    def spread(i):
        def change(arrays, step):
            arrays[1][i] *= math.exp(step)

        return change

    def coefficient(j):
        def change(arrays, step):
            arrays[2][j] += step

        return change

    picked = list(zip(cells.row, cells.column, strict=True))[::4]
    changes = [cell(i, j) for i, j in picked] + [spread(i) for i, _ in picked] + [coefficient(j) for j in range(4)]
    base = value(changes[0], 0.0)
    for change in changes:  # a slope of 1e-3 would raise one of the ends by 1e-6
        assert max(value(change, -h), value(change, h)) < base + 1e-6


PRIORS = {
    "ridge": Ridge(),
    "lasso": Lasso(),
    "bridge": Bridge(alpha=0.7),
    "horseshoe": Horseshoe(),
    "ridge-mode": Ridge(hyperprior=InverseGamma(2.0, 1.0)),
}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", ["vb", "meanfield"])
def test_objective_never_falls(name, prior):
    model = with_holes(n=80, d=5, prior=PRIORS[prior], share=0.4)
    outcome = run(alternate(ENGINES[name]), unseen(model), max_iter=60, tol=1e-12)
    assert np.diff(outcome.trace).min() > -1e-9
    assert outcome.change < 1e-5


@pytest.mark.parametrize("loss", [Logit(), Probit(), EpsilonInsensitive(0.2)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("name", ENGINES)
def test_every_loss(name, loss):
    """The cells follow from the row messages alone."""
    model = with_holes(n=60, loss=loss, prior=Ridge(scale=SCALE))
    trace = run(alternate(ENGINES[name]), unseen(model), max_iter=60, tol=1e-12).trace
    assert np.diff(trace).min() > -1e-9


def test_selection_prior():
    """The Laplace-zero engine on completed rows: it rises, and leaves the columns of noise out."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(300) > 0.0, 1.0, -1.0)
    X[rng.random((300, 6)) < 0.15] = np.nan
    outcome = run(alternate(LaplaceZeroVB()), unseen(build(X, y, prior=LaplaceZero())), max_iter=60, tol=1e-10)
    assert np.diff(outcome.trace).min() > -1e-8
    assert outcome.state.inner.inclusion[1] > 0.99
    assert outcome.state.inner.inclusion[2:].max() < 0.3


@pytest.mark.parametrize("name", [*ENGINES, "laplace-zero"])
def test_complete_rows_change_nothing(name):
    """Bit by bit the engine's own run, with its objective."""
    engine = ENGINES.get(name) or LaplaceZeroVB()
    X = np.where(np.isnan(with_holes().blocks.design.X), 0.7, with_holes().blocks.design.X)
    prior = LaplaceZero() if name == "laplace-zero" else Ridge(hyperprior=InverseGamma(2.0, 1.0))
    model = build(X, with_holes().y, prior=prior)
    one = run(engine, model, max_iter=15, tol=1e-10)
    two = run(alternate(engine), unseen(model), max_iter=15, tol=1e-10)
    assert one.trace == two.trace
    np.testing.assert_array_equal(one.state.q.mean, two.state.inner.q.mean)
    np.testing.assert_array_equal(one.state.f, two.state.inner.f)


@pytest.mark.parametrize("name", ENGINES)
def test_order_of_rows_and_number_of_blocks(name):
    base = with_holes(n=2500, d=3, prior=Ridge(scale=SCALE))
    X, y, c = base.blocks.design.X, base.y, base.c
    missing, order = alternate(ENGINES[name]), np.random.default_rng(1).permutation(len(y))
    first = run(missing, unseen(base), max_iter=300, tol=1e-12).state
    blocked = build(X, y, c=c, prior=Ridge(scale=SCALE), n_blocks=2, workers=2)
    blocks = run(missing, unseen(blocked), max_iter=300, tol=1e-12).state
    assert first.objective == blocks.objective
    np.testing.assert_array_equal(first.inner.q.mean, blocks.inner.q.mean)
    mixed = build(X[order], y[order], c=c[order], prior=Ridge(scale=SCALE))
    mixed = run(missing, unseen(mixed), max_iter=300, tol=1e-12)
    assert mixed.state.objective == pytest.approx(first.objective, rel=1e-8)
    np.testing.assert_allclose(mixed.state.inner.q.mean, first.inner.q.mean, atol=1e-4)


def test_observed_cells_stay():
    model = with_holes()
    X = model.blocks.design.X
    state = run(alternate(GaussianVI()), unseen(model), max_iter=20).state
    np.testing.assert_array_equal(state.unknowns[0].design.dense.X[~np.isnan(X)], X[~np.isnan(X)])
    assert len(state.unknowns[0].cells().row) == np.isnan(X).sum()
    assert np.isnan(X[7, 1:]).all()


def test_empty_rows_and_columns():
    """A row without any cell informs the intercept alone; a column without any is refused."""
    X, y = with_holes().blocks.design.X.copy(), with_holes().y.copy()
    X[:12], y[:12] = np.nan, 1.0
    state = run(alternate(GaussianVI()), unseen(build(X, y)), max_iter=100, tol=1e-9).state
    other = unseen(build(X, np.where(np.arange(40) < 12, -1.0, y)))
    other = run(alternate(GaussianVI()), other, max_iter=100, tol=1e-9).state
    assert state.inner.q.mean[0] > other.inner.q.mean[0] + 0.2
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 has no observed value; drop it"):
        alternate(GaussianVI()).init(unseen(build(X, y)))


def test_other_spaces_are_refused():
    """Coefficients of random effects or of several classes have no cells to be missing."""

    class Other(Full):
        pass

    with pytest.raises(TypeError, match="missing predictors go with one output"):
        alternate(GaussianVI()).init(unseen(replace(with_holes(), space=Other())))


def test_degrees_of_freedom_are_checked_first():
    with pytest.raises(ValueError, match="df above 2 for 3 columns; got 1"):
        alternate(GaussianVI()).init(unseen(with_holes(), CovariatePrior(df=1.0)))


@pytest.mark.parametrize("name", ["vb", "meanfield"])
def test_objective_lies_below_the_evidence(name):
    """One column: the evidence with cells, mean and variance integrated out by quadrature."""
    model = one_column(Ridge(scale=1.5))
    axes, log_p, _ = one_column_grid(model, 1.5)
    state = run(alternate(ENGINES[name]), unseen(model, COVARIATES), max_iter=500, tol=1e-12).state
    assert 0.0 < log_integral(log_p, *axes) - state.objective < 2.0


def test_objective_reaches_the_evidence():
    """Where the posterior is nearly a product of normal densities: covariates known before, rows of little weight."""
    model = one_column(Ridge(scale=0.8))
    model = model.with_weight(0.03 * model.c)
    covariates = CovariatePrior(df=400.0, spread=400.0, mean_scale=0.05)
    axes, log_p, means = one_column_grid(model, 0.8, covariates, (-0.25, 0.25), (-0.4, 0.4))
    evidence = log_integral(log_p, *axes)
    state = run(alternate(GaussianVI()), unseen(model, covariates), max_iter=500, tol=1e-12).state
    assert evidence == pytest.approx(state.objective, abs=0.01)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    exact = [float((weight * mean).sum()) for mean in means]
    np.testing.assert_allclose(state.unknowns[0].cells().mean, exact, atol=0.005)
    assert state.inner.q.mean[0] == pytest.approx(float((weight.sum(axis=(1, 2)) * axes[0]).sum()), abs=0.005)


def test_em_lies_below_the_posterior_density():
    """The objective is a lower bound of log p(beta, data) at its own coefficient, for every coefficient on the way."""
    model, missing = unseen(one_column(Ridge(scale=1.5)), COVARIATES), alternate(EM())
    axes, log_p, _ = one_column_grid(model, 1.5)
    weight = np.exp(log_p - log_p.max())
    density = np.log(np.trapezoid(np.trapezoid(weight, axes[2], axis=2), axes[1], axis=1)) + log_p.max()
    state = missing.init(model)
    for t in range(40):
        gap = float(np.interp(state.inner.q.mean[0], axes[0], density)) - state.objective
        assert 0.0 < gap < 1.5
        state, _ = missing.step(model, state, t)


def test_cells_lean_towards_their_labels():
    """A positive label pulls the cell of a column with positive coefficient up, by more the larger its weight."""
    X = np.linspace(-2.0, 2.0, 60)[:, None]
    y = np.where(X[:, 0] + 0.3 * np.sin(7.0 * X[:, 0]) > 0.0, 1.0, -1.0)
    X[[10, 50]], y[[10, 50]] = np.nan, (-1.0, 1.0)
    shifts = []
    for c in (0.05, 0.3, 2.0):
        weight = np.ones(60)
        weight[[10, 50]] = c
        state = run(alternate(GaussianVI()), unseen(build(X, y, c=weight)), max_iter=200, tol=1e-10).state
        cells = state.unknowns[0].cells().mean - state.unknowns[0].law.mean[0]
        assert cells[0] < 0.0 < cells[1]
        shifts.append(cells[1])
    assert shifts[0] < shifts[1] < shifts[2]


def test_stiff_rows_do_not_lower_the_objective():
    """Rows of great weight are nearly steps: the cells settle slowly, and stay where they do not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 4)) + 0.3 * rng.standard_normal((200, 4))
    y = np.where(X.sum(axis=1) + rng.standard_normal(200) > 0.0, 1.0, -1.0)
    X[rng.random((200, 4)) < 0.3] = np.nan
    for rounds in (2, 50):
        trace = run(alternate(GaussianVI()), unseen(build(X, y, c=1e4), rounds=rounds), max_iter=40, tol=1e-9).trace
        assert np.diff(trace).min() > -1e-9 * abs(trace[-1])


def test_new_rows_are_integrated_out():
    """Mean and variance of a predictor with both cells and coefficients uncertain, by simulation."""
    state = run(alternate(GaussianVI()), unseen(with_holes()), max_iter=50, tol=1e-9).state
    new = np.array([[0.5, np.nan, 1.0], [np.nan, np.nan, np.nan], [0.1, 0.2, np.nan]])
    design = given_observed(new, *state.unknowns[0].law, intercept=True)
    mean, root = GaussianVI().coefficients(state.inner)
    f, v = design.matvec(mean), design.row_quad(root) + design.excess(mean)
    rng, covariance, size = np.random.default_rng(0), np.linalg.inv(state.unknowns[0].law.precision), 100_000
    beta = mean + rng.standard_normal((size, 4)) @ root.T
    for i, x in enumerate(new):
        M, O = np.flatnonzero(np.isnan(x)), np.flatnonzero(~np.isnan(x))
        weights = covariance[np.ix_(M, O)] @ np.linalg.inv(covariance[np.ix_(O, O)])
        centre = state.unknowns[0].law.mean[M] + weights @ (x[O] - state.unknowns[0].law.mean[O])
        spread = covariance[np.ix_(M, M)] - weights @ covariance[np.ix_(O, M)]
        rows = np.ones((size, 4))
        rows[:, 1 + O] = x[O]
        rows[:, 1 + M] = rng.multivariate_normal(centre, spread, size=size)
        draws = (rows * beta).sum(axis=1)
        assert abs(draws.mean() - f[i]) < 4.0 * draws.std() / math.sqrt(size)
        square = (draws - f[i]) ** 2
        assert abs(square.mean() - v[i]) < 4.0 * square.std() / math.sqrt(size)


def test_mixture_over_the_scale_works_on_completed_rows():
    """The spread of a learned scale is added at the rows as they are believed to be."""
    model = with_holes(n=60, prior=Ridge())
    state = run(alternate(GaussianVI()), unseen(model), max_iter=100, tol=1e-9).state
    mixture = mix_over_scale(completed(model, state.unknowns[0].design), state.inner)
    assert len(mixture.weights) > 2
    var = (mixture.root**2).sum(axis=1)
    assert (var[1:] > 0.9 * state.inner.q.var[1:]).all()


def test_more_columns_than_rows():
    """EM forms the Gram with the spread of the rows in it, whatever the shape; the bound still rises."""
    model = with_holes(n=12, d=20, prior=Ridge(scale=SCALE))
    for name in ENGINES:
        outcome = run(alternate(ENGINES[name]), unseen(model), max_iter=300, tol=1e-6)
        assert np.diff(outcome.trace).min() > -1e-9
        assert outcome.converged


def test_more_observed_cells_give_narrower_cells():
    """Knocking a second correlated cell out widens the first."""
    model = with_holes(n=200, share=0.1)
    X = model.blocks.design.X.copy()
    X[20] = 0.5, np.nan, 0.4
    narrow = run(alternate(MeanField()), unseen(build(X, model.y)), max_iter=50).state.unknowns[0].cells()
    X[20, 0] = np.nan
    wide = run(alternate(MeanField()), unseen(build(X, model.y)), max_iter=50).state.unknowns[0].cells()
    pick = [cells.sd[(cells.row == 20) & (cells.column == 1)][0] for cells in (narrow, wide)]
    assert pick[0] < pick[1]


def test_entries_of_rows_with_huge_weights_are_at_their_optimum():
    """The density of the one missing entry against an optimiser of its part of the bound, by quadrature."""
    rng = np.random.default_rng(3)
    X, c = rng.standard_normal((30, 3)), np.full(30, 0.25)
    y = np.where(X @ np.array([1.0, -1.0, 2.0]) > 0.0, 1.0, -1.0)
    heavy = int(np.abs(X[:, 2]).argmin())
    X[heavy, 2], c[heavy] = np.nan, 1e7
    state = run(
        Alternate(GaussianVI()), unseen(build(X, y, c=c, prior=Ridge(scale=50.0))), max_iter=500, tol=1e-9
    ).state
    beta, root = state.inner.q.mean, state.inner.q.root
    moment, (design, law) = root @ root.T + np.outer(beta, beta), state.unknowns[0]
    precision = law.precision[2, 2]
    centre = law.mean[2] - law.precision[2, :2] @ (X[heavy, :2] - law.mean[:2]) / precision

    def lost(at):
        x, variance = np.array([1.0, *X[heavy, :2], at[0]]), math.exp(2.0 * at[1])
        f = float(x @ beta)
        v = float(x @ moment @ x) + moment[3, 3] * variance - f * f
        return 0.5 * precision * (variance + (at[0] - centre) ** 2) - at[1] - hinge_average(y[heavy], c[heavy], f, v)

    cell = design.cells()
    found = minimize(lost, (centre, -0.5 * math.log(precision)), method="Nelder-Mead", options={"xatol": 1e-6})
    assert cell.mean[0] == pytest.approx(found.x[0], abs=1e-3)
    assert cell.sd[0] == pytest.approx(math.exp(found.x[1]), rel=1e-3)
