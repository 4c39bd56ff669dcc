"""A table of coefficients that says first how it was made."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from softmargin.inference.mode_left_out import Deferred

__all__ = ["Summary", "header_of"]


class Summary(pd.DataFrame):
    """A data frame with one sentence above it; whatever is made from it is a plain data frame."""

    _metadata = ["header"]  # noqa: RUF012  (read by pandas)
    header: str = ""

    @classmethod
    def of(cls, table: pd.DataFrame, header: str) -> Summary:
        """The table under a sentence."""
        found = cls(table)
        found.header = header
        return found

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return f"{self.header}\n{super().__repr__()}" if self.header else super().__repr__()

    def _repr_html_(self) -> str:
        table = pd.DataFrame(self)._repr_html_()  # type: ignore[operator]
        return f"<p>{escape(self.header)}</p>{table}"


def header_of(fitted: Any, likelihood: str, entropy: float, probability: str = "calibrated") -> str:
    """Which weights and learning rate the fit has, whether they were chosen, and how well it predicts left-out rows."""
    chosen = [model.chosen for model in fitted.parts]
    if any(one is None for one in chosen):
        return ""
    rates = sorted({one.candidate.rate for one in chosen})
    rate = f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"
    tilted = sum(one.candidate.tilt for one in chosen)
    weights = "plain weights" if not tilted else "tilted weights"
    if 0 < tilted < len(chosen):
        weights = f"tilted weights in {tilted} of {len(chosen)} pairs"
    tried = sum(0 if one.record is None else len(one.record.entries) for one in chosen)
    how = f"chosen by {tried} scores, see choices_" if tried else "given"
    start = f"{likelihood}, {weights}, learning rate {rate} ({how})"
    if likelihood != "hinge":
        start = likelihood
    if any(isinstance(model.fit.held, Deferred) for model in fitted.parts):
        return f"{start}."  # left-out rows wait until somebody asks for them
    score, bent = fitted.loo.score, sum(model.fit.loo.bend is not None for model in fitted.parts)
    if bent and probability == "calibrated":
        where = f"in {bent} of {len(chosen)} pairs" if len(chosen) > 1 else "(loo_.bend)"
        start += f", log odds that are a curve of f {where}"
    return f"{start}; left-out log loss {score:.3f}, class frequencies {entropy:.3f}."
