"""What a spike-and-slab chain counts after its warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase

__all__ = ["Count", "Tally", "diagnostics"]


class Tally(NamedTuple):
    """Counts since the end of the warm-up: sums of indicators and conditional probabilities, moves tried and made."""

    sweeps: int
    indicator: Array
    inclusion: Array
    flips: Array  # visits, accepted, changes of the model
    swaps: Array  # tried, accepted
    births: Array  # tried, accepted
    exchanges: Array  # tried, accepted, with the next hotter level

    @classmethod
    def empty(cls, p: int) -> Tally:
        """Nothing counted yet."""
        return cls(0, np.zeros(p), np.zeros(p), np.zeros(3), np.zeros(2), np.zeros(2), np.zeros(2))


@dataclass(frozen=True)
class Count(MoveBase):
    """Adds a sweep to the sums of the diagnostics. Invariance: it changes nothing but its own counts."""

    warmup: int

    reads = frozenset({"gamma"})

    def prepare(self, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """The chains with nothing counted."""
        return tuple(chain.keeping(tally=Tally.empty(model.size)) for chain in chains)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with the sweep counted."""
        if random.iteration <= self.warmup:
            return chain.keeping(tally=Tally.empty(model.size))
        tally: Tally = chain.own["tally"]
        assert chain.gamma is not None and chain.inclusion is not None
        counted = tally._replace(
            sweeps=tally.sweeps + 1,
            indicator=tally.indicator + chain.gamma,
            inclusion=tally.inclusion + chain.inclusion,
        )
        return chain.keeping(tally=counted)


def diagnostics(state: Sequence[Chain]) -> dict[str, Array]:
    """Acceptance rates of each chain, and how far indicators and conditional probabilities disagree.

    ``gap`` is, per chain and coefficient, the frequency of the indicator minus the average conditional probability
    since the end of the warm-up: beyond its Monte Carlo error it should be zero.
    """
    tallies: list[Tally] = [chain.own["tally"] for chain in state]
    sweeps = np.array([[max(tally.sweeps, 1)] for tally in tallies])

    def rate(name: str, part: int) -> Array:
        counts = np.array([tally._asdict()[name] for tally in tallies])
        return counts[:, part] / np.maximum(counts[:, 0], 1.0)

    return {
        "gap": np.array([tally.indicator - tally.inclusion for tally in tallies]) / sweeps,
        "indicator": np.array([tally.indicator for tally in tallies]) / sweeps,
        "inclusion": np.array([tally.inclusion for tally in tallies]) / sweeps,
        "flip_acceptance": rate("flips", 1),
        "flip_changes": rate("flips", 2),
        "swap_acceptance": rate("swaps", 1),
        "birth_acceptance": rate("births", 1),
        "exchange_acceptance": rate("exchanges", 1),
    }
