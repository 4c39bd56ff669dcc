"""Width, tilt and learning rate that a few hundred rows chose, compared once more with many rows on inducing points.

A few hundred rows see the units of the columns and the width to a factor of two. More rows ask for other widths and
higher rates, and their leave-one-out scores say so: with more rows each supplies less of its own predictor.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.kernel.inducing import map_of_points
from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.choices import Candidate, Record
from softmargin.models.kernel.levels import Level, centres, fit_level, messages_at, model_on
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.plan import FEW
from softmargin.models.kernel.search import TRUSTED, WORTH, KernelRows, Setting

__all__ = ["Comparison", "Look"]

_ROUGH = 1e-4  # tolerance of fits that are compared
_STEPS = 40  # most steps of one of their runs
_CARRIED = 0.25  # share of the variance left undetermined up to which few points do not favour wide kernels
# By how much leave-one-out flatters a higher rate, where a row supplies at most this share of its own predictor:
# rounded from 71 sets with linear machines. In proportion, where rows are predicted so well that less is at stake.
_FLATTERY = ((0.7, 0.005), (0.8, 0.02))


def _flattery(max_kv: float, objective: float) -> float:
    """Fall of the objective that a higher rate must bring to be believed."""
    most = next((fall for limit, fall in _FLATTERY if max_kv <= limit), np.inf)
    return most * min(1.0, 4.0 * objective)


class Look(NamedTuple):
    """A fit of many rows at one width, tilt and rate."""

    setting: Setting
    candidate: Candidate
    level: Level

    @property
    def loo(self) -> Any:
        return self.level.held.loo

    @property
    def rank(self) -> tuple[bool, float]:
        """For one rate: smaller is better; a score that cannot be trusted comes last."""
        return not self.loo.max_kv <= TRUSTED, self.loo.score


class Comparison:
    """Fits of the same rows on the same points, each started from the messages of another one."""

    def __init__(self, rows: KernelRows, setting: Setting, record: Record):
        self.rows, self.record = rows, record
        self.points = centres(rows, setting, FEW)

    def at(self, setting: Setting, candidate: Candidate, start: Neighbour) -> Look:
        """The fit at a width, tilt and rate."""
        begun, rows = time.process_time(), self.rows.at_candidate(candidate)
        features = map_of_points(setting.kernel, self.points, setting.columns)
        model = model_on(rows, features, features.design(rows.X))
        level = fit_level(rows, features, model, tol=_ROUGH, state=start, max_iter=_STEPS, inner=True)
        value = {"n_inducing": features.size, **setting.value, "tilt": candidate.tilt, "learning_rate": candidate.rate}
        self.record.add(value, "leave-one-out", level.held.loo.score, np.nan, time.process_time() - begun)
        return Look(setting, candidate, level)

    def either(self, setting: Setting, rate: float, machine: KernelBinary) -> Look:
        """Tilted weights or plain ones, both from the same start: with these rows a plain fit may be a constant."""
        looks = [self.first(setting, Candidate(tilt, rate), machine) for tilt in (True, False)]
        return min(looks, key=lambda look: look.loo.objective)

    def first(self, setting: Setting, candidate: Candidate, machine: KernelBinary) -> Look:
        """The fit that starts from the predictors of a machine of other rows."""
        return self.at(setting, candidate, messages_at(self.rows.at_candidate(candidate), machine))

    def wider(self, best: Look, longest: float) -> Look:
        """Double the width as long as that helps and is worth a fit."""
        while best.setting.kernel.length is not None and 2.0 * best.setting.kernel.length <= longest:
            if best.level.undetermined > _CARRIED:
                break
            other = self.at(best.setting.wider(1.0), best.candidate, best.level.messages)
            if not other.rank < best.rank:
                break
            gain, best = best.loo.score - other.loo.score, other
            if gain < WORTH:
                break
        return best

    def higher(self, best: Look, rates: tuple[float, ...]) -> Look:
        """Raise the rate as long as the objective falls by more than leave-one-out flatters a higher one."""
        for rate in rates:
            other = self.at(best.setting, best.candidate._replace(rate=rate), best.level.messages)
            least = _flattery(other.loo.max_kv, best.loo.objective)
            if not best.loo.objective - other.loo.objective > least:
                break
            best = other
        return best
