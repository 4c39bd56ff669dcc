"""The mode from the rows that matter: those far from the margin on either side are summed or left out, then checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.visits import Marked
from softmargin.designs.dense import Dense
from softmargin.engines.mode.active_set import ActiveSet, Flags, finish
from softmargin.engines.mode.duality_gap import boxed, largest_multipliers
from softmargin.engines.mode.interior import exact_mode, path
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import Blocks
from softmargin.rows.totals import flags, kth_smallest

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
    n, y, f = model.n, model.y, near.f
    close = _nearest(y, f, min(n, max(int(_SHARE * n), (_RATIO_ROUGH if rough else _RATIO) * model.size)))
    for attempt in range(_ROUNDS):
        if close.mean() > _MOST:
            return None
        inside = _inside_margin(y, f, close)
        small, index = few_rows(model, close, inside)
        point = _same_margin(small, index, penalty, near) if attempt == 0 and isinstance(near, ActiveSet) else None
        if point is None:
            start = path(small, penalty, _LOOSE)
            f, wrong = _sides(model, start.beta, close, inside)
            point = None if wrong.any() else exact_mode(small, penalty, _TIGHT, start)
        if point is not None:
            f, wrong = _sides(model, point.beta, close, inside)
            if not wrong.any():
                del small  # a hundredth of the rows, that nobody needs any more
                return _whole(model, penalty, point, index, inside, f)
        if wrong.mean() > _FAR:  # the start was not near
            return None
        close |= wrong
        close |= _nearest(y, f, min(n, int(close.sum())))
    return None


def _inside_margin(y: Array, f: Array, close: Flags) -> Flags:
    """Which of the rows that are not close to the margin are inside."""
    found: Flags = flags(len(f), lambda at: ~close[at] & (1.0 - y[at] * f[at] > 0.0))
    return found


def _same_margin(small: Model, index: Any, penalty: Penalty, near: ActiveSet) -> ActiveSet | None:
    """The mode of few rows where it has nearly the margin of another, by exchanges alone; None where it has not."""
    means = len(small.y) - len(index)
    g = np.concatenate((near.g[index], 2.0 * small.c[len(index) :]))
    margin = np.concatenate((near.margin[index], np.zeros(means, dtype=bool)))
    found = finish(small, near.beta, g, margin, penalty, active=near.active, changes=_TRIES)
    return found if found.certificate.gap <= _SAME else None


def _sides(model: Model, beta: Array, close: Flags, inside: Flags) -> tuple[Array, Flags]:
    """The predictors, and which rows are not on the side that they were taken to be."""
    y, f = model.y, model.blocks.matvec(beta)
    return f, flags(len(f), lambda at: ~close[at] & ((y[at] * f[at] < 1.0) != inside[at]))


def _whole(model: Model, penalty: Penalty, point: ActiveSet, index: Any, inside: Flags, f: Array) -> ActiveSet | None:
    """The mode of few rows as that of all, where its certificate says so."""
    g = largest_multipliers(inside, model.c)
    g[index] = boxed(point.g[: len(index)], model.c[index])  # rounding may leave them outside their box
    margin = np.zeros(len(g), dtype=bool)
    margin[index] = point.margin[: len(index)]
    found = finish(model, point.beta, g, margin, penalty, active=point.active, f=f)
    return found if found.certificate.gap <= _GAP else None


def _nearest(y: Array, f: Array, count: int) -> Flags:
    """Which rows are nearest to the margin."""

    def distance(at: slice) -> Array:
        return np.abs(1.0 - y[at] * f[at])

    reach = kth_smallest(len(f), distance, count - 1)
    found: Flags = flags(len(f), lambda at: distance(at) <= reach)
    return found


def _inside(block: Any, small: None, inside: Marked) -> Any:
    """Sum the rows inside the margin of either class times their weights, and these weights."""
    low, high = (np.where((inside.marks != 0) & (block.y == side), block.weight, 0.0) for side in (-1.0, 1.0))
    return block.rmatvec(low), block.rmatvec(high), block.sums(low, high)


def few_rows(model: Model, near: Flags, inside: Flags) -> tuple[Model, Any]:
    """The rows ``near``, and for each class the mean of its rows ``inside``; with the places of the former."""
    index, design = np.flatnonzero(near), model.blocks.design
    means, y, c = [], [model.y[index]], [model.c[index]]
    low, high, weights = model.blocks.sum(_inside, None, model.blocks.place(Marked(inside)))
    for side, total, sums in zip((-1.0, 1.0), weights.tolist(), (low, high), strict=True):
        if total > 0.0:
            means.append(sums / total)
            y.append(np.array([side]))
            c.append(np.array([total]))
    others = np.array(means).reshape(-1, model.size)
    few = design.joined(index, others) if design.offers("joined") else None  # sparse where that is the sooner way
    if few is None:
        few = Dense.plain(np.ascontiguousarray(np.concatenate((design.rows(index), others))))
    blocks = Blocks(few, np.concatenate(y), np.concatenate(c))
    return replace(model, blocks=blocks, space=model.space.at_home()), index
