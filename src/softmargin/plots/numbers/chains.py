"""Draws of single numbers, by chain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.estimators.linear import LinearMachine
from softmargin.plots.numbers.subject import classes_of, machine_of, names_of, outputs_of, per_output, spreads
from softmargin.posterior.classes import ClassDraws
from softmargin.posterior.coefficients import DrawsPosterior
from softmargin.posterior.diagnostics import Wanted
from softmargin.rows.streams import Streams

__all__ = ["Chain", "chains_of", "coefficient_draws"]


class Chain(NamedTuple):
    """Draws (chains, draws) of one number."""

    name: str
    draws: Array
    column: int = -1  # of which column it is the coefficient
    output: int = 0

    @property
    def distance(self) -> float:
        """How far it is from zero, in standard deviations."""
        return float(abs(self.draws.mean()) / max(self.draws.std(), 1e-300))


def _refuse(what: str, machine: Any) -> None:
    raise ValueError(f"{what} needs draws, and inference={machine.inference!r} has none; fit with 'gibbs'.")


def coefficient_draws(what: str, machine: Any) -> Array:
    """Draws (chains, draws, columns, outputs) of the coefficients, for one standard deviation of their column."""
    found = []
    for posterior in per_output(machine, machine.posterior_):
        if not isinstance(posterior, (DrawsPosterior, ClassDraws)):
            _refuse(what, machine)
        drawn = posterior.columns.to_user(posterior.all_coefficients())[0]
        found.append(np.moveaxis(drawn, 2, 3) if isinstance(posterior, ClassDraws) else drawn[..., None])
    least = min(each.shape[1] for each in found)  # pairs that were stopped early have fewer
    return np.concatenate([each[:, :least] for each in found], axis=-1) * spreads(machine)


def chains_of(what: str, model: Any) -> list[Chain]:
    """Coefficients of a linear model, or intercept, lengths, scales and sizes of a kernel model."""
    machine = machine_of(what, model)
    outputs = outputs_of(machine)
    if isinstance(machine, LinearMachine):
        names, drawn = names_of(machine), coefficient_draws(what, machine)
        return [
            Chain(f"{name}, {output}" if output else name, drawn[:, :, j, r], j, r)
            for j, name in enumerate(names)
            for r, output in enumerate(outputs)
        ]
    found = []
    for output, part in zip(outputs, machine._fitted.parts, strict=True):
        if not part.has_spread or part.chain_shape is None:
            _refuse(what, machine)
        sampled = part.sampled(classes_of(machine), Wanted(1), Streams.from_random_state(0))
        for name, draws in {**sampled.variables, **sampled.stats}.items():
            if draws.ndim == 2:
                found.append(Chain(f"{name}, {output}" if output else name, draws))
    return found
