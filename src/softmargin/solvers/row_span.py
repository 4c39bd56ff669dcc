"""How far sparse rows are from the span of a few of them, by the products of these few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from softmargin.core.array import Array
from softmargin.designs.sparse import Sparse

__all__ = ["Span", "distinct", "span_of"]

_WORK = 1e10  # multiplications of the distances above which they are not worth their exactness
_TOLERANCE = 1e-12  # pivots below this, relative to the largest, are rounding and not directions
_PART = 1e-6  # a coefficient below this is no part in a combination
_ROWS = 1024  # rows whose products are held at a time
_SEED = 5


def distinct(X: Any) -> Array:
    """One number for every row of a sparse matrix, equal for copies and for nothing else.

    It is the product with a fixed normal vector: copies go through the same sums.
    """
    return np.asarray(X @ np.random.Generator(np.random.Philox(_SEED)).standard_normal(X.shape[1]))


@dataclass(frozen=True, eq=False)
class Span:
    """The span of different rows in the metric of the prior precision, the intercept as one more column.

    ``Z_B Z_B' = L L'`` of the rows B in ``order`` that do not depend on each other, by pivoted Cholesky.
    """

    design: Sparse
    rows: Any  # places of the rows, copies and all
    copy: Any  # which of the different ones each of them is
    order: Any  # the independent ones, as places
    L: Array
    own: Array  # squared distance of each different row from the span of the others
    variance: float  # prior variance of a slope
    flat: float  # prior variance of the intercept, zero without one

    def excess(self, g: Array, c: Array, part: Array) -> Array:
        """What the multipliers of the rows must give up without the part ``part`` of each; copies share one."""
        total_g, total_c = np.bincount(self.copy, g[self.rows]), np.bincount(self.copy, c[self.rows])
        left = 2.0 * (total_c[self.copy] - part[self.rows] * c[self.rows])
        return np.maximum(total_g[self.copy] - left, 0.0)

    def distances(self, wanted: Any) -> Array:
        """Squared distances of the rows ``wanted``, of one of the span's own from the others' span; zero elsewhere."""
        distance = np.zeros(len(wanted))
        off = wanted.copy()
        off[self.rows] = False
        index = np.flatnonzero(off)
        basis = _taken(self.design, self.order)
        for at in np.split(index, range(_ROWS, len(index), _ROWS)):
            rows = _taken(self.design, at)
            length = self.variance * rows.norms() + self.flat
            cross = self.variance * _products(basis, rows) + self.flat
            across = solve_triangular(self.L, cross, lower=True, check_finite=False)
            distance[at] = np.maximum(length - np.einsum("ij,ij->j", across, across), 0.0)
        distance[self.rows] = self.own[self.copy]
        return distance


def span_of(design: Sparse, rows: Any, y: Array, precision: Array) -> Span | None:
    """The span of given rows; None where they are too many, or none."""
    if not len(rows) or float(len(rows)) ** 2 * design.shape[0] > _WORK:
        return None
    signed = np.column_stack((y[rows], distinct(design.X[rows])))
    _, first, copy = np.unique(signed, axis=0, return_index=True, return_inverse=True)
    different, copy = rows[first], copy.ravel()
    variance, flat = 1.0 / float(precision[-1]), 1.0 / float(precision[0]) if design.intercept else 0.0
    kernel = variance * _taken(design, different).outer() + flat
    factor, pivot, rank, _ = dpstrf(kernel, tol=_TOLERANCE * float(kernel.diagonal().max()), lower=1)
    order, L = pivot[:rank] - 1, np.tril(factor[:rank, :rank])
    inverse = solve_triangular(L, np.eye(rank), lower=True, check_finite=False)
    own = np.zeros(len(different))
    # a row that has a part in another is spanned by the others
    parts = np.abs(factor[rank:, :rank] @ inverse).max(axis=0, initial=0.0)
    own[order] = np.where(parts > _PART, 0.0, 1.0 / np.einsum("ij,ij->j", inverse, inverse))
    return Span(design, rows, copy, different[order], L, own, variance, flat)


def _taken(design: Sparse, index: Any) -> Sparse:
    return Sparse(design.X[index], design.shift, design.scale, design.intercept)


def _products(left: Sparse, right: Sparse) -> Array:
    """Products of the slopes of all rows of two designs of the same columns."""
    square, mean = left.scale**2, left.scale**2 * left.shift
    product: Array = (left.X.multiply(square[None, :]).tocsr() @ right.X.T).toarray()
    product += left.shift @ mean - np.asarray(left.X @ mean)[:, None] - np.asarray(right.X @ mean)[None, :]
    return product
