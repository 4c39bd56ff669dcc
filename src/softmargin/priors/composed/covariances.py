"""Hyperpriors on the covariance matrix that the groups of a term share.

Each works from ``E``, the (expected) sum over m groups of ``u_g u_g'``, and m. ``P`` is the inverse of the covariance.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import multigammaln

from softmargin.core.array import Array

__all__ = ["CovariancePrior", "FixedCovariance", "HalfTCovariance", "InverseWishart"]


class CovariancePrior(ABC):
    """What a hyperprior on a covariance matrix can do."""

    learned: bool = True  # whether the matrix moves at all

    @abstractmethod
    def expect(self, E: Array, m: int) -> tuple[Array, float]:
        """``E P`` under the optimal density, and the bound without its ``(m s/2) log 2 pi``."""

    @abstractmethod
    def start(self, width: int) -> Array:
        """P to start from."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, E: Array, m: int, P: Array) -> Array:
        """A draw of P (or one invariant update)."""

    @abstractmethod
    def log_density(self, S: Array) -> float:
        """Log density of the covariance, up to a constant."""

    @abstractmethod
    def stretch(self, P: Array) -> Callable[[float], float]:
        """``t -> log density`` of the covariance times e^2t, in t, up to a constant."""


def _log_det(A: Array) -> float:
    sign, value = np.linalg.slogdet(A)
    if not sign > 0.0:
        raise np.linalg.LinAlgError("a covariance matrix is not positive definite")
    return float(value)


def _inverse(A: Array) -> Array:
    return np.asarray(np.linalg.inv(A), dtype=float)


def _evidence(df: float, rate: Array, m: int) -> float:
    """Log normaliser of the inverse Wishart density after m groups, without those of the prior's own matrix."""
    s = len(rate)
    gammas = multigammaln(0.5 * (df + m), s) - multigammaln(0.5 * df, s)
    return float(gammas) - 0.5 * (df + m) * _log_det(rate) + 0.5 * m * s * math.log(2.0)


def _wishart(rng: np.random.Generator, df: float, rate: Array) -> Array:
    """A Wishart draw with scale matrix ``rate^-1``, by Bartlett's decomposition."""
    s = len(rate)
    A = np.tril(rng.standard_normal((s, s)), -1)
    A[np.arange(s), np.arange(s)] = np.sqrt(2.0 * rng.gamma(0.5 * (df - np.arange(s))))
    root = np.linalg.solve(np.linalg.cholesky(rate).T, A)  # rate = L L', so L^-T A
    return np.asarray(root @ root.T)


@dataclass(frozen=True, eq=False)
class FixedCovariance(CovariancePrior):
    """The covariance is the inverse of the given matrix."""

    P: Array  # its inverse
    learned = False

    def expect(self, E: Array, m: int) -> tuple[Array, float]:
        return self.P, 0.5 * (m * _log_det(self.P) - float((self.P * E).sum()))

    def start(self, width: int) -> Array:
        return self.P

    def draw(self, rng: np.random.Generator, E: Array, m: int, P: Array) -> Array:
        return P

    def log_density(self, S: Array) -> float:
        return 0.0

    def stretch(self, P: Array) -> Callable[[float], float]:
        return lambda t: 0.0


