"""Rare classes and weak signals: the share of what there is to gain that the default fits gain.

Logistic classes whose logit is linear in eight normal columns, or in the squared radius of two (the ring).
"Attainable" is the log loss of the class frequencies less that of a logistic fit without a penalty that is told the
true form; the share is what a default gains of it. Cells count where that gain is above two standard errors (over
repetitions). Log losses are expected ones: the true probabilities of new rows are known.
"""

from __future__ import annotations

import itertools
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from benchmarks import common
from softmargin import BayesianKernelClassifier, BayesianSVC

CELLS = list(itertools.product((300, 2000), (0.02, 0.05, 0.1, 0.2, 0.3, 0.5), (0.65, 0.78, 0.9)))
NEW = 20_000
FEWEST = 15  # rows of the smaller class from which on no default should lose to the class frequencies
FORMS = {"linear": 8, "ring": 2}  # columns
METHODS: dict[str, tuple[str, Any]] = {
    "linear default": ("linear", BayesianSVC),
    "kernel default": ("linear", BayesianKernelClassifier),
    "kernel default, ring": ("ring", BayesianKernelClassifier),
}


def _score(form: str, X: Any) -> Any:
    """What the logit is linear in, with variance one."""
    return X.sum(axis=1) / np.sqrt(X.shape[1]) if form == "linear" else ((X**2).sum(axis=1) - 2.0) / 2.0


def area(z: Any, p: Any) -> float:
    """Area under the ROC curve of a score whose rows are positive with probability p."""
    at = np.argsort(z)
    negative = np.cumsum(1.0 - p[at])
    return float((p[at] * negative).sum() / (p.sum() * negative[-1]))


def _root(increasing: Any, value: float, low: float, high: float) -> float:
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if increasing(middle) < value else (low, middle)
    return 0.5 * (low + high)


@cache
def logit_of(form: str, share: float, auc: float) -> tuple[float, float]:
    """Intercept and slope at which a class has its share and the score its area under the curve."""
    z = _score(form, np.random.default_rng(0).standard_normal((50_000, FORMS[form])))

    def intercept(slope: float) -> float:
        return _root(lambda a: expit(a + slope * z).mean(), share, -30.0, 30.0)

    slope = _root(lambda b: area(z, expit(intercept(b) + b * z)), auc, 0.0, 8.0)
    return intercept(slope), slope


def rows(form: str, n: int, share: float, auc: float, seed: int) -> tuple[Any, Any, Any]:
    """Columns, classes and true probabilities; drawn again until either class has three rows."""
    rng = np.random.default_rng([seed, n, round(1000 * share), round(100 * auc)])
    a, b = logit_of(form, share, auc)
    while True:
        X = rng.standard_normal((n, FORMS[form]))
        p = expit(a + b * _score(form, X))
        y = (rng.random(n) < p).astype(int)
        if 3 <= y.sum() <= n - 3:
            return X, y, p


def expected_loss(q: Any, p: Any) -> float:
    """Log loss of probabilities q where the true ones are p."""
    q = np.clip(q, 1e-12, 1.0 - 1e-12)
    return float(-(p * np.log(q) + (1.0 - p) * np.log1p(-q)).mean())


def measure(cell: tuple[int, float, float], repetitions: int) -> dict[str, list[list[float]]]:
    """Gain over the class frequencies of every method and of the true form, and the rows of the smaller class."""
    found: dict[str, list[list[float]]] = {name: [] for name in METHODS}
    for seed in range(repetitions):
        for name, (form, estimator) in METHODS.items():
            X, y, _ = rows(form, *cell, seed)
            new, _, p = rows(form, NEW, *cell[1:], seed + 10**6)
            columns = [Z if form == "linear" else (Z**2).sum(axis=1)[:, None] for Z in (X, new)]
            true = LogisticRegression(C=1e10, max_iter=2000).fit(columns[0], y).predict_proba(columns[1])[:, 1]
            constant = expected_loss(np.full(NEW, y.mean()), p)
            ours = estimator(random_state=0).fit(X, y).predict_proba(new)[:, 1]
            gains = [constant - expected_loss(q, p) for q in (ours, true)]
            found[name].append([*gains, float(min(y.sum(), len(y) - y.sum()))])
    return found


def summary(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Share of the attainable gain in every cell, and the worst."""
    lines, worst, lost = [], {}, dict.fromkeys(METHODS, 0.0)
    for cell, found in results.items():
        line: list[Any] = cell.split()
        for name in METHODS:
            ours, true, fewer = np.array(found[name]).T
            error = true.std(ddof=1) / np.sqrt(len(true))
            counts = true.mean() > 2.0 * error
            share = ours.mean() / true.mean()
            line.append(f"{share:.2f}" if counts else f"({ours.mean():+.4f} of {true.mean():+.4f})")
            if counts:
                key = (name, line[0])
                worst[key] = min(worst.get(key, np.inf), share)
            if fewer.min() >= FEWEST:
                lost[name] = min(lost[name], ours.mean())
        lines.append(line)
    text = [common.markdown(["rows", "share", "AUC", *METHODS], lines)]
    text.append(
        "Smallest share that counts: " + "; ".join(f"{m}, {n} rows {v:.2f}" for (m, n), v in worst.items()) + "."
    )
    text.append(
        f"Largest loss to the class frequencies with at least {FEWEST} rows of the smaller class: "
        + "; ".join(f"{name} {abs(value):.4f}" for name, value in lost.items())
        + "."
    )
    return "\n\n".join(text)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--repetitions", type=int, default=5)
    options.add_argument("--json", type=Path, metavar="FILE", help="every figure; a run that was stopped goes on")
    options = options.parse_args()
    results: dict[str, dict[str, list[list[float]]]] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    common.warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that say nothing are in the table
        for cell in CELLS[:2] if options.quick else CELLS:
            name = " ".join(map(str, cell))
            if name not in results:
                results[name] = measure(cell, 2 if options.quick else options.repetitions)
                print(name, {m: np.mean(v, axis=0).round(4).tolist() for m, v in results[name].items()}, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results))
    common.publish("imbalance", summary(results), options)


if __name__ == "__main__":
    main()
