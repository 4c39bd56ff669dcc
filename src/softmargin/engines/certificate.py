"""A lower bound on the optimal objective from any candidate multipliers: how far from the mode are we at most?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.model import Model

__all__ = ["Certificate", "certify"]


class Certificate(NamedTuple):
    """Objective, a lower bound on its minimum, and their relative difference."""

    objective: float
    lower: float
    gap: float


def certify(model: Model, beta: Array, f: Array, g: Array, precision: Array) -> Certificate:
    """Duality gap of ``2 c'max(1 - y f, 0) + beta'D beta/2`` from multipliers clipped to [0, 2c].

    Any such g gives the lower bound ``1'g - v'D^-1 v/2`` with ``v = X'(y g)``. A nearly flat intercept makes it
    useless unless ``sum y g`` is nearly what the optimum has, so the heavier class is shrunk until it is.
    """
    y, c = model.y, model.c
    objective = -float(model.loss.loglik(y, c, f).sum()) + 0.5 * float(precision @ (beta * beta))
    g = np.clip(g, 0.0, 2.0 * c)
    if model.free.any():
        target = float(precision[model.free] @ beta[model.free])  # what sum y g is at the optimum
        positive, negative = float(g[y > 0].sum()), float(g[y < 0].sum())
        if positive - negative > target:
            g = np.where(y > 0, g * max((negative + target) / positive, 0.0), g)
        elif negative > 0.0:
            g = np.where(y < 0, g * max((positive - target) / negative, 0.0), g)
    v = model.blocks.rmatvec(y * g)
    lower = float(g.sum()) - 0.5 * float((v * v) @ (1.0 / precision))
    return Certificate(objective, lower, (objective - lower) / max(abs(objective), 1e-300))
