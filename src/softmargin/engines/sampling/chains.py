"""Chains over the coefficients and whatever else is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.core.unknown import implied
from softmargin.rows.streams import Address

__all__ = ["Chains", "JointChain"]


class JointChain(NamedTuple):
    """A sampler's chain of the coefficients, the drawn states of the unknowns, and the log likelihood of both."""

    chain: Any
    unknowns: tuple[Any, ...]
    loglik: float
    noted: dict[str, float]  # numbers of the unknowns that are worth recording

    def __getattr__(self, name: str) -> Any:
        """What else is asked for is the sampler's."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.chain, name)


@dataclass(frozen=True)
class Chains:
    """Several chains: every unknown given the coefficients in turn, then the sampler given the unknowns.

    An unknown is drawn with the row latents integrated out, or with fresh ones: the sampler does not keep its latents,
    so that they are never out of date. Each draw leaves the joint posterior invariant, and so does a sweep.

    Parameters
    ----------
    sampler : sampler with ``chains``, ``init``, ``sweep`` and ``moved``
        Draws the coefficients and the prior's variables at known unknowns.
    start : tuple or None
        States of the unknowns in a variational fit, to start from.
    """

    sampler: Any
    start: tuple[Any, ...] | None = None

    @property
    def chains(self) -> int:
        """Number of chains."""
        return int(self.sampler.chains)

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.sampler.needs_loss)

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.sampler.needs_prior)

    def init(self, model: Model) -> tuple[JointChain, ...]:
        """The sampler's chains where the unknowns start."""
        first = self.start or tuple(unknown.start(model) for unknown in model.unknowns)
        states = tuple(unknown.drawn(state) for unknown, state in zip(model.unknowns, first, strict=True))
        return tuple(_joint(model, chain, states) for chain in self.sampler.init(implied(model, states)))

    def step(self, model: Model, state: tuple[JointChain, ...], iteration: int) -> tuple[tuple[JointChain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial() if self.chains > 1 else model

        def sweep(k: int) -> JointChain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(sweep, range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, state: JointChain, k: int, iteration: int) -> JointChain:
        """One sweep of chain number ``k``."""
        random, chain, states = Address(model.streams, k, iteration), state.chain, list(state.unknowns)
        for place, unknown in enumerate(model.unknowns):
            others = implied(model, tuple(states), without=place)
            before, states[place] = states[place], unknown.draw(random, others, states[place], chain)
            if unknown.changes_rows and states[place] is not before:
                now = unknown.apply(others, states[place])
                chain = chain._replace(f=now.blocks.matvec(chain.beta))
        now = implied(model, tuple(states))
        chain = self.sampler.sweep(now, self.sampler.moved(now, chain), k, iteration)
        return _joint(model, chain, tuple(states))


def _joint(model: Model, chain: Any, states: tuple[Any, ...]) -> JointChain:
    known = list(zip(model.unknowns, states, strict=True))
    off = sum(unknown.log_normalizer(model, state) for unknown, state in known)
    noted = {name: value for unknown, state in known for name, value in unknown.noted(state).items()}
    return JointChain(chain, states, chain.loglik - off, noted)
