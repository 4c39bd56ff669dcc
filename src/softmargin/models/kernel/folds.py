"""Some of the rows, and refits of folds of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from softmargin.core.array import Array
from softmargin.inference.choices import Candidate, Refits, Trial, refitted
from softmargin.inference.trials import Trials
from softmargin.loo.folds import Part, row_order
from softmargin.models.kernel.search import Before, KernelRows, Quick, Setting, kernel_prior, quick_fit
from softmargin.rows.streams import Purpose

__all__ = ["SEARCHED", "SampledTrials", "counted", "ordered", "refit", "sampled"]

SEARCHED = 400  # rows, at most, that a width is searched on
_SHARE = 0.25  # of these that a rare class has where it has so many: a handful of them cannot choose
_TIGHT = 1e-8  # share of the variance that refits may leave out: they predict new rows, with all of their variance


def sampled(rows: KernelRows, size: int) -> KernelRows:
    """At most ``size`` of the rows, more of a rare class than its share.

    A row of that class weighs what it does in all rows, which is what tilted weights go by, and the other class as much
    more as it does there.
    """
    n, label = len(rows.sign), rows.label
    if n <= size:
        return rows
    rng = rows.streams.at(Purpose.START)
    classes = [np.flatnonzero(label == 0), np.flatnonzero(label == 1)]
    rare = int(len(classes[1]) < len(classes[0]))
    few = min(len(classes[rare]), round(size * max(_SHARE, len(classes[rare]) / n)))
    sizes = [few, size - few] if rare == 0 else [size - few, few]
    index = np.sort(np.concatenate([rng.choice(own, k, replace=False) for own, k in zip(classes, sizes, strict=True)]))
    some = rows.take(index)
    times = np.bincount(label, rows.weight) / np.bincount(some.label, some.weight)
    return replace(some, weight=some.weight * (times / times[rare])[some.label])


def counted(rows: KernelRows) -> Array:
    """What each row stands for, as many as there are rows."""
    return np.asarray(rows.weight * (rows.count.sum() / rows.weight.sum()))


def ordered(rows: KernelRows, setting: Setting) -> Array:
    """The order in which rows are dealt to folds: in the columns that the kernel sees, units do not matter."""
    return row_order(rows.X, setting.columns, rows.label, counted(rows))


def refit(
    rows: KernelRows,
    setting: Setting,
    candidate: Candidate,
    before: Before,
    scale: float,
    train: Part,
) -> Quick:
    """A fit of some rows, started from one of all.

    The prior ``scale`` is given: learned anew it takes most of the steps.
    """
    index, share = train  # started from nothing, wide kernels may end in a worse optimum
    start = Before(before.ku[index] * share, before.f[index], before.Du)
    some = rows.take(index)
    prior = kernel_prior(scale)
    some = replace(some, count=some.count * share, weight=some.weight * share, prior=prior)
    machine = quick_fit(some.at_candidate(candidate), setting, start, loose=_TIGHT)
    assert machine is not None
    return machine


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledTrials(Trials):
    """Trials on some of the rows, where ``count`` is what each stands for: folds deal out the rows that are there.

    Were they dealt out by what they stand for, a row would be split over folds and help to predict itself.
    """

    observed: Array

    def refits(self, candidate: Candidate, trial: Trial, rival: Refits | None = None) -> Refits | None:
        loss = partial(self.loss, candidate, trial.fit)
        found = refitted(self.label, self.order(), self.observed, self.rules.folds, loss, rival=rival)
        if found is None:
            return None
        return found._replace(weight=found.weight * (self.count / self.observed)[found.rows])
