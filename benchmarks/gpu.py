"""Rows on a GPU: milliseconds of a step of each engine, in weighted Gram matrices of the array library, and on threads.

A bare Gram is ``(X * w[:, None]).T @ X`` by CuPy. A step of a chain is one sweep of data augmentation, that of "vb" one
iteration with its searches, that of "hmc" the predictors of some chains, the smoothed slopes of the loss and their
products with the columns.
Steps on the processor are of the same rows, on all of its threads, where they fit its memory.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.model import Model
from softmargin.core.visits import Latents
from softmargin.designs.dense import Dense
from softmargin.designs.device import DeviceDense
from softmargin.designs.standardize import as_given
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc._visits import slopes, spread_of
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.rows.device.libraries import library_of
from softmargin.rows.device.numbers import numbers_at
from softmargin.rows.device.on_device import OnDevice
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Purpose, Streams
from softmargin.solvers import Cholesky

SIZES = ("1e6,1000,float64", "2e6,1000,float64", "1e6,1000,float32", "2e7,100,float32", "5e7,100,float32")
_HOST = 9e9  # bytes of rows, as double numbers, up to which the processor is measured too
_RUN = 1 << 20  # rows that are simulated at once


def simulated(cupy: Any, n: int, p: int, dtype: Any) -> tuple[Any, Any]:
    """Normal columns and noisy labels, on the device."""
    rng, X, y = cupy.random.default_rng(1), cupy.empty((n, p), dtype=dtype), cupy.empty(n)
    truth = cupy.asarray(np.random.default_rng(0).standard_normal(p) / math.sqrt(p)).astype(dtype)
    for lo in range(0, n, _RUN):
        rows = min(_RUN, n - lo)
        X[lo : lo + rows] = rng.standard_normal((rows, p), dtype=dtype)
        noise = rng.standard_normal(rows, dtype=dtype)
        y[lo : lo + rows] = cupy.where(X[lo : lo + rows] @ truth + noise > 0, 1.0, -1.0)
    return X, y


def model_of(design: Any, rows: Any) -> Model:
    """The hinge under a ridge prior."""
    free = np.zeros(design.shape[1], dtype=bool)
    free[0] = True
    space = Cholesky().coordinates(design).space
    return Model(rows, Hinge(), Ridge().bind(free), free, Streams.from_random_state(0), space)


def timed(step: Callable[[], Any], wait: Callable[[], Any], tries: int) -> float:
    """Median milliseconds after one try that compiles and warms up."""
    found = []
    for _ in range(tries + 1):
        begun = time.perf_counter()
        step()
        wait()
        found.append(1e3 * (time.perf_counter() - begun))
    return float(np.median(found[1:]))


def stepper(engine: Any, model: Model) -> Callable[[], None]:
    """A function that goes on by one step of an engine, or one sweep of a sampler, each time it is called."""
    state, count = engine.init(model), 0

    def step() -> None:
        nonlocal state, count
        state, _ = engine.step(model, state, count)
        count += 1

    return step


def steps(model: Model, wait: Callable[[], Any], tries: int) -> dict[str, float]:
    """Milliseconds of a step of each engine."""
    engines = {
        "vb": GaussianVI(),
        "meanfield": MeanField(accelerate=False),
        "map": EM(smoothing=0.1, accelerate=False),
        "sweep": gibbs(1, scale_moves=False),
        "sweep, moves": gibbs(1),
    }
    out = {name: timed(stepper(engine, model), wait, tries) for name, engine in engines.items()}
    spread, _ = model.blocks.keep(spread_of, np.eye(model.size))
    for chains in (1, 4):
        small = model.loss, np.full((chains, model.size), 0.01), 0.5, False
        out[f"leapfrog, {chains}"] = timed(lambda small=small: model.blocks.sum(slopes, small, spread), wait, tries)
    return out


class Placed(NamedTuple):
    """Rows on the device as a model has them, the same at home, and what the array library takes for its products."""

    design: Any
    y: Any
    w: Any
    host: Any
    bare: float
    two: float


def placed(library: Any, n: int, p: int, dtype: str, tries: int, processor: bool) -> Placed:
    """Simulate rows, and time the products that steps are compared with."""
    cupy = library.xp
    wait = cupy.cuda.Device().synchronize
    X, y = simulated(cupy, n, p, np.dtype(dtype).type)
    w = cupy.random.default_rng(2).random(n)
    narrow, beta = w.astype(X.dtype), cupy.ones(p, dtype=X.dtype)
    bare = timed(lambda: (X * narrow[:, None]).T @ X, wait, tries)
    two = timed(lambda: (X @ beta, narrow @ X), wait, tries)
    host = cupy.asnumpy(X).astype(np.float64) if processor and 8.0 * n * p < _HOST else None
    design = DeviceDense.standardized(library, X, as_given(p)._replace(intercept=True))
    return Placed(design, y, w, host, bare, two)


def measured(library: Any, size: str, tries: int, processor: bool) -> None:
    """Print what a size takes."""
    cupy = library.xp
    text, columns, dtype = size.split(",")
    n, p, wait = int(float(text)), int(columns), cupy.cuda.Device().synchronize
    design, y, w, host, bare, two = placed(library, n, p, dtype, tries, processor)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    model = model_of(design, OnDevice(library, design, y, cupy.ones(n)))
    own = timed(lambda: design.gram(w, None), wait, tries)
    address = Latents(model.loss, model.streams, Purpose.LATENT, 0, 1)
    numbers = timed(lambda: numbers_at(library, address, 0, n).standard_normal(n), wait, tries)
    print(f"{n} x {p} {dtype}: bare Gram {bare:.1f} ms, own {own:.1f}; two products {two:.2f}; normals {numbers:.2f}")
    found = steps(model, wait, tries)
    for name, value in found.items():
        unit, what = (two, "times two products") if name.startswith("leapfrog") else (bare, "bare Grams")
        print(f"  {name}: {value:.2f} ms, {value / unit:.2f} {what}")
    print(f"  memory held at most: {pool.total_bytes() / 1e9:.1f} GB", flush=True)
    if host is not None:
        workers = os.cpu_count() or 1
        with one_blas_thread():
            rows = Dense(host, np.zeros(p), np.ones(p), True)
            blocks = Blocks(rows, cupy.asnumpy(y), np.ones(n), workers=workers)
            for name, value in steps(model_of(rows, blocks), lambda: None, 1).items():
                print(f"  {name} on {workers} threads: {value:.0f} ms, {value / found[name]:.0f} times as long")
            blocks.close()
    sys.stdout.flush()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sizes", nargs="*", default=SIZES, metavar="ROWS,COLUMNS,DTYPE")
    options.add_argument("--tries", type=int, default=5)
    options.add_argument("--processor", action="store_true", help="measure the threads of the processor too")
    options.add_argument("--quick", action="store_true", help="one small size")
    chosen = options.parse_args()
    try:
        import cupy

        library = library_of(cupy.zeros(1))
    except Exception as reason:  # whatever CuPy raises where there is no device
        print(f"There is no GPU here: {reason}")
        return
    for size in ("1e5,100,float32",) if chosen.quick else chosen.sizes:
        measured(library, size, chosen.tries, chosen.processor)
        cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
