"""Blocks of rows from Parquet files and Arrow datasets, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.stored.files import FileRows, scratch_file, write_at

__all__ = ["Table", "joined_blocks", "spooled"]

_BATCH = 65_536  # rows that are decoded at once
_NUMBERS = "fiub"
_ARROW = (OSError, ValueError, TypeError, NotImplementedError)  # what Arrow's own errors derive from


class Table:
    """The columns of an Arrow dataset: a Parquet file, a directory of them, or any other.

    Files are taken in the order of their names, rows in the order of the files.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        Where the rows are.
    names : list of str, optional
        Columns to take; None takes all.
    """

    def __init__(self, dataset: Any, names: Sequence[str] | None = None):
        self.dataset = dataset
        self.names: list[str] = _columns(dataset.schema) if names is None else list(names)
        absent = [name for name in self.names if name not in dataset.schema.names]
        if absent:
            raise ValueError(f"there is no column {absent[0]!r}; the columns are {', '.join(dataset.schema.names)}.")

    @classmethod
    def of_path(cls, path: Path) -> Table:
        """The table of a Parquet file, or of all such files in a directory."""
        files = sorted(str(file) for file in path.rglob("*.parquet")) if path.is_dir() else [str(path)]
        if not files:
            raise ValueError(f"{path} has no .parquet files.")
        try:
            arrow = import_module("pyarrow.dataset")
        except ImportError as error:
            raise ImportError("Parquet files need pyarrow: pip install 'softmargin[files]'.") from error
        folders: dict[str, Any] = {"partitioning": "hive", "partition_base_dir": str(path)} if path.is_dir() else {}
        try:
            dataset = arrow.dataset(files, format="parquet", **folders)
        except _ARROW as error:
            raise ValueError(f"{path} cannot be read as Parquet: {error}") from error
        return cls(dataset.replace_schema(_unified(dataset, arrow.get_partition_keys)))

    @property
    def length(self) -> int:
        """Number of rows."""
        return int(self.dataset.count_rows())

    def taking(self, names: Sequence[str]) -> Table:
        """The same rows with these columns."""
        return Table(self.dataset, names)

    def column(self, name: str) -> Any:
        """One whole column, home."""
        return self.taking([name]).frame()[name].to_numpy()

    def frame(self) -> Any:
        """All rows, home, as a data frame."""
        try:
            return self.dataset.to_table(columns=self.names).to_pandas(ignore_metadata=True)
        except _ARROW as error:
            raise ValueError(f"the Parquet files cannot be read: {error}") from error

    def frames(self) -> Iterator[Any]:
        """All rows in order, some at a time, as data frames of columns of any type."""
        for batch in self.dataset.scanner(columns=self.names, batch_size=_BATCH, use_threads=False).to_batches():
            if batch.num_rows:
                yield batch.to_pandas(ignore_metadata=True)

    def dtype(self) -> Any:
        """The type that holds the entries of all columns, or a sentence that names those that are no numbers."""
        types = {name: self.dataset.schema.field(name).type for name in self.names}
        kinds = {name: _number(kind) for name, kind in types.items()}
        wrong = [name for name, kind in kinds.items() if kind is None]
        if wrong:
            raise ValueError(
                f"columns {', '.join(map(repr, wrong[:5]))} are of type {types[wrong[0]]} and no numbers; leave them "
                "out, or encode them."
            )
        return np.result_type(np.float32, *kinds.values())

    def blocks(self) -> Iterator[Array]:
        """All rows in order, some at a time."""
        dtype = self.dtype()
        batches = self.dataset.scanner(columns=self.names, batch_size=_BATCH, use_threads=False).to_batches()
        try:
            for batch in batches:
                if batch.num_rows:
                    X = np.empty((batch.num_rows, len(self.names)), dtype)
                    for j, column in enumerate(batch.columns):
                        X[:, j] = _plain(column).to_numpy(zero_copy_only=False)
                    yield X
        except _ARROW as error:
            raise ValueError(f"a block of the Parquet files cannot be read: {error}") from error


def _columns(schema: Any) -> list[str]:
    """The columns of a table, without those that a data frame had as its index when it was written."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return [name for name in schema.names if name not in index]


def _unified(dataset: Any, keys: Any) -> Any:
    """The columns of all files with types that hold those of each; ``keys`` tells what names of folders say."""
    whole, first = dataset.schema, ""
    wanted: set[str] = set()
    for fragment in dataset.get_fragments():
        try:
            schema = fragment.physical_schema
        except _ARROW as error:
            raise ValueError(f"{fragment.path} cannot be read as Parquet: {error}") from error
        found = {*schema.names, *keys(fragment.partition_expression)}
        first, wanted = (first, wanted) if first else (fragment.path, found)
        if found != wanted:
            lacking, name = (fragment.path, min(wanted - found)) if wanted - found else (first, min(found - wanted))
            other = first if lacking == fragment.path else fragment.path
            raise ValueError(
                f"{lacking} has no column {name!r}, which {other} has; give all files the same columns, or the path of "
                "one of them."
            )
        try:
            whole = import_module("pyarrow").unify_schemas([whole, schema], promote_options="permissive")
        except _ARROW as error:
            raise ValueError(f"{fragment.path} has a column of another type than {first}: {error}") from error
    return whole


def _number(kind: Any) -> Any:
    """NumPy's type of an Arrow type; None where it is no number."""
    if _is_decimal(kind):
        return np.dtype(np.float64)
    try:
        found = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return None
    return found if found.kind in _NUMBERS else None


def _is_decimal(kind: Any) -> bool:
    return bool(import_module("pyarrow").types.is_decimal(kind))


def _plain(column: Any) -> Any:
    """A column of numbers as NumPy has them, decimal ones and truth values with missing ones too."""
    kind = import_module("pyarrow")
    return column.cast(kind.float64()) if _is_decimal(column.type) or kind.types.is_boolean(column.type) else column


def spooled(blocks: Iterator[Array]) -> FileRows:
    """The rows of all blocks in a scratch file, of the type of the first block."""
    file, n, p = scratch_file(), 0, 0
    dtype: Any = None
    for number, X in enumerate(blocks):
        if dtype is None:
            p, dtype = X.shape[1], X.dtype
        if not np.can_cast(X.dtype, dtype, "safe"):
            raise ValueError(
                f"block {number} has entries of type {X.dtype} where the first has {dtype}; give one type."
            )
        write_at(file, X.astype(dtype, copy=False), n * p * dtype.itemsize)
        n += len(X)
    if dtype is None:
        raise ValueError("there are no rows: give at least one block.")
    return FileRows(file, "the scratch file of the rows", 0, (n, p), dtype)


def joined_blocks(parts: list[Any]) -> Any:
    """Answers of blocks in one piece: arrays, or tuples of them."""
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
    return np.concatenate(parts)
