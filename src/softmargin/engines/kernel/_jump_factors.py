"""Factors of a set of active rows that grow and shrink by one row.

With ``R R' = K_aa + jitter I`` the whitened basis is ``F = K_a R^-T``, n x k, kept by rows in ``G = [1; F']``, and
``alpha = R' beta ~ N(0, I/g)``. Row messages (w, b) give the precision ``G diag(w) G' + diag(eta, g, .., g) = L L'`` of
(u, alpha) and ``z = L^-1 G b``, so that the marginal likelihood of the active set is, up to a constant,

    -sum log L_ii + (log eta + k log g)/2 + z'z/2.

Row i of F is ``R^-1 K_ai``: what a birth of row i needs is already there. Arrays have room for more than k rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.engines.products import addresses, matvec, rmatvec
from softmargin.rows.compiled import njit

__all__ = ["Room", "back_solve", "drop", "extend", "forward_solve", "inner", "leaving", "log_death", "room_for"]


class Room(NamedTuple):
    """The address of the product of a matrix and a vector, and arrays to work in, made outside compiled code."""

    gemv: int
    place: Any  # of every row of the data in the active set, -1 for those that are out
    rows: Array  # (vectors, rows of the data)
    columns: Array  # (vectors, coefficients)


def room_for(n: int, size: int) -> Room:
    """Room for n rows of which up to ``size`` are active."""
    return Room(addresses().gemv, np.empty(n, dtype=np.int64), np.empty((4, n)), np.empty((3, size + 2)))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=True)
def inner(x: Any, y: Any, low: int, high: int) -> float:
    """Inner product of the places from ``low`` to before ``high``, in an order of sums that the processor likes."""
    total, first = 0.0, low if low > 0 else 0  # that no place is negative lets the loop run on vectors
    for i in range(high - first):
        total += x[first + i] * y[first + i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def back_solve(L: Any, m: int, x: Any) -> None:
    """``x <- L^-T x`` with the first m rows of L."""
    for i in range(m - 1, -1, -1):
        x[i] /= L[i, i]
        for l in range(i):
            x[l] -= L[i, l] * x[i]


@njit(cache=True, nogil=True, error_model="numpy")
def forward_solve(L: Any, m: int, x: Any) -> None:
    """``x <- L^-1 x`` with the first m rows of L."""
    for i in range(m):
        x[i] = (x[i] - inner(L[i], x, 0, i)) / L[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def extend(
    room: Any, K: Any, jitter: float, w: Any, b: Any, g: float, j: int, G: Any, R: Any, L: Any, z: Any, k: int
) -> float:
    """Append row j to the factors, in the place after the k in use, and return the log likelihood ratio.

    The new basis function is ``e = (K_j - F r)/rho`` with ``r = F_j``. Both pivots have an exact lower bound.
    """
    n, r, l = len(K), R[k], L[k + 1]
    e, weighted = G[k + 1], room.rows[1]
    for a in range(k):
        r[a] = G[a + 1, j]
    rho = math.sqrt(max(K[j, j] + jitter - inner(r, r, 0, k), jitter))
    r[k] = rho
    if k:
        rmatvec(room.gemv, G, n, n, k, n, r, e)
    for i in range(n):
        e[i] = (K[j, i] - (e[i] if k else 0.0)) / rho
        weighted[i] = w[i] * e[i]
    matvec(room.gemv, G, 0, n, k + 1, n, weighted, l)
    forward_solve(L, k + 1, l)
    pivot = math.sqrt(max(inner(weighted, e, 0, n) + g - inner(l, l, 0, k + 1), g))
    l[k + 1] = pivot
    pull = (inner(e, b, 0, n) - inner(l, z, 0, k + 1)) / pivot
    z[k + 1] = pull
    return 0.5 * (math.log(g) + pull * pull) - math.log(pivot)


@njit(cache=True, nogil=True, error_model="numpy")
def leaving(R: Any, L: Any, k: int, a: int, q: Any, x: Any) -> None:
    """The direction of alpha that vanishes with the coefficient in place a, ``q = R^-1 1_a``, and ``x = L^-1 [0; q]``.

    Both are zero before the place.
    """
    for i in range(a):
        q[i] = x[i] = 0.0
    q[a], x[a] = 1.0 / R[a, a], 0.0
    for i in range(a + 1, k):
        q[i] = -inner(R[i], q, a, i) / R[i, i]
    for i in range(a + 1, k + 1):
        x[i] = (q[i - 1] - inner(L[i], x, a + 1, i)) / L[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def log_death(R: Any, L: Any, z: Any, g: float, k: int, a: int, q: Any, x: Any) -> float:
    """Log likelihood ratio of removing the coefficient in place a: density of ``q'alpha = 0``, posterior over prior.

    ``q`` and ``x`` become those of ``leaving``.
    """
    leaving(R, L, k, a, q, x)
    size, square = inner(q, q, a, k), inner(x, x, a + 1, k + 1)
    pull = inner(x, z, a + 1, k + 1)
    return 0.5 * (math.log(size / square) - math.log(g) - pull * pull / square)


@njit(cache=True, nogil=True, error_model="numpy")
def _rotate_rows(A: Any, i: int, size: int, c: float, s: float) -> None:
    """Rotate rows i and i + 1 of A, ``size`` numbers each."""
    x, y = A[i], A[i + 1]
    for l in range(size):
        old = x[l]
        x[l] = c * old + s * y[l]
        y[l] = c * y[l] - s * old


@njit(cache=True, nogil=True, error_model="numpy")
def _rotate_columns(A: Any, i: int, size: int) -> tuple[float, float]:
    """Rotate columns i and i + 1 of the first rows of A so that row i ends on its diagonal; cosine and sine."""
    length = math.hypot(A[i, i], A[i, i + 1])
    c, s = A[i, i] / length, A[i, i + 1] / length
    A[i, i], A[i, i + 1] = length, 0.0
    for l in range(i + 1, size):
        old = A[l, i]
        A[l, i] = c * old + s * A[l, i + 1]
        A[l, i + 1] = c * A[l, i + 1] - s * old
    return c, s


@njit(cache=True, nogil=True, error_model="numpy")
def drop(index: Any, G: Any, R: Any, L: Any, z: Any, k: int, a: int) -> None:
    """Take the row in place a out of the k rows of the factors.

    R without its row a is triangular but for one diagonal; rotations of columns mend it. The same rotations act on the
    basis and on the rows of L, whose own shape rotations of its columns, and of z, restore. The last place is free.
    """
    for i in range(a, k - 1):
        index[i] = index[i + 1]
        for l in range(i + 2):
            R[i, l] = R[i + 1, l]
    for i in range(a, k - 1):
        c, s = _rotate_columns(R, i, k - 1)
        _rotate_rows(G, i + 1, G.shape[1], c, s)
        L[i + 1, i + 2] = 0.0
        _rotate_rows(L, i + 1, i + 3, c, s)
        c, s = _rotate_columns(L, i + 1, k + 1)
        old = z[i + 1]
        z[i + 1] = c * old + s * z[i + 2]
        z[i + 2] = c * z[i + 2] - s * old
