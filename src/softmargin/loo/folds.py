"""Folds of rows with the same share of every class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.designs.kernel.features import rescaled
from softmargin.designs.standardize import Columns

__all__ = ["Part", "folds", "row_order"]

_WHOLE = 1e-12  # share of a row that rounding makes of none
_SKEW = 1e-9  # mean third power, as a share of that of absolute values, below which there is none


class Part(NamedTuple):
    """Some rows, and which share of its observations each of them has there."""

    rows: Any
    share: Array


def folds(label: Any, order: Array, count: Array, k: int, together: bool = False) -> Iterator[tuple[Part, Part]]:
    """The rows that train and those that test, for k folds with the same share of every class.

    Within a class observations are dealt out one by one in the order of ``order``, a number that does not depend on
    where a row stands, so that another order of the rows or columns gives the same folds. A row that counts three times
    is dealt out as three copies of it are. ``together`` puts rows of one class with the same number into one fold:
    copies of a row, where columns are many.
    """
    low, high, sizes = np.zeros(len(label)), np.zeros(len(label)), []
    for own in np.unique(label):
        rows = np.flatnonzero(label == own)
        if together:
            low[rows] = np.unique(order[rows], return_inverse=True)[1]
            high[rows] = low[rows] + 1.0
        else:
            rows = rows[np.argsort(order[rows], kind="stable")]
            high[rows] = np.cumsum(count[rows])
            low[rows] = high[rows] - count[rows]
        sizes.append(float(high[rows].max()))
    k = int(min(k, *sizes)) if sizes else 0
    for number in range(k if k > 1 else 0):
        width = high - low  # none where a weight is lost beside the others: then it goes where its place is
        dealt = _dealt(high, number, k) - _dealt(low, number, k)
        share = np.where(width > 0.0, dealt / np.where(width > 0.0, width, 1.0), np.floor(low) % k == number)
        train, test = np.flatnonzero(share < 1.0 - _WHOLE), np.flatnonzero(share > _WHOLE)
        yield Part(train, 1.0 - share[train]), Part(test, share[test])


def _dealt(end: Array, number: int, k: int) -> Array:
    """How many of the observations up to a place one of k folds has."""
    rounds = np.floor(end / k)
    return np.asarray(rounds + np.clip(end - k * rounds - number, 0.0, 1.0))


def row_order(X: Any, columns: Columns | None) -> Array:
    """A number for every row, in which they are dealt to folds: neither their order nor that of the columns matters.

    Nor do units, zeros and signs of ``columns`` that are standardized; None leaves them as they are. Rows are ranked by
    their length, then by products with the mean third powers of the columns, and of their squares with the mean fourth
    powers, so that rows of two values each that are as long are told apart.
    """
    X, sparse = rescaled(X, columns), sp.issparse(X)
    Z: Any = X if sparse else np.where(np.isnan(X), 0.0, X)
    with np.errstate(over="ignore", invalid="ignore"):  # columns of 1e200: such rows stay in the order they have
        squares = Z.multiply(Z) if sparse else Z * Z
        cubes = squares.multiply(Z) if sparse else squares * Z
        third, least = (np.asarray(part.mean(axis=0)).ravel() for part in (cubes, abs(cubes)))
        third = np.where(np.abs(third) > _SKEW * least, third, 0.0)  # of symmetric columns there is rounding alone
        fourth = np.asarray((squares.multiply(squares) if sparse else squares * squares).mean(axis=0)).ravel()
        length = np.asarray(squares.sum(axis=1)).ravel()
        keys = np.column_stack([length, Z @ third, squares @ fourth])
        keys = np.nan_to_num(keys / np.maximum(np.abs(keys).max(axis=0, initial=0.0), 1e-300))
    return np.unique(np.round(keys, 10), axis=0, return_inverse=True)[1].ravel().astype(float)
