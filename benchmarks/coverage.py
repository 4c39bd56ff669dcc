"""Intervals of coefficients: how often they hold the minimiser of the expected loss, by rows, columns and rate.

Logistic classes of normal columns. A hinge does not estimate the slopes of the logit: what its intervals are about is
the minimiser of the expected hinge with the weights of the fit, plain or tilted, which is found as a mode of very many
rows. Coverage is that of nominal 95 % intervals, averaged over slopes and repetitions; its standard error is over
repetitions. Rates that are given are the pseudo-likelihood as it stands, without any correction.
"""

from __future__ import annotations

import itertools
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.priors import Ridge

CELLS = list(itertools.product((100, 300, 1000, 2000), (5, 20), (0.5, 0.2)))
SIGNAL = 1.25  # standard deviation of the logit
MANY = 200_000  # rows of which the minimiser is found
NOMINAL = 0.95
CHAINS = {"draws": 500, "warmup": 200, "chains": 2, "random_state": 0}
METHODS: dict[str, dict[str, Any]] = {
    "vb": {},
    "hmc": {"inference": "hmc", **CHAINS},
    "vb, rate 0.25": {"learning_rate": 0.25},
    "vb, rate 1": {"learning_rate": 1.0},
    "vb, rate 4": {"learning_rate": 4.0},
    "meanfield": {"inference": "meanfield"},
}


class Design(NamedTuple):
    """Slopes and intercept of the logit."""

    slopes: Any
    intercept: float


@cache
def design(p: int, share: float) -> Design:
    """Slopes that fall, of either sign, and the intercept at which the second class has its share."""
    slopes = np.linspace(1.0, 0.0, p) * np.where(np.arange(p) % 2, -1.0, 1.0)
    slopes *= SIGNAL / np.linalg.norm(slopes)
    f = SIGNAL * np.random.default_rng(0).standard_normal(MANY)
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expit(f + middle).mean() < share else (low, middle)
    return Design(slopes, 0.5 * (low + high))


def rows(n: int, p: int, share: float, seed: int) -> tuple[Any, Any]:
    """Columns and classes; drawn again until either class has eight rows."""
    rng, (slopes, intercept) = np.random.default_rng([n, p, seed, round(100 * share)]), design(p, share)
    while True:
        X = rng.standard_normal((n, p))
        y = (rng.random(n) < expit(intercept + X @ slopes)).astype(int)
        if min(y.sum(), n - y.sum()) >= 8:
            return X, y


@cache
def minimiser(p: int, share: float, tilt: bool) -> Any:
    """Slopes of the expected hinge, with rows weighted by twice the share of the other class if tilted."""
    X, y = rows(MANY, p, share, 10**6)
    weight = np.where(y == 1, 2.0 * (1.0 - share), 2.0 * share) if tilt else np.ones(MANY)
    machine = BayesianSVC(Ridge(scale=100.0), "map", learning_rate=1.0, standardize=False)
    return machine.fit(X, y, sample_weight=weight).coef_[0]


def measure(n: int, p: int, share: float, repetitions: int) -> dict[str, list[float]]:
    """Share of the slopes whose interval holds the minimiser, for every method and repetition."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in range(repetitions):
        X, y = rows(n, p, share, seed)
        for name, settings in METHODS.items():
            model = BayesianSVC(**settings).fit(X, y)
            table = model.summary(level=NOMINAL).iloc[1:]
            target = minimiser(p, share, bool(getattr(model, "tilt_", False)))
            inside = (table["lower"].to_numpy() <= target) & (target <= table["upper"].to_numpy())
            found[name].append(float(inside.mean()))
    return found


def summary(results: dict[str, dict[str, list[float]]]) -> str:
    """One line per cell, the smallest and the mean."""
    lines = []
    for cell, found in results.items():
        shown = [np.array(found[name]) for name in METHODS]
        error = max(each.std(ddof=1) / np.sqrt(len(each)) for each in shown[:2])
        lines.append(
            (*cell.split(), len(shown[0]), *(f"{100 * each.mean():.1f}" for each in shown), f"{100 * error:.1f}")
        )
    means = np.array([[np.mean(found[name]) for name in METHODS] for found in results.values()])
    for name, values in (("smallest", means.min(axis=0)), ("mean", means.mean(axis=0))):
        lines.append((name, "", "", "", *(f"{100 * value:.1f}" for value in values), ""))
    columns = ["rows", "columns", "share", "repetitions", *METHODS, "largest standard error, vb and hmc"]
    return f"Coverage of nominal {100 * NOMINAL:.0f} % intervals, in per cent:\n\n{common.markdown(columns, lines)}"


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--repetitions", type=int, default=30)
    options.add_argument("--json", type=Path, metavar="FILE", help="every figure; a run that was stopped goes on")
    options = options.parse_args()
    cells = CELLS[:2] if options.quick else CELLS
    repetitions = 3 if options.quick else options.repetitions
    results: dict[str, dict[str, list[float]]] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    common.warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        for n, p, share in cells:
            cell = f"{n} {p} {share}"
            if cell not in results:
                results[cell] = measure(n, p, share, repetitions)
                print(cell, {name: round(float(np.mean(each)), 3) for name, each in results[cell].items()}, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results))
    common.publish("coverage", summary(results), options)


if __name__ == "__main__":
    main()
