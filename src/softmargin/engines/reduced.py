"""The mode from the rows that matter: those far from the margin on either side are summed or left out, then checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.dense import Dense
from softmargin.engines.active_set import ActiveSet, finish
from softmargin.engines.model import Model
from softmargin.engines.penalty import Penalty
from softmargin.execution.blocks import Blocks

__all__ = ["reduced_mode"]

_SHARE = 0.1  # of the rows, those nearest to the margin, make the first attempt
_ROUNDS = 6
_GAP = 1e-9  # certified gap of all rows that is good enough
_MOST = 0.6  # with more of the rows than this there is nothing to gain


Solve = Callable[[Model, Penalty], ActiveSet]


def reduced_mode(model: Model, penalty: Penalty, f: Array, solve: Solve) -> ActiveSet | None:
    """The mode under a penalty, from predictors ``f`` that are near those of the mode; None where that does not pay.

    Rows well outside the margin have no part in the mode, and those well inside add a linear term: for each class, one
    row with their mean and their total weight. What remains is a problem of few rows. Its solution is the mode if no
    row has changed its side; rows that have are taken in, and the problem is solved again. The certificate is that of
    all rows.
    """
    y, n = model.y, len(model.y)
    u = 1.0 - y * f
    near = np.zeros(n, dtype=bool)
    near[np.argpartition(np.abs(u), int(_SHARE * n))[: max(int(_SHARE * n), min(n, 4 * model.size))]] = True
    for _ in range(_ROUNDS):
        if near.mean() > _MOST:
            return None
        inside = ~near & (u > 0.0)
        small, index = _few(model, near, inside)
        point = solve(small, penalty)
        ahead = 1.0 - y * model.blocks.matvec(point.beta)
        wrong = ~near & ((ahead > 0.0) != inside)
        if not wrong.any():
            g = np.where(inside, 2.0 * model.c, 0.0)
            g[index] = point.g[: len(index)]
            margin = np.zeros(n, dtype=bool)
            margin[index] = point.margin[: len(index)]
            found = finish(model, point.beta, g, margin, penalty, active=point.active)
            return found if found.certificate.gap <= _GAP else None
        near |= wrong | (np.abs(ahead) < np.quantile(np.abs(ahead[wrong]), 0.9))
        u = ahead
    return None


def _few(model: Model, near: Any, inside: Any) -> tuple[Model, Any]:
    """The rows ``near``, and for each class the mean of its rows ``inside``."""
    index = np.flatnonzero(near)
    rows, y, c = [model.blocks.design.rows(index)], [model.y[index]], [model.c[index]]
    for side in (-1.0, 1.0):
        weight = np.where(inside & (model.y == side), model.c, 0.0)
        total = float(weight.sum())
        if total > 0.0:
            rows.append(model.blocks.rmatvec(weight)[None] / total)
            y.append(np.array([side]))
            c.append(np.array([total]))
    design = Dense.plain(np.ascontiguousarray(np.concatenate(rows)))
    blocks = Blocks(design, np.concatenate(y), np.concatenate(c))
    return replace(model, blocks=blocks), index
