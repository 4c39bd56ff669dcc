"""The inferences by name: each serves every model."""

from __future__ import annotations

from collections.abc import Callable

from softmargin.core.model import Model
from softmargin.inference.draws import draw_by_gibbs, draw_by_hmc
from softmargin.inference.many_rows import by_batches, of_many_rows, suits
from softmargin.inference.mode import mode
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.variational import mean_field, variational

__all__ = ["INFERENCES", "Inference", "inference_for"]

Inference = Callable[[Model, Settings, Fit | None], Fit]

INFERENCES: dict[str, Inference] = {
    "map": mode,
    "vb": variational,
    "meanfield": mean_field,
    "gibbs": draw_by_gibbs,
    "hmc": draw_by_hmc,
    "svi": by_batches,
}


def inference_for(name: str, model: Model) -> Inference:
    """The inference of that name, in the form that suits the number of rows."""
    return of_many_rows if name == "vb" and suits(model) else INFERENCES[name]
