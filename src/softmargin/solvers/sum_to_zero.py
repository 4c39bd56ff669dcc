"""Class coefficients that sum to zero: one Gaussian in an orthonormal contrast, seen from the coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.space import Space
from softmargin.designs.classes import ClassDesign, Index, helmert
from softmargin.solvers._class_woodbury import ClassWoodbury
from softmargin.solvers.gaussian import Gaussian

__all__ = ["FormedSumToZero", "LiftedGaussian", "SumToZero"]


@dataclass(frozen=True, eq=False)
class SumToZero(Space):
    """Blocks beta_1, ..., beta_k with ``sum_r beta_r = 0``: ``beta = (A' kron I) theta``, A the Helmert contrast.

    The precision of theta is ``sum_r (a_r a_r') kron (X'W_r X + D_r)``, a_r the columns of A. Nothing depends on which
    contrast is taken.
    """

    k: int
    pair_class: Index
    grow: Array  # factor of the row of every pair

    @classmethod
    def of(cls, design: ClassDesign) -> SumToZero:
        """The space of the coefficients of a design of pairs."""
        return cls(design.k, design.pair_class, design.grow)

    @property
    def exchanges(self) -> bool:
        return True

    @cached_property
    def contrast(self) -> Array:
        """The (k - 1) x k matrix A."""
        return helmert(self.k)

    def dimension(self, coordinates: int) -> int:
        return coordinates // self.k * (self.k - 1)

    def assembled(self, A: Any, precision: Array) -> Array:
        """``sum_r (a_r a_r') kron (A_r + D_r)`` as blocks (k - 1) x (k - 1) x q x q."""
        a, k, q = self.contrast, self.k, A.shape[1]
        A[:, np.arange(q), np.arange(q)] += precision.reshape(-1, q)
        products = (a[:, None, :] * a[None, :, :]).reshape(-1, k)
        return np.asarray(products @ A.reshape(k, q * q)).reshape(k - 1, k - 1, q, q)

    def on(self, design: Any) -> SumToZero:
        """The same with other rows."""
        return SumToZero.of(design)

    def gaussian(self, A: Any, linear: Array, precision: Array, rank_two: Array | None = None) -> LiftedGaussian:
        a, k, q = self.contrast, self.k, A.shape[1]
        M = self.assembled(A, precision).transpose(0, 2, 1, 3)
        if rank_two is not None:
            off, on = (a @ part.reshape(k, q) for part in rank_two)
            M = M.copy()
            M[:, np.arange(q), :, np.arange(q)] += np.einsum("sj,tj->jst", on, on) - np.einsum("sj,tj->jst", off, off)
        inner = Gaussian.from_precision(M.reshape((k - 1) * q, (k - 1) * q), _lowered(a, linear))
        return LiftedGaussian(inner, a)

    def wide(
        self, design: ClassDesign, w: Array, linear: Array, precision: Array, rank_two: Array | None = None
    ) -> ClassWoodbury:
        return ClassWoodbury.from_rows(design, w, linear, precision, rank_two)

    def dual_feasible(self, g: Array, y: Array, target: Array) -> Array:
        """The sums of ``grow y g`` over the pairs of a class are its target, up to a number common to the classes.

        What pushes a class too far is shrunk. The number is the mean, or the nearest at which no sign has to change.
        """
        up = y > 0.0
        high, low = (np.bincount(self.pair_class, side * self.grow * g, self.k) for side in (up, ~up))
        target = target - target.mean()
        common = np.clip((high - low - target).mean(), (-low - target).max(), (high - target).min())
        excess = high - low - target - common
        wanted = (np.maximum(high - np.maximum(excess, 0.0), 0.0), np.maximum(low + np.minimum(excess, 0.0), 0.0))
        factor = [
            np.divide(new, old, out=np.zeros(self.k), where=old > 0.0)
            for new, old in zip(wanted, (high, low), strict=True)
        ]
        return g * np.where(up, factor[0][self.pair_class], factor[1][self.pair_class])

    def dual_representative(self, score: Array, precision: Array, corner: Any) -> Array:
        """A number common to the classes of a variable is taken off: the middle, or the mean under a square."""
        v, D, sharp = (x.reshape(self.k, -1) for x in (score, precision, corner))
        inverse = 1.0 / np.where(D > 0.0, D, 1.0)
        mean = (v * inverse).sum(axis=0) / inverse.sum(axis=0)
        middle = 0.5 * (v.max(axis=0) + v.min(axis=0))
        return np.asarray(v - np.where(sharp.any(axis=0), middle, mean)).ravel()

    def restored(self, beta: Array, active: Any) -> Array:
        b, inside = beta.reshape(self.k, -1), active.reshape(self.k, -1)
        return np.asarray(b - np.where(inside, b.sum(axis=0) / np.maximum(inside.sum(axis=0), 1), 0.0)).ravel()

    def ties(self, active: Any) -> Array:
        variable = np.tile(np.arange(len(active) // self.k), self.k)[active]
        return np.asarray(np.unique(variable)[:, None] == variable, dtype=float)


class FormedSumToZero(SumToZero):
    """The same; the Gram with the spread of the rows in it is always formed."""

    def wide(
        self, design: ClassDesign, w: Array, linear: Array, precision: Array, rank_two: Array | None = None
    ) -> Any:
        return self.gaussian(design.gram(w, w)[0], linear, precision, rank_two)

    def on(self, design: Any) -> SumToZero:
        return FormedSumToZero.of(design)


def _lowered(a: Array, beta: Array) -> Array:
    """Coordinates theta of coefficients beta; what the constraint forbids is lost."""
    return np.asarray(a @ beta.reshape(a.shape[1], -1)).ravel()


@dataclass(frozen=True, eq=False)
class LiftedGaussian:
    """The Gaussian of ``beta = (A' kron I) theta`` from that of theta."""

    inner: Gaussian
    contrast: Array

    def _lifted(self, theta: Array) -> Array:
        k = self.contrast.shape[1]
        blocks = theta.reshape(k - 1, -1)
        return np.asarray(self.contrast.T @ blocks).reshape(len(theta) // (k - 1) * k, *theta.shape[1:])

    @cached_property
    def mean(self) -> Array:
        return self._lifted(self.inner.mean)

    def solve(self, rhs: Array) -> Array:
        """``T (T'AT)^-1 T' rhs`` with ``T = A' kron I``."""
        return self._lifted(self.inner.solve(_lowered(self.contrast, rhs)))

    def whitened(self, beta: Array) -> Array:
        """z with ``beta = mean + root z``."""
        return self.inner.whitened(_lowered(self.contrast, beta))

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw."""
        return self._lifted(self.inner.draw(rng))

    @cached_property
    def root(self) -> Array:
        """R with covariance ``R R'``; it has fewer columns than rows."""
        return self._lifted(self.inner.root)

    @cached_property
    def var(self) -> Array:
        """Marginal variances."""
        return np.einsum("ij,ij->i", self.root, self.root)

    @property
    def logdet(self) -> float:
        """Log determinant of the precision of theta."""
        return self.inner.logdet

    @property
    def entropy(self) -> float:
        """Differential entropy in theta."""
        return self.inner.entropy

    def with_mean(self, mean: Array) -> LiftedGaussian:
        """The same covariance around another mean."""
        return self._copy(self.inner.with_mean(_lowered(self.contrast, mean)), 1.0)

    def dilated(self, t: float) -> LiftedGaussian:
        """Mean times e^t and covariance times e^2t."""
        return self._copy(self.inner.dilated(t), math.exp(t))

    def _copy(self, inner: Gaussian, grow: float) -> LiftedGaussian:
        copy = LiftedGaussian(inner, self.contrast)
        if "root" in self.__dict__:  # keep what was computed; only a common factor changed
            copy.__dict__["root"] = self.root if grow == 1.0 else self.root * grow
        if "var" in self.__dict__:
            copy.__dict__["var"] = self.var * grow**2
        return copy
