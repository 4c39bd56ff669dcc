"""``partial_fit`` of the linear estimators: rows that go on to arrive, by batches."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, _check_y

from softmargin.core.array import Array
from softmargin.core.validation import (
    check_numeric,
    costs_by_label,
    fitted,
    known_labels,
    labels_given,
    row_weights,
)
from softmargin.estimators._responses import numbers
from softmargin.estimators.fresh import ADVICE, by_batches, unharmed
from softmargin.estimators.given.kinds import at_home, taken
from softmargin.models.classes.schemes import more_of_classes
from softmargin.models.observed import Observed
from softmargin.models.stream import more_responses
from softmargin.models.two_class import Recipe
from softmargin.refusals import refused
from softmargin.rows.streams import Streams
from softmargin.survival.fits import parameters_of

__all__ = ["StreamedLabels", "StreamedNumbers", "check_first", "check_later", "rows_so_far"]

# parameters that a later batch may have others of: they are of other inferences, of predictions, or of single batches
_FREE = {"draws", "warmup", "chains", "thin", "max_iter", "tol", "solver", "random_state", "probability"}


def check_first(classes: Any, y: Any) -> None:
    """Refuse a first batch that lacks one of the classes that are to come, or has another."""
    if classes is None or y is None:
        return
    named, there = set(np.asarray(classes).tolist()), set(np.unique(labels_given(y)).tolist())
    if named - there:
        raise ValueError("the first call of partial_fit must have rows of every class; wait for more rows.")
    if there - named:
        other = sorted(there - named)[:5]
        raise ValueError(f"y has labels {other} that classes={list(classes)} does not name; name all that will come.")


def check_later(estimator: Any, classes: Any = None) -> None:
    """Refuse a later batch with other classes or parameters than those of the first one."""
    if classes is not None and set(np.asarray(classes).tolist()) != set(estimator.classes_.tolist()):
        raise ValueError(
            f"classes={list(classes)} are not those of the first call, {estimator.classes_.tolist()}: leave classes "
            "out, or begin anew with fit."
        )
    first, now = fitted(estimator, "_settled") or {}, parameters_of(estimator)
    other = [name for name in first if name not in _FREE and now[name] != first[name]]
    if other:
        raise ValueError(
            f"partial_fit goes on with what its first call had, and since then {', '.join(other)} changed: set what it "
            "was, or begin anew with fit."
        )


def rows_so_far(estimator: Any) -> float:
    """How many rows were learned, each as often as it counts."""
    return (fitted(estimator, "_rows_before") or 0.0) + float(estimator._observed.counts.sum())


def _check_sizes(count: Array, before: float) -> None:
    """Refuse weights beside which other rows, of this batch or of those before, are lost in rounding."""
    smallest = min(float(count.min()), before)
    if count.max() > smallest / np.finfo(float).eps:
        raise ValueError(f"sample_weight of {count.max():.3g} beside {smallest:.3g}: {ADVICE}.")


class _Batch(NamedTuple):
    """Rows that count, which of the given ones these are, what is asked for, and random streams of their own."""

    X: Any
    y: Any
    times: Array
    used: Any
    recipe: Recipe
    streams: Streams


class _Streamed:
    """What goes on from call to call."""

    fit: Any
    random_state: Any
    _fitted: Any
    _validated: Any
    _run_settings: Any
    _publish: Any
    _check_parameters: Any
    inference: str
    _seen: Any
    _observed: Any
    _rows_before: float

    @property
    def _goes_on(self) -> bool:
        """Whether there is a fit by batches to go on from."""
        before = fitted(self, "_fitted")
        return before is not None and fitted(before.parts[0], "stream") is not None

    def _started(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """The first call is a fit."""
        self.fit(X, y, sample_weight)
        if not self._goes_on:
            raise ValueError(refused("stream of wide rows"))
        return self

    def _more(self, X: Any, y: Any, sample_weight: Any) -> _Batch:
        """New rows that count, checked."""
        prior = self._check_parameters()
        check_numeric(X)
        X, y = self._validated(X), np.asarray(y)
        if y.shape != (X.shape[0],):
            raise ValueError(f"y has shape {y.shape} and X has {X.shape[0]} rows; give one response per row.")
        count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        used = np.flatnonzero(count > 0)
        _check_sizes(count[used], rows_so_far(self))
        recipe = Recipe(prior, None, self.inference, 1.0, run=self._run_settings())
        streams = Streams.from_random_state(self.random_state).child(1 + (fitted(self, "_batches") or 0))
        return _Batch(X[used], y[used], count[used], count > 0, recipe, streams)

    def _learned(self, model: Any, batch: _Batch, observed: Observed) -> Self:
        """After a batch."""
        self._rows_before = rows_so_far(self)
        self._fitted, self._used, self._observed = model.settled(), batch.used, observed
        self._seen = None  # these are not all rows of the fit
        self._batches = 1 + (fitted(self, "_batches") or 0)
        self._publish()
        return self


class StreamedLabels(_Streamed):
    """``partial_fit`` of classes."""

    classes_: Any
    class_weight: Any
    costs: Any
    multi_class: str

    @available_if(by_batches)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to a fit by batches (``inference="svi"``).

        The first call fits as ``fit`` does and settles centres and scales of the columns, tilt and learning rate: give
        it some thousand rows. Each later row is used once; the prior's scale is learned on, and steps become shorter,
        so that the posterior converges as rows go on to arrive. A batch is scored before it is learned: ``loo_`` and
        the calibrated link are of the 50,000 rows scored last, ``loo_probability_`` of the rows of this call.
        ``checkpoint`` and ``max_time`` are for ``fit``; between two calls ``softmargin.save`` keeps all there is.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array, optional
            All labels that will ever come; the first call must have rows of each.
        """
        if isinstance(self.class_weight, str):
            raise ValueError(refused("balanced stream"))
        if not self._goes_on:
            X, y, sample_weight, _ = taken(X, y, sample_weight, None)
            check_first(classes, y)
            if self.multi_class != "pairwise" and len(np.unique(y)) > 2:
                raise ValueError(refused("stream of scores", scheme=f"multi_class={self.multi_class!r}"))
            return self._started(X, y, sample_weight)
        check_later(self, classes)
        X, y, sample_weight, _ = at_home(X, y, sample_weight, fitted(self, "feature_names_in_"))
        with unharmed(self):
            return self._with_labels(X, y, sample_weight)

    def _with_labels(self, X: Any, y: Any, sample_weight: Any) -> Self:
        batch = self._more(X, labels_given(y), sample_weight)
        index, k = known_labels(batch.y, self.classes_), len(self.classes_)
        weight = batch.times * row_weights(np.ones(k), np.arange(k), self.classes_, self.class_weight)[index]
        costs = costs_by_label(self.costs, self.classes_)
        data: Any = (self._fitted, batch.X, index, batch.times, weight)
        model = more_of_classes(batch.recipe, *data, costs=costs, streams=batch.streams)
        return self._learned(model, batch, Observed.of(index, batch.times, weight))


