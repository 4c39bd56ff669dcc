"""A plan for a cluster, simulated: time of a step against the number of workers, with stragglers and failures.

A step of every engine is a few passes over the rows: the small state goes out, each worker turns its rows into sums,
the sums are added in a tree, the head solves. What a worker takes is measured here on this machine (one thread): the
weighted Gram matrix, products with a vector, row formulas, reading. What a network takes is assumed and said. Events
are simulated, not averaged: every pass waits for its slowest worker, a worker that fails is rebuilt by the others from
files and the pass is made again for its rows.
"""

from __future__ import annotations

import heapq
import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import common

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scaling.md"
WORKERS = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Constants:
    """What one worker (a core) and one wire can do; rates per second."""

    gram: float  # floating-point operations of a weighted Gram matrix
    product: float  # entries of X that a product with a vector goes through
    formulas: float  # rows whose messages are made
    read: float  # bytes read from a file
    factor: float  # floating-point operations of a Cholesky factor
    overhead: float = 6e-3  # seconds that a pass costs beside its work, as measured with two local workers
    latency: float = 2e-4  # seconds of a message (assumed)
    wire: float = 1.25e9  # bytes that a wire carries: 10 Gbit (assumed)
    spread: float = 0.05  # relative standard deviation of a worker's time (assumed)
    straggles: float = 1e-3  # chance that a worker takes three times as long in a pass (assumed)
    lives: float = 30 * 86400.0  # seconds until a worker fails, on average (assumed)


@dataclass(frozen=True)
class Plan:
    """A problem and how its step is made: by Gram matrices, or by products alone."""

    name: str
    rows: float
    columns: float
    filled: float = 1.0  # share of the entries that are not zero
    grams: float = 1.0  # Gram matrices in a step
    products: float = 2.0  # products with X in a step
    passes: int = 2
    steps: int = 30
    bytes_per_entry: int = 4

    @property
    def entries(self) -> float:
        return self.rows * self.columns * self.filled

    @property
    def message(self) -> float:
        """Bytes of the sums that come back from a worker."""
        return 8.0 * (self.columns**2 / 2 if self.grams else self.columns)


