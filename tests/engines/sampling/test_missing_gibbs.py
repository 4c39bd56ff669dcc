"""Drawn missing entries: conditionals, quadrature, the joint distribution, selection samplers, reproducibility."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from engine_problems import build, real_data
from missing_problems import COVARIATES, one_column, one_column_grid, unseen, with_holes
from stages import in_stages

from softmargin.core.loop import run
from softmargin.designs.dense import Dense
from softmargin.engines.alternate import Alternate
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.moves.coefficients import Coefficients
from softmargin.engines.selection.laplace_zero import laplace_zero
from softmargin.engines.selection.lines import LineMoves
from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.inference.draws import _sampler_of
from softmargin.inference.selecting import selecting_sampler
from softmargin.inference.settings import Settings
from softmargin.losses import Probit, Squared
from softmargin.priors import LaplaceZero, Ridge, SpikeSlab
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Address
from softmargin.unknowns.covariates import CovariateLaw, CovariatePrior
from softmargin.unknowns.missing import EntryAverage, Missing

LIMIT = 4.0  # standard errors


def score(values, exact):
    """Distance of a mean from its exact value in standard errors from 40 batches."""
    batches = values[: len(values) // 40 * 40].reshape(40, -1).mean(axis=1)
    return float((values.mean() - exact) / (batches.std(ddof=1) / math.sqrt(40)))


def chain_of(model, engine, sweeps, warmup=100):
    """The states of one chain."""
    state, out = engine.init(model)[0], []
    for iteration in range(1, warmup + sweeps + 1):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > warmup:
            out.append(state)
    return out


def test_cells_have_their_conditional():
    """With no latent the conditional is normal: precision ``Lambda_MM + w u u'``, whatever was in the cells before."""
    model = with_holes(n=12, loss=Squared(), prior=Ridge(scale=1.0), seed=4)
    unknown = Missing(COVARIATES)
    state = gibbs(chains=1).init(unseen(model, COVARIATES))[0]
    beta, rng = np.array([0.3, -0.9, 0.7, 1.2]), np.random.default_rng(0)
    A = rng.standard_normal((3, 5))
    law = CovariateLaw(np.array([0.2, -0.1, 0.4]), A @ A.T)
    chain, entries = state._replace(beta=beta), state.unknowns[0]._replace(law=law)
    draws = np.array([unknown.draw(Address(model.streams, 0, t), model, entries, chain)[0].X for t in range(4000)])
    X = model.blocks.design.X
    for i in np.flatnonzero(np.isnan(X).any(axis=1)):
        M, O, c = np.flatnonzero(np.isnan(X[i])), np.flatnonzero(~np.isnan(X[i])), model.c[i]
        u, cross = beta[1:][M], law.precision[np.ix_(M, O)] @ (X[i, O] - law.mean[O])
        precision = law.precision[np.ix_(M, M)] + c * np.outer(u, u)
        rest = model.y[i] - beta[0] - X[i, O] @ beta[1:][O]
        mean = np.linalg.solve(precision, law.precision[np.ix_(M, M)] @ law.mean[M] - cross + c * rest * u)
        sample = draws[:, i, M]
        np.testing.assert_array_equal(draws[:, i, O], np.broadcast_to(X[i, O], (4000, len(O))))
        assert np.abs((sample.mean(axis=0) - mean) / (sample.std(axis=0) / math.sqrt(4000))).max() < LIMIT
        products = np.einsum("ta,tb->tab", sample - mean, sample - mean)
        error = products.std(axis=0) / math.sqrt(4000)
        assert np.abs((products.mean(axis=0) - np.linalg.inv(precision)) / error).max() < LIMIT


def quadrature(model, scale):
    """Exact means of everything that the chain draws in one column."""
    axes, log_p, means = one_column_grid(model, scale)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    exact = [float((weight * mean).sum()) for mean in means]
    for k, axis in enumerate(axes):
        margin = weight.sum(axis=tuple(j for j in range(3) if j != k))
        exact += [float(margin @ axis), float(margin @ axis**2)]
    return exact


