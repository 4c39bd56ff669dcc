"""Missing entries drawn given the coefficients, the row latents and the law of the covariates."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.imputed import predicted
from softmargin.designs.missing_patterns import Patterns, to_cells, to_coordinates, whiten
from softmargin.rows.streams import Purpose
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["draw_entries"]


def draw_entries(
    random: Any, model: Model, times: Array, patterns: Patterns, law: CovariateLaw, known: Array, chain: Any
) -> Array:
    """Missing entries given the rest, in the coordinates ``x_M = m0 + F'z`` where z is standard normal beforehand.

    They answer to one response, of the ``times`` that each row has.
    A row's message (w, b) makes the precision of z ``I + w g g'``, with predictor ``f0 + g'z``: a rank-one change.
    """
    lead = int(model.blocks.design.intercept)
    F, _ = whiten(patterns, law.precision)
    X = predicted(known, patterns, F, law.mean, law.precision)
    w, b, eps, e = _random(random, model, times, patterns, chain.f)
    slopes = chain.beta[lead:]
    f0 = X[patterns.row] @ slopes + chain.beta[:lead].sum()
    g = to_coordinates(patterns, F, np.broadcast_to(slopes, (len(f0), len(slopes))))
    first, sizes = patterns.cell[:-1], np.diff(patterns.cell)
    shrink = 1.0 + w * np.add.reduceat(g * g, first)
    along = (b - w * f0 - w * np.add.reduceat(g * e, first) - np.sqrt(w) * eps) / shrink
    X[patterns.of_cells()] += to_cells(patterns, F, e + g * np.repeat(along, sizes))
    return X


def _random(random: Any, model: Model, times: Array, patterns: Patterns, f: Array) -> tuple[Array, Array, Array, Array]:
    """Messages of the incomplete rows at latents drawn given f, and normal numbers: one per row, one per entry."""
    parts = []
    for cell in model.blocks.cells:
        first, last = np.searchsorted(patterns.row, (cell.lo, cell.hi))
        rng = random.at(Purpose.MISSING, cell=cell.number)
        at = patterns.row[first:last]
        rows = model.loss.draw(rng, model.y[at], model.c[at] / times[at], f[at])
        count = int(patterns.cell[last] - patterns.cell[first])
        parts.append((*rows, rng.standard_normal(len(at)), rng.standard_normal(count)))
    w, b, eps, e = (np.concatenate(column) for column in zip(*parts, strict=True))
    return w, b, eps, e
