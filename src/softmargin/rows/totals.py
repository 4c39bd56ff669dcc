"""Sums of vectors over all rows that are home, in the order in which visits sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.block import CELL
from softmargin.rows.summation import TreeSum, cell_sums

__all__ = ["totals"]

_RUN = 64 * CELL  # rows at a time, whose copies are small


def totals(*terms: Any) -> Array:
    """Sum of a vector over rows, or of the products of a pair of vectors, for each term: one vector of numbers.

    They depend neither on threads nor on how the vectors lie in memory.
    """
    n, tree = len(terms[0][0] if isinstance(terms[0], tuple) else terms[0]), TreeSum()
    for lo in range(0, n, _RUN):
        hi = min(lo + _RUN, n)
        parts = tuple(
            tuple(_plain(x, lo, hi) for x in term) if isinstance(term, tuple) else _plain(term, lo, hi)
            for term in terms
        )
        values = cell_sums(parts, np.array([*range(0, hi - lo, CELL), hi - lo]))
        for node in TreeSum.of_cells(lo // CELL, values).nodes:
            tree.push(*node)
    total: Array = tree.total()[0] if n else np.zeros(len(terms))
    return total


def _plain(x: Array, lo: int, hi: int) -> Array:
    return np.ascontiguousarray(x[lo:hi], dtype=np.float64)
