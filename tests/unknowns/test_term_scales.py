"""Standard deviations of terms beside point masses: their part of the bound, and draws against prior averages."""

import math

import numpy as np
import pytest
from engine_problems import build

from softmargin.core.loop import run
from softmargin.core.unknown import Seen
from softmargin.engines.alternate import Alternate
from softmargin.engines.selection.laplace_zero import laplace_zero
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB
from softmargin.priors import HalfT, LaplaceZero, Ridge
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.unknowns.term_scales import TermScales

X = np.array([[0.9, 0.2], [1.2, -0.7], [-0.4, 0.8], [-1.1, -0.3], [0.3, 1.1], [-0.6, 0.5], [0.1, -1.2], [-0.2, -0.4]])
Y = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
Z = np.array([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)


def problem(term):
    free = np.zeros(4, dtype=bool)
    fixed = LaplaceZero(0.4, scale=1.1).bind(free[:2], 8)
    model = build(np.column_stack((X, Z)), Y, prior=Ridge(scale=1.0), intercept=False)
    return model.with_prior(Terms(Ridge(), (term,)).bind(free, 8).with_fixed(fixed)).with_unknowns((TermScales(),))


def test_a_given_standard_deviation_adds_nothing_to_the_engines_bound():
    """The engine has the terms as normal with known precision already: a factor two or a sign would show."""
    model, rng = problem(TermPrior(("group",), 2, scale=0.7)), np.random.default_rng(0)
    unknown, mean, root = TermScales(), rng.standard_normal(4), rng.standard_normal((4, 4))
    seen = Seen(mean, root, None, "expect", False)
    state, part = unknown.expect(model, unknown.start(model), seen)
    assert part == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(state.precision[2:], 0.7**-2)


def test_a_learned_one_is_the_best_and_never_lowers_the_bound():
    model = problem(TermPrior(("group",), 2, hyperprior=HalfT(1.0, df=5.0)))
    outcome = run(Alternate(LaplaceZeroVB()), model, max_iter=60, tol=1e-12)
    assert (np.diff(outcome.trace) >= -1e-9).all()


def test_draws_are_those_of_weighted_prior_draws():
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        gamma, sd = rng.random((25_000, 2)) < 0.4, np.abs(rng.standard_t(5.0, 25_000))
        beta = np.where(gamma, rng.laplace(scale=1.1, size=(25_000, 2)), 0.0)
        u = sd[:, None] * rng.standard_normal((25_000, 2))
        weight = np.exp(-2.0 * np.maximum(1.0 - Y * (beta @ X.T + u @ Z.T), 0.0).sum(axis=1))
        values = np.column_stack((gamma, beta, u, np.log(sd), u[:, 0] * u[:, 1]))
        found.append(weight @ values / weight.sum())
    wanted, tolerance = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(40)
    model, engine = problem(TermPrior(("group",), 2, hyperprior=HalfT(1.0, df=5.0))), laplace_zero(chains=1)
    state, kept = engine.init(model)[0], []
    for iteration in range(1, 6301):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > 300:
            beta = state.beta
            kept.append([*(beta[:2] != 0.0), *beta, math.log(state.noted["group"]), beta[2] * beta[3]])
    batches = np.array(kept, dtype=float).reshape(40, -1, 8).mean(axis=1)
    scores = (batches.mean(axis=0) - wanted) / np.hypot(batches.std(axis=0, ddof=1) / math.sqrt(40), tolerance)
    assert np.abs(scores).max() < 4.0, scores
