"""Heavy rows: a start from the fit of the same rows with smaller weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softmargin.core.loop import Engine, run
from softmargin.core.model import Model
from softmargin.core.visits import heavier

__all__ = ["LIGHTER", "fit_lighter", "heavy"]

LIGHTER = 10.0  # ratio of the weights by which a problem with heavier rows is approached
_HEAVY = 1e3  # largest row weight up to which an engine finds its own start


def heavy(model: Model) -> bool:
    """Whether a row weighs so much that its averaged loss is sharp on the scale of its predictor's own spread.

    Steps are then right over a tiny part of the way only, and a run would have to creep.
    """
    ((count,),) = model.blocks.sum(heavier, _HEAVY)
    return bool(count > 0.0)


def fit_lighter(engine: Engine, model: Model) -> Any:
    """State of the same rows with weights smaller by ``LIGHTER``, fitted in the same way if they are heavy still."""
    light = replace(model, blocks=model.blocks.reweighted(1.0 / LIGHTER))
    return run(engine, light, max_iter=100, tol=1e-4, inner=True).state
