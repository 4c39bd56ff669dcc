"""Kernel features: the columns in which f ~ N(0, scale^2 K) is a ridge regression, for training and for new rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from softmargin.core.array import Array
from softmargin.designs.kernel.kernels import Kernel, check_eigenvalues, check_symmetric
from softmargin.designs.standardize import Columns

__all__ = ["KernelMap", "copies", "kernel_map", "rescaled"]

_TOLERANCE = 1e-8  # variance, as a share of the largest, below which a direction is left to the prior
_JOINT = 1000  # rows whose draws outside the features are drawn together


def rescaled(X: Any, columns: Columns | None) -> Any:
    """Rows in the columns that the kernel sees; None leaves them as they are, and sparse rows are not centred."""
    if columns is None:
        return X
    if len(columns.keep) < X.shape[1]:
        X = X[:, columns.keep]
    sparse: bool = sp.issparse(X)
    if sparse:
        return X.multiply(columns.scale[None, :]).tocsr()
    return np.ascontiguousarray((X - columns.shift) * columns.scale)


def copies(X: Any, label: Array) -> tuple[Any, Any]:
    """One row number for every different pair of row and label, in an order of its own, and which one each row is."""
    sparse: bool = sp.issparse(X)
    if sparse:
        X = X.sorted_indices()
        parts = [X.indices[lo:hi].tobytes() + X.data[lo:hi].tobytes() for lo, hi in pairwise(X.indptr.tolist())]
    else:
        parts = [row.tobytes() for row in X + 0.0]  # minus zero is zero
    keys = [(part, own) for part, own in zip(parts, label.tolist(), strict=True)]
    number = {key: place for place, key in enumerate(sorted(set(keys)))}
    inverse = np.array([number[key] for key in keys])
    first = np.empty(len(number), dtype=np.intp)
    first[inverse[::-1]] = np.arange(len(keys))[::-1]
    return first, inverse


@dataclass(frozen=True, eq=False)
class KernelMap:
    """Features of rows: with S the landmarks and ``K_SS = L L'``, ``F(x) = L^-1 k(S, x)``, so that ``K ~ F F'``.

    The kernel is divided by ``unit``. That is its mean over the diagonal of the training rows, so that the prior scale
    is the prior standard deviation of f whatever the kernel.
    """

    kernel: Kernel
    columns: Columns | None
    landmarks: Any  # rows, or their numbers where the kernel is precomputed
    lower: Array
    unit: float
    level: float = 1.0  # mean of k(x, x) over the training rows

    def features(self, X: Any) -> tuple[Array, Array]:
        """Features of new rows, and the prior variance of f that they leave out.

        A precomputed kernel does not say k(x, x) of new rows: its mean over the training rows stands in.
        """
        if self.kernel.precomputed:
            across, own = self.kernel.matrix(X)[:, self.landmarks], np.full(X.shape[0], self.level)
        else:
            rows = rescaled(X, self.columns)
            across, own = self.kernel.matrix(rows, self.landmarks), self.kernel.diagonal(rows)
        F = self._solved(across)
        return F, np.maximum(own / self.unit - np.einsum("ij,ij->i", F, F), 0.0)

    def in_units(self, base: float) -> Self:
        """The same function space where a prior scale of one stands for ``base``."""
        return replace(self, lower=base * self.lower, unit=self.unit / base**2)

    def _solved(self, across: Array) -> Array:
        F = solve_triangular(self.lower, across.T / self.unit, lower=True).T
        return np.ascontiguousarray(F)

    def remainder(self, X: Any, rng: np.random.Generator, n: int) -> Array:
        """Draws (rows, n) of the part of f / scale that the features leave out, jointly for up to 1000 rows."""
        F, variance = self.features(X)
        if self.kernel.precomputed:
            return np.asarray(np.sqrt(variance)[:, None] * rng.standard_normal((len(F), n)))
        parts = []
        for lo in range(0, len(F), _JOINT):
            at = slice(lo, lo + _JOINT)
            rest = self.kernel.matrix(rescaled(X[at], self.columns)) / self.unit - F[at] @ F[at].T
            values, vectors = np.linalg.eigh(rest)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            parts.append(root @ rng.standard_normal((len(rest), n)))
        return np.concatenate(parts)


def kernel_map(
    kernel: Kernel,
    X: Any,
    count: Array,
    columns: Columns | None = None,
    at: Any = None,
    *,
    tolerance: float = _TOLERANCE,
) -> tuple[KernelMap, Array]:
    """The map of training rows X (numbered ``at`` if precomputed), which count ``count`` times, and their features.

    Pivoted Cholesky: landmarks are added until no row has more than ``tolerance`` of the largest variance left.
    """
    precomputed = kernel.precomputed
    rows = X if precomputed else rescaled(X, columns)
    K = kernel.matrix(rows)[:, at] if precomputed else kernel.matrix(rows)
    check_symmetric(K)
    diagonal = K.diagonal()
    unit = float(count @ diagonal / count.sum())
    if not (diagonal >= 0.0).all() or not unit > 0.0:
        check_eigenvalues(np.asarray(np.linalg.eigvalsh(K), dtype=np.float64))
        raise ValueError("the kernel is zero on every row, so there is nothing to learn; use another kernel.")
    K = K / unit
    largest = float(K.diagonal().max())
    factor, pivot, rank, _ = dpstrf(K, tol=tolerance * largest, lower=1)
    order = pivot - 1
    lower = np.tril(factor)[:, :rank]
    F = np.empty_like(lower, order="C")
    F[order] = lower
    if rank < len(K) and np.abs(K - F @ F.T).max() > 2.0 * tolerance * largest:  # a semi-definite rest is small
        check_eigenvalues(np.asarray(np.linalg.eigvalsh(K), dtype=np.float64))
    chosen = order[:rank]
    landmarks = np.asarray(at)[chosen] if precomputed else rows[chosen]
    return KernelMap(kernel, columns, landmarks, np.ascontiguousarray(lower[:rank]), unit, unit), F
