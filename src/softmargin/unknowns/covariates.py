"""The normal model of the columns that fills in what is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import multigammaln
from scipy.stats import wishart

from softmargin.core.array import Array
from softmargin.solvers.gaussian import Gaussian

__all__ = ["CovariateLaw", "CovariatePrior"]

_LOG_2PI = math.log(2.0 * math.pi)


class CovariateLaw(NamedTuple):
    """Mean and precision of the rows: averages under their density, or one draw."""

    mean: Array
    precision: Array


@dataclass(frozen=True)
class CovariatePrior:
    """Rows ``x_i ~ N(mu, Sigma)`` with ``mu ~ N(0, mean_scale^2 I)`` and ``Sigma ~ IW(spread I, df)``.

    The inverse Wishart needs more than d - 1 degrees of freedom for d columns; the 3 of the paper are too few from
    four columns on, and its bound is then undefined.

    Parameters
    ----------
    df : float or None
        Degrees of freedom; None is d + 1.
    spread : float or None
        Scale matrix of the inverse Wishart on standardized columns, as a multiple of the identity. None is 0.01, and 1
        where there are less than two rows per column: a small one lets every column be a sum of the others there.
    mean_scale : float
        Standard deviation of the means.

    References
    ----------
    Luts and Ormerod (2014), section 3.3.
    """

    df: float | None = None
    spread: float | None = None
    mean_scale: float = 1e4

    def __post_init__(self) -> None:
        if not (self.mean_scale > 0.0 and (self.spread is None or self.spread > 0.0)):
            raise ValueError(
                f"CovariatePrior needs a positive spread and mean_scale; got {self.spread} and {self.mean_scale}."
            )

    def degrees(self, d: int) -> float:
        """Degrees of freedom for d columns."""
        if self.df is None:
            return d + 1.0
        if not self.df > d - 1:
            raise ValueError(
                f"CovariatePrior needs df above {d - 1} for {d} columns; got {self.df}: use df=None or a larger one."
            )
        return self.df

    def width(self, n: float, d: int) -> float:
        """Scale of the inverse Wishart for n rows of d columns."""
        if self.spread is None:
            return 0.01 if n >= 2 * d else 1.0
        return self.spread

    def expect(
        self, X: Array, scatter: Array, precision: Array, times: Array | None = None
    ) -> tuple[CovariateLaw, float]:
        """The best normal density of mu, then the best inverse Wishart density of Sigma, and their part of the bound.

        ``X`` has the means of the rows, which count ``times`` times each, and ``scatter`` the sum of their covariances;
        the bound is ``E log p(x, mu, Sigma) - E log q(mu, Sigma)``, the entropy of the missing entries left to others.
        """
        times = np.ones(len(X)) if times is None else times
        n, d = float(times.sum()), X.shape[1]
        nu, flat = self.degrees(d), self.mean_scale**-2
        A = n * precision
        A.flat[:: d + 1] += flat
        q = Gaussian.from_precision(A, precision @ (times @ X))
        around = q.root @ q.root.T
        rate = self._rate(X - q.mean, times) + n * around + scatter
        law = CovariateLaw(q.mean, (nu + n) * _inverse(rate))
        bound = 0.5 * (d - q.logdet + d * math.log(flat) - flat * float(q.mean @ q.mean + around.trace()))
        bound += 0.5 * nu * d * math.log(self.width(n, d)) - float(multigammaln(0.5 * nu, d))
        bound += float(multigammaln(0.5 * (nu + n), d)) - 0.5 * (nu + n) * float(np.linalg.slogdet(rate)[1])
        return law, bound + 0.5 * n * d * (math.log(2.0) - _LOG_2PI)

    def draw(self, rng: np.random.Generator, X: Array, precision: Array, times: Array | None = None) -> CovariateLaw:
        """mu given Sigma and the rows, which count ``times`` times each, then Sigma given mu and the rows."""
        times = np.ones(len(X)) if times is None else times
        n, d = float(times.sum()), X.shape[1]
        A = n * precision
        A.flat[:: d + 1] += self.mean_scale**-2
        mean = Gaussian.from_precision(A, precision @ (times @ X)).draw(rng)
        drawn = wishart.rvs(self.degrees(d) + n, _inverse(self._rate(X - mean, times)), random_state=rng)
        return CovariateLaw(mean, np.reshape(drawn, (d, d)))

    def _rate(self, centred: Array, times: Array) -> Array:
        """Scale matrix of the prior plus the squares of the rows."""
        scaled = centred * np.sqrt(times)[:, None]
        rate: Array = scaled.T @ scaled
        rate.flat[:: len(rate) + 1] += self.width(float(times.sum()), len(rate))
        return rate


def _inverse(A: Array) -> Array:
    """Inverse of a positive definite matrix."""
    root = Gaussian.from_precision(A, np.zeros(len(A))).root
    return root @ root.T
