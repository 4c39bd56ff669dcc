"""Many classes by pairs: a model of two classes for each pair, and the probabilities that fit all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.models.build import kept_columns
from softmargin.models.compose import some_rows
from softmargin.models.stream import more_of_two_classes
from softmargin.models.two_class import Binary, Recipe, fit_two_classes
from softmargin.posterior import diagnostics
from softmargin.rows.elsewhere import read_rows
from softmargin.rows.streams import Streams
from softmargin.rows.threads import on_threads
from softmargin.rows.totals import totals
from softmargin.survival.watch import present, watched

__all__ = ["Pairwise", "Scores", "by_model", "couple", "fit_pairwise", "more_pairs", "paired", "until"]

_CLIP = 1e-6  # pair probabilities closer to 0 or 1 than this say nothing reliable
_ROWS = 4096  # rows coupled at once


class Scores(NamedTuple):
    """Leave-one-out log loss and error of all classes together, and the largest k v."""

    score: float
    error: float
    max_kv: float


def couple(r: Array, k: int) -> Array:
    """Class probabilities (n, k) from probabilities r (n, pairs) of the second class of each pair.

    Minimises ``sum over pairs of (r_ji p_i - r_ij p_j)^2`` under ``sum p = 1``, one small linear system a row: the
    second method of Wu, Lin and Weng (2004), Probability estimates for multi-class classification by pairwise
    coupling, JMLR 5.
    """
    first, second = np.array(list(combinations(range(k), 2))).T
    p = np.empty((len(r), k))
    for lo in range(0, len(r), _ROWS):
        part = np.clip(r[lo : lo + _ROWS], _CLIP, 1.0 - _CLIP)
        K = np.zeros((len(part), k + 1, k + 1))
        K[:, first, second] = K[:, second, first] = -part * (1.0 - part)
        for number, (i, j) in enumerate(zip(first, second, strict=True)):
            K[:, i, i] += part[:, number] ** 2
            K[:, j, j] += (1.0 - part[:, number]) ** 2
        K[:, k, :k] = K[:, :k, k] = 1.0
        right = np.zeros((len(part), k + 1, 1))
        right[:, k] = 1.0
        p[lo : lo + _ROWS] = np.linalg.solve(K, right)[:, :k, 0]
    p = np.maximum(p, 0.0)  # it is positive but for rounding
    return p / p.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Fitted models of all pairs of k classes, in the order (0, 1), (0, 2), ..., (k - 2, k - 1)."""

    pairs: tuple[Binary, ...]
    k: int
    loo: Scores
    loo_probability: Array

    @property
    def parts(self) -> tuple[Binary, ...]:
        """The models of the pairs."""
        return self.pairs

    def settled(self) -> Pairwise:
        """The same without the states of engines."""
        return replace(self, pairs=tuple(pair.settled() for pair in self.pairs))

    def _labels(self, classes: Any) -> list[str]:
        return [f"{a} | {b}" for a, b in combinations(classes.tolist(), 2)]

    def probability(self, X: Any, kind: str) -> Array:
        """Probabilities (rows, k) of the classes."""
        return couple(np.column_stack([pair.positive(X, kind) for pair in self.pairs]), self.k)

    def decision(self, X: Any, kind: str) -> Array:
        """Scores (rows, k): logarithms of the probabilities, centred."""
        score = np.log(np.maximum(self.probability(X, kind), 1e-300))
        return np.asarray(score - score.mean(axis=1, keepdims=True))

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n, pairs) of f of every pair."""
        drawn = [pair.sample(X, n, streams.child(number)) for number, pair in enumerate(self.pairs)]
        return np.stack(drawn, axis=-1)

    @property
    def chain_shape(self) -> tuple[int, int] | None:
        """Chains, and draws per chain, where a sampler kept them."""
        return self.pairs[0].chain_shape

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, with the pairs as a dimension, the last one of predictors."""
        parts = [pair.sampled(classes, wanted, streams.child(number)) for number, pair in enumerate(self.pairs)]
        drawn = diagnostics.stacked(parts, "pair", self._labels(classes))
        if wanted.rows is None:
            return drawn
        f = np.stack([part.f for part in parts if part.f is not None], axis=-1)
        spread = [part.spread for part in parts if part.spread is not None]
        return drawn._replace(f=f, spread=np.stack(spread, axis=-1) if spread else None)

    def summary(self, names: list[str], level: float, classes: Any) -> pd.DataFrame:
        """One row per coefficient and pair."""
        tables = {
            label: pair.summary(names, level) for label, pair in zip(self._labels(classes), self.pairs, strict=True)
        }
        frame = pd.concat(tables, names=["pair"]).swaplevel()
        return frame.loc[[*(["Intercept"] if "Intercept" in frame.index else []), *names]]


