"""Variational and mode engines alternated with what else is not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from softmargin.core.array import Array
from softmargin.core.loop import Info, relative
from softmargin.core.model import Model, require
from softmargin.core.unknown import Seen, implied

__all__ = ["Alternate", "Alternated"]


class Alternated(NamedTuple):
    """An engine's state on the model that the unknowns imply, their states, and their parts of the objective."""

    inner: Any
    unknowns: tuple[Any, ...]
    parts: tuple[float, ...]
    objective: float
    change: float = math.inf  # of the objective by the last step, relative

    @property
    def prior(self) -> Any:
        """The engine's message of the prior."""
        return self.inner.prior

    @property
    def q(self) -> Any:
        """The engine's density of the coefficients."""
        return self.inner.q

    @property
    def message(self) -> Any:
        """The rows' messages to the engine."""
        return self.inner.message


@dataclass(frozen=True)
class Alternate:
    """An engine, and after each of its steps the best density of every unknown given the rest.

    All parts raise one objective: the bound ``E log p - E log q`` with a factor for every unknown, or with ``mode`` the
    density at a point of the coefficients. A change of an unknown that lowers the objective is replaced by a smaller
    one.

    Parameters
    ----------
    engine : engine with ``coefficients`` and ``seen``
        GaussianVI, MeanField, EM or LaplaceZeroVB.
    mode : bool
        Whether unknowns are taken at a point.
    start : tuple or None
        States of the unknowns to start from.
    """

    engine: Any
    mode: bool = False
    start: tuple[Any, ...] | None = None

    def init(self, model: Model) -> Alternated:
        """The engine's first state, and the unknowns' best densities then."""
        return self._first(model, self.engine.init)

    def at(self, model: Model, beta: Array) -> Alternated:
        """The state of given coefficients, to start from, and the unknowns' best densities then."""
        return self._first(model, lambda now: self.engine.at(now, beta))

    def _first(self, model: Model, init: Callable[[Model], Any]) -> Alternated:
        states = self.start or tuple(unknown.start(model) for unknown in model.unknowns)
        now = implied(model, states)
        require(self.engine, loss=now.loss, prior=now.prior)
        nothing = (-math.inf,) * len(states)  # until every part is known no change can have lowered the objective
        return self._refreshed(model, Alternated(init(now), states, nothing, -math.inf))

    def restart(self, model: Model, state: Alternated) -> Alternated:
        """A warm start: the state as seen by another prior, and the unknowns' best densities then."""
        inner = self.engine.restart(implied(model, state.unknowns), state.inner)
        nothing = (-math.inf,) * len(state.unknowns)
        return self._refreshed(model, state._replace(inner=inner, parts=nothing, objective=-math.inf, change=math.inf))

    def step(self, model: Model, state: Alternated, iteration: int) -> tuple[Alternated, Info]:
        """One step of the engine, then every unknown in turn."""
        inner, info = self.engine.step(implied(model, state.unknowns), state.inner, iteration)
        new = self._refreshed(model, _total(state._replace(inner=inner)))
        gain = new.objective - state.objective
        # an unknown's part may be many times as large as the engine's
        if self.mode:  # solves that are not exact move one part against the other, with no change of their sum
            change = abs(gain) / (1.0 + min(abs(new.objective), abs(new.inner.objective)))
            resting = inner is state.inner or math.isinf(info.change)
            change = max(change, info.change) if resting else change
        else:
            change = max(relative(gain, new.objective), info.change)  # both must come to rest
        # one short step is no sign of an end while unknowns move: one of them may have been moved carefully
        moving = any(a is not b for a, b in zip(state.unknowns, new.unknowns, strict=True))
        return new._replace(change=change), Info(new.objective, max(change, state.change) if moving else change)

    def _refreshed(self, model: Model, state: Alternated) -> Alternated:
        for place in range(len(model.unknowns)):
            new = self._learned(model, state, place)
            if new.objective < state.objective:
                new = self._learned(model, state, place, careful=True)
            state = new
        return state

    def _learned(self, model: Model, state: Alternated, place: int, *, careful: bool = False) -> Alternated:
        """One unknown given the rest, and the engine's state as it then is, the coefficients' density unchanged."""
        unknown, inner = model.unknowns[place], state.inner
        others = implied(model, state.unknowns, without=place)
        mean, root = self.engine.coefficients(inner)
        seen = Seen(mean, root, inner.rows, self.engine.needs_loss[0], self.mode)
        found, part = unknown.expect(others, state.unknowns[place], seen, careful=careful)
        if found is not state.unknowns[place]:
            inner = self.engine.seen(unknown.apply(others, found), inner, rows=unknown.changes_rows)
        unknowns, parts = list(state.unknowns), list(state.parts)
        unknowns[place], parts[place] = found, part
        return _total(state._replace(inner=inner, unknowns=tuple(unknowns), parts=tuple(parts)))


def _total(state: Alternated) -> Alternated:
    return state._replace(objective=float(state.inner.objective) + sum(state.parts))
