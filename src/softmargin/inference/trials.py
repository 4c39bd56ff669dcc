"""Tilt and learning rate of one problem: the quick fits that the choice compares, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.core.array import Array, elementwise
from softmargin.core.model import Model
from softmargin.engines.mode.smoothed_start import picked
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.inference.choices import Candidate, Record, Refits, Rules, Trial, choose, entropy, refitted, tilted
from softmargin.inference.readout import HeldOut
from softmargin.inference.settings import Fit, Settings, rough
from softmargin.inference.variational import fit_vb
from softmargin.loo.folds import Part
from softmargin.loo.link import WORTH, fit_link
from softmargin.loo.refits import spread

__all__ = [
    "Apart",
    "Chosen",
    "Decision",
    "OutOfFold",
    "Trials",
    "at_candidate",
    "choices_table",
    "chosen_by",
    "finished",
    "linked_by",
    "loss_of",
    "out_of_fold",
    "quick_fit",
    "two_classes",
]

_FARTHEST = 16.0  # factor between starts at two rates beyond which a precision says nothing of the other
_LEAST = 1e-15  # probability below which a loss is not told apart


class Chosen(NamedTuple):
    """Tilt and rate of a fit, whether they were chosen here or given, and what was tried."""

    candidate: Candidate
    record: Record | None = None
    stretch: float = 1.0  # of posterior standard deviations, so that intervals cover at the rate that was chosen

    @classmethod
    def given(cls, rate: float) -> Chosen:
        """A rate that the user named, or that a likelihood has: the model as it stands."""
        return cls(Candidate(False, rate))


@dataclass(frozen=True, eq=False)
class Trials:
    """A problem whose tilt and rate are to be chosen; see ``softmargin.inference.choices.Task``."""

    quick: Callable[[Candidate, float], Fit | None]  # a fit of all rows; None where its scale fell below a limit
    loss: Callable[[Candidate, Fit, Part, Part], Array]  # log losses of rows under a fit to others, given one to all
    label: Any  # class of every row, from zero on
    count: Array
    order: Callable[[], Array]  # in which rows are dealt to folds; asked for where there are any
    tilts: bool
    base: float = Rules.base
    covers: float = Rules.base  # rate whose posterior standard deviations cover
    rules: Rules = field(default_factory=Rules)

    @property
    def entropy(self) -> float:
        """Log loss of the class shares."""
        return entropy(self.label, self.count)

    @property
    def even(self) -> bool:
        """Whether all classes have the same share."""
        return len(np.unique(np.bincount(self.label, self.count))) == 1

    def trial(self, candidate: Candidate, least: float = 0.0) -> Trial | None:
        """A quick fit and its leave-one-out score."""
        fit = self.quick(candidate, least)
        if fit is None:
            return None
        if fit.outcome.interrupted:
            raise KeyboardInterrupt("interrupted while the learning rate was being chosen")
        return self.made(fit)

    def made(self, fit: Fit) -> Trial:
        """What a quick fit is compared by."""
        return Trial(fit.loo.objective, fit.loo.max_kv, fit.scale, fit)

    def refits(self, candidate: Candidate, trial: Trial, rival: Refits | None = None) -> Refits | None:
        """Log loss of every row under a fit, link included, without its fold; see ``refitted``."""
        loss = partial(self.loss, candidate, trial.fit)
        return refitted(self.label, self.order(), self.count, self.rules.folds, loss, rival=rival)


class Decision(NamedTuple):
    """What is chosen, its quick fit, and the tilted fit to fall back on where the plain one was taken.

    A plain fit may be at one of two optima of the scale, and the whole fit then finds the one next to zero.
    """

    chosen: Chosen
    fit: Any
    tilted: Fit | None = None
    least: float = 0.0  # scale from which a plain fit is kept

    def collapsed(self, fit: Fit) -> bool:
        """Whether the whole fit has a scale that the quick one would have been dropped for."""
        return self.tilted is not None and fit.scale < self.least

    def instead(self) -> Decision:
        """The tilted fit in its place."""
        record = self.chosen.record
        assert record is not None and self.tilted is not None
        candidate = Candidate(True, Rules.base)
        record.taken = record.taken | {"tilt": True, "learning_rate": candidate.rate}
        return Decision(Chosen(candidate, record), self.tilted)


def chosen_by(trials: Trials) -> Decision:
    """What is chosen, and its quick fit."""
    candidate, trial, record, other, least = choose(trials, trials.rules)
    chosen = Chosen(candidate, record, max(1.0, math.sqrt(candidate.rate / trials.covers)))
    return Decision(chosen, trial.fit, None if other is None else other.fit, least)


def choices_table(models: Any, classes: Any) -> pd.DataFrame:
    """All that was tried for the fitted models, one line per score; with the pair where there are several."""
    records = [None if model.chosen is None else model.chosen.record for model in models]
    tables = [Record().table() if record is None else record.table() for record in records]
    if len(tables) == 1:
        return tables[0]
    pairs = [f"{a} | {b}" for a, b in combinations(classes.tolist(), 2)]
    named = {pair: table for pair, table in zip(pairs, tables, strict=True) if len(table)}
    return pd.concat(named, names=["pair"]).reset_index(level=0).reset_index(drop=True) if named else tables[0]


def two_classes(
    recipe: Any,
    quick: Callable[[Candidate, float], Fit | None],
    loss: Callable[[Candidate, Fit, Part, Part], Array],
    label: Any,
    count: Array,
    order: Callable[[], Array],
) -> Trials:
    """The choice for two classes; a rate above the base would let a prior that selects take too many columns.

    With missing entries the rate stays at the base too: refits of them take too long.
    """
    rules = Rules(steps=()) if recipe.selects or recipe.incomplete else Rules(lower=(0.5, 0.25, 0.125))
    return Trials(quick, loss, label, count, order, recipe.tilts, rules=rules)


def at_candidate(model: Model, settings: Settings, candidate: Candidate) -> tuple[Model, Settings]:
    """A problem of two classes with the weights of a candidate; the link counts every observation once, and is free.

    A tilted f is zero where a class is as probable as its share, so the link has to place the boundary.
    """
    readout: Any = settings.readout
    weight = elementwise(lambda each: candidate.rate * each, model.c)
    if candidate.tilt:
        weight = weight * tilted((model.y > 0.0).astype(np.uint8), readout.weight)
        settings = replace(settings, readout=replace(readout, free_offset=True))
    return model.with_weight(weight), settings


def quick_fit(
    model: Model,
    settings: Settings,
    candidate: Candidate,
    least: float = 0.0,
    near: tuple[Candidate, Fit] | None = None,
) -> Fit | None:
    """A Gaussian fit without the spread of its scale; None as soon as the scale falls below ``least``.

    ``near`` is the fit of another candidate: with the same weights at another rate its curvatures are a good start.
    """
    own, quiet = at_candidate(model, _quiet(settings), candidate)
    start = None
    if near is not None and near[0].tilt == candidate.tilt and isinstance(near[1].vi.q.root, np.ndarray):  # type: ignore[union-attr]
        before: Any = near[1].vi
        start = GaussianVI().at(own, before.ku * (candidate.rate / near[0].rate), before.Du, before.q.mean)
    return fit_vb(own, quiet, least=least, start=start)


def finished(model: Model, settings: Settings, fit: Fit) -> Fit:
    """A quick fit of a model run on to the tolerance asked for; what it says of rows left out is found at the end."""
    if fit.outcome.interrupted:
        return fit
    done: Fit = fit_vb(model, replace(settings, options={}, callback=None), start=fit.vi, held=False)
    done.outcome.n_iter += fit.outcome.n_iter
    done.outcome.trace[:0] = fit.outcome.trace
    return done


def _quiet(settings: Settings) -> Settings:
    """Settings of fits that are only compared."""
    return rough(replace(settings, readout=settings.readout.quick()))


def loss_of(p: Array, label: Any) -> Array:
    """Log losses of rows with class probabilities p (rows, classes)."""
    return -np.log(np.maximum(p[np.arange(len(label)), label], _LEAST))


class _Fold(NamedTuple):
    """A fit without a fold of the rows, and the one of all rows at the same rate."""

    candidate: Candidate
    whole: VIState
    ku: Array
    Du: Array
    mean: Array

    def moved_to(self, new: VIState, index: Any) -> tuple[Array, Array, Array]:
        """A start for the fit without that fold at another rate: changed as the fit of all rows is."""
        old, mean = self.whole, self.mean + new.q.mean - self.whole.q.mean
        return self.ku * _ratio(new.ku, old.ku)[index], self.Du * _ratio(new.Du, old.Du), mean


def _ratio(new: Array, old: Array) -> Array:
    """What an element is multiplied by, as far as a start should go."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.clip(np.nan_to_num(new / old, nan=1.0), 1.0 / _FARTHEST, _FARTHEST)


