"""Leave-one-out predictors that are made when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.inference.readout import HeldOut
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import one_blas_thread

__all__ = ["Deferred", "deferred"]


class Deferred:
    """A ``HeldOut`` from a function that is called once, at first use; copies and pickles carry its answer."""

    def __init__(self, make: Callable[[], HeldOut], *, free_offset: bool = False):
        self._free_offset = free_offset
        self._make: Callable[[], HeldOut] | None = make
        self._found: HeldOut | None = None

    @property
    def found(self) -> HeldOut:
        """The predictors and their link."""
        if self._found is None:
            assert self._make is not None
            self._found = self._make()
            self._make = None  # with the rows that it held
        return self._found

    @property
    def f(self) -> Array:
        return self.found.f

    @property
    def v(self) -> Array:
        return self.found.v

    @property
    def loo(self) -> Any:
        return self.found.loo

    @property
    def offset(self) -> float:
        """How far the link moves the boundary from f = 0: not at all, for a mode, unless it is free to."""
        return self.found.offset if self._free_offset else 0.0

    @property
    def probability(self) -> Array:
        """Probability of the second class of every training row, left out."""
        return self.found.probability

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldOut, tuple(self.found)


def deferred(readout: Any, model: Model, point: ActiveSet, penalty: Penalty) -> Deferred:
    """What ``readout.of_mode`` says, later, of a copy of the rows: the user may change X in the meantime.

    For rows whose mode takes a fraction of the time that the predictors without each of them take.
    """
    space: Any = model.space
    space = space.apart()
    model = replace(model.with_weight(model.c.copy()).serial(), space=space)
    model = replace(model, blocks=model.blocks.redesigned(space.design))
    readout = replace(readout, part=readout.part.copy(), weight=readout.weight.copy())

    def make() -> HeldOut:
        with one_blas_thread():
            held: HeldOut = readout.of_mode(model, point, penalty)
        return held

    return Deferred(make, free_offset=readout.free_offset)
