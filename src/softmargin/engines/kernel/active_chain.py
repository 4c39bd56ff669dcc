"""Where a chain over active rows stands: the whitened basis of its active rows and the law of its coefficients.

The letters are those of ``_jump_factors``: with ``R R' = K_aa + jitter I`` the basis is ``G = [1; R^-1 K_a']`` by rows,
and the coefficients are ``x = (u, alpha)``, ``alpha = R' beta ~ N(0, I/g)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsv
from scipy.linalg.lapack import dpotrf

from softmargin.core.array import Array
from softmargin.engines.kernel.data import KernelData
from softmargin.engines.kernel.draws import Expansion, Index

__all__ = ["ActiveChain", "Law", "factor", "jitter_of"]

_JITTER = 1e-8  # share of the kernel's mean diagonal that is added to K_aa, everywhere where K_aa appears


def jitter_of(K: Array) -> float:
    """What is added to the diagonal of K_aa."""
    return _JITTER * float(np.trace(K)) / len(K)


def factor(K: Array, index: Index) -> tuple[Array, Array]:
    """(G, R) of a set of active rows, from scratch."""
    k = len(index)
    G = np.ones((k + 1, len(K)))
    R: Array = K[np.ix_(index, index)]
    R.flat[:: k + 1] += jitter_of(K)
    if k:
        R = np.asarray(np.linalg.cholesky(R), dtype=np.float64)
        G[1:] = solve_triangular(R, K[index], lower=True)
    return G, R


class Law(NamedTuple):
    """The normal law of (u, alpha) given row messages (w, b): precision ``L L' = G diag(w) G' + diag(eta, g, .., g)``,
    and ``z = L^-1 G b``."""

    L: Array
    z: Array
    eta: float
    g: float

    @classmethod
    def of(cls, gram: Array, linear: Array, eta: float, g: float) -> Law:
        """The law for ``G diag(w) G'``, which is overwritten, and ``G b``."""
        gram.flat[:: len(gram) + 1] += g
        gram[0, 0] += eta - g
        L = dpotrf(gram.T, lower=1, overwrite_a=1)[0]  # the smallest eigenvalue is at least g or eta: it always factors
        return cls(L, dtrsv(L, linear, lower=1), eta, g)

    @property
    def gram(self) -> Array:
        """The way back."""
        A = self.L @ self.L.T
        A.flat[:: len(A) + 1] -= self.g
        A[0, 0] -= self.eta - self.g
        return A

    @property
    def log_marginal(self) -> float:
        """Log density of the row messages given the basis, coefficients integrated out, up to a constant."""
        size = len(self.z) - 1
        level = 0.5 * (float(self.z @ self.z) + math.log(self.eta) + size * math.log(self.g))
        return level - float(np.log(self.L.diagonal()).sum())


class ActiveChain(NamedTuple):
    """Where one chain stands."""

    K: Array
    active: Index
    G: Array
    R: Array
    law: Law
    w: Array  # row messages
    b: Array
    s: Array  # latents of the copies of rows, where these are drawn one by one
    x: Array  # (u, alpha)
    shape: Array  # linear predictors less the intercept
    eta: float
    g: float
    length: float  # scale of the kernel; not a number where it is not drawn
    step: float  # logarithm of the length scale's step
    loglik: float
    counts: Index  # proposed and accepted births, deaths, swaps

    @property
    def f(self) -> Array:
        """The linear predictors."""
        f: Array = self.x[0] + self.shape
        return f

    def expansion(self, data: KernelData, law: bool = False) -> Expansion:
        """The draw on the user's scale, ``beta = R^-T alpha``; with the ``law`` that it was drawn from."""
        coef = solve_triangular(self.R, self.x[1:], lower=True, trans=1)
        if not law:
            return Expansion(float(self.x[0]), self.active, coef)
        L, z = self.law.L, self.law.z
        root = solve_triangular(L, np.eye(len(z)), lower=True, trans=1)
        root[1:] = solve_triangular(self.R, root[1:], lower=True, trans=1)
        mean = solve_triangular(L, z, lower=True, trans=1)
        mean[1:] = solve_triangular(self.R, mean[1:], lower=True, trans=1)
        return Expansion(float(self.x[0]), self.active, coef, mean, root)

    def proposals(self) -> dict[str, Index]:
        """How many births, deaths and swaps were proposed and accepted."""
        return dict(zip(("birth", "death", "swap"), self.counts, strict=True))

    def values(self) -> dict[str, float]:
        """What else was drawn."""
        length = {} if math.isnan(self.length) else {"length": self.length}
        return {"g": self.g, "eta": self.eta, "loglik": self.loglik, **length}
