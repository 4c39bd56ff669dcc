"""Sums over rows in a fixed order: within a cell in compiled code, over cells in a binary tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.compiled import njit

__all__ = ["TreeSum", "cell_sums", "cell_totals", "joined"]

_FEW = 4  # cells up to which they are added one by one


class TreeSum:
    """Sum of tuples in a fixed binary tree over cell numbers, with a logarithmic number of partial sums held.

    Two neighbours are added only where they are the halves of an aligned node, so runs of cells summed apart
    and then pushed here in order give bitwise the sum of one long run.
    """

    __slots__ = ("nodes",)

    def __init__(self, *nodes: tuple[int, int, tuple[Any, ...]]) -> None:
        self.nodes = list(nodes)  # first cell, height, partial sum

    def push(self, start: int, height: int, value: tuple[Any, ...]) -> None:
        """Add the node of ``2**height`` cells that begins at cell ``start``."""
        while self.nodes and self.nodes[-1][1] == height and self.nodes[-1][0] % (2 << height) == 0:
            start, _, left = self.nodes.pop()
            value = tuple(a + b for a, b in zip(left, value, strict=True))
            height += 1
        self.nodes.append((start, height, value))

    @classmethod
    def of_cells(cls, first: int, values: Array) -> TreeSum:
        """The sum of one row of ``values`` per cell, numbered from ``first`` on: the same nodes, level by level."""
        tree, height = cls(), 0
        if len(values) <= _FEW:
            for k, value in enumerate(values):
                tree.push(first + k, 0, (value,))
            return tree
        last: list[tuple[int, int, tuple[Any, ...]]] = []  # nodes without a right neighbour, from the end
        while len(values):
            if first % 2:  # the left half of its parent is in another run
                tree.nodes.append((first << height, height, (values[0],)))
                first, values = first + 1, values[1:]
            if len(values) % 2:
                last.append(((first + len(values) - 1) << height, height, (values[-1],)))
                values = values[:-1]
            first, values, height = first // 2, values[0::2] + values[1::2], height + 1
        tree.nodes += reversed(last)
        return tree

    def total(self) -> tuple[Any, ...]:
        """Add what is left, from the last cell to the first."""
        value = self.nodes[-1][2]
        if len(self.nodes) == 1:
            return value
        for _, _, left in reversed(self.nodes[:-1]):
            value = tuple(a + b for a, b in zip(left, value, strict=True))
        return value


def joined(trees: Sequence[TreeSum]) -> TreeSum:
    """The sum of the cells of several runs, in their order."""
    if len(trees) == 1:
        return trees[0]
    total = TreeSum()
    for tree in trees:
        for node in tree.nodes:
            total.push(*node)
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _add(x: Any, starts: Any, out: Any, place: int) -> None:
    for k in range(len(starts) - 1):
        total = 0.0
        for i in range(starts[k], starts[k + 1]):
            total += x[i]
        out[k, place] = total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(x: Any, y: Any, starts: Any, out: Any, place: int) -> None:
    for k in range(len(starts) - 1):
        total = 0.0
        for i in range(starts[k], starts[k + 1]):
            total += x[i] * y[i]
        out[k, place] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _add_each(vectors: Any, starts: Any, out: Any) -> None:
    for place in range(len(vectors)):
        _add(vectors[place], starts, out, place)


def cell_sums(terms: tuple[Any, ...], starts: Any) -> Array:
    """Sums of vectors, or of the products of pairs of vectors, over each cell: an array (cells, terms).

    Cell k has the entries ``starts[k]..starts[k + 1]``. Each of its sums is made in one order on vector registers,
    whatever cells stand beside it.
    """
    out = np.empty((len(starts) - 1, len(terms)))
    for place, term in enumerate(terms):
        if isinstance(term, tuple):
            _dot(*term, starts, out, place)
        else:
            _add(term, starts, out, place)
    return out


def cell_totals(vectors: Array, starts: Any) -> Array:
    """The same of vectors that are the rows of a matrix, in one call."""
    out = np.empty((len(starts) - 1, len(vectors)))
    _add_each(vectors, starts, out)
    return out
