"""The active rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.move import MoveBase
from softmargin.engines.kernel._jump_compiled import jumps
from softmargin.engines.kernel._jump_factors import room_for
from softmargin.engines.kernel.active_chain import ActiveChain, Law, jitter_of
from softmargin.engines.kernel.data import KernelData

__all__ = ["Jumps"]


@dataclass(frozen=True)
class Jumps(MoveBase):
    """Births, deaths and swaps of active rows.

    Invariance: Metropolis steps on the density of the active set given latents and precisions. The coefficients are
    integrated out, so that no dimensions need to be matched, and stale until they are drawn again. The ratio has the
    rates of births and deaths in it, which depend on how many rows are active. The law of the coefficients follows the
    set.

    Parameters
    ----------
    max_active : int
        Largest number of active rows.
    times : int
        Proposals a sweep.
    informed : bool
        Whether births choose rows by their pull on the residual; a proposal then costs a pass over the kernel matrix.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), section 3.2.
    """

    max_active: int
    times: int
    informed: bool = False

    reads = frozenset({"latents", "law", "gamma", "scale"})
    stale = frozenset({"beta", "f", "loglik"})

    def __call__(self, random: Any, model: KernelData, chain: ActiveChain) -> ActiveChain:
        """The chain with other active rows, on copies of its factors with room to grow."""
        k, n, law = len(chain.active), len(chain.K), chain.law
        room = min(self.max_active, k + self.times) + 1  # a swap needs one place more
        index, counts, z = np.empty(room, dtype=np.int64), chain.counts.copy(), np.empty(room + 1)
        G, R, L = np.empty((room + 1, n)), np.zeros((room, room)), np.zeros((room + 1, room + 1))
        index[:k], G[: k + 1], R[:k, :k] = chain.active, chain.G, chain.R
        L[: k + 1, : k + 1], z[: k + 1] = law.L, law.z
        rows = (chain.K, jitter_of(chain.K), chain.w, chain.b, law.g, model.prior.inclusion)
        options = (self.max_active, self.times, self.informed)
        k = jumps(random.rng, room_for(n, room), *rows, *options, index, G, R, L, z, k, counts)
        L, z = L[: k + 1, : k + 1], z[: k + 1]
        if not (np.isfinite(z).all() and np.isfinite(L).all()):
            raise np.linalg.LinAlgError("the factors of the active rows were lost to rounding")
        law = Law(L, z, law.eta, law.g)
        return chain._replace(active=index[:k], G=G[: k + 1], R=R[:k, :k], law=law, counts=counts)
