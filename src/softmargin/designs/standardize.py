"""Column moments, and the design that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.rows import Rows
from softmargin.core.validation import IMPUTE, check_finite
from softmargin.designs.dense import Dense
from softmargin.designs.sparse import Sparse
from softmargin.rows.compiled import njit
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.in_memory import Blocks

__all__ = ["Columns", "as_given", "centred_apart", "design_for", "standardize", "standardize_rows"]

_COMPLETE = f"missing values can be part of the model where all rows are in memory; {IMPUTE}"
_TOO_FAR = 1e5
_FAR = 1e3  # spreads that a dense column may be away from zero before it is centred in a copy


class Columns(NamedTuple):
    """How the model's columns are made from the user's: ``(x[keep] - shift) * scale``, intercept in front."""

    keep: np.ndarray[Any, np.dtype[np.intp]]
    shift: Array
    scale: Array
    intercept: bool
    n_features: int

    def to_user(self, beta: Array) -> tuple[Array, Array]:
        """Slopes and intercept on the user's scale from coefficients (..., q) of the model."""
        slopes = beta[..., int(self.intercept) :] * self.scale
        coef = np.zeros((*beta.shape[:-1], self.n_features))
        coef[..., self.keep] = slopes
        start = beta[..., 0] if self.intercept else np.zeros(beta.shape[:-1])
        return coef, start - slopes @ self.shift

    def only(self, given: Any, *, intercept: bool) -> Columns:
        """The same of some of the user's columns, in ascending order, with the intercept or without."""
        given = np.asarray(given, dtype=np.intp)
        mine = np.isin(self.keep, given)
        keep = np.searchsorted(given, self.keep[mine])
        return Columns(keep, self.shift[mine], self.scale[mine], intercept and self.intercept, len(given))

    def intercept_direction(self) -> Array:
        """The vector ``a`` with user intercept = ``a' beta``."""
        return np.concatenate((np.ones(int(self.intercept)), -self.shift * self.scale))


def standardize(X: Any, weight: Array, *, intercept: bool = True, power: float = 1.0) -> Columns:
    """Weighted mean and spread of every column; columns without spread are left out.

    Columns are divided by the ``power`` of their standard deviation: 1 standardizes, 0 leaves them as they are. Between
    the two a common factor makes their variances sum to their number, as those of standardized columns do, so that a
    prior scale means the same.

    Without an intercept centring would change the model, so columns are then divided by their root mean square
    and only all-zero columns are left out. Rows count by ``weight``, so a weight of 2 equals a repeated row. Columns
    with ``power`` 0 are not centred either.
    """
    if not sp.issparse(X):
        rows = Blocks(Dense.plain(X), weight=weight)
        return standardize_rows(rows, float(weight.sum()), intercept=intercept, power=power)
    X = _added_up(X)
    share = weight / weight.sum()
    high, low, mean, stored = _stored_sums(X.data, X.indices, X.indptr, share, X.shape[1])
    unit = _units(high, low)
    mean = mean / unit if intercept else np.zeros(X.shape[1])
    # stored entries by their distance from the mean, the others by the mean itself
    variance = np.maximum(1.0 - stored, 0.0) * mean**2
    _add_squares(X.data, X.indices, X.indptr, share, unit, mean, variance)
    return _columns(high, low, unit, mean, variance, intercept, power)


def standardize_rows(
    rows: Rows, total: float, *, intercept: bool = True, power: float = 1.0, names: Any = None
) -> Columns:
    """The same of rows of plain columns, wherever they are, in two passes; ``total`` is the sum of their weights.

    Entries that are not finite are refused, with the ``names`` of their columns.
    """
    with np.errstate(invalid="ignore"):  # of infinite entries, which are refused
        ends, mean = rows.sum(_ends, total)
    check_finite(np.array((ends.high, ends.low)), names, way=_COMPLETE)
    unit = _units(ends.high, ends.low)
    mean = mean / unit if intercept else np.zeros(len(unit))
    (variance,) = rows.sum(_squares, (total, unit, mean))
    return _columns(ends.high, ends.low, unit, mean, variance, intercept, power)


def _units(high: Array, low: Array) -> Array:
    """The largest entry of every column: moments in these units do not under- or overflow at 1e-200 and 1e200."""
    largest = np.maximum(np.abs(high), np.abs(low))
    return np.where(largest > 0, largest, 1.0)


def _columns(
    high: Array, low: Array, unit: Array, mean: Array, variance: Array, intercept: bool, power: float
) -> Columns:
    """How columns are shifted and scaled, from their largest and smallest entries and their moments in their units."""
    p = len(high)
    noise = 1e-26 * np.maximum(mean**2, 1e-300)  # what rounding leaves in the variance of a constant
    varies = (high > low) if intercept else (high != 0.0) | (low != 0.0)
    keep = np.flatnonzero((variance > noise) & varies)
    mean, sd, unit = mean[keep], np.sqrt(variance[keep]), unit[keep]
    if power == 1.0:
        return Columns(keep, mean * unit, 1.0 / sd / unit, intercept, p)
    if power == 0.0:  # as given: a shift would move the prior of the intercept to that of other columns
        return Columns(keep, np.zeros(len(keep)), np.ones(len(keep)), intercept, p)
    log_sd = np.log(sd) + np.log(unit)  # squares of 1e-200 would underflow
    middle = log_sd.max(initial=0.0)
    kept = np.exp(2.0 * (1.0 - power) * (log_sd - middle))
    scale = np.exp(-power * log_sd - (1.0 - power) * middle) * np.sqrt(len(keep) / max(kept.sum(), 1e-300))
    return Columns(keep, mean * unit, scale, intercept, p)


