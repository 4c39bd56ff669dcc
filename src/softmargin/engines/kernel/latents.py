"""Row latents of kernel expansions: given the predictors, and given each other with the coefficients integrated out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm

from softmargin.core.array import Array
from softmargin.core.move import MoveBase
from softmargin.engines.kernel._jump_compiled import holmes_held
from softmargin.engines.kernel.active_chain import ActiveChain
from softmargin.engines.kernel.data import KernelData
from softmargin.rows.streams import Purpose

__all__ = ["CollapsedLatents", "CopyLatents", "RowLatents"]


@dataclass(frozen=True)
class RowLatents(MoveBase):
    """Row latents given the predictors, as messages (w, b) of every row with its weight.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"f"})
    renews = frozenset({"latents"})
    stale = frozenset({"law"})
    needs_loss = ("draw",)

    def __call__(self, random: Any, model: KernelData, chain: Any) -> Any:
        """The chain with new messages."""
        w, b = model.loss.draw(random.at(Purpose.LATENT), model.y, model.c, chain.f)
        return chain._replace(w=w, b=b)


@dataclass(frozen=True)
class CopyLatents(MoveBase):
    """Latents of the probit given the predictors, one for every copy of a row; a row of weight c is c copies.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"f"})
    renews = frozenset({"latents"})
    stale = frozenset({"law"})
    needs_loss = ("draw",)

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with new latents."""
        row = model.row
        s = model.loss.draw(random.at(Purpose.LATENT), model.y[row], np.ones(len(row)), chain.f[row]).b
        return chain._replace(s=s, w=model.c, b=_summed(model, s))


@dataclass(frozen=True)
class CollapsedLatents(MoveBase):
    """Every latent of the probit in turn, given the others.

    Invariance: draws from full conditionals of the density of active set, precisions and latents in which the
    coefficients are integrated out; these are stale until they are drawn again. The law of the coefficients follows the
    latents.

    References
    ----------
    Holmes and Held (2006), Bayesian Analysis 1, 145-168.
    """

    reads = frozenset({"latents", "law", "gamma", "scale"})
    stale = frozenset({"beta", "f", "loglik"})

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with other latents."""
        law, s, z = chain.law, chain.s.copy(), chain.law.z.copy()
        V = np.ascontiguousarray(dtrsm(1.0, law.L, chain.G.T, side=1, lower=1, trans_a=1))
        holmes_held(random.rng, model.y, model.row, V, s, z)
        return chain._replace(s=s, b=_summed(model, s), law=law._replace(z=z))


def _summed(model: KernelData, s: Array) -> Array:
    """Sums of latents over the copies of every row."""
    return np.asarray(np.bincount(model.row, s, minlength=len(model.y)), dtype=np.float64)
