"""Drawing what is not known beside the coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.core.unknown import implied

__all__ = ["DrawUnknowns"]


@dataclass(frozen=True)
class DrawUnknowns(MoveBase):
    """Every unknown in turn, by its own ``draw`` given the rest of the chain.

    Invariance: a draw from the conditional given the coefficients and the other unknowns, row latents integrated out or
    drawn afresh, or an update of an unknown together with coefficients that leaves their joint density invariant.
    """

    reads = frozenset({"beta", "f"})
    renews = frozenset({"unknowns"})
    stale = frozenset({"loglik"})
    opens = True

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new states of its unknowns."""
        if not model.unknowns:
            return chain
        states = list(chain.unknowns)
        for place, unknown in enumerate(model.unknowns):
            others = implied(model, tuple(states), without=place)
            states[place], chain = unknown.draw(random, others, states[place], chain)
        return chain._replace(unknowns=tuple(states))
