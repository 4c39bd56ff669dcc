"""Chains on rows that are elsewhere: they have the bits that they have in memory, however rows are held."""

from dataclasses import replace

import numpy as np
import pytest
from distant_rows import Distant, N, problem, ten_cells

from softmargin.core.loop import run
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import hmc
from softmargin.engines.sampling.hmc.plan import AHEAD
from softmargin.losses import EpsilonInsensitive, Logit
from softmargin.priors import HalfT, Horseshoe, Lasso, Ridge
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.rows.in_memory import Blocks
from softmargin.unknowns.noise import Noise


@pytest.fixture(scope="module")
def rows():
    return ten_cells()


def parts(rows):
    """A prior in two parts, each with a scale of its own."""
    terms = Terms(Ridge(), (TermPrior(("group",), 2),))
    here = problem(rows)
    return here.with_prior(terms.bind(here.free, N))


PROBLEMS = {
    "ridge": lambda rows: problem(rows),
    "lasso": lambda rows: problem(rows, prior=Lasso()),
    "parts": parts,
    "horseshoe": lambda rows: problem(rows, prior=Horseshoe()),
    "logit": lambda rows: problem((*rows[:2], np.ceil(rows[2])), loss=Logit()),
    "epsilon": lambda rows: problem(rows, loss=EpsilonInsensitive(0.1)),
}


def same(found, wanted):
    assert found.trace == wanted.trace
    for own, other in zip(found.state, wanted.state, strict=True):
        assert own.loglik == other.loglik
        for name in ("beta", "mean", "f"):
            np.testing.assert_array_equal(getattr(own, name), getattr(other, name))


def compared(make, here, sweeps):
    """The chains of a model in memory, and on rows held apart."""
    wanted = run(make(here), here, max_iter=sweeps)
    for n_blocks in (1, 4, 10):
        there = replace(here, blocks=Distant.of(here.blocks, n_blocks))
        found = run(make(there), there, max_iter=sweeps)
        same(found, wanted)
        del found
        assert not any(holder.kept for holder in there.blocks.holders)  # nothing stays that no chain asks for


@pytest.fixture(params=[False, True], ids=["few rows", "many rows"])
def many(request, monkeypatch):
    if request.param:
        monkeypatch.setattr("softmargin.rows.in_memory.HOME", 0)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.usefixtures("many")
def test_gibbs_on_rows_held_apart_gives_the_same_bits(rows, name):
    compared(lambda model: gibbs(chains=2), PROBLEMS[name](rows), 5)


@pytest.mark.parametrize("name", ["ridge", "lasso", "horseshoe", "logit"])
@pytest.mark.usefixtures("many")
def test_hmc_on_rows_held_apart_gives_the_same_bits(rows, name):
    compared(lambda model: hmc(model, 2), PROBLEMS[name](rows), 2)


def test_a_leapfrog_step_is_one_pass_for_several_chains(rows, monkeypatch):
    """Four chains: a pass per step, the last one with the log likelihoods; one more where their length moves."""
    monkeypatch.setattr("softmargin.rows.in_memory.HOME", 0)
    here = problem(rows, prior=Ridge(scale=0.7))
    there = Distant.of(here.blocks, 2)
    model = replace(here, blocks=there)
    engine = hmc(model, 4)
    state = engine.init(model)
    before, steps = there.passes, state[0].own["hmc"].plan.steps
    engine.step(model, state, 0)
    assert there.passes - before == AHEAD * steps  # small problems make the transitions of a stretch at once


@pytest.mark.parametrize("options", [{"n_blocks": 3}, {"n_blocks": 10, "workers": 2}], ids=["blocks", "threads"])
def test_gibbs_in_blocks_and_on_threads_gives_the_same_bits(rows, options):
    here, engine = problem(rows, loss=Logit()), gibbs(chains=2)
    blocks = Blocks(here.blocks.design, here.y, here.c.round() + 1.0, **options)
    here = here.with_weight(blocks.weight)
    try:
        found = run(engine, replace(here, blocks=blocks), max_iter=2)
    finally:
        blocks.close()
    same(found, run(engine, here, max_iter=2))


def test_a_sweep_reads_the_columns_twice_and_its_lines_in_few_passes(rows, monkeypatch):
    """Gram matrix and predictors; per line three points at once, then those that are out of or too far in the slice."""
    monkeypatch.setattr("softmargin.rows.in_memory.HOME", 0)
    here, engine = problem(rows), gibbs(chains=1)
    there = Distant.of(here.blocks, 2)
    model = replace(here, blocks=there)
    state, counts = engine.init(model), []
    for iteration in range(20):
        before = there.passes
        state, _ = engine.step(model, state, iteration)
        counts.append(there.passes - before)
    assert np.mean(counts) <= 14


def test_a_noise_level_drawn_on_rows_held_apart_gives_the_same_bits(rows):
    X, _, c = rows
    y = X @ np.linspace(-1.0, 1.0, 6) + 0.3 * np.random.default_rng(3).standard_normal(N)
    here = problem((X, y, c), loss=EpsilonInsensitive(0.1)).with_unknowns((Noise(HalfT(1.0, df=5.0)),))
    compared(lambda model: gibbs(chains=1), here, 3)
