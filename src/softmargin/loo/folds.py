"""Folds of rows with the same share of every class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.designs.dense import Dense
from softmargin.designs.kernel.features import rescaled
from softmargin.designs.sparse import Sparse
from softmargin.designs.standardize import Columns

__all__ = ["Part", "design_order", "folds", "row_order"]

_WHOLE = 1e-12  # share of a row that rounding makes of none


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


def row_order(X: Any, columns: Columns | None, label: Any, count: Array) -> Array:
    """``design_order`` of an array or sparse matrix, whose ``columns`` are standardized where they are given."""
    Z: Any = rescaled(X, columns)
    sparse: bool = sp.issparse(Z)
    if sparse:
        p = Z.shape[1]
        return design_order(Sparse(sp.csr_matrix(Z), np.zeros(p), np.ones(p), False), label, count)
    return design_order(Dense.plain(np.where(np.isnan(Z), 0.0, Z) if np.isnan(Z).any() else Z), label, count)


def design_order(design: Any, label: Any, count: Array) -> Array:
    """A number for every row, in which rows are dealt to folds: neither their order nor that of the columns matters.

    Rows are ranked by their length, then by the product with the mean of their class: units, zeros and signs of
    standardized columns do not matter, nor does a row that counts twice. Rows which these leave together, as where
    columns of two values have nothing to do with the classes, go by the sum of their entries.
    """
    label, own = np.asarray(label), np.zeros(len(label))
    with np.errstate(over="ignore", invalid="ignore"):  # columns of 1e200: such rows stay in the order they have
        for r in np.unique(label):
            inside = count * (label == r)
            mean = design.rmatvec(inside) / inside.sum()
            own[label == r] = design.matvec(mean)[label == r]
        keys = np.column_stack([design.norms(), own, design.matvec(np.ones(design.shape[1]))])
        keys = np.nan_to_num(keys / np.maximum(np.abs(keys).max(axis=0, initial=0.0), 1e-300))
    return np.unique(np.round(keys, 10), axis=0, return_inverse=True)[1].ravel().astype(float)
