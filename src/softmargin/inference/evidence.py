"""One value of a learned scale, for inferences that need one: where the variational fit has it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from softmargin.core.model import Model
from softmargin.engines.mode.smoothed_start import Near, many_rows
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.screened import ScreenedVI
from softmargin.inference.settings import Fit, Settings, run_engine

__all__ = ["Settled", "settled_scale"]

# Times the tolerance of the mode: steps that change the bound by less than 3e-5 of it changed the scale by 0.4 % with
# 20,000 columns and 500 rows, and by 0.002 % with 300 columns and 50,000 rows; its posterior is far wider.
_LOOSER = 30.0


class Settled(NamedTuple):
    """The scale, whether the fit behind it converged, and its last relative change; of many rows also its mean."""

    scale: float
    converged: bool
    change: float
    near: Near | None = None  # the mode is next to the mean where rows are very many


def settled_scale(model: Model, settings: Settings, first: Fit | None) -> Settled | None:
    """The scale of the prior that the bound on the evidence prefers; None where the scale is given.

    It averages over the coefficients. Their joint density with the scale does not: with many columns its mode is near
    zero, coefficients and scale alike, whatever the rows say. ``first`` is a variational fit of the same model.
    """
    if model.prior.stretch(model.prior.start()) is None:
        return None
    if first is not None and first.vi is not None:
        return Settled(first.vi.prior.values["scale"], first.outcome.converged, first.outcome.change)
    many = many_rows(model)
    tol = _LOOSER * settings.tol
    engine = ScreenedVI(tol) if many else GaussianVI()
    quiet = replace(settings, callback=None, main=False)
    found = run_engine(engine, model, quiet, "scale", max_iter=settings.max_iter, tol=tol)
    if found.interrupted:
        raise KeyboardInterrupt("interrupted while the scale was being settled")
    state = found.state.whole if many else found.state
    near = Near(state.q.mean, state.rows) if many else None
    return Settled(state.prior.values["scale"], found.converged, found.change, near)
