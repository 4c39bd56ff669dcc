"""Where a chain stands: one record for every sampler of coefficients on columns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from softmargin.core.array import Array, Flags
from softmargin.core.prior import PriorState
from softmargin.core.rows import Kept

__all__ = ["Chain"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Chain(NamedTuple):
    """What the moves of a sampler share; row latents are drawn inside a move and are not part of it."""

    beta: Array
    rows: Kept  # linear predictors, left with the rows
    prior: PriorState
    mean: Array  # expectation of the last draw of beta given what it was drawn from, for Rao-Blackwell averages
    loglik: float
    gamma: Flags | None = None  # which coefficients (or variables) are in, where some can be out
    inclusion: Array | None = None  # probability of each being in when it was last visited, given the rest
    unknowns: tuple[Any, ...] = ()  # drawn states of what is not known beside the coefficients
    noted: Mapping[str, float] = _NOTHING  # numbers of the unknowns that are worth recording
    own: Mapping[str, Any] = _NOTHING  # what a move keeps for itself, by the move's name for it

    @property
    def f(self) -> Array:
        """The linear predictors, home."""
        f: Array = self.rows.fetch().f
        return f

    def keeping(self, **own: Any) -> Chain:
        """The chain with more, or other, records of its moves."""
        return self._replace(own={**self.own, **own})
