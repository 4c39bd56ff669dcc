"""The length of a kernel with inducing points, by the gradient of the bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.space import Normal
from softmargin.designs.kernel.inducing import Inducing, InducingMap
from softmargin.engines.vi.inducing import InducingModel, fit_inducing
from softmargin.rows.in_memory import Blocks
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose

__all__ = ["learn_length", "length_slope"]

_ROWS = 50  # for each point, that the length is learned on
_STEP = 0.5  # first step of the log length
_NEAR = 0.02  # interval of the log length at which it is found
_REACH = 6.0  # largest change of the log length
_FITS = 12  # between the ends of an interval, at most


def length_slope(features: InducingMap, X: Any, message: Message, q: Normal, prior: PriorMessage) -> float:
    """Derivative of the rows' bound in the logarithm of the kernel's length, at fixed coefficients.

    With ``f = phi'm`` and ``v = phi'S phi + s^2 (k - phi'phi)`` it is the sum over rows of
    ``(b - w f) m'dphi - w (S phi - s^2 phi)'dphi``.
    """
    phi, turned = features.turned(X)
    lead = len(q.mean) - features.size
    rows = np.column_stack((np.ones((len(phi), lead)), phi))
    spread = (rows @ q.root) @ q.root[lead:].T - prior.values["scale"] ** 2 * phi
    score = message.b - message.w * (rows @ q.mean)
    return float(score @ (turned @ q.mean[lead:]) - message.w @ np.einsum("ij,ij->i", spread, turned))


def learn_length(model: Model, *, rows: int | None = None, engine: Any = None) -> InducingMap:
    """The map whose length has the largest bound, the coefficients and the prior's scale at their best for each length.

    The bound is that of some rows, weighted so that they stand for all. Where the coefficients are at their best its
    derivative is the partial one, and its zero is bracketed and found by false position.

    Parameters
    ----------
    model : Model
        Rows in an ``Inducing`` design.
    rows : int, optional
        How many are used: 50 for each inducing point.
    engine : GaussianVI or MeanField
        As for ``fit_inducing``.
    """
    design: Any = model.blocks.design
    n = len(model.y)
    size = min(n, _ROWS * design.map.size if rows is None else rows)
    index = np.sort(shuffled(np.arange(size), n, model.streams.at(Purpose.START, iteration=1)))
    X, y, weight = design.X[index], model.y[index], model.c[index] * (n / size)

    def slope(x: float) -> float:
        features = design.map.at_length(math.exp(x))
        blocks = Blocks(Inducing(features, X, design.intercept).pick(slice(None)), y, weight)
        small = InducingModel(blocks, model.loss, model.prior, model.free, model.streams, model.space)
        state = fit_inducing(small, engine=engine, tol=1e-5)[1].state
        return length_slope(features, X, state.message, state.q, state.prior)

    x = start = math.log(design.map.kernel.length)
    here = slope(x)
    step = math.copysign(_STEP, here)
    while True:  # walk uphill until the slope turns
        if abs(x + step - start) > _REACH:
            return design.map.at_length(math.exp(x))
        other = slope(x + step)
        if other * here <= 0.0:
            break
        x, here, step = x + step, other, 1.5 * step
    ends = [(x, here), (x + step, other)]
    for _ in range(_FITS):
        (left, rise), (right, fall) = ends
        middle = right - fall * (right - left) / (fall - rise) if fall != rise else left
        if abs(right - left) < _NEAR or abs(middle - right) < 0.25 * _NEAR:
            break
        at = slope(middle)
        # the end that stays counts half, so that both come closer
        ends = [ends[1], (middle, at)] if at * fall <= 0.0 else [(left, 0.5 * rise), (middle, at)]
    return design.map.at_length(math.exp(middle))
