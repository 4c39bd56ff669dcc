"""A move: one kernel of a sampler, which leaves the posterior invariant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

__all__ = ["PARTS", "Move", "MoveBase", "check_order"]

# what a chain holds, in words that an error can show
PARTS = {
    "beta": "the coefficients",
    "f": "the linear predictors",
    "scale": "the scale",
    "local": "the local variables of the prior",
    "gamma": "the indicators",
    "latents": "the row latents",
    "law": "the normal law of the coefficients given the latents",
    "unknowns": "the unknowns",
    "loglik": "the log likelihood",
}


@runtime_checkable
class Move(Protocol):
    """One kernel. Given a chain at the posterior it returns one at the posterior.

    What it has integrated out and not drawn again is ``stale`` afterwards: it belongs to the chain before the move. A
    move that ``reads`` it is wrong until another ``renews`` it, so an order of moves can be checked before the first
    sweep.
    """

    @property
    def reads(self) -> frozenset[str]: ...

    @property
    def renews(self) -> frozenset[str]: ...

    @property
    def stale(self) -> frozenset[str]: ...

    @property
    def together(self) -> bool:
        """Whether it is given all chains at once, and not one after another."""

    @property
    def opens(self) -> bool:
        """Whether it is given the model with its unknowns, and not the one that their states imply."""

    @property
    def needs_loss(self) -> tuple[str, ...]: ...

    @property
    def needs_prior(self) -> tuple[str, ...]: ...

    def prepare(self, model: Any, chains: tuple[Any, ...]) -> tuple[Any, ...]:
        """All chains with what the move keeps in them, before the first sweep."""

    def __call__(self, random: Any, model: Any, chain: Any) -> Any:
        """The chain after the move; the model is a ``Model``, or what else its sampler runs on.

        ``random.rng`` is the generator that the moves of a sweep share in turn, ``random.at(purpose, cell)`` one of its
        own for this chain, iteration, purpose and cell. A move of all chains together is given a tuple of chains.
        """


class MoveBase:
    """A move that keeps nothing, is given one chain, and leaves nothing behind."""

    reads: frozenset[str] = frozenset()
    renews: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    together = False
    opens = False
    needs_loss: tuple[str, ...] = ()
    needs_prior: tuple[str, ...] = ()

    def prepare(self, model: Any, chains: tuple[Any, ...]) -> tuple[Any, ...]:
        """The chains as they are."""
        return chains


def check_order(moves: Iterable[Move]) -> frozenset[str]:
    """What the moves leave stale at the end of a sweep; an order in which a move reads something stale is refused."""
    moves, stale = tuple(moves), dict[str, Move]()
    for move in (*moves, *moves):  # sweeps follow each other: what the last moves leave, the first ones find
        words = move.reads | move.renews | move.stale
        if not words <= PARTS.keys():
            raise ValueError(f"{_name(move)} names {sorted(words - PARTS.keys())}; a chain has {', '.join(PARTS)}.")
        for word in sorted(move.reads & stale.keys()):
            raise ValueError(
                f"{_name(move)} reads {PARTS[word]}, which {_name(stale[word])} before it has integrated out: put a "
                f"move that draws {PARTS[word]} again between them, or {_name(move)} first."
            )
        for word in move.renews:
            stale.pop(word, None)
        stale |= dict.fromkeys(move.stale, move)
    return frozenset(stale)


def _name(move: Any) -> str:
    return type(move).__name__
