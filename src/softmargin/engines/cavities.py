"""Leave-one-out moments of the predictors from a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.gibbs import draw_rows
from softmargin.engines.model import Model
from softmargin.execution.blocks import Blocks
from softmargin.execution.streams import Purpose
from softmargin.link import cavity

__all__ = ["CavityAverage"]


class CavityAverage:
    """Average over sweeps of the predictors' moments without their own rows.

    Given the latents the coefficients are Gaussian and a row is one message, which can be taken out exactly: no
    importance weights, and no draw has to reach where the row would not have let it go.
    """

    def __init__(self, model: Model, part: Array):
        n = len(model.y)
        self.model, self.part, self.count = model, part, 0
        self.mean, self.square, self.kv = np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, chain: Any, iteration: int) -> None:
        """Draw fresh latents at the chain's present point and take every row out in turn."""
        model, precision = self.model, chain.prior.precision
        gamma = getattr(chain, "gamma", None)
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
