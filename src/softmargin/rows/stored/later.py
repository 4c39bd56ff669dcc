"""Columns of a block that are read when somebody multiplies by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softmargin.core.array import Array
from softmargin.core.design import Design

__all__ = ["Later"]


class Later(Design):
    """The design that a function reads, at first use; ``used`` says whether it was."""

    def __init__(self, read: Callable[[], Any], found: Any = None) -> None:
        self._read, self._found, self.used = read, found, False

    @property
    def found(self) -> Any:
        """The columns, read."""
        self.used = True
        if self._found is None:
            self._found = self._read()
        return self._found

    @property
    def intercept(self) -> bool:
        return bool(self.found.intercept)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.found.shape
        return rows, columns

    def values(self, lo: int = 0, hi: int | None = None) -> Array:
        values: Array = self.found.values(lo, hi)
        return values

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        f: Array = self.found.matvec(beta, lo, hi)
        return f

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        total: Array = self.found.rmatvec(b, lo, hi)
        return total

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Any, Array]:
        A, c = self.found.gram(w, b, lo, hi)
        return A, c

    def row_quad(self, root: Any, lo: int = 0, hi: int | None = None) -> Array:
        v: Array = self.found.row_quad(root, lo, hi)
        return v

    def moments(self, mean: Array, root: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        f, v = self.found.moments(mean, root, lo, hi)
        return f, v

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        F: Array = self.found.matmat(coefficients, lo, hi)
        return F

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        squares: Array = self.found.norms(lo, hi)
        return squares

    def rows(self, index: Any) -> Array:
        rows: Array = self.found.rows(index)
        return rows
