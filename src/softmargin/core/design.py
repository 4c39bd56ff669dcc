"""What every design can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.capabilities import Part, optional

__all__ = ["Design"]

_CACHED = 65536  # numbers that stay in the cache


class Design(Part, ABC):
    """Columns seen through their products; all row ranges are half open and default to every row.

    Columns are ``(X_j - shift_j) * scale_j``, with a column of ones in front when ``intercept`` is true.
    """

    whole: bool = False  # whether it makes its sums over rows itself, in one piece and one order
    algebra: Any = None  # the factors of its Gram matrices, where these are not in memory
    rounding: float = 1e-11  # relative, of a bound over the rows: no smaller fall is a fall
    rest: Any = None  # variance of each row's predictor that no column carries (Nystrom residual), in the prior's unit
    law: Any = None  # of rows completed at missing entries: the mean and precision of the covariates

    @property
    @abstractmethod
    def intercept(self) -> bool:
        """Whether a column of ones stands in front."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, the intercept included."""

    @abstractmethod
    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X beta`` of the rows lo..hi."""

    @abstractmethod
    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X' b`` over the rows lo..hi."""

    @abstractmethod
    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Any, Array]:
        """``X' diag(w) X`` and ``X' b`` over the rows lo..hi, in one pass."""

    @abstractmethod
    def row_quad(self, root: Any, lo: int = 0, hi: int | None = None) -> Array:
        """``|root' x_i|^2`` of the rows lo..hi."""

    @abstractmethod
    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``X coefficients`` of the rows lo..hi for several columns of slopes; the intercept column is left out."""

    @abstractmethod
    def rows(self, index: Any) -> Array:
        """The given rows as a plain dense array, intercept included."""

    @optional
    def values(self, lo: int = 0, hi: int | None = None) -> Array:
        """The rows lo..hi as they are stored, before they are shifted and scaled."""

    def column_ends(self, share: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array, Array]:
        """Largest and smallest stored value of every column, and the sum of values times the share of their rows."""
        X = self.values(lo, hi)
        return X.max(axis=0).astype(float), X.min(axis=0).astype(float), X.T @ share

    def column_squares(self, share: Array, unit: Array, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Sum over rows of their share times the squared distances of stored values, in units, from the means."""
        X, total = self.values(lo, hi), np.zeros(len(unit))
        step = max(1, _CACHED // max(len(unit), 1))
        for start in range(0, len(X), step):
            at = slice(start, start + step)
            off = X[at] / unit
            off -= mean
            off *= off
            total += share[at] @ off
        return total

    @optional
    def outer(self) -> Array:
        """``X X'`` without the intercept column."""

    @optional
    def rmatmat(self, rows: Array) -> Array:
        """``X' rows`` for several right sides; the intercept column is left out."""

    @optional
    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        """Squared length of the rows lo..hi without the intercept column."""

    @optional
    def scaled(self, factor: Array) -> Design:
        """The same rows with every slope column multiplied by its factor."""

    @optional
    def take(self, columns: Any) -> Design:
        """The design of some of the slope columns, intercept kept."""

    @optional
    def pick(self, index: Any) -> Design:
        """The same columns of some of the rows."""

    @optional
    def joined(self, index: Any, others: Array) -> Design | None:
        """Some of the rows and dense ones behind them; None where a dense array of all is the sooner way."""

    @optional
    def single(self) -> Design:
        """The same with Gram matrices in single precision, for a direction to go."""

    @optional
    def moments(self, mean: Array, root: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        """``mean'x_i`` and ``|root'x_i|^2`` of the rows lo..hi, in one pass."""

    @optional
    def excess(self, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Variance of the predictors of the rows lo..hi at known coefficients, from entries that are not known."""

    @optional
    def excess_slope(self, w: Array, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Half the derivative of ``w'excess(mean)`` in the mean."""

    @optional
    def implicit(self) -> Design:
        """The same columns, known by their products alone: row weights stand for the Gram matrix."""

    @optional
    def entries(self, factor: Array) -> tuple[Array, Array]:
        """Of a design that is known by its products alone: its stored entries times a factor per row, and its shift."""
