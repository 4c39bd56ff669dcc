"""Intercept and coefficients of the active rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.move import MoveBase
from softmargin.engines.kernel._jump_factors import back_solve
from softmargin.engines.kernel.active_chain import ActiveChain, Law, factor
from softmargin.engines.kernel.data import KernelData

__all__ = ["BasisCoefficients", "LawOfCoefficients"]

_REBUILD = 100  # sweeps after which the factors are computed anew


@dataclass(frozen=True)
class LawOfCoefficients(MoveBase):
    """The normal law of intercept and coefficients given the latents, for the moves that integrate these out.

    Invariance: nothing is drawn. Now and then the basis is computed anew, because jumps lose digits.

    Parameters
    ----------
    same_weights : bool
        Whether every draw of the latents has the same weights w. Then the Gram matrix of the basis is that of the law
        before, and costs no pass over the rows.
    """

    same_weights: bool = False

    reads = frozenset({"latents", "gamma", "scale"})
    renews = frozenset({"law"})

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with the law that belongs to where it stands."""
        anew = random.iteration % _REBUILD == 0
        G, R = factor(chain.K, chain.active) if anew else (chain.G, chain.R)
        gram = chain.law.gram if self.same_weights and not anew else (G * chain.w) @ G.T
        return chain._replace(G=G, R=R, law=Law.of(gram, G @ chain.b, chain.eta, chain.g))


@dataclass(frozen=True)
class BasisCoefficients(MoveBase):
    """Intercept and coefficients of the active rows, as one block.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"law", "gamma"})
    renews = frozenset({"beta", "f"})
    stale = frozenset({"loglik"})

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with new coefficients."""
        L, z = chain.law.L, chain.law.z
        x = z + random.rng.standard_normal(len(z))
        back_solve(L, len(z), x)
        shape = x[1:] @ chain.G[1:]
        if not np.isfinite(x[0] + shape).all():  # latents given such predictors could not be drawn
            raise np.linalg.LinAlgError("the coefficients of the active rows were lost to rounding")
        return chain._replace(x=x, shape=shape)
