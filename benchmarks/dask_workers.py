"""Two single-threaded Dask workers against one: an iteration of `vb`, a sweep of `gibbs`, and what a pass costs.

Standard normal columns made on the workers, a logistic response. The critical path is the CPU time of the busier worker
plus that of the process which calls them (the scheduler is in it too): what a machine with a core for each would take.
Elapsed times depend on whoever else uses the machine. The overhead of a pass is the elapsed time of a pass over so few
rows that nothing but messages takes time: the least, and the median, of many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

from benchmarks import common
from softmargin.core.model import Model
from softmargin.core.visits import Messages, gram, moments
from softmargin.designs.dask import DaskMatrix
from softmargin.designs.standardize import as_given, standardize_rows
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

ROWS, COLUMNS, CHUNK = 2_000_000, 100, 50_000
STEPS = 2


class Spent(NamedTuple):
    """Seconds of one step: CPU here, CPU of the busiest worker, CPU of all workers, and elapsed."""

    here: float
    busiest: float
    workers: float
    elapsed: float

    @property
    def path(self) -> float:
        """CPU seconds one after another."""
        return self.here + self.busiest


def problem(n: int, p: int) -> Model:
    """A model of rows on the workers, standardized."""
    X = da.random.default_rng(0).normal(size=(n, p), chunks=(CHUNK, p))
    y = np.where(
        (X[:, :2].sum(axis=1) + da.random.default_rng(1).logistic(size=n, chunks=CHUNK)).compute() > 0, 1.0, -1.0
    )
    matrix, ones = DaskMatrix(X.to_delayed()[:, 0].tolist(), p, None, list(X.chunks[0])), np.ones(n)
    columns = standardize_rows(matrix.rows(matrix.design(as_given(p)), None, ones, 1), float(n))
    rows = matrix.rows(matrix.design(columns), y, 0.25 * ones, 1)
    free = np.arange(p + 1) == 0
    return Model(rows, Hinge(), Ridge().bind(free), free, Streams.from_random_state(0), Full())


def measured(client: Any, step: Callable[[], Any]) -> Spent:
    """What one step takes."""
    before, here, begun = client.run(time.process_time), time.process_time(), time.perf_counter()
    step()
    elapsed, spent = time.perf_counter() - begun, time.process_time() - here
    after = client.run(time.process_time)
    workers = [after[address] - before[address] for address in before]
    return Spent(spent, max(workers), sum(workers), elapsed)


def steps(client: Any, model: Model, engine: Any) -> Spent:
    """The cheapest of a few steps of an engine; the first compiles."""
    state, found = engine.init(model), []
    for iteration in range(1 + STEPS):
        held: list[Any] = []
        found.append(measured(client, lambda k=iteration, s=state, out=held: out.extend(engine.step(model, s, k))))
        state = held[0]
    return min(found[1:], key=lambda spent: spent.path)


def overhead(model: Model, times: int) -> list[tuple[str, float, float]]:
    """Elapsed milliseconds of passes over two cells."""
    rows, q = model.blocks, model.size
    w = rows.place(Messages(np.ones(model.n), np.ones(model.n)))
    root = np.linalg.cholesky(np.eye(q) + 0.1)
    kinds = {
        "weighted Gram matrix": lambda: rows.sum(gram, None, w),
        "means and variances, kept": lambda: rows.keep(moments, (np.ones(q), root)),
    }
    found = []
    for name, one in kinds.items():
        one()
        seconds = []
        for _ in range(times):
            begun = time.perf_counter()
            one()
            seconds.append(time.perf_counter() - begun)
        found.append((name, 1e3 * min(seconds), 1e3 * float(np.median(seconds))))
    return found


def main() -> None:
    options = common.parser(__doc__).parse_args()
    n = ROWS // (50 if options.quick else 1)
    found: dict[int, dict[str, Spent]] = {}
    for workers in (1, 2):
        local = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
        with LocalCluster(**local) as cluster, Client(cluster) as client, one_blas_thread():
            model = problem(n, COLUMNS)
            found[workers] = {
                "vb, one iteration": steps(client, model, GaussianVI()),
                "gibbs, one sweep": steps(client, model, gibbs(chains=1)),
            }
            print(workers, found[workers], flush=True)
            passes = overhead(problem(4096, COLUMNS), 100)
    lines = []
    for name, one in found[1].items():
        two = found[2][name]
        lines.append((name, one.path, two.path, two.here, one.path / two.path, one.elapsed, two.elapsed))
    heads = (
        "step",
        "1 worker, CPU s",
        "2 workers, CPU s",
        "of that here",
        "times faster",
        "1: elapsed s",
        "2: elapsed s",
    )
    text = f"{n} x {COLUMNS}, critical path.\n\n" + common.markdown(heads, lines)
    text += "\n\n" + common.markdown(("a pass over 2 x 2048 rows, 2 workers", "least, ms", "median, ms"), passes)
    if options.output is None and not options.quick:
        options.output = common.PAGE.parents[1] / "how-to" / "big-data.md"
    common.publish("dask-workers", text, options)


if __name__ == "__main__":
    main()