def series(states):
    """The same quantities of the draws: cells, then coefficient, mean and log variance with their squares."""
    cells = np.array([state.unknowns[0].X[[3, 5], 0] for state in states])
    laws = [state.unknowns[0].law for state in states]
    rest = np.array(
        [(s.beta[0], law.mean[0], -math.log(law.precision[0, 0])) for s, law in zip(states, laws, strict=True)]
    )
    return [*cells.T, *(column**power for column in rest.T for power in (1, 2))]


def test_gibbs_equals_quadrature():
    model = one_column(Ridge(scale=0.9))
    states = chain_of(unseen(model, COVARIATES), gibbs(chains=1), 2500)
    scores = [score(v, e) for v, e in zip(series(states), quadrature(model, 0.9), strict=True)]
    assert np.abs(scores).max() < LIMIT, scores


@dataclass(frozen=True)
class TwoRowsShort(CovariatePrior):
    """The last two rows do not count."""

    def draw(self, rng, X, precision, times):
        return super().draw(rng, X[:-2], precision, times[:-2])


@dataclass(frozen=True)
class Deaf(Missing):
    """Responses of incomplete rows are not heard by their cells."""

    def draw(self, random, model, state, chain):
        heard = np.ones(len(model.y))
        heard[state.patterns.row] = 0.0
        return super().draw(random, model.with_weight(heard * model.c), state, chain)


@pytest.mark.parametrize(
    "broken",
    in_stages([Missing(TwoRowsShort(spread=0.5, mean_scale=2.0)), Deaf(COVARIATES)]),
    ids=["covariates", "cells"],
)
def test_quadrature_sees_wrong_samplers(broken):
    model = one_column(Ridge(scale=0.9))
    states = chain_of(model.with_unknowns((broken,)), gibbs(chains=1), 2500)
    scores = [score(v, e) for v, e in zip(series(states), quadrature(model, 0.9), strict=True)]
    assert np.abs(scores).max() > 2.0 * LIMIT, scores


# --- the joint distribution -----------------------------------------------------------------------------------

KNOWN = CovariatePrior(df=8.0, spread=5.0, mean_scale=0.7)
MASK = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 1]], dtype=bool)


def joint_draws(sampler, sweeps):
    """Successive conditionals of a probit model: the sampler given data, then data given what it drew.

    Every function of (beta, mu, Sigma, X) then has its prior mean.
    """
    rng = np.random.default_rng(11)
    n, d = MASK.shape
    template = build(np.where(MASK, np.nan, rng.standard_normal((n, d))), np.array([1.0, -1.0, 1.0, -1.0, 1.0]),
                     prior=Ridge(scale=0.8, intercept_scale=0.5))  # fmt: skip
    template, engine = unseen(replace(template, loss=Probit()), KNOWN), sampler
    state, out = engine.init(template)[0], []
    for iteration in range(1, sweeps + 1):
        # 1. observed cells given the missing ones and the covariates, then the responses
        entries, beta = state.unknowns[0], state.beta
        X, (mean, precision) = entries.X.copy(), entries.law
        for i in range(n):
            O, M = np.flatnonzero(~MASK[i]), np.flatnonzero(MASK[i])
            if len(O):
                spread = np.linalg.inv(precision[np.ix_(O, O)])
                centre = mean[O] - spread @ precision[np.ix_(O, M)] @ (X[i, M] - mean[M])
                X[i, O] = centre + np.linalg.cholesky(spread) @ rng.standard_normal(len(O))
        f = beta[0] + X @ beta[1:]
        y = np.where(f + rng.standard_normal(n) > 0.0, 1.0, -1.0)
        model = replace(template, blocks=Blocks(template.blocks.design, y, template.c))
        # 2. the sampler
        state = state._replace(rows=model.placed(f), unknowns=(entries._replace(X=X),))
        state = engine.sweep(model, state, 0, iteration)
        X, law, _ = state.unknowns[0]
        covariance = np.linalg.inv(law.precision)
        out.append((*state.beta, *law.mean, *law.precision.ravel()[[0, 1, 3]],
                    covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1]),
                    X[3, 0], X[1, 1], X[2, 0] * state.beta[1]))  # fmt: skip
    return np.array(out)


