"""Probabilities by inference: test log loss, Brier score and calibration error of every engine, two classes.

The calibration error compares, in fifteen groups of equally many rows, the mean probability with the share of the
class: the mean distance over groups. Given splits of public sets; the draws are short chains.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import common
from benchmarks.two_class_sets import SETS
from softmargin import BayesianSVC

NAMES = (
    "ringnorm",
    "heart",
    "spam, 600 rows",
    "spam, 8 %",
    "adult, 1000 rows",
    "letters, vowels",
    "usps, odd",
    "wisconsin",
)
GROUPS = 15
CHAINS = {"draws": 500, "warmup": 250, "chains": 2, "random_state": 0}
METHODS: dict[str, Callable[[], Any]] = {
    "vb": BayesianSVC,
    "map": lambda: BayesianSVC(inference="map"),
    "meanfield": lambda: BayesianSVC(inference="meanfield"),
    "gibbs": lambda: BayesianSVC(inference="gibbs", **CHAINS),
    "hmc": lambda: BayesianSVC(inference="hmc", **CHAINS),
    "svi": lambda: BayesianSVC(inference="svi", random_state=0),
    "vb, pseudo": lambda: BayesianSVC(probability="pseudo"),
    "vb, logit": lambda: BayesianSVC(likelihood="logit"),
}
MEASURES = ("log loss", "Brier score", "calibration error", "CPU s")


def calibration_error(y: Any, p: Any) -> float:
    """Mean distance between probability and share over groups of equally many rows."""
    parts = np.array_split(np.argsort(p, kind="stable"), min(GROUPS, len(p)))
    return float(sum(abs(p[part].sum() - y[part].sum()) for part in parts) / len(p))


def measure(split: common.Split) -> dict[str, list[float]]:
    """Every measure of every engine on one split."""
    X, new, y, truth = split
    positive, found = (truth == np.unique(y)[1]).astype(float), {}
    for name, made in METHODS.items():
        model, seconds = common.cpu(lambda made=made: made().fit(X, y))
        p = model.predict_proba(new)[:, 1]
        loss = float(log_loss(positive, p, labels=[0.0, 1.0]))
        found[name] = [loss, float(np.mean((p - positive) ** 2)), calibration_error(positive, p), seconds]
    return found


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=3)
    options = options.parse_args()
    common.warm_up()
    results = {}
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single sets, short chains
        for name in NAMES[1:2] if options.quick else NAMES:
            found = [measure(split) for split in SETS[name](1 if options.quick else options.splits)]
            results[name] = {m: np.mean([one[m] for one in found], axis=0) for m in METHODS}
            print(name, {m: v.round(4).tolist() for m, v in results[name].items()}, flush=True)
    results["mean"] = {m: np.mean([found[m] for found in results.values()], axis=0) for m in METHODS}
    parts = []
    for index, measured in enumerate(MEASURES):
        form = "{:.2g}" if measured == "CPU s" else "{:.4f}"
        rows = [(name, *(form.format(found[m][index]) for m in METHODS)) for name, found in results.items()]
        parts.append(f"{measured[0].upper()}{measured[1:]}:\n\n{common.markdown(['set', *METHODS], rows)}")
    common.publish("by_engine", "\n\n".join(parts), options)


if __name__ == "__main__":
    main()
