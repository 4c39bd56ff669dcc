"""Many more columns than rows: a second candidate for a learned scale, and refits in place of leave-one-out formulas.

With so many columns every labelling can be separated at any scale, so the rows do not say what the scale is. Under a
wide prior a margin of 1 is nothing: the posterior only knows signs, the predictors of all rows lie far outside the
margin, and the posterior mean of the intercept runs to the larger class. Under a narrow prior with a steep loss the
rows sit at their margins, as in the support vector machine itself. Which of the two predicts better is a question for
rows left out, and here the closed form flatters: a row is most of what its own predictor knows. All fits live in the
space of the few rows, so that real refits are cheap; they choose, and the link is fitted on them.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.inference.choices import Candidate, Record, Rules
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.trials import Apart, Chosen, OutOfFold, out_of_fold, quick_fit
from softmargin.loo.link import fit_link
from softmargin.priors.ridge import Ridge

__all__ = ["RATE", "SPREAD", "Wide", "choose_wide", "is_wide", "learns_scale", "squared_length"]

_MANY = 10  # columns per row
SPREAD = 0.25  # prior standard deviation of the predictor of a row of mean length, under the narrow prior
RATE = 16.0  # learning rate that goes with it
_FOLDS = 10
_ALIKE = 1e-9  # share of the squared length of rows below which they are copies of each other, but for rounding
_FEW = 300  # rows, at most, for which so many refits are cheap


class Wide(NamedTuple):
    """What is chosen: tilt and rate, the fixed scale of the narrow prior or None, its fit, and predictors of refits."""

    chosen: Chosen
    scale: float | None
    first: Fit
    refits: OutOfFold | None  # None where no row was predicted wrongly: there the closed form stays

    def model(self, usual: Model) -> Model:
        """The model under the prior that was chosen."""
        prior: Any = usual.prior
        return usual if self.scale is None else usual.with_prior(prior.at_scale(self.scale))


def is_wide(recipe: Any, columns: int, count: Array) -> bool:
    """Whether columns outnumber rows by far and the scale of a normal prior is left to us."""
    rows = float(np.maximum(count, 1.0).sum())  # a weight of 2 is two rows, one of 0.1 is still a row
    return learns_scale(recipe) and columns >= _MANY * rows and len(count) <= _FEW


def learns_scale(recipe: Any) -> bool:
    """Whether the scale of a normal prior is left to us, and there is a posterior for it to matter to.

    The mode stays: it is one and the same at every scale that is large enough.
    """
    ours = isinstance(recipe.prior, Ridge) and recipe.prior.learned and recipe.prior.hyperprior is None
    return ours and recipe.inference != "map"


def choose_wide(
    model: Model, settings: Settings, *, tilts: bool, label: Any, count: Array, order: Array
) -> Wide | None:
    """The usual prior or the narrow one, by the log loss of refits; None where a class has a single row.

    The link of the refits has Platt's targets, which bound the confidence that a few rows can give, and a free offset.
    """
    prior: Any = model.prior
    length = squared_length(model.blocks.design, count)
    if length is None:
        return None
    record, found = Record(), []
    for scale, rate in ((None, Rules.base), (SPREAD / math.sqrt(length), RATE)):
        begun, candidate = time.process_time(), Candidate(tilts, rate)
        own = model if scale is None else model.with_prior(prior.at_scale(scale))
        fit = quick_fit(own, settings, candidate)
        assert fit is not None and fit.vi is not None
        refits = out_of_fold(Apart(own, settings), candidate, fit.vi, label, order, _FOLDS, together=True)
        if refits is None:
            return None
        seen = (model.y[refits.rows], refits.f, refits.v, refits.weight)
        link = fit_link(*seen, fit.loo.max_kv, worth=0.0, smooth=True)
        value = {"tilt": tilts, "learning_rate": rate, "scale": "learned" if scale is None else scale}
        record.add(value, "folds", link.objective, float("nan"), time.process_time() - begun)
        kept = None if link.error == 0.0 else refits._replace(smooth=True)
        found.append((link.objective, value, Wide(Chosen(candidate, record), scale, fit, kept)))
    _, record.taken, wide = min(found, key=lambda entry: entry[0])
    return wide


def squared_length(design: Any, count: Array) -> float | None:
    """Mean squared length of a row, around the mean row where an intercept takes that up; None where that is all.

    None too where entries are missing, so that lengths are not known.
    """
    total = float(count.sum())
    length = float(count @ design.norms()) / total
    if not math.isfinite(length):
        return None
    if not design.intercept:
        return length
    mean = design.rmatvec(count)[1:] / total
    around = length - float(mean @ mean)
    return around if around > _ALIKE * length else None
