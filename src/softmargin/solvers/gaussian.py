"""The Gaussian every engine works with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri, dtrtrs

from softmargin.core.array import Array

__all__ = ["Gaussian"]


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, A^-1) from a precision ``A = S L L' S``, S the diagonal that gives ``A`` a unit diagonal.

    Scaling first makes the factorisation as accurate as the best diagonal scaling allows, which matters because
    rows at the margin have weights many orders of magnitude above the others.
    """

    factor: Array  # L, lower triangular, Fortran order
    unit: Array  # 1/diag(S)
    mean: Array

    @classmethod
    def from_precision(cls, A: Array, linear: Array) -> Gaussian:
        """The Gaussian with log density ``-beta'A beta/2 + linear'beta``."""
        if not (A.diagonal() > 0.0).all():
            raise np.linalg.LinAlgError("the precision matrix has a diagonal that is not positive")
        unit = 1.0 / np.sqrt(A.diagonal())
        scaled = (A * unit) * unit[:, None]
        for jitter in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11):  # rounding may cost the last eigenvalues their sign
            if jitter:
                scaled.flat[:: len(unit) + 1] = 1.0 + jitter * len(unit)
            factor, info = dpotrf(scaled.T, lower=1, clean=1)
            if info == 0:
                break
        else:
            raise np.linalg.LinAlgError("the precision matrix is not positive definite")
        mean = unit * dpotrs(factor, unit * linear, lower=1)[0]
        return cls(factor, unit, mean)

    def solve(self, rhs: Array) -> Array:
        """``A^-1 rhs``."""
        x: Array = self.unit * dpotrs(self.factor, self.unit * rhs, lower=1)[0]
        return x

    def whitened(self, beta: Array) -> Array:
        """z with ``beta = mean + root z``."""
        return np.asarray(self.factor.T @ ((beta - self.mean) / self.unit))

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw."""
        z = dtrtrs(self.factor, rng.standard_normal(len(self.unit)), lower=1, trans=1)[0]
        x: Array = self.mean + self.unit * z
        return x

    @cached_property
    def root(self) -> Array:
        """Upper triangular R with covariance ``R R'``."""
        inverse = dtrtri(self.factor, lower=1)[0]
        return np.ascontiguousarray(inverse.T * self.unit[:, None])

    @cached_property
    def var(self) -> Array:
        """Marginal variances."""
        return np.einsum("ij,ij->i", self.root, self.root)

    @cached_property
    def logdet(self) -> float:
        """``log |A|``."""
        return 2.0 * float(np.log(self.factor.diagonal()).sum() - np.log(self.unit).sum())

    @property
    def entropy(self) -> float:
        """Differential entropy."""
        return 0.5 * (len(self.unit) * (1.0 + math.log(2.0 * math.pi)) - self.logdet)

    def with_mean(self, mean: Array) -> Gaussian:
        """The same covariance around another mean."""
        return self._copy(self.unit, mean)

    def dilated(self, t: float) -> Gaussian:
        """Mean times e^t and covariance times e^2t."""
        grow = math.exp(t)
        return self._copy(self.unit * grow, self.mean * grow)

    def _copy(self, unit: Array, mean: Array) -> Gaussian:
        copy = Gaussian(self.factor, unit, mean)
        if "root" in self.__dict__:  # keep what was computed; only a diagonal scale changed
            copy.__dict__["root"] = self.root if unit is self.unit else self.root * (unit[0] / self.unit[0])
        return copy
