"""A run of cells on a worker, and what visits left with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.block import CELL, Block
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.summation import joined

__all__ = ["Errand", "Form", "Holder"]

_BLOCK = 16  # cells of a block at most: its vectors, a quarter of a megabyte each, stay in the second-level cache
_DESIGNS = 2  # kinds of columns that are kept at a time: as they are given, and as a model has them


class Form(NamedTuple):
    """How visits see the rows: through which columns, with responses and weights of these numbers."""

    make: bytes  # makes the design of given rows
    y: int | None
    weight: int
    single: bool = False  # whether Gram matrices are in single precision


class Errand(NamedTuple):
    """One visit of all blocks: what it is, what it sees, and where its vectors stay if they do."""

    form: Form
    visit: Any
    small: Any
    kept: tuple[int, ...]  # numbers of what earlier visits left
    number: int | None = None  # under which its own vectors stay
    rules: Any = None  # for floating-point errors


class Holder:
    """Consecutive cells of a problem, in the memory of one worker.

    It is spoken to in bytes and answers in bytes, so that nothing is shared with whoever speaks. An error of a visit is
    an answer too: whatever else goes wrong is then the loss of the worker.

    Parameters
    ----------
    X : array of shape (rows, columns)
        The rows, as they are given.
    first : int
        Number of the first cell.
    threads : int
        Threads that visits run on; no result depends on it.
    """

    def __init__(self, X: Array, first: int, threads: int = 1) -> None:
        # what a message brought may lie askew in memory, and products would then be made in another order
        self.X, self.first = np.require(X, np.float64, ["C", "A"]), first
        step = CELL * max(1, min(_BLOCK, -(-len(X) // (CELL * threads))))
        self.cuts = [(lo, min(lo + step, len(X))) for lo in range(0, len(X), step)]
        self.kept: dict[int, list[Any]] = {}  # by number, one record of vectors per block
        self.forms: dict[Form, list[Block]] = {}
        self.designs: dict[bytes, Any] = {}
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def visited(self, letter: bytes, forgotten: Sequence[int] = ()) -> bytes:
        """Do an errand: its sums, as partial sums of a tree over cells."""
        return self._answer(lambda: self._visited(pickle.loads(letter)), forgotten)

    def placed(self, number: int, content: bytes) -> bytes:
        """Leave a record of vectors over these rows."""

        def place() -> None:
            self.kept[number] = [_part(pickle.loads(content), lo, hi) for lo, hi in self.cuts]

        return self._answer(place)

    def fetched(self, number: int, forgotten: Sequence[int] = ()) -> bytes:
        """The record of vectors under a number."""

        def fetch() -> Any:
            parts = self.kept[number]
            columns = zip(*parts, strict=True)
            return type(parts[0])(*(None if column[0] is None else np.concatenate(column) for column in columns))

        return self._answer(fetch, forgotten)

    def picked(self, places: bytes) -> bytes:
        """Some of these rows."""
        return self._answer(lambda: self.X[pickle.loads(places)])

    def held(self) -> bytes:
        """The numbers of what is kept."""
        return self._answer(lambda: sorted(self.kept))

    def _answer(self, work: Callable[[], Any], forgotten: Sequence[int] = ()) -> bytes:
        try:
            for number in forgotten:
                self.kept.pop(number, None)
            if forgotten:
                self.forms = {form: blocks for form, blocks in self.forms.items() if form.weight in self.kept}
            with one_blas_thread():
                return pickle.dumps((True, work()), protocol=5)
        except Exception as error:
            return pickle.dumps((False, error), protocol=5)

    def _blocks(self, form: Form) -> list[Block]:
        """The runs of cells that a visit is called for."""
        if form not in self.forms:
            design = self._design(form.make)
            design = design.single() if form.single else design
            y = [(np.zeros(0),)] * len(self.cuts) if form.y is None else self.kept[form.y]
            self.forms[form] = [
                Block(design, own[0], weight[0], 0.0, self.first + lo // CELL, lo, hi)
                for (lo, hi), own, weight in zip(self.cuts, y, self.kept[form.weight], strict=True)
            ]
        return self.forms[form]

    def _design(self, make: bytes) -> Any:
        """The columns; of those seen before, the last are kept, since some are copies."""
        if make not in self.designs:
            while len(self.designs) >= _DESIGNS:
                del self.designs[next(iter(self.designs))]
            self.designs[make] = pickle.loads(make)(self.X)
        return self.designs[make]

    def _visited(self, errand: Errand) -> tuple[Any, ...]:
        def call(at: int) -> Any:
            with np.errstate(**errand.rules):
                return errand.visit(blocks[at], errand.small, *(self.kept[number][at] for number in errand.kept))

        blocks = self._blocks(errand.form)
        answers = list((map if self.pool is None else self.pool.map)(call, range(len(blocks))))
        if errand.number is not None:
            self.kept[errand.number] = [vectors for vectors, _ in answers]
            answers = [sums for _, sums in answers]
        return tuple(joined(trees) for trees in zip(*answers, strict=True))


def _part(vectors: Any, lo: int, hi: int) -> Any:
    return type(vectors)(*(None if each is None else each[lo:hi] for each in vectors))
