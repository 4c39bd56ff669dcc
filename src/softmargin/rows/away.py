"""What rows in files and rows on other machines have in common: visits go to them, cells are gone through here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

from softmargin.core.array import Array
from softmargin.rows.block import CELL
from softmargin.rows.by_visits import ByVisits
from softmargin.rows.in_memory import Cell
from softmargin.rows.summation import TreeSum

__all__ = ["RowsAway"]


class RowsAway(ByVisits):
    """Rows that are not here; they have no missing entries, so that predictors have no variance of their own."""

    shape: tuple[int, int]
    residual = 0.0
    has_residual = False

    def _twin(self, **changes: Any) -> Self:
        """The same rows but for some attributes."""
        twin = copy.copy(self)
        twin.__dict__.update(changes)
        return twin

    @property
    def cells(self) -> list[Cell]:
        """Number, first and last row of each cell."""
        n = self.shape[0]
        return [Cell(k, lo, min(lo + CELL, n)) for k, lo in enumerate(range(0, n, CELL))]

    def map(self, fn: Callable[[Cell], Any]) -> list[Any]:
        """Apply ``fn`` to every cell, here; the answers come in the order of the cells."""
        return [fn(cell) for cell in self.cells]

    def reduce(self, fn: Callable[[Cell], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum over cells of the tuples that ``fn`` returns here, in a fixed tree order."""
        tree = TreeSum()
        for cell in self.cells:
            tree.push(cell.number, 0, fn(cell))
        return tree.total()

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to every item, in turn: each visits the rows."""
        return [fn(item) for item in items]

    def excess(self, mean: Array) -> float:
        """Variance of every predictor at known coefficients: none."""
        return self.residual
