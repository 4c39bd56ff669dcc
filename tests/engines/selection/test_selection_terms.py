"""Point masses beside random effects, against averages over the prior."""

import math

import numpy as np
import pytest
from engine_problems import build

from softmargin.core.loop import run
from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.priors import HalfT, Ridge, SpikeSlab
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.unknowns.term_scales import TermScales

X = np.array([[0.9, 0.2], [1.2, -0.7], [-0.4, 0.8], [-1.1, -0.3], [0.3, 1.1], [-0.6, 0.5], [0.1, -1.2], [-0.2, -0.4]])
Y = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
Z = np.array([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)


def problem():
    prior = SpikeSlab(0.4, scale=1.1)
    terms = Terms(Ridge(), (TermPrior(("group",), 2, hyperprior=HalfT(1.0, df=5.0)),))
    model = build(np.column_stack((X, Z)), Y, prior=Ridge(scale=1.0), intercept=False)
    free = np.zeros(4, dtype=bool)
    return model.with_prior(terms.bind(free, 8).with_fixed(prior.bind(free[:2], 8))).with_unknowns((TermScales(),))


def exact(rounds=40, size=25_000):
    """Posterior means by draws from the prior, weighted by the pseudo-likelihood, with their standard errors."""
    rng, found = np.random.default_rng(0), []
    for _ in range(rounds):
        gamma = rng.random((size, 2)) < 0.4
        sd = np.abs(rng.standard_t(5.0, size))
        beta = np.where(gamma, 1.1 * rng.standard_normal((size, 2)), 0.0)
        u = sd[:, None] * rng.standard_normal((size, 2))
        f = beta @ X.T + u @ Z.T
        weight = np.exp(-2.0 * np.maximum(1.0 - Y * f, 0.0).sum(axis=1))
        values = np.column_stack((gamma, beta, u, np.log(sd), u[:, 0] * u[:, 1]))
        found.append(weight @ values / weight.sum())
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(rounds)


def chain(sweeps=4000):
    model, engine = problem(), spike_slab(chains=1, warmup=300)
    state, kept = engine.init(model)[0], []
    for iteration in range(1, sweeps + 301):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > 300:
            beta = state.beta
            kept.append([*state.gamma[:2], *beta, math.log(state.noted["group"]), beta[2] * beta[3]])
    batches = np.array(kept, dtype=float).reshape(40, -1, 8).mean(axis=1)
    return batches.mean(axis=0), batches.std(axis=0, ddof=1) / math.sqrt(40)


@pytest.mark.soak
def test_posterior_is_that_of_weighted_prior_draws():
    (wanted, tolerance), (found, error) = exact(), chain()
    scores = (found - wanted) / np.hypot(error, tolerance)
    assert np.abs(scores).max() < 4.0, scores


def test_a_wrong_hyperprior_is_seen():
    """The same comparison notices effects whose standard deviation has another prior."""
    wanted, tolerance = exact()
    model, engine = problem(), spike_slab(chains=1, warmup=100)
    terms = Terms(Ridge(), (TermPrior(("group",), 2, hyperprior=HalfT(3.0, df=5.0)),))
    free = np.zeros(4, dtype=bool)
    model = model.with_prior(terms.bind(free, 8).with_fixed(SpikeSlab(0.4, scale=1.1).bind(free[:2], 8)))
    state, logs = engine.init(model)[0], []
    for iteration in range(1, 1601):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > 100:
            logs.append(math.log(state.noted["group"]))
    batches = np.array(logs).reshape(30, -1).mean(axis=1)
    z = (batches.mean() - wanted[6]) / math.hypot(batches.std(ddof=1) / math.sqrt(30), tolerance[6])
    assert abs(z) > 6.0


def test_states_carry_scales_and_precisions():
    model = problem()
    state = run(spike_slab(chains=2, warmup=5), model, max_iter=8).state
    for one in state:
        sd = one.noted["group"]
        np.testing.assert_allclose(one.prior.precision[2:], sd**-2)
        assert one.gamma[2:].all()
        assert one.loglik == pytest.approx(-2.0 * np.maximum(1.0 - Y * one.f, 0.0).sum())
        np.testing.assert_allclose(one.f, np.column_stack((X, Z)) @ one.beta, atol=1e-12)
