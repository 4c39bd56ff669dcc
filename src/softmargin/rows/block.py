"""A run of cells: what a visit sees of the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.space import Root, row_quad
from softmargin.rows.summation import TreeSum, cell_sums, cell_totals

__all__ = ["CELL", "Block", "Whole"]

_CHUNK = 128  # rows at a time where there are many draws: rows x draws stays in the cache
CELL = 2048  # rows of a cell: fixed, because cells are the unit of randomness and of summation


class Whole(NamedTuple):
    """A product with the columns that a design makes over all rows at once: this block's part of its arguments."""

    product: Literal["gram", "rmatvec"]
    arguments: tuple[Array, ...]


class Block:
    """Consecutive cells of a problem, with their responses, weights and columns.

    Products are made cell by cell, so that no result depends on which cells share a block; sums come back as
    ``TreeSum``, to be joined with those of other blocks.

    Parameters
    ----------
    design : Design
        Columns of these rows, and perhaps of others.
    y, weight : array
        Response and weight of each row of the block; empty where rows are only predicted.
    residual : array or float
        Variance of each predictor that no coefficient carries.
    first : int
        Number of the first cell.
    lo, hi : int
        Which rows of the design they are.
    """

    def __init__(
        self, design: Any, y: Array, weight: Array, residual: Array | float, first: int, lo: int, hi: int
    ) -> None:
        self.design, self.y, self.weight, self.residual = design, y, weight, residual
        self.first, self.lo, self.hi, self.size = first, lo, hi, hi - lo
        self.cuts = [(at, min(at + CELL, hi)) for at in range(lo, hi, CELL)]
        self.numbers = range(first, first + len(self.cuts))

    @cached_property
    def whole(self) -> bool:
        """Whether the design makes its sums over rows itself, in one piece."""
        return bool(self.design.whole)

    @cached_property
    def entries_missing(self) -> bool:
        """Whether predictors vary at known coefficients, because entries of the columns are not known."""
        return bool(self.design.offers("excess"))

    @cached_property
    def in_one_pass(self) -> bool:
        """Whether the design makes means and variances of predictors together."""
        return bool(self.design.offers("moments"))

    @cached_property
    def starts(self) -> Any:
        """Places in the block where its cells begin, and where the last one ends."""
        return np.array([*(lo - self.lo for lo, _ in self.cuts), self.size])

    def full(self, value: float) -> Array:
        """A vector over the rows of one number."""
        return np.full(self.size, value)

    def _each(self, product: Callable[..., Array], *given: Any) -> Array:
        """A vector over the rows, made cell by cell."""
        if len(self.cuts) == 1:
            return product(*given, self.lo, self.hi)
        return np.concatenate([product(*given, lo, hi) for lo, hi in self.cuts])

    def added(self, product: Callable[..., Any], *vectors: Array) -> TreeSum:
        """The sum over cells of ``product(*parts, lo, hi)``, each with its part of the vectors and its rows."""
        if len(self.cuts) == 1:
            value = product(*vectors, self.lo, self.hi)
            return TreeSum((self.first, 0, value if isinstance(value, tuple) else (value,)))
        tree, base = TreeSum(), self.lo
        for number, (lo, hi) in zip(self.numbers, self.cuts, strict=True):
            value = product(*(x[lo - base : hi - base] for x in vectors), lo, hi)
            tree.push(number, 0, value if isinstance(value, tuple) else (value,))
        return tree

    def matvec(self, beta: Array) -> Array:
        """Linear predictors ``X beta``."""
        return self._each(self.design.matvec, beta)

    def matvecs(self, betas: Array) -> Array:
        """``X beta`` of several vectors of coefficients, which are the rows of a matrix."""
        lead = int(self.design.intercept)
        turned, first = np.ascontiguousarray(betas[:, lead:].T), betas[:, :lead].sum(axis=1)[:, None]
        parts = [np.ascontiguousarray(self.design.matmat(turned, lo, hi).T + first) for lo, hi in self.cuts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def row_quad(self, root: Any) -> Array:
        """Variance of every linear predictor, ``|root' x_i|^2`` with covariance ``root root'``.

        A structured covariance has a root of its own kind, which its design understands or which understands designs.
        """
        return self._each(partial(row_quad, self.design, root))

    def moments(self, mean: Array, root: Any) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor, with coefficients of this mean and covariance ``root root'``."""
        if self.in_one_pass and (type(root) is np.ndarray or not isinstance(root, Root)):
            parts = [self.design.moments(mean, root, lo, hi) for lo, hi in self.cuts]
            f, v = parts[0] if len(parts) == 1 else (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            f, v = self.matvec(mean), self.row_quad(root)
        return f, v + self.excess(mean)

    def spread(self, draws: Array) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor over draws of the coefficients, one per row of a matrix."""
        lead, few = int(self.design.intercept), len(draws) < 2
        turned, first = np.ascontiguousarray(draws[:, lead:].T), draws[:, :lead].sum(axis=1)
        mean, variance = np.empty(self.size), np.zeros(self.size)
        for lo, end in ((at, hi) for start, hi in self.cuts for at in range(start, hi, _CHUNK)):
            f = self.design.matmat(turned, lo, min(lo + _CHUNK, end))
            f += first
            at = slice(lo - self.lo, lo - self.lo + len(f))
            mean[at] = f.mean(axis=1)
            if not few:
                variance[at] = f.var(axis=1, ddof=1)
        return mean, variance

    def excess(self, mean: Array) -> Array | float:
        """Variance of every predictor at known coefficients, from missing entries and ``residual``."""
        if not self.entries_missing:
            return self.residual
        return self._each(self.design.excess, mean) + self.residual

    def normals(self, numbers: Any) -> Array:
        """A standard normal number per row, every cell from its own stream."""
        cells = zip(self.numbers, self.cuts, strict=True)
        return np.concatenate([numbers.at(number).standard_normal(hi - lo) for number, (lo, hi) in cells])

    def drawn(self, latents: Any, f: Array) -> tuple[Array, Array]:
        """Messages of latents drawn given the predictors, every cell from its own stream."""
        draw = latents.loss.draw
        if len(self.cuts) == 1:
            w, b = draw(latents.at(self.first), self.y, self.weight, f)
            return w, b
        w, b = np.empty(self.size), np.empty(self.size)
        for number, lo, hi in zip(self.numbers, self.starts[:-1], self.starts[1:], strict=True):
            w[lo:hi], b[lo:hi] = draw(latents.at(number), self.y[lo:hi], self.weight[lo:hi], f[lo:hi])
        return w, b

    def sums(self, *terms: Any) -> TreeSum:
        """Sums of vectors over the rows, and of products of two where a term is a pair: one vector of numbers."""
        return self._summed(cell_sums(terms, self.starts))

    def totals(self, vectors: Any) -> TreeSum:
        """Sums of several vectors over the rows, which are the rows of a matrix: one vector of numbers."""
        return self._summed(cell_totals(np.asarray(vectors), self.starts))

    def _summed(self, values: Array) -> TreeSum:
        if len(values) == 1:
            return TreeSum((self.first, 0, (values[0],)))
        return TreeSum.of_cells(self.first, values)

    def products(self, vectors: Array) -> TreeSum:
        """The matrix of inner products of vectors over the rows, given as the rows of a matrix."""
        tree = TreeSum()
        for number, lo, hi in zip(self.numbers, self.starts[:-1], self.starts[1:], strict=True):
            part = vectors[:, lo:hi]
            tree.push(number, 0, (part @ part.T,))
        return tree

    def rmatvec(self, b: Array) -> TreeSum | Whole:
        """``X' b``."""
        return Whole("rmatvec", (b,)) if self.whole else self.added(self.design.rmatvec, b)

    def rmatvecs(self, rows: Array) -> TreeSum:
        """``X' b`` of several vectors b, which are the rows of a matrix."""

        def product(*given: Any) -> Array:
            *parts, lo, hi = given
            return np.stack([self.design.rmatvec(part, lo, hi) for part in parts])

        return self.added(product, *rows)

    def gram(self, w: Array, b: Array | None) -> TreeSum | Whole:
        """``X' diag(w) X`` and ``X' b``; without b, zero in place of the latter."""
        b = np.zeros(self.size) if b is None else b
        return Whole("gram", (w, b)) if self.whole else self.added(self.design.gram, w, b)

    def excess_slope(self, w: Array, mean: Array) -> TreeSum:
        """Half the derivative of ``w'excess(mean)`` in the mean."""
        part: Any = self.design.excess_slope
        return self.added(lambda own, lo, hi: part(own, mean, lo, hi), w)