def by_model(model: Any, values: list[Any]) -> Any:
    """The value of the one model there is; of pairs an array with the pairs first, in the order of their models."""
    return np.array(values) if isinstance(model, Pairwise) else values[0]


def fit_pairwise(
    recipe: Recipe,
    X: Any,
    index: Any,
    count: Array,
    weight: Array,
    k: int,
    *,
    intercept: bool,
    standardized: bool,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Pairwise:
    """Fit every pair of the k classes in ``index`` on its own rows, pairs on the threads."""

    def one(number: int, rows: Any, sign: Array, stop: Event) -> Binary:
        own, plain = some_rows(recipe, X, rows)
        columns = kept_columns(plain, count[rows], intercept=intercept, standardized=standardized)
        part = (own, sign, count[rows], weight[rows], columns)
        task: dict[str, Any] = {"streams": streams.child(number), "callback": until(stop, callback), "part": True}
        return fit_two_classes(recipe, *part, **task)

    return paired(one, X, index, weight, k, workers)


def more_pairs(
    recipe: Recipe,
    before: Pairwise,
    X: Any,
    index: Any,
    count: Array,
    weight: Array,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Pairwise:
    """All pairs after more rows; a pair of which no row is there stays as it was."""

    def one(number: int, rows: Any, sign: Array, stop: Event) -> Binary:
        last = before.pairs[number]
        if not len(rows):
            return last
        task: dict[str, Any] = {"streams": streams.child(number), "callback": until(stop, callback)}
        pair: Binary = more_of_two_classes(recipe, last, X[rows], sign, count[rows], weight[rows], **task)
        return pair

    return paired(one, X, index, weight, before.k, workers)


def until(stop: Event, callback: Callable[[int, Any], bool] | None) -> Callable[[int, Any], bool]:
    """The callback of a run that also ends where ``stop`` is set."""
    return lambda iteration, info: bool(callback and callback(iteration, info)) or stop.is_set()


def _all_fitted(
    fit_pair: Callable[[int, Any, Array, Event], Binary], index: Any, wanted: Sequence[Any], workers: int
) -> list[Binary]:
    """The model of every pair; a run that was stopped ends the others, and those not begun leave no model at all."""
    stop = Event()

    def one(number: int, i: int, j: int) -> Binary | None:
        if stop.is_set():
            return None
        rows = np.flatnonzero((index == i) | (index == j))
        try:
            with watched(present().branch(number)):
                pair = fit_pair(number, rows, np.where(index[rows] == j, 1.0, -1.0), stop)
        except KeyboardInterrupt:  # before there was anything to keep
            stop.set()
            return None
        if pair.fit.outcome.interrupted:
            stop.set()
        return pair.settled()  # and with the states of its engine go its rows, wherever they are

    tasks = [partial(one, number, i, j) for number, (i, j) in wanted]
    found = [pair for pair in on_threads(tasks, workers, stop) if pair is not None]
    if len(found) < len(wanted):
        raise KeyboardInterrupt(
            f"interrupted when {len(found)} of {len(wanted)} pairs of classes had a model; all classes together need "
            "every pair, so none is kept."
        )
    return found


def paired(
    fit_pair: Callable[[int, Any, Array, Event], Binary], X: Any, index: Any, weight: Array, k: int, workers: int = 1
) -> Pairwise:
    """The models of all pairs and the leave-one-out scores of their coupling.

    ``fit_pair`` gets the number of a pair, the positions of its rows, their signs, and what ends it early when set.
    """
    wanted = list(enumerate(combinations(range(k), 2)))
    pairs = _all_fitted(fit_pair, index, wanted, workers)
    # a row's own pairs have left it out; the other pairs have never seen it
    r = read_rows(X, lambda part: np.column_stack([pair.positive(part, "calibrated") for pair in pairs]))
    for number, (i, j) in wanted:
        own = (index == i) | (index == j)
        if own.any():
            r[own, number] = pairs[number].fit.held.probability
    p = couple(r, k)
    true, wrong = p[np.arange(len(index)), index], (p.argmax(axis=1) != index).astype(float)
    total, loss, error = totals(weight, (weight, -np.log(np.maximum(true, 1e-300))), (weight, wrong)).tolist()
    scores = Scores(
        loss / total,
        error / total,
        float(np.max([pair.fit.loo.max_kv for pair in pairs])),
    )
    return Pairwise(tuple(pairs), k, scores, p)
