"""A point near the mode at little cost: Newton steps on a smoothed hinge, on few rows first.

With f known only up to a normal error of standard deviation tau the expected hinge has a curvature, and the row
messages of the loss are those of a Newton step. The answer is only a start: whoever uses it checks all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.rows import Kept
from softmargin.core.space import Normal
from softmargin.core.visits import Face, Messages, One, predictors
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import at_home

__all__ = ["Near", "approach", "brought_home", "many_rows", "picked", "spread_rows", "thinned"]

_ROWS, _RATIO = 10_000, 40  # rows, and rows for each coefficient, of a subsample whose curvature stands for all
_PASSES = 4  # over all rows with that curvature, at most
_SETTLED = 0.5  # mean change of the predictors by which such a pass is the last, in amounts of smoothing
_CALMER = 0.4  # share of the first change that is good enough at the end
_SHARPER = 2  # steps with less smoothing and the curvature of all rows near the margin
_FARTHEST = 2.0  # that predictors move in one step, in units of the margin
_FEW = 3.0  # half the width of that band, in amounts of smoothing
_GOLDEN = 0.5 * (5.0**0.5 - 1.0)
_ROUND = 0.05  # absolute values are rounded off at coefficients of this size


class Near(NamedTuple):
    """Coefficients near the mode, with their predictors, and whether these had settled when the steps ended."""

    beta: Array
    rows: Kept  # One: the predictors, with the rows
    settled: bool = True
    moved: float = 0.0  # mean absolute change of the predictors by the step that led here

    @property
    def f(self) -> Array:
        """The predictors, fetched from the rows."""
        f: Array = self.rows.fetch().f
        return f

    @classmethod
    def at(cls, model: Model, beta: Array) -> Near:
        """The point of given coefficients."""
        return cls(beta, model.blocks.keep(predictors, beta)[0])


def many_rows(model: Model) -> bool:
    """Whether there are so many rows, and of such a kind, that a subsample of them is a good start."""
    plain = model.blocks.design.offers("single", "pick") and not model.blocks.has_residual
    sharp = model.loss.margin_slope > 0.0 and model.dimension == model.size
    return plain and sharp and model.n >= 2 * max(_ROWS, _RATIO * model.size)


def spread_rows(n: int, rows: int) -> Any:
    """Places of a fixed subsample of about ``rows`` of n rows.

    Multiples of the golden ratio modulo one are spread evenly, and in step with no period of the rows.
    """
    if rows >= n:
        return np.arange(n)
    return np.unique((np.arange(1, rows + 1) * _GOLDEN % 1.0 * n).astype(np.intp))


def picked(model: Model, index: Any) -> Model:
    """Some rows of a model."""
    rows = model.blocks.pick(index)
    return replace(model, blocks=rows, space=model.space.on(rows.design))


def brought_home(model: Model) -> Model:
    """The same rows in memory where they are few, wherever they are: exact modes are then found in compiled code."""
    rows = at_home(model.blocks)
    if rows is None or rows is model.blocks:
        return model
    return replace(model, blocks=rows, space=model.space.on(rows.design))


def thinned(model: Model, rows: int | None = None) -> Model:
    """A subsample that weighs as much as all rows; by default with enough rows for the curvature of all."""
    n, rows = model.n, max(_ROWS, _RATIO * model.size) if rows is None else rows
    if rows >= n:
        return model
    few = picked(model, spread_rows(n, rows))
    return few.with_weight(few.c * (n / few.n))


def approach(model: Model, penalty: Penalty, *, sharper: int = _SHARPER) -> tuple[Near, Normal]:
    """Coefficients near the mode, and the curvature there.

    They come from subsamples, then from gradients of all rows with a subsample's curvature, then from ``sharper``
    Newton steps with the curvature of all rows near the margin.
    """
    small = thinned(model)
    rows = small.n
    tau = max(0.1, 8.0 * model.size / rows)  # enough rows must have a curvature
    first = thinned(small, rows // 4)
    near = Near.at(first, np.zeros(model.size))
    for wide in (1.0, 1.0, 0.5):
        near, _ = _step(first, penalty, near, wide)
    near = Near.at(small, near.beta)
    for wide in (2.0 * tau, tau):
        near, q = _step(small, penalty, near, wide)
    if small is not model:
        near = _passes(model, penalty, Near.at(model, near.beta), tau, q)
    settled = near.settled
    for _ in range(sharper):
        tau *= 0.4
        near, q = _step(model, penalty, near, tau)
    return near._replace(settled=settled), q


def _passes(model: Model, penalty: Penalty, near: Near, tau: float, q: Normal) -> Near:
    """Steps over all rows with the curvature ``q``, until the predictors settle."""
    first = 0.0
    for _ in range(_PASSES):
        near, _ = _step(model, penalty, near, tau, q)
        first = first or near.moved
        if near.moved < _SETTLED * tau:
            return near
    return near._replace(settled=near.moved < _CALMER * first)


def _scores(block: Any, small: tuple[Face, float, bool], near: One) -> Any:
    """Keep the curvatures of a loss smoothed by tau, where they are wanted; sum ``X'`` times its slopes.

    Rows beyond a few tau have next to no curvature, and their slopes are in the sum already.
    """
    face, tau, wanted = small
    w, b, _ = face(block, near.f, block.full(tau * tau))
    curved = np.where(np.abs(1.0 - block.y * near.f) < _FEW * tau, w, 0.0) if wanted else None
    return Messages(curved, None), (block.rmatvec(b - w * near.f),)


def _along(block: Any, direction: Array) -> Any:
    """Keep the change of the predictors along a direction; sum its squares and its sizes."""
    change = block.matvec(direction)
    return One(change), (block.sums((change, change), np.abs(change)),)


def _slope(block: Any, small: tuple[Face, float, float], near: One, along: One) -> Any:
    """Sum the slopes of the smoothed loss along the way, after a part of it."""
    face, tau, part = small
    f = near.f + part * along.f
    w, b, _ = face(block, f, block.full(tau * tau))
    return (block.sums((b - w * f, along.f)),)


def _moved(block: Any, length: float, near: One, along: One) -> Any:
    """Keep the predictors after a step."""
    return One(near.f + length * along.f), ()


def _step(model: Model, penalty: Penalty, near: Near, tau: float, q: Normal | None = None) -> tuple[Near, Normal]:
    """A Newton step on the hinge smoothed by ``tau``, its length corrected by one secant; ``q`` brings a curvature."""
    rows, face, beta = model.blocks, Face(model.loss, "gaussian"), near.beta
    precision = penalty.precision + penalty.rate / np.sqrt(beta * beta + _ROUND * _ROUND)
    curved, (score,) = rows.keep(_scores, (face, tau, q is None), near.rows)
    gradient = score - precision * beta
    if q is None:
        q, _ = model.conditional(curved, precision, rough=True)
    direction = q.solve(gradient)
    along, ((square, size),) = rows.keep(_along, direction)
    # where no row is near the margin, nothing but the prior holds the intercept
    part = _FARTHEST / max(_FARTHEST, float(np.sqrt(square / model.n)))
    direction = part * direction
    ((left,),) = rows.sum(_slope, (face, tau, part), near.rows, along)
    slope = float(gradient @ direction)
    left = part * float(left) - float((precision * (beta + direction)) @ direction)
    length = min(max(slope / max(slope - left, 1e-300), 0.1), 3.0)
    there, _ = rows.keep(_moved, length * part, near.rows, along)
    return Near(beta + length * direction, there, moved=length * part * float(size) / model.n), q
