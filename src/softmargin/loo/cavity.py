"""Leave-one-out moments of the predictors from draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.loo.link import cavity
from softmargin.rows.in_memory import Blocks, Cell
from softmargin.rows.streams import Purpose

__all__ = ["CavityAverage", "grouped_cavity", "scale_groups"]

_GROUPS = 8  # values of the scale
_DRAWS = 250  # draws used of each
_ROWS = 128  # rows at a time: rows x draws stays in the cache


def scale_groups(scale: Array) -> list[Any]:
    """Draws grouped by the value of their scale, thinned to what moments need."""
    order = np.argsort(scale, kind="stable")
    learned = scale[order[0]] < scale[order[-1]]
    parts = np.array_split(order, min(_GROUPS, max(1, len(order) // 50)) if learned else 1)
    return [np.sort(group)[:: max(1, len(group) // _DRAWS)] for group in parts]


def grouped_cavity(model: Model, draws: Array, scale: Array, part: Array) -> tuple[Array, Array, float]:
    """Mean and variance of every predictor without the part ``part`` of its own row, and the largest k v.

    Draws are grouped by the prior scale, given which the posterior is close to Gaussian: within a group the row is
    taken out as from a Gaussian fit with the group's moments, and the groups are mixed, as in the variational
    mixture over the scale.
    """
    groups = scale_groups(scale)
    lead = int(model.blocks.design.intercept)

    def slab(lo: int, hi: int) -> tuple[Array, Array, Array]:
        at, outs = slice(lo, hi), []
        for group in groups:
            f = model.blocks.design.matmat(np.ascontiguousarray(draws[group, lead:].T), lo, hi)
            f += draws[group, :lead].sum(axis=1)
            mean, variance = f.mean(axis=1), f.var(axis=1, ddof=1) if len(group) > 1 else np.zeros(hi - lo)
            message = model.loss.gaussian(model.y[at], model.c[at], mean, variance)
            f_out, v_out, _ = cavity(mean, variance, message.w, message.b, part[at])
            outs.append((f_out, v_out, part[at] * message.w * variance))
        f_out = np.mean([out[0] for out in outs], axis=0)
        v_out = np.mean([out[1] + (out[0] - f_out) ** 2 for out in outs], axis=0)
        return f_out, v_out, np.mean([out[2] for out in outs], axis=0)

    def collect(cell: Cell) -> list[tuple[Array, Array, Array]]:
        return [slab(lo, min(lo + _ROWS, cell.hi)) for lo in range(cell.lo, cell.hi, _ROWS)]

    slabs = [entry for cell in model.blocks.map(collect) for entry in cell]
    f_out, v_out, share = (np.concatenate(column) for column in zip(*slabs, strict=True))
    return f_out, v_out, float(share.max())


class CavityAverage:
    """Average over sweeps of the predictors' moments without their own rows.

    Given the latents the coefficients are Gaussian and a row is one message, which can be taken out whatever the
    shape of the posterior. The latents of the other rows were drawn with the row in, so these moments are somewhat
    optimistic; they serve where the posterior is too far from Gaussian for ``grouped_cavity``.
    """

    def __init__(self, model: Model, part: Array):
        n = len(model.y)
        self.model, self.part, self.count = model, part, 0
        self.mean, self.square, self.kv = np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, chain: Any, iteration: int, model: Model | None = None) -> None:
        """Draw fresh latents at the chain's present point and take every row out in turn.

        ``model`` is the problem as the chain sees it, where that changes.
        """
        model, precision = self.model if model is None else model, chain.prior.precision
        gamma = getattr(chain, "gamma", None)
        if gamma is not None and not gamma.any():  # an empty model: every predictor is zero
            self.count += 1
            return
        if gamma is not None and not gamma.all():  # coefficients that are out take no part
            lead = int(model.blocks.design.intercept)
            design = model.blocks.design.take(np.flatnonzero(gamma[lead:]))
            model = replace(model, blocks=Blocks(design, model.y, model.c), free=model.free[gamma])
            precision = precision[gamma]
        w, b = draw_rows(model, chain.f, Purpose.CAVITY, iteration=iteration)
        q = model.gaussian(w, b, precision)
        f, v = model.blocks.matvec(q.mean), model.blocks.row_quad(q.root)
        f_out, v_out, _ = cavity(f, v, w, b, self.part)
        self.count += 1
        self.mean += f_out
        self.square += v_out + f_out**2
        self.kv += self.part * w * v

    def moments(self) -> tuple[Array, Array, float]:
        """Mean and variance of every predictor without its row, and the largest average k v."""
        mean = self.mean / self.count
        return mean, np.maximum(self.square / self.count - mean**2, 0.0), float((self.kv / self.count).max())
