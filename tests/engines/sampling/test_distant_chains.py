"""Chains on rows that are elsewhere: they have the bits that they have in memory, however rows are held."""

from dataclasses import replace

import numpy as np
import pytest
from distant_rows import Distant
from engine_problems import build, simulated

from softmargin.core.loop import run
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.losses import EpsilonInsensitive, Hinge, Logit
from softmargin.priors import Lasso, Ridge
from softmargin.priors.terms import TermPrior, Terms
from softmargin.rows.in_memory import Blocks

N = 19_500  # ten cells, the last one short


@pytest.fixture(scope="module")
def rows():
    X, y = simulated(N, 6)
    return X, y, np.random.default_rng(1).uniform(0.2, 2.0, N)


def problem(rows, *, prior=None, loss=None):
    X, y, c = rows
    return replace(build(X, y, c=c, prior=prior or Ridge()), loss=loss or Hinge())


def parts(rows):
    """A prior in two parts, each with a scale of its own."""
    terms = Terms(Ridge(), (TermPrior(("group",), 2),))
    here = problem(rows)
    return here.with_prior(terms.bind(here.free, N))


PROBLEMS = {
    "ridge": lambda rows: problem(rows),
    "lasso": lambda rows: problem(rows, prior=Lasso()),
    "parts": parts,
    "epsilon": lambda rows: problem(rows, loss=EpsilonInsensitive(0.1)),
}


def same(found, wanted):
    assert found.trace == wanted.trace
    for own, other in zip(found.state, wanted.state, strict=True):
        assert own.loglik == other.loglik
        for name in ("beta", "mean", "f"):
            np.testing.assert_array_equal(getattr(own, name), getattr(other, name))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("many", [False, True], ids=["few rows", "many rows"])
def test_gibbs_on_rows_held_apart_gives_the_same_bits(rows, name, many, monkeypatch):
    if many:
        monkeypatch.setattr("softmargin.rows.in_memory.HOME", 0)
    here, engine = PROBLEMS[name](rows), gibbs(chains=2)
    wanted = run(engine, here, max_iter=5)
    for n_blocks in (1, 4, 10):
        there = Distant.of(here.blocks, n_blocks)
        found = run(engine, replace(here, blocks=there), max_iter=5)
        same(found, wanted)
        del found
        assert not any(holder.kept for holder in there.holders)  # nothing stays that no chain asks for


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
