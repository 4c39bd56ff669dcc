"""A sampler with a sweep of its own as one move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softmargin.core.chain import Chain
from softmargin.core.model import Model, require
from softmargin.core.move import MoveBase
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns

__all__ = ["Whole", "whole"]


@dataclass(frozen=True)
class Whole(MoveBase):
    """One sweep of a sampler. Invariance: that of the sampler."""

    sampler: Any

    reads = frozenset({"beta", "f"})
    renews = frozenset({"beta", "f", "loglik"})

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain after the sweep."""
        old = chain.own["chain"]._replace(beta=chain.beta, f=chain.f)
        return _chain(
            self.sampler.sweep(model, self.sampler.moved(model, old), random.chain, random.iteration), chain.unknowns
        )


def _chain(own: Any, unknowns: tuple[Any, ...] = ()) -> Chain:
    gamma, inclusion = getattr(own, "gamma", None), getattr(own, "inclusion", None)
    return Chain(own.beta, own.f, own.prior, own.mean, own.loglik, gamma, inclusion, unknowns, own={"chain": own})


def whole(sampler: Any, unknowns: tuple[Any, ...] | None = None) -> Chains:
    """Chains of a sampler beside unknowns."""

    def start(model: Model, chains: int) -> tuple[Chain, ...]:
        require(sampler, loss=model.loss, prior=model.prior)
        return tuple(_chain(own) for own in sampler.init(model))

    return Chains((DrawUnknowns(), Whole(sampler)), start, sampler.chains, unknowns)
