"""Missing predictors beside columns that say which group a row is of."""

from dataclasses import replace

import numpy as np
import pytest
from engine_problems import build
from missing_problems import COVARIATES, unseen, with_holes

from softmargin.core.loop import run
from softmargin.designs.dense import Dense
from softmargin.engines.alternate import Alternate
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.loo.missing_cavity import missing_cavities
from softmargin.priors import Ridge
from softmargin.priors.composed.terms import TermPrior, Terms


def twins():
    """An intercept of its own kind, and the same as the effect of the one group that all rows are of."""
    prior = Ridge(scale=0.8, intercept_scale=1.7)
    plain = with_holes(prior=prior)
    X = plain.blocks.design.X
    columns = np.column_stack((X, np.ones(len(X))))
    free = np.zeros(columns.shape[1], dtype=bool)
    bound = Terms(Ridge(scale=0.8), (TermPrior(("group",), 1, scale=1.7),)).bind(free, len(X))
    blocks = plain.blocks.redesigned(Dense.plain(columns, intercept=False))
    return plain, replace(plain, blocks=blocks, prior=bound, free=free, known=1)


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField(), EM()])
def test_one_group_is_an_intercept(engine):
    plain, grouped = twins()
    both = [unseen(model, COVARIATES) for model in (plain, grouped)]
    joint = Alternate(engine, mode=isinstance(engine, EM))
    one, other = (run(joint, model, max_iter=400, tol=1e-13).state for model in both)
    mean, root = engine.coefficients(one.inner)
    order = [1, 2, 3, 0]  # the intercept comes first, the group last
    their_mean, their_root = engine.coefficients(other.inner)
    np.testing.assert_allclose(their_mean, mean[order], rtol=1e-6, atol=1e-6)  # a flat top: 1e-13 of the objective
    if engine.__class__ is not EM:
        np.testing.assert_allclose(their_root @ their_root.T, (root @ root.T)[np.ix_(order, order)], atol=1e-6)
    entries, theirs = one.unknowns[0], other.unknowns[0]
    np.testing.assert_allclose(theirs.law.mean, entries.law.mean, atol=1e-6)
    np.testing.assert_allclose(theirs.law.precision, entries.law.precision, rtol=1e-6)
    for a, b in zip(theirs.cells(), entries.cells(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert other.objective == pytest.approx(one.objective, rel=1e-9)


def test_cavities_of_one_group_are_those_of_an_intercept():
    part = np.ones(40)
    found = []
    for model in twins():
        state = run(Alternate(GaussianVI()), unseen(model, COVARIATES), max_iter=400, tol=1e-13).state
        mean, root = GaussianVI().coefficients(state.inner)
        inner, (design, law) = state.inner, state.unknowns[0]
        found.append(missing_cavities(design, law, mean, root, inner.message, inner.f, inner.v, part))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.soak
def test_draws_of_one_group_are_those_of_an_intercept():
    def means(model):
        engine, model = gibbs(chains=1), unseen(model, COVARIATES)
        state, kept = engine.init(model)[0], []
        lead = int(model.blocks.design.intercept)
        for iteration in range(1, 1601):
            state = engine.sweep(model, state, 0, iteration)
            if iteration > 100:
                beta = np.roll(state.beta, -lead)
                X, law, patterns = state.unknowns[0]
                kept.append([*beta, *law.mean, *np.diag(law.precision), *X[patterns.of_cells()][:5]])
        batches = np.array(kept).reshape(30, 50, -1).mean(axis=1)
        return batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(30)

    (one, error), (other, other_error) = (means(model) for model in twins())
    assert np.abs((one - other) / np.hypot(error, other_error)).max() < 4.0


def test_complete_columns_are_no_covariates():
    """What the groups are does not enter the model of the covariates."""
    _, grouped = twins()
    state = run(Alternate(GaussianVI()), unseen(grouped, COVARIATES), max_iter=20).state
    design, law = state.unknowns[0]
    assert law.mean.shape == (3,)
    assert design.dense.X.shape[1] == 4
    np.testing.assert_array_equal(design.dense.X[:, 3], 1.0)


def test_no_groups_change_nothing():
    model = build(np.random.default_rng(0).standard_normal((12, 2)), np.resize([1.0, -1.0], 12))
    assert model.known == 0
