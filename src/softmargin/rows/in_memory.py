"""Rows in cells: the unit of randomness and of summation."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.rows.block import CELL, Block, Whole
from softmargin.rows.by_visits import ByVisits
from softmargin.rows.summation import TreeSum, joined

__all__ = ["Blocks", "Cell", "at_home", "one_blas_thread"]

T = TypeVar("T")
HOME = (
    1 << 24
)  # entries of all rows up to which engines have them home: copies take 128 megabytes, passes only pay later
_BLOCK = 16  # cells of a block at most: its vectors, a quarter of a megabyte each, stay in the second-level cache


@lru_cache(maxsize=1)
def _libraries() -> list[Any]:
    """The BLAS libraries of this process, whose threads can be asked for and set."""
    import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be seen)

    return [each for each in ThreadpoolController().lib_controllers if each.user_api == "blas"]


class _Limit:
    """One limit for all fits of the process: set by the first that runs, lifted by the last."""

    def __init__(self) -> None:
        self.lock, self.depth = threading.Lock(), 0
        self.before: list[tuple[Any, int]] = []  # libraries that had more threads than one

    def enter(self) -> None:
        """Set the threads of all libraries to one, unless a fit around or beside has done so."""
        with self.lock:
            if self.depth == 0:
                threads = [(each, each.get_num_threads()) for each in _libraries()]
                self.before = [(each, number) for each, number in threads if number != 1]
                for each, _ in self.before:
                    each.set_num_threads(1)
            self.depth += 1

    def leave(self) -> None:
        """Give them back what they had, unless a fit is still at work."""
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                for each, number in self.before:
                    each.set_num_threads(number)


_limit = _Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread: its thread count changes last bits, and a hinge chain amplifies them."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


class Cell(NamedTuple):
    """A fixed range of rows; cells are numbered from the first row on, however they are grouped."""

    number: int
    lo: int
    hi: int


class Blocks(ByVisits):
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

    stays = False

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
        self.residual: Array | float = 0.0  # variance of every predictor that no coefficient carries
        self.shape = design.shape  # rows and coefficients
        n = self.shape[0]
        self.cells = [Cell(k, lo, min(lo + CELL, n)) for k, lo in enumerate(range(0, n, CELL))]
        groups = min(len(self.cells), n_blocks or max(workers, -(-len(self.cells) // _BLOCK)))
        ends = [len(self.cells) * k // groups for k in range(groups + 1)]
        self._groups = [range(lo, hi) for lo, hi in pairwise(ends)]
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self._made: list[Block] | None = None

    def serial(self) -> Blocks:
        """The same rows without threads, for use inside a thread."""
        twin = self if self._pool is None else Blocks(self.design, self.y, self.weight)
        twin.residual = self.residual
        return twin

    def _twin(self, **changes: Any) -> Blocks:
        """The same cells on the same threads with something else in them."""
        twin = copy.copy(self)
        twin.__dict__.update(changes, _made=None)
        return twin

    def redesigned(self, design: Design) -> Blocks:
        """The same responses with other columns."""
        return self._twin(design=design, shape=design.shape)

    def weighted(self, weight: Array) -> Blocks:
        """The same rows with other weights."""
        return self._twin(weight=weight)

    def reweighted(self, factor: float) -> Blocks:
        """The same rows with all weights multiplied by one number."""
        return self._twin(weight=factor * self.weight)

    def with_residual(self, residual: Array) -> Blocks:
        """The same rows with predictors of this variance at known coefficients."""
        return self._twin(residual=residual)

    @property
    def has_residual(self) -> bool:
        """Whether predictors have a variance that no coefficient carries."""
        return isinstance(self.residual, np.ndarray)

    def single(self) -> Blocks | None:
        """The same rows with Gram matrices in single precision; None where the design cannot."""
        return self.redesigned(self.design.single()) if self.design.offers("single") else None

    def close(self) -> None:
        """Give the threads back."""
        if self._pool is not None:
            self._pool.shutdown()

    def parallel(self, fn: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
        """Apply ``fn`` to every item, on the threads where there are any, under this thread's floating-point rules."""
        if self._pool is None or len(items) < 2:
            return [fn(item) for item in items]
        rules: Any = np.geterr()

        def ruled(item: T) -> Any:
            with np.errstate(**rules):
                return fn(item)

        return list(self._pool.map(ruled, items))

    def map(self, fn: Callable[[Cell], Any]) -> list[Any]:
        """Apply ``fn`` to every cell; the answers come in the order of the cells."""
        runs = self.parallel(lambda group: [fn(self.cells[k]) for k in group], self._groups)
        return [answer for run in runs for answer in run]

    def reduce(self, fn: Callable[[Cell], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum over cells of the tuples ``fn`` returns, in a fixed tree order."""

        def partial(group: range) -> TreeSum:
            tree = TreeSum()
            for k in group:
                tree.push(k, 0, fn(self.cells[k]))
            return tree

        return joined(self.parallel(partial, self._groups)).total()

    @property
    def _blocks(self) -> list[Block]:
        """The runs of cells that a visit is called for."""
        if self._made is None:
            self._made = [self._block(self.cells[group[0]], self.cells[group[-1]].hi) for group in self._groups]
        return self._made

    def _block(self, first: Cell, hi: int) -> Block:
        if len(self._groups) == 1:
            return Block(self.design, self.y, self.weight, self.residual, 0, 0, hi)
        at = slice(first.lo, hi)
        residual = self.residual[at] if isinstance(self.residual, np.ndarray) else self.residual
        return Block(self.design, self.y[at], self.weight[at], residual, first.number, first.lo, hi)

    def sum(self, visit: Any, small: Any = None, *kept: Kept) -> tuple[Any, ...]:
        """One pass over the rows that adds something up."""
        blocks = self._made or self._blocks
        if len(blocks) == 1:
            return self._total([visit(blocks[0], small, *map(_vectors, kept))])
        return self._total(self._visited(visit, small, kept))

    def keep(self, visit: Any, small: Any = None, *kept: Kept) -> tuple[Kept, tuple[Any, ...]]:
        """One pass over the rows that leaves vectors with them, and may add something up."""
        blocks = self._made or self._blocks
        if len(blocks) == 1:
            vectors, sums = visit(blocks[0], small, *map(_vectors, kept))
            return Kept(vectors), self._total([sums]) if sums else ()
        gathered: dict[int, Array] = {}

        def gather(block: Block, answer: Any) -> Any:
            vectors, sums = answer
            for place, part in enumerate(vectors):
                if part is None:
                    continue
                if place not in gathered:  # of two threads that come at once, setdefault takes the array of one
                    gathered.setdefault(place, np.empty(self.shape[0]))
                gathered[place][block.lo : block.hi] = part
            return type(vectors), len(vectors), sums

        answers = self._visited(visit, small, kept, gather)
        record, fields, _ = answers[0]
        return Kept(record(*map(gathered.get, range(fields)))), self._total([sums for _, _, sums in answers])

    def _visited(
        self, visit: Any, small: Any, kept: tuple[Kept, ...], then: Any = lambda _, answer: answer
    ) -> list[Any]:
        def call(block: Block) -> Any:
            return then(block, visit(block, small, *(each.of(block.lo, block.hi) for each in kept)))

        return self.parallel(call, self._blocks)

    def _total(self, parts: list[Any]) -> tuple[Any, ...]:
        """What the sums of all blocks come to, in a fixed tree order."""
        if len(parts) == 1 and len(parts[0]) == 1 and isinstance(parts[0][0], TreeSum):  # small problems, as a rule
            return parts[0][0].total()
        total: list[Any] = []
        for each in zip(*parts, strict=True):
            if isinstance(each[0], TreeSum):
                total += joined(each).total()
            else:
                total += self._in_one_piece(each)
        return tuple(total)

    def _in_one_piece(self, parts: Sequence[Whole]) -> tuple[Any, ...]:
        """A product over all rows that is not a sum over cells."""
        arguments = (np.concatenate(column) for column in zip(*(part.arguments for part in parts), strict=True))
        product: Any = self.design.gram if parts[0].product == "gram" else self.design.rmatvec
        value = product(*arguments)
        return value if isinstance(value, tuple) else (value,)

    def place(self, vectors: Any) -> Kept:
        """Leave a record of vectors with the rows."""
        return Kept(vectors)

    def fetch(self, kept: Kept) -> Any:
        """Bring the vectors that were kept home."""
        return kept.vectors

    def pick(self, index: Any) -> Blocks:
        """Some rows, home."""
        design: Any = self.design
        some = Blocks(design.pick(index), self.y[index], self.weight[index])
        return some.with_residual(self.residual[index]) if isinstance(self.residual, np.ndarray) else some

    def excess(self, mean: Array) -> Array | float:
        """Variance of every predictor at known coefficients, from missing entries and ``residual``; zero without."""
        if not self.design.offers("excess"):
            return self.residual
        v: Array = self.keep(visits.excess, mean)[0].vectors[0]
        return v


def at_home(rows: Any) -> Blocks | None:
    """All rows in memory, wherever they are, for engines that then run whole paths of steps; None if they are many.

    It depends on the number of entries alone, so that results do not depend on where the rows are.
    """
    n, p = rows.shape
    if n * p > HOME or rows.stays:
        return None
    return rows if isinstance(rows, Blocks) else rows.pick(np.arange(n))


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """A record of vectors over all rows; a field is None where there is no such vector."""

    vectors: Any

    def of(self, lo: int, hi: int) -> Any:
        """The part of some rows."""
        return type(self.vectors)(*(None if each is None else each[lo:hi] for each in self.vectors))

    def fetch(self) -> Any:
        """The vectors, home."""
        return self.vectors


_vectors = attrgetter("vectors")
