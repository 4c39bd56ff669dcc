"""Posterior modes along increasing scales, each started from the one before."""

from __future__ import annotations

from dataclasses import dataclass

from softmargin.designs.base import Array
from softmargin.engines.active_set import ActiveSet, finish
from softmargin.engines.loop import Info
from softmargin.engines.model import Model
from softmargin.engines.newton import Newton
from softmargin.engines.penalty import Penalty

__all__ = ["ModePath"]

_GAP = 1e-9  # certified gap at which a warm start needs no interior point


@dataclass(frozen=True, eq=False)
class ModePath:
    """One step is the mode at the next scale; the state is the tuple of modes so far.

    A step exchanges margin rows and coefficients, starting from the sets of the mode before. Where that does not end
    with a certificate, the interior point starts afresh.
    """

    scales: Array
    changes: int = 20
    needs_loss = ("loglik", "box")
    needs_prior = ("penalty",)

    def init(self, model: Model) -> tuple[ActiveSet, ...]:
        """No mode yet."""
        return ()

    def step(self, model: Model, state: tuple[ActiveSet, ...], iteration: int) -> tuple[tuple[ActiveSet, ...], Info]:
        """The mode at scale number ``iteration``."""
        parts = model.prior.penalty(float(self.scales[iteration]))
        if parts is None:
            raise ValueError("a path needs a prior with a convex penalty; use prior='lasso' or 'ridge'.")
        penalty, point = Penalty(*parts), None
        if state:
            last = state[-1]
            point = finish(model, last.beta, last.g, last.margin, penalty, active=last.active, changes=self.changes)
        if point is None or not point.certificate.gap <= _GAP:
            point = Newton().at(model, penalty)
        done = iteration + 1 == len(self.scales)
        return (*state, point), Info(-point.certificate.objective, float("inf"), done)
