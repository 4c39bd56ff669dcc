"""Leave-one-out moments from draws against refits without the row."""

from __future__ import annotations

import numpy as np
from engine_problems import build, simulated

from softmargin.engines.sampling.gibbs import gibbs
from softmargin.loo.cavity import CavityAverage, grouped_cavity
from softmargin.priors import Ridge


def chain_draws(model, sweeps):
    engine = gibbs(chains=1)
    state = engine.init(model)
    states = []
    for iteration in range(sweeps):
        state, _ = engine.step(model, state, iteration)
        states.append(state[0])
    return states[50:]


def test_moments_without_a_row_equal_refits():
    X, y = simulated(40, 3, seed=3)
    model = build(X, y, c=0.5, prior=Ridge(scale=0.7))
    states = chain_draws(model, 3050)
    draws = np.array([chain.beta for chain in states])
    f_out, v_out, largest = grouped_cavity(model, draws, np.full(len(draws), 0.7), np.ones(40))
    average = CavityAverage(model, np.ones(40))
    for k, chain in enumerate(states[::30]):
        average.add(chain, k)
    f_latent, v_latent, _ = average.moments()
    fitted = model.blocks.matvec(draws.mean(axis=0))
    assert 0.0 < largest < 0.7
    error, naive, latent = [], [], []
    for i in range(0, 40, 4):
        rest = np.arange(40) != i
        without = build(X[rest], y[rest], c=0.5, prior=Ridge(scale=0.7))
        beta = np.array([chain.beta for chain in chain_draws(without, 1550)])
        row = model.blocks.design.rows(np.array([i]))[0]
        mean, sd = (beta @ row).mean(), (beta @ row).std()
        error.append((f_out[i] - mean) / sd)
        latent.append((f_latent[i] - mean) / sd)
        naive.append((fitted[i] - mean) / sd)
        assert 0.8 < np.sqrt(v_out[i]) / sd < 1.25
        assert 0.6 < np.sqrt(v_latent[i]) / sd < 1.4

    def size(values):
        return np.sqrt(np.mean(np.square(values)))

    assert size(error) < 0.15
    assert size(error) < 0.6 * size(naive)
    assert size(latent) < size(naive)


def test_the_share_of_a_row_is_that_of_the_group_of_draws_that_has_most_of_it():
    """A row that is all that one group has gives moments without bounds, however little of it the other groups have."""
    X, y = simulated(40, 3, seed=3)
    model, rng = build(X, y, c=0.5, prior=Ridge(scale=0.7)), np.random.default_rng(0)
    narrow, wide = (np.array([0.3, 0.5, 0.1, -0.2]) + sd * rng.standard_normal((60, 4)) for sd in (0.05, 2.0))
    part, both = np.ones(40), np.repeat([0.1, 1.0], 60)
    shares = [grouped_cavity(model, draws, np.full(60, 1.0), part)[2] for draws in (narrow, wide)]
    assert shares[0] < 0.1 and shares[1] > 0.5
    assert grouped_cavity(model, np.concatenate((narrow, wide)), both, part)[2] == shares[1]
