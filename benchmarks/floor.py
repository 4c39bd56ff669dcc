"""How close a Gibbs sweep is to its floor: the weighted Gram matrix that no sweep can do without.

10,000 sweeps of one chain on spam against 10,000 times "scale the rows, multiply" (dsyrk) in the same process, on one
thread; the same for the iterations of "vb" with a learned scale; and the memory that a fit takes beyond its data.
"""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk
from sklearn.preprocessing import StandardScaler

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.core.loop import run
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns, prepare
from softmargin.priors import Ridge
from softmargin.rows.streams import Streams


def grams(X: Any, times: int) -> float:
    """CPU seconds of ``times`` bare weighted Gram matrices of the standardized columns and an intercept."""
    Z = np.column_stack((np.ones(len(X)), StandardScaler().fit_transform(X)))
    root = np.sqrt(np.random.default_rng(0).uniform(0.1, 2.0, len(X)))[:, None]
    buffer = np.empty_like(Z)

    def bare() -> None:
        for _ in range(times):
            np.multiply(Z, root, out=buffer)
            dsyrk(1.0, buffer.T)  # X' diag(w) X without a copy: the transpose is in Fortran order

    return common.cpu(bare)[1]


def sampler(sweeps: int) -> BayesianSVC:
    """One chain, every sweep kept, without moves along axes and of the scale: they are there to mix, at a price."""
    plain = {"scale_moves": False}
    return BayesianSVC(
        inference="gibbs", learning_rate=1.0, draws=sweeps, warmup=0, chains=1, random_state=0, engine_options=plain
    )


def climb(X: Any, y: Any, rounds: int = 40) -> tuple[int, float, float]:
    """Iterations of "vb" with a learned scale at learning rate 1; an iteration, and the start, in Gram matrices.

    Medians over rounds of a climb between Gram matrices, because the machine may drift.
    """
    one = np.ones(len(y))
    columns, streams = kept_columns(X, one, intercept=True, standardized=True), Streams.from_random_state(0)
    model = prepare(X, y, one, one, columns, prior=Ridge(), loss=Hinge(), streams=streams).model
    engine, ratios = GaussianVI(), []
    for _ in range(rounds):
        gram = grams(X, 20) / 40
        start, begun = common.cpu(lambda: engine.init(model))
        outcome, spent = common.cpu(lambda start=start: run(engine, model, max_iter=100, tol=1e-6, state=start))
        gram += grams(X, 20) / 40
        ratios.append((spent / outcome.n_iter / gram, begun / gram))
    iteration, begin = np.median(ratios[1:], axis=0)  # the first round compiles
    return outcome.n_iter, float(iteration), float(begin)


def peak(X: Any, y: Any, sweeps: int) -> float:
    """Largest memory in megabytes that a fit allocates beyond its data and the draws that it returns."""
    model = sampler(sweeps)
    tracemalloc.start()
    model.fit(X, y)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (most - model.posterior_.draws.nbytes) / 1e6


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--sweeps", type=int, default=10_000)
    options = options.parse_args()
    sweeps = 500 if options.quick else options.sweeps
    common.warm_up()
    X, y = common.table("spam")
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grams(X, 100)
        before = grams(X, sweeps // 2)
        _, seconds = common.cpu(lambda: sampler(sweeps).fit(X, y))
        floor = before + grams(X, sweeps - sweeps // 2)  # half before, half after: the machine may drift
        iterations, iteration, start = climb(X, y)
        memory = {k: peak(X, y, k) for k in (sweeps // 10, sweeps // 5)}
    rows = [
        ("one weighted Gram, ms", f"{1e3 * floor / sweeps:.3f}"),
        ("one sweep, ms", f"{1e3 * seconds / sweeps:.3f}"),
        ("sweep / Gram", f"{seconds / floor:.2f}"),
        ("vb, learned scale: iterations", f"{iterations}"),
        ("vb iteration / Gram", f"{iteration:.2f}"),
        ("vb start / Gram", f"{start:.2f}"),
        ("vb in all / Gram", f"{iterations * iteration + start:.0f}"),
        ("the data, MB", f"{X.nbytes / 1e6:.2f}"),
        *((f"peak beyond data and {k} draws, MB", f"{value:.2f}") for k, value in memory.items()),
    ]
    text = common.markdown((f"spam {X.shape[0]} x {X.shape[1]}, {sweeps} sweeps", ""), rows)
    common.publish("floor", text, options)


if __name__ == "__main__":
    main()
