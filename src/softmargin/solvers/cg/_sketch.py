"""The products of all pairs of rows as a few shared directions and a diagonal, which is cheap in every respect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs

from softmargin.core.array import Array
from softmargin.core.design import Design

__all__ = ["RowGaussian", "Sketch"]

RANK = 128  # shared directions at most
_EXTRA = 8  # directions that are carried along for accuracy
_PASSES = 2


@dataclass(frozen=True, eq=False)
class Sketch:
    """``X X' ~ shared shared' + diag(own)`` over the slopes; the diagonal is exact.

    Rows of text share few words that many have, and differ in those that few have: the first make the shared
    directions, the others the diagonal. The directions are leading eigenvectors of the correlations of the rows, so
    that rows of great length do not claim one each. With as many directions as X has rank nothing is left out.
    """

    shared: Array  # (n, r)
    own: Array

    @classmethod
    def from_design(cls, design: Design, rank: int = RANK) -> Sketch:
        """By subspace iteration with a fixed start, and the Nystrom form of what it finds."""
        length = design.norms()
        n, columns = design.shape[0], design.shape[1] - int(design.intercept)
        unit = 1.0 / np.sqrt(np.where(length > 0.0, length, 1.0))[:, None]
        size = min(rank + _EXTRA, n, columns)
        basis = np.random.Generator(np.random.Philox(0)).standard_normal((n, size))
        for _ in range(_PASSES):
            basis = np.linalg.qr(basis)[0]
            image = unit * design.matmat(design.rmatmat(unit * basis))
            basis, last = image, basis
        values, vectors = np.linalg.eigh(last.T @ image)
        kept = slice(max(size - rank, 0), size) if size < min(n, columns) else slice(0, size)
        values, vectors = values[kept], vectors[:, kept]
        good = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
        shared = (image @ (vectors[:, good] / np.sqrt(values[good]))) / unit
        own = length - np.einsum("ij,ij->i", shared, shared)
        return cls(np.ascontiguousarray(shared), np.where(own > 1e-10 * length, own, 0.0))

    def given(self, w: Array, variance: float, flat: float | None) -> RowGaussian:
        """The Gaussian of the predictors under slopes of this prior variance and row weights ``w``."""
        return RowGaussian(math.sqrt(variance) * self.shared, variance * self.own, w, flat)


@dataclass(frozen=True, eq=False)
class RowGaussian:
    """Predictors ``C z + e + intercept`` with z ~ N(0, I), e ~ N(0, own), given row messages of weights w.

    ``flat`` is the prior precision of the intercept, None where there is none. Everything here is a function of the
    weights that hangs together: the derivative of ``logdet`` in a weight is the variance of its predictor.
    """

    shared: Array
    own: Array
    w: Array
    flat: float | None

    @cached_property
    def _damped(self) -> Array:
        """``1 + w own``."""
        return 1.0 + self.w * self.own

    @cached_property
    def _factor(self) -> Array:
        """Cholesky factor of the precision of z."""
        weighted = self.shared * np.sqrt(self.w / self._damped)[:, None]
        G = weighted.T @ weighted
        G.flat[:: len(G) + 1] += 1.0
        return np.asarray(dpotrf(G, lower=1, clean=1)[0]) if len(G) else G

    @cached_property
    def _row_factor(self) -> Array:
        """Cholesky factor of ``I + W^1/2 K W^1/2``, where there are as many directions as rows."""
        weighted = np.sqrt(self.w)[:, None] * self.shared
        B = weighted @ weighted.T
        B.flat[:: len(B) + 1] += self._damped
        return np.asarray(dpotrf(B, lower=1, clean=1)[0])

    @cached_property
    def _reached(self) -> Array:
        """``(I + K W)^-1 1``: what a unit change of the intercept leaves of the predictors."""
        s = np.sqrt(self.w)[:, None]
        return 1.0 - self.products(s * self.relax(s))[:, 0]

    @cached_property
    def corner(self) -> float:
        """Precision of the intercept with the slopes integrated out.

        It is the least of ``sum (w/d) (1 - U z)^2 + z'z``, for ``K = U U' + own``, plus the prior's: squares alone.
        """
        if self.flat is None:
            return 1.0
        weight = self.w / self._damped
        z = self.shared.T @ weight
        if len(z):
            z = np.asarray(dpotrs(self._factor, z, lower=1)[0]).ravel()
        return float(weight @ (1.0 - self.shared @ z) ** 2) + float(z @ z) + self.flat

    @cached_property
    def slope_variance(self) -> Array:
        """Variance of every predictor at a known intercept."""
        v: Array = self.own / self._damped
        if not self.shared.shape[1]:
            return v
        across = solve_triangular(self._factor, self.shared.T, lower=True, check_finite=False)
        return v + np.einsum("ij,ij->j", across, across) / self._damped**2

    @cached_property
    def variance(self) -> Array:
        """Variance of every predictor."""
        v = self.slope_variance
        return v if self.flat is None else v + self._reached**2 / self.corner

    @cached_property
    def logdet(self) -> float:
        """Log determinant of the precision of the coefficients, relative to that of the slopes' prior."""
        value = float(np.log(self._damped).sum()) + 2.0 * float(np.log(self._factor.diagonal()).sum())
        return value + (0.0 if self.flat is None else math.log(self.corner))

    def products(self, rows: Array) -> Array:
        """``K rows`` for several columns."""
        return self.own[:, None] * rows + self.shared @ (self.shared.T @ rows)

    def relax(self, rows: Array) -> Array:
        """``(I + W^1/2 K W^1/2)^-1 rows`` over the slopes, for several columns.

        With fewer directions than rows, by Woodbury's identity. With as many, every direction of the rows can be
        divided by a huge number, and the identity would subtract what is equal to all digits.
        """
        n, directions = self.shared.shape
        if 0 < n <= directions:
            return np.asarray(dpotrs(self._row_factor, rows, lower=1)[0])
        x = rows / self._damped[:, None]
        if not directions:
            return x
        s = np.sqrt(self.w)[:, None]
        inner = dpotrs(self._factor, self.shared.T @ (s * x), lower=1)[0]
        return x - (s / self._damped[:, None]) * (self.shared @ inner)
