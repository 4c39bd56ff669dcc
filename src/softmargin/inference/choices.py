"""What is chosen for the user, in one place: candidates, one score, one decision, one record.

The hinge estimates one level set of the class probability. With plain weights that is P = 1/2, and where no row reaches
it the best hinge fit is a constant. With *tilted* weights, twice the share of the other class, it is the level
P = (share of the class), which rows lie on both sides of unless the predictors say nothing. Both fits have the same
rate, so leave-one-out tells which predicts better. Across rates it cannot: a higher rate lets every row fit itself
more, and the score is the more flattering. There refits without a fifth of the rows decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from softmargin.core.array import Array, by_label
from softmargin.loo.folds import Part, folds
from softmargin.rows.totals import totals

__all__ = [
    "Candidate",
    "Choice",
    "Entry",
    "Record",
    "Refits",
    "Rules",
    "Task",
    "Trial",
    "better",
    "choose",
    "entropy",
    "mean_and_error",
    "refitted",
    "tilted",
]


_EMPTY = pd.DataFrame()


@dataclass(frozen=True)
class Rules:
    """Constants of the decision, chosen on 71 development sets (46 real, 25 simulated) and frozen."""

    base: float = 0.25  # rate at which posterior standard deviations cover; see ``docs/explanation/choices.md``
    steps: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0)  # further rates, in units of the base
    gate: float = 0.005  # fall of the leave-one-out objective, nats per row, from which refits are asked
    lower: tuple[float, ...] = ()  # rates below the base, in units of it
    fall: float = 0.0005  # fall of it that a lower rate must bring: 0 to 0.005 tried on 166 sets, 0 costs more fits
    errors: float = 1.0  # standard errors by which refits must prefer the higher rate: at n < 100 luck gains less
    folds: int = 5
    # Scale, in scales of the tilted fit, below which the plain one is on its way to a constant: its link may still
    # stretch what is left, but its coefficients say "no effect". On 29 sets plain was better only at 0.83 and above.
    dropped: float = 0.6
    flat: float = np.inf  # share of the entropy above which a fit is taken for a constant and higher rates are tried


class Candidate(NamedTuple):
    """What is tried: tilted weights or plain ones, at a learning rate."""

    tilt: bool
    rate: float


class Trial(NamedTuple):
    """A quick fit and how well it predicts rows that are left out."""

    objective: float  # penalised leave-one-out log loss per row
    max_kv: float  # largest share of a predictor's precision that its own row supplies
    scale: float
    fit: Any


class Entry(NamedTuple):
    """One line of the record; ``value`` says what was tried."""

    value: dict[str, Any]
    method: str
    score: float
    error: float
    seconds: float


class Task(Protocol):
    """A model whose tilt and learning rate are to be chosen."""

    @property
    def base(self) -> float:
        """The lowest rate."""

    @property
    def tilts(self) -> bool:
        """Whether tilted weights may be tried."""

    @property
    def even(self) -> bool:
        """Whether all classes have the same share, so that tilted weights are plain ones."""

    @property
    def entropy(self) -> float:
        """Log loss of the class shares: the score of a model that says nothing."""

    def trial(self, candidate: Candidate, least: float = 0.0) -> Trial | None:
        """A quick fit; None where its scale fell below ``least``."""

    def refits(self, candidate: Candidate, trial: Trial, rival: Refits | None = None) -> Refits | None:
        """Log loss of every row under a fit without its fold; None where a class has too few rows.

        Of some folds where these say that a ``rival`` is better.
        """


@dataclass
class Record:
    """All that was tried, in order."""

    entries: list[Entry] = field(default_factory=list)
    taken: dict[str, Any] = field(default_factory=dict)

    def add(self, value: dict[str, Any], method: str, score: float, error: float, seconds: float) -> None:
        """Note one score; ``error`` is its standard error."""
        self.entries.append(Entry(value, method, score, error, seconds))

    def table(self) -> pd.DataFrame:
        """One line per score: what was tried, how it was judged, its score with its standard error and its cost."""
        rows = [
            entry.value
            | {
                "method": entry.method,
                "score": entry.score,
                "standard_error": entry.error,
                "seconds": entry.seconds,
                "taken": all(self.taken.get(key) == value for key, value in entry.value.items()),
            }
            for entry in self.entries
        ]
        return pd.DataFrame(rows) if rows else _EMPTY.copy(deep=False)  # far sooner than to make one


class Choice(NamedTuple):
    """The candidate that was taken, its quick fit, and the record of all of them."""

    candidate: Candidate
    trial: Trial
    record: Record
    tilted: Trial | None = None  # the tilted fit at the base rate, where the plain one was taken
    least: float = 0.0  # scale below which the plain one is on its way to a constant, at the rate that was taken


def choose(task: Task, rules: Rules) -> Choice:
    """Tilt by leave-one-out at the base rate, then higher rates by refits of folds, or lower ones by leave-one-out.

    A lower rate lets a row fit itself less, so that its score flatters less: where it is better, it is better indeed.
    It smooths the kink of the hinge by a wider posterior, which helps where one strong column with few values decides.
    """
    record, losses = Record(), _Losses(task)

    def tried(candidate: Candidate, least: float = 0.0) -> Trial | None:
        begun = time.process_time()
        trial = task.trial(candidate, least)
        score = np.nan if trial is None else trial.objective
        record.add(_named(candidate), "leave-one-out", score, np.nan, time.process_time() - begun)
        return trial

    now = Candidate(task.tilts, task.base)
    best = tried(now)
    assert best is not None
    tilted_one, least = None, 0.0
    if task.tilts and not task.even:
        plain = Candidate(False, task.base)
        other = tried(plain, rules.dropped * best.scale)
        if other is not None and other.objective < best.objective:
            least = rules.dropped * best.scale / other.scale  # in scales of its own: those of other rates are others
            now, best, tilted_one = plain, other, best
    first = best.objective
    for step in rules.steps:
        new = Candidate(now.tilt, step * task.base)
        trial = tried(new)
        assert trial is not None
        first = trial.objective if step == rules.steps[0] else first
        if trial.objective > rules.flat * task.entropy:  # says nothing yet, as all before it: nothing to decide
            if best.objective > rules.flat * task.entropy:
                continue
            break
        if best.objective - trial.objective <= rules.gate:
            break
        if not losses.prefer(new, trial, now, best, record, rules.errors):
            break
        now, best = new, trial
    # where halving the rate has not paid on the way to the base, it will not below
    below = rules.lower if now.rate == task.base and first - best.objective > rules.fall else ()
    for step in below:
        new = Candidate(now.tilt, step * task.base)
        trial = tried(new)
        assert trial is not None
        if best.objective - trial.objective <= rules.fall:
            break
        now, best = new, trial
    record.taken = _named(now)
    return Choice(now, best, record, tilted_one, least * best.scale)


def _named(candidate: Candidate) -> dict[str, Any]:
    return {"tilt": candidate.tilt, "learning_rate": candidate.rate}


class _Losses:
    """Losses of refitted folds, each candidate refitted once."""

    def __init__(self, task: Task):
        self.task = task
        self.found: dict[Candidate, Refits | None] = {}

    def of(self, candidate: Candidate, trial: Trial, record: Record, rival: Refits | None = None) -> Refits | None:
        if candidate not in self.found:
            begun = time.process_time()
            loss = self.found[candidate] = self.task.refits(candidate, trial, rival)
            if loss is not None:
                mean, error = mean_and_error(loss.values, loss.weight)
                record.add(_named(candidate), "folds", mean, error, time.process_time() - begun)
        return self.found[candidate]

    def prefer(self, new: Candidate, trial: Trial, now: Candidate, best: Trial, record: Record, errors: float) -> bool:
        """Whether rows left out are better predicted by ``new``, by more than ``errors`` standard errors."""
        old_loss = self.of(now, best, record)
        new_loss = None if old_loss is None else self.of(new, trial, record, old_loss)
        return better(new_loss, old_loss, errors)


def better(new: Refits | None, old: Refits | None, errors: float) -> bool:
    """Whether ``new`` has lower values, of all folds, by more than ``errors`` standard errors."""
    if old is None or new is None or len(new.values) < len(old.values):
        return False
    gain, error = mean_and_error(old.values - new.values, old.weight)
    return gain > errors * error


def mean_and_error(values: Array, count: Array) -> tuple[float, float]:
    """Mean over observations and its standard error; a row that counts twice is two observations."""
    total, mean = totals(count, (count, values)).tolist()
    mean /= total
    return mean, float(np.sqrt(totals((count, (values - mean) ** 2))[0]) / total)


def entropy(label: Any, count: Array) -> float:
    """Log loss of the class shares: what a model that says nothing reaches."""
    share = by_label(label, count)
    share = share[share > 0] / share.sum()
    return float(-(share * np.log(share)).sum())


def tilted(label: Any, count: Array) -> Array:
    """Weights of the rows: harmonic mean of the class counts, divided by the count of the row's class.

    For two classes that is twice the share of the other one. Their sum is proportional to what the rows say about a
    logit at these class shares, so that one rate serves all shares, and no row weighs more than the number of classes.
    """
    total = by_label(label, count)
    harmonic = np.count_nonzero(total) / float((1.0 / total[total > 0]).sum())
    weight: Array = (harmonic / np.where(total > 0, total, 1.0))[label]
    return weight


class Refits(NamedTuple):
    """Values of left-out observations, one for every row and fold in which it has some, and how many these are."""

    values: Array
    rows: Any
    weight: Array


def refitted(
    label: Any,
    order: Array,
    count: Array,
    k: int,
    value: Callable[[Part, Part], Array],
    *,
    together: bool = False,
    rival: Refits | None = None,
) -> Refits | None:
    """``value(train, test)`` of every fold put together; None where a class has too few observations for two.

    Where most folds are done and a ``rival`` has lower values in them, the others are left out: the rest, which is
    smaller, would have to turn that round and bring the gain that is asked for.
    """
    found: Refits | None = None
    for number, (train, test) in enumerate(folds(label, order, count, k, together), start=1):
        part = Refits(value(train, test), test.rows, test.share * count[test.rows])
        found = part if found is None else Refits(*map(np.concatenate, zip(found, part, strict=True)))
        if rival is not None and 2 * number > k:
            gain, _ = mean_and_error(rival.values[: len(found.values)] - found.values, found.weight)
            if gain <= 0.0:
                break
    return found
