"""One engine for all samplers: several chains, a sweep of moves each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, Self

from softmargin.core.loop import Info
from softmargin.core.model import require
from softmargin.core.move import Move, check_order
from softmargin.core.unknown import implied
from softmargin.core.visits import likelihood, predictors
from softmargin.rows.streams import Address, Purpose

__all__ = ["Chains", "Sampled", "State"]

State = tuple[Any, ...]  # chains: ``Chain``, or another immutable named tuple with a log likelihood
Start = Callable[[Any, int], State]


class Sampled(Protocol):
    """What chains run on: a ``Model``, or the data of kernel expansions."""

    @property
    def loss(self) -> Any: ...

    @property
    def prior(self) -> Any: ...

    @property
    def streams(self) -> Any: ...

    @property
    def unknowns(self) -> tuple[Any, ...]: ...

    def serial(self) -> Self:
        """The same problem without threads, for use inside a thread."""

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to every item, on the threads where there are any."""


@dataclass(frozen=True)
class Chains:
    """Several chains; a sweep makes every move in turn.

    Each move leaves the joint posterior of the coefficients, the prior's variables and the unknowns invariant, and so
    does a sweep. An order in which a move reads what another has left stale is refused.

    Parameters
    ----------
    moves : tuple of Move
        The moves of a sweep, in their order.
    start : callable
        ``start(model, chains)`` gives the first chains of a model without unknowns.
    chains : int
        Number of chains.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    closing : tuple of Move
        Moves that renew what a sweep leaves stale, made where somebody wants to see all of a chain (``complete``).
    """

    moves: tuple[Move, ...]
    start: Start
    chains: int = 4
    unknowns: tuple[Any, ...] | None = None
    closing: tuple[Move, ...] = ()

    def __post_init__(self) -> None:
        check_order(self.moves)

    @cached_property
    def _runs(self) -> tuple[tuple[bool, tuple[Move, ...]], ...]:
        """Moves next to each other that are made chain by chain, or by all chains together."""
        return tuple((key, tuple(run)) for key, run in groupby(self.moves, key=lambda move: move.together))

    @cached_property
    def _stale(self) -> frozenset[str]:
        """What a sweep leaves stale."""
        return check_order(self.moves)

    def init(self, model: Any) -> State:
        """The first chains, where the unknowns start."""
        first = self.unknowns or tuple(unknown.start(model) for unknown in model.unknowns)
        states = tuple(unknown.drawn(state) for unknown, state in zip(model.unknowns, first, strict=True))
        now = implied(model, states) if model.unknowns else model
        for move in self.moves:
            require(move, loss=now.loss, prior=now.prior)
        chains = self.start(now, self.chains)
        for move in self.moves:
            chains = move.prepare(now, chains)
        if model.unknowns:
            chains = tuple(chain._replace(unknowns=states) for chain in chains)
        return tuple(self._closed(model, chain) for chain in chains)

    def step(self, model: Sampled, state: State, iteration: int) -> tuple[State, Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial() if self.chains > 1 else model
        for number, (together, moves) in enumerate(self._runs):
            if together:
                for move in moves:
                    state = move(Address(model.streams, 0, iteration + 1), model, state)
                continue
            before = state

            def sweep(k: int, moves: Any = moves, number: int = number, before: State = before) -> Any:
                return _made(moves, serial, before[k], k, iteration + 1, number)

            state = tuple(model.parallel(sweep, range(self.chains)))
        if model.unknowns or "loglik" in self._stale:
            state = tuple(self._closed(serial, chain) for chain in state)
        return state, Info(sum(chain.loglik for chain in state) / len(state), math.inf)

    def sweep(self, model: Sampled, chain: Any, k: int, iteration: int) -> Any:
        """One sweep of chain number ``k`` alone."""
        for number, (together, moves) in enumerate(self._runs):
            if together:
                raise ValueError(f"{type(moves[0]).__name__} moves all chains together; use step.")
            chain = _made(moves, model, chain, k, iteration, number)
        return self._closed(model, chain)

    def complete(self, model: Sampled, chain: Any, k: int, iteration: int) -> Any:
        """Chain number ``k`` with everything that a sweep leaves stale drawn given the rest."""
        return _made(self.closing, model, chain, k, iteration, len(self.moves)) if self.closing else chain

    def _closed(self, model: Sampled, chain: Any) -> Any:
        """The chain with the log likelihood of everything that was drawn, and the numbers that are worth recording."""
        if "loglik" in self._stale:
            now = _known(model, chain)
            if "f" in self._stale:
                chain = chain._replace(rows=now.blocks.keep(predictors, chain.beta)[0])
            chain = chain._replace(loglik=float(now.blocks.sum(likelihood, now.loss, chain.rows)[0][0]))
        if not model.unknowns:
            return chain
        known = list(zip(model.unknowns, chain.unknowns, strict=True))
        off = sum(unknown.log_normalizer(model, state) for unknown, state in known)
        noted = {name: value for unknown, state in known for name, value in unknown.noted(state).items()}
        return chain._replace(loglik=chain.loglik - off, noted=noted)


def _known(model: Any, chain: Any) -> Any:
    """The model that the drawn unknowns of a chain imply."""
    return implied(model, chain.unknowns) if model.unknowns else model


def _made(moves: tuple[Move, ...], model: Sampled, chain: Any, k: int, iteration: int, number: int) -> Any:
    """A chain after some moves, which share one generator."""
    rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration, cell=number)
    random, now = Address(model.streams, k, iteration, rng), None
    for move in moves:
        if move.opens:
            chain, now = move(random, model, chain), None
            continue
        now = _known(model, chain) if now is None else now
        chain = move(random, now, chain)
    return chain
