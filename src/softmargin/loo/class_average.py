"""Leave-one-out moments of the class scores from sweeps, where the posterior is too far from Gaussian."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.loo.class_cavity import ClassMoments, fit_cavities, mix_cavities
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Purpose
from softmargin.solvers.sum_to_zero import SumToZero

__all__ = ["ClassCavityAverage"]


class ClassCavityAverage:
    """Average over sweeps of the scores' moments without their own observations.

    Given the latents the coefficients are Gaussian and the pairs of an observation are messages, which can be taken out
    whatever the shape of the posterior. The latents of the others were drawn with the observation in, so these moments
    are somewhat optimistic.
    """

    def __init__(self, model: Model, part: Array):
        self.model, self.part = model, part
        self.parts: list[ClassMoments] = []

    def add(self, chain: Chain, iteration: int, model: Model | None = None) -> None:
        """Draw fresh latents at the chain's present point and take every observation out in turn.

        ``model`` is the problem as the chain sees it, where that changes.
        """
        model, precision = self.model if model is None else model, chain.prior.precision
        w, b = draw_rows(model, chain.f, Purpose.CAVITY, iteration=iteration)
        gamma = chain.gamma
        if gamma is not None:  # variables that are out take no part; the precision is over the variables
            design: Any = model.blocks.design
            lead = int(design.base.intercept)
            design = replace(design, base=design.base.take(np.flatnonzero(gamma[lead:])))
            space = SumToZero.of(design)
            model = replace(model, blocks=Blocks(design, model.y, model.c), free=design.free, space=space)
            precision = np.tile(precision[gamma], design.k)
        q = model.gaussian(w, b, precision)
        message = Message(w, b, np.zeros_like(w))
        self.parts.append(fit_cavities(model, q, model.blocks.matvec(q.mean), message, self.part))

    def moments(self) -> ClassMoments:
        """Moments of the mixture of all sweeps."""
        return mix_cavities(np.full(len(self.parts), 1.0 / len(self.parts)), self.parts)
