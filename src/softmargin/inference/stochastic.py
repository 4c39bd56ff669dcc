"""Fits by batches of rows, read as a posterior with a calibrated link."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.core.rows import Kept
from softmargin.core.space import Normal
from softmargin.core.visits import RowState
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import fit_svi
from softmargin.inference.settings import Fit, Settings, options_of
from softmargin.refusals import refused
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose

__all__ = ["StochasticFit", "infer_svi"]

_KEPT = 50_000  # observations with leave-one-out predictors, at most


class StochasticFit(NamedTuple):
    """A fit by batches; its leave-one-out predictors are those of ``rows``, and ``state`` takes more rows in."""

    fit: Fit
    rows: Any
    state: SVIState


class _Seen(NamedTuple):
    """A Gaussian of the coefficients as some of the rows see it."""

    q: Normal
    rows: Kept  # RowState
    f: Array
    v: Array
    message: Message

    @property
    def ku(self) -> Array:
        """Row precisions of q: those that the messages have."""
        return self.message.w


def infer_svi(
    model: Model, settings: Settings, state: SVIState | None = None, unknowns: tuple[Any, ...] = ()
) -> StochasticFit:
    """Stochastic variational inference; with ``state`` the rows are added to those that it has seen.

    ``unknowns`` are the states that the model was made with, where it had unknowns.
    """
    if model.blocks.design.offers("entries"):
        raise ValueError(refused("batches without rows"))
    options = dict(options_of(settings, "batch", "first", "decay", "mean_field", "epochs"))
    epochs, engine = options.pop("epochs", None), SVI(**options)
    watch = {"progress": settings.progress("svi", None), "callback": settings.callback}
    done = fit_svi(model, engine, epochs=epochs, state=state, **watch)
    q, scale = done.state.q, done.state.prior.values["scale"]
    n = len(settings.readout.part)
    rows = np.arange(n)
    if n > _KEPT:
        rows = np.sort(shuffled(rows[:_KEPT], n, model.streams.at(Purpose.CAVITY)))
    few, readout = settings.readout.some(model, rows)
    f, v = few.blocks.matvec(q.mean), few.blocks.row_quad(q.root)
    message = engine.face(few)(few.y, few.c, f, v)
    seen = _Seen(q, few.blocks.place(RowState(f, v, message.w, message.b)), f, v, message)
    held = readout.of_fit(few, seen, unknowns)
    posterior = readout.gaussian(q.mean, q.root, np.array([scale]), np.ones(1))
    return StochasticFit(Fit(posterior, held, scale, done.outcome, unknowns=unknowns), rows, done.state)
