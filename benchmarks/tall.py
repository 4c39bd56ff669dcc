"""Many rows: CPU seconds of a whole fit with the default settings, and of the weighted Gram matrix on threads.

Gaussian columns, independent or correlated, a sparse truth and noisy labels. "One pass" is a single weighted Gram
matrix of all rows. Wall-clock times of threads need an idle machine: the best of several tries counts.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.designs.standardize import design_for, standardize
from softmargin.rows.in_memory import Blocks, one_blas_thread

SIZES = ((1_000_000, 50, "vb"), (1_000_000, 50, "map"), (200_000, 500, "map"))
TRIES = 7


def tall(n: int, p: int, correlated: bool) -> tuple[Any, Any]:
    """Rows with a tenth of the columns in the truth."""
    rng = np.random.default_rng([n, p])
    X = rng.standard_normal((n, p))
    if correlated:
        for j in range(1, p):
            X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    truth = np.zeros(p)
    truth[: max(3, p // 10)] = rng.standard_normal(max(3, p // 10))
    f = X @ truth
    return X, np.where(f / f.std() + 0.5 * rng.standard_normal(n) > 0.2, 1.0, -1.0)


def blocks_of(X: Any, y: Any, workers: int = 1) -> Blocks:
    """The standardized rows in cells."""
    return Blocks(design_for(X, standardize(X, np.ones(len(X)))), y, np.ones(len(X)), workers=workers)


def threads(n: int, p: int) -> str:
    """How much faster two threads make the weighted Gram matrix, and whether they change it."""
    X, y = tall(n, p, False)
    w = np.random.default_rng(0).uniform(0.1, 2.0, n)
    found, best, used = {}, {}, {}
    with one_blas_thread():
        for workers in (1, 2):
            blocks = blocks_of(X, y, workers)
            found[workers] = blocks.gram(w, w)
            best[workers] = used[workers] = np.inf
            for _ in range(TRIES):
                wall, cpu = time.perf_counter(), time.process_time()
                blocks.gram(w, w)
                best[workers] = min(best[workers], time.perf_counter() - wall)
                used[workers] = min(used[workers], time.process_time() - cpu)
            blocks.close()
    same = all(np.array_equal(a, b) for a, b in zip(found[1], found[2], strict=True))
    return (
        f"Weighted Gram matrix of {n} x {p}, best of {TRIES}: one thread {best[1]:.3f} s ({used[1]:.3f} s CPU), two "
        f"threads {best[2]:.3f} s ({used[2]:.3f} s CPU), {best[1] / best[2]:.2f} times faster, "
        f"{'bitwise the same' if same else 'NOT the same'}."
    )


def main() -> None:
    options = common.parser(__doc__).parse_args()
    shrink = 20 if options.quick else 1
    common.warm_up()
    with common.one_thread():
        BayesianSVC().fit(*tall(30_000, 5, False))  # compile
        BayesianSVC(inference="map").fit(*tall(30_000, 5, False))
        rows = []
        for n, p, inference in SIZES:
            for correlated in (False, True):
                X, y = tall(n // shrink, p, correlated)
                blocks, w = blocks_of(X, y), np.ones(len(X))
                _, gram = common.cpu(lambda blocks=blocks, w=w: blocks.gram(w, w))
                model, seconds = common.cpu(lambda X=X, y=y, kind=inference: BayesianSVC(inference=kind).fit(X, y))
                columns = "correlated" if correlated else "independent"
                gap = getattr(model, "gap_", None)
                rows.append((f"{len(X)} x {p}", columns, inference, seconds, gram, seconds / gram, gap))
                print(*rows[-1], flush=True)
    heads = ("rows x columns", "columns", "inference", "CPU s", "one pass, CPU s", "ratio", "gap")
    text = common.markdown(heads, rows) + "\n\n" + threads(200_000 // shrink, 100)
    common.publish("tall", text, options)


if __name__ == "__main__":
    main()
