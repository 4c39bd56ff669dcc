"""Predictors without their own rows, for kernels through inducing points and for fits by batches of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import AnyMessage
from softmargin.engines.vi.stochastic import SVI
from softmargin.engines.vi.stochastic_fit import SVIFit
from softmargin.loo.link import cavity
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose

__all__ = ["held_out", "loose_cavity"]

_CHUNK = 4096  # rows at a time


def loose_cavity(
    f: Array, v: Array, residual: Array | float, message: AnyMessage, part: Array
) -> tuple[Array, Array, float]:
    """Moments of the predictors without the part ``part`` of each row's own message, and the largest k v.

    The message has changed the coefficients alone, so it is taken out of their part v of the variance, to which what
    the columns leave is then added.
    """
    f_out, v_out, largest = cavity(f, v, message.w, message.b, part)
    return f_out, v_out + residual, largest


def held_out(fit: SVIFit, engine: SVI, part: Array, rows: int = 50_000) -> tuple[Any, Array, Array, float]:
    """Rows, at most this many, and the moments of their predictors without the part ``part`` of their own messages.

    Returns the rows' numbers, means, variances, and the largest share of a predictor's precision that its row makes.
    """
    model, n = fit.model, len(fit.model.y)
    index = np.arange(n)
    if n > rows:
        index = np.sort(shuffled(np.arange(rows), n, model.streams.at(Purpose.CAVITY)))
    pieces = []
    for lo in range(0, len(index), _CHUNK):
        at = index[lo : lo + _CHUNK]
        some = model.blocks.pick(at)
        f, v, residual = engine.moments(some.design, fit.state.q, fit.state.prior)
        message = engine.face(model)(some.y, some.weight, f, v + residual)
        pieces.append(loose_cavity(f, v, residual, message, part[at]))
    f_out, v_out = (np.concatenate([piece[k] for piece in pieces]) for k in range(2))
    return index, f_out, v_out, max(piece[2] for piece in pieces)