def measured(rows: int = 65_536, columns: int = 256) -> Constants:
    """The constants of this machine, each the best of three."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((rows, columns)), rng.random(rows)
    A = X.T @ X

    def rate(work: float, call: object) -> float:
        best = math.inf
        for _ in range(3):
            begun = time.process_time()
            call()  # type: ignore[operator]
            best = min(best, time.process_time() - begun)
        return work / max(best, 1e-9)

    from softmargin.losses import Hinge

    y, f, v = np.sign(X[:, 0]), X[:, 1].copy(), np.ones(rows)
    loss = Hinge()
    loss.gaussian(y, w, f, v)  # compiles
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        read = rate(X.nbytes, lambda: np.load(path))
    return Constants(
        gram=rate(2.0 * rows * columns**2, lambda: (X * w[:, None]).T @ X),
        product=rate(rows * columns, lambda: X @ A[0]),
        formulas=rate(rows, lambda: loss.gaussian(y, w, f, v)),
        read=read,
        factor=rate(columns**3 / 3.0, lambda: np.linalg.cholesky(A)),
    )


def work(plan: Plan, constants: Constants, workers: int) -> float:
    """Seconds that a worker computes in a step."""
    own = plan.entries / workers
    gram = 2.0 * own * plan.columns * plan.filled * plan.grams / constants.gram
    return gram + own * plan.products / constants.product + plan.rows / workers / constants.formulas


def exchange(plan: Plan, constants: Constants, workers: int) -> float:
    """Seconds in which states go out and sums come back, both along a tree."""
    depth = math.ceil(math.log2(workers)) if workers > 1 else 0
    out, back = 8.0 * plan.columns * plan.passes, plan.message * (plan.grams or plan.passes)
    return depth * (2.0 * plan.passes * constants.latency + (out + back) / constants.wire)


def solve(plan: Plan, constants: Constants) -> float:
    """Seconds of the head: a factor where there is a Gram matrix."""
    return plan.columns**3 / 3.0 / constants.factor if plan.grams else 0.0


def simulated(plan: Plan, constants: Constants, workers: int, seed: int = 0) -> dict[str, float]:
    """Time of a fit by events: workers end one by one, some late, some not at all."""
    rng = np.random.default_rng(seed)
    own, passes = work(plan, constants, workers) / plan.passes, plan.passes * plan.steps
    fixed = constants.overhead + (exchange(plan, constants, workers) + solve(plan, constants)) / plan.passes
    reload = plan.entries / workers * plan.bytes_per_entry / constants.read
    now, failures, waited = 0.0, 0, 0.0
    fails = [(now + rng.exponential(constants.lives), k) for k in range(workers)]
    heapq.heapify(fails)
    for _ in range(passes):
        times = own * np.maximum(0.5, 1.0 + constants.spread * rng.standard_normal(workers))
        times = np.where(rng.random(workers) < constants.straggles, 3.0 * times, times)
        end = float(times.max())
        while fails[0][0] < now + end:  # the rows of a worker that is lost are read and summed again by all others
            _, k = heapq.heappop(fails)
            failures += 1
            end += (reload + own) / max(workers - 1, 1)
            heapq.heappush(fails, (now + end + rng.exponential(constants.lives), k))
        waited += end - float(times.mean())
        now += end + fixed
    return {"step": now / plan.steps, "fit": now, "failures": failures, "waiting": waited / now}


PLANS = (
    Plan("1e9 rows x 1,000 columns, vb", 1e9, 1e3, grams=1.0, products=2.0, steps=20),
    Plan("1e9 rows x 1,000 columns, Gibbs, 2,000 sweeps", 1e9, 1e3, grams=1.0, products=1.0, passes=1, steps=2000),
    Plan("1e9 rows x 1,000 columns, svi, three passes of data", 1e9, 1e3, grams=1.0, products=2.0, steps=3),
    Plan(
        "1e8 rows x 1,000,000 columns, 1e-4 filled, mode by conjugate gradients", 1e8, 1e6, filled=1e-4, grams=0.0,
        products=60.0, passes=30, steps=20, bytes_per_entry=12,
    ),
)  # fmt: skip


def summary(constants: Constants) -> str:
    """Constants and one table per plan."""
    parts = [
        common.markdown(
            ["measured on one thread", "per second"],
            [
                ("weighted Gram matrix", f"{constants.gram:.2e} operations"),
                ("product with a vector", f"{constants.product:.2e} entries"),
                ("messages of the hinge", f"{constants.formulas:.2e} rows"),
                ("reading", f"{constants.read:.2e} bytes"),
                ("Cholesky factor", f"{constants.factor:.2e} operations"),
            ],
        ),
        f"Assumed: {constants.overhead * 1e3:.0f} ms overhead per pass, {constants.latency * 1e6:.0f} us per message, "
        f"{constants.wire / 1.25e8:.0f} Gbit wires, worker times with {100 * constants.spread:.0f} % spread, one pass "
        f"in {1 / constants.straggles:.0f} three times as long, a failure per worker in "
        f"{constants.lives / 86400:.0f} days.",
    ]
    for plan in PLANS:
        rows = []
        for workers in WORKERS:
            found = simulated(plan, constants, workers)
            bare = replace(constants, overhead=0.0, spread=0.0, straggles=0.0, lives=1e30)
            ideal = work(plan, bare, workers)
            rows.append(
                (
                    workers, f"{plan.entries * plan.bytes_per_entry / workers / 1e9:.3g}", f"{found['step']:.3g}",
                    f"{found['fit'] / 3600:.3g}", f"{100 * ideal / found['step']:.0f} %",
                    f"{100 * found['waiting']:.0f} %", found["failures"],
                )
            )  # fmt: skip
        head = ["workers", "GB each", "s per step", "hours", "of the time computing", "waiting", "failures"]
        parts.append(f"**{plan.name}** ({plan.steps} steps)")
        parts.append(common.markdown(head, rows))
    return "\n\n".join(parts)


def main() -> None:
    options = common.parser(__doc__).parse_args()
    if options.output is None and not options.quick:
        options.output = PAGE
    with common.one_thread():
        common.publish("cluster", summary(measured()), options)


if __name__ == "__main__":
    main()
