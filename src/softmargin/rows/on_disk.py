"""Rows in files: every pass reads them again, the next block while this one is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, elementwise
from softmargin.rows.block import CELL, Block
from softmargin.rows.elsewhere import RowsAway
from softmargin.rows.in_memory import Blocks
from softmargin.rows.stored.later import Later
from softmargin.rows.stored.read_ahead import read_ahead
from softmargin.rows.stored.vectors import Collector, Kept, Vector, vector_of
from softmargin.rows.summation import TreeSum

__all__ = ["InFiles"]

_CELLS = 16  # of a block, at most, as in memory
_BYTES = 2**25  # of a block's columns, at most, as double numbers


class _Run(NamedTuple):
    """A block of rows that was read, and where it stands."""

    lo: int
    hi: int
    design: Later


class _Visited(NamedTuple):
    """What a visit said of a block, and which vectors the arrays are parts of that it was given."""

    lo: int
    answer: Any
    known: dict[int, Vector]
    held: Any  # keeps those arrays, whose places in memory are their names


class InFiles(RowsAway):
    """Rows whose columns stay in files, visited block by block; cells and sums are those of rows in memory.

    Parameters
    ----------
    design : Design
        The columns, with ``run`` to read some rows.
    y, weight : array of shape (n,), or None
        Response and pseudo-likelihood weight ``c`` of each row; None where rows are only looked at.
    workers : int
        How many threads work on blocks; it never changes a result.
    """

    def __init__(self, design: Any, y: Any, weight: Any, *, workers: int = 1) -> None:
        self.design, self.workers, self.shape = design, workers, design.shape
        p = self.shape[1]
        self._y, self._weight = vector_of(np.zeros(0) if y is None else y), vector_of(weight)
        self._step = CELL * max(1, min(_CELLS, _BYTES // (8 * CELL * max(p, 1))))
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    @property
    def y(self) -> Array:
        """Responses, home."""
        return self._y.whole()

    @property
    def weight(self) -> Array:
        """Weights, home."""
        return self._weight.whole()

    def redesigned(self, design: Any) -> InFiles:
        """The same responses with other columns."""
        return self._twin(design=design, shape=design.shape)

    def weighted(self, weight: Array) -> InFiles:
        """The same rows with other weights."""
        return self._twin(_weight=vector_of(weight))

    def reweighted(self, factor: float) -> InFiles:
        """The same rows with all weights multiplied by one number."""
        return self.weighted(elementwise(lambda each: factor * each, self.weight))

    def single(self) -> InFiles | None:
        """The same rows with Gram matrices in single precision."""
        return self.redesigned(self.design.single())

    def serial(self) -> InFiles:
        """The same rows without threads, for use inside a thread."""
        return self._twin(_pool=None, workers=1)

    def close(self) -> None:
        """Give the threads back."""
        if self._pool is not None:
            self._pool.shutdown()

    def sum(self, visit: Any, small: Any = None, *kept: Any) -> tuple[Any, ...]:
        """One pass over the rows that adds something up."""
        total = _Total()
        for found in self._visited(visit, small, kept):
            total.add(found.answer)
        return total.value()

    def keep(self, visit: Any, small: Any = None, *kept: Any) -> tuple[Kept, tuple[Any, ...]]:
        """One pass over the rows that leaves vectors beside them, and may add something up."""
        total, vectors = _Total(), Collector(self.shape[0])
        for found in self._visited(visit, small, kept):
            vectors.take(found.lo, found.answer[0], found.known)
            total.add(found.answer[1])
        return vectors.kept(), total.value()

    def place(self, vectors: Any) -> Kept:
        """Leave a record of vectors beside the rows."""
        return Kept(type(vectors), [None if each is None else vector_of(each) for each in vectors])

    def fetch(self, kept: Any) -> Any:
        """Bring the vectors that were kept home."""
        return kept.fetch()

    def pick(self, index: Any) -> Blocks:
        """Some rows, home."""
        return Blocks(self.design.pick(index), self._y.pick(index), self._weight.pick(index))

    def _runs(self, ahead: Callable[[], bool]) -> Iterator[_Run]:
        """The blocks, read where ``ahead`` says that they will be wanted, and otherwise when they are."""
        self.design.check()
        n = self.shape[0]
        for lo in range(0, n, self._step):
            hi = min(lo + self._step, n)
            read = partial(self.design.run, lo, hi)
            yield _Run(lo, hi, Later(read, read() if ahead() else None))

    def _visited(self, visit: Any, small: Any, kept: tuple[Any, ...]) -> Iterator[_Visited]:
        """What a visit says of every block, in order; the columns are read for visits that look at them."""
        rules: Any = np.geterr()
        seen: list[Later] = []  # the first block's columns tell whether the others' will be wanted

        def call(run: _Run) -> _Visited:
            parts = [each.of(run.lo, run.hi) for each in kept]
            known = {
                id(part): vector
                for each, record in zip(kept, parts, strict=True)
                for part, vector in zip(record, each.fields, strict=True)
                if part is not None
            }
            y, weight = (vector.read(run.lo, run.hi) for vector in (self._y, self._weight))
            block = Block(run.design, y, weight, 0.0, run.lo // CELL, 0, run.hi - run.lo)
            with np.errstate(**rules):
                found = _Visited(run.lo, visit(block, small, *parts), known, parts)
            if not seen:
                seen.append(run.design)
            return found

        def wanted() -> bool:
            return bool(seen) and seen[0].used

        runs = read_ahead(self._runs(wanted)) if self.shape[0] > 2 * self._step else self._runs(wanted)
        if self._pool is None:
            yield from map(call, runs)
            return
        waiting: deque[Future[_Visited]] = deque()
        for run in runs:
            waiting.append(self._pool.submit(call, run))
            if len(waiting) > self.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Total:
    """What the sums of all blocks come to, added as they come, in a fixed tree order."""

    def __init__(self) -> None:
        self.trees: list[TreeSum] | None = None

    def add(self, sums: tuple[TreeSum, ...]) -> None:
        """The sums of the next block."""
        if self.trees is None:
            self.trees = [TreeSum() for _ in sums]
        for tree, part in zip(self.trees, sums, strict=True):
            for node in part.nodes:
                tree.push(*node)

    def value(self) -> tuple[Any, ...]:
        """All of them."""
        return tuple(each for tree in self.trees or () for each in tree.total())
