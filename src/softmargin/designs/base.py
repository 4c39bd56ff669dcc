"""What every design can do."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

__all__ = ["Array", "Design"]


@runtime_checkable
class Design(Protocol):
    """Columns seen through their products; all row ranges are half open and default to every row.

    Columns are ``(X_j - shift_j) * scale_j``, with a column of ones in front when ``intercept`` is true.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, the intercept included."""

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X beta`` of the rows lo..hi."""

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X' b`` over the rows lo..hi."""

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        """``X' diag(w) X`` and ``X' b`` over the rows lo..hi, in one pass."""

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``|root' x_i|^2`` of the rows lo..hi."""

    def outer(self) -> Array:
        """``X X'`` without the intercept column."""

    def matmat(self, coefficients: Array) -> Array:
        """``X coefficients`` for several columns of coefficients, intercept included."""

    def rmatmat(self, rows: Array) -> Array:
        """``X' rows`` without the intercept column, for several right sides."""

    def rows(self, index: Array) -> Array:
        """The given rows as a plain dense array."""
