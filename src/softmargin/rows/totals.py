"""Sums over all rows and places among them from vectors that are home, in short runs and in the order of visits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.block import CELL
from softmargin.rows.summation import TreeSum, cell_sums, joined

__all__ = ["Largest", "flags", "kth_smallest", "largest_at", "places", "runs", "totals", "totals_of"]

_RUN = 64 * CELL  # rows at a time, whose copies are small


def runs(n: int) -> Iterator[slice]:
    """All of n rows, some at a time."""
    for lo in range(0, n, _RUN):
        yield slice(lo, min(lo + _RUN, n))


def totals(*terms: Any) -> Array:
    """Sum of a vector over rows, or of the products of a pair of vectors, for each term: one vector of numbers.

    They depend neither on threads nor on how the vectors lie in memory.
    """
    n = len(terms[0][0] if isinstance(terms[0], tuple) else terms[0])
    return totals_of(
        n, lambda at: [tuple(x[at] for x in each) if isinstance(each, tuple) else each[at] for each in terms]
    )


def totals_of(n: int, terms: Callable[[slice], list[Any]]) -> Array:
    """The same of terms that are made from some of n rows at a time."""
    total: Array = joined([_summed(at.start, min(at.stop, n), terms(at)) for at in runs(max(n, 1))]).total()[0]
    return total


def _summed(lo: int, hi: int, terms: list[Any]) -> TreeSum:
    """The sums over the cells of a run from row ``lo`` to ``hi``."""
    parts = tuple(tuple(map(_plain, each)) if isinstance(each, tuple) else _plain(each) for each in terms)
    return TreeSum.of_cells(lo // CELL, cell_sums(parts, np.array([*range(0, hi - lo, CELL), hi - lo])))


def _plain(x: Any) -> Array:
    return np.ascontiguousarray(x, dtype=np.float64)


def places(n: int, test: Callable[[slice], Any]) -> Any:
    """Which of n rows pass a test of some of them at a time."""
    return np.concatenate([at.start + np.flatnonzero(test(at)) for at in runs(n)])


def kth_smallest(n: int, values: Callable[[slice], Array], k: int) -> float:
    """The value that k of n values, made some at a time, are below or equal to; k counts from zero."""
    least = np.zeros(0)
    for at in runs(n):
        least = np.concatenate((least, values(at)))
        if len(least) > k + 1:
            least = np.partition(least, k)[: k + 1]
    return float(least.max())


def flags(n: int, test: Callable[[slice], Any]) -> Any:
    """Whether each of n rows passes a test of some of them at a time."""
    return np.concatenate([test(at) for at in runs(n)])


def largest_at(n: int, values: Callable[[slice], Array]) -> tuple[float, int]:
    """The largest of n values that are made some at a time, and its first place."""
    best, place = -np.inf, 0
    for at in runs(n):
        part = values(at)
        here = int(np.argmax(part))
        if part[here] > best:
            best, place = float(part[here]), at.start + here
    return float(best), place


class Largest:
    """A number; the sum of two is the larger one."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __add__(self, other: Largest) -> Largest:
        return self if self.value >= other.value else other
