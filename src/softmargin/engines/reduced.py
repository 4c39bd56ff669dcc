"""The mode from the rows that matter: those far from the margin on either side are summed or left out, then checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.dense import Dense
from softmargin.engines.active_set import ActiveSet, Flags, finish
from softmargin.engines.model import Model
from softmargin.engines.penalty import Penalty
from softmargin.execution.blocks import Blocks

__all__ = ["few_rows", "reduced_mode"]

_SHARE = 0.01  # of the rows, those nearest to the margin, make the first attempt
_RATIO, _RATIO_ROUGH = 4, 6  # and rows for each coefficient at least
_ROUNDS = 6
_GAP = 1e-9  # certified gap of all rows that is good enough
_FAR = 0.05  # share of the rows on the wrong side that says so
_MOST = 0.6  # with more of the rows than this there is nothing to gain


Solve = Callable[[Model, Penalty], ActiveSet]


def reduced_mode(model: Model, penalty: Penalty, f: Array, solve: Solve, *, rough: bool = False) -> ActiveSet | None:
    """The mode under a penalty, from predictors ``f`` that are near those of the mode; None where that does not pay.

    Rows well outside the margin have no part in the mode, and those well inside add a linear term: for each class, one
    row with their mean and their total weight. What remains is a problem of few rows. Its solution is the mode if no
    row has changed its side; rows that have are taken in, and the problem is solved again. The certificate is that of
    all rows. A ``rough`` start is less near than another mode.
    """
    y, n = model.y, len(model.y)
    u = 1.0 - y * f
    count = min(n, max(int(_SHARE * n), (_RATIO_ROUGH if rough else _RATIO) * model.size))
    near = np.zeros(n, dtype=bool)
    near[np.argpartition(np.abs(u), count - 1)[:count]] = True
    for _ in range(_ROUNDS):
        if near.mean() > _MOST:
            return None
        inside = ~near & (u > 0.0)
        small, index = few_rows(model, near, inside)
        point = solve(small, penalty)
        u = 1.0 - y * model.blocks.matvec(point.beta)
        wrong = ~near & ((u > 0.0) != inside)
        if not wrong.any():
            g = np.where(inside, 2.0 * model.c, 0.0)
            g[index] = point.g[: len(index)]
            margin = np.zeros(n, dtype=bool)
            margin[index] = point.margin[: len(index)]
            found = finish(model, point.beta, g, margin, penalty, active=point.active)
            return found if found.certificate.gap <= _GAP else None
        if wrong.mean() > _FAR:  # the start was not near
            return None
        near |= wrong | (np.abs(u) < np.quantile(np.abs(u[wrong]), 0.9))
    return None


def few_rows(model: Model, near: Flags, inside: Flags) -> tuple[Model, Any]:
    """The rows ``near``, and for each class the mean of its rows ``inside``; with the places of the former."""
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
