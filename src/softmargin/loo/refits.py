"""Predictors of rows left out by refits, as a whole fit would give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model

__all__ = ["spread"]


def spread(f: Array, v: Array, model: Model, vi: Any, posterior: Any) -> tuple[Array, Array]:
    """Moments of refits at one scale with the spread of the scale added, which those of new rows will have.

    ``vi`` is the whole fit at one scale, and ``posterior`` its mixture over scales. Predictors are nearly proportional
    to the scale: their means move by one factor, and their variances grow by a share of their squares. Both are found
    on the rows of the fit.
    """
    if vi is None or not isinstance(vi.q.root, np.ndarray):
        return f, v
    mean, variance = model.blocks.moments(vi.q.mean, vi.q.root)
    mixed, more = model.blocks.moments(posterior.mean, posterior.root)
    square = float(mean @ mean)
    if square == 0.0:
        return f, v
    share = max(0.0, float((more - variance).sum()) / square)
    return float(mixed @ mean) / square * f, v + share * f**2
