"""A Gaussian of many more coefficients than rows, with everything that variational engines ask of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg.lapack import dtrtrs

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.space import Root
from softmargin.solvers.woodbury import WoodburyGaussian

__all__ = ["WideNormal", "WideRoot", "enlarged", "noise", "quadratic", "squares"]

_CHUNK = 256  # coefficients at a time
_LOST = 1e-6  # share of the prior's variance below which too many digits of a difference are gone
_LOG_2PI_E = 1.0 + math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class WideRoot(Root):
    """A covariance ``C = grow^2 A^-1`` as the prior's diagonal minus what n rows have taken off; no matrix p x p.

    Over the slopes ``A^-1 = V - P'P + k k'/d`` with V diagonal, P n x p, k the coupling to the intercept and d its
    Schur complement. Where next to nothing of V is left, a sum of squares stands for the difference.
    """

    variance: Array
    P: Array
    cross: Array
    corner: float
    lead: int
    inner: WoodburyGaussian
    grow: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        size = self.lead + len(self.variance)
        return size, size

    def row_quad(self, design: Design, lo: int = 0, hi: int | None = None) -> Array:
        """Variance of the linear predictors of rows lo..hi of a design."""
        start = np.zeros((self.lead, len(self.P)))
        taken = design.row_quad(np.ascontiguousarray(np.concatenate((start, self.P.T))), lo, hi)
        whole = design.scaled(np.sqrt(self.variance)).norms(lo, hi)
        v = whole - taken
        lost = np.flatnonzero(v < _LOST * whole)
        if len(lost):
            v[lost] = self._slopes_quad(design.rows(lo + lost)[:, self.lead :])
        if self.lead:
            v = v + design.matvec(np.concatenate(([1.0], -self.cross)), lo, hi) ** 2 / self.corner
        return np.asarray(self.grow**2 * v)

    def _slopes_quad(self, Y: Array) -> Array:
        """``y'(V - P'P)y`` of the rows y as ``|V^(1/2)(y - X'S t)|^2 + |t|^2`` with ``t = B^-1 S X V y``."""
        small, s = self.inner.small, self.inner.s
        t = small.unit[:, None] * dtrtrs(small.factor, self.P @ Y.T, lower=1, trans=1)[0]
        X = self.inner.design.rows(np.arange(len(s)))[:, self.lead :]
        left = Y - (t * s[:, None]).T @ X
        return np.asarray((left * left) @ self.variance + (t * t).sum(axis=0))

    def enlarged(self, factor: float) -> WideRoot:
        """The root of the covariance times the square of a factor."""
        return replace(self, grow=self.grow * factor)

    def squares(self) -> Array:
        """Marginal variances."""
        own = self.variance - np.einsum("ij,ij->j", self.P, self.P)
        lost = np.flatnonzero(own < _LOST * self.variance)
        for some in np.array_split(lost, len(lost) // _CHUNK + 1):
            one = np.zeros((len(some), len(own)))
            one[np.arange(len(some)), some] = 1.0
            own[some] = self._slopes_quad(one)
        if not self.lead:
            return self.grow**2 * own
        return self.grow**2 * np.concatenate(([1.0 / self.corner], own + self.cross**2 / self.corner))

    def quadratic(self, x: Array) -> float:
        """``x' C x``."""
        slopes = x[self.lead :]
        value = float(self._slopes_quad(slopes[None])[0])
        if self.lead:
            value += (float(x[0]) - float(self.cross @ slopes)) ** 2 / self.corner
        return self.grow**2 * value

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, p) of N(0, C): ``V^(1/2)(I - Q (1 - (1 - s^2)^(1/2)) Q')z`` with ``P V^(-1/2) = U s Q'``."""
        sd = np.sqrt(self.variance)
        s, Q = self._singular
        z = rng.standard_normal((n, len(sd)))
        z -= ((z @ Q.T) * (1.0 - np.sqrt(np.maximum(1.0 - s * s, 0.0)))) @ Q
        z *= sd
        if not self.lead:
            return self.grow * z
        first = rng.standard_normal(n) / math.sqrt(self.corner)
        return self.grow * np.column_stack((first, z - first[:, None] * self.cross))

    @cached_property
    def _singular(self) -> tuple[Array, Array]:
        _, s, Q = np.linalg.svd(self.P / np.sqrt(self.variance), full_matrices=False)
        return s, Q


@dataclass(frozen=True, eq=False)
class WideNormal:
    """The Gaussian of ``WoodburyGaussian``, around a mean of its own and spread by a factor."""

    inner: WoodburyGaussian
    mean: Array
    grow: float = 1.0

    @classmethod
    def from_rows(cls, design: Design, w: Array, linear: Array, precision: Array) -> WideNormal:
        """The Gaussian with log density ``-beta'(X'WX + D)beta/2 + linear'beta``."""
        inner = WoodburyGaussian.from_rows(design, w, linear, precision)
        return cls(inner, inner.mean)

    @cached_property
    def root(self) -> WideRoot:
        """The covariance."""
        inner = self.inner
        lead, small = int(inner.design.intercept), inner.small
        rows = inner.design.rows(np.arange(inner.design.shape[0]))[:, lead:] * inner.variance
        rows *= (small.unit * inner.s)[:, None]
        P = dtrtrs(small.factor, rows, lower=1)[0]
        return WideRoot(inner.variance, np.ascontiguousarray(P), inner.cross, inner.corner, lead, inner, self.grow)

    @cached_property
    def var(self) -> Array:
        """Marginal variances."""
        return self.root.squares()

    @property
    def logdet(self) -> float:
        """Log determinant of the precision."""
        inner = self.inner
        value = inner.small.logdet - float(np.log(inner.variance).sum())
        value += math.log(inner.corner) if inner.design.intercept else 0.0
        return value - 2.0 * len(self.mean) * math.log(self.grow)

    @property
    def entropy(self) -> float:
        """Differential entropy."""
        return 0.5 * (len(self.mean) * _LOG_2PI_E - self.logdet)

    def solve(self, rhs: Array) -> Array:
        """Covariance times ``rhs``."""
        return self.grow**2 * self.inner.solve(rhs)

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw."""
        return self.mean + self.grow * (self.inner.draw(rng) - self.inner.mean)

    def with_mean(self, mean: Array) -> WideNormal:
        """The same covariance around another mean."""
        return self._copy(mean, 1.0)

    def dilated(self, t: float) -> WideNormal:
        """Mean times e^t and covariance times e^2t."""
        return self._copy(self.mean * math.exp(t), math.exp(t))

    def _copy(self, mean: Array, factor: float) -> WideNormal:
        copy = WideNormal(self.inner, mean, self.grow * factor)
        if "root" in self.__dict__:  # keep what was computed; only a common factor changed
            copy.__dict__["root"] = self.root.enlarged(factor)
        return copy


def enlarged(root: Any, factor: float) -> Any:
    """The root of the covariance times the square of a factor."""
    if isinstance(root, np.ndarray):
        return factor * np.ascontiguousarray(root)
    own = isinstance(root, Root) and root.offers("enlarged")
    return root.enlarged(factor) if own else EnlargedRoot(root, factor)


@dataclass(frozen=True, eq=False)
class EnlargedRoot(Root):
    """A structured root times a factor."""

    root: Any
    factor: float

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.root.shape
        return shape

    def row_quad(self, design: Any, lo: int = 0, hi: int | None = None) -> Array:
        """Variances of the linear predictors of the rows lo..hi of a design."""
        return np.asarray(self.factor**2 * self.root.row_quad(design, lo, hi))

    def squares(self) -> Array:
        """Marginal variances."""
        return np.asarray(self.factor**2 * squares(self.root))

    def quadratic(self, x: Array) -> float:
        """``x' C x`` of the covariance C."""
        return self.factor**2 * quadratic(self.root, x)

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, p) of N(0, C)."""
        return np.asarray(self.factor * noise(self.root, rng, n))


def squares(root: Any) -> Array:
    """Diagonal of the covariance of a root, an array R with ``R R'`` or a structured one."""
    return np.einsum("ij,ij->i", root, root) if isinstance(root, np.ndarray) else root.squares()


def quadratic(root: Any, x: Array) -> float:
    """``x' C x`` of the covariance of a root."""
    if not isinstance(root, np.ndarray):
        return float(root.quadratic(x))
    across = root.T @ x
    return float(across @ across)


def noise(root: Any, rng: np.random.Generator, n: int) -> Array:
    """Draws (n, coefficients) of N(0, C)."""
    if not isinstance(root, np.ndarray):
        return np.asarray(root.noise(rng, n))
    return np.asarray(rng.standard_normal((n, root.shape[1])) @ root.T)
