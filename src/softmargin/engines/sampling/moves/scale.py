"""The length of the coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.core.visits import likelihood_along, stretched
from softmargin.rows.variates import slice_step

__all__ = ["FARTHEST", "Line", "ScaleMove"]

FARTHEST = 50.0  # no single move changes a scale by more than e^50


class Line:
    """Predictors ``fixed + e^t along`` that are left with the rows; without ``fixed``, ``e^t along``.

    The log likelihood at several t is one pass, and is kept for when it is asked for.
    """

    def __init__(self, model: Model, along: Any, *fixed: Any) -> None:
        self.blocks, self.loss, self.kept = model.blocks, model.loss, (along, *fixed)
        self.known: dict[float, float] = {}

    def ahead(self, points: list[float]) -> None:
        """Find the log likelihood at some points in one pass."""
        points = [t for t in points if -FARTHEST < t < FARTHEST]
        if not points:
            return
        found = self.blocks.sum(likelihood_along, (self.loss, [math.exp(t) for t in points]), *self.kept)[0]
        self.known.update(zip(points, found.tolist(), strict=True))

    def loglik(self, t: float) -> float:
        """The log likelihood at t."""
        if t not in self.known:
            self.ahead([t])
        return self.known[t]

    def update(
        self, rng: np.random.Generator, log_density: Callable[[float], float], *, width: float
    ) -> tuple[float, Any]:
        """A slice update of t from zero under the log likelihood plus a log density, and the predictors there."""

        def total(t: float) -> float:
            return self.loglik(t) + log_density(t) if abs(t) < FARTHEST else -math.inf

        t = slice_step(rng, total, 0.0, width=width, ahead=self.ahead)
        return t, self.blocks.keep(stretched, math.exp(t), *self.kept)[0]


@dataclass(frozen=True)
class ScaleMove(MoveBase):
    """Slice update of g in beta -> g beta, with row latents and local variables integrated out.

    Invariance: the group of scalings acts on beta with Jacobian ``g^dimension``, so log g has the density ``posterior(g
    beta) g^dimension`` along the orbit, which the slice update leaves invariant.

    References
    ----------
    Liu and Sabatti (2000), Generalised Gibbs sampler and multigrid Monte Carlo, Biometrika 87.
    """

    reads = frozenset({"beta", "f", "scale"})
    stale = frozenset({"local", "loglik"})
    needs_loss = ("loglik",)
    needs_prior = ("along",)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with coefficients of another length."""
        beta = chain.beta
        if not beta.any():
            return chain
        log_prior, d, line = model.prior.along(chain.prior, beta), model.dimension, Line(model, chain.rows)
        t, rows = line.update(random.rng, lambda t: log_prior(t) + d * t, width=1.0 / math.sqrt(d))
        beta = math.exp(t) * beta
        return chain._replace(beta=beta, rows=rows, mean=beta)
