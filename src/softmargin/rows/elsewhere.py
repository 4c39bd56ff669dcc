"""A matrix whose rows stay where they are: in files, or with other processes."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.rows import Rows
from softmargin.rows.block import CELL
from softmargin.rows.by_visits import ByVisits
from softmargin.rows.in_memory import Cell
from softmargin.rows.summation import TreeSum

__all__ = ["Elsewhere", "RowsAway", "Streamed", "check_beside", "read_rows", "told_apart"]

_SOME = 64  # rows that tell a file from others of its size, together with all responses and weights


class Streamed(ABC):
    """Rows that come in blocks, to be predicted."""

    names: list[str] | None = None  # of the columns, where they have any

    @abstractmethod
    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        """What ``read`` makes of arrays or frames of rows and their part of vectors, joined over all rows in order."""


class Elsewhere(Streamed):
    """An X that an estimator takes in place of an array.

    It says how its columns are multiplied by and how its rows are visited; the response and the weights are vectors at
    home. Entries are numbers without missing ones.
    """

    kind: str  # what it is, for sentences to the user: "X in files"

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""

    @abstractmethod
    def design(self, columns: Any) -> Design:
        """The columns of a model, shifted and scaled as ``designs.standardize.Columns`` says."""

    @abstractmethod
    def rows(self, design: Any, y: Array | None, weight: Array, workers: int) -> Rows:
        """The rows of a model with that design, to be visited."""

    @abstractmethod
    def at(self, index: Any) -> Elsewhere:
        """Some of the rows, in order, where they are."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Array:
        """Some of the rows, home."""


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


def check_beside(vectors: Iterable[Any], n: int) -> None:
    """Refuse vectors of another length than there are rows."""
    for vector in vectors:
        if len(vector) != n:
            raise ValueError(f"groups must be one label for each of the {n} rows; got {len(vector)} labels.")


def told_apart(X: Any) -> Any:
    """X as it is told from other data: itself, or where reading all of it takes long its size and some of its rows."""
    if not isinstance(X, Elsewhere):
        return X
    return X.shape, X[np.unique(np.linspace(0, X.shape[0] - 1, _SOME).astype(np.intp))]


def read_rows(X: Any, read: Callable[[Any], Any]) -> Any:
    """What ``read`` makes of all rows, wherever they are."""
    return X.each(read) if isinstance(X, Streamed) else read(X)
