"""Columns of rows in files, read when they are multiplied by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.designs.standardize import Columns, centred_apart
from softmargin.rows.block import CELL
from softmargin.rows.summation import TreeSum

__all__ = ["Stored"]


@dataclass(frozen=True, eq=False)
class Stored(Design):
    """Columns ``(X_j - shift_j) * scale_j`` of a matrix in a file, ones in front if ``intercept``.

    Rows are double numbers from where they are read on, whatever type they are stored in. Products over many rows are
    made cell by cell.
    """

    source: Any  # rows.stored.files.RowSource
    columns: Columns
    centred: bool  # whether they are centred as they are read: shifting products would cancel
    accuracy: str = "float64"  # of the products inside a Gram matrix

    @classmethod
    def of(cls, source: Any, columns: Columns) -> Stored:
        """The columns of a model on the rows of a source."""
        return cls(source, columns, centred_apart(columns))

    @property
    def intercept(self) -> bool:
        return self.columns.intercept

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape[0], len(self.columns.keep) + self.intercept

    def check(self) -> None:
        """Refuse rows that have changed since they were first looked at."""
        self.source.check()

    def run(self, lo: int, hi: int) -> Dense:
        """The rows lo..hi, read."""
        return self._dense(self.source.read(lo, hi))

    def pick(self, index: Any) -> Dense:
        """Some rows, read."""
        return self._dense(self.source.pick(index))

    def _dense(self, X: Any) -> Dense:
        keep, shift, scale, intercept, p = self.columns
        X = np.ascontiguousarray(X if len(keep) == p else X[:, keep], dtype=np.float64)
        if self.centred:
            X, shift = X - shift, np.zeros(len(keep))
        return Dense(X, shift, scale, intercept, self.accuracy)

    def _cells(self, lo: int, hi: int | None) -> list[tuple[int, int]]:
        hi = self.shape[0] if hi is None else hi
        return [(at, min(at + CELL, hi)) for at in range(lo, hi, CELL)]

    def _each(self, product: Callable[[Dense], Array], lo: int, hi: int | None) -> Array:
        """A vector or matrix over rows, made cell by cell."""
        return np.concatenate([product(self.run(*cell)) for cell in self._cells(lo, hi)])

    def _added(self, product: Callable[[Dense, int, int], tuple[Any, ...]], lo: int, hi: int | None) -> tuple[Any, ...]:
        """A sum over rows, made cell by cell."""
        tree = TreeSum()
        for start, stop in self._cells(lo, hi):
            tree.push(start // CELL, 0, product(self.run(start, stop), start - lo, stop - lo))
        return tree.total()

    def values(self, lo: int = 0, hi: int | None = None) -> Array:
        return self._each(lambda rows: rows.X, lo, hi)

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._each(lambda rows: rows.matvec(beta), lo, hi)

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        found: Array = self._added(lambda rows, i, j: (rows.rmatvec(b[i:j]),), lo, hi)[0]
        return found

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        A, c = self._added(lambda rows, i, j: rows.gram(w[i:j], b[i:j]), lo, hi)
        return A, c

    def row_quad(self, root: Any, lo: int = 0, hi: int | None = None) -> Array:
        return self._each(lambda rows: rows.row_quad(root), lo, hi)

    def moments(self, mean: Array, root: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        parts = [self.run(*cell).moments(mean, root) for cell in self._cells(lo, hi)]
        f, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        return f, v

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._each(lambda rows: rows.matmat(coefficients), lo, hi)

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        return self._each(lambda rows: rows.norms(), lo, hi)

    def rows(self, index: Any) -> Array:
        return self.pick(index).rows(slice(None))

    def scaled(self, factor: Array) -> Stored:
        return replace(self, columns=self.columns._replace(scale=self.columns.scale * factor))

    def single(self) -> Stored:
        """The same with Gram matrices in single precision, at half the cost: good enough for a direction to go."""
        return replace(self, accuracy="float32")
