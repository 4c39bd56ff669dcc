"""Matrices in files, row after row: `.npy` files, memory maps, and files of our own."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.core.array import Array

__all__ = ["FileRows", "RowSource", "SomeRows", "ended", "read_at", "scratch_file", "write_at"]

_GAP = 32  # rows that are read and left out sooner than a second request is made
_SEGMENT = 4096  # rows of one request, at most
_LOCK = threading.Lock()  # where the system has no reading at a position


class RowSource(Protocol):
    """Rows of numbers that can be read from anywhere in between."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""

    def read(self, lo: int, hi: int) -> Any:
        """The rows lo..hi, of the type that they are stored in."""

    def pick(self, index: Any) -> Any:
        """The rows with these numbers, in any order."""

    def check(self) -> None:
        """Refuse rows that have changed since they were first looked at."""


def read_at(file: Any, out: Any, at: int) -> int:
    """Fill an array from a place in a file on; the number of bytes that were there."""
    view, done = memoryview(out).cast("B"), 0
    while done < len(view):
        if os.name == "posix":
            got = os.preadv(file.fileno(), [view[done:]], at + done)
        else:
            with _LOCK:
                file.seek(at + done)
                got = file.readinto(view[done:])
        if not got:
            break
        done += got
    return done


def write_at(file: Any, part: Any, at: int) -> None:
    """Write an array to a place in a scratch file."""
    whole: Any = np.ascontiguousarray(part)
    view, done = memoryview(whole).cast("B"), 0
    try:
        while done < len(view):
            if os.name == "posix":
                done += os.pwrite(file.fileno(), view[done:], at + done)
            else:
                with _LOCK:
                    file.seek(at + done)
                    done += file.write(view[done:])
    except OSError as error:
        raise OSError(
            f"the scratch file of this fit in {tempfile.gettempdir()} could not take {len(view)} more bytes "
            f"({error.strerror}): free some space there, or set TMPDIR to a folder with more."
        ) from error


def scratch_file() -> Any:
    """A file without a name that is gone when nobody has it open."""
    return tempfile.TemporaryFile(prefix="softmargin-", buffering=0)


def ended(name: str, row: int) -> ValueError:
    """What is said of a file that is shorter than it was."""
    return ValueError(f"{name} ends before row {row}: it has changed or is cut off; write it again, then fit again.")


class _Stamp(NamedTuple):
    """By what a change of a file is noticed; its time says nothing while a map is written through."""

    size: int
    time: int | None


class FileRows:
    """A matrix in a file, read by position, so that no page of it counts as memory of this process.

    Parameters
    ----------
    file : file object
        Open for reading, without a buffer.
    name : str
        What sentences call it.
    offset : int
        Bytes before the first row.
    shape, dtype
        Of the matrix, whose rows follow each other.
    written : bool
        Whether others may write to it without changing its rows.
    """

    def __init__(
        self, file: Any, name: str, offset: int, shape: tuple[int, int], dtype: Any, *, written: bool = False
    ) -> None:
        self.file, self.name, self.offset, self.shape = file, name, offset, shape
        self.dtype: Any = np.dtype(dtype)
        self._written, self._width = written, shape[1] * self.dtype.itemsize
        self._stamp = self._now()
        weakref.finalize(self, file.close)

    @classmethod
    def of_npy(cls, path: Path) -> FileRows:
        """The matrix of a `.npy` file."""
        try:
            X = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(f"{path} cannot be read as a .npy file of numbers: {error}.") from error
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(f"{path} has an array of shape {X.shape} and type {X.dtype}; give a matrix of numbers.")
        if not X.size:
            raise ValueError(f"{path} has an array of shape {X.shape}; give at least one row and one column.")
        if not X.flags.c_contiguous:
            raise ValueError(f"{path} is in the order of columns; save it again, as np.ascontiguousarray(X).")
        return cls(Path(path).open("rb", buffering=0), str(path), X.offset, X.shape, X.dtype)

    @classmethod
    def of_map(cls, X: Any) -> FileRows | None:
        """The matrix of a memory map or of a run of its rows; None where it is not in a file as it is in memory."""
        if X.filename is None or X.mode == "c" or not X.flags.c_contiguous or X.dtype.kind not in "fiub":
            return None
        if X.mode != "r":
            X.flush()
        begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY  # in the file, of what is mapped
        inside = X.ctypes.data - np.frombuffer(X._mmap, dtype=np.uint8).ctypes.data
        file = Path(X.filename).open("rb", buffering=0)  # noqa: SIM115  (closed with the rows)
        return cls(file, str(X.filename), begin + inside, X.shape, X.dtype, written=X.mode != "r")

    def _now(self) -> _Stamp:
        found = os.fstat(self.file.fileno())
        return _Stamp(found.st_size, None if self._written else found.st_mtime_ns)

    def check(self) -> None:
        """Refuse a file that has changed since it was first looked at."""
        if self._now() != self._stamp:
            raise ValueError(f"{self.name} has changed while it was read; leave it alone, and fit again.")

    def read(self, lo: int, hi: int) -> Any:
        """The rows lo..hi, of the type that they are stored in."""
        out = np.empty((hi - lo, self.shape[1]), self.dtype)
        try:
            got = read_at(self.file, out, self.offset + lo * self._width)
        except OSError as error:
            raise ValueError(f"rows {lo} to {hi} of {self.name} cannot be read: {error.strerror}.") from error
        if got < out.nbytes:
            raise ended(self.name, hi)
        return out

    def pick(self, index: Any) -> Any:
        """The rows with these numbers, in any order."""
        places = np.arange(self.shape[0])[index] if isinstance(index, slice) else np.asarray(index)
        places = np.flatnonzero(places) if places.dtype == bool else places
        order = np.argsort(places, kind="stable")
        out = np.empty((len(places), self.shape[1]), self.dtype)
        for at in _segments(places[order]):
            rows = places[order[at]]
            out[order[at]] = self.read(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        return out


def _segments(rising: Any) -> Iterator[slice]:
    """Runs of rising row numbers with small gaps, each within a segment of the file."""
    far = (np.diff(rising) > _GAP) | (np.diff(rising // _SEGMENT) > 0)
    cuts = [0, *(np.flatnonzero(far) + 1).tolist(), len(rising)]
    for lo, hi in pairwise(cuts):
        if hi > lo:
            yield slice(lo, hi)


class SomeRows:
    """Some rows of a source, in a given order."""

    def __init__(self, source: RowSource, index: Any) -> None:
        self.source, self.index = source, index

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.index), self.source.shape[1]

    def read(self, lo: int, hi: int) -> Array:
        """The rows lo..hi of these."""
        found: Array = self.source.pick(self.index[lo:hi])
        return found

    def pick(self, index: Any) -> Array:
        """The rows with these numbers."""
        found: Array = self.source.pick(self.index[index])
        return found

    def check(self) -> None:
        """Refuse rows that have changed."""
        self.source.check()