def joint_scores(sampler, sweeps):
    """z scores of means and of squares with a known mean under the prior."""
    draws, df = joint_draws(sampler, sweeps), KNOWN.degrees(2)
    marginal = KNOWN.spread / (df - 3.0) + KNOWN.mean_scale**2  # variance of a cell
    exact = [0.0] * 5 + [df / KNOWN.spread, 0.0, df / KNOWN.spread] + [0.0] * 4
    scores = [score(column, wanted) for column, wanted in zip(draws.T, exact, strict=True)]
    squares = {0: 0.25, 1: 0.64, 2: 0.64, 3: KNOWN.mean_scale**2, 4: KNOWN.mean_scale**2, 9: marginal, 10: marginal}
    return scores + [score(draws[:, k] ** 2, wanted) for k, wanted in squares.items()]


@pytest.mark.soak
def test_joint_distribution():
    scores = joint_scores(gibbs(chains=1, scale_moves=False), 3500)
    assert np.abs(scores).max() < LIMIT, scores


@dataclass(frozen=True)
class StalePredictors(Coefficients):
    """The latents are drawn at predictors of the rows before the last change of their cells."""

    def __call__(self, random, model, chain):
        return super().__call__(random, model, chain._replace(rows=model.placed(np.roll(chain.f, 1))))


@pytest.mark.soak
def test_joint_distribution_sees_stale_predictors():
    right = gibbs(chains=1, scale_moves=False)
    scores = joint_scores(replace(right, moves=(*right.moves[:-1], StalePredictors())), 2500)
    assert np.abs(scores).max() > 1.5 * LIMIT, scores


# --- with every sampler ---------------------------------------------------------------------------------------


def selection_model(n, p, seed=2):
    """A few rows, of which two columns matter, a fifth of the cells unknown."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    X[:, 1:][rng.random((n, p - 1)) < 0.2] = np.nan
    return build(X, y, c=0.7, prior=SpikeSlab(inclusion=0.4, scale=1.0, intercept_scale=1.0))


@pytest.mark.soak
@pytest.mark.parametrize(("n", "p"), [(14, 3), (6, 7)], ids=["tall", "wide"])
def test_selection_by_lines_equals_the_plain_scan(n, p):
    """The lines keep products of the columns, the scan keeps nothing: inclusion, coefficients and cells agree."""
    model, found = selection_model(n, p), []
    for scan, sweeps in (("lines", 1200), ("plain", 2000)):
        engine = spike_slab(chains=1, warmup=200, scan=scan, ladder=())
        states = chain_of(unseen(model, CovariatePrior(spread=1.0)), engine, sweeps, warmup=210)
        cells = np.nonzero(np.isnan(model.blocks.design.X))
        values = [np.append(s.gamma[1:], (*s.beta, *s.unknowns[0].X[cells][:3])) for s in states]
        batches = np.array(values, dtype=float)[: sweeps // 40 * 40].reshape(40, -1, len(values[0])).mean(axis=1)
        found.append((batches.mean(axis=0), batches.var(axis=0, ddof=1) / 40.0))
    (one, a), (two, b) = found
    assert np.abs((one - two) / np.sqrt(a + b)).max() < LIMIT


def test_columns_kept_by_the_lines_are_those_of_the_sweep():
    """Where rows of X'KX are kept one by one, none survives a change of the cells, and the diagonal is the new one."""
    model, sampler = selection_model(6, 7), spike_slab(chains=1, warmup=20, ladder=())
    state = chain_of(unseen(model), sampler, 5, warmup=25)[-1]
    assert state.own["lines"].reference.kept
    X = np.where(np.isnan(model.blocks.design.X), 0.4, model.blocks.design.X)
    now = replace(model, blocks=model.blocks.redesigned(Dense.plain(X, intercept=True)))
    random = Address(now.streams, 0, 1, np.random.default_rng(0))
    reference = LineMoves(0, flips=0, swaps=0)(random, now, state).own["lines"].reference
    assert set(reference.kept) == set(np.flatnonzero(state.gamma))
    rows = np.concatenate((np.ones((6, 1)), X), axis=1) * (2.0 * model.c * model.y)[:, None]
    np.testing.assert_allclose(reference.diagonal, reference.K @ rows**2, rtol=1e-12)


