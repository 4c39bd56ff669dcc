"""Rows that are elsewhere: engines that send visits give the bits that they give in memory, however rows are held."""

from dataclasses import replace

import numpy as np
import pytest
from distant_rows import Distant, problem, ten_cells
from engine_problems import build, penalty_of

from softmargin.core.loop import run
from softmargin.engines.mode.smoothed_start import approach
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.stochastic import SVI
from softmargin.losses import Logit
from softmargin.priors import Lasso, Ridge
from softmargin.rows.in_memory import Blocks


@pytest.fixture(scope="module")
def rows():
    return ten_cells()


ENGINES = {
    "vb": (GaussianVI(), {}),
    "vb, logit, lasso": (GaussianVI(), {"prior": Lasso(), "loss": Logit()}),
    "meanfield": (MeanField(), {}),
    "map": (EM(), {"prior": Ridge(scale=0.7)}),
}


@pytest.mark.parametrize("name", ENGINES)
def test_rows_held_apart_give_the_same_bits(rows, name):
    engine, parts = ENGINES[name]
    here = problem(rows, **parts)
    wanted = run(engine, here, max_iter=6)
    for n_blocks in (1, 4, 10):
        there = Distant.of(here.blocks, n_blocks)
        found = run(engine, replace(here, blocks=there), max_iter=6)
        assert found.trace == wanted.trace
        np.testing.assert_array_equal(found.state.q.mean, wanted.state.q.mean)
        if name != "map":
            np.testing.assert_array_equal(found.state.q.root, wanted.state.q.root)
        for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
            np.testing.assert_array_equal(own, other)
        del found
        assert not any(holder.kept for holder in there.holders)  # nothing stays that no state asks for


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("options", [{"n_blocks": 3}, {"n_blocks": 10, "workers": 2}], ids=["blocks", "threads"])
def test_blocks_and_threads_in_memory_give_the_same_bits(rows, name, options):
    engine, parts = ENGINES[name]
    here = problem(rows, **parts)
    blocks = Blocks(here.blocks.design, here.y, here.c, **options)
    try:
        found = run(engine, replace(here, blocks=blocks), max_iter=3)
    finally:
        blocks.close()
    wanted = run(engine, here, max_iter=3)
    assert found.trace == wanted.trace
    for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField(), EM()], ids=lambda engine: type(engine).__name__)
def test_heavy_rows_held_apart_give_the_same_bits(rows, engine):
    X, y, c = rows
    here = build(X[:5000], y[:5000], c=1e4 * c[:5000])
    wanted = run(engine, here, max_iter=2)
    found = run(engine, replace(here, blocks=Distant.of(here.blocks, 2)), max_iter=2)
    assert found.trace == wanted.trace
    np.testing.assert_array_equal(found.state.q.mean, wanted.state.q.mean)


def test_smoothed_passes_over_rows_held_apart_give_the_same_bits(rows):
    here = problem(rows, prior=Ridge(scale=0.7))
    penalty = penalty_of(here)
    wanted, _ = approach(here, penalty)
    for n_blocks in (1, 4, 10):
        found, _ = approach(replace(here, blocks=Distant.of(here.blocks, n_blocks)), penalty)
        np.testing.assert_array_equal(found.beta, wanted.beta)
        np.testing.assert_array_equal(found.f, wanted.f)
        assert (found.settled, found.moved) == (wanted.settled, wanted.moved)


@pytest.mark.parametrize("mean_field", [False, True])
def test_batches_picked_from_rows_held_apart_give_the_same_bits(rows, mean_field):
    engine, here = SVI(first=1000, mean_field=mean_field), problem(rows)
    wanted = run(engine, here, max_iter=5)
    for n_blocks in (1, 4, 10):
        found = run(engine, replace(here, blocks=Distant.of(here.blocks, n_blocks)), max_iter=5)
        assert found.trace == wanted.trace
        np.testing.assert_array_equal(found.state.q.mean, wanted.state.q.mean)


def test_a_step_makes_no_more_passes_than_its_searches_ask_for(rows):
    """Curvatures, their image, the Gram matrix, moments with the gradient, the direction; the rest are trials."""
    here = problem(rows)
    there = Distant.of(here.blocks, 2)
    model, engine = replace(here, blocks=there), GaussianVI()
    state = engine.init(model)
    for iteration in range(4):
        before = there.passes
        state, _ = engine.step(model, state, iteration)
        assert there.passes - before <= 12
