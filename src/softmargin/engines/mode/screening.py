"""The mode from the rows that matter: those far from the margin on either side are summed or left out, then checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.engines.mode.active_set import ActiveSet, Flags, finish
from softmargin.engines.mode.interior import exact_mode, path
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import Blocks

__all__ = ["few_rows", "reduced_mode"]

_SHARE = 0.01  # of the rows, those nearest to the margin, make the first attempt
_RATIO, _RATIO_ROUGH = 4, 6  # and rows for each coefficient at least
_ROUNDS = 6
_LOOSE = 1e-7  # gap of few rows at which others are looked at for the first time
_TIGHT = 1e-13  # and at the end: the others weigh in the objective too
_TRIES = 3  # exchanges from the margin of another mode, each as dear as a few steps of the interior point
_SAME = 1e-12  # gap that says that they were enough
_GAP = 1e-9  # certified gap of all rows that is good enough
_FAR = 0.05  # share of the rows on the wrong side that says so
_MOST = 0.6  # with more of the rows than this there is nothing to gain


def reduced_mode(model: Model, penalty: Penalty, near: Any, *, rough: bool = False) -> ActiveSet | None:
    """The mode under a penalty from a point ``near`` it, None where that does not pay.

    Rows well outside the margin have no part in the mode, and those well inside add a linear term: for each class, one
    row with their mean and their total weight. What remains is a problem of few rows. Its solution is the mode if no
    row has changed its side; rows that have are taken in, and the problem is solved again. The certificate is that of
    all rows. A ``rough`` start is less near than another mode.
    """
    n = len(model.y)
    u = 1.0 - model.y * near.f
    close = np.zeros(n, dtype=bool)
    close[_nearest(u, min(n, max(int(_SHARE * n), (_RATIO_ROUGH if rough else _RATIO) * model.size)))] = True
    for attempt in range(_ROUNDS):
        if close.mean() > _MOST:
            return None
        inside = ~close & (u > 0.0)
        small, index = few_rows(model, close, inside)
        point = _same_margin(small, index, penalty, near) if attempt == 0 and isinstance(near, ActiveSet) else None
        if point is None:
            start = path(small, penalty, _LOOSE)
            f, wrong = _sides(model, start.beta, close, inside)
            point = None if wrong.any() else exact_mode(small, penalty, _TIGHT, start)
        if point is not None:
            f, wrong = _sides(model, point.beta, close, inside)
            if not wrong.any():
                return _whole(model, penalty, point, index, inside, f)
        if wrong.mean() > _FAR:  # the start was not near
            return None
        u = 1.0 - model.y * f
        close |= wrong
        close[_nearest(u, min(n, int(close.sum())))] = True
    return None


def _same_margin(small: Model, index: Any, penalty: Penalty, near: ActiveSet) -> ActiveSet | None:
    """The mode of few rows where it has nearly the margin of another, by exchanges alone; None where it has not."""
    means = len(small.y) - len(index)
    g = np.concatenate((near.g[index], 2.0 * small.c[len(index) :]))
    margin = np.concatenate((near.margin[index], np.zeros(means, dtype=bool)))
    found = finish(small, near.beta, g, margin, penalty, active=near.active, changes=_TRIES)
    return found if found.certificate.gap <= _SAME else None


def _sides(model: Model, beta: Array, close: Flags, inside: Flags) -> tuple[Array, Flags]:
    """The predictors, and which rows are not on the side that they were taken to be."""
    f = model.blocks.matvec(beta)
    return f, ~close & ((model.y * f < 1.0) != inside)


def _whole(model: Model, penalty: Penalty, point: ActiveSet, index: Any, inside: Flags, f: Array) -> ActiveSet | None:
    """The mode of few rows as that of all, where its certificate says so."""
    g = np.where(inside, 2.0 * model.c, 0.0)
    g[index] = point.g[: len(index)]
    margin = np.zeros(len(g), dtype=bool)
    margin[index] = point.margin[: len(index)]
    found = finish(model, point.beta, g, margin, penalty, active=point.active, f=f)
    return found if found.certificate.gap <= _GAP else None


def _nearest(u: Array, count: int) -> Any:
    """Places of the rows nearest to the margin."""
    return np.argpartition(np.abs(u), count - 1)[:count]


def few_rows(model: Model, near: Flags, inside: Flags) -> tuple[Model, Any]:
    """The rows ``near``, and for each class the mean of its rows ``inside``; with the places of the former."""
    index, design = np.flatnonzero(near), model.blocks.design
    means, y, c = [], [model.y[index]], [model.c[index]]
    for side in (-1.0, 1.0):
        weight = np.where(inside & (model.y == side), model.c, 0.0)
        total = float(weight.sum())
        if total > 0.0:
            means.append(model.blocks.rmatvec(weight) / total)
            y.append(np.array([side]))
            c.append(np.array([total]))
    others = np.array(means).reshape(-1, model.size)
    few = design.joined(index, others) if design.offers("joined") else None  # sparse where that is the sooner way
    if few is None:
        few = Dense.plain(np.ascontiguousarray(np.concatenate((design.rows(index), others))))
    blocks = Blocks(few, np.concatenate(y), np.concatenate(c))
    return replace(model, blocks=blocks), index
