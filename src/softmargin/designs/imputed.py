"""Rows with missing entries that have a normal density of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.designs.missing_patterns import Index, Patterns, missing_patterns, to_cells, to_coordinates, whiten
from softmargin.designs.standardize import Columns, standardize
from softmargin.rows.compiled import njit

__all__ = ["Cells", "Imputed", "given_observed", "predicted", "standardize_observed"]


@njit(cache=True, nogil=True, error_model="numpy")
def _totals(kind: Any, cell: Any, start: Any, s: Any, first: int, w: Any, total: Any) -> None:
    """Add ``sum_i w_i s_i`` of the incomplete rows from ``first`` on, one number per column of every pattern."""
    for i in range(len(w)):
        k = kind[first + i]
        for j in range(start[k + 1] - start[k]):
            total[start[k] + j] += w[i] * s[cell[first + i] + j]


@njit(cache=True, nogil=True, error_model="numpy")
def _weighted(columns: Any, start: Any, block: Any, F: Any, total: Any, lead: int, A: Any, room: Any) -> None:
    """Add ``F'diag(total)F`` of every pattern; ``room`` is that for one of them."""
    for k in range(len(start) - 1):
        m, met = start[k + 1] - start[k], False
        for j in range(m):
            met = met or total[start[k] + j] != 0.0
        if not met:
            continue
        for a in range(m):
            for b in range(a, m):
                room[a, b] = 0.0
        for j in range(m):
            row = block[k] + j * m
            for a in range(m):
                part = total[start[k] + j] * F[row + a]
                if part != 0.0:
                    for b in range(a, m):  # along rows of memory
                        room[a, b] += part * F[row + b]
        for a in range(m):
            at = lead + columns[start[k] + a]
            A[at, at] += room[a, a]
            for b in range(a + 1, m):
                beside = lead + columns[start[k] + b]
                A[at, beside] += room[a, b]
                A[beside, at] += room[a, b]


@njit(cache=True, nogil=True, error_model="numpy")
def _weighted_slope(columns: Any, start: Any, block: Any, F: Any, total: Any, lead: int, mean: Any, out: Any) -> None:
    """Add ``F'diag(total)F mean`` of every pattern."""
    for k in range(len(start) - 1):
        m = start[k + 1] - start[k]
        for j in range(m):
            row, image = block[k] + j * m, 0.0
            if total[start[k] + j] != 0.0:
                for l in range(m):
                    image += F[row + l] * mean[lead + columns[start[k] + l]]
                image *= total[start[k] + j]
                for l in range(m):
                    out[lead + columns[start[k] + l]] += image * F[row + l]


@njit(cache=True, nogil=True, error_model="numpy")
def _spread(
    kind: Any, cell: Any, columns: Any, start: Any, block: Any, F: Any, s: Any, first: int, root: Any, out: Any,
    length: Any, image: Any,
) -> None:  # fmt: skip
    """``tr(S_i root root')`` of the incomplete rows from ``first`` on.

    ``length`` is room for one number per column of every pattern, all -1, and ``image`` for a row of ``root``.
    """
    for i in range(len(out)):
        k = kind[first + i]
        m = start[k + 1] - start[k]
        if length[start[k]] < 0.0:
            for j in range(m):
                for c in range(len(image)):
                    image[c] = 0.0
                for l in range(m):
                    factor, at = F[block[k] + j * m + l], columns[start[k] + l]
                    for c in range(len(image)):
                        image[c] += factor * root[at, c]
                square = 0.0
                for c in range(len(image)):
                    square += image[c] * image[c]
                length[start[k] + j] = square
        total = 0.0
        for j in range(m):
            total += s[cell[first + i] + j] * length[start[k] + j]
        out[i] = total


class Cells(NamedTuple):
    """The missing entries of a matrix with their means and standard deviations."""

    row: Index
    column: Index
    mean: Array
    sd: Array

    def to_user(self, columns: Columns) -> Cells:
        """The same in the user's columns and units."""
        scale = columns.scale[self.column]
        mean = self.mean / scale + columns.shift[self.column]
        return Cells(self.row, columns.keep[self.column], mean, self.sd / scale)


