"""A lower bound on the optimal objective from any candidate multipliers: how far from the mode are we at most?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.model import Model
from softmargin.engines.penalty import Penalty

__all__ = ["Certificate", "certify", "objective_of"]


class Certificate(NamedTuple):
    """Objective, a lower bound on its minimum, and their relative difference."""

    objective: float
    lower: float
    gap: float


def objective_of(model: Model, beta: Array, f: Array, penalty: Penalty) -> float:
    """What the mode minimises, at coefficients with predictors f."""
    return -float(model.loss.loglik(model.y, model.c, f).sum()) + penalty.value(beta)


def certify(model: Model, beta: Array, f: Array, g: Array, penalty: Penalty) -> Certificate:
    """Duality gap of ``2 c'max(1 - y f, 0) + penalty(beta)`` from multipliers clipped to [0, 2c].

    Any such g gives the lower bound ``1'g - penalty*(X'(y g))``. A nearly flat intercept makes it useless unless
    ``sum y g`` is nearly what the optimum has, so the heavier class is shrunk until it is; an absolute-value
    penalty makes it infinite unless ``|X'(y g)|`` is below its rate, so g is then scaled down as a whole. Where
    equations tie the coefficients, the score counts only up to what their space cannot see.
    """
    y, c = model.y, model.c
    objective = objective_of(model, beta, f, penalty)
    g = np.clip(g, 0.0, 2.0 * c)
    if model.free.any():
        g = model.space.balanced(g, y, penalty.precision[model.free] * beta[model.free])
    score = model.space.eased(model.blocks.rmatvec(y * g), penalty.precision, penalty.corner)
    shrink, conjugate = penalty.conjugate(score)
    lower = shrink * float(g.sum()) - conjugate
    return Certificate(objective, lower, (objective - lower) / max(abs(objective), 1e-300))
