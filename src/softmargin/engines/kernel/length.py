"""The length scale of the kernel, with the active rows fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.move import MoveBase
from softmargin.engines.kernel.active_chain import ActiveChain, Law, factor
from softmargin.engines.kernel.data import KernelData, LengthScale

__all__ = ["LengthMove"]

_WANTED = 0.4  # acceptance rate that the step is tuned for during warm-up


@dataclass(frozen=True)
class LengthMove(MoveBase):
    """A random walk of the logarithm of the length scale.

    Invariance: a Metropolis step on the density of the length given active set, latents and precisions, in which the
    coefficients are integrated out; these are stale until they are drawn again. The law of the coefficients follows the
    length. The step adapts during the warm-up alone.

    Parameters
    ----------
    scale : LengthScale
        The kernel by its length, and the prior of that.
    warmup : int
        Sweeps during which the step adapts.
    """

    scale: LengthScale
    warmup: int = 0

    reads = frozenset({"latents", "law", "gamma", "scale", "unknowns"})
    stale = frozenset({"beta", "f", "loglik"})

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with another kernel matrix, or where it was."""
        new = chain.length * math.exp(math.exp(chain.step) * random.rng.standard_normal())
        K = np.ascontiguousarray(self.scale.kernel(new))
        G, R = factor(K, chain.active)
        law = Law.of((G * chain.w) @ G.T, G @ chain.b, chain.eta, chain.g)
        ratio = law.log_marginal - chain.law.log_marginal
        ratio += self.scale.log_prior(new) - self.scale.log_prior(chain.length)
        if random.iteration <= self.warmup:
            change = (math.exp(min(ratio, 0.0)) - _WANTED) / math.sqrt(random.iteration)
            chain = chain._replace(step=chain.step + change)
        if math.log(1.0 - random.rng.random()) < ratio:
            chain = chain._replace(K=K, G=G, R=R, law=law, length=new)
        return chain
