"""A cold posterior beside the learned one, for classes that hardly overlap.

A learned scale of clean rows is far above the margin of the hinge, which then asks for no more than signs: the mean is
a compromise of all functions that separate the rows. At a high rate and a narrow prior the posterior is close to its
mode, a support vector machine whose cost is ``2 * rate * scale**2``; its spread still tells where rows are few.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.choices import Candidate, Record, entropy, refitted
from softmargin.loo.folds import Part
from softmargin.loo.link import WORTH, fit_link
from softmargin.models import cold as linear
from softmargin.models.kernel.choice import Settled
from softmargin.models.kernel.folds import counted, ordered, refit, sampled
from softmargin.models.kernel.levels import messages_at
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.search import WORTH as ENOUGH
from softmargin.models.kernel.search import Before, KernelRows, Setting, kernel_prior

__all__ = ["RATE", "SPREAD", "TIGHT", "Cold", "colder"]

# The cost of linear rows. Of the rates and spreads that have it, on 14 sets by four splits, (32, 0.35) has 0.05 %
# fewer errors (standard error 0.02) and a lower log loss (0.0005, 0.0003) than (16, 1/2), and is level with it where
# all rows are easy; (64, 1/4) has 0.06 % fewer, and links that are too sure of easy rows.
RATE = 32.0
SPREAD = math.sqrt(linear.RATE * linear.SPREAD**2 / RATE)
_CLEAN = 2.0 / 3.0  # share of the entropy of the classes from which they overlap too much for hard margins
TIGHT = 1e-6  # tolerance: at 1e-4 rows at the margin have no stable curvature yet; leave-one-out needs it, folds do not
_STEP = 0.5  # step of the width, as a power of two: the learned posterior has found it to a factor of two
_FARTHEST = 2  # such steps at most to either side
_JUDGED = 600  # rows, at most, that are dealt to folds: where 267 rows fit and not 400, hard margins gain too little
# Widths of kernel smoothers fall with the power 1/5 of the rows; up to 1000 rows it makes no difference, on 14 draws.
_NARROWER = 0.2
_FOLDS = 3  # as for rates
_FREE = 1e-3  # precision of the intercept at a start


class Cold(NamedTuple):
    """A width at which the cold posterior predicts left-out rows better than the learned one."""

    setting: Setting
    candidate: Candidate
    machine: KernelBinary  # the learned one, of some of the rows
    learned: bool  # whether the width is: one that is given stays

    def rows(self, rows: KernelRows, base: float = 1.0) -> KernelRows:
        """Rows under its rate and its prior, in units of ``base``."""
        return replace(rows.at_candidate(self.candidate), prior=kernel_prior(SPREAD, base))

    def among(self, size: int) -> Setting:
        """The kernel for a fit on ``size`` points; with many more than chose its width it is narrower."""
        if not self.learned:
            return self.setting
        return self.setting.wider(-_NARROWER * max(0.0, float(np.log2(size / _JUDGED))))

    def messages(self, rows: KernelRows, base: float) -> Neighbour:
        """What rows say at the learned predictors, for a fit to start from."""
        return messages_at(self.rows(rows, base), self.machine, base)._replace(scale=SPREAD / base)

    @property
    def value(self) -> dict[str, Any]:
        """What a record says of it."""
        setting, candidate = self.setting, self.candidate
        return setting.value | {"tilt": candidate.tilt, "learning_rate": candidate.rate, "scale": SPREAD}


def colder(rows: KernelRows, settled: Settled, score: float) -> Cold | None:
    """The cold posterior, where refits of folds of some rows prefer it to the one that was settled on.

    It is not tried where classes overlap by the ``score`` of left-out rows, nor where rate, scale or weights are given.
    Rows without an outlier among them are predicted well by either, and the cold one is too sure of itself there: what
    it gains must be more than a penalty's worth of log likelihood.
    """
    request, candidate = settled.request, settled.candidate
    free = isinstance(request.learning_rate, str) and request.tilts and rows.prior.learned
    if not (free and rows.loss.margin_slope > 0.0 and score < _CLEAN * entropy(rows.label, rows.weight)):
        return None
    folds = _folds(sampled(rows, _JUDGED), settled)
    taken = settled.setting.value | {"tilt": candidate.tilt, "learning_rate": candidate.rate}
    warm = folds.score(settled.setting, candidate, settled.machine.fit.scale, taken)
    learned = request.length_scale == "learn" and settled.setting.kernel.length is not None
    cold, least = folds.searched(Cold(settled.setting, candidate._replace(rate=RATE), settled.machine, learned))
    return cold if (warm - least) * folds.rows.count.sum() > WORTH else None


class _Folds(NamedTuple):
    """Refits of folds of some rows, started from the predictors of the machine that was settled on."""

    rows: KernelRows
    order: Array
    f: Array
    v: Array
    record: Record
    latest: dict[Any, Before]  # what the last fit of the same fold left, at another width

    def score(self, setting: Setting, candidate: Candidate, scale: float, value: dict[str, Any]) -> float:
        """Log loss of left-out rows under one link of all of them; infinite where a class has too few rows.

        With a link for every fold the score would say how sure of itself each one happens to be, not which width
        orders the rows well: one that comes from the leave-one-out scores of few clean rows is off by a lot.
        """
        begun, rows = time.process_time(), self.rows
        w = rows.loss.gaussian(rows.sign, rows.at_candidate(candidate).c, self.f, self.v).w
        settled = Before(w, self.f, np.array([_FREE, scale**-2.0]))

        def moments(train: Part, test: Part) -> Array:
            fold = candidate, train.rows.tobytes(), train.share.tobytes()
            machine = refit(rows, setting, candidate, self.latest.get(fold, settled), scale, train)
            self.latest[fold] = machine.left.of_all(train, len(rows.sign))
            return np.stack(machine.moments(rows.X[test.rows]), axis=1)

        found = refitted(rows.label, self.order, rows.count, _FOLDS, moments)
        if found is None:
            return np.inf
        f, v = np.ascontiguousarray(found.values.T)
        weight = found.weight * (counted(rows) / rows.count)[found.rows]
        score = fit_link(rows.sign[found.rows], f, v, weight, 0.0, worth=0.0 if candidate.tilt else WORTH).score
        self.record.add(value, "folds", score, np.nan, time.process_time() - begun)
        return score

    def searched(self, cold: Cold) -> tuple[Cold, float]:
        """The cold posterior at the width with the lowest score, by half steps from the learned one's.

        Leave-one-out does not tell these widths apart: a row that is taken out moves the curvatures of its neighbours.
        """

        def at(step: int) -> tuple[Cold, float]:
            other = cold._replace(setting=cold.setting.wider(_STEP * step))
            return other, self.score(other.setting, other.candidate, SPREAD, other.value)

        best, least = at(0)
        if not (cold.learned and np.isfinite(least)):
            return best, least
        for side in (-1, 1):
            for step in range(1, _FARTHEST + 1):
                other, score = at(side * step)
                gain = least - score
                if gain > 0.0:
                    best, least = other, score
                if gain < ENOUGH:
                    break
            if best.setting != cold.setting:
                break
        return best, least


def _folds(rows: KernelRows, settled: Settled) -> _Folds:
    return _Folds(rows, ordered(rows, settled.setting), *settled.machine.moments(rows.X), settled.record, {})
