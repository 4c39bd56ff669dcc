"""A CSR matrix with shifted and scaled columns; the shift is carried as a rank-one correction, never filled in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.rows.compiled import njit

__all__ = ["Implicit", "Sparse"]

_SPARSE = 0.1  # share of stored entries from which a copy without zeros left out is multiplied sooner


@njit(cache=True, nogil=True, error_model="numpy")
def _gram(data: Any, indices: Any, indptr: Any, lo: int, hi: int, w: Any, b: Any, A: Any, c: Any, xw: Any) -> None:
    """Upper triangle of X'diag(w)X, X'b and X'w over the rows lo..hi of a CSR matrix with sorted indices.

    Here as below, places without a sign spare the test for negative ones, which costs more than the sum.
    """
    for i in range(lo, hi):
        wi, bi = w[i - lo], b[i - lo]
        first, last = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        if wi == 0.0:
            if bi != 0.0:
                for s in range(first, last):
                    c[np.uint64(indices[s])] += bi * data[s]
            continue
        for s in range(first, last):
            j = np.uint64(indices[s])
            left = wi * data[s]
            c[j] += bi * data[s]
            xw[j] += left
            row = A[j]
            for t in range(s, last):
                row[np.uint64(indices[t])] += left * data[t]


@njit(cache=True, nogil=True, error_model="numpy")
def _centred(raw: Any, xw: Any, total: float, shift: Any, scale: Any, A: Any) -> None:
    """The Gram matrix of shifted and scaled columns, both triangles, from the upper one of the stored entries."""
    for j in range(len(shift)):
        for k in range(j, len(shift)):
            value = raw[j, k] + total * shift[j] * shift[k] - shift[j] * xw[k] - xw[j] * shift[k]
            A[j, k] = A[k, j] = value * scale[j] * scale[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _times(data: Any, indices: Any, indptr: Any, lo: int, hi: int, slopes: Any, out: Any) -> None:
    """Products of the rows lo..hi with ``slopes``, added to ``out``; a slice of the matrix would copy its entries."""
    for i in range(lo, hi):
        total = 0.0
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[s] * slopes[np.uint64(indices[s])]
        out[i - lo] += total


@njit(cache=True, nogil=True, error_model="numpy")
def _summed(data: Any, indices: Any, indptr: Any, lo: int, hi: int, b: Any, out: Any) -> None:
    """Sum of the rows lo..hi times ``b``, added to ``out``."""
    for i in range(lo, hi):
        bi = b[i - lo]
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[np.uint64(indices[s])] += bi * data[s]


@njit(cache=True, nogil=True, error_model="numpy")
def _quad(data: Any, indices: Any, indptr: Any, lo: int, hi: int, root: Any, base: Any, out: Any) -> None:
    """Squared length of ``base + sum_j x_ij root_j`` for the rows lo..hi."""
    q = root.shape[1]
    work = np.empty(q)
    for i in range(lo, hi):
        work[:] = base
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            x = data[s]
            row = root[np.uint64(indices[s])]
            for k in range(q):
                work[k] += x * row[k]
        total = 0.0
        for k in range(q):
            total += work[k] * work[k]
        out[i - lo] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _squared(data: Any, indices: Any, indptr: Any, lo: int, hi: int, square: Any, linear: Any, out: Any) -> None:
    """Sums of ``x_ij (x_ij square_j + linear_j)`` of the rows lo..hi, added to ``out``."""
    for i in range(lo, hi):
        total = 0.0
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[s])
            total += data[s] * (data[s] * square[j] + linear[j])
        out[i - lo] += total


@njit(cache=True, nogil=True, error_model="numpy")
def _stretched(data: Any, indices: Any, indptr: Any, factor: Any, scale: Any, out: Any) -> None:
    """Entries times the factor of their row and the scale of their column."""
    for i in range(len(factor)):
        for s in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            out[s] = factor[i] * data[s] * scale[np.uint64(indices[s])]


@dataclass(frozen=True, eq=False)
class Sparse(Design):
    """Columns ``(X_j - shift_j) * scale_j`` of a CSR matrix, ones in front if ``intercept``."""

    X: Any
    shift: Array
    scale: Array
    intercept: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1] + self.intercept

    def _range(self, lo: int, hi: int | None) -> tuple[int, int]:
        return lo, self.X.shape[0] if hi is None else hi

    def _part(self, lo: int, hi: int) -> Any:
        """The rows lo..hi; all of them without a copy."""
        return self.X if hi - lo == self.X.shape[0] else self.X[lo:hi]

    @cached_property
    def _turned(self) -> Any:
        """The transpose, which shares the numbers but takes longer to set up than a product takes."""
        return self.X.T

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        slopes = beta[int(self.intercept) :] * self.scale
        f = np.full(hi - lo, (beta[0] if self.intercept else 0.0) - self.shift @ slopes)
        _times(self.X.data, self.X.indices, self.X.indptr, lo, hi, slopes, f)
        return f

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        total = b.sum()
        slopes = -self.shift * total
        _summed(self.X.data, self.X.indices, self.X.indptr, lo, hi, b, slopes)
        slopes *= self.scale
        return np.concatenate(([total], slopes)) if self.intercept else slopes

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        lo, hi = self._range(lo, hi)
        p, lead = self.X.shape[1], int(self.intercept)
        raw, xb, xw = np.zeros((p, p)), np.zeros(p), np.zeros(p)
        _gram(self.X.data, self.X.indices, self.X.indptr, lo, hi, w, b, raw, xb, xw)
        total_w, total_b = w.sum(), b.sum()
        A, c = np.empty((p + lead, p + lead)), np.empty(p + lead)
        _centred(raw, xw, total_w, self.shift, self.scale, A[lead:, lead:])
        c[lead:] = (xb - self.shift * total_b) * self.scale
        if lead:
            A[0, 0], c[0] = total_w, total_b
            A[0, 1:] = A[1:, 0] = (xw - self.shift * total_w) * self.scale
        return A, c

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        lead = int(self.intercept)
        scaled = np.ascontiguousarray(root[lead:] * self.scale[:, None])
        base = root[:lead].sum(axis=0) - self.shift @ scaled
        out = np.empty(hi - lo)
        _quad(self.X.data, self.X.indices, self.X.indptr, lo, hi, scaled, base, out)
        return out

    def outer(self) -> Array:
        scaled = self.X.multiply(self.scale[None, :]).tocsr()
        mean = self.shift * self.scale
        cross = np.asarray(scaled @ mean)
        product: Array = (scaled @ scaled.T).toarray()
        product += mean @ mean - cross[:, None] - cross[None, :]
        return product

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        slopes = coefficients * self.scale[:, None]
        return np.asarray(self._part(lo, hi) @ slopes) - self.shift @ slopes

    def rmatmat(self, rows: Array) -> Array:
        return (np.asarray(self._turned @ rows) - np.outer(self.shift, rows.sum(axis=0))) * self.scale[:, None]

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        square = self.scale**2
        # |x - m|^2 = |x|^2 - 2 x'm + |m|^2 in the metric of the scales
        plain = np.full(hi - lo, square @ self.shift**2)
        _squared(self.X.data, self.X.indices, self.X.indptr, lo, hi, square, -2.0 * square * self.shift, plain)
        return np.maximum(plain, 0.0)

    def scaled(self, factor: Array) -> Sparse:
        return replace(self, scale=self.scale * factor)

    def take(self, columns: Any) -> Sparse:
        return Sparse(self.X[:, columns], self.shift[columns], self.scale[columns], self.intercept)

    def pick(self, index: Any) -> Sparse:
        return replace(self, X=self.X[index])

    def implicit(self) -> Implicit:
        return Implicit(self.X, self.shift, self.scale, self.intercept)

    def joined(self, index: Any, others: Array) -> Sparse | None:
        """The rows ``index`` above ``others``, which are as ``rows`` gives them; None where few entries are zero."""
        stored = np.diff(self.X.indptr)[index].sum()
        if stored > _SPARSE * len(index) * self.X.shape[1]:
            return None
        some = self.X[index]
        raw = others[:, int(self.intercept) :] / self.scale + self.shift
        return replace(self, X=sp.vstack((some, sp.csr_matrix(raw)), format="csr"))

    def rows(self, index: Any) -> Array:
        slopes = (self.X[index].toarray() - self.shift) * self.scale
        return np.column_stack([np.ones(len(slopes)), slopes]) if self.intercept else slopes


@dataclass(frozen=True, eq=False)
class Implicit(Sparse):
    """The same columns for a solver that works by products alone: ``gram`` keeps the row weights as they are."""

    whole: bool = field(default=True, init=False)  # nothing to sum over cells

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        return w, self.rmatvec(b, lo, hi)

    def entries(self, factor: Array) -> tuple[Array, Array]:
        """The stored entries of scaled columns, rows times ``factor``; and what is to be taken off each column."""
        out = np.empty_like(self.X.data)
        _stretched(self.X.data, self.X.indices, self.X.indptr, factor, self.scale, out)
        return out, self.shift * self.scale
