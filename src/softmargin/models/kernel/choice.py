"""What is chosen for a kernel machine before it is fitted: units of the columns, width, tilt and learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.kernel.kernels import Kernel
from softmargin.designs.standardize import Columns
from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.choices import Candidate, Part, Record, Refits, Rules, Trial, choose, refitted
from softmargin.inference.settings import Fit
from softmargin.inference.trials import Trials, loss_of, row_order
from softmargin.models.kernel.search import (
    Before,
    KernelRows,
    Quick,
    Search,
    Setting,
    kernel_prior,
    quick_fit,
    settings_of,
)
from softmargin.rows.streams import Purpose

__all__ = ["Request", "Settled", "settle"]

_TIGHT = 1e-8  # share of the variance that refits may leave out: they predict new rows, with all of their variance
_SLAB = 2048  # rows at a time
_SEARCHED = 400  # rows, at most, that choices are made on
_SHARE = 0.25  # of these that a rare class has where it has so many: a handful of them cannot choose
# Steps by refits of three folds, and where leave-one-out does not object: a scale that runs away shows there first.
# A flat plain fit may rank well, and has no coefficients.
_RULES = Rules(steps=(2.0, 4.0), gate=0.0, folds=3, dropped=0.0)
# With more rows than the choice sees a higher rate costs less and gains more: there folds decide alone, by any gain.
_PART = replace(_RULES, gate=-np.inf, errors=0.0)


class Request(NamedTuple):
    """What the user gave and what is left to choose."""

    kernel: Any
    length_scale: Any
    scaled: bool | str
    learning_rate: float | str
    tilts: bool  # whether tilted weights may be tried


class Settled(NamedTuple):
    """What was given or chosen, with the quick fit of it."""

    setting: Setting
    middle: float | None  # length that the search began with
    candidate: Candidate
    machine: Quick
    record: Record
    whole: bool  # whether the quick fit was one of all rows

    @property
    def kernel(self) -> Kernel:
        return self.setting.kernel

    @property
    def columns(self) -> Columns | None:
        return self.setting.columns

    def messages(self, rows: KernelRows, base: float) -> Neighbour:
        """What all rows say at the predictors of the quick fit, for a fit in units of ``base`` to start from.

        Wide kernels have a second, worse optimum with a small scale, into which a fit started from nothing falls.
        """
        state, scale = self.machine.fit.vi, self.machine.fit.scale / base
        if self.whole and state is not None:
            return Neighbour(state.message.w, state.message.b, scale)
        parts = [self.machine.moments(rows.X[lo : lo + _SLAB]) for lo in range(0, len(rows.sign), _SLAB)]
        f, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        message = rows.loss.gaussian(rows.sign, rows.c, f, v)
        return Neighbour(message.w, message.b, scale)


def settle(rows: KernelRows, request: Request) -> Settled:
    """Units and width by leave-one-out at the lowest rate, tilt by leave-one-out there, then the rate by refits.

    All on some of the rows where there are many. One search for the width serves both tilts: it is made with tilted
    weights where they may be tried, since a plain fit on its way to a constant says nothing about widths.
    """
    some, record = _sampled(rows), Record()
    auto, likelihood = isinstance(request.learning_rate, str), rows.loss.normalised
    given = None if auto and not likelihood else Candidate(False, 1.0 if auto else float(request.learning_rate))
    first = Candidate(request.tilts, _RULES.base)
    if given is not None:  # leave-one-out flatters wide kernels at high rates of a hinge
        first = given if likelihood else Candidate(False, min(given.rate, _RULES.base))
    setting, middle, tried, before = _width(some.at_candidate(first), request, record)
    known = {} if tried is None else {first: tried}
    if given is None:
        rules = _RULES if some is rows else _PART
        candidate, machine = _chosen(some, setting, request.tilts, known, before, record, rules)
    else:
        candidate = given
        machine = known[given] if given in known else _quick(some.at_candidate(given), setting, before)
    record.taken = setting.value | {"tilt": candidate.tilt, "learning_rate": candidate.rate}
    return Settled(setting, middle, candidate, machine, record, some is rows)


def _sampled(rows: KernelRows) -> KernelRows:
    """Some of the rows, more of a rare class than its share.

    A row of that class weighs what it does in all rows, which is what tilted weights go by, and the other class as much
    more as it does there.
    """
    n, label = len(rows.sign), rows.label
    if n <= _SEARCHED:
        return rows
    rng = rows.streams.at(Purpose.START)
    classes = [np.flatnonzero(label == 0), np.flatnonzero(label == 1)]
    rare = int(len(classes[1]) < len(classes[0]))
    few = min(len(classes[rare]), round(_SEARCHED * max(_SHARE, len(classes[rare]) / n)))
    sizes = [few, _SEARCHED - few] if rare == 0 else [_SEARCHED - few, few]
    index = np.sort(np.concatenate([rng.choice(own, k, replace=False) for own, k in zip(classes, sizes, strict=True)]))
    some = rows.take(index)
    times = np.bincount(label, rows.weight) / np.bincount(some.label, some.weight)
    return replace(some, weight=some.weight * (times / times[rare])[some.label])


def _quick(rows: KernelRows, setting: Setting, before: Before | None, **options: float) -> Quick:
    machine = quick_fit(rows, setting, before, **options)
    assert machine is not None
    return machine


def _width(
    rows: KernelRows, request: Request, record: Record
) -> tuple[Setting, float | None, Quick | None, Before | None]:
    """The kernel to take, the length its search began with, the fit of it if there is one, and one to start from."""
    kernel, length, scaled, *_ = request
    settings = settings_of(rows, kernel, length, scaled)
    search = Search(rows, record)
    if not isinstance(length, str) and settings[0].kernel.length is not None:
        # a kernel far from the mean distance has a second, worse optimum; fits started from the mean distance avoid it
        search.last = _quick(rows, settings_of(rows, kernel, "mean-distance", scaled)[0], None).left
    learned = length == "learn" and settings[0].kernel.length is not None
    if not learned and len(settings) == 1:
        return settings[0], settings[0].kernel.length, None, search.last
    best = min((search.at(setting, 0.0) for setting in settings), key=lambda one: one.rank)
    if learned:
        best = search.refined(search.climb(best))
    return best.setting.wider(best.step), best.setting.kernel.length, best.machine, best.machine.left


@dataclass(frozen=True, eq=False, kw_only=True)
class _SampledTrials(Trials):
    """Trials on some of the rows, where ``count`` is what each stands for: folds deal out the rows that are there.

    Were they dealt out by what they stand for, a row would be split over folds and help to predict itself.
    """

    observed: Array

    def refits(self, candidate: Candidate, trial: Trial) -> Refits | None:
        loss = partial(self.loss, candidate, trial.fit)
        found = refitted(self.label, self.order, self.observed, self.rules.folds, loss)
        if found is None:
            return None
        return found._replace(weight=found.weight * (self.count / self.observed)[found.rows])


def _chosen(
    rows: KernelRows,
    setting: Setting,
    tilts: bool,
    known: dict[Candidate, Quick],
    before: Before | None,
    record: Record,
    rules: Rules,
) -> tuple[Candidate, Quick]:
    """Tilt and learning rate at the width found, and the quick fit with them; ``known`` are fits that were made."""
    machines = dict(known)

    def quick(candidate: Candidate, least: float) -> Fit | None:
        if candidate in known:
            return known[candidate].fit
        machine = quick_fit(rows.at_candidate(candidate), setting, before, least=least)
        if machine is None:
            return None
        machines[candidate] = machine
        return machine.fit

    def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
        state = machines[candidate].left  # started from nothing, wide kernels may end in a worse optimum
        index, share = train
        start = Before(state.ku[index] * share, state.f[index], state.Du)
        some = rows.take(index)
        prior = kernel_prior(machines[candidate].fit.scale)  # that of all rows: learned anew it takes most of the steps
        some = replace(some, count=some.count * share, weight=some.weight * share, prior=prior)
        machine = _quick(some.at_candidate(candidate), setting, start, loose=_TIGHT)
        return loss_of(machine.probability(rows.X[test.rows], "calibrated"), rows.label[test.rows])

    order, count = row_order(rows.X), rows.weight * (rows.count.sum() / rows.weight.sum())  # as many as there are rows
    trials = _SampledTrials(quick, loss, rows.label, count, order, tilts, rules=rules, observed=rows.count)
    choice = choose(trials, rules)
    new = choice.record.entries[len(known) :]  # those that are known come first, and are in the record
    record.entries += [entry._replace(value=setting.value | entry.value) for entry in new]
    return choice.candidate, machines[choice.candidate]
