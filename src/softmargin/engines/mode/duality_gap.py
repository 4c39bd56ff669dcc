"""A lower bound on the optimal objective from any candidate multipliers: how far from the mode are we at most?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.visits import One
from softmargin.priors.penalty import Penalty
from softmargin.rows.totals import runs, totals_of

__all__ = ["Certificate", "boxed", "certify", "largest_multipliers", "log_likelihood", "objective_of"]


class Certificate(NamedTuple):
    """Objective, a lower bound on its minimum, and their relative difference."""

    objective: float
    lower: float
    gap: float


def log_likelihood(model: Model, f: Array) -> float:
    """Log pseudo-likelihood of predictors f."""
    y, c = model.y, model.c

    def parts(at: slice) -> list[Array]:
        return [model.loss.loglik(y[at], np.ascontiguousarray(c[at]), f[at])]

    return float(totals_of(len(f), parts)[0])


def boxed(g: Array, c: Array) -> Array:
    """Multipliers clipped to [0, 2c]; the same vector where they are in their box already."""
    if all(bool(((g[at] >= 0.0) & (g[at] <= 2.0 * c[at])).all()) for at in runs(len(g))):
        return g
    out = np.empty(len(g))
    for at in runs(len(g)):
        out[at] = np.clip(g[at], 0.0, 2.0 * c[at])
    return out


def largest_multipliers(inside: Any, c: Array) -> Array:
    """Multipliers of rows inside the margin, 2c, and of those outside, zero."""
    out = np.empty(len(c))
    for at in runs(len(c)):
        out[at] = np.where(inside[at], 2.0 * c[at], 0.0)
    return out


def _signed(block: Any, small: None, g: One) -> Any:
    """Sum ``X'(y g)`` and g."""
    return block.rmatvec(block.y * g.f), block.sums(g.f)


def objective_of(model: Model, beta: Array, f: Array, penalty: Penalty) -> float:
    """What the mode minimises, at coefficients with predictors f."""
    return -log_likelihood(model, f) + penalty.value(beta)


def certify(model: Model, beta: Array, f: Array, g: Array, penalty: Penalty) -> Certificate:
    """Duality gap of ``2 c'max(1 - y f, 0) + penalty(beta)`` from multipliers clipped to [0, 2c].

    Any such g gives the lower bound ``1'g - penalty*(X'(y g))``. A nearly flat intercept makes it useless unless
    ``sum y g`` is nearly what the optimum has, so the heavier class is shrunk until it is; an absolute-value
    penalty makes it infinite unless ``|X'(y g)|`` is below its rate, so g is then scaled down as a whole. Where
    equations tie the coefficients, the score counts only up to what their space cannot see.
    """
    objective = objective_of(model, beta, f, penalty)
    g = boxed(g, model.c)
    if model.free.any():
        g = model.space.dual_feasible(g, model.y, penalty.precision[model.free] * beta[model.free])
    placed = model.blocks.place(One(g))
    del g  # where rows are very many it now is in a file
    score, (total,) = model.blocks.sum(_signed, None, placed)
    shrink, conjugate = penalty.conjugate(model.space.dual_representative(score, penalty.precision, penalty.corner))
    lower = shrink * float(total) - conjugate
    return Certificate(objective, lower, (objective - lower) / max(abs(objective), 1e-300))