@dataclass(frozen=True, eq=False)
class Imputed(Design):
    """Rows ``x_i ~ N(mean_i, S_i)`` with S_i zero outside the missing entries, and there ``F'diag(s_i)F``.

    Its products are averages over the rows: ``gram`` is ``sum_i w_i E x_i x_i'``, and the variance of a predictor
    ``x_i'beta`` with beta of mean ``m`` and covariance ``R R'`` is ``row_quad(R) + excess(m)``.
    """

    dense: Dense  # the means
    patterns: Patterns
    F: Array
    s: Array  # one number per missing entry
    log_det: Array  # log |F| of every pattern
    known: int = 0  # columns behind the covariates, which are never missing
    law: Any = None  # the covariates' mean and precision, by which a row is completed without its response

    @property
    def covariates(self) -> Array:
        """The columns that have a joint density."""
        return self.dense.X[:, : self.dense.X.shape[1] - self.known]

    def beside(self, Z: Array) -> Imputed:
        """The same with known columns behind the covariates."""
        dense = Dense.plain(np.column_stack((self.covariates, Z)), intercept=self.intercept)
        return replace(self, dense=dense, known=Z.shape[1])

    @property
    def intercept(self) -> bool:
        return self.dense.intercept

    @property
    def shape(self) -> tuple[int, int]:
        return self.dense.shape

    def _range(self, lo: int, hi: int | None) -> tuple[int, int]:
        """The incomplete rows among the rows lo..hi."""
        found = np.searchsorted(self.patterns.row, (lo, self.shape[0] if hi is None else hi))
        return int(found[0]), int(found[1])

    def _shared(self) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
        p = self.patterns
        return p.kind, p.cell, p.columns, p.start, p.block, self.F, self.s

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.dense.matvec(beta, lo, hi)

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.dense.rmatvec(b, lo, hi)

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        A, c = self.dense.gram(w, b, lo, hi)
        self._add(w, lo, hi, A)
        return A, c

    def _add(self, w: Array, lo: int, hi: int | None, A: Array) -> None:
        total = self._total(w, lo, hi)
        if total is not None:
            self._spread_to(total, int(self.intercept), A)

    def _total(self, w: Array, lo: int, hi: int | None) -> Array | None:
        """``sum_i w_i s_i`` over the incomplete rows among the rows lo..hi of every pattern, if there are any."""
        first, last = self._range(lo, hi)
        if first == last:
            return None
        p, total = self.patterns, np.zeros(self.patterns.start[-1])
        _totals(p.kind, p.cell, p.start, self.s, first, w[p.row[first:last] - lo], total)
        return total

    def _spread_to(self, total: Array, lead: int, A: Array) -> None:
        """Add the patterns' ``F'diag(total)F`` to a matrix whose covariates begin at ``lead``."""
        p, most = self.patterns, int(np.diff(self.patterns.start).max())
        _weighted(p.columns, p.start, p.block, self.F, total, lead, A, np.empty((most, most)))

    def excess_slope(self, w: Array, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``sum_i w_i S_i mean``: half the derivative of ``w'excess(mean)``."""
        p, total, out = self.patterns, self._total(w, lo, hi), np.zeros(len(mean))
        if total is not None:
            _weighted_slope(p.columns, p.start, p.block, self.F, total, int(self.intercept), mean, out)
        return out

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``E |root'x_i|^2``."""
        return self.dense.row_quad(root, lo, hi) + self._trace(root, lo, hi)

    def excess(self, mean: Array, lo: int = 0, hi: int | None = None) -> Array:
        """``mean' S_i mean``: what the missing entries add to the variance of the predictor at known coefficients."""
        return self._trace(mean[:, None], lo, hi)

    def _trace(self, root: Array, lo: int, hi: int | None) -> Array:
        out = np.zeros((self.shape[0] if hi is None else hi) - lo)
        first, last = self._range(lo, hi)
        if first < last:
            part = np.empty(last - first)
            length, image = np.full(self.patterns.start[-1], -1.0), np.empty(root.shape[1])
            slopes = np.ascontiguousarray(root[int(self.intercept) :])
            _spread(*self._shared(), first, slopes, part, length, image)
            out[self.patterns.row[first:last] - lo] = part
        return out

    def each(self) -> Iterator[tuple[Index, Array]]:
        """Per incomplete row its missing columns, and a root of their covariance ``root'root``."""
        p = self.patterns
        for i, k in enumerate(p.kind):
            m = p.start[k + 1] - p.start[k]
            scale = np.sqrt(self.s[p.cell[i] : p.cell[i + 1], None])
            yield p.columns[p.start[k] : p.start[k + 1]], scale * self.F[p.block[k] : p.block[k + 1]].reshape(m, m)

    def covariances(self, blocks: Array) -> Array:
        """What the missing entries add to the covariances of k predictors of every row, (rows, k, k).

        ``blocks`` (k, coefficients, M) are such that ``blocks_r blocks_s'`` is ``E beta_r beta_s'``.
        """
        out, p = np.zeros((self.shape[0], len(blocks), len(blocks))), self.patterns
        slopes = blocks[:, int(self.intercept) :]
        order = np.argsort(p.kind, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(p.kind[order])) + 1):
            if len(rows):
                k = p.kind[rows[0]]
                m = p.start[k + 1] - p.start[k]
                F = self.F[p.block[k] : p.block[k + 1]].reshape(m, m)
                turned = np.einsum("jl,rlt->jrt", F, slopes[:, p.columns[p.start[k] : p.start[k + 1]]])
                s = self.s[p.cell[rows][:, None] + np.arange(m)]
                out[p.row[rows]] = np.einsum("ij,jrs->irs", s, turned @ turned.transpose(0, 2, 1))
        return out

    def scatter(self, times: Array) -> Array:
        """``sum_i times_i S_i`` over the slopes."""
        A = np.zeros((self.covariates.shape[1], self.covariates.shape[1]))
        total = self._total(times, 0, None)
        if total is not None:
            self._spread_to(total, 0, A)
        return A

    def log_volume(self, times: Array) -> float:
        """``sum_i times_i log |S_i|``."""
        own = times[self.patterns.row]
        each = np.repeat(own, np.diff(self.patterns.cell))
        return float(each @ np.log(self.s) + 2.0 * (own @ self.log_det[self.patterns.kind]))

    def cells(self) -> Cells:
        """Mean and standard deviation of every missing entry."""
        row, column = self.patterns.of_cells()
        variance = np.empty(len(row))
        _cell_variances(*self._shared(), variance)
        return Cells(row, column, self.dense.X[row, column], np.sqrt(variance))

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self.dense.matmat(coefficients, lo, hi)

    def rmatmat(self, rows: Array) -> Array:
        return self.dense.rmatmat(rows)

    def rows(self, index: Any) -> Array:
        return self.dense.rows(index)


