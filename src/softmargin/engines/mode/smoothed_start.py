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
from softmargin.core.space import Normal
from softmargin.designs.dense import Dense
from softmargin.priors.penalty import Penalty

__all__ = ["Near", "approach", "many_rows", "picked", "spread_rows", "thinned"]

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
    f: Array
    settled: bool = True


def many_rows(model: Model) -> bool:
    """Whether there are so many rows, and of such a kind, that a subsample of them is a good start."""
    plain = isinstance(model.blocks.design, Dense) and not model.blocks.has_residual
    sharp = model.loss.margin_slope > 0.0 and model.dimension == model.size
    return plain and sharp and len(model.y) >= 2 * max(_ROWS, _RATIO * model.size)


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


def thinned(model: Model, rows: int | None = None) -> Model:
    """A subsample that weighs as much as all rows; by default with enough rows for the curvature of all."""
    n, rows = len(model.y), max(_ROWS, _RATIO * model.size) if rows is None else rows
    if rows >= n:
        return model
    few = picked(model, spread_rows(n, rows))
    return few.with_weight(few.c * (n / len(few.y)))


def approach(model: Model, penalty: Penalty, *, sharper: int = _SHARPER) -> tuple[Near, Normal]:
    """Coefficients near the mode, and the curvature there.

    They come from subsamples, then from gradients of all rows with a subsample's curvature, then from ``sharper``
    Newton steps with the curvature of all rows near the margin.
    """
    small = thinned(model)
    rows = len(small.y)
    tau = max(0.1, 8.0 * model.size / rows)  # enough rows must have a curvature
    first = thinned(small, rows // 4)
    near = Near(np.zeros(model.size), np.zeros(len(first.y)))
    for wide in (1.0, 1.0, 0.5):
        near, _ = _step(first, penalty, near, wide)
    near = Near(near.beta, small.blocks.matvec(near.beta))
    for wide in (2.0 * tau, tau):
        near, q = _step(small, penalty, near, wide)
    if small is not model:
        near = _passes(model, penalty, Near(near.beta, model.blocks.matvec(near.beta)), tau, q)
    settled = near.settled
    for _ in range(sharper):
        tau *= 0.4
        near, q = _step(model, penalty, near, tau)
    return near._replace(settled=settled), q


def _passes(model: Model, penalty: Penalty, near: Near, tau: float, q: Normal) -> Near:
    """Steps over all rows with the curvature ``q``, until the predictors settle."""
    first = 0.0
    for _ in range(_PASSES):
        last = near.f
        near, _ = _step(model, penalty, near, tau, q)
        change = float(np.abs(near.f - last).mean())
        first = first or change
        if change < _SETTLED * tau:
            return near
    return near._replace(settled=change < _CALMER * first)


def _step(model: Model, penalty: Penalty, near: Near, tau: float, q: Normal | None = None) -> tuple[Near, Normal]:
    """A Newton step on the hinge smoothed by ``tau``, its length corrected by one secant; ``q`` brings a curvature."""
    beta, f, _ = near
    v = np.full(len(f), tau * tau)
    message = model.loss.gaussian(model.y, model.c, f, v)
    score = message.b - message.w * f
    precision = penalty.precision + penalty.rate / np.sqrt(beta * beta + _ROUND * _ROUND)
    gradient = model.blocks.rmatvec(score) - precision * beta
    if q is None:
        # rows beyond a few tau have next to no curvature, and their slopes are in the gradient already
        w = np.where(np.abs(1.0 - model.y * f) < _FEW * tau, message.w, 0.0)
        zero = np.zeros_like(w)
        q = model.direction(w, zero, precision) or model.gaussian(w, zero, precision)
    direction = q.solve(gradient)
    ahead = model.blocks.matvec(direction)
    reach = float(np.sqrt(np.mean(ahead * ahead)))
    if reach > _FARTHEST:  # where no row is near the margin, nothing but the prior holds the intercept
        direction, ahead = direction * (_FARTHEST / reach), ahead * (_FARTHEST / reach)
    there = model.loss.gaussian(model.y, model.c, f + ahead, v)
    slope = float(gradient @ direction)
    left = float((there.b - there.w * (f + ahead)) @ ahead - (precision * (beta + direction)) @ direction)
    length = min(max(slope / max(slope - left, 1e-300), 0.1), 3.0)
    return Near(beta + length * direction, f + length * ahead), q
