"""Rows in cells: the unit of randomness and of summation."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from softmargin.core.array import Array
from softmargin.core.design import Design

__all__ = ["Blocks", "Cell", "TreeSum", "one_blas_thread"]

T = TypeVar("T")
_CELL = 2048  # rows of a cell: fixed, because cells are the unit of randomness and of summation


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be seen)

    return ThreadpoolController()


class _Limit:
    """One limit for all fits of the process: set by the first that runs, lifted by the last."""

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0
        self.held: Any = None


_limit = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread: its thread count changes last bits, and a hinge chain amplifies them."""
    with _limit.lock:
        if _limit.depth == 0:
            _limit.held = _controller().limit(limits=1, user_api="blas")
        _limit.depth += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.depth -= 1
            if _limit.depth == 0:
                _limit.held.restore_original_limits()


class Cell(NamedTuple):
    """A fixed range of rows; cells are numbered from the first row on, however they are grouped."""

    number: int
    lo: int
    hi: int


class TreeSum:
    """Sum of tuples in a fixed binary tree over cell numbers, with a logarithmic number of partial sums held.

    Two neighbours are added only where they are the halves of an aligned node, so runs of cells summed apart
    and then pushed here in order give bitwise the sum of one long run.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, tuple[Any, ...]]] = []  # first cell, height, partial sum

    def push(self, start: int, height: int, value: tuple[Any, ...]) -> None:
        """Add the node of ``2**height`` cells that begins at cell ``start``."""
        while self.nodes and self.nodes[-1][1] == height and self.nodes[-1][0] % (2 << height) == 0:
            start, _, left = self.nodes.pop()
            value = tuple(a + b for a, b in zip(left, value, strict=True))
            height += 1
        self.nodes.append((start, height, value))

    def total(self) -> tuple[Any, ...]:
        """Add what is left, from the last cell to the first."""
        value = self.nodes[-1][2]
        for _, _, left in reversed(self.nodes[:-1]):
            value = tuple(a + b for a, b in zip(left, value, strict=True))
        return value


class Blocks:
    """The rows of a problem: a design, responses and weights, cut into cells.

    Parameters
    ----------
    design : Design
        The columns.
    y, weight : array of shape (n,), or None
        Response and pseudo-likelihood weight ``c`` of each row; None where rows are only predicted.
    n_blocks : int
        How many tasks the cells are grouped into; it never changes a result.
    workers : int
        How many threads run those tasks; it never changes a result either.
    """

    def __init__(
        self,
        design: Design,
        y: Array | None = None,
        weight: Array | None = None,
        *,
        n_blocks: int | None = None,
        workers: int = 1,
    ):
        nothing = np.zeros(0)
        self.design, self.workers = design, workers
        self.y, self.weight = nothing if y is None else y, nothing if weight is None else weight
        self.still: Array | float = 0.0  # variance of every predictor that no coefficient carries
        n = design.shape[0]
        self.cells = [Cell(k, lo, min(lo + _CELL, n)) for k, lo in enumerate(range(0, n, _CELL))]
        groups = min(len(self.cells), n_blocks or workers)
        self._groups = [list(g) for g in np.array_split(np.arange(len(self.cells)), groups)]
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    @property
    def _whole(self) -> bool:
        """Whether the design wants to make its sums over rows itself, in one piece and one order."""
        return getattr(self.design, "whole", False)

    def serial(self) -> Blocks:
        """The same rows without threads, for use inside a thread."""
        twin = self if self._pool is None else Blocks(self.design, self.y, self.weight)
        twin.still = self.still
        return twin

    def redesigned(self, design: Design) -> Blocks:
        """The same responses, on the same threads, with other columns."""
        twin = copy.copy(self)
        twin.design = design
        return twin

    def weighted(self, weight: Array) -> Blocks:
        """The same rows, on the same threads, with other weights."""
        twin = copy.copy(self)
        twin.weight = weight
        return twin

    def loosened(self, still: Array) -> Blocks:
        """The same rows, on the same threads, with predictors of this variance at known coefficients."""
        twin = copy.copy(self)
        twin.still = still
        return twin

    def close(self) -> None:
        """Give the threads back."""
        if self._pool is not None:
            self._pool.shutdown()

    def parallel(self, fn: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
        """Apply ``fn`` to every item, on the threads where there are any."""
        if self._pool is None or len(items) < 2:
            return [fn(item) for item in items]
        return list(self._pool.map(fn, items))

    def map(self, fn: Callable[[Cell], Any]) -> list[Any]:
        """Apply ``fn`` to every cell; the answers come in the order of the cells."""
        runs = self.parallel(lambda group: [fn(self.cells[k]) for k in group], self._groups)
        return [answer for run in runs for answer in run]

    def reduce(self, fn: Callable[[Cell], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum over cells of the tuples ``fn`` returns, in a fixed tree order."""

        def partial(group: list[int]) -> TreeSum:
            tree = TreeSum()
            for k in group:
                tree.push(k, 0, fn(self.cells[k]))
            return tree

        total = TreeSum()
        for tree in self.parallel(partial, self._groups):
            for node in tree.nodes:
                total.push(*node)
        return total.total()

    def matvec(self, beta: Array) -> Array:
        """Linear predictor ``f = X beta``."""
        return np.concatenate(self.map(lambda cell: self.design.matvec(beta, cell.lo, cell.hi)))

    def rmatvec(self, b: Array) -> Array:
        """``X' b``."""
        if self._whole:
            return self.design.rmatvec(b)
        total: Array = self.reduce(lambda cell: (self.design.rmatvec(b[cell.lo : cell.hi], cell.lo, cell.hi),))[0]
        return total

    def gram(self, w: Array, b: Array) -> tuple[Array, Array]:
        """``X' diag(w) X`` and ``X' b`` in one pass over the rows."""
        if self._whole:
            return self.design.gram(w, b)

        def collect(cell: Cell) -> tuple[Array, Array]:
            at = slice(cell.lo, cell.hi)
            return self.design.gram(w[at], b[at], cell.lo, cell.hi)

        A, c = self.reduce(collect)
        return A, c

    def row_quad(self, root: Any) -> Array:
        """Variance of every linear predictor, ``|root' x_i|^2`` with covariance ``root root'``.

        A structured covariance has a root of its own kind, which its design understands or which understands designs.
        """
        own = getattr(root, "row_quad", None)
        if own is not None:
            return np.concatenate(self.map(lambda cell: own(self.design, cell.lo, cell.hi)))
        return np.concatenate(self.map(lambda cell: self.design.row_quad(root, cell.lo, cell.hi)))

    def moments(self, mean: Array, root: Any) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor, with coefficients of this mean and covariance ``root root'``."""
        both: Any = getattr(self.design, "moments", None)
        if both is None or hasattr(root, "row_quad"):
            f, v = self.matvec(mean), self.row_quad(root)
        else:
            parts = self.map(lambda cell: both(mean, root, cell.lo, cell.hi))
            f, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        return f, v + self.excess(mean)

    def excess(self, mean: Array) -> Array | float:
        """Variance of every predictor at known coefficients, from missing cells and ``still``: zero without any."""
        part: Any = getattr(self.design, "excess", None)
        if part is None:
            return self.still
        return np.concatenate(self.map(lambda cell: part(mean, cell.lo, cell.hi))) + self.still

    def drag(self, w: Array, mean: Array) -> Array | float:
        """Half the derivative of ``w'excess(mean)`` in the mean."""
        part: Any = getattr(self.design, "drag", None)
        if part is None:
            return 0.0
        total: Array = self.reduce(lambda cell: (part(w[cell.lo : cell.hi], mean, cell.lo, cell.hi),))[0]
        return total
