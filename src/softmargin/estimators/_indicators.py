"""The plain way with missing values: fill in the mean, and mark the cell in a column of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array

__all__ = ["Indicators"]


@dataclass(frozen=True, eq=False)
class Indicators:
    """Columns that had missing values, and what is filled in."""

    columns: Any
    fill: Array

    @classmethod
    def of(cls, X: Array, weight: Array) -> Indicators:
        """From the training rows; means count rows by their weight."""
        missing = np.isnan(X)
        columns = np.flatnonzero(missing.any(axis=0))
        seen = weight @ ~missing[:, columns]
        return cls(columns, (weight @ np.where(missing, 0.0, X)[:, columns]) / seen)

    def apply(self, X: Array) -> Array:
        """The rows with one more column for every column that had missing values."""
        missing = np.isnan(X)
        others = np.setdiff1d(np.flatnonzero(missing.any(axis=0)), self.columns)
        if len(others):
            raise ValueError(
                f"column {others[0]} of X has missing values and had none in the fit; use missing='model', or impute."
            )
        filled = X.copy()
        filled[:, self.columns] = np.where(missing[:, self.columns], self.fill, X[:, self.columns])
        return np.column_stack((filled, missing[:, self.columns]))

    def names(self, names: list[str]) -> list[str]:
        """Names of all columns."""
        return [*names, *(f"missing({names[j]})" for j in self.columns)]
