"""Searches over the mean and the scale of a Gaussian of fixed shape."""

from __future__ import annotations

import math
from typing import NamedTuple

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.rows import Kept
from softmargin.core.space import Normal
from softmargin.core.visits import Face
from softmargin.engines.vi import _gaussian_visits as own

__all__ = ["Point", "line_search", "scale_search"]

_ENOUGH = 5  # trials of a line search after which any rise will do
_ATTEMPTS = 60  # most trials: a kink of a large weight may be at a tiny part of the first step


class Point(NamedTuple):
    """Rows and prior at a Gaussian: what is with the rows, their part of the bound, ``b'f`` and ``w'(f^2 + v)``."""

    rows: Kept
    prior: PriorMessage
    data: float
    linear: float
    square: float


def line_search(
    model: Model, face: Face, q: Normal, start: Kept, direction: Array, along: Kept, slope: float
) -> tuple[float, Point]:
    """Safeguarded Newton on the slope of the bound along the direction, covariance fixed.

    It ends at a point that is no lower than the start: where the slope is small, or where it still rises.
    """
    low, high, tau, below = 0.0, math.inf, 1.0, None
    for attempt in range(_ATTEMPTS):
        kept, (sums,) = model.blocks.keep(own.line_point, (face, tau), start, along)
        data, rise, bend, linear, square = sums.tolist()
        prior = model.prior.gaussian(q.mean + tau * direction, q.var)
        point = Point(kept, prior, data, linear, square)
        here = rise + float(prior.pull(q.mean + tau * direction) @ direction)
        if abs(here) <= 0.1 * abs(slope) or (here > 0.0 and attempt >= _ENOUGH):
            break
        if here > 0.0:
            low, below = tau, (tau, point)
        elif attempt >= _ENOUGH and below is not None:
            return below
        else:
            high = tau
        curvature = bend + prior.bend(direction)
        step = tau + here / curvature if curvature > 0.0 else math.inf
        inside = low < step < high and step < 8.0 * max(tau, 1e-12)
        between = 0.5 * (low + high)
        tau = step if inside else (between if high < math.inf else 2.0 * tau)
    return tau, point


def scale_search(model: Model, face: Face, q: Normal, start: Point, least: float) -> tuple[float, Point]:
    """Maximise the bound over (mean, covariance) -> (e^t mean, e^2t covariance) by safeguarded secant steps.

    Nothing is done where a gain of at most ``least`` is in sight. The sums of a point are over moments at t = 0.
    """
    size = model.dimension

    def slope(t: float, at: Point) -> float:
        """Derivative of the bound in t."""
        grow = math.exp(t)
        pull = grow * at.linear - grow * grow * at.square
        prior = grow * float(at.prior.pull(grow * q.mean) @ q.mean) - grow * grow * float(at.prior.precision @ q.var)
        return pull + prior + size

    def value(t: float, at: Point) -> float:
        return at.data + at.prior.bound + size * t

    first = last_slope = slope(0.0, start)
    curvature = start.square + 2.0 * (start.prior.bend(q.mean) + float(start.prior.precision @ q.var))
    if abs(first) < 1e-9 * size or first * first <= 2.0 * least * curvature:
        return 0.0, start
    best = (value(0.0, start), 0.0, start)
    t = 0.0
    for _ in range(5):
        step = min(max(last_slope / max(curvature, 1e-12), -1.0), 1.0)
        t += step
        grow = math.exp(t)
        kept, (sums,) = model.blocks.keep(own.scale_point, (face, grow), start.rows)
        at = Point(kept, model.prior.gaussian(grow * q.mean, grow * grow * q.var), *sums.tolist())
        here, reached = slope(t, at), value(t, at)
        if reached > best[0]:
            best = (reached, t, at)
        if abs(here) <= max(1e-2 * abs(first), 1e-9 * size) or abs(step) < 1e-9:
            break
        secant = (last_slope - here) / step
        curvature = secant if secant > 0.0 else 2.0 * curvature
        last_slope = here
    return best[1], best[2]
