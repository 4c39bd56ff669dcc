"""X in files: memory maps, `.npy`, Parquet, Arrow datasets, and functions that give blocks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.designs.standardize import Columns
from softmargin.designs.stored import Stored
from softmargin.estimators.given.arguments import Given
from softmargin.rows.elsewhere import Elsewhere, Streamed, check_beside
from softmargin.rows.on_disk import InFiles
from softmargin.rows.stored.files import FileRows, RowSource, SomeRows
from softmargin.rows.stored.functions import function_blocks
from softmargin.rows.stored.read_ahead import read_ahead
from softmargin.rows.stored.tables import Table, joined_blocks, spooled

__all__ = ["Files", "OnDisk"]

_HOME = 2**27  # bytes of X as double numbers up to which its rows are simply brought home
_BLOCK = 2**24  # bytes of rows that are predicted at once


class OnDisk(Elsewhere):
    """A matrix in a file."""

    kind = "X in files"

    def __init__(self, source: RowSource, names: list[str] | None = None) -> None:
        self.source, self.names = source, names

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    def design(self, columns: Columns) -> Stored:
        return Stored.of(self.source, columns)

    def rows(self, design: Any, y: Array | None, weight: Array, workers: int) -> Any:
        return InFiles(design, y, weight, workers=workers)

    def at(self, index: Any) -> OnDisk:
        return OnDisk(SomeRows(self.source, index), self.names)

    def __getitem__(self, index: Any) -> Array:
        return np.asarray(self.source.pick(index), dtype=np.float64)

    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        n, p = self.shape
        step = max(1, _BLOCK // (8 * max(p, 1)))
        blocks = (np.asarray(self.source.read(lo, min(lo + step, n)), dtype=np.float64) for lo in range(0, n, step))
        return _of_each(blocks, read, beside)


class _Blocks(Streamed):
    """Rows that are read once, block by block: arrays, or data frames where their columns have names."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.make = make

    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        return _of_each(self.make(), read, beside)


def _of_each(blocks: Iterator[Any], read: Callable[..., Any], beside: tuple[Any, ...]) -> Any:
    """What ``read`` makes of consecutive blocks and their part of vectors, joined."""
    parts, lo = [], 0
    for block in read_ahead(blocks):
        hi = lo + len(block)
        parts.append(read(block, *(vector[lo:hi] for vector in beside)))
        lo = hi
    check_beside(beside, lo)
    if not parts:
        raise ValueError("there are no rows to predict: give at least one block.")
    return joined_blocks(parts)


class Files:
    """Recognises X in files; what fits into memory with ease is brought home, where all features are."""

    def taken(self, given: Given) -> Given | None:
        """The arguments of a fit, with names of columns replaced by the columns."""
        X = given.X
        table = _table(X)
        if table is not None:
            return _of_table(table, given)
        if callable(X):
            return _of_function(given)
        source = _matrix(X)
        if source is None:
            return None
        vectors = (_vector(each) for each in given[1:])
        return Given(_placed(source, None), *vectors)

    def column(self, X: Any, name: Any) -> Any:
        """A column of a table by its name, or the vector of a `.npy` file."""
        table = _table(X)
        if table is not None:
            return table.column(name)
        return _vector(name) if Path(name).suffix == ".npy" else None

    def new_rows(self, X: Any, names: list[str] | None, groups: list[str]) -> Any:
        """Rows to predict; of a table, the columns of the fit with those that say the groups."""
        table = _table(X)
        wanted = None if names is None else [*names, *groups]
        if table is not None:
            own = table if wanted is None else table.taking(wanted)
            return _Blocks(own.frames if groups else lambda: (_named(rows, own.names) for rows in own.blocks()))
        if callable(X):
            return _Blocks(lambda: (_named(block.rows, block.names) for block in function_blocks(X, wanted)))
        source = _matrix(X)
        return None if source is None else OnDisk(source)


def _placed(source: FileRows, names: list[str] | None) -> Any:
    """A matrix at home where it is small, and in its file where it is not."""
    if 8 * source.shape[0] * source.shape[1] > _HOME:
        return OnDisk(source, names)
    return _named(source.read(0, source.shape[0]), names)


def _named(rows: Array, names: list[str] | None) -> Any:
    """Rows as a data frame, where their columns have names."""
    return rows if names is None else pd.DataFrame(rows, columns=names)


def _path(given: Any) -> Path | None:
    """A path where one is given, of something that is there."""
    if not isinstance(given, (str, os.PathLike)):
        return None
    path = Path(given)
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r}: give the path of one, or the values themselves.")
    return path


def _matrix(X: Any) -> FileRows | None:
    """The matrix of a path or a memory map; None of anything else, and of a map that is small or not plain."""
    path = _path(X)
    if path is not None:
        if path.suffix != ".npy":
            raise ValueError(f"X={str(path)!r} must be a .npy file, a .parquet file or a directory of these.")
        return FileRows.of_npy(path)
    if isinstance(X, np.memmap) and X.ndim == 2 and 8 * X.size > _HOME:
        return FileRows.of_map(X)
    return None


def _table(X: Any) -> Table | None:
    path = _path(X)
    if path is not None:
        return Table.of_path(path) if path.suffix == ".parquet" or path.is_dir() else None
    arrow = sys.modules.get("pyarrow.dataset")
    return Table(X) if arrow is not None and isinstance(X, arrow.Dataset) else None


def _vector(given: Any) -> Any:
    """A vector; that of a `.npy` file where a path is given."""
    path = _path(given)
    if path is None:
        return given
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as a .npy file of a vector: {error}.") from error


def _of_table(table: Table, given: Given) -> Given:
    """A table whose response, weights and groups are columns of it, where these are names."""
    asked = [each for each in given[1:] if isinstance(each, str)]
    vectors = [table.column(each) if isinstance(each, str) else _vector(each) for each in given[1:]]
    predictors = table.taking([name for name in table.names if name not in asked])
    if 8 * predictors.length * len(predictors.names) <= _HOME:
        return Given(predictors.frame(), *vectors)
    return Given(OnDisk(spooled(predictors.blocks()), predictors.names), *vectors)


def _of_function(given: Given) -> Given:
    """A function that gives blocks of rows, or of rows and responses."""
    responses: list[Any] = []
    names: list[str] = []

    def rows() -> Iterator[Array]:
        for block in function_blocks(given.X):
            responses.extend([] if block.y is None else [np.asarray(block.y)])
            names[:] = block.names or []
            yield block.rows

    source = spooled(rows())
    X = _placed(source, names or None)
    y, *others = map(_vector, given[1:])
    if responses and y is not None:
        raise ValueError("y was given, and the blocks have responses too; leave out one of the two.")
    return Given(X, np.concatenate(responses) if responses else y, *others)
