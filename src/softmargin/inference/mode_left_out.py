"""Predictors of rows left out of a mode: in closed form, and by refits of folds where that is not to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.engines.mode.smoothed_start import picked
from softmargin.inference.choices import refitted
from softmargin.inference.readout import BinaryReadout, HeldOut
from softmargin.loo.folds import Part, design_order
from softmargin.loo.link import WORTH, fit_link
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import at_home, one_blas_thread

__all__ = ["Deferred", "deferred", "far", "left_out_of_mode"]

_FOLDS, _FEWER, _LARGE = 10, 5, 1 << 20  # folds; and folds of rows of so many entries, whose modes take seconds
_BEYOND = 0.01  # share of rows that may end beyond where all predictors lie
_ROUNDING = 1e-6  # beyond which they must end: rows at the margin are there up to the tolerance of the mode
_MOVED, _FAR = 0.05, 2.0  # share of rows that may move by more than the width of a side of the margin, twice


def left_out_of_mode(
    readout: Any, model: Model, point: ActiveSet, penalty: Penalty, coefficients: Callable[[Model], Array] | None
) -> tuple[Any, KeyboardInterrupt | None]:
    """Predictors of rows left out of a mode, and their link; and what interrupted the refits, if anything did.

    ``coefficients`` are those of the mode of some of the rows under the same scale, None where they are not to be had.
    Products alone take long: what is left out of their modes is made when somebody asks for it.
    """
    stopped: KeyboardInterrupt | None = None
    later = model.space.offers("left_out")

    def made(readout: Any, model: Model) -> HeldOut:
        nonlocal stopped
        held: HeldOut = readout.of_mode(model, point, penalty)
        few = isinstance(readout, BinaryReadout) and at_home(model.blocks) is not None
        if coefficients is None or not (few and far(point.f, held.f, readout.weight)):
            return held
        try:
            return _refits(model, readout, coefficients) or held
        except KeyboardInterrupt as stop:
            if later:  # somebody asked for just this, and can ask again
                raise
            stopped = stop
            return held

    left_out = deferred(readout, model, made) if later else made(readout, model)
    return left_out, stopped  # which ``made`` may have set


def far(f: Array, out: Array, weight: Array) -> bool:
    """Whether predictors in closed form are far from those of the fit: other rows would have met the margin before.

    On 20 data sets at scales up to 10 refits were better by up to 0.5 in log loss of new rows where this is so, and
    level elsewhere.
    """
    low, high = min(float(f.min()), -1.0) - _ROUNDING, max(float(f.max()), 1.0) + _ROUNDING
    beyond, moved = (out < low) | (out > high), np.abs(out - f) > _FAR
    total = float(weight.sum())
    return bool(weight @ beyond > _BEYOND * total or weight @ moved > _MOVED * total)


def _refits(model: Model, readout: BinaryReadout, coefficients: Callable[[Model], Array]) -> HeldOut | None:
    """The same by refits of folds, with their link; None where a class has a single row.

    Where columns outnumber rows, copies of a row are left out together.
    """

    def predictors(train: Part, test: Part) -> Array:
        own = picked(model, train.rows)
        f: Array = model.blocks.matvec(coefficients(own.with_weight(own.c * train.share)))
        return f[test.rows]

    label = (model.y > 0.0).astype(np.intp)
    order = design_order(model.blocks.design, label, readout.weight)
    k = _FOLDS if model.n * model.size <= _LARGE else _FEWER
    found = refitted(label, order, readout.weight, k, predictors, together=model.more_coefficients)
    if found is None:
        return None
    offset, worth = readout.columns.intercept and readout.free_offset, 0.0 if readout.free_offset else WORTH
    how: dict[str, Any] = {"offset": offset, "worth": worth, "smooth": True, "wrong": readout.wrong, "tol": readout.tol}
    loo = fit_link(model.y[found.rows], found.values, np.zeros(len(found.rows)), found.weight, float("nan"), **how)
    total = np.bincount(found.rows, found.weight, len(label))
    f = np.bincount(found.rows, found.weight * found.values, len(label)) / np.where(total > 0.0, total, 1.0)
    return HeldOut(f, np.zeros(len(label)), loo._replace(method=f"refits of {k} folds"))


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


def deferred(readout: Any, model: Model, made: Callable[[Any, Model], HeldOut]) -> Deferred:
    """What ``made`` says, later, of a copy of the rows: the user may change X in the meantime.

    For rows whose mode takes a fraction of the time that the predictors without each of them take.
    """
    space: Any = model.space
    space = space.apart()
    model = replace(model.with_weight(model.c.copy()).serial(), space=space)
    model = replace(model, blocks=model.blocks.redesigned(space.design))
    readout = replace(readout, part=readout.part.copy(), weight=readout.weight.copy())

    def make() -> HeldOut:
        with one_blas_thread():
            return made(readout, model)

    return Deferred(make, free_offset=readout.free_offset)
