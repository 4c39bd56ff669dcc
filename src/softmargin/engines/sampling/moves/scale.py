"""The length of the coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.rows.variates import slice_step

__all__ = ["FARTHEST", "ScaleMove", "loglik_along"]

FARTHEST = 50.0  # no single move changes a scale by more than e^50


def loglik_along(model: Model, f: Array) -> Callable[[float], float]:
    """``t -> log pseudo-likelihood at e^t f``."""
    loglik, y, c = model.loss.loglik, model.y, model.c
    return lambda t: float(loglik(y, c, math.exp(t) * f).sum())


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
        loglik, log_prior, d = loglik_along(model, chain.f), model.prior.along(chain.prior, beta), model.dimension

        def log_density(t: float) -> float:
            return loglik(t) + log_prior(t) + d * t if abs(t) < FARTHEST else -math.inf

        g = math.exp(slice_step(random.rng, log_density, 0.0, width=1.0 / math.sqrt(d)))
        beta = g * beta
        return chain._replace(beta=beta, f=g * chain.f, mean=beta)
