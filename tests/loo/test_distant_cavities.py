"""Leave-one-out moments of rows that are elsewhere: the bits that they have in memory, however rows are held."""

from dataclasses import replace

import numpy as np
import pytest
from distant_rows import Distant
from engine_problems import build, simulated

from softmargin.engines.sampling.gibbs import gibbs
from softmargin.loo.cavity import CavityAverage, grouped_cavity
from softmargin.priors import Ridge

N = 19_500  # ten cells, the last one short


@pytest.fixture(scope="module")
def here():
    X, y = simulated(N, 6)
    return build(X, y, c=np.random.default_rng(1).uniform(0.2, 2.0, N), prior=Ridge())


def test_groups_of_draws_give_the_same_bits_where_rows_are_held_apart(here):
    rng, part = np.random.default_rng(2), np.random.default_rng(3).uniform(0.3, 1.0, N)
    draws, scale = 0.3 * rng.standard_normal((200, 7)), rng.uniform(0.5, 2.0, 200)
    wanted = grouped_cavity(here, draws, scale, part)
    for n_blocks in (1, 4, 10):
        found = grouped_cavity(replace(here, blocks=Distant.of(here.blocks, n_blocks)), draws, scale, part)
        for own, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(own, other)


def test_averages_over_sweeps_give_the_same_bits_where_rows_are_held_apart(here):
    def averaged(model):
        engine, average = gibbs(chains=1), CavityAverage(model, np.ones(N))
        state = engine.init(model)
        for iteration in range(3):
            state, _ = engine.step(model, state, iteration)
            average.add(state[0], iteration)
        return average.moments()

    wanted = averaged(here)
    assert wanted[2] > 0.0
    for n_blocks in (1, 4, 10):
        for own, other in zip(averaged(replace(here, blocks=Distant.of(here.blocks, n_blocks))), wanted, strict=True):
            np.testing.assert_array_equal(own, other)


def test_a_group_of_draws_is_spread_as_it_says(here):
    """Mean and variance over draws, against all predictors at once."""
    draws = np.random.default_rng(4).standard_normal((30, 7))
    f = np.stack([here.blocks.matvec(beta) for beta in draws])
    for block in here.blocks._blocks:
        mean, variance = block.spread(draws)
        np.testing.assert_allclose(mean, f.mean(axis=0)[block.lo : block.hi], rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(variance, f.var(axis=0, ddof=1)[block.lo : block.hi], rtol=1e-12)
        assert not block.spread(draws[:1])[1].any()
