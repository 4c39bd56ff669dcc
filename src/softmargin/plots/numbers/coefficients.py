"""Coefficients and inclusion probabilities of all outputs, in one unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.plots.numbers.subject import linear_of, names_of, outputs_of, per_output, spreads

__all__ = ["Coefficients", "Inclusions", "coefficients", "inclusions"]


class Coefficients(NamedTuple):
    """Arrays (columns, outputs) of coefficients for one standard deviation of their column."""

    names: list[str]
    outputs: list[str]
    mean: Array
    lower: Array | None  # None for modes
    upper: Array | None
    distance: Array  # from zero, in standard deviations where there are any

    @property
    def away(self) -> Any:
        """Whether the interval leaves zero out; of a mode, whether it is not zero."""
        if self.lower is None or self.upper is None:
            return self.mean != 0.0
        return (self.lower > 0.0) | (self.upper < 0.0)

    def farthest(self, top: int) -> Any:
        """Positions of the columns that are farthest from zero in some output."""
        return np.argsort(-self.distance.max(axis=1), kind="stable")[:top]


def _table(frame: pd.DataFrame, column: str, names: list[str]) -> Array:
    """A column of a summary as an array (columns, outputs)."""
    values = frame[column]
    if frame.index.nlevels > 1:
        order = frame.index.get_level_values(1).unique()
        wide: Any = values.unstack(level=1)
        return np.asarray(wide.reindex(index=names, columns=order), dtype=float)
    return values.to_numpy(dtype=float)[-len(names) :, None] if names else np.zeros((0, 1))


def coefficients(what: str, model: Any, level: float) -> Coefficients:
    """Those of a fitted model; one without any is refused."""
    machine = linear_of(what, model)
    names, outputs, unit = names_of(machine), outputs_of(machine), spreads(machine)
    frame = pd.DataFrame(machine.summary(level))
    frame.index = frame.index.map(lambda key: (str(key[0]), *key[1:]) if isinstance(key, tuple) else str(key))
    mean = _table(frame, "mean", names) * unit
    if "sd" not in frame:
        return Coefficients(names, outputs, mean, None, None, np.abs(mean))
    sd = _table(frame, "sd", names) * unit
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.nan_to_num(np.abs(mean / sd), posinf=0.0)
    lower, upper = (_table(frame, end, names) * unit for end in ("lower", "upper"))
    return Coefficients(names, outputs, mean, lower, upper, distance)


class Inclusions(NamedTuple):
    """Arrays (columns, outputs) of inclusion probabilities, their range over chains, and P(positive | in)."""

    names: list[str]
    outputs: list[str]
    value: Array
    low: Array
    high: Array
    positive: Array

    def largest(self, top: int) -> Any:
        """Positions of the columns with the largest probability in some output."""
        return np.argsort(-self.value.max(axis=1), kind="stable")[:top]


def inclusions(what: str, model: Any) -> Inclusions:
    """Those of a fitted model; a prior without point masses is refused."""
    machine = linear_of(what, model)
    if fitted(machine, "inclusion_") is None:
        raise ValueError(f"{what} needs inclusion probabilities; fit with prior='spike-slab' or prior='laplace-zero'.")
    chains = per_output(machine, machine.chain_inclusion_)
    outputs = outputs_of(machine) if len(chains) > 1 else [""]  # one model of many classes selects for all of them
    value = np.column_stack(per_output(machine, machine.inclusion_))
    low, high = (np.column_stack([end(each, axis=0) for each in chains]) for end in (np.min, np.max))
    names = names_of(machine)
    if len(outputs_of(machine)) == len(outputs):
        tables = [
            posterior.table(0.95)["prob_positive"][-len(names) :]
            for posterior in per_output(machine, machine.posterior_)
        ]
        positive = np.column_stack(tables)
    else:
        positive = np.full(value.shape, 0.5)
    return Inclusions(names, outputs, value, low, high, positive)
