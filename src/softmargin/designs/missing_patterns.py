"""Missing entries grouped by pattern, and the small matrices that a pattern's rows share.

A pattern is a set M of missing columns. Under covariates with precision Lambda the missing entries of a row are
``x_M = m0 + F'z`` with ``F'F = Lambda_MM^-1`` and z standard normal, so one factor F serves all rows of a pattern.
Factors and coordinates of different sizes lie one after another in flat arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.compiled import njit

__all__ = ["Patterns", "missing_patterns", "rotate", "to_cells", "to_coordinates", "whiten"]

Index = np.ndarray[Any, np.dtype[np.intp]]
_MOST = 2e8  # numbers in the factors


class Patterns(NamedTuple):
    """Which cells are missing; ``start``, ``block`` and ``cell`` say where a pattern's or row's entries begin."""

    row: Index  # the rows with missing entries, in order
    kind: Index  # their patterns
    cell: Index  # and where their cells begin
    columns: Index  # missing columns of the first pattern, then of the second, ...
    start: Index
    block: Index  # where a pattern's factor begins, row by row

    def repeated(self, values: Array) -> Array:
        """Numbers of the patterns' columns, once for every row of the pattern."""
        first = np.repeat(self.start[self.kind] - self.cell[:-1], np.diff(self.cell))
        return values[first + np.arange(self.cell[-1])]

    def of_cells(self) -> tuple[Index, Index]:
        """Row and column of every missing entry."""
        rows = np.repeat(self.row, np.diff(self.cell))
        return rows, self.repeated(self.columns)  # type: ignore[arg-type, return-value]


def missing_patterns(missing: Any, *, alone: bool = False) -> Patterns:
    """Group the rows of a mask of missing entries; ``alone``, every row is a pattern of its own."""
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
def _whiten(columns: Any, start: Any, block: Any, precision: Any, U: Any, F: Any, log_det: Any) -> None:
    for k in range(len(start) - 1):
        m, first, at = start[k + 1] - start[k], start[k], block[k]
        for i in range(m):
            for j in range(i, m):
                U[i, j] = precision[columns[first + i], columns[first + j]]
        for j in range(m):  # U'U is the precision of the missing entries; inner loops run along rows of memory
            diagonal = math.sqrt(U[j, j])
            for l in range(j, m):
                U[j, l] /= diagonal
            for i in range(j + 1, m):
                factor = U[j, i]
                for l in range(i, m):
                    U[i, l] -= factor * U[j, l]
        for i in range(m):  # the inverse of U', row by row
            row = at + i * m
            F[row + i] = 1.0
            for j in range(i):
                factor = U[j, i]
                for l in range(j + 1):
                    F[row + l] -= factor * F[at + j * m + l]
            for l in range(i + 1):
                F[row + l] /= U[i, i]
            log_det[k] -= math.log(U[i, i])


def whiten(patterns: Patterns, precision: Array) -> tuple[Array, Array]:
    """A factor F with ``F'F`` = covariance of a pattern's missing entries given the others, and ``log|F|``."""
    F, log_det = np.zeros(patterns.block[-1]), np.zeros(len(patterns.start) - 1)
    most = int(np.diff(patterns.start).max(initial=0))
    _whiten(patterns.columns, patterns.start, patterns.block, precision, np.empty((most, most)), F, log_det)
    if not np.isfinite(log_det).all():
        raise np.linalg.LinAlgError("the precision of the covariates is not positive definite")
    return F, log_det


def rotate(patterns: Patterns, F: Array, G: Array) -> tuple[Array, Array]:
    """Factors with ``F G_M G_M' F'`` diagonal, and that diagonal, for G with one row per column of the covariates."""
    F, size = F.copy(), np.zeros(patterns.start[-1])
    sizes = np.diff(patterns.start)
    for m in np.unique(sizes):  # patterns of one size at once
        kinds = np.flatnonzero(sizes == m)
        factor, place = patterns.block[kinds][:, None] + np.arange(m * m), patterns.start[kinds][:, None] + np.arange(m)
        T = F[factor].reshape(-1, m, m)
        B = T @ G[patterns.columns[place]]
        if m == 1:
            size[place] = (B * B).sum(axis=2)
        elif B.shape[2] < m:  # few directions: all others have size zero
            vectors, roots, _ = np.linalg.svd(B, full_matrices=True)
            F[factor] = (vectors.transpose(0, 2, 1) @ T).reshape(-1, m * m)
            size[place[:, : roots.shape[1]]] = roots * roots
        else:
            values, vectors = np.linalg.eigh(B @ B.transpose(0, 2, 1))
            F[factor] = (vectors.transpose(0, 2, 1) @ T).reshape(-1, m * m)
            size[place] = np.maximum(values, 0.0)
    return F, size


@njit(cache=True, nogil=True, error_model="numpy")
def _to_coordinates(kind: Any, cell: Any, columns: Any, start: Any, block: Any, F: Any, R: Any, z: Any) -> None:
    for i in range(len(kind)):
        k = kind[i]
        m = start[k + 1] - start[k]
        for j in range(m):
            total = 0.0
            for l in range(m):
                total += F[block[k] + j * m + l] * R[i, columns[start[k] + l]]
            z[cell[i] + j] = total


def to_coordinates(patterns: Patterns, F: Array, R: Array) -> Array:
    """``F R_M`` for the rows R of the incomplete rows."""
    z, R = np.empty(patterns.cell[-1]), np.ascontiguousarray(R)
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