@dataclass(frozen=True, eq=False)
class Apart:
    """Quick fits of a problem without some of its rows, each made once."""

    model: Model
    settings: Settings
    found: dict[Any, tuple[Array, Array, Any]] = field(default_factory=dict)
    latest: dict[Any, _Fold] = field(default_factory=dict)  # the last fit without the same rows

    def moments(self, candidate: Candidate, whole: VIState, train: Part, test: Part) -> tuple[Array, Array, Any]:
        """Mean and variance of the predictors of ``test`` rows under a fit of the ``train`` rows, and its link.

        ``whole`` is the candidate's fit of all rows.
        """
        rows = (test.rows.tobytes(), test.share.tobytes())
        if (candidate, *rows) not in self.found:
            fit = self._fitted(candidate, whole, train, self.latest.get(rows))
            assert fit.vi is not None
            self.latest[rows] = _Fold(candidate, whole, fit.vi.ku, fit.vi.Du, fit.vi.q.mean)
            f, v = picked(self.model, test.rows).blocks.moments(fit.vi.q.mean, fit.vi.q.root)
            self.found[(candidate, *rows)] = f, v, fit.loo.link
        return self.found[(candidate, *rows)]

    def _fitted(self, candidate: Candidate, whole: VIState, train: Part, latest: _Fold | None) -> Fit:
        readout: Any = self.settings.readout
        index, share = train
        part = np.minimum(1.0, readout.part[index] / share)  # of what is left of a row's observations, one
        readout = replace(readout, part=part, weight=readout.weight[index] * share)
        some = picked(self.model, index)
        some = some.with_weight(some.c * share)
        own, quick = at_candidate(some, _quiet(replace(self.settings, readout=readout)), candidate)
        start = None
        if isinstance(whole.q.root, np.ndarray):
            if latest is not None and latest.candidate.tilt == candidate.tilt:
                start = GaussianVI().at(own, *latest.moved_to(whole, index))
            else:  # from the fit of all rows, which is near
                start = GaussianVI().at(own, whole.ku[index] * share, whole.Du, whole.q.mean)
        fit: Fit = fit_vb(own, quick, start=start)
        if fit.outcome.interrupted:
            raise KeyboardInterrupt("interrupted while the learning rate was being chosen")
        return fit

    def loss(self, candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
        """Log losses of the rows ``test`` under a fit of the rows ``train``, link included."""
        assert whole.vi is not None
        f, v, link = self.moments(candidate, whole.vi, train, test)
        p = link.probability(f, v)
        return loss_of(np.column_stack((1.0 - p, p)), (self.model.y[test.rows] > 0.0).astype(np.intp))


class OutOfFold(NamedTuple):
    """Moments of predictors of rows under a fit without their fold, and how many observations each stands for."""

    f: Array
    v: Array
    rows: Any
    weight: Array
    folds: int
    smooth: bool = False  # whether the link takes Platt's targets


def out_of_fold(
    parts: Apart,
    candidate: Candidate,
    whole: VIState,
    label: Any,
    order: Array,
    k: int,
    *,
    together: bool = False,
) -> OutOfFold | None:
    """The same of all rows, by refits of k folds, copies ``together``; None where a class has a single row."""
    variances: list[Array] = []

    def mean(train: Part, test: Part) -> Array:
        f, v, _ = parts.moments(candidate, whole, train, test)
        variances.append(v)
        return f

    weight = parts.settings.readout.weight
    found = refitted(label, order, weight, k, mean, together=together)
    return None if found is None else OutOfFold(found.values, np.concatenate(variances), found.rows, found.weight, k)


def linked_by(refits: OutOfFold, model: Model, settings: Settings, fit: Fit) -> Fit:
    """A fit whose left-out predictors, and the link fitted on them, are those of refits."""
    readout: Any = settings.readout
    worth = 0.0 if readout.free_offset else WORTH
    how = {"offset": readout.columns.intercept, "worth": worth, "wrong": readout.wrong, "tol": readout.tol}
    f, v, rows, weight, folds, smooth = refits
    f, v = spread(f, v, model, fit.vi, fit.posterior)
    loo = fit_link(model.y[rows], f, v, weight, fit.loo.max_kv, smooth=smooth, **how)
    total = np.bincount(rows, weight)
    f, v = (np.bincount(rows, weight * value) / total for value in (f, v))  # of each row, over the folds it is in
    return fit._replace(held=HeldOut(f, v, loo._replace(method=f"refits of {folds} folds")))
