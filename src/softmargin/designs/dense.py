"""A dense matrix with shifted and scaled columns, never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs._blas import times_triangle
from softmargin.rows.compiled import njit

__all__ = ["Dense"]

_TRIANGLE = 24  # columns from which skipping the zeros of a triangular matrix pays
_MOST = 2048  # rows of a chunk, at most, where there are many columns
_CHUNK = 65536  # numbers in a chunk: half a megabyte, which stays in the second-level cache


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
def _fill_picked(X: Any, shift: Any, scale: Any, lead: int, index: Any, out: Any) -> None:
    """Write the standardized rows ``index``."""
    for k in range(len(index)):
        i = index[k]
        for j in range(lead):
            out[k, j] = 1.0
        for j in range(X.shape[1]):
            out[k, lead + j] = (X[i, j] - shift[j]) * scale[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_weighted(
    X: Any, shift: Any, scale: Any, lead: int, lo: int, hi: int, first: int, w: Any, out: Any
) -> tuple[int, int]:
    """Write standardized rows times sqrt(w) until ``out`` is full; rows of weight zero take no place.

    Returns the next row, and how many were written.
    """
    k = 0
    for i in range(lo, hi):
        wi = w[i - first]
        if wi == 0.0:
            continue
        if k == len(out):
            return i, k
        root = np.sqrt(wi)
        for j in range(lead):
            out[k, j] = root
        x, row = X[i], out[k, lead:]  # slices: their places need no look at signs, and the loop vectorises
        for j in range(len(x)):
            row[j] = (x[j] - shift[j]) * (scale[j] * root)
        k += 1
    return hi, k


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _square_sums(rows: Any, out: Any) -> None:
    for i in range(len(rows)):
        row, total = rows[i], 0.0
        for j in range(len(row)):
            total += row[j] * row[j]
        out[i] = total


@njit(cache=True, nogil=True)
def _upper_triangular(root: Any) -> bool:
    for i in range(1, root.shape[0]):
        for j in range(min(i, root.shape[1])):
            if root[i, j] != 0.0:
                return False
    return root.shape[0] == root.shape[1]


@dataclass(frozen=True, eq=False)
class Dense(Design):
    """Columns ``(X_j - shift_j) * scale_j`` of a dense matrix, ones in front if ``intercept``."""

    X: Array
    shift: Array
    scale: Array
    intercept: bool = True
    accuracy: str = "float64"  # of the products inside a Gram matrix

    @classmethod
    def plain(cls, X: Array, *, intercept: bool = False) -> Dense:
        """The columns as they are."""
        p = X.shape[1]
        return cls(X, np.zeros(p), np.ones(p), intercept)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1] + self.intercept

    def values(self, lo: int = 0, hi: int | None = None) -> Array:
        return self.X[lo:hi]

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

    @property
    def _chunk(self) -> int:
        """Rows whose standardized copy stays in the cache, and as many as columns: less would be spent on adding up."""
        q = max(self.shape[1], 1)
        return max(16, _CHUNK // q, min(q, _MOST))

    def _chunks(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        for start in range(lo, hi, self._chunk):
            yield start, min(start + self._chunk, hi)

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        lo, hi = self._range(lo, hi)
        q = self.shape[1]
        A = np.zeros((q, q))
        buffer = np.empty((min(hi - lo, self._chunk), q), dtype=self.accuracy)
        at = lo
        while at < hi:
            at, used = _fill_weighted(self.X, self.shift, self.scale, int(self.intercept), at, hi, lo, w, buffer)
            if used:
                rows = buffer[:used]
                A += rows.T @ rows  # one array on both sides: NumPy calls syrk
        return A, self.rmatvec(b, lo, hi) if np.count_nonzero(b) else np.zeros(q)

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.moments(np.zeros(len(root)), root, lo, hi)[1]

    def moments(self, mean: Array, root: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        """``mean'x_i`` and ``|root'x_i|^2`` of the rows lo..hi, in one pass."""
        lo, hi = self._range(lo, hi)
        f, v = np.empty((2, hi - lo))
        times = times_triangle if len(root) >= _TRIANGLE and _upper_triangular(root) else np.matmul
        root = np.ascontiguousarray(root, dtype=float)
        for start, stop in self._chunks(lo, hi):
            rows, at = self._standardized(start, stop), slice(start - lo, stop - lo)
            np.dot(rows, mean, out=f[at])
            _square_sums(times(rows, root), v[at])
        return f, v

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
        lo, hi = self._range(lo, hi)
        out = np.empty(hi - lo)
        for start, stop in self._chunks(lo, hi):
            _square_sums(self._slopes(start, stop), out[start - lo : stop - lo])
        return out

    def scaled(self, factor: Array) -> Dense:
        return replace(self, scale=self.scale * factor)

    def single(self) -> Dense:
        """The same with Gram matrices in single precision, at half the cost: good enough for a direction to go."""
        return replace(self, accuracy="float32")

    def take(self, columns: Any) -> Dense:
        return Dense(np.ascontiguousarray(self.X[:, columns]), self.shift[columns], self.scale[columns], self.intercept)

    def pick(self, index: Any) -> Dense:
        """The same columns of other rows."""
        return replace(self, X=np.ascontiguousarray(self.X[index]))

    def rows(self, index: Any) -> Array:
        places = np.arange(self.X.shape[0])[index]
        out = np.empty((len(places), self.shape[1]))
        _fill_picked(self.X, self.shift, self.scale, int(self.intercept), places, out)
        return out
