"""A dense matrix with shifted and scaled columns, never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit

from softmargin.designs.base import Array

__all__ = ["Dense"]

_SLAB = 65536  # numbers in a slab: half a megabyte, which stays in the second-level cache


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(X: Any, shift: Any, scale: Any, lead: int, lo: int, hi: int, out: Any) -> None:
    """Write the standardized rows lo..hi, with ``lead`` columns of ones in front."""
    p = X.shape[1]
    for i in range(lo, hi):
        row = out[i - lo]
        for j in range(lead):
            row[j] = 1.0
        for j in range(p):
            row[lead + j] = (X[i, j] - shift[j]) * scale[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_weighted(
    X: Any, shift: Any, scale: Any, lead: int, lo: int, hi: int, w: Any, b: Any, out: Any, c: Any
) -> None:
    """Write the standardized rows times sqrt(w) and add their ``X' b`` to ``c``."""
    p = X.shape[1]
    for i in range(lo, hi):
        root = np.sqrt(w[i - lo])
        bi = b[i - lo]
        row = out[i - lo]
        for j in range(lead):
            row[j] = root
            c[j] += bi
        for j in range(p):
            value = (X[i, j] - shift[j]) * scale[j]
            c[lead + j] += bi * value
            row[lead + j] = value * root


@dataclass(frozen=True, eq=False)
class Dense:
    """Columns ``(X_j - shift_j) * scale_j`` of a dense matrix, ones in front if ``intercept``."""

    X: Array
    shift: Array
    scale: Array
    intercept: bool = True

    @classmethod
    def plain(cls, X: Array, *, intercept: bool = False) -> Dense:
        """The columns as they are."""
        p = X.shape[1]
        return cls(X, np.zeros(p), np.ones(p), intercept)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1] + self.intercept

    def _range(self, lo: int, hi: int | None) -> tuple[int, int]:
        return lo, self.X.shape[0] if hi is None else hi

    def _standardized(self, lo: int, hi: int) -> Array:
        out = np.empty((hi - lo, self.shape[1]))
        _fill(self.X, self.shift, self.scale, int(self.intercept), lo, hi, out)
        return out

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        slopes = beta[int(self.intercept) :] * self.scale
        f: Array = self.X[lo:hi] @ slopes
        f += (beta[0] if self.intercept else 0.0) - self.shift @ slopes
        return f

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        total = b.sum()
        slopes = (self.X[lo:hi].T @ b - self.shift * total) * self.scale
        return np.concatenate(([total], slopes)) if self.intercept else slopes

    def _slabs(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows whose standardized copy stays in the cache."""
        size = max(16, _SLAB // max(self.shape[1], 1))
        for start in range(lo, hi, size):
            yield start, min(start + size, hi)

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        lo, hi = self._range(lo, hi)
        q = self.shape[1]
        A, c = np.zeros((q, q)), np.zeros(q)
        for start, stop in self._slabs(lo, hi):
            buffer = np.empty((stop - start, q))
            at = slice(start - lo, stop - lo)
            _fill_weighted(self.X, self.shift, self.scale, int(self.intercept), start, stop, w[at], b[at], buffer, c)
            A += buffer.T @ buffer  # one buffer on both sides: NumPy calls dsyrk
        return A, c

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        out = np.empty(hi - lo)
        for start, stop in self._slabs(lo, hi):
            product = self._standardized(start, stop) @ root
            np.einsum("ij,ij->i", product, product, out=out[start - lo : stop - lo])
        return out

    def _slopes(self, lo: int = 0, hi: int | None = None) -> Array:
        return self._standardized(*self._range(lo, hi))[:, int(self.intercept) :]

    def outer(self) -> Array:
        rows = self._slopes()
        return rows @ rows.T

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._slopes(lo, hi) @ coefficients

    def rmatmat(self, rows: Array) -> Array:
        return self._slopes().T @ rows

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        rows = self._slopes(lo, hi)
        return np.einsum("ij,ij->i", rows, rows)

    def scaled(self, factor: Array) -> Dense:
        return replace(self, scale=self.scale * factor)

    def take(self, columns: Any) -> Dense:
        return Dense(np.ascontiguousarray(self.X[:, columns]), self.shift[columns], self.scale[columns], self.intercept)

    def rows(self, index: Any) -> Array:
        taken = Dense(np.ascontiguousarray(self.X[index]), self.shift, self.scale, self.intercept)
        return taken._standardized(0, len(taken.X))
