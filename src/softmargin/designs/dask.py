"""An X that is a Dask array or data frame: its rows stay on the workers of the user's cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.validation import is_frame
from softmargin.designs.dense import Dense
from softmargin.designs.standardize import Columns, design_for
from softmargin.refusals import refused
from softmargin.rows.dask.rows import DaskRows, Piece, crew_of, current_client, rows_at
from softmargin.rows.elsewhere import Elsewhere, Streamed, check_beside
from softmargin.rows.in_memory import HOME
from softmargin.rows.stored.tables import joined_blocks

__all__ = ["DaskMatrix", "NewRows", "counted", "plain"]


class DaskMatrix(Elsewhere):
    """The rows of a Dask collection, for a fit; nothing is computed before it is needed.

    Parameters
    ----------
    chunks : sequence of Delayed
        Consecutive rows, as arrays or data frames.
    p : int
        Number of columns.
    names : list of str or None
        Their names.
    sizes : sequence of int
        Numbers of rows of the chunks.
    """

    kind = "X on Dask"

    def __init__(self, chunks: Sequence[Any], p: int, names: list[str] | None, sizes: Sequence[int]) -> None:
        from dask.delayed import delayed

        self.names, self._shape = names, (sum(sizes), p)
        self.pieces = [Piece(delayed(_numbers)(chunk), k) for chunk, k in zip(chunks, sizes, strict=True) if k]

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @cached_property
    def crew(self) -> Any:
        """The workers that hold the rows, from their first use until nobody has this any more."""
        return crew_of(current_client(), self.pieces, self.shape[1])

    def design(self, columns: Columns) -> Design:
        return OnWorkers(self, columns)

    def rows(self, design: Any, y: Array | None, weight: Array, workers: int) -> DaskRows:
        return DaskRows(self.crew, design, design.make, y, np.ascontiguousarray(weight))

    def at(self, index: Any) -> DaskMatrix:
        from dask.delayed import delayed

        ends = np.cumsum([0, *(piece.size for piece in self.pieces)])
        cuts = np.searchsorted(index, ends)
        own = [index[a:b] - first for first, (a, b) in zip(ends[:-1], pairwise(cuts), strict=True)]
        chunks = [delayed(_some)(piece.source, places) for piece, places in zip(self.pieces, own, strict=True)]
        return DaskMatrix(chunks, self.shape[1], self.names, [len(places) for places in own])

    def __getitem__(self, index: Any) -> Array:
        return rows_at(self.crew, np.arange(self.shape[0])[index])

    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        from dask.delayed import delayed

        client, reader = current_client(), _sent(read)
        own = _cut(beside, [piece.size for piece in self.pieces])
        made = [delayed(_read)(reader, piece.source, *part) for piece, part in zip(self.pieces, own, strict=True)]
        return joined_blocks(client.gather(client.compute(made)))


class NewRows(Streamed):
    """The rows of a Dask collection, to be predicted: what is made of them is a Dask array again, not yet computed.

    Parameters
    ----------
    chunks : sequence of Delayed
        Consecutive rows, as arrays or data frames.
    one : array or data frame
        A row like these: a data frame where rows are to be read as such, because some columns hold labels.
    names : list of str or None
        Names of the columns of arrays.
    sizes : sequence of int or None
        Numbers of rows of the chunks, where they are known; they are counted where vectors come beside the rows.
    """

    def __init__(self, chunks: Sequence[Any], one: Any, names: list[str] | None, sizes: Sequence[int] | None) -> None:
        self.chunks, self.one, self.names, self.sizes = chunks, one, names, sizes

    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        from dask.delayed import delayed

        if beside and self.sizes is None:
            self.sizes = counted(self.chunks)
        own = _cut(beside, [0] * len(self.chunks) if self.sizes is None else self.sizes)
        like = read(self.one, *(vector[:1] for vector in beside))
        reader, numbers = _sent(read, like), None if is_frame(self.one) else delayed(_numbers)
        rows = self.chunks if numbers is None else [numbers(chunk) for chunk in self.chunks]
        made = [delayed(_read)(reader, chunk, *part) for chunk, part in zip(rows, own, strict=True)]
        if not isinstance(like, tuple):
            return self._array(made, like)
        return tuple(self._array([part[k] for part in made], one) for k, one in enumerate(like))

    def _array(self, parts: list[Any], like: Array) -> Any:
        from dask import array

        sizes = [np.nan] * len(parts) if self.sizes is None else self.sizes
        shapes = [(size, *like.shape[1:]) for size in sizes]
        made = [array.from_delayed(part, shape, like.dtype) for part, shape in zip(parts, shapes, strict=True)]
        return array.concatenate(made, allow_unknown_chunksizes=True)


@dataclass(frozen=True, eq=False)
class OnWorkers(Design):
    """Columns of rows that workers hold.

    Visits see the design that a worker makes of its rows. Of few rows it is made here as well where an engine asks for
    more than visits, as it holds so few in any case.
    """

    matrix: DaskMatrix
    columns: Columns

    @property
    def make(self) -> Callable[[Array], Any]:
        """Makes the design of given rows."""
        return partial(design_for, columns=self.columns)

    @property
    def intercept(self) -> bool:
        return self.columns.intercept

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], len(self.columns.keep) + self.columns.intercept

    @cached_property
    def home(self) -> Any:
        """The design of all rows, which come here for it."""
        n, q = self.shape
        if n * q > HOME:
            raise ValueError(refused("all rows elsewhere", kind=self.matrix.kind, rows=n, columns=q))
        return self.make(self.matrix[:])

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.matvec(beta, lo, hi)

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.rmatvec(b, lo, hi)

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        return self.home.gram(w, b, lo, hi)

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.row_quad(root, lo, hi)

    def moments(self, mean: Array, root: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        return self.home.moments(mean, root, lo, hi)

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.matmat(coefficients, lo, hi)

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.norms(lo, hi)

    def values(self, lo: int = 0, hi: int | None = None) -> Array:
        return self.home.values(lo, hi)

    def rows(self, index: Any) -> Array:
        places = np.arange(self.shape[0])[index]
        made: Array = self.make(self.matrix[places]).rows(slice(None))
        return made

    def pick(self, index: Any) -> Dense:
        made: Dense = self.make(self.matrix[index])
        return made

    def outer(self) -> Array:
        return self.home.outer()

    def rmatmat(self, rows: Array) -> Array:
        return self.home.rmatmat(rows)

    def scaled(self, factor: Array) -> Dense:
        return self.home.scaled(factor)

    def take(self, columns: Any) -> Dense:
        return self.home.take(columns)

    def single(self) -> Dense:
        return self.home.single()


def _numbers(chunk: Any) -> Array:
    """A chunk as an array of numbers."""
    if is_frame(chunk):
        return chunk.to_numpy(dtype=np.float64, na_value=np.nan)
    if not isinstance(chunk, np.ndarray):
        raise TypeError(
            f"the chunks of X are of type {type(chunk).__name__} and must be NumPy arrays: use X.map_blocks with a "
            "function that makes them so."
        )
    return np.asarray(plain(chunk), dtype=np.float64)


def plain(rows: Any) -> Any:
    """Rows as they are, refused where a mask would be lost."""
    if isinstance(rows, np.ma.MaskedArray):
        raise TypeError(
            "X is a masked array on Dask; fill it first, as dask.array.ma.filled(X, float('nan')) where masked entries "
            "are missing."
        )
    return rows


def counted(parts: Sequence[Any]) -> list[int]:
    """Numbers of rows of delayed parts."""
    from dask.base import compute
    from dask.delayed import delayed

    return list(compute(*[delayed(len)(part) for part in parts]))


def _cut(vectors: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """For each of consecutive runs of rows its part of every vector."""
    ends = np.cumsum([0, *sizes])
    check_beside(vectors, int(ends[-1]))
    return [[vector[lo:hi] for vector in vectors] for lo, hi in pairwise(ends)]


def _some(chunk: Array, places: Any) -> Array:
    return chunk[places]


def _sent(read: Callable[..., Any], like: Any = None) -> Any:
    """A function, and what it makes of one row, as a value of its own, which goes to every worker once."""
    from dask.delayed import delayed

    return delayed(_Reader(read, like), traverse=False)


@dataclass(frozen=True, eq=False)
class _Reader:
    read: Callable[..., Any]
    like: Any


def _read(reader: _Reader, rows: Any, *beside: Any) -> Any:
    if len(rows):
        return reader.read(rows, *beside)
    return tuple(one[:0] for one in reader.like) if isinstance(reader.like, tuple) else reader.like[:0]
