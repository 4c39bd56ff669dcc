"""A cold posterior beside the learned one, for classes that hardly overlap.

A learned scale of clean rows is far above the margin of the hinge, which then asks for no more than signs: the mean is
a compromise of all functions that separate the rows. At a high rate and a narrow prior the posterior is close to its
mode, a support vector machine whose cost is ``2 * rate * scale**2``; its spread still tells where rows are few.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.choices import Candidate, Refits, entropy, mean_and_error, refitted
from softmargin.models.kernel.choice import Settled
from softmargin.models.kernel.folds import SEARCHED, counted, ordered, refit_losses, sampled
from softmargin.models.kernel.levels import messages_at
from softmargin.models.kernel.search import ROUGH, WORTH, Before, KernelRows, Quick, Setting, kernel_prior, quick_fit

__all__ = ["TIGHT", "Cold", "colder"]

# C = 8: rows of clean classes are separated, with a margin of two prior standard deviations. Of the rates and scales
# with this C, from (4, 1) to (64, 1/4), which all predict alike, the middle has the steadiest link.
_RATE, _SCALE = 16.0, 0.5
_CLEAN = 0.5  # share of the entropy of the classes from which they overlap too much for hard margins
TIGHT = 1e-6  # tolerance: at 1e-4 rows at the margin have no stable curvature yet, and leave-one-out needs it
_STEP = 0.5  # step of the width, as a power of two: the learned posterior has found it to a factor of two
_FARTHEST = 2  # such steps at most to either side
# Widths of kernel smoothers fall with the power 1/5 of the rows, as they do here: 1000 rows of letters and of usps like
# them narrower by a quarter step than 400 of theirs, on seven splits.
_NARROWER = 0.2
_FOLDS = 3  # as for rates
_FREE = 1e-3  # precision of the intercept at a start


class Cold(NamedTuple):
    """A width at which the cold posterior predicts left-out rows better than the learned one, and its fit."""

    setting: Setting
    candidate: Candidate
    machine: Quick  # of some of the rows
    learned: bool  # whether the width is: one that is given stays

    def rows(self, rows: KernelRows, base: float = 1.0) -> KernelRows:
        """Rows under its rate and its prior, in units of ``base``."""
        return replace(rows.at_candidate(self.candidate), prior=kernel_prior(_SCALE, base))

    def among(self, size: int) -> Setting:
        """The kernel for a fit on ``size`` points; with many more than chose its width it is narrower."""
        if not self.learned:
            return self.setting
        return self.setting.wider(-_NARROWER * max(0.0, float(np.log2(size / SEARCHED))))

    def messages(self, rows: KernelRows, base: float) -> Neighbour:
        """What rows say at the predictors of the fit, for a fit to start from."""
        return messages_at(self.rows(rows, base), self.machine, base)

    @property
    def value(self) -> dict[str, Any]:
        """What a record says of it."""
        return _named(self.setting, self.candidate)


def _named(setting: Setting, candidate: Candidate) -> dict[str, Any]:
    return setting.value | {"tilt": candidate.tilt, "learning_rate": candidate.rate, "scale": _SCALE}


def colder(rows: KernelRows, settled: Settled, score: float) -> Cold | None:
    """The cold posterior, where refits of folds of some rows prefer it to the one that was settled on.

    It is not tried where classes overlap by the ``score`` of left-out rows, nor where rate, scale or weights are given,
    nor on so few rows that each of them shapes the fit: the closed-form scores, which make the link, flatter there.
    """
    request = settled.request
    free = isinstance(request.learning_rate, str) and request.tilts and rows.prior.learned
    free = free and len(rows.sign) > SEARCHED
    if not (free and rows.loss.margin_slope > 0.0 and score < _CLEAN * entropy(rows.label, rows.weight)):
        return None
    some = sampled(replace(rows, prior=kernel_prior("learn")), SEARCHED)
    warm = settled.machine
    if not isinstance(warm, Quick) or len(warm.fit.held.f) != len(some.sign):
        begin = _start(some.at_candidate(settled.candidate), settled)
        warm = _quick(some.at_candidate(settled.candidate), settled.setting, begin, ROUGH)
    cold = _searched(some, settled, warm)
    record, begun = settled.record, time.process_time()
    first = _refits(some, settled.setting, settled.candidate, warm, ROUGH)
    second = None if first is None else _refits(some, cold.setting, cold.candidate, cold.machine, TIGHT, first)
    if first is None or second is None:  # a class with too few rows
        return None
    half = 0.5 * (time.process_time() - begun)
    taken = settled.setting.value | {"tilt": settled.candidate.tilt, "learning_rate": settled.candidate.rate}
    for value, found in ((taken, first), (cold.value, second)):
        record.add(value, "folds", *mean_and_error(found.values, found.weight), half)
    if len(second.values) < len(first.values):
        return None
    gain, _ = mean_and_error(first.values - second.values, first.weight)
    return cold if gain > 0.0 else None


def _start(rows: KernelRows, settled: Settled) -> Before:
    """What rows say at the predictors of the machine that was settled on."""
    f, v = settled.machine.moments(rows.X)
    message = rows.loss.gaussian(rows.sign, rows.c, f, v)
    return Before(message.w, f, np.array([_FREE, settled.machine.fit.scale**-2.0]))


def _quick(rows: KernelRows, setting: Setting, before: Before, tol: float) -> Quick:
    machine = quick_fit(rows, setting, before, tol=tol)
    assert machine is not None
    return machine


def _searched(rows: KernelRows, settled: Settled, warm: Quick) -> Cold:
    """The cold posterior at the width whose leave-one-out score is lowest, by half steps from the learned one's.

    With the scale fixed, leave-one-out does not favour wide kernels at high rates.
    """
    candidate, before, record = Candidate(settled.candidate.tilt, _RATE), warm.left, settled.record
    learned = settled.request.length_scale == "learn" and settled.setting.kernel.length is not None

    def at(step: int) -> Cold:
        nonlocal before
        begun, setting = time.process_time(), settled.setting.wider(_STEP * step)
        cold = Cold(setting, candidate, warm, learned)
        cold = cold._replace(machine=_quick(cold.rows(rows), setting, before, TIGHT))
        before = cold.machine.left
        record.add(cold.value, "leave-one-out", cold.machine.loo.score, np.nan, time.process_time() - begun)
        return cold

    best = at(0)
    if not learned:
        return best
    for side in (-1, 1):
        for step in range(1, _FARTHEST + 1):
            other = at(side * step)
            gain = best.machine.loo.score - other.machine.loo.score
            if gain > 0.0:
                best = other
            if gain < WORTH:
                break
        if best.setting != settled.setting:
            break
    return best


def _refits(
    rows: KernelRows,
    setting: Setting,
    candidate: Candidate,
    whole: Quick,
    tol: float,
    rival: Refits | None = None,
) -> Refits | None:
    """Log losses of the rows under fits without their fold; what each row stands for."""
    loss = partial(refit_losses, rows, setting, candidate, whole, tol=tol)
    found = refitted(rows.label, ordered(rows, setting), rows.count, _FOLDS, loss, rival=rival)
    return None if found is None else found._replace(weight=found.weight * (counted(rows) / rows.count)[found.rows])