class StreamedNumbers(_Streamed):
    """``partial_fit`` of a numeric response."""

    @available_if(by_batches)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to a fit by batches (``inference="svi"``).

        The first call fits as ``fit`` does and settles centres and scales of the columns, the likelihood and its noise:
        give it some thousand rows. Each later row is used once; the prior's scale is learned on, and steps become
        shorter, so that the posterior converges as rows go on to arrive. A batch is scored before it is learned:
        ``loo_`` is of the rows of this call. ``checkpoint`` and ``max_time`` are for ``fit``; between two calls
        ``softmargin.save`` keeps all there is.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        """
        if not self._goes_on:
            return self._started(X, y, sample_weight)
        check_later(self)
        X, y, sample_weight, _ = at_home(X, y, sample_weight, fitted(self, "feature_names_in_"))
        with unharmed(self):
            return self._with_numbers(X, _check_y(y, y_numeric=True, estimator=self), sample_weight)

    def _with_numbers(self, X: Any, y: Any, sample_weight: Any) -> Self:
        batch = self._more(X, y, sample_weight)
        y, count = numbers(batch.y), batch.times
        model = more_responses(batch.recipe, self._fitted, batch.X, y, count, streams=batch.streams)
        return self._learned(model, batch, Observed.of(y, count, count))
