"""SQUAREM: extrapolation of a fixed-point map along two differences.

Points are predictors and log variances, which are with the rows, and logarithms of prior precisions. Reference:
Varadhan and Roland (2008), Simple and globally convergent methods for accelerating the convergence of any EM algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.rows import Kept
from softmargin.core.visits import Face, Messages, RowState

__all__ = ["Parabola", "leap_messages", "parabola"]

_LARGEST = 700.0  # of logarithms: the logarithm of the largest number is 709


class _Curve(NamedTuple):
    """A point, the difference to a second one, and the change from that difference to the next."""

    start: Array
    first: Array
    bend: Array

    @classmethod
    def through(cls, start: Array, one: Array, two: Array) -> _Curve:
        first = one - start
        return cls(start, first, two - one - first)

    def at(self, length: float) -> Array:
        """A point along the parabola: ``start + 2 s r + s^2 bend`` with r the first difference."""
        return self.start + 2.0 * length * self.first + length * length * self.bend


class _Rows(NamedTuple):
    """Curves of the predictors and of their log variances."""

    f: Array
    f_first: Array
    f_bend: Array
    v: Array
    v_first: Array
    v_bend: Array


class Parabola(NamedTuple):
    """Where three points in a row lead to, and how far to extrapolate."""

    rows: Kept  # _Rows
    logs: _Curve  # of the prior precisions
    length: float


def _logs(state: RowState) -> Array:
    """Log variances."""
    return np.log(np.maximum(state.v, 1e-300))


def _differences(block: Any, small: None, start: RowState, one: RowState, two: RowState) -> Any:
    """Keep the curves; sum the squares of the first differences of all and of the change to the second."""
    f = _Curve.through(start.f, one.f, two.f)
    log_v = _Curve.through(_logs(start), _logs(one), _logs(two))
    squares, changes = (f.first * f.first + log_v.first * log_v.first, f.bend * f.bend + log_v.bend * log_v.bend)
    return _Rows(*f, *log_v), (block.sums((block.weight, squares), (block.weight, changes)),)


def _leapt(block: Any, small: tuple[Face, float], ways: _Rows) -> Any:
    """Keep the messages at extrapolated predictors and log variances; count the rows where they end nowhere."""
    face, length = small
    f, log_v = _Curve(*ways[:3]).at(length), _Curve(*ways[3:]).at(length)
    there = np.isfinite(f) & (np.abs(log_v) <= _LARGEST)
    if not there.all():
        f, log_v = np.where(there, f, 0.0), np.where(there, log_v, 0.0)
    message = face(block, f, np.exp(log_v))
    return Messages(message.w, message.b), (block.sums((~there).astype(float)),)


def parabola(model: Model, start: Any, one: Any, two: Any) -> Parabola:
    """The way through three states; its length is the ratio of the first of two differences to the change of it.

    A weight of 2 counts like a repeated row.
    """
    rows, ((first, change),) = model.blocks.keep(_differences, None, start.rows, one.rows, two.rows)
    logs = _Curve.through(start.prior.logs(), one.prior.logs(), two.prior.logs())
    first, change = first + logs.first @ logs.first, float(change + logs.bend @ logs.bend)
    return Parabola(rows, logs, float(np.sqrt(first / max(change, 1e-300))))


def leap_messages(model: Model, way: Parabola, length: float) -> tuple[Kept, Array] | None:
    """Messages at the extrapolated point and its logarithms of prior precisions; None where it ends nowhere."""
    logs = way.logs.at(length)
    if not np.abs(logs).max(initial=0.0) <= _LARGEST:
        return None
    face = Face(model.loss, "expect")
    kept, ((lost,),) = model.blocks.keep(_leapt, (face, length), way.rows)
    return None if lost else (kept, logs)
