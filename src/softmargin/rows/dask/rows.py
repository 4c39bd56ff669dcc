"""Rows on the workers of a Dask cluster: visits go out, sums come back, vectors stay."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.rows.block import CELL
from softmargin.rows.dask._crew import Crew, Entry, Run, time_limit
from softmargin.rows.dask._holder import Errand, Form
from softmargin.rows.dask._making import Source, encoded
from softmargin.rows.elsewhere import RowsAway
from softmargin.rows.in_memory import Blocks
from softmargin.rows.summation import joined

__all__ = ["DaskRows", "Piece", "crew_of", "current_client", "rows_at"]


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows that a worker can make: a delayed array, and how many rows it has."""

    source: Any
    size: int


@dataclass(frozen=True, eq=False)
class Kept:
    """The number under which every worker has its part of the vectors."""

    entry: Entry
    crew: Crew

    def __post_init__(self) -> None:
        weakref.finalize(self, _dropped, self.entry, self.crew.dead)

    def fetch(self) -> Any:
        """The vectors, home."""
        parts = self.crew.fetched(self.entry)
        columns = zip(*parts, strict=True)
        return type(parts[0])(*(None if column[0] is None else np.concatenate(column) for column in columns))


def _dropped(entry: Entry, dead: Any) -> None:
    """Nobody has the handle any more: the workers hear of it with the next visit."""
    entry.wanted = False
    dead.append(entry.number)


class DaskRows(RowsAway):
    """Rows in the memory of Dask workers, cut into the cells that they have in memory.

    So results are bitwise those of the same rows in memory, whatever the chunks they come in, the number of workers, or
    the workers that are lost on the way. Responses and weights, numbers per row, are here as well.

    Parameters
    ----------
    crew : Crew
        The workers that hold the rows.
    design : Design
        The columns, as they are known here.
    make : callable
        Makes the design of given rows; it travels.
    y, weight : array, or None
        Response and pseudo-likelihood weight of each row.
    """

    workers = 1

    def __init__(self, crew: Crew, design: Any, make: Callable[[Array], Any], y: Array | None, weight: Array) -> None:
        self.crew, self.design, self.make = crew, design, make
        self.shape = design.shape
        self.y, self.weight = np.zeros(0) if y is None else y, weight
        self._made, self._single = encoded(make), False
        self._y = None if y is None else self.place(visits.One(y))
        self._weight = self.place(visits.One(weight))

    def sum(self, visit: Any, small: Any = None, *kept: Kept) -> tuple[Any, ...]:
        """One pass over the rows that adds something up."""
        return self._total(self.crew.visited(self._letter(visit, small, kept)))

    def keep(self, visit: Any, small: Any = None, *kept: Kept) -> tuple[Kept, tuple[Any, ...]]:
        """One pass over the rows that leaves vectors with them, and may add something up."""
        seen = (self._weight, *kept) if self._y is None else (self._y, self._weight, *kept)
        entry = self.crew.entry(parents=tuple(each.entry for each in seen))
        handle, entry.letter = Kept(entry, self.crew), self._letter(visit, small, kept, entry.number)
        total = self._total(self.crew.visited(entry.letter))
        self.crew.note(entry)
        return handle, total

    def _letter(self, visit: Any, small: Any, kept: tuple[Kept, ...], number: int | None = None) -> bytes:
        y = None if self._y is None else self._y.entry.number
        form = Form(self._made, y, self._weight.entry.number, self._single)
        return encoded(Errand(form, visit, small, tuple(each.entry.number for each in kept), number, np.geterr()))

    def _total(self, answers: list[Any]) -> tuple[Any, ...]:
        total: list[Any] = []
        for trees in zip(*answers, strict=True):
            total += joined(trees).total()
        return tuple(total)

    def place(self, vectors: Any) -> Kept:
        """Leave a record of vectors with the rows."""
        entry = self.crew.entry(vectors=vectors)
        handle = Kept(entry, self.crew)
        self.crew.place(entry)
        self.crew.note(entry)
        return handle

    def fetch(self, kept: Kept) -> Any:
        """Bring the vectors that were kept home."""
        return kept.fetch()

    def pick(self, index: Any) -> Blocks:
        """Some rows, home."""
        places = np.arange(self.shape[0])[index]
        design = self.make(rows_at(self.crew, places))
        return Blocks(design.single() if self._single else design, self.y[places], self.weight[places])

    def weighted(self, weight: Array) -> DaskRows:
        """The same rows with other weights."""
        return self._twin(weight=weight, _weight=self.place(visits.One(weight)))

    def reweighted(self, factor: float) -> DaskRows:
        """The same rows with all weights multiplied by one number."""
        return self._twin(weight=factor * self.weight, _weight=self.keep(_reweighted, factor)[0])

    def single(self) -> DaskRows | None:
        """The same rows with Gram matrices in single precision; None where the design cannot."""
        return self._twin(_single=True) if self.design.offers("single") else None

    def serial(self) -> DaskRows:
        """The same rows: there are no threads here."""
        return self

    def close(self) -> None:
        """Nothing to give back: workers let the rows go when nobody here has them any more."""

    def redesigned(self, design: Any) -> Blocks:
        """The same responses with other columns, which are here."""
        return Blocks(design, self.y, self.weight)

    def with_residual(self, residual: Array) -> Blocks:
        """Predictors with a variance of their own are those of columns that are here."""
        raise NotImplementedError("rows on Dask workers have no variance beside that of their coefficients")


