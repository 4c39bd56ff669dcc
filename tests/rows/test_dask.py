"""Rows on Dask workers give the bits of the same rows in memory, whatever their chunks, and who is lost."""

import gc
import os
import signal
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from engine_problems import build, simulated

from softmargin.core.loop import run
from softmargin.core.visits import One, heavier, predictors
from softmargin.designs import design_for
from softmargin.designs.standardize import standardize
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.stochastic import SVI
from softmargin.priors import Ridge
from softmargin.rows.dask import _crew
from softmargin.rows.dask.rows import DaskRows, Piece, crew_of, rows_at

dask = pytest.importorskip("dask")

N = 19_500  # ten cells, the last one short
CHUNKS = (1, 4095, 7000, 12, 8000, 392)  # of no common measure with cells
ENGINES = {"vb": GaussianVI(), "meanfield": MeanField(), "map": EM(), "svi": SVI(first=1000)}


@pytest.fixture(scope="module")
def here():
    X, y = simulated(N, 6)
    return build(X, y, c=np.random.default_rng(1).uniform(0.2, 2.0, N), prior=Ridge(scale=0.7), standardized=True)


def there(client, here, chunks=CHUNKS):
    """The same model with its rows on the workers."""
    design = here.blocks.design
    X, columns = design.X, standardize(design.X, np.ones(N))
    ends = np.cumsum((0, *chunks))
    pieces = [Piece(dask.delayed(X[lo:hi]), hi - lo) for lo, hi in pairwise(ends)]
    crew = crew_of(client, pieces, X.shape[1])
    return replace(here, blocks=DaskRows(crew, design, partial(design_for, columns=columns), here.y, here.c))


@pytest.fixture(scope="module")
def away(dask_client, here):
    return there(dask_client, here)


def same(found, wanted):
    assert found.trace == wanted.trace
    np.testing.assert_array_equal(found.state.q.mean, wanted.state.q.mean)


@pytest.mark.parametrize("name", ENGINES)
def test_rows_on_workers_give_the_bits_of_rows_in_memory(here, away, name):
    wanted, found = (run(ENGINES[name], model, max_iter=5) for model in (here, away))
    same(found, wanted)
    if name != "svi":
        for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
            np.testing.assert_array_equal(own, other)


def test_vectors_that_nobody_has_are_forgotten(away):
    rows = away.blocks
    handle, _ = rows.keep(predictors, np.ones(rows.shape[1]))
    f = handle.fetch().f
    gc.collect()  # what other tests have left goes first
    rows.sum(heavier, 1.0)
    before = rows.crew.asked(lambda run: run.actor.held())
    del handle
    gc.collect()
    rows.sum(heavier, 1.0)
    after = rows.crew.asked(lambda run: run.actor.held())
    assert all(len(a) == len(b) - 1 for a, b in zip(after, before, strict=True))
    np.testing.assert_array_equal(rows.place(One(f)).fetch().f, f)


def lost_at(rows, passes, lose):
    """Rows of which one worker is lost when they have been visited so many times."""
    crew = rows.crew
    ask, before, lost = crew.asked, crew.passes, []

    def asked(call, runs=None):
        if crew.passes - before == passes and not lost:
            lost.append(crew.runs[0].address)
            lose(crew, crew.runs[0])
        return ask(call, runs)

    crew.asked = asked
    return crew


def abandon(crew, run):
    with crew.client.as_current():
        crew._rebuild(run)


def kill(crew, run):
    [process] = crew.client.run(os.getpid, workers=[run.address]).values()
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("longest", [256, 3], ids=["by visits", "from copies"])
def test_a_part_that_is_rebuilt_has_the_same_bits(dask_client, here, monkeypatch, longest):
    monkeypatch.setattr(_crew, "_LONGEST", longest)
    away = there(dask_client, here)
    crew = lost_at(away.blocks, 20, abandon)
    wanted, found = (run(GaussianVI(), model, max_iter=3) for model in (here, away))
    same(found, wanted)
    assert crew.rebuilt == 1
    for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
        np.testing.assert_array_equal(own, other)
    assert sum(entry.letter is not None for entry in crew.log.values()) <= longest


@pytest.mark.soak
@pytest.mark.parametrize("name", ["vb", "meanfield", "map"])
@pytest.mark.parametrize("passes", [1, 17])
def test_a_worker_killed_in_mid_fit_changes_no_bit(dask_client, here, name, passes):
    away = there(dask_client, here)
    crew = lost_at(away.blocks, passes, kill)
    wanted, found = (run(ENGINES[name], model, max_iter=5) for model in (here, away))
    same(found, wanted)
    assert crew.rebuilt == 1
    for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
        np.testing.assert_array_equal(own, other)


def deadly(part, folder, times):
    """Rows whose making kills the worker so many times."""
    deaths = len(list(Path(folder).iterdir()))
    if deaths < times:
        Path(folder, str(deaths)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def made_of(pieces):
    """The rows that a cluster makes whose scheduler suspects a task with the first worker that it loses."""
    distributed = pytest.importorskip("distributed")
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(**local) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        crew = crew_of(client, pieces, 2)
        return rows_at(crew, np.arange(sum(piece.size for piece in pieces)))


def test_a_task_whose_workers_were_killed_is_tried_again(tmp_path):
    X = np.random.default_rng(0).normal(size=(5000, 2))
    suspected = dask.delayed(deadly)(X[1000:4000], str(tmp_path), 2)  # of both parts
    pieces = [Piece(dask.delayed(X[:1000]), 1000), Piece(suspected, 3000), Piece(dask.delayed(X[4000:]), 1000)]
    np.testing.assert_array_equal(made_of(pieces), X)


@pytest.mark.soak
def test_rows_that_kill_every_worker_end_in_a_sentence(tmp_path):
    X = np.zeros((5000, 2))
    with pytest.raises(RuntimeError, match=r"rows 0\.\.4096 lost 4 Dask workers in one pass, each .*: see"):
        made_of([Piece(dask.delayed(X[:1]), 1), Piece(dask.delayed(deadly)(X[1:], str(tmp_path), 10**6), 4999)])


def test_an_error_of_a_visit_is_raised_and_what_it_kept_is_forgotten(away):
    def failing(block, small):
        if block.numbers[0] > 0:
            raise FloatingPointError("too large")
        return One(np.zeros(block.size)), ()

    gc.collect()
    away.blocks.sum(heavier, 1.0)
    held = away.blocks.crew.asked(lambda run: run.actor.held())
    with pytest.raises(FloatingPointError, match="too large"):
        away.blocks.keep(failing)
    gc.collect()  # the error held the handle
    away.blocks.sum(heavier, 1.0)
    assert away.blocks.crew.asked(lambda run: run.actor.held()) == held


def test_a_worker_that_does_not_answer_is_named_after_the_stated_time(dask_client, here):
    away = there(dask_client, here)
    away.blocks.crew.timeout = 0.2

    def slow(block, small):
        time.sleep(2.0)
        return ()

    with pytest.raises(TimeoutError, match=r"worker tcp://.* has not answered for 0 s: .*softmargin.timeout"):
        away.blocks.sum(slow)


def test_rows_beyond_the_memory_of_all_workers_are_refused_before_they_are_made(dask_client):
    with pytest.raises(MemoryError, match=r"rows of X take 8e\+03 GB, and the Dask workers may use .*: start more"):
        crew_of(dask_client, [Piece(None, 10**9)], 1000)