def test_companion_chains_are_left_out():
    """They would count the responses again in the density of the missing entries they share."""
    model = selection_model(6, 7)
    assert spike_slab(chains=1).init(Missing().apply(model, Missing().start(model)))[0].own["hot"] != ()
    settings = Settings(None, draws=4, warmup=4, chains=1)
    assert _sampler_of(unseen(model), settings).moves[-1].factors == ()
    with pytest.raises(ValueError, match=r"unknown engine_options.*ladder"):
        _sampler_of(unseen(model), replace(settings, options={"ladder": (0.5,)}))


@pytest.mark.parametrize("prior", [Ridge(), LaplaceZero(), SpikeSlab()], ids=lambda prior: type(prior).__name__)
def test_complete_rows_change_nothing(prior):
    """Bit by bit the sampler's own chains."""
    X = np.where(np.isnan(with_holes().blocks.design.X), 0.7, with_holes().blocks.design.X)
    model = build(X, with_holes().y, prior=prior)
    options = {"chains": 2} | ({"warmup": 5, "ladder": ()} if isinstance(prior, SpikeSlab) else {})
    sampler = (selecting_sampler(model.prior) or gibbs)(**options)
    one, two = (run(*each, max_iter=8).state for each in ((sampler, model), (sampler, unseen(model))))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.beta, b.beta)
        assert a.loglik == b.loglik


def test_chains_do_not_depend_on_blocks_or_each_other():
    base = with_holes(n=2500, prior=Ridge())
    X = base.blocks.design.X
    engine = laplace_zero(chains=2)
    models = [unseen(build(X, base.y, prior=LaplaceZero(), n_blocks=k, workers=k)) for k in (1, 2)]
    one, two = (run(engine, model, max_iter=4).state for model in models)
    alone = engine.init(models[0])[1]
    for iteration in range(1, 5):
        alone = engine.sweep(models[0], alone, 1, iteration)
    for other in (two[1], alone):
        np.testing.assert_array_equal(one[1].beta, other.beta)
        np.testing.assert_array_equal(one[1].unknowns[0].X, other.unknowns[0].X)
    assert not np.array_equal(one[0].unknowns[0].X, one[1].unknowns[0].X)


def test_engines_agree_on_real_data():
    """Cholesterol missing in a third of the rows: the variational fit lies within the spread of the draws."""
    columns, _ = real_data("acath")
    X, y = columns[::3, :4].copy(), np.where(columns[::3, 4] == 1.0, 1.0, -1.0)
    X[:, 2], X[:, 3] = np.log1p(X[:, 2]), np.log(X[:, 3])
    X = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
    model = unseen(build(X, y, c=0.25, prior=Ridge()))
    states, average = chain_of(model, gibbs(chains=1), 400, warmup=50), EntryAverage()
    for state in states:
        average.add(state.unknowns[0])
    draws = np.array([state.beta for state in states])
    fit = run(Alternate(GaussianVI()), model, max_iter=100, tol=1e-8).state
    assert (np.abs(draws.mean(axis=0) - fit.inner.q.mean) < 0.5 * draws.std(axis=0)).all()
    cells, other = fit.unknowns[0].cells(), average.cells()
    apart = (cells.mean - other.mean) / (other.sd / math.sqrt(400))  # in standard errors of the draws
    assert np.sqrt((apart**2).mean()) < 1.5
    assert cells.sd.mean() == pytest.approx(other.sd.mean(), rel=0.03)
    np.testing.assert_allclose(fit.unknowns[0].law.mean, average.law.mean, atol=0.02)


def test_averages_of_cells_and_law():
    model = with_holes(n=30)
    states = [state.unknowns[0] for state in chain_of(unseen(model), gibbs(chains=1), 50)]
    average = EntryAverage()
    for state in states:
        average.add(state)
    cells, at = average.cells(), np.nonzero(np.isnan(model.blocks.design.X))
    np.testing.assert_array_equal((cells.row, cells.column), at)
    sample = np.array([state.X[at] for state in states])
    np.testing.assert_allclose(cells.mean, sample.mean(axis=0))
    np.testing.assert_allclose(cells.sd, sample.std(axis=0))
    np.testing.assert_allclose(average.law.precision, np.mean([state.law.precision for state in states], axis=0))
