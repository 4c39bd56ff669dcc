"""Many more columns than rows: a second candidate for a learned scale.

With so many columns every labelling can be separated at any scale, so the rows do not say what the scale is. Under a
wide prior a margin of 1 is nothing: the posterior only knows signs, the predictors of all rows lie far outside the
margin, and the posterior mean of the intercept runs to the larger class. Under a narrow prior with a steep loss the
rows sit at their margins, as in the support vector machine itself. Which of the two predicts better is a question for
rows left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.standardize import Columns
from softmargin.engines.model import Model
from softmargin.estimators.fits import Fit, Settings
from softmargin.estimators.inference import fit_vb
from softmargin.estimators.readout import BinaryReadout, HeldOut
from softmargin.link import fit_link
from softmargin.priors.ridge import Ridge

__all__ = ["Narrow", "narrowed"]

_MANY = 10  # columns a row
_SPREAD = 0.25  # prior standard deviation of the predictor of a row of mean length
_RATE = 16.0  # learning rate that goes with it
_MARGIN = 0.05  # the leave-one-out log loss must be better by this much


@dataclass(frozen=True, eq=False)
class OffsetReadout(BinaryReadout):
    """The link may move the boundary at no price: here it is the rows left out that have to place it."""

    def linked(self, model: Model, f: Array, v: Array, max_kv: float, *, smooth: bool = False) -> HeldOut:
        offset = self.columns.intercept
        loo = fit_link(model.y, f, v, self.weight, max_kv, offset=offset, worth=0.0, smooth=smooth, tol=self.tol)
        return HeldOut(f, v, loo)


@dataclass(frozen=True, eq=False)
class Narrow:
    """The narrow prior: its scale, the learning rate that goes with it, and a first fit."""

    scale: float
    rate: float
    first: Fit

    def model(self, usual: Model) -> Model:
        """The model under the narrow prior."""
        prior: Any = usual.prior
        return usual.with_prior(prior.at_scale(self.scale))

    def settings(self, usual: Settings) -> Settings:
        """The settings with the link that goes with it."""
        return _offset(usual)


def narrowed(
    recipe: Any, model: Model, settings: Settings, columns: Columns, count: Array, usual: Fit
) -> Narrow | None:
    """The narrow prior, where rows left out are clearly better predicted under it than by the usual fit.

    It is tried where columns outnumber rows by far and the scale of a normal prior is left to us. The mode stays:
    it is one and the same at every scale that is large enough.
    """
    prior: Any = model.prior
    rows = float(np.maximum(count, 1.0).sum())  # a weight of 2 is two rows, one of 0.1 is still a row
    ours = isinstance(recipe.prior, Ridge) and recipe.prior.learned and recipe.prior.hyperprior is None
    if not ours or recipe.inference == "map" or len(columns.keep) < _MANY * rows or usual.outcome.interrupted:
        return None
    scale = _SPREAD / math.sqrt(_length(model, columns, count))
    quiet = replace(_offset(settings), options={}, callback=None)
    first = fit_vb(model.with_prior(prior.at_scale(scale)).with_weight(_RATE * model.c), quiet)
    better = first.loo.objective < usual.loo.objective - _MARGIN
    return Narrow(scale, _RATE, first) if better else None


def _length(model: Model, columns: Columns, count: Array) -> float:
    """Mean squared length of a row, around the mean row where an intercept takes that up."""
    design, total = model.blocks.design, float(count.sum())
    length = float(count @ design.norms()) / total
    if not columns.intercept:
        return length
    mean = design.rmatvec(count)[1:] / total
    return length - float(mean @ mean)


def _offset(settings: Settings) -> Settings:
    own: Any = settings.readout
    return replace(settings, readout=OffsetReadout(own.columns, own.basis, own.part, own.weight, own.tol))
