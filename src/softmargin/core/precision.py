"""Coefficients whose prior precision is not diagonal: the same small matrix for every group of a term."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array

__all__ = ["Coupled", "Coupling"]


@lru_cache(maxsize=64)
def _above_diagonal(width: int) -> tuple[Any, Any]:
    rows, columns = np.triu_indices(width, 1)
    return rows, columns


class Coupled(NamedTuple):
    """A term with a full matrix for each of its groups."""

    start: int  # its first coefficient
    groups: int
    width: int

    @property
    def place(self) -> slice:
        """Where its coefficients stand."""
        return slice(self.start, self.start + self.groups * self.width)

    @property
    def pairs(self) -> tuple[Any, Any]:
        """The entries above the diagonal."""
        return _above_diagonal(self.width)

    @property
    def extra(self) -> int:
        """How many there are."""
        return self.width * (self.width - 1) // 2


class Coupling(NamedTuple):
    """How a block precision is written as one row of numbers.

    The diagonal of all ``size`` coefficients comes first, then for each coupled term the entries above the diagonal of
    its matrix. Variances are written alike, with twice the covariance summed over groups at the end: then the product
    of the two rows is the trace of the product of the two matrices.
    """

    size: int
    terms: tuple[Coupled, ...]

    @property
    def length(self) -> int:
        """Numbers in such a row."""
        return self.size + sum(term.extra for term in self.terms)

    def extras(self) -> list[slice]:
        """Where each term's entries above the diagonal stand."""
        ends = np.cumsum([self.size, *(term.extra for term in self.terms)])
        return [slice(int(lo), int(hi)) for lo, hi in pairwise(ends)]

    def times(self, precision: Array, x: Array) -> Array:
        """The block precision times coefficients."""
        out = precision[: self.size] * x
        for term, at in zip(self.terms, self.extras(), strict=True):
            own, result = x[term.place].reshape(-1, term.width), out[term.place].reshape(-1, term.width)
            for a, b, value in zip(*term.pairs, precision[at], strict=True):
                result[:, a] += value * own[:, b]
                result[:, b] += value * own[:, a]
        return out

    def _units(self, diagonal: Array, term: Coupled) -> Array:
        """Geometric means of the two diagonal entries that belong to each entry above the diagonal."""
        first = diagonal[term.start : term.start + term.width]
        rows, columns = term.pairs
        return np.sqrt(first[rows] * first[columns])

    def logs(self, precision: Array) -> Array:
        """Coordinates without constraints, or nearly: logarithms of the diagonal, atanh of partial correlations."""
        out = precision.copy()
        out[: self.size] = np.log(precision[: self.size])
        for term, at in zip(self.terms, self.extras(), strict=True):
            out[at] = np.arctanh(precision[at] / self._units(precision, term))
        return out

    def from_logs(self, x: Array) -> Array:
        """The inverse of ``logs``."""
        out = x.copy()
        out[: self.size] = np.exp(x[: self.size])
        for term, at in zip(self.terms, self.extras(), strict=True):
            out[at] = np.tanh(x[at]) * self._units(out, term)
        return out
