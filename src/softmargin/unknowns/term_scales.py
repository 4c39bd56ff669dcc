"""The standard deviations of normal terms beside fixed effects whose prior has point masses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.core.unknown import Seen, Unknown
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step
from softmargin.solvers.low_rank import squares

__all__ = ["TermScales"]

_LOG_2PI = math.log(2.0 * math.pi)
_FAR = 20.0  # no single move changes a standard deviation by more than e^20


@dataclass(frozen=True)
class TermScales(Unknown):
    """Standard deviations of the terms of a prior in parts; given these the terms' coefficients are normal.

    Engines that move between sets of columns take the terms as coefficients that are always in, with known precisions.
    Where the prior of the fixed effects has no point masses, the prior in parts learns them itself, and this is idle.
    """

    def start(self, model: Model) -> PriorState:
        """The terms where the prior starts."""
        return model.prior.start()

    def apply(self, model: Model, state: PriorState) -> Model:
        """The fixed effects' own prior, with the terms behind it."""
        prior: Any = model.prior
        if not prior.selects:
            return model
        return model.with_prior(prior.selecting(state.precision))

    def expect(self, model: Model, state: PriorState, seen: Seen, *, careful: bool = False) -> tuple[PriorState, float]:
        """Every standard deviation given the moments of its term's coefficients."""
        prior: Any = model.prior
        if not prior.selects:
            return state, 0.0
        var, values, precision, total = squares(seen.root), dict(state.values), state.precision.copy(), 0.0
        for part in prior.parts[1:]:
            found = part.prior.expect(seen.mean[part.where], part.taken(var))
            part.put(precision, found.precision)
            values |= part.named(found.values)
            # the engine's objective has the terms as normal with known precisions
            second = seen.mean[part.where] ** 2 + var[part.where]
            known = 0.5 * (np.log(found.precision) - found.precision * second - _LOG_2PI)
            total += found.bound - float(known.sum())
        return PriorState(precision, values), total

    def draw(self, random: Any, model: Model, state: PriorState, chain: Any) -> tuple[PriorState, Any]:
        """For each learned standard deviation a move of it together with its coefficients, and a draw given them."""
        prior: Any = model.prior
        rng = random.at(Purpose.TERMS)
        for part in prior.parts[1:]:
            hyper = part.stretch(state)
            if hyper is None:
                continue
            state, chain = _together(model, chain, part, hyper, state, rng)
            own = part.prior.draw(rng, part.state(state), chain.beta[part.where])
            precision = state.precision.copy()
            part.put(precision, own.precision)
            state = PriorState(precision, state.values | part.named(own.values))
        return state, chain

    def noted(self, state: PriorState) -> dict[str, float]:
        """The standard deviations by the names of the terms."""
        return {name: value for name, value in state.values.items() if name not in ("scale", "size", "inclusion")}


def _together(
    model: Model, chain: Any, part: Any, hyper: Any, state: PriorState, rng: np.random.Generator
) -> tuple[PriorState, Any]:
    """Slice update of g in (sd, u) -> (g sd, g u): the density of u given sd drops out."""
    own = np.zeros_like(chain.beta)
    own[part.where] = chain.beta[part.where]
    f, along = chain.f, model.blocks.matvec(own)

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        return float(model.loss.loglik(model.y, model.c, f + math.expm1(t) * along).sum()) + float(hyper(t))

    t = slice_step(rng, log_density, 0.0, width=0.3)
    beta = chain.beta + math.expm1(t) * own
    return part.stretched(state, t), chain._replace(beta=beta, rows=model.placed(f + math.expm1(t) * along))
