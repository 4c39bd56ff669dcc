"""Missing cells grouped by pattern, and the small matrices that a pattern's rows share.

A pattern is a set M of missing columns. Under covariates with precision Lambda the missing cells of a row are
``x_M = m0 + F'z`` with ``F'F = Lambda_MM^-1`` and z standard normal, so one factor F serves all rows of a pattern.
Factors and coordinates of different sizes lie one after another in flat arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.compiled import njit

__all__ = ["Patterns", "missing_patterns", "rotate", "to_cells", "to_coordinates", "whiten"]

Index = np.ndarray[Any, np.dtype[np.intp]]
_MOST = 2e8  # numbers in the factors


class Patterns(NamedTuple):
    """Which cells are missing; ``start``, ``block`` and ``cell`` say where a pattern's or row's entries begin."""

    row: Index  # the rows with missing cells, in order
    kind: Index  # their patterns
    cell: Index  # and where their cells begin
    columns: Index  # missing columns of the first pattern, then of the second, ...
    start: Index
    block: Index  # where a pattern's factor begins, row by row

    def repeated(self, values: Array) -> Array:
        """Numbers of the patterns' columns, once for every row of the pattern."""
        out: Array = np.empty(self.cell[-1], dtype=values.dtype)
        _repeat(self.kind, self.cell, self.start, values, out)
        return out

    def of_cells(self) -> tuple[Index, Index]:
        """Row and column of every missing cell."""
        rows = np.repeat(self.row, np.diff(self.cell))
        return rows, self.repeated(self.columns)  # type: ignore[arg-type, return-value]


def missing_patterns(missing: Any, *, alone: bool = False) -> Patterns:
    """Group the rows of a mask of missing cells; ``alone``, every row is a pattern of its own."""
    row = np.flatnonzero(missing.any(axis=1))
    masks, kind = np.unique(missing[row], axis=0, return_inverse=True)
    if alone:
        masks, kind = missing[row], np.arange(len(row))
    sizes = masks.sum(axis=1)
    if float((sizes.astype(float) ** 2).sum()) > _MOST:
        raise ValueError(
            f"{len(sizes)} patterns of up to {sizes.max()} missing columns are too many to treat jointly; "
            "drop the columns with most missing values or impute them before the fit."
        )
    kind = kind.ravel()
    return Patterns(row, kind, _begin(sizes[kind]), np.nonzero(masks)[1], _begin(sizes), _begin(sizes**2))


def _begin(sizes: Any) -> Index:
    """Where each of several runs begins."""
    return np.concatenate((np.zeros(1, dtype=np.intp), np.cumsum(sizes, dtype=np.intp)))


@njit(cache=True, nogil=True, error_model="numpy")
def _repeat(kind: Any, cell: Any, start: Any, values: Any, out: Any) -> None:
    for i in range(len(kind)):
        for j in range(cell[i + 1] - cell[i]):
            out[cell[i] + j] = values[start[kind[i]] + j]


@njit(cache=True, nogil=True, error_model="numpy")
def _whiten(columns: Any, start: Any, block: Any, precision: Any, F: Any, log_det: Any) -> None:
    for k in range(len(start) - 1):
        M = columns[start[k] : start[k + 1]]
        m = len(M)
        U = np.empty((m, m))
        for i in range(m):
            for j in range(i, m):
                U[i, j] = precision[M[i], M[j]]
        for j in range(m):  # U'U is the precision of the missing cells; inner loops run along rows of memory
            diagonal = np.sqrt(U[j, j])
            for l in range(j, m):
                U[j, l] /= diagonal
            for i in range(j + 1, m):
                factor = U[j, i]
                for l in range(i, m):
                    U[i, l] -= factor * U[j, l]
        T = F[block[k] : block[k + 1]].reshape((m, m))
        for i in range(m):  # the inverse of U', row by row
            T[i, i] = 1.0
            for j in range(i):
                factor = U[j, i]
                for l in range(j + 1):
                    T[i, l] -= factor * T[j, l]
            for l in range(i + 1):
                T[i, l] /= U[i, i]
            log_det[k] -= np.log(U[i, i])


def whiten(patterns: Patterns, precision: Array) -> tuple[Array, Array]:
    """A factor F with ``F'F`` = covariance of the missing cells given the others, and ``log|F|``, of every pattern."""
    F, log_det = np.zeros(patterns.block[-1]), np.zeros(len(patterns.start) - 1)
    _whiten(patterns.columns, patterns.start, patterns.block, precision, F, log_det)
    if not np.isfinite(log_det).all():
        raise np.linalg.LinAlgError("the precision of the covariates is not positive definite")
    return F, log_det


@njit(cache=True, nogil=True, error_model="numpy")
def _rotate(columns: Any, start: Any, block: Any, G: Any, F: Any, size: Any) -> None:
    for k in range(len(start) - 1):
        M = columns[start[k] : start[k + 1]]
        m = len(M)
        T = F[block[k] : block[k + 1]].reshape((m, m))
        B = T @ G[M]
        if m == 1:
            size[start[k]] = (B * B).sum()
        elif B.shape[1] < m:  # few directions: all others have size zero
            vectors, roots, _ = np.linalg.svd(B, full_matrices=True)
            T[:] = vectors.T @ T
            size[start[k] : start[k] + len(roots)] = roots * roots
        else:
            values, vectors = np.linalg.eigh(B @ B.T)
            T[:] = vectors.T @ T
            size[start[k] : start[k + 1]] = np.maximum(values, 0.0)


def rotate(patterns: Patterns, F: Array, G: Array) -> tuple[Array, Array]:
    """Factors with ``F G_M G_M' F'`` diagonal, and that diagonal, for G with one row per column of the covariates."""
    F, size = F.copy(), np.zeros(patterns.start[-1])
    _rotate(patterns.columns, patterns.start, patterns.block, np.ascontiguousarray(G), F, size)
    return F, size


@njit(cache=True, nogil=True, error_model="numpy")
def _to_coordinates(kind: Any, cell: Any, columns: Any, start: Any, block: Any, F: Any, R: Any, z: Any) -> None:
    for i in range(len(kind)):
        k = kind[i]
        M = columns[start[k] : start[k + 1]]
        m = len(M)
        for j in range(m):
            total = 0.0
            for l in range(m):
                total += F[block[k] + j * m + l] * R[i, M[l]]
            z[cell[i] + j] = total


def to_coordinates(patterns: Patterns, F: Array, R: Array) -> Array:
    """``F R_M`` for the rows R of the incomplete rows."""
    z = np.empty(patterns.cell[-1])
    _to_coordinates(patterns.kind, patterns.cell, patterns.columns, patterns.start, patterns.block, F, R, z)
    return z


@njit(cache=True, nogil=True, error_model="numpy")
def _to_cells(kind: Any, cell: Any, start: Any, block: Any, F: Any, z: Any, out: Any) -> None:
    for i in range(len(kind)):
        k = kind[i]
        m = start[k + 1] - start[k]
        for l in range(m):
            total = 0.0
            for j in range(m):
                total += F[block[k] + j * m + l] * z[cell[i] + j]
            out[cell[i] + l] = total


def to_cells(patterns: Patterns, F: Array, z: Array) -> Array:
    """``F'z`` of every incomplete row, cell by cell."""
    out = np.empty(patterns.cell[-1])
    _to_cells(patterns.kind, patterns.cell, patterns.start, patterns.block, F, z, out)
    return out
