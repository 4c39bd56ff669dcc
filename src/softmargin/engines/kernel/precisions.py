"""The precisions eta of the intercept and g of the coefficients of a kernel expansion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.move import MoveBase
from softmargin.engines.kernel.data import KernelData
from softmargin.rows.variates import slice_step

__all__ = ["Precisions", "Stretch"]

_FAR = 50.0  # no single move changes a scale by more than e^50


@dataclass(frozen=True)
class Precisions(MoveBase):
    """eta given the intercept, g given the coefficients.

    Invariance: two draws from full conditionals.
    """

    reads = frozenset({"beta"})
    renews = frozenset({"scale"})
    stale = frozenset({"law"})

    def __call__(self, random: Any, model: KernelData, chain: Any) -> Any:
        """The chain with new precisions."""
        alpha = chain.x[1:]
        eta = model.prior.draw_eta(random.rng, float(chain.x[0]))
        g = model.prior.draw_g(random.rng, float(alpha @ alpha), len(alpha))
        return chain._replace(eta=eta, g=g)


@dataclass(frozen=True)
class Stretch(MoveBase):
    """Slice update of t in (alpha, g) -> (e^t alpha, e^-2t g), intercept fixed. Without it g and the size of f creep
    along together.

    Invariance: the prior of ``alpha sqrt(g)`` drops out of the density of t, which leaves that of log g and the
    likelihood, latents integrated out; these are stale until they are drawn again.

    References
    ----------
    Yu and Meng (2011), To center or not to center, Journal of Computational and Graphical Statistics 20.
    """

    reads = frozenset({"beta", "f", "scale"})
    renews = frozenset({"loglik"})
    stale = frozenset({"latents", "law"})
    needs_loss = ("loglik",)

    def __call__(self, random: Any, model: KernelData, chain: Any) -> Any:
        """The chain with a larger or smaller expansion, and the log likelihood there."""
        u, shape, log_g, seen = float(chain.x[0]), chain.shape, math.log(chain.g), dict[float, float]()

        def log_density(t: float) -> float:
            if abs(t) > _FAR:
                return -math.inf
            seen[t] = float(model.loss.loglik(model.y, model.c, u + math.exp(t) * shape).sum())
            return seen[t] + model.prior.log_g(log_g - 2.0 * t)

        t = 0.0
        if isinstance(model.prior.shrinkage, tuple) and shape.any():
            t = slice_step(random.rng, log_density, t, width=0.5)
        else:
            log_density(t)
        x = np.append(u, math.exp(t) * chain.x[1:])
        return chain._replace(x=x, shape=math.exp(t) * shape, g=chain.g * math.exp(-2.0 * t), loglik=seen[t])
