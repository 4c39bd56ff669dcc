"""False discoveries: lists of columns at a nominal rate, beside L1 logistic regression.

Simulated sets of all combinations of 100, 200 or 500 rows, 20, 50 or 200 columns, none, 3 or 10 of them true, columns
in a chain with correlation 0 or 0.7, and effects of 0.75 or 1.5 on the logit, with either sign. Ours have two chains of
120 draws after 60. The penalty of L1 logistic regression is chosen twice: by log loss, as it usually is; and, since no
list is asked for that way, as the weakest of a grid whose mean false discovery over *other* sets of the same design is
at most the nominal rate. That second peer is told the design, which no user can be.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.exceptions import ModelWarning
from softmargin.priors import SpikeSlab

CELLS = list(itertools.product((100, 200, 500), (20, 50, 200), (0, 3, 10), (0.0, 0.7), (0.75, 1.5)))
RATES = (0.1, 0.2)
MULTIPLES = np.geomspace(0.3, 3.0, 16)  # of the penalty sqrt(log(p) / 2 n), which noise alone would need
ELSEWHERE = 100_000  # first seed of the sets that the second peer's penalty is chosen on
CHAINS = {"draws": 120, "warmup": 60, "chains": 2, "random_state": 0}
Lists = dict[str, Any]  # nominal rate, as text, -> mask of the columns listed


class Problem(NamedTuple):
    """Columns, classes, and which columns are true."""

    X: np.ndarray
    y: np.ndarray
    true: np.ndarray


def problem(seed: int) -> Problem:
    """One simulated set; cells come in a shuffled order, each as often as the others."""
    turn, place = divmod(seed, len(CELLS))
    n, p, k, rho, effect = CELLS[np.random.default_rng([7, turn]).permutation(len(CELLS))[place]]
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    true = np.zeros(p, dtype=bool)
    true[rng.choice(p, k, replace=False)] = True
    slopes = np.where(true, effect * rng.choice([-1.0, 1.0], p), 0.0)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ slopes))).astype(int)
    return Problem(X, y, true)


def ours(likelihood: str, informed: bool, given: Problem) -> Lists:
    """Lists of spike and slab at the nominal rates; informed: told how many columns are true."""
    prior = SpikeSlab(expected_size=float(given.true.sum())) if informed else SpikeSlab()
    model = BayesianSVC(prior, "gibbs", likelihood=likelihood, **CHAINS).fit(given.X, given.y)
    return {str(rate): model.get_support(false_discovery=rate) for rate in RATES}


def by_log_loss(given: Problem) -> Lists:
    """Columns of L1 logistic regression with the penalty that 5 folds prefer by log loss."""
    X = StandardScaler().fit_transform(given.X)
    settings = {"l1_ratios": (1.0,), "solver": "liblinear", "random_state": 0, "use_legacy_attributes": False}
    model = LogisticRegressionCV(cv=5, scoring="neg_log_loss", intercept_scaling=10.0, **settings).fit(X, given.y)
    return dict.fromkeys(map(str, RATES), model.coef_[0] != 0.0)


def _penalised(given: Problem, multiple: float) -> Any:
    """Columns of L1 logistic regression at a multiple of the penalty that noise alone would need."""
    n, p = given.X.shape
    strength = 1.0 / (multiple * n * np.sqrt(np.log(p) / (2.0 * n)))
    settings = {"l1_ratio": 1.0, "solver": "liblinear", "intercept_scaling": 10.0, "random_state": 0}
    model = LogisticRegression(C=strength, **settings).fit(StandardScaler().fit_transform(given.X), given.y)
    return model.coef_[0] != 0.0


def calibrated(sets: int) -> Callable[[Problem], Lists]:
    """L1 logistic regression whose penalty keeps the nominal rates on other sets of the design, those with signal."""
    others = [other for other in map(problem, range(ELSEWHERE, ELSEWHERE + sets)) if other.true.any()]
    wrong = np.array([[false_share(_penalised(other, m), other.true) for m in MULTIPLES] for other in others])
    kept = {rate: next((m for m, w in zip(MULTIPLES, wrong.mean(axis=0), strict=True) if w <= rate), MULTIPLES[-1])
            for rate in RATES}  # fmt: skip
    return lambda given: {str(rate): _penalised(given, multiple) for rate, multiple in kept.items()}


def false_share(listed: Any, true: Any) -> float:
    """Share of a list that is false; none of an empty one."""
    return float((listed & ~true).sum() / max(1, listed.sum()))


def methods(sets: int) -> dict[str, Callable[[Problem], Lists]]:
    """Every way to a list."""
    return {
        "softmargin": partial(ours, "hinge", False),
        "softmargin, `expected_size` given": partial(ours, "hinge", True),
        "softmargin, logit": partial(ours, "logit", False),
        "softmargin, logit, `expected_size` given": partial(ours, "logit", True),
        "L1 logistic, penalty by log loss": by_log_loss,
        "L1 logistic, penalty by false discovery elsewhere": calibrated(sets),
    }


def measure(ways: dict[str, Callable[[Problem], Lists]], seed: int) -> dict[str, Any]:
    """False share, power and length of every list of one set, and CPU seconds."""
    given = problem(seed)
    found: dict[str, Any] = {"shape": [*given.X.shape, int(given.true.sum())]}
    for name, way in ways.items():
        if "given" in name and not given.true.any():
            continue
        lists, seconds = common.cpu(lambda way=way: way(given))
        found[name] = {
            rate: [false_share(mask, given.true), float(mask[given.true].mean()) if given.true.any() else None,
                   int(mask.sum())]
            for rate, mask in lists.items()
        }  # fmt: skip
        found[name]["seconds"] = seconds
    return found


def summary(results: list[dict[str, Any]]) -> str:
    """False discovery and power with signal, lists that are not empty without, and time."""
    rows = []
    for name in next(one for one in results if one["shape"][2]):
        if name == "shape":
            continue
        line: list[Any] = [name]
        for rate in map(str, RATES):
            signal = [one[name][rate] for one in results if one["shape"][2]]
            none = [one[name][rate] for one in results if not one["shape"][2] and name in one]
            wrong = np.array([share for share, _, _ in signal])
            line.append(f"{100 * wrong.mean():.1f} ± {100 * wrong.std(ddof=1) / np.sqrt(len(wrong)):.1f}")
            line.append(f"{100 * np.mean([power for _, power, _ in signal]):.0f}")
            line.append(f"{100 * np.mean([length > 0 for _, _, length in none]):.0f}" if none else "-")
        line.append(float(np.mean([one[name]["seconds"] for one in results if name in one])))
        rows.append(line)
    columns = ["list"]
    for rate in RATES:
        nominal = f"nominal {100 * rate:.0f} %"
        columns += [f"{nominal}: false %", "power %", "not empty without signal, % of sets"]
    with_signal = sum(1 for one in results if one["shape"][2])
    counts = f"{with_signal} sets with signal, {len(results) - with_signal} without any:"
    return f"{counts}\n\n{common.markdown([*columns, 'CPU s'], rows)}"


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--sets", type=int, default=len(CELLS) * 2)
    options.add_argument("--json", type=Path, metavar="FILE", help="every single list; a run that was stopped goes on")
    options = options.parse_args()
    sets = 12 if options.quick else options.sets
    common.warm_up()
    results: list[dict[str, Any]] = []
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # an empty list is an answer here
        ways = methods(sets) if len(results) < sets else {}
        for seed in range(len(results), sets):
            results.append(measure(ways, seed))
            if options.json:
                options.json.write_text(json.dumps(results))
    common.publish("discoveries", summary(results), options)


if __name__ == "__main__":
    main()
