"""Rows on Dask workers give the bits of the same rows in memory, whatever their chunks, and who is lost."""

import gc
import os
import signal
from dataclasses import replace
from functools import partial
from itertools import pairwise

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
from softmargin.rows.dask.rows import DaskRows, Piece, crew_of

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

N = 19_500  # ten cells, the last one short
CHUNKS = (1, 4095, 7000, 12, 8000, 392)  # of no common measure with cells
ENGINES = {"vb": GaussianVI(), "meanfield": MeanField(), "map": EM(), "svi": SVI(first=1000)}


@pytest.fixture(scope="module")
def client():
    local = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=2, **local) as cluster, distributed.Client(cluster) as client:
        yield client


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
    crew = crew_of(client, pieces)
    return replace(here, blocks=DaskRows(crew, design, partial(design_for, columns=columns), here.y, here.c))


@pytest.fixture(scope="module")
def away(client, here):
    return there(client, here)


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
    rows.sum(heavier, 1.0)
    before = rows.crew.asked(lambda run: run.actor.held())
    del handle
    gc.collect()
    rows.sum(heavier, 1.0)
    after = rows.crew.asked(lambda run: run.actor.held())
    assert all(len(a) == len(b) - 1 for a, b in zip(after, before, strict=True))
    np.testing.assert_array_equal(rows.place(One(f)).fetch().f, f)


def killed_at(rows, passes):
    """Rows that lose a worker, by SIGKILL, when they have been visited so many times."""
    crew = rows.crew
    ask, before = crew.asked, crew.passes

    def asked(call, runs=None):
        if crew.passes - before == passes and not crew.rebuilt:
            run = crew.runs[0]
            [process] = crew.client.run(os.getpid, workers=[run.address]).values()
            os.kill(process, signal.SIGKILL)
        return ask(call, runs)

    crew.asked = asked


@pytest.mark.soak
@pytest.mark.parametrize("name", ["vb", "meanfield", "map"])
@pytest.mark.parametrize("passes", [1, 17, 30])
def test_a_worker_killed_in_mid_fit_changes_no_bit(client, here, name, passes):
    away = there(client, here)
    killed_at(away.blocks, passes)
    wanted, found = (run(ENGINES[name], model, max_iter=5) for model in (here, away))
    same(found, wanted)
    assert away.blocks.crew.rebuilt == 1
    for own, other in zip(found.state.rows.fetch(), wanted.state.rows.fetch(), strict=True):
        np.testing.assert_array_equal(own, other)
