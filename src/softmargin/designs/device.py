"""Dense columns on a device: one standardized copy, with products by the device's own matrix routines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.rows.device.algebra import DeviceAlgebra
from softmargin.rows.device.libraries import Library

__all__ = ["DeviceDense"]

_LINE = 8  # columns of the copy are a multiple: rows then begin where matrix routines read fastest
_ROUNDED = 1e-8  # relative rounding of bounds from products in single precision
_SCRATCH = 1 << 30  # bytes of a chunk's products: large enough that one routine fills the device
_PANEL = 256  # columns of a panel of a symmetric or triangular product, of which half of the panels is zero or known


@dataclass(frozen=True, eq=False)
class DeviceDense(Design):
    """Standardized columns ``Z`` in their own precision: ones in front if ``intercept``, and zeros behind.

    Sums over rows and vectors over rows are in double precision; products are made in the precision of the columns, of
    float32 chunk by chunk, with the sum over chunks in double precision.
    """

    library: Library
    Z: Any
    size: int  # columns without the zeros behind them
    intercept: bool = True

    @classmethod
    def standardized(cls, library: Library, X: Any, columns: Any) -> DeviceDense:
        """The columns that a record of shifts and scales makes of an array on the device; as they are, the array."""
        plain = not columns.intercept and len(columns.keep) == X.shape[1]
        if plain and not columns.shift.any() and (columns.scale == 1.0).all():
            return cls(library, library.xp.ascontiguousarray(X), X.shape[1], False)
        xp, lead, n = library.xp, int(columns.intercept), X.shape[0]
        size = lead + len(columns.keep)
        width = -(-(size + 1) // _LINE) * _LINE  # at least one column of zeros, where products have room for a mean
        Z = xp.zeros((n, width), dtype=X.dtype)
        Z[:, :lead] = 1.0
        whole = len(columns.keep) == X.shape[1]
        shift, scale = library.vector(columns.shift), library.vector(columns.scale)
        keep = None if whole else xp.asarray(columns.keep)
        step = max(1, _SCRATCH // (8 * width))
        for lo in range(0, n, step):
            rows = X[lo : lo + step] if keep is None else X[lo : lo + step][:, keep]
            Z[lo : lo + step, lead:size] = (rows - shift) * scale
        return cls(library, Z, size, bool(lead))

    @property
    def algebra(self) -> Any:
        return DeviceAlgebra(self.library)

    @property
    def rounding(self) -> float:  # type: ignore[override]
        return Design.rounding if self.Z.dtype == np.float64 else _ROUNDED

    @property
    def shape(self) -> tuple[int, int]:
        return self.Z.shape[0], self.size

    @property
    def _width(self) -> int:
        return self.Z.shape[1]

    def _chunks(self, lo: int, hi: int | None) -> Iterator[slice]:
        """Runs of rows whose products fit into the scratch memory."""
        hi = self.Z.shape[0] if hi is None else hi
        step = max(1, _SCRATCH // (self.Z.dtype.itemsize * self._width))
        for start in range(lo, hi, step):
            yield slice(start, min(start + step, hi))

    def _sent(self, betas: Array) -> Any:
        """Coefficients (..., columns) on the device, with zeros behind them."""
        out = np.zeros((*betas.shape[:-1], self._width), dtype=self.Z.dtype)
        out[..., : self.size] = betas
        return self.library.take(out)

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Any:
        return (self.Z[lo:hi] @ self._sent(beta)).astype(np.float64, copy=False)

    def matvecs(self, betas: Array) -> Any:
        """``X beta`` of several vectors of coefficients, which are the rows of a matrix."""
        return (self._sent(betas) @ self.Z.T).astype(np.float64, copy=False)

    def rmatvec(self, b: Any, lo: int = 0, hi: int | None = None) -> Array:
        return self.rmatvecs(b[None], lo, hi)[0]

    def rmatvecs(self, rows: Any, lo: int = 0, hi: int | None = None) -> Array:
        """``X' b`` of several vectors b, which are the rows of a matrix, home."""
        total = self.library.xp.zeros((len(rows), self._width))
        rows = rows.astype(self.Z.dtype, copy=False)
        for at in self._chunks(lo, hi):
            total += rows[:, at.start - lo : at.stop - lo] @ self.Z[at]
        return self._fetched(total)

    def _fetched(self, sums: Any) -> Array:
        """Sums over rows, one per column, home."""
        return np.array(self.library.home(sums))[..., : self.size]

    def _panels(self) -> list[slice]:
        return [slice(at, min(at + _PANEL, self._width)) for at in range(0, self._width, _PANEL)]

    def gram(self, w: Any, b: Any, lo: int = 0, hi: int | None = None) -> tuple[Any, Array]:
        """``X' diag(w) X``, which stays on the device, and ``X' b``; panels above the diagonal are those below it."""
        narrow = self.library.narrow(self.Z)
        if narrow is not None:
            A, c = narrow.gram(self.Z[lo:hi], w, b)
            return self.library.xp.ascontiguousarray(A[: self.size, : self.size]), self._fetched(c)
        xp, panels, width = self.library.xp, self._panels(), self._width
        total, part = xp.zeros((width, width)), xp.zeros((width, width), dtype=self.Z.dtype)
        w = w.astype(self.Z.dtype, copy=False)
        for at in self._chunks(lo, hi):
            rows = self.Z[at]
            weighted = rows * w[at.start - lo : at.stop - lo, None]
            for panel in panels:  # rows of the result, with all columns up to the diagonal
                self.library.product(
                    weighted[:, panel], rows[:, : panel.stop], part[panel, : panel.stop], transposed=True
                )
            total += part
        for panel in panels[1:]:
            total[: panel.start, panel] = total[panel, : panel.start].T
        A = xp.ascontiguousarray(total[: self.size, : self.size])
        return A, np.zeros(self.size) if b is None else self.rmatvec(b, lo, hi)

    def row_quad(self, root: Any, lo: int = 0, hi: int | None = None) -> Any:
        return self.moments(np.zeros(self.size), root, lo, hi)[1]

    def moments(self, mean: Array, root: Any, lo: int = 0, hi: int | None = None) -> tuple[Any, Any]:
        """``mean'x_i`` and ``|root'x_i|^2`` of the rows lo..hi: one product for both."""
        xp, root = self.library.xp, self.library.take(root)
        hi = self.Z.shape[0] if hi is None else hi
        width = -(-(root.shape[1] + 1) // _LINE) * _LINE
        both = xp.zeros((self._width, width), dtype=self.Z.dtype)
        both[: self.size, : root.shape[1]] = root
        last = width - 1
        both[: self.size, last] = self.library.vector(mean)
        triangular = root.shape[0] == root.shape[1] and not bool(xp.tril(root, -1).any())
        narrow = self.library.narrow(self.Z) if width == self._width else None
        if narrow is not None:
            return narrow.moments(self.Z[lo:hi], both, triangular)
        f, v = xp.empty(hi - lo), xp.empty(hi - lo)
        out: Any = None
        for at in self._chunks(lo, hi):
            rows, here = self.Z[at], slice(at.start - lo, at.stop - lo)
            if out is None or len(out) != len(rows):
                out = xp.empty((len(rows), width), dtype=self.Z.dtype)
            for start in range(0, width, _PANEL):
                stop = min(start + _PANEL, width)
                seen = stop if triangular and stop < width else self._width  # an upper triangular root ends there
                self.library.product(rows[:, :seen], both[:seen, start:stop], out[:, start:stop])
            f[here] = out[:, last]
            v[here] = self.library.square_sums(out[:, : root.shape[1]])
        return f, v

    def column_ends(self, share: Any, lo: int = 0, hi: int | None = None) -> tuple[Array, Array, Array]:
        ends = (self.library.home(end).astype(np.float64) for end in (self.Z.max(axis=0), self.Z.min(axis=0)))
        high, low = ends
        total = self.library.xp.zeros(self._width)
        for at in self._chunks(0, None):
            total += share[at] @ self.Z[at].astype(np.float64, copy=False)
        return high, low, np.array(self.library.home(total))

    def column_squares(self, share: Any, unit: Array, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        xp, sent = self.library.xp, [self.library.vector(each) for each in (unit, mean)]
        total = xp.zeros(self._width)
        for at in self._chunks(0, None):
            off = self.Z[at] / sent[0]
            off -= sent[1]
            off *= off
            total += share[at] @ off
        return np.array(self.library.home(total))

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Predictors for several columns of slopes, home: those who ask for so many have few rows at a time."""
        lead = int(self.intercept)
        sent = np.zeros((self._width, coefficients.shape[1]), dtype=self.Z.dtype)
        sent[lead : self.size] = coefficients
        return np.array(self.library.home(self.Z[lo:hi] @ self.library.take(sent)), dtype=np.float64)

    def single(self) -> DeviceDense:
        """The same: products in single precision save no time on a device."""
        return self

    def rows(self, index: Any) -> Array:
        """The given rows, home."""
        places = np.arange(self.Z.shape[0])[index]
        found = self.library.home(self.Z[self.library.xp.asarray(places)])
        return np.ascontiguousarray(found[:, : self.size], dtype=np.float64)

    def pick(self, index: Any) -> Dense:
        """The same columns of some of the rows, home."""
        return Dense.plain(np.ascontiguousarray(self.rows(index)[:, int(self.intercept) :]), intercept=self.intercept)
