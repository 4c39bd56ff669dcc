"""Regression on simulated data: what ``likelihood="auto"`` costs beside the loss that predicts best, by kind of noise.

Eight kinds of noise around a linear function, 30 to 1000 rows, 3 and 10 columns. Errors are of the mean on 2000 new
rows, as the share of the variance of that mean, and in the last line those of the better loss of each problem.
RidgeCV is a peer that needs normal noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import RidgeCV

from benchmarks import common
from softmargin import BayesianSVR

NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.uniform(-1.7, 1.7, n),
    "Laplace": lambda rng, n: rng.laplace(size=n) / 2**0.5,
    "Student t, 3 degrees": lambda rng, n: rng.standard_t(3, n) / 3**0.5,
    "10 % outliers": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 8.0, 0.7),
    "exponential": lambda rng, n: rng.exponential(size=n) - 1.0,
    "lognormal": lambda rng, n: (np.exp(rng.standard_normal(n)) - np.exp(0.5)) / 2.16,
    "two humps": lambda rng, n: np.where(rng.random(n) < 0.8, -0.5, 2.0) + 0.1 * rng.standard_normal(n),
}
METHODS: dict[str, Callable[[], object]] = {
    "auto": BayesianSVR,
    "epsilon-insensitive": lambda: BayesianSVR(likelihood="epsilon-insensitive"),
    "squared": lambda: BayesianSVR(likelihood="squared"),
    "RidgeCV": lambda: RidgeCV(np.logspace(-3, 4, 20)),
}
NEW = 2000


def problem(kind: str, n: int, p: int, repetition: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, means and responses; in every other repetition the noise grows with the first column."""
    rng = np.random.default_rng([repetition, n, p])
    X = rng.standard_normal((n + NEW, p))
    mean = X @ rng.standard_normal(p) / p**0.5
    noise = NOISE[kind](rng, n + NEW)
    return X, mean, mean + (noise * np.exp(0.5 * X[:, 0]) if repetition % 2 else noise)


def errors(kind: str, n: int, p: int, repetition: int) -> list[float]:
    """Squared error of the mean by method, and the share of new responses in the 95 % intervals of the first."""
    X, mean, y = problem(kind, n, p, repetition)
    found, new = [], slice(n, None)
    models = [make().fit(X[:n], y[:n]) for make in METHODS.values()]  # type: ignore[attr-defined]
    for model in models:
        found.append(float(np.mean((model.predict(X[new]) - mean[new]) ** 2) / np.var(mean[new])))
    low, high = models[0].predict_interval(X[new], level=0.95).T
    return [*found, 100.0 * float(np.mean((low <= y[new]) & (y[new] <= high)))]


def main() -> None:
    options = common.parser(__doc__).parse_args()
    sizes = ((60, 3),) if options.quick else tuple((n, p) for n in (30, 100, 300, 1000) for p in (3, 10))
    rows, each = [], []
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in NOISE:
            runs = [errors(kind, n, p, k) for n, p in sizes for k in range(2 if options.quick else 4)]
            each += runs
            rows.append((kind, *np.mean(runs, axis=0)))
            print(*map(common.number, rows[-1]), flush=True)
    all_runs = np.array(each)
    rows.append(("all", *all_runs.mean(axis=0)))
    better = all_runs[:, 1:3].min(axis=1).mean()
    table = common.markdown(("noise", *METHODS, "cover of 95 % intervals (auto), %"), rows)
    common.publish("regression", f"{table}\n\nBetter loss of each problem: {common.number(better)}.", options)


if __name__ == "__main__":
    main()
