"""What came out beside what was predicted: of the training rows, each left out, or of rows that are given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.inference.regression_readout import half_widths
from softmargin.plots.numbers.subject import classes_of, labels_of, machine_of, response_of

__all__ = ["Decisions", "Responses", "decisions", "left_out_decisions", "left_out_responses", "responses"]

_TINY = 1e-300
LEFT_OUT = "training rows, each left out"


class Decisions(NamedTuple):
    """Classes of rows and the probabilities that they were given."""

    labels: list[str]
    y: Any  # numbers of the classes
    p: Array  # (rows, classes)
    times: Array  # how often each row counts
    by_class: Array  # what rows of each class weigh in the probabilities
    margin: Array  # of the true class: positive where the decision is right
    rows: Any  # positions in the data
    source: str

    @property
    def k(self) -> int:
        """Number of classes."""
        return len(self.labels)

    @property
    def chosen(self) -> Any:
        """The classes that are decided on."""
        return self.p.argmax(axis=1)

    @property
    def natural(self) -> Array:
        """Probabilities of a population with the class frequencies of the data, whatever rows weigh in the model."""
        q = self.p / self.by_class
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    @property
    def own(self) -> Array:
        """Probability of the true class of each row."""
        return self.p[np.arange(len(self.y)), self.y]

    def confusion(self) -> Array:
        """Counts (true, decided)."""
        found = np.zeros((self.k, self.k))
        np.add.at(found, (self.y, self.chosen), self.times)
        return found

    @property
    def accuracy(self) -> float:
        """Share of rows whose class is decided on."""
        return float(self.times @ (self.chosen == self.y) / self.times.sum())

    @property
    def log_loss(self) -> float:
        """Mean of -log of the true class's probability, rows counted as the data have them."""
        q = self.natural[np.arange(len(self.y)), self.y]
        return float(self.times @ -np.log(np.maximum(q, _TINY)) / self.times.sum())


def _margin(machine: Any, y: Any, p: Array, f: Array | None) -> Array:
    """Signed f of two classes; of many, the log odds of the true class against the strongest other one."""
    if f is not None:
        return np.where(y == 1, f, -f)
    score = np.log(np.maximum(p, _TINY))
    own = score[np.arange(len(y)), y]
    score[np.arange(len(y)), y] = -np.inf
    return np.asarray(own - score.max(axis=1))


def left_out_decisions(what: str, model: Any) -> Decisions | None:
    """Of the training rows, each left out; None where the model does not know their classes."""
    machine = machine_of(what, model)
    labels, seen = labels_of(what, machine), fitted(machine, "_observed")
    if seen is None:
        return None
    p, y = np.asarray(machine._fitted.loo_probability), seen.y.astype(np.intp)
    f = None
    if len(labels) == 2:
        held = machine._fitted.fit.held
        f = held.decision if machine.probability == "calibrated" else held.f
    each = seen.weights / seen.counts
    total = np.bincount(y, seen.counts, len(labels))
    by_class = np.bincount(y, each * seen.counts, len(labels)) / np.maximum(total, _TINY)
    by_class = np.where(by_class > 0.0, by_class, 1.0)
    known = np.isfinite(p).all(axis=1)
    given = np.flatnonzero(np.isfinite(np.asarray(machine.loo_probability_)).all(axis=1))
    found = Decisions(labels, y, p, seen.counts, by_class, _margin(machine, y, p, f), np.arange(len(y)), LEFT_OUT)
    kept = [part[known] for part in (found.y, found.p, found.times, found.margin)]
    return found._replace(y=kept[0], p=kept[1], times=kept[2], margin=kept[3], rows=given)


def decisions(what: str, model: Any, X: Any, y: Any) -> Decisions:
    """Of given rows; without any, of the training rows, each left out."""
    machine = machine_of(what, model)
    labels = labels_of(what, machine)
    if X is None:
        found = left_out_decisions(what, model)
        if found is None:
            raise ValueError(
                f"{what} needs rows: this model was saved by a version that kept no classes; give X and y."
            )
        return found
    truth = response_of(model, X, y)
    if truth is None:
        raise ValueError(f"{what} needs the classes of the rows; give y.")
    p = np.asarray(model.predict_proba(X))
    code = {label: number for number, label in enumerate(machine.classes_.tolist())}
    try:
        index = np.array([code[label] for label in np.asarray(truth).tolist()], dtype=np.intp)
    except (KeyError, TypeError):
        strange = next(label for label in np.asarray(truth).tolist() if label not in code)
        raise ValueError(
            f"{what} draws the classes {labels}, and y has {strange!r} too; leave such rows out."
        ) from None
    if len(index) != len(p):
        raise ValueError(f"{what} needs one class per row; got {len(index)} for {len(p)} rows.")
    f = np.asarray(model.decision_function(X)) if len(labels) == 2 else None
    seen = left_out_decisions(what, model)
    by_class = np.ones(len(labels)) if seen is None else seen.by_class
    ones, rows = np.ones(len(index)), np.arange(len(index))
    return Decisions(labels, index, p, ones, by_class, _margin(machine, index, p, f), rows, "given rows")


class Responses(NamedTuple):
    """Numbers that came out and the intervals that were predicted for them."""

    y: Array
    f: Array
    lower: Array
    upper: Array
    times: Array
    level: float
    source: str

    @property
    def covered(self) -> float:
        """Share of the responses that are inside."""
        inside = (self.y >= self.lower) & (self.y <= self.upper)
        return float(self.times @ inside / self.times.sum())

    @property
    def rmse(self) -> float:
        """Root mean squared error."""
        return float(np.sqrt(self.times @ (self.y - self.f) ** 2 / self.times.sum()))


def _regression(what: str, model: Any) -> Any:
    machine = machine_of(what, model)
    if classes_of(machine) is not None:
        raise ValueError(f"{what} draws a regression, and this is a classifier; fit BayesianSVR.")
    return machine


def left_out_responses(what: str, model: Any, level: float) -> Responses | None:
    """Of the training rows, each left out; None where the model does not know their responses."""
    machine = _regression(what, model)
    seen = fitted(machine, "_observed")
    if seen is None:
        return None
    units, held = machine._fitted.units, machine._fitted.fit.held
    known = np.isfinite(held.f)
    f = units.centre + units.spread * held.f[known]
    half = units.spread * half_widths(level, held.v[known], held.levels, held.losses)
    return Responses(seen.y[known], f, f - half, f + half, seen.counts[known], level, LEFT_OUT)


def responses(what: str, model: Any, X: Any, y: Any, level: float) -> Responses:
    """Of given rows; without any, of the training rows, each left out."""
    _regression(what, model)
    if X is None:
        found = left_out_responses(what, model, level)
        if found is None:
            raise ValueError(
                f"{what} needs rows: this model was saved by a version that kept no responses; give X and y."
            )
        return found
    truth = response_of(model, X, y)
    f = np.asarray(model.predict(X))
    lower, upper = np.asarray(model.predict_interval(X, level)).T
    truth = np.full(len(f), np.nan) if truth is None else np.asarray(truth, dtype=float)
    if len(truth) != len(f):
        raise ValueError(f"{what} needs one response per row; got {len(truth)} for {len(f)} rows.")
    return Responses(truth, f, lower, upper, np.ones(len(f)), level, "given rows")