@dataclass(frozen=True, eq=False)
class _Ends:
    """Largest and smallest entry of every column; the sum of two is that of the rows of both."""

    high: Array
    low: Array

    def __add__(self, other: _Ends) -> _Ends:
        return _Ends(np.maximum(self.high, other.high), np.minimum(self.low, other.low))


def _ends(block: Any, total: float) -> Any:
    """Find the largest and smallest entry of every column, and sum the entries times the share of their rows."""

    def of_cell(weight: Array, lo: int, hi: int) -> tuple[_Ends, Array]:
        high, low, sums = block.design.column_ends(weight / total, lo, hi)
        return _Ends(high, low), sums

    return (block.added(of_cell, block.weight),)


def _squares(block: Any, small: tuple[float, Array, Array]) -> Any:
    """Sum squared distances from the means, in units of the columns, times the share of their rows."""
    total, unit, mean = small

    def of_cell(weight: Array, lo: int, hi: int) -> Array:
        squares: Array = block.design.column_squares(weight / total, unit, mean, lo, hi)
        return squares

    return (block.added(of_cell, block.weight),)


@njit(cache=True, nogil=True, error_model="numpy")
def _stored_sums(data: Any, indices: Any, indptr: Any, share: Any, p: int) -> Any:
    """Largest and smallest value of every column, the sum of its entries times the share of their rows, and of shares.

    Zeros that are not stored count among the values. The shares of a column without any of them sum to one.
    """
    high, low, count = np.full(p, -np.inf), np.full(p, np.inf), np.zeros(p, dtype=np.int64)
    sums, stored = np.zeros(p), np.zeros(p)
    for i in range(len(share)):
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j, x = np.uint64(indices[s]), data[s]
            high[j], low[j] = max(high[j], x), min(low[j], x)
            sums[j] += share[i] * x
            stored[j] += share[i]
            count[j] += 1
    for k in range(p):
        if count[k] < len(share):
            high[k], low[k] = max(high[k], 0.0), min(low[k], 0.0)
        else:
            stored[k] = 1.0
    return high, low, sums, stored


@njit(cache=True, nogil=True, error_model="numpy")
def _add_squares(data: Any, indices: Any, indptr: Any, share: Any, unit: Any, mean: Any, out: Any) -> None:
    """Add the squared distances of the stored entries, in units of their columns, from the means."""
    for i in range(len(share)):
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[s])
            off = data[s] / unit[j] - mean[j]
            out[j] += share[i] * off * off


def _added_up(X: Any) -> Any:
    """The same rows, sorted and with entries of the same cell added up."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def as_given(p: int) -> Columns:
    """The columns as they are, without an intercept."""
    return Columns(np.arange(p), np.zeros(p), np.ones(p), False, p)


def centred_apart(columns: Columns) -> bool:
    """Whether dense columns are so far from zero that they are centred in a copy: shifting products would cancel."""
    return bool(np.any(np.abs(columns.shift) * columns.scale > _FAR))


def design_for(X: Any, columns: Columns) -> Design:
    """The design of the model's columns on the rows of ``X``: dense, CSR, or elsewhere."""
    if isinstance(X, Elsewhere):
        return X.design(columns)
    sparse: bool = sp.issparse(X)
    if len(columns.keep) < X.shape[1]:
        X = X[:, columns.keep] if sparse else np.ascontiguousarray(X[:, columns.keep])
    if sparse:
        X = _added_up(X)  # the Gram kernel wants sorted rows without repeated entries
        far = np.abs(columns.shift) * columns.scale
        if len(far) and far.max() > _TOO_FAR:
            worst = int(columns.keep[far.argmax()])
            raise ValueError(
                f"sparse column {worst} lies {far.max():.0e} standard deviations from zero, too far to centre without "
                "filling it in; subtract a constant from it, or pass a dense array."
            )
        if np.any((columns.scale > 1e100) | (columns.scale < 1e-100)):  # products of such entries would overflow
            X = X.multiply(columns.scale[None, :]).tocsr()
            return Sparse(X, columns.shift * columns.scale, np.ones(len(columns.scale)), columns.intercept)
        return Sparse(X, columns.shift, columns.scale, columns.intercept)
    if centred_apart(columns):
        return Dense(X - columns.shift, np.zeros(len(columns.keep)), columns.scale, columns.intercept)
    return Dense(X, columns.shift, columns.scale, columns.intercept)
