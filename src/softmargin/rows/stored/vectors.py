"""Vectors over rows beside rows in files: at home where they are short, in scratch files where they are long."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.stored.files import ended, read_at, scratch_file, write_at

__all__ = ["Collector", "Kept", "Vector", "new_vector", "vector_of"]

_HOME = 2**25  # bytes of a vector up to which it is at home


class Vector(Protocol):
    """A vector over rows, written and read in runs."""

    def write(self, lo: int, part: Array) -> None:
        """Set the entries from lo on."""

    def read(self, lo: int, hi: int) -> Array:
        """The entries lo..hi."""

    def pick(self, index: Any) -> Array:
        """Some entries."""

    def whole(self) -> Array:
        """All entries."""


class _Shared:
    """An array that all have in common who want it at one time, and that is gone when nobody does."""

    def __init__(self) -> None:
        self._found: Any = None

    def of(self, make: Callable[[], Array]) -> Array:
        """The array that somebody has, or else a new one."""
        found: Array | None = None if self._found is None else self._found()
        if found is None:
            found = make()
            self._found = weakref.ref(found)
        return found


class AtHome:
    """A vector in memory, of any type of number."""

    def __init__(self, x: Any) -> None:
        self.x, self._shared = x, _Shared()

    def write(self, lo: int, part: Array) -> None:
        """Set the entries from lo on."""
        self.x[lo : lo + len(part)] = part

    def read(self, lo: int, hi: int) -> Array:
        """The entries lo..hi, next to each other as double numbers; none of an empty vector."""
        return np.ascontiguousarray(self.x[lo:hi], dtype=np.float64)

    def pick(self, index: Any) -> Array:
        """Some entries, as double numbers."""
        return np.ascontiguousarray(self.x[index], dtype=np.float64)

    def whole(self) -> Array:
        """All entries."""
        return self.x if self.x.dtype == np.float64 else self._shared.of(lambda: self.x.astype(np.float64))


class InScratch:
    """A vector in a file that is gone with it."""

    def __init__(self, n: int) -> None:
        self.n, self.file, self._shared = n, scratch_file(), _Shared()

    def write(self, lo: int, part: Array) -> None:
        """Set the entries from lo on."""
        write_at(self.file, np.asarray(part, dtype=np.float64), 8 * lo)

    def read(self, lo: int, hi: int) -> Array:
        """The entries lo..hi."""
        out = np.empty(hi - lo)
        if read_at(self.file, out, 8 * lo) < out.nbytes:
            raise ended("a scratch file", hi)
        return out

    def pick(self, index: Any) -> Array:
        """Some entries."""
        return np.ascontiguousarray(self.whole()[index])

    def whole(self) -> Array:
        """All entries, mapped into memory for as long as somebody has them; changes are not written."""
        return self._shared.of(lambda: np.asarray(np.memmap(self.file, dtype=np.float64, mode="c", shape=(self.n,))))


def new_vector(n: int) -> Vector:
    """A vector of n entries, to be written."""
    return AtHome(np.empty(n)) if 8 * n <= _HOME else InScratch(n)


def vector_of(x: Any) -> Vector:
    """A given vector; in a scratch file where that takes less memory."""
    if x.nbytes <= _HOME or x.strides == (0,) or x.dtype.itemsize == 1:
        return AtHome(x)
    found = InScratch(len(x))
    step = _HOME // 8
    for lo in range(0, len(x), step):
        found.write(lo, x[lo : lo + step])
    return found


class Kept:
    """A record of vectors over all rows; a field is None where there is no such vector."""

    def __init__(self, record: Any, fields: list[Vector | None]) -> None:
        self.record, self.fields = record, fields

    def of(self, lo: int, hi: int) -> Any:
        """The part of some rows."""
        return self.record(*(None if each is None else each.read(lo, hi) for each in self.fields))

    def fetch(self) -> Any:
        """The vectors, home."""
        return self.record(*(None if each is None else each.whole() for each in self.fields))


class Collector:
    """Puts the vectors together that a visit leaves with the rows, block after block.

    A vector that a visit passes on as it was given, or names twice, is not written again.
    """

    def __init__(self, n: int) -> None:
        self.n, self.own = n, set[int]()
        self.record: Any = None
        self.fields: list[Vector | None] = []

    def take(self, lo: int, vectors: Any, known: dict[int, Vector]) -> None:
        """The vectors of the rows from lo on; ``known`` says which arrays are parts of which vectors."""
        if self.record is None:
            self.record, self.fields = type(vectors), [None] * len(vectors)
        for place, part in enumerate(vectors):
            if part is None:
                continue
            found, same = self.fields[place], known.get(id(part))
            if found is None and same is not None:
                self.fields[place] = same
            elif found is None or (place not in self.own and found is not same):
                self._own(place, lo, found)
            if place in self.own:
                target = self.fields[place]
                assert target is not None
                target.write(lo, part)
                known[id(part)] = target

    def _own(self, place: int, lo: int, before: Vector | None) -> None:
        """A vector of its own for a field, whose first entries were those of another."""
        mine = new_vector(self.n)
        for at in range(0, lo if before is not None else 0, _HOME // 8):
            assert before is not None
            mine.write(at, before.read(at, min(at + _HOME // 8, lo)))
        self.fields[place] = mine
        self.own.add(place)

    def kept(self) -> Kept:
        """The handle of what was collected."""
        return Kept(self.record, self.fields)
