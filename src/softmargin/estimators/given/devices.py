"""X on a device: arrays of CuPy, and tensors of Torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.device import DeviceDense
from softmargin.designs.standardize import Columns
from softmargin.estimators.given.arguments import Given
from softmargin.rows.device.libraries import Library, library_of
from softmargin.rows.device.on_device import OnDevice
from softmargin.rows.elsewhere import Elsewhere, check_beside
from softmargin.rows.stored.tables import joined_blocks

__all__ = ["DeviceMatrix", "Devices"]

_BLOCK = 2**26  # bytes of rows that are predicted at once


class DeviceMatrix(Elsewhere):
    """A matrix on a device."""

    kind = "X on a GPU"

    def __init__(self, library: Library, X: Any) -> None:
        self.library, self.X = library, X

    @classmethod
    def of(cls, library: Library, given: Any) -> DeviceMatrix:
        """What the user gave, without a copy where it is float32 or float64."""
        X = library.take(given)
        if X.ndim != 2:
            raise ValueError(f"X on a GPU must have two dimensions, rows and columns; it has the shape {X.shape}.")
        return cls(library, X)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.X.shape
        return rows, columns

    def design(self, columns: Columns) -> DeviceDense:
        return DeviceDense.standardized(self.library, self.X, columns)

    def rows(self, design: Any, y: Array | None, weight: Array, workers: int) -> Any:
        return OnDevice(self.library, design, y, weight)

    def at(self, index: Any) -> DeviceMatrix:
        return DeviceMatrix(self.library, self.X[self.library.xp.asarray(index)])

    def __getitem__(self, index: Any) -> Array:
        places = np.arange(self.shape[0])[index]
        return np.asarray(self.library.home(self.X[self.library.xp.asarray(places)]), dtype=np.float64)

    def each(self, read: Callable[..., Any], *beside: Any) -> Any:
        """What ``read`` makes of the rows, on the device again where it is numbers."""
        n, p = self.shape
        check_beside(beside, n)
        step = max(1, _BLOCK // (8 * max(p, 1)))
        found = joined_blocks(
            [read(self[lo : lo + step], *(each[lo : lo + step] for each in beside)) for lo in range(0, n, step)]
        )
        return tuple(map(self._back, found)) if isinstance(found, tuple) else self._back(found)

    def _back(self, x: Any) -> Any:
        return self.library.back(self.library.xp.asarray(x)) if x.dtype.kind in "biuf" else x


class Devices:
    """Recognises X on a device."""

    def taken(self, given: Given) -> Given | None:
        """The arguments of a fit, their vectors home."""
        library = library_of(given.X)
        if library is None:
            return None
        return Given(DeviceMatrix.of(library, given.X), *map(_home, given[1:]))

    def column(self, X: Any, name: Any) -> Any:
        """None: columns of devices have no names."""

    def new_rows(self, X: Any, names: list[str] | None, groups: list[str]) -> Any:
        """Rows to predict."""
        library = library_of(X)
        return None if library is None else DeviceMatrix.of(library, X)


def _home(given: Any) -> Any:
    """A vector as one of NumPy."""
    library = library_of(given)
    return given if library is None else library.home(library.take(given))