@dataclass(frozen=True, eq=False)
class InverseWishart(CovariancePrior):
    """Covariance inverse Wishart: density proportional to ``|S|^(-(df + s + 1)/2) exp(-tr(matrix S^-1)/2)``."""

    df: float
    matrix: Any

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, dtype=float)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"InverseWishart needs a square matrix; got shape {matrix.shape}.")
        if not self.df > len(matrix) - 1:
            raise ValueError(
                f"InverseWishart of {len(matrix)} columns needs df above {len(matrix) - 1}; got {self.df}."
            )
        object.__setattr__(self, "matrix", matrix)

    def expect(self, E: Array, m: int) -> tuple[Array, float]:
        rate = self.matrix + E
        bound = 0.5 * self.df * _log_det(self.matrix) + _evidence(self.df, rate, m)
        return (self.df + m) * _inverse(rate), bound

    def start(self, width: int) -> Array:
        return np.eye(width)

    def draw(self, rng: np.random.Generator, E: Array, m: int, P: Array) -> Array:
        return _wishart(rng, self.df + m, self.matrix + E)

    def log_density(self, S: Array) -> float:
        trace = float((self.matrix * _inverse(S)).sum())
        return -0.5 * (self.df + len(S) + 1.0) * _log_det(S) - 0.5 * trace

    def stretch(self, P: Array) -> Callable[[float], float]:
        s, trace = len(self.matrix), float((self.matrix * P).sum())
        return lambda t: -self.df * s * t - 0.5 * trace * math.exp(-2.0 * t)


@dataclass(frozen=True)
class HalfTCovariance(CovariancePrior):
    """Every standard deviation half-t(df, scale); with df = 2 every correlation is uniform.

    ``S | a ~ IW(df + s - 1, 2 df diag(1/a)), a_k ~ IG(1/2, 1/scale^2)``. Reference: Huang and Wand (2013), Simple
    marginally noninformative prior distributions for covariance matrices, equation 2.
    """

    scale: float = 1.0
    df: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 < self.df < math.inf):
            raise ValueError(f"HalfTCovariance needs positive numbers; got scale={self.scale}, df={self.df}.")

    def expect(self, E: Array, m: int) -> tuple[Array, float]:
        """The two densities by alternation, which each round improves the bound."""
        nu, s, q = self.df, len(E), self.scale**-2
        wishart, shape = nu + s - 1.0, 0.5 * (nu + s)
        inverse_a = np.full(s, 1.0 / q)
        for _ in range(2000):
            rate = E + np.diag(2.0 * nu * inverse_a)
            P = (wishart + m) * _inverse(rate)
            new = shape / (q + nu * P.diagonal())
            done = bool((np.abs(new - inverse_a) <= 1e-13 * new).all())
            inverse_a = new
            if done:
                break
        rate = E + np.diag(2.0 * nu * inverse_a)
        P = (wishart + m) * _inverse(rate)
        beta = q + nu * P.diagonal()
        bound = 0.5 * wishart * s * math.log(2.0 * nu) + _evidence(wishart, rate, m)
        bound += s * (0.5 * math.log(q) - math.lgamma(0.5) + math.lgamma(shape))
        return P, bound + float((nu * P.diagonal() * inverse_a - shape * np.log(beta)).sum())

    def start(self, width: int) -> Array:
        return np.eye(width)

    def draw(self, rng: np.random.Generator, E: Array, m: int, P: Array) -> Array:
        nu, s = self.df, len(E)
        inverse_a = rng.gamma(0.5 * (nu + s), size=s) / (self.scale**-2 + nu * P.diagonal())
        return _wishart(rng, nu + s - 1.0 + m, E + np.diag(2.0 * nu * inverse_a))

    def log_density(self, S: Array) -> float:
        nu, s, q = self.df, len(S), self.scale**-2
        tails = float(np.log(nu * _inverse(S).diagonal() + q).sum())
        return -0.5 * (nu + 2.0 * s) * _log_det(S) - 0.5 * (nu + s) * tails

    def stretch(self, P: Array) -> Callable[[float], float]:
        nu, s, q, diagonal = self.df, len(P), self.scale**-2, P.diagonal()

        def log_density(t: float) -> float:
            # |S|^(-(nu + 2s)/2) prod (nu P_kk + q)^(-(nu + s)/2), times the Jacobian e^(s(s + 1)t)
            power = s * (s + 1.0) - s * (nu + 2.0 * s)
            return power * t - 0.5 * (nu + s) * float(np.log(nu * diagonal * math.exp(-2.0 * t) + q).sum())

        return log_density
