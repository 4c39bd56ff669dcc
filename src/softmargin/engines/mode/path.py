"""Posterior modes along increasing scales, each started from the one before."""

from __future__ import annotations

from dataclasses import dataclass

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.engines.mode.dual_descent import mode_engine
from softmargin.priors.penalty import Penalty

__all__ = ["ModePath"]


@dataclass(frozen=True, eq=False)
class ModePath:
    """One step is the mode at the next scale; the state is the tuple of modes so far.

    A step works on the rows that are near the margin of the mode before, and checks the others.
    """

    scales: Array
    needs_loss = ("loglik", "margin_slope")
    needs_prior = ("penalty",)

    def init(self, model: Model) -> tuple[ActiveSet, ...]:
        """No mode yet."""
        return ()

    def step(self, model: Model, state: tuple[ActiveSet, ...], iteration: int) -> tuple[tuple[ActiveSet, ...], Info]:
        """The mode at scale number ``iteration``."""
        parts = model.prior.penalty(float(self.scales[iteration]))
        if parts is None:
            raise ValueError("a path needs a prior with a convex penalty; use prior='lasso' or 'ridge'.")
        point = mode_engine(model)().at(model, Penalty(*parts), state[-1] if state else None)
        done = iteration + 1 == len(self.scales)
        return (*state, point), Info(-point.certificate.objective, float("inf"), done)
