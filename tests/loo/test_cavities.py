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
