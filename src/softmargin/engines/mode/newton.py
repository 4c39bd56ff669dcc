"""The exact posterior mode, and the scale of the prior that goes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.space import Normal
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.engines.mode.duality_gap import log_likelihood
from softmargin.engines.mode.interior import exact_mode, path
from softmargin.engines.mode.screening import reduced_mode
from softmargin.engines.mode.smoothed_start import Near, approach, many_rows
from softmargin.priors.penalty import Penalty

__all__ = ["ModeState", "Newton"]

_ENOUGH, _RATIO = 1500, 8  # rows, and rows for each coefficient, that the interior point takes on at once
_MANY = 8000  # rows from which a start near the mode is worth looking for
_CLOSE = 1e-3  # relative gap from which the interior point leaves few rows in doubt
_ANSWERS = 5  # rounds between a scale and a mode that is linear in its precision


class ModeState(NamedTuple):
    """A mode at one value of the prior's scale, and the value that the coefficients call for next."""

    point: ActiveSet
    prior: PriorMessage
    penalty: Penalty
    objective: float
    tried: float  # log of the scale the coefficients were found at
    wanted: float  # log of the scale that maximises the density given them
    before: tuple[float, float]  # the previous (tried, wanted)


@dataclass(frozen=True)
class Newton:
    """Posterior mode with a certificate; a learned scale is updated in alternation (ECME).

    A step finds the exact mode of the coefficients at one value of the scale, then the mode of the scale given the
    coefficients, so the joint density never falls. The scalar sequence is accelerated by secant steps, taken only
    where they raise the joint density. With a fixed scale the first step is the answer. Of many rows a point ``near``
    the mode is looked for first, where none is given.
    """

    start: float = 1.0
    gap: float = 1e-9
    near: Near | None = None
    needs_loss = ("loglik", "margin_slope")
    needs_prior = ("mode", "penalty")

    def init(self, model: Model) -> ModeState:
        fixed = model.prior.stretch(model.prior.start()) is None
        scale = model.prior.start().values["scale"] if fixed else self.start
        near = self.near
        if near is None and many_rows(model):
            penalty = self._penalty(model, scale)
            near, q = approach(model, penalty)
            scale = scale if fixed else self._near_scale(model, near.beta, penalty, q)
        return self._mode(model, math.log(scale), (math.nan, math.nan), near)

    def _near_scale(self, model: Model, beta: Array, penalty: Penalty, q: Normal) -> float:
        """The scale that goes with its mode, when the mode answers to the squares of the penalty as q says."""
        moved = beta
        for _ in range(_ANSWERS):
            scale: float = model.prior.mode(moved).values["scale"]
            moved = beta - q.solve((self._penalty(model, scale).precision - penalty.precision) * moved)
        return scale

    def step(self, model: Model, state: ModeState, iteration: int) -> tuple[ModeState, Info]:
        residual = state.wanted - state.tried
        change = abs(residual)
        if change == 0.0:
            return state, Info(state.objective, 0.0, True)
        last_tried, last_wanted = state.before
        here = (state.tried, state.wanted)
        slope = (state.wanted - last_wanted) / (state.tried - last_tried) if state.tried != last_tried else math.nan
        new = None
        if slope < 0.999 and math.isfinite(slope):
            leap = state.tried + min(max(residual / (1.0 - slope), -3.0), 3.0)
            new = self._mode(model, leap, here, state.point)
            new = new if new.objective >= state.objective else None
        if new is None:
            new = self._mode(model, state.wanted, here, state.point)
        if new.objective < state.objective - 1e-12 * (1.0 + abs(state.objective)):  # only rounding is left
            return state, Info(state.objective, change, True)
        new = new._replace(objective=max(new.objective, state.objective))
        return new, Info(new.objective, abs(new.wanted - new.tried))

    def _mode(
        self, model: Model, log_scale: float, before: tuple[float, float], near: Near | ActiveSet | None = None
    ) -> ModeState:
        penalty = self._penalty(model, math.exp(log_scale))
        point = self.at(model, penalty, near)
        prior = model.prior.mode(point.beta)
        objective = log_likelihood(model, point.f) + prior.bound
        return ModeState(point, prior, penalty, objective, log_scale, math.log(prior.values["scale"]), before)

    def _penalty(self, model: Model, scale: float) -> Penalty:
        parts = model.prior.penalty(scale)
        if parts is None:
            raise ValueError(
                "the interior point needs a penalty of squares, absolute values and lengths (ridge, lasso); use "
                "engine_options={'algorithm': 'em'}."
            )
        return Penalty(*parts)

    def at(self, model: Model, penalty: Penalty, near: Near | ActiveSet | None = None) -> ActiveSet:
        """The mode of the coefficients under a given penalty.

        ``near`` is a point close to it, as the mode at another scale. With many rows only those near the margin of such
        a point are worked on, and all of them checked. Without one, the interior point goes on until it is close.
        """
        few = model.dimension != model.size or len(model.y) <= max(_ENOUGH, _RATIO * model.size)
        if few:
            return exact_mode(model, penalty, self.gap)
        if near is None and len(model.y) > _MANY and model.blocks.design.offers("pick"):
            near = approach(model, penalty)[0]
        found, x = None, None
        if near is not None:
            found = reduced_mode(model, penalty, near, rough=isinstance(near, Near))
        if found is None:
            x = path(model, penalty, _CLOSE)
            found = reduced_mode(model, penalty, x)
        return exact_mode(model, penalty, self.gap, x) if found is None else found
