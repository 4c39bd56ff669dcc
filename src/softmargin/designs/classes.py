"""Pairs (row, class) of the multicategory hinge as rows of one design, without a copy of the columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design

__all__ = ["ClassDesign", "CompletedClasses", "Pairs", "helmert", "pair_weights"]

Index = np.ndarray[Any, np.dtype[np.intp]]


def helmert(k: int) -> Array:
    """The (k - 1) x k contrast with orthonormal rows that sum to zero."""
    A = np.zeros((k - 1, k))
    for s in range(1, k):
        A[s - 1, :s], A[s - 1, s] = 1.0, -s
        A[s - 1] /= math.sqrt(s * (s + 1.0))
    return A


def pair_weights(label: Index, weight: Array, costs: Array | None, k: int) -> Array:
    """Hinge weights ``c_i L_{y_i r} / (k - 1)`` of all pairs, one row per class r; zero where r is the row's own class.

    The loss ``2 c L max(f_r + 1/(k-1), 0)`` is the binary hinge with response -1, predictor ``(k - 1) f_r`` and this
    weight. ``costs[j, r]`` is the cost of deciding r where the class is j; None is one for every error.
    """
    table = np.ones((k, k)) if costs is None else np.array(costs, dtype=float)
    if table.shape != (k, k):
        raise ValueError(f"the cost matrix must be {k} x {k}, one row and one column per class; got {table.shape}.")
    if not (np.isfinite(table).all() and (table >= 0.0).all()):
        raise ValueError("the cost matrix must hold finite numbers that are not negative.")
    np.fill_diagonal(table, 0.0)
    if not (table.sum(axis=1) > 0.0).all():
        raise ValueError("every class needs an error that costs something: a row of the cost matrix is zero.")
    return np.ascontiguousarray((table[label] * weight[:, None]).T) / (k - 1)


class Pairs(NamedTuple):
    """Pairs (row, class) as rows of the binary hinge; each part has one row per class."""

    weight: Array  # zero where there is no pair
    sign: Array  # the response
    grow: Array  # factor of the score

    @classmethod
    def of(cls, label: Index, weight: Array, costs: Array | None, k: int, own: float = 0.0) -> Pairs:
        """Every row with the classes that are not its own, and, of weight ``own``, with its own class y.

        The latter are the loss ``2 c own max(1 - f_y, 0)`` of the reinforced multicategory hinge.
        """
        mine = label == np.arange(k)[:, None]
        away = pair_weights(label, weight, costs, k)
        return cls(np.where(mine, own * weight, away), np.where(mine, 1.0, -1.0), np.where(mine, 1.0, k - 1.0))

    def design(self, base: Design) -> ClassDesign:
        """The pairs over the columns of the rows."""
        return ClassDesign.of(base, self.weight, self.grow)

    def in_order(self, part: Array) -> Array:
        """One of the parts, as the design has its pairs."""
        return part[self.weight > 0.0]


@dataclass(frozen=True, eq=False)
class ClassDesign(Design):
    """Rows ``grow x_i`` in the block of class r, for pairs (i, r) in class-major order.

    Coefficients are k blocks of ``base.shape[1]`` numbers. ``index`` holds the base row of every pair, increasing in
    every class; the pairs of class r are ``start[r]`` to ``start[r + 1]``.
    """

    base: Design
    index: Index
    start: Index
    grow: Array  # factor of the row of every pair

    @classmethod
    def of(cls, base: Design, wanted: Any, grow: Any = None) -> ClassDesign:
        """The pairs that ``wanted`` (k x n, nonzero or true) marks; ``grow`` (k x n) is k - 1 where it is not given."""
        wanted = np.asarray(wanted) != 0
        index = [np.flatnonzero(row) for row in wanted]
        start = np.concatenate(([0], np.cumsum([len(i) for i in index])))
        own = np.full(start[-1], len(wanted) - 1.0) if grow is None else np.asarray(grow, dtype=float)[wanted]
        return cls(base, np.concatenate(index), start, own)

    @property
    def k(self) -> int:
        """Number of classes."""
        return len(self.start) - 1

    @property
    def pair_class(self) -> Index:
        """The class of every pair."""
        return np.repeat(np.arange(self.k), np.diff(self.start))

    @property
    def intercept(self) -> bool:
        """No single column of ones stands in front: every class has its own."""
        return False

    @property
    def free(self) -> Any:
        """Marks the intercept of every class."""
        return np.tile(np.arange(self.base.shape[1]) < int(self.base.intercept), self.k)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.index), self.k * self.base.shape[1]

    def _parts(self, lo: int, hi: int | None) -> Iterator[tuple[int, slice, Index, int, int]]:
        """Per class in a range of pairs: the class, its place in the range, base rows from ``first`` to ``last``."""
        hi = len(self.index) if hi is None else hi
        for r in range(self.k):
            a, b = max(lo, int(self.start[r])), min(hi, int(self.start[r + 1]))
            if a < b:
                first, last = int(self.index[a]), int(self.index[b - 1]) + 1
                yield r, slice(a - lo, b - lo), self.index[a:b] - first, first, last

    def _scattered(self, values: Array, at: Index, size: int) -> Array:
        """Values of pairs on a range of base rows, zero where a base row has no pair."""
        if len(at) == size:
            return values
        out = np.zeros(size)
        out[at] = values
        return out

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        q, hi = self.base.shape[1], len(self.index) if hi is None else hi
        f = np.empty(hi - lo)
        for r, place, at, first, last in self._parts(lo, hi):
            f[place] = self.base.matvec(beta[r * q : (r + 1) * q], first, last)[at]
        return f * self.grow[lo:hi]

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Products with several columns of coefficients."""
        q, lead, hi = self.base.shape[1], int(self.base.intercept), len(self.index) if hi is None else hi
        f = np.empty((hi - lo, coefficients.shape[1]))
        for r, place, at, first, last in self._parts(lo, hi):
            own = coefficients[r * q : (r + 1) * q]
            f[place] = self.base.matmat(np.ascontiguousarray(own[lead:]), first, last)[at] + own[:lead].sum(axis=0)
        return f * self.grow[lo:hi, None]

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        out, b = np.zeros((self.k, self.base.shape[1])), b * self.grow[lo:hi]
        for r, place, at, first, last in self._parts(lo, hi):
            out[r] = self.base.rmatvec(self._scattered(b[place], at, last - first), first, last)
        return out.ravel()

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        """The k diagonal blocks of ``X' diag(w) X``, stacked, and ``X' b``: the other blocks are zero."""
        q = self.base.shape[1]
        A, c = np.zeros((self.k, q, q)), np.zeros((self.k, q))
        grow = self.grow[lo:hi]
        w, b = w * grow * grow, b * grow
        for r, place, at, first, last in self._parts(lo, hi):
            size = last - first
            A[r], c[r] = self.base.gram(
                self._scattered(w[place], at, size),
                self._scattered(b[place], at, size),
                first,
                last,
            )
        return A, c.ravel()

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        q, hi = self.base.shape[1], len(self.index) if hi is None else hi
        out = np.empty(hi - lo)
        for r, place, at, first, last in self._parts(lo, hi):
            part = root[r * q : (r + 1) * q]
            if part.shape[1] > q and last - first > q:  # the same covariance with fewer columns
                part = np.ascontiguousarray(np.asarray(np.linalg.qr(part.T, mode="r")).T)
            out[place] = self.base.row_quad(part, first, last)[at]
        return out * self.grow[lo:hi] ** 2

    def pick(self, index: Any) -> ClassDesign:
        """Some of the pairs, in order."""
        base: Any = self.base
        rows, place = np.unique(self.index[index], return_inverse=True)
        return replace(
            self, base=base.pick(rows), index=place, start=np.searchsorted(index, self.start), grow=self.grow[index]
        )

    def pairs_of(self, rows: Any) -> Index:
        """The pairs of some base rows."""
        wanted = np.zeros(self.base.shape[0], dtype=bool)
        wanted[rows] = True
        return np.flatnonzero(wanted[self.index])

    def rows(self, index: Any) -> Array:
        """The given pairs as a plain dense array."""
        index = np.asarray(index)
        out = np.zeros((len(index), self.k, self.base.shape[1]))
        out[np.arange(len(index)), self.pair_class[index]] = self.base.rows(self.index[index])
        return out.reshape(len(index), self.shape[1]) * self.grow[index, None]


class CompletedClasses(ClassDesign):
    """The same of base rows that have a density, in their missing entries."""

    @classmethod
    def over(cls, base: Design, pairs: ClassDesign) -> CompletedClasses:
        """The pairs of another design, on completed rows."""
        return cls(base, pairs.index, pairs.start, pairs.grow)

    def excess(self, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """What the missing entries add to the variance of a pair's predictor at known coefficients."""
        q, hi, base = self.base.shape[1], len(self.index) if hi is None else hi, self._rows
        out = np.empty(hi - lo)
        for r, place, at, first, last in self._parts(lo, hi):
            out[place] = base.excess(mean[r * q : (r + 1) * q], first, last)[at]
        return out * self.grow[lo:hi] ** 2

    def excess_slope(self, w: Array, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Half the derivative of ``w'excess(mean)``."""
        q, base = self.base.shape[1], self._rows
        out, w = np.zeros((self.k, q)), w * self.grow[lo:hi] ** 2
        for r, place, at, first, last in self._parts(lo, hi):
            out[r] = base.excess_slope(
                self._scattered(w[place], at, last - first), mean[r * q : (r + 1) * q], first, last
            )
        return out.ravel()

    @property
    def _rows(self) -> Any:
        return self.base
