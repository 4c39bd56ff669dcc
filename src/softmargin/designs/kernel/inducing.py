"""Inducing points: a few points whose function values carry the data, and what they leave to the prior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from sklearn.cluster import KMeans

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.designs.kernel.features import KernelMap, rescaled
from softmargin.designs.kernel.kernels import Kernel
from softmargin.designs.standardize import Columns

__all__ = ["Inducing", "InducingMap", "Loose", "choose_points", "inducing_map", "map_of_points"]

_JITTER = 1e-8  # of the mean of the diagonal: keeps the factor finite where points nearly coincide
_SUBSAMPLE = 20  # rows for each point that the choice of points looks at
_ROUNDS = 10  # of moving the points to the middle of the rows next to them
_HELD = 1 << 24  # numbers of features that are kept, 128 megabytes; more are computed when needed
_ROWS = 2048  # rows at a time where features are not kept


def choose_points(X: Any, size: int, rng: np.random.Generator, columns: Columns | None = None) -> Any:
    """At most ``size`` points that cover the rows: all distinct rows, or centres found by k-means on some of them.

    The centres start from random rows: k-means++ takes longer, and after a few rounds predicts no better. They are in
    the columns that the kernel sees.
    """
    n = X.shape[0]
    if size < 1:
        raise ValueError(f"n_inducing must be at least 1; got {size}.")
    if n > _SUBSAMPLE * size:
        X = X[np.sort(rng.choice(n, _SUBSAMPLE * size, replace=False))]
    X = rescaled(X, columns)
    X = X if sp.issparse(X) else np.unique(np.asarray(X, dtype=np.float64), axis=0)
    if X.shape[0] <= size:
        return X
    means = KMeans(size, init="random", n_init=1, max_iter=_ROUNDS, random_state=int(rng.integers(2**31)))
    return means.fit(X).cluster_centers_


@dataclass(frozen=True, eq=False)
class Loose(Dense):
    """Dense columns that leave the part ``rest`` of every row's prior variance, in units of the prior's, to no column.

    A predictor is then ``x'beta + e`` with ``e ~ N(0, scale^2 rest)`` beside ``beta ~ N(0, scale^2)``.
    """

    rest: Any = None

    @classmethod
    def of(cls, features: Array, rest: Array, *, intercept: bool) -> Loose:
        """The columns as they are."""
        m = features.shape[1]
        return cls(features, np.zeros(m), np.ones(m), intercept, rest=rest)

    def pick(self, index: Any) -> Loose:
        """Some of the rows."""
        return replace(self, X=self.X[index], rest=self.rest[index])


@dataclass(frozen=True, eq=False)
class InducingMap(KernelMap):
    """Features ``phi(x) = L^-1 k(Z, x)`` of inducing points Z, with ``L L' = k(Z, Z)``.

    The function is ``f(x) = phi(x)'beta + e(x)``, where beta has independent coordinates under the prior and e the
    variance ``k(x, x) - |phi(x)|^2`` that the values at Z do not determine.
    """

    @classmethod
    def of(cls, kernel: Kernel, points: Any, *, columns: Columns | None = None, unit: float = 1.0) -> InducingMap:
        """The map of given points, which are rows in the columns that the kernel sees."""
        if kernel.precomputed:
            raise ValueError("inducing points need rows and a kernel function; kernel='precomputed' has neither.")
        K = kernel.matrix(points) / unit
        K.flat[:: len(K) + 1] += _JITTER * float(K.diagonal().mean())
        lower: Array = np.linalg.cholesky(K).astype(np.float64)
        return cls(kernel, columns, points, lower, unit)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.lower)

    def at_length(self, length: float) -> InducingMap:
        """The same points under the kernel of another length."""
        return InducingMap.of(self.kernel.with_length(length), self.landmarks, columns=self.columns, unit=self.unit)

    def turned(self, X: Any) -> tuple[Array, Array]:
        """Features and their derivative in log length, for the kernel "rbf".

        With ``k = exp(-d^2/l^2)`` the derivative of k is ``-2 k log k``, and that of the factor is
        ``L tri(L^-1 dK L^-T)``, tri taking the lower triangle and half the diagonal.
        """
        if self.kernel.form != "rbf":
            raise ValueError("the length is learned by gradients for kernel='rbf' only; give length_scale a number.")
        K = self.kernel.matrix(rescaled(X, self.columns), self.landmarks)
        phi = self._solved(K)
        return phi, self._solved(_rbf_slope(K)) - phi @ self._turn.T

    @cached_property
    def _turn(self) -> Array:
        """``tri(L^-1 dK L^-T)``."""
        half = self._solved(_rbf_slope(self.kernel.matrix(self.landmarks)))
        both = solve_triangular(self.lower, half, lower=True)
        return np.tril(both, -1) + np.diag(0.5 * both.diagonal())

    def design(self, X: Any, *, intercept: bool = True) -> Loose | Inducing:
        """The rows X as a design, held in memory where it is small."""
        lazy = Inducing(self, X, intercept)
        return lazy.pick(slice(None)) if X.shape[0] * self.size <= _HELD else lazy


def inducing_map(
    kernel: Kernel, X: Any, size: int, rng: np.random.Generator, columns: Columns | None = None
) -> InducingMap:
    """The map of at most ``size`` points that cover the rows X; those that the others determine are left out."""
    return map_of_points(kernel, choose_points(X, size, rng, columns), columns)


def map_of_points(kernel: Kernel, points: Any, columns: Columns | None = None) -> InducingMap:
    """The map of those of the points that the others do not determine."""
    if not kernel.precomputed:
        points = points[_independent(kernel.matrix(points))]
    return InducingMap.of(kernel, points, columns=columns, unit=float(kernel.diagonal(points).mean()))


def _independent(K: Array) -> Any:
    """Numbers of the points whose values the others leave uncertain: wide kernels need few points."""
    _, pivot, rank, _ = dpstrf(K, tol=_JITTER * float(K.diagonal().max()), lower=1)
    return np.sort(pivot[:rank] - 1)


def _rbf_slope(K: Array) -> Array:
    """Derivative in log length of ``exp(-d^2/l^2)``; zero where that is zero."""
    return -2.0 * K * np.log(np.maximum(K, 1e-300))


@dataclass(frozen=True, eq=False)
class Inducing(Design):
    """Features of rows that are computed block by block when needed; X may be a memory-mapped array."""

    map: InducingMap
    X: Any
    intercept: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.map.size + self.intercept

    def pick(self, index: Any) -> Loose:
        """Some of the rows, their features held in memory."""
        return Loose.of(*self.map.features(self.X[index]), intercept=self.intercept)

    def at_length(self, length: float) -> Inducing:
        """The same rows under the kernel of another length."""
        return Inducing(self.map.at_length(length), self.X, self.intercept)

    @cached_property
    def rest(self) -> Array:
        """Prior variance that the points leave to every row."""
        n = self.X.shape[0]
        parts = [self.map.features(self.X[lo : min(lo + _ROWS, n)])[1] for lo in range(0, n, _ROWS)]
        return np.concatenate(parts)

    def _block(self, lo: int, hi: int | None) -> Loose:
        return self.pick(slice(lo, self.X.shape[0] if hi is None else hi))

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._block(lo, hi).matvec(beta)

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._block(lo, hi).rmatvec(b)

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[Array, Array]:
        return self._block(lo, hi).gram(w, b)

    def row_quad(self, root: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._block(lo, hi).row_quad(root)

    def outer(self) -> Array:
        return self._block(0, None).outer()

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        return self._block(lo, hi).matmat(coefficients)

    def rmatmat(self, rows: Array) -> Array:
        return self._block(0, None).rmatmat(rows)

    def norms(self, lo: int = 0, hi: int | None = None) -> Array:
        return self._block(lo, hi).norms()

    def scaled(self, factor: Array) -> Dense:
        return self._block(0, None).scaled(factor)

    def take(self, columns: Any) -> Dense:
        return self._block(0, None).take(columns)

    def rows(self, index: Any) -> Array:
        return self.pick(index).rows(np.arange(len(index)))
