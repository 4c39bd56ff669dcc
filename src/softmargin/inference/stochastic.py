"""Fits by batches of rows, read as a posterior with a calibrated link."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.model import Model
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import fit_svi
from softmargin.inference.readout import BinaryReadout, HeldOut
from softmargin.inference.settings import Fit, Settings, options_of
from softmargin.loo.link import fit_link
from softmargin.loo.stochastic_cavity import held_out

__all__ = ["StochasticFit", "infer_svi"]


class StochasticFit(NamedTuple):
    """A fit by batches; its leave-one-out predictors are those of ``rows``, and ``state`` takes more rows in."""

    fit: Fit
    rows: Any
    state: SVIState


def infer_svi(model: Model, settings: Settings, state: SVIState | None = None) -> StochasticFit:
    """Stochastic variational inference; with ``state`` the rows are added to those that it has seen."""
    if hasattr(model.blocks.design, "entries"):
        raise ValueError("inference='svi' needs rows, and solver='cg' has products alone; use inference='vb'.")
    options = dict(options_of(settings, "batch", "first", "decay", "mean_field", "epochs"))
    epochs, engine = options.pop("epochs", None), SVI(**options)
    readout: BinaryReadout = settings.readout
    watch = {"progress": settings.progress("svi", None), "callback": settings.callback}
    done = fit_svi(model, engine, epochs=epochs, state=state, **watch)
    q, scale = done.state.q, done.state.prior.values["scale"]
    rows, f, v, max_kv = held_out(done, engine, readout.part)
    offset = readout.columns.intercept
    link = fit_link(model.y[rows], f, v, readout.weight[rows], max_kv, offset=offset, tol=readout.tol)
    posterior = readout.gaussian(q.mean, q.root, np.array([scale]), np.ones(1))
    return StochasticFit(Fit(posterior, HeldOut(f, v, link), scale, done.outcome), rows, done.state)
