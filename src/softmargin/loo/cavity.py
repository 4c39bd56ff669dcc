"""Leave-one-out moments of the predictors from draws."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.visits import Latents, One, drawn
from softmargin.loo.link import taken_out
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Purpose

__all__ = ["CavityAverage", "grouped_cavity", "scale_groups"]

_GROUPS = 8  # values of the scale
_DRAWS = 250  # draws used of each


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
    mixture over the scale. A row that is nearly all that a group has ruins the mixture: its k v there counts.
    """
    groups, blocks = [draws[group] for group in scale_groups(scale)], model.blocks
    found = blocks.fetch(blocks.keep(_mixed, (model.loss, groups), blocks.place(One(part)))[0])
    return found.f, found.v, float(found.share.max())


class _Out(NamedTuple):
    """Moments of the predictors without their own rows, and every row's k v; or sums of them over sweeps."""

    f: Array
    v: Array
    share: Array


def _mixed(block: Any, small: tuple[Any, list[Array]], part: One) -> Any:
    """Keep what a mixture of groups of draws says without the row."""
    loss, groups = small
    outs = []
    for draws in groups:
        mean, variance = block.spread(draws)
        message = loss.gaussian(block.y, block.weight, mean, variance)
        outs.append(_Out(*taken_out(mean, variance, message.w, message.b, part.f)))
    f, share = _mean([out.f for out in outs]), reduce(np.maximum, [out.share for out in outs])
    return _Out(f, _mean([out.v + (out.f - f) ** 2 for out in outs]), share), ()


def _mean(vectors: list[Array]) -> Array:
    total = vectors[0]
    for each in vectors[1:]:
        total = total + each
    return total / len(vectors)


def _added(block: Any, small: tuple[Array, Any], message: Any, part: One, *before: _Out) -> Any:
    """Keep the sums over sweeps with one more, whose coefficients have this mean and root, and these messages."""
    f, v = block.matvec(small[0]), block.row_quad(small[1])
    f_out, v_out, share = taken_out(f, v, message.w, message.b, part.f)
    now = _Out(f_out, v_out + f_out**2, share)
    return _Out(*(old + new for old, new in zip(before[0], now, strict=True))) if before else now, ()


class CavityAverage:
    """Average over sweeps of the predictors' moments without their own rows.

    Given the latents the coefficients are Gaussian and a row is one message, which can be taken out whatever the
    shape of the posterior. The latents of the other rows were drawn with the row in, so these moments are somewhat
    optimistic; they serve where the posterior is too far from Gaussian for ``grouped_cavity``.
    """

    def __init__(self, model: Model, part: Array):
        self.model, self.part, self.count = model, model.blocks.place(One(part)), 0
        self.sums: tuple[Any, ...] = ()  # handle of the sums over sweeps, once there are any

    def add(self, chain: Chain, iteration: int, model: Model | None = None) -> None:
        """Draw fresh latents at the chain's present point and take every row out in turn.

        ``model`` is the problem as the chain sees it, where that changes.
        """
        model, precision = self.model if model is None else model, chain.prior.precision
        gamma = chain.gamma
        if gamma is not None and not gamma.any():  # an empty model: every predictor is zero
            self.count += 1
            return
        if gamma is not None and not gamma.all():  # coefficients that are out take no part
            lead = int(model.blocks.design.intercept)
            design = model.blocks.design.take(np.flatnonzero(gamma[lead:]))
            model = replace(model, blocks=Blocks(design, model.y, model.c), free=model.free[gamma])
            precision = precision[gamma]
        latents = Latents(model.loss, model.streams, Purpose.CAVITY, 0, iteration)
        message, _ = model.blocks.keep(drawn, latents, chain.rows)
        q, _ = model.conditional(message, precision)
        self.count += 1
        self.sums = (model.blocks.keep(_added, (q.mean, q.root), message, self.part, *self.sums)[0],)

    def moments(self) -> tuple[Array, Array, float]:
        """Mean and variance of every predictor without its row, and the largest average k v."""
        if not self.sums:  # all models were empty
            nothing = np.zeros(self.model.n)
            return nothing, nothing, 0.0
        mean, square, share = (each / self.count for each in self.model.blocks.fetch(self.sums[0]))
        return mean, np.maximum(square - mean**2, 0.0), float(share.max())