@njit(cache=True, nogil=True, error_model="numpy")
def _cell_variances(kind: Any, cell: Any, columns: Any, start: Any, block: Any, F: Any, s: Any, out: Any) -> None:
    for i in range(len(kind)):
        k = kind[i]
        m = start[k + 1] - start[k]
        for l in range(m):
            total = 0.0
            for j in range(m):
                total += F[block[k] + j * m + l] ** 2 * s[cell[i] + j]
            out[cell[i] + l] = total


def predicted(X: Array, patterns: Patterns, F: Array, mean: Array, precision: Array) -> Array:
    """The rows with their missing entries at the mean given the observed ones; what X has there does not matter.

    Columns behind those that the mean and the precision are about stay as they are.
    """
    residual = to_coordinates(patterns, F, (X[patterns.row, : len(mean)] - mean) @ precision)
    X, cells = X.copy(), patterns.of_cells()
    X[cells] -= to_cells(patterns, F, residual)
    return X


def given_observed(
    X: Array, mean: Array, precision: Array, *, intercept: bool, patterns: Patterns | None = None
) -> Imputed:
    """Rows of standardized columns, NaN where unknown, completed by covariates of this mean and precision.

    Nothing else is known about such a row, above all no response: it is how new rows are seen. A row without any
    observed cell has the mean and covariance of all rows. ``patterns`` are those of the NaN, where they are known.
    """
    missing = np.isnan(X)
    patterns = missing_patterns(missing) if patterns is None else patterns
    F, log_det = whiten(patterns, precision)
    X = predicted(np.where(missing, mean, X), patterns, F, mean, precision)
    return Imputed(Dense.plain(X, intercept=intercept), patterns, F, np.ones(patterns.cell[-1]), log_det)


def standardize_observed(X: Array, weight: Array, *, intercept: bool = True, power: float = 1.0) -> Columns:
    """As ``standardize``, every column by the rows where it is observed."""
    missing = np.isnan(X)
    if not missing.any():
        return standardize(X, weight, intercept=intercept, power=power)
    empty = np.flatnonzero(missing.all(axis=0))
    if len(empty):
        raise ValueError(f"column {empty[0]} of X has no observed value; drop it.")
    keep, shift, scale = [], [], []
    for j in range(X.shape[1]):
        seen = ~missing[:, j]
        found = standardize(X[seen, j : j + 1], weight[seen], intercept=intercept, power=power)
        if len(found.keep):
            keep.append(j)
            shift.append(found.shift[0])
            scale.append(found.scale[0])
    return Columns(np.array(keep, dtype=np.intp), np.array(shift), np.array(scale), intercept, X.shape[1])
