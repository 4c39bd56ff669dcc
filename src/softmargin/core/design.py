"""What every design can do."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from softmargin.core.array import Array

__all__ = ["Design"]


@runtime_checkable
class Design(Protocol):
    """Columns seen through their products; all row ranges are half open and default to every row.

    Columns are ``(X_j - shift_j) * scale_j``, with a column of ones in front when ``intercept`` is true.
    """

    @property
    def intercept(self) -> bool:
        """Whether a column of ones stands in front."""

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

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X coefficients`` of the rows lo..hi for several columns of slopes; the intercept column is left out."""

    def rmatmat(self, rows: Array) -> Array:
        """``X' rows`` for several right sides; the intercept column is left out."""

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        """Squared length of the rows lo..hi without the intercept column."""

    def scaled(self, factor: Array) -> Design:
        """The same rows with every slope column multiplied by its factor."""

    def take(self, columns: Any) -> Design:
        """The design of some of the slope columns, intercept kept."""

    def rows(self, index: Any) -> Array:
        """The given rows as a plain dense array, intercept included."""
