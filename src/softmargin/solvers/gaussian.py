"""The Gaussian every engine works with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri, dtrtrs

from softmargin.core.array import Array

__all__ = ["LAPACK", "Gaussian"]


class _Lapack:
    """The linear algebra of a Gaussian for matrices in memory; ``rows.device.algebra`` has that of a device."""

    def shifted(self, A: Array, diagonal: Array) -> Array:
        """A with something added to its diagonal, in place."""
        A.flat[:: len(diagonal) + 1] += diagonal
        return A

    def diagonal(self, A: Array) -> Array:
        return A.diagonal()

    def factor(self, A: Array, unit: Array, jitter: float) -> Array:
        """Lower triangular factor, in Fortran order, of a matrix scaled to a unit diagonal."""
        scaled = A * unit
        scaled *= unit[:, None]
        if jitter:
            scaled.flat[:: len(unit) + 1] = 1.0 + jitter * len(unit)
        factor, info = dpotrf(scaled.T, lower=1, clean=1, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError("the precision matrix is not positive definite")
        return factor

    def solve(self, factor: Array, rhs: Array) -> Array:
        """``(L L')^-1 rhs``."""
        return dpotrs(factor, rhs, lower=1)[0]

    def back(self, factor: Array, z: Array) -> Array:
        """``L'^-1 z``."""
        return dtrtrs(factor, z, lower=1, trans=1)[0]

    def times(self, factor: Array, x: Array) -> Array:
        """``L' x``."""
        return np.asarray(factor.T @ x)

    def root(self, factor: Array, unit: Array) -> Array:
        """Upper triangular ``S^-1 L'^-1``."""
        inverse = dtrtri(factor, lower=1)[0]
        return np.ascontiguousarray(inverse.T * unit[:, None])

    def row_squares(self, root: Array) -> Array:
        """Sums of the squares of each row."""
        return np.einsum("ij,ij->i", root, root)

    def home(self, root: Array) -> Array:
        return root


LAPACK = _Lapack()
_JITTER = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11)  # rounding may cost the last eigenvalues their sign


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, A^-1) from a precision ``A = S L L' S``, S the diagonal that gives ``A`` a unit diagonal.

    Scaling first makes the factorisation as accurate as the best diagonal scaling allows, which matters because
    rows at the margin have weights many orders of magnitude above the others.
    """

    factor: Any  # L, lower triangular, where the algebra holds it
    unit: Array  # 1/diag(S)
    mean: Array
    algebra: Any = LAPACK

    @classmethod
    def from_precision(cls, A: Any, linear: Array, algebra: Any = LAPACK) -> Gaussian:
        """The Gaussian with log density ``-beta'A beta/2 + linear'beta``."""
        diagonal = algebra.diagonal(A)
        if not (diagonal > 0.0).all():
            raise np.linalg.LinAlgError("the precision matrix has a diagonal that is not positive")
        unit = 1.0 / np.sqrt(diagonal)
        for jitter in _JITTER:
            try:
                factor = algebra.factor(A, unit, jitter)
                break
            except np.linalg.LinAlgError:
                if jitter == _JITTER[-1]:
                    raise
        mean = unit * algebra.solve(factor, unit * linear)
        return cls(factor, unit, mean, algebra)

    def solve(self, rhs: Array) -> Array:
        """``A^-1 rhs``."""
        x: Array = self.unit * self.algebra.solve(self.factor, self.unit * rhs)
        return x

    def whitened(self, beta: Array) -> Array:
        """z with ``beta = mean + root z``."""
        return self.algebra.times(self.factor, (beta - self.mean) / self.unit)

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw."""
        z = self.algebra.back(self.factor, rng.standard_normal(len(self.unit)))
        x: Array = self.mean + self.unit * z
        return x

    @cached_property
    def row_root(self) -> Any:
        """Upper triangular R with covariance ``R R'``, where the algebra holds it."""
        return self.algebra.root(self.factor, self.unit)

    @cached_property
    def root(self) -> Array:
        """The same, home."""
        return self.algebra.home(self.row_root)

    @cached_property
    def var(self) -> Array:
        """Marginal variances."""
        return self.algebra.row_squares(self.row_root)

    @cached_property
    def logdet(self) -> float:
        """``log |A|``."""
        return 2.0 * float(np.log(self.algebra.diagonal(self.factor)).sum() - np.log(self.unit).sum())

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
        copy = Gaussian(self.factor, unit, mean, self.algebra)
        if "row_root" in self.__dict__:  # keep what was computed; only a diagonal scale changed
            same = unit is self.unit
            copy.__dict__["row_root"] = self.row_root if same else self.row_root * (unit[0] / self.unit[0])
        return copy
