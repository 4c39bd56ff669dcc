"""The leave-one-out score of a fit against refits that really leave a row out.

Simulated rows (normal columns, logistic classes) of several sizes, strengths of signal and class shares, at the default
rate and at given ones; rows with many more columns; and text. Every row is left out in turn, or 60 drawn at random
where there are more than 100. A refit has the learning rate and the tilt of the whole fit, and under the narrow prior
of wide data its scale; a scale that is learned is learned anew. Its mean and variance of the row's predictor go through
the link of the whole fit, so that what differs from the score of the fit is the predictors alone.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks import common
from benchmarks.text import SETS as TEXTS
from softmargin import BayesianSVC
from softmargin.inference.choices import Candidate
from softmargin.priors import Ridge

SIZES = tuple(itertools.product((40, 100, 300, 1000), (5, 20, 100)))
SIGNALS = ((1.0, 0.0), (3.0, 0.0), (10.0, 0.0), (3.0, -3.0))  # standard deviation and mean of the logit
RATES: tuple[float | str, ...] = ("auto", 1.0, 4.0)
FRESH, MOST, ALL = 20_000, 60, 100  # fresh rows, rows left out, rows up to which all are
BANDS = (0.0, 0.3, 0.6, 0.8, np.inf)
COLUMNS = (
    "rows", "columns", "rate", "fits", "largest k v", "closed form", "reported", "refitted", "test",
    "reported - refitted", "closed form - refitted", "reported - test", "correlation",
)  # fmt: skip


class Problem(NamedTuple):
    """Rows to fit and others to test on, with the name of the line that they belong to."""

    line: tuple[Any, ...]
    X: Any
    y: np.ndarray
    new: Any
    truth: np.ndarray


class Found(NamedTuple):
    """What one fit reports, and what comes out."""

    line: tuple[Any, ...]
    max_kv: float
    closed: bool  # whether the fit reports the closed form
    reported: float
    refitted: float
    test: float
    apart: float  # reported less refitted, on the rows that were left out
    formula: float  # closed form less refitted, on the same rows
    correlation: float


class AsChosen(BayesianSVC):
    """A fit with a tilt and a rate that were chosen before, left-out predictors in closed form."""

    candidate: Candidate

    def _recipe(self, prior: Any, rows: Any) -> Any:
        return replace(super()._recipe(prior, rows), candidate=self.candidate)


def as_chosen(model: BayesianSVC) -> AsChosen:
    """A fit to come with the choices of another."""
    table = getattr(model, "choices_", None)
    narrow = table is not None and "scale" in table and not isinstance(table["scale"][table["taken"]].iloc[0], str)
    again = AsChosen(prior=Ridge(scale=float(model.scale_)) if narrow else "ridge")
    again.candidate = Candidate(bool(model.tilt_), float(model.learning_rate_))
    return again


def simulated(n: int, p: int, signal: float, mean: float, seed: int) -> Problem | None:
    """Normal columns and a logit of given mean and standard deviation; None where a class has fewer than four rows."""
    rng = np.random.default_rng([n, p, int(10 * signal), int(-mean), seed])
    slopes = rng.standard_normal(p)
    slopes *= signal / np.linalg.norm(slopes)
    X = rng.standard_normal((n + FRESH, p))
    y = (rng.random(n + FRESH) < 1.0 / (1.0 + np.exp(-mean - X @ slopes))).astype(int)
    if np.bincount(y[:n], minlength=2).min() < 4:
        return None
    return Problem((n, p), X[:n], y[:n], X[n:], y[n:])


def text(name: str, n: int, seed: int) -> Problem:
    """Documents of two groups, the others to test on."""
    X, y = TEXTS[name]()
    order = np.random.default_rng([n, seed]).permutation(len(y))
    own, others = order[:n], order[n:]
    return Problem((n, f"{X.shape[1]} words"), X[own], y[own], X[others], y[others])


def problems(repeats: int, sizes: Any) -> Iterator[tuple[Problem, float | str]]:
    """All sets with the rates at which each is fitted."""
    for (n, p), (signal, mean), seed in itertools.product(sizes, SIGNALS, range(repeats)):
        found = simulated(n, p, signal, mean, seed)
        if found is not None:
            yield from ((found, rate) for rate in RATES)
    for (signal, mean), seed in itertools.product(SIGNALS, range(2 * repeats)):
        found = simulated(60, 1000, signal, mean, seed)
        if found is not None:
            yield found, "auto"
    for name, seed in itertools.product(("mac, windows (tf-idf)", "100 words, rec and talk"), range(repeats)):
        yield text(name, 400, seed), "auto"


def losses(p: Any, y: Any) -> Any:
    """Log loss of every row."""
    return -np.log(np.clip(np.where(y == 1, p, 1.0 - p), 1e-15, 1.0))


def measured(given: Problem, rate: float | str) -> Found:
    """One fit beside refits without a row."""
    X, y = given.X, given.y
    model: Any = BayesianSVC(learning_rate=rate).fit(X, y)
    chosen = as_chosen(model)
    closed: Any = chosen.fit(X, y)._fitted.fit.held
    rows = np.arange(len(y))
    if len(y) > ALL:
        rows = np.sort(np.random.default_rng(len(y)).choice(len(y), MOST, replace=False))
    moments = []
    for row in rows:
        others = np.delete(np.arange(len(y)), row)
        refit: Any = as_chosen(model).fit(X[others], y[others])
        moments.append([float(each[0]) for each in refit._fitted._linked_moments(X[[row]])])
    f, v = np.array(moments).T
    reported = losses(model.loo_probability_[rows, 1], y[rows])
    refitted = losses(model.loo_.link.probability(f, v), y[rows])
    # the closed form has its own link, where the fit has that of folds
    formula = losses(closed.loo.link.probability(closed.f[rows], closed.v[rows]), y[rows])
    formula -= losses(closed.loo.link.probability(f, v), y[rows])
    test = losses(model.predict_proba(given.new)[:, 1], given.truth).mean()
    shown = "chosen" if rate == "auto" else rate
    return Found(
        (*given.line, shown), float(model.loo_.max_kv), model.loo_.method == "closed form", float(model.loo_.score),
        float(refitted.mean()), float(test), float((reported - refitted).mean()), float(formula.mean()),
        float(np.corrcoef(model._fitted.fit.held.f[rows], f)[0, 1]),
    )  # fmt: skip


def mean(values: Any) -> str:
    """Mean and its standard error."""
    values = np.array(values)
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{values.mean():+.4f}{error}"


def by_line(found: list[Found]) -> str:
    """One line per size and rate."""
    lines = []
    for line in dict.fromkeys(one.line for one in found):
        own = [one for one in found if one.line == line]
        level = [f"{np.mean([getattr(one, name) for one in own]):.3f}" for name in ("reported", "refitted", "test")]
        differences = [[one.apart for one in own], [one.formula for one in own], [o.reported - o.test for o in own]]
        middle, closed = np.median([one.max_kv for one in own]), sum(one.closed for one in own)
        lines.append(
            (*line, len(own), f"{middle:.2f}", f"{closed} of {len(own)}", *level, *map(mean, differences),
             f"{np.median([one.correlation for one in own]):.3f}")
        )  # fmt: skip
    return common.markdown(COLUMNS, lines)


def by_band(found: list[Found]) -> str:
    """Bias and root mean square of the closed form's error, and of what fits report, by the largest k v."""
    lines = []
    for low, high in itertools.pairwise(BANDS):
        for rows, few in (("below 200", True), ("200 and more", False)):
            own = [one for one in found if low <= one.max_kv < high and (one.line[0] < 200) == few]
            if not own:
                continue
            formula, apart = (np.array([getattr(one, name) for one in own]) for name in ("formula", "apart"))
            share = sum(one.closed for one in own)
            lines.append(
                (f"{low:g} to {high:g}" if high < 1.0 else f"above {low:g}", rows, len(own), mean(formula),
                 f"{np.sqrt((formula**2).mean()):.4f}", f"{len(own) - share} of {len(own)}", mean(apart),
                 f"{np.sqrt((apart**2).mean()):.4f}", f"{np.median([one.correlation for one in own]):.3f}")
            )  # fmt: skip
    head = (
        "largest k v", "rows", "fits", "closed form - refitted", "rms", "by folds", "reported - refitted", "rms",
        "correlation",
    )  # fmt: skip
    return common.markdown(head, lines)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--repeats", type=int, default=3, help="sets of each kind")
    options = options.parse_args()
    common.warm_up()
    sizes, repeats = (((40, 5), (40, 20)), 1) if options.quick else (SIZES, options.repeats)
    found = []
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that say nothing are in the table
        for given, rate in problems(repeats, sizes):
            found.append(measured(given, rate))
            print(*map(common.number, found[-1]), flush=True)
    common.publish("left_out", f"{by_band(found)}\n\n{by_line(found)}", options)


if __name__ == "__main__":
    main()