def _reweighted(block: Any, factor: float) -> Any:
    return visits.One(factor * block.weight), ()


def rows_at(crew: Crew, places: Any) -> Array:
    """Some rows as they are given, home, in any order."""
    order = np.argsort(places, kind="stable")
    found = crew.picked(places[order])
    rows = np.empty((len(places), found[0].shape[1]))
    rows[order] = np.concatenate(found)
    return rows


def current_client() -> Any:
    """The user's connection to a cluster."""
    try:
        from distributed import default_client
    except ImportError as error:
        raise ImportError(
            "rows in a Dask collection are fitted on dask.distributed, which is not installed: "
            "pip install 'softmargin[dask]'."
        ) from error
    try:
        return default_client()
    except ValueError:
        raise ValueError(
            "X is a Dask collection, and there is no cluster to hold its rows: make one before fit with client = "
            "dask.distributed.Client(), or bring the rows into memory with X.compute()."
        ) from None


def crew_of(client: Any, pieces: Sequence[Piece], p: int) -> Crew:
    """Send the rows that pieces make to the workers, each a run of cells as long as its threads are many."""
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    need, room = 8.0 * p * sum(piece.size for piece in pieces), float(sum(limits))
    if limits and need > room and all(limits):
        raise MemoryError(
            f"the rows of X take {need / 1e9:.3g} GB, and the Dask workers may use {room / 1e9:.3g} GB: start more "
            "workers, give them more memory, or use fewer columns."
        )
    crew = Crew(client, _runs(pieces, client.nthreads()), time_limit())
    crew.start()
    return crew


def _runs(pieces: Sequence[Piece], threads: dict[str, int]) -> list[Run]:
    """Runs of cells whose lengths are as the threads of the workers, put together from pieces of any length."""
    ends = np.cumsum([0, *(piece.size for piece in pieces)])
    n, cells = int(ends[-1]), -(-int(ends[-1]) // CELL)
    shares = np.cumsum([0, *threads.values()]) / sum(threads.values())
    cuts = np.unique(np.round(shares * cells).astype(int))
    runs = []
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        lo, hi = first * CELL, min(last * CELL, n)
        used = range(int(np.searchsorted(ends, lo, "right")) - 1, int(np.searchsorted(ends, hi, "left")))
        parts = [(max(lo - int(ends[k]), 0), min(hi, int(ends[k + 1])) - int(ends[k])) for k in used]
        runs.append(Run(lo, hi, first, Source([pieces[k].source for k in used], parts)))
    return runs
