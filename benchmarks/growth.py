"""How the time of one iteration grows with rows and columns: exponents fitted on a log-log scale.

An iteration of vb and a sweep of gibbs make one weighted Gram matrix: time grows as n p^2 once the matrix outweighs the
rest, which it does from some hundred columns on. The moves of gibbs along axes, which grow as n p, are left out. A
leapfrog step of hmc makes two products with its rows: n p as long as there are many more rows than columns. Here all
rows take part, those too that hmc would take for certain. Exponents are fitted to the last three sizes. CPU time of one
thread; the smallest of several tries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from softmargin.core.model import Model
from softmargin.designs.standardize import design_for, standardize
from softmargin.engines.sampling.gibbs import gibbs as gibbs_chains
from softmargin.engines.sampling.hmc.hmc import hmc as hmc_chains
from softmargin.engines.sampling.hmc.rows import Trajectory, rows_for
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses.hinge import Hinge
from softmargin.priors.ridge import Ridge
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

PICTURE = Path(__file__).parents[1] / "docs" / "evidence" / "images" / "growth.png"
ROWS = (1_000, 10_000, 100_000, 300_000, 1_000_000)
COLUMNS = (10, 50, 200, 500, 1_000, 2_000)
HMC_COLUMNS = (5, 10, 20, 40, 80, 160)
FIXED_ROWS, FIXED_COLUMNS = 10_000, 20
HMC_ROWS = 2_000  # many more than columns, and few enough that no size outgrows a cache that smaller ones fit
LAST = 3  # sizes that an exponent is fitted to
NONE = np.empty((0, 0))
FEW, MANY = 2, 22  # steps of the two trajectories whose difference is timed
ENOUGH = 1.0  # CPU seconds after which a size is not tried again


def model_of(n: int, p: int) -> Model:
    """Simulated rows under a ridge prior of fixed scale."""
    X, y = common.simulated(n, p, 0)
    free = np.arange(p + 1) == 0
    blocks = Blocks(design_for(X, standardize(X, np.ones(n))), y, np.full(n, 0.25))
    return Model(blocks, Hinge(), Ridge(scale=0.5).bind(free, n), free, Streams.from_random_state(0), Full())


def per_step(engine: Any, model: Model) -> tuple[Any, float]:
    """A state, and CPU seconds of a step from it: the smallest of several."""
    state, _ = engine.step(model, engine.init(model), 0)
    best, spent = np.inf, 0.0
    for k in range(10):
        _, seconds = common.cpu(lambda k=k: engine.step(model, state, k + 1), 0.02)
        best, spent = min(best, seconds), spent + seconds
        if spent > ENOUGH:
            break
    return state, best


def vb(model: Model) -> float:
    """An iteration."""
    return per_step(GaussianVI(), model)[1]


def gibbs(model: Model) -> float:
    """A sweep."""
    return per_step(gibbs_chains(chains=1, scale_moves=False), model)[1]


def hmc(model: Model) -> float:
    """A leapfrog step of four chains that looks at all rows."""
    state = hmc_chains(model).init(model)[0].own["hmc"]
    rows, noise, seconds = rows_for(model, model.blocks.row_quad(state.plan.root)), state.noise, []
    for steps in FEW, MANY:
        path = Trajectory(noise.momentum[:1], noise.theta[:1], noise.uniform[:1], NONE, NONE, steps, state.plan.kappa)
        tries = [
            common.cpu(lambda path=path: rows.transitions(state.point, state.motion, path), 0.02)[1] for _ in range(10)
        ]
        seconds.append(min(tries))
    return (seconds[1] - seconds[0]) / (MANY - FEW)


def exponent(sizes: Any, seconds: Any) -> float:
    """Slope of log time in log size over the largest sizes."""
    return float(np.polyfit(np.log(sizes[-LAST:]), np.log(seconds[-LAST:]), 1)[0])


def picture(curves: list[tuple[str, str, Any, Any]]) -> None:
    """Time against size on logarithmic axes, rows on the left and columns on the right."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    for axis, along in zip(axes, ("rows", "columns"), strict=True):
        for name, direction, sizes, seconds in curves:
            if direction == along:
                axis.loglog(sizes, seconds, "o-", label=name)
        fixed = f"{FIXED_COLUMNS} columns" if along == "rows" else f"{FIXED_ROWS} rows, {HMC_ROWS} for hmc"
        axis.set(xlabel=f"{along} ({fixed})")
        axis.legend(frameon=False)
    axes[0].set_ylabel("CPU seconds")
    figure.savefig(PICTURE, dpi=150)
    plt.close(figure)


def main() -> None:
    options = common.parser(__doc__).parse_args()
    common.warm_up()
    rows, columns = (ROWS[:3], COLUMNS[:4]) if options.quick else (ROWS, COLUMNS)
    engines: tuple[tuple[str, str, float, Callable[[Model], float]], ...] = (
        ("vb iteration", "rows", 1.0, vb),
        ("gibbs sweep", "rows", 1.0, gibbs),
        ("vb iteration", "columns", 2.0, vb),
        ("gibbs sweep", "columns", 2.0, gibbs),
        ("hmc leapfrog step", "columns", 1.0, hmc),
    )
    table, curves = [], []
    with common.one_thread(), one_blas_thread():
        for name, along, theory, measure in engines:
            sizes = rows if along == "rows" else columns if measure is not hmc else HMC_COLUMNS[: len(columns)]
            seconds = []
            for size in sizes:
                tall = HMC_ROWS if measure is hmc else FIXED_ROWS
                n, p = (size, FIXED_COLUMNS) if along == "rows" else (tall, size)
                seconds.append(measure(model_of(n, p)))
                print(name, n, p, common.number(seconds[-1]), flush=True)
            curves.append((name, along, sizes, seconds))
            listed = ", ".join(common.number(value) for value in seconds)
            table.append((name, along, ", ".join(map(str, sizes)), listed, exponent(sizes, seconds), theory))
    heads = ("what", "along", "sizes", "CPU s", "exponent", "theory")
    if not options.quick:
        picture(curves)
    common.publish("growth", common.markdown(heads, table), options)


if __name__ == "__main__":
    main()
