"""SQUAREM: extrapolation of a fixed-point map along two differences.

Points are predictors and log variances, which are with the rows, and logarithms of prior precisions. Reference:
Varadhan and Roland (2008), Simple and globally convergent methods for accelerating the convergence of any EM algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.rows import Kept
from softmargin.core.visits import Face, Messages, RowState

__all__ = ["leap_messages", "squarem_length"]

_LARGEST = 700.0  # of logarithms: the logarithm of the largest number is 709


def _leap(start: Array, one: Array, two: Array, length: float) -> Array:
    """A point along the parabola through three: ``start + 2 s r + s^2 bend`` with r the first difference."""
    r = one - start
    return start + 2.0 * length * r + length * length * (two - one - r)


def _logs(state: RowState) -> Array:
    """Log variances."""
    return np.log(np.maximum(state.v, 1e-300))


def _differences(block: Any, small: None, start: RowState, one: RowState, two: RowState) -> Any:
    """Sum the squares of the first differences of predictors and log variances, and of the change to the second."""
    first, change = block.full(0.0), block.full(0.0)
    for x, y, z in ((start.f, one.f, two.f), (_logs(start), _logs(one), _logs(two))):
        r = y - x
        bend = z - y - r
        first += r * r
        change += bend * bend
    return (block.sums((block.weight, first), (block.weight, change)),)


def _leapt(block: Any, small: tuple[Face, float], start: RowState, one: RowState, two: RowState) -> Any:
    """Keep the messages at extrapolated predictors and log variances; count the rows where they end nowhere."""
    face, length = small
    f, log_v = _leap(start.f, one.f, two.f, length), _leap(_logs(start), _logs(one), _logs(two), length)
    lost = ~np.isfinite(f) | ~(np.abs(log_v) <= _LARGEST)
    message = face(block, np.where(lost, 0.0, f), np.exp(np.where(lost, 0.0, log_v)))
    return Messages(message.w, message.b), (block.sums(lost.astype(float)),)


def squarem_length(model: Model, *states: Any) -> float:
    """How far to extrapolate: the ratio of the first of two differences to the change from it to the second.

    A weight of 2 counts like a repeated row.
    """
    ((first, change),) = model.blocks.sum(_differences, None, *(each.rows for each in states))
    start, one, two = (each.prior.logs() for each in states)
    r = one - start
    bend = two - one - r
    return float(np.sqrt((first + r @ r) / max(float(change + bend @ bend), 1e-300)))


def leap_messages(model: Model, states: tuple[Any, Any, Any], length: float) -> tuple[Kept, Array] | None:
    """Messages at the extrapolated point and its logarithms of prior precisions; None where it ends nowhere."""
    start, one, two = (each.prior.logs() for each in states)
    logs = _leap(start, one, two, length)
    if not np.abs(logs).max(initial=0.0) <= _LARGEST:
        return None
    face = Face(model.loss, "expect")
    kept, ((lost,),) = model.blocks.keep(_leapt, (face, length), *(each.rows for each in states))
    return None if lost else (kept, logs)
