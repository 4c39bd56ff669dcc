"""Companion chains at smaller row weights, which exchange their states with the chain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import Move, MoveBase, check_order
from softmargin.rows.streams import Address, Purpose

__all__ = ["Tempered", "level", "tempered_starts"]

_FACTORS, _ROWS = (0.65, 0.42, 0.27), 200  # of companions where columns outnumber rows, and up to how many rows


@dataclass(frozen=True)
class Tempered(MoveBase):
    """Some moves of the chain and of its companions, then exchanges between neighbours.

    Companions have row weights multiplied by decreasing factors, so that a model which separates the classes can be
    left. Invariance: the moves leave every level's own posterior invariant, and an exchange of the states of two levels
    is a Metropolis step on the product of both. What a level has learned stays with it: its records and the inclusion
    probabilities last computed there.

    Parameters
    ----------
    moves : tuple of Move
        The moves of a sweep.
    factors : tuple of float or None
        Factors, decreasing below 1. None: (0.65, 0.42, 0.27) where there are more columns than rows and at most 200
        rows, none otherwise.
    """

    moves: tuple[Move, ...]
    factors: tuple[float, ...] | None = None

    reads = frozenset({"beta", "f", "gamma", "scale"})
    renews = frozenset({"beta", "f", "gamma", "scale", "local", "loglik"})

    def __post_init__(self) -> None:
        check_order(self.moves)

    @property
    def needs_loss(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the moves need of a loss."""
        return tuple(name for move in self.moves for name in move.needs_loss)

    @property
    def needs_prior(self) -> tuple[str, ...]:  # type: ignore[override]
        """What the moves need of a prior."""
        return tuple(name for move in self.moves for name in move.needs_prior)

    def of(self, model: Model) -> tuple[float, ...]:
        """The factors for a model."""
        if self.factors is None:
            return _FACTORS if len(model.y) <= min(_ROWS, model.size) else ()
        return self.factors

    def prepare(self, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """The chains and their companions with what the moves keep in them."""
        for move in self.moves:
            chains = move.prepare(model, chains)
        hot = [chain.own["hot"] for chain in chains]
        for r, factor in enumerate(self.of(model)):
            warm, row = _at_temperature(model, factor), tuple(each[r] for each in hot)
            for move in self.moves:
                row = move.prepare(warm, row)
            hot = [(*each[:r], new, *each[r + 1 :]) for each, new in zip(hot, row, strict=True)]
        return tuple(chain.keeping(hot=each) for chain, each in zip(chains, hot, strict=True))

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain after its moves, those of its companions, and the exchanges."""
        k, iteration, streams, factors = random.chain, random.iteration, random.streams, self.of(model)
        levels = [self._swept(random, model, chain)]
        if not factors:
            return levels[0]
        for r, factor in enumerate(factors, start=1):
            number = level(k, r)
            rng = streams.at(Purpose.MOVES, chain=number, iteration=iteration)
            warm = Address(streams, number, iteration, rng)
            levels.append(self._swept(warm, _at_temperature(model, factor), chain.own["hot"][r - 1]))
        rng, heat = streams.at(Purpose.MOVES, chain=k, iteration=iteration, cell=1 << 32), (1.0, *factors)
        for r in range(iteration % 2, len(factors), 2):
            levels[r], levels[r + 1] = _exchange(rng, levels[r], levels[r + 1], heat[r], heat[r + 1])
        return levels[0].keeping(hot=tuple(levels[1:]))

    def _swept(self, random: Any, model: Model, chain: Chain) -> Chain:
        for move in self.moves:
            chain = move(random, model, chain)
        return chain


def tempered_starts(start: Any, model: Model, k: int, factors: tuple[float, ...]) -> tuple[Chain, ...]:
    """First companions of chain number ``k``: ``start(model, number)`` gives one chain."""
    return tuple(start(_at_temperature(model, factor), level(k, r)) for r, factor in enumerate(factors, start=1))


def level(k: int, r: int) -> int:
    """The address of the random numbers of level r of chain k."""
    return k + (r << 32)


def _at_temperature(model: Model, factor: float) -> Model:
    """The same problem with row weights multiplied by a factor."""
    return model.with_weight(factor * model.c)


def _exchange(rng: np.random.Generator, cold: Chain, hot: Chain, a: float, b: float) -> tuple[Chain, Chain]:
    """Metropolis exchange of the states of two levels whose weights are a and b times the rows' own."""
    ratio = (a - b) * (hot.loglik / b - cold.loglik / a)
    accepted = math.log(1.0 - rng.random()) < ratio
    tally = cold.own["tally"]
    cold = cold.keeping(tally=tally._replace(exchanges=tally.exchanges + np.array([1.0, float(accepted)])))
    if not accepted:
        return cold, hot

    def taken(to: Chain, by: Chain, factor: float) -> Chain:
        # the conditional mean belongs to latents of the other level: only the draw itself is a draw here
        return to._replace(
            beta=by.beta, rows=by.rows, prior=by.prior, mean=by.beta, loglik=by.loglik * factor, gamma=by.gamma
        )

    return taken(cold, hot, a / b), taken(hot, cold, b / a)
