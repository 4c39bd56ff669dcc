"""Factors of a set of active rows that grow and shrink by one row.

With ``R R' = K_aa + jitter I`` the whitened basis is ``F = K_a R^-T``, n x k, kept by rows in ``G = [1; F']``, and
``alpha = R' beta ~ N(0, I/g)``. Row messages (w, b) give the precision ``G diag(w) G' + diag(eta, g, .., g) = L L'`` of
(u, alpha) and ``z = L^-1 G b``, so that the marginal likelihood of the active set is, up to a constant,

    -sum log L_ii + (log eta + k log g)/2 + z'z/2.

Row i of F is ``R^-1 K_ai``: what a birth of row i needs is already there. Arrays have room for more than k rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.rows.compiled import njit

__all__ = ["back_solve", "dot", "drop", "extend", "leaving", "log_death"]


@njit(cache=True, nogil=True, fastmath=True)
def dot(x: Any, y: Any) -> float:
    """Inner product, in an order of sums that the processor likes."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit(cache=True, nogil=True)
def back_solve(L: Any, m: int, x: Any) -> None:
    """``x <- L^-T x`` with the first m rows of L."""
    for i in range(m - 1, -1, -1):
        x[i] /= L[i, i]
        for l in range(i):
            x[l] -= L[i, l] * x[i]


@njit(cache=True, nogil=True)
def extend(K: Any, jitter: float, w: Any, b: Any, g: float, j: int, G: Any, R: Any, L: Any, z: Any, k: int) -> float:
    """Append row j to the factors, in the place after the k in use, and return the log likelihood ratio.

    The new basis function is ``e = (K_j - F r)/rho`` with ``r = F_j``. Both pivots have an exact lower bound.
    """
    r, l = R[k, :k], L[k + 1, : k + 1]
    for a in range(k):
        r[a] = G[a + 1, j]
    rho = math.sqrt(max(K[j, j] + jitter - dot(r, r), jitter))
    R[k, k] = rho
    e = G[k + 1]
    e[:] = (K[j] - np.dot(r, G[1 : k + 1])) / rho
    weighted = w * e
    cross = np.dot(G[: k + 1], weighted)
    for a in range(k + 1):
        l[a] = (cross[a] - dot(L[a, :a], l[:a])) / L[a, a]
    pivot = math.sqrt(max(dot(weighted, e) + g - dot(l, l), g))
    L[k + 1, k + 1] = pivot
    z[k + 1] = (dot(e, b) - dot(l, z[: k + 1])) / pivot
    return 0.5 * (math.log(g) + z[k + 1] ** 2) - math.log(pivot)


@njit(cache=True, nogil=True)
def leaving(R: Any, L: Any, k: int, a: int, q: Any, x: Any) -> None:
    """The direction of alpha that vanishes with the coefficient in place a, ``q = R^-1 1_a``, and ``x = L^-1 [0; q]``.

    Both are zero before the place.
    """
    q[:a] = 0.0
    x[: a + 1] = 0.0
    q[a] = 1.0 / R[a, a]
    for i in range(a + 1, k):
        q[i] = -dot(R[i, a:i], q[a:i]) / R[i, i]
    for i in range(a, k):
        x[i + 1] = (q[i] - dot(L[i + 1, a + 1 : i + 1], x[a + 1 : i + 1])) / L[i + 1, i + 1]


@njit(cache=True, nogil=True)
def log_death(R: Any, L: Any, z: Any, g: float, k: int, a: int, q: Any, x: Any) -> float:
    """Log likelihood ratio of removing the coefficient in place a: density of ``q'alpha = 0``, posterior over prior."""
    leaving(R, L, k, a, q, x)
    size, square, pull = dot(q[a:k], q[a:k]), dot(x[a + 1 : k + 1], x[a + 1 : k + 1]), 0.0
    pull = dot(x[a + 1 : k + 1], z[a + 1 : k + 1])
    return 0.5 * (math.log(size / square) - math.log(g) - pull * pull / square)


@njit(cache=True, nogil=True)
def _rotate(x: Any, y: Any, c: float, s: float) -> None:
    for i in range(len(x)):
        old = x[i]
        x[i] = c * old + s * y[i]
        y[i] = c * y[i] - s * old


@njit(cache=True, nogil=True)
def drop(index: Any, G: Any, R: Any, L: Any, z: Any, k: int, a: int) -> None:
    """Take the row in place a out of the k rows of the factors.

    R without its row a is triangular but for one diagonal; rotations of columns mend it. The same rotations act on the
    basis and on the rows of L, whose own shape rotations of its columns, and of z, restore. The last place is free.
    """
    for i in range(a, k - 1):
        index[i] = index[i + 1]
        R[i, : i + 2] = R[i + 1, : i + 2]
    for i in range(a, k - 1):
        length = math.hypot(R[i, i], R[i, i + 1])
        c, s = R[i, i] / length, R[i, i + 1] / length
        R[i, i], R[i, i + 1] = length, 0.0
        _rotate(R[i + 1 : k - 1, i], R[i + 1 : k - 1, i + 1], c, s)
        _rotate(G[i + 1], G[i + 2], c, s)
        L[i + 1, i + 2] = 0.0
        _rotate(L[i + 1, : i + 3], L[i + 2, : i + 3], c, s)
        length = math.hypot(L[i + 1, i + 1], L[i + 1, i + 2])
        c, s = L[i + 1, i + 1] / length, L[i + 1, i + 2] / length
        L[i + 1, i + 1], L[i + 1, i + 2] = length, 0.0
        _rotate(L[i + 2 : k + 1, i + 1], L[i + 2 : k + 1, i + 2], c, s)
        _rotate(z[i + 1 : i + 2], z[i + 2 : i + 3], c, s)
