"""Effects of groups and smooth functions, panel by panel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.plots.numbers.subject import linear_of, outputs_of, per_output

__all__ = ["GroupEffects", "SmoothEffect", "group_effects", "smooth_effects"]


class GroupEffects(NamedTuple):
    """One kind of effect of the groups of a factor, in the order of their means."""

    title: str
    groups: list[str]
    mean: Array
    lower: Array | None
    upper: Array | None

    def ends(self, top: int) -> Any:
        """Positions of the groups at both ends, where there are more than ``top``."""
        n = len(self.groups)
        return np.arange(n) if n <= top else np.r_[0 : top // 2, n - (top - top // 2) : n]


def _panel(title: str, frame: pd.DataFrame) -> GroupEffects:
    frame = frame.iloc[np.argsort(frame["mean"].to_numpy(), kind="stable")]
    groups = [" ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in frame.index]
    ends = [frame[end].to_numpy(dtype=float) if end in frame else None for end in ("lower", "upper")]
    return GroupEffects(title, groups, frame["mean"].to_numpy(dtype=float), *ends)


def group_effects(what: str, model: Any) -> list[GroupEffects]:
    """One panel per factor, effect and pair or class; a model without groups is refused."""
    machine = linear_of(what, model)
    found, outputs = fitted(machine, "random_effects_"), outputs_of(machine)
    tables = [] if found is None else per_output(machine, found)
    if not any(tables):
        raise ValueError(f"{what} draws effects of groups, and this model has none; fit with random_effects or groups.")
    panels = []
    for output, own in zip(outputs if len(tables) > 1 else [""], tables, strict=True):
        for name, frame in own.items():
            apart = [level for level in ("effect", "class") if level in frame.index.names]
            if not apart:
                panels.append(_panel(", ".join(part for part in (name, output) if part), frame))
                continue
            for key, part in frame.groupby(level=apart, sort=False):
                words = [str(word) for word in (key if isinstance(key, tuple) else (key,))]
                title = ", ".join(word for word in (name, *words, output) if word and word != "Intercept")
                panels.append(_panel(title, part.droplevel(apart)))
    return panels


class SmoothEffect(NamedTuple):
    """A smooth function of one column."""

    title: str
    column: str
    x: Array
    mean: Array
    lower: Array | None
    upper: Array | None


def smooth_effects(what: str, model: Any, level: float) -> list[SmoothEffect]:
    """One per smooth term and pair or class; a model without any is refused."""
    machine = linear_of(what, model)
    found = machine.smooth_effects(level)
    if not found:
        raise ValueError(f"{what} draws smooth terms, and this model has none; fit with Smooth('column') or s(column).")
    panels = []
    for name, frame in found.items():
        column = name[2:-1]
        parts = [("", frame)] if frame.index.nlevels == 1 else list(frame.groupby(level=0, sort=False))
        for output, part in parts:
            title = f"{name}, {output}" if str(output) else name
            ends = [part[end].to_numpy() if end in part else None for end in ("lower", "upper")]
            panels.append(SmoothEffect(title, column, part["x"].to_numpy(), part["mean"].to_numpy(), *ends))
    return panels
