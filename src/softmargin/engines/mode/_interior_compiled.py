"""The rows inside an interior-point step, each pass over them in one compiled loop.

Rows have ``1 - y f = xi - s`` with multipliers g in (0, 2c) and ``v = 2c - g`` carried apart; the products ``xi v`` and
``s g`` go to zero. A step ``ahead`` of the predictors that sends them to an aim, given as additive changes a and b of
xi and s, moves g by ``dg = (toward - y ahead) / (xi/v + s/g)`` with ``toward = s - xi + 1 - y f - a + b``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.rows.compiled import njit

__all__ = ["advanced", "aim_at_zero", "aim_centred", "moved", "products"]

_fast = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


@_fast
def aim_at_zero(y: Any, f: Any, xi: Any, s: Any, v: Any, g: Any) -> tuple[Any, Any, Any, float]:
    """Weights of the rows, the way ``toward`` products of zero, its message ``y w toward``, and the sum of products."""
    n = len(y)
    w, toward, message = np.empty(n), np.empty(n), np.empty(n)
    total = 0.0
    for i in range(n):
        total += xi[i] * v[i] + s[i] * g[i]
        w[i] = v[i] * g[i] / (xi[i] * g[i] + s[i] * v[i])
        toward[i] = 1.0 - y[i] * f[i]
        message[i] = y[i] * w[i] * toward[i]
    return w, toward, message, total


@_fast
def moved(
    y: Any, ahead: Any, xi: Any, s: Any, v: Any, g: Any, w: Any, toward: Any, a: Any, b: Any
) -> tuple[Any, Any, Any, tuple[float, float]]:
    """Changes of xi, s and g, and the largest relative falls of (xi, s) and of (v, g)."""
    n = len(y)
    dxi, ds, dg = np.empty(n), np.empty(n), np.empty(n)
    fall, dual_fall = 0.0, 0.0
    for i in range(n):
        d = (toward[i] - y[i] * ahead[i]) * w[i]
        p = a[i] + xi[i] * d / v[i]
        q = b[i] - s[i] * d / g[i]
        fall = max(fall, max(-p / xi[i], -q / s[i]))
        dual_fall = max(dual_fall, max(d / v[i], -d / g[i]))
        dxi[i], ds[i], dg[i] = p, q, d
    return dxi, ds, dg, (fall, dual_fall)


@_fast
def products(xi: Any, s: Any, v: Any, g: Any, dxi: Any, ds: Any, dg: Any, length: float, dual: float) -> float:
    """Sum of the products after a step: of positive terms, because their parts would cancel."""
    total = 0.0
    for i in range(len(xi)):
        total += (xi[i] + length * dxi[i]) * (v[i] - dual * dg[i]) + (s[i] + length * ds[i]) * (g[i] + dual * dg[i])
    return total


@_fast
def aim_centred(
    y: Any, f: Any, xi: Any, s: Any, v: Any, g: Any, w: Any, dxi: Any, ds: Any, dg: Any, target: float
) -> tuple[Any, Any, Any, Any]:
    """Aims that send the products to ``target`` with the second-order products of a first step; toward, message."""
    n = len(y)
    a, b, toward, message = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        a[i] = (target + dxi[i] * dg[i]) / v[i] - xi[i]
        b[i] = (target - ds[i] * dg[i]) / g[i] - s[i]
        toward[i] = 1.0 - y[i] * f[i] - xi[i] + s[i] - a[i] + b[i]
        message[i] = y[i] * w[i] * toward[i]
    return a, b, toward, message


@_fast
def advanced(
    xi: Any, s: Any, v: Any, g: Any, dxi: Any, ds: Any, dg: Any, length: float, dual: float
) -> tuple[Any, Any, Any, Any]:
    """The rows after a step."""
    n = len(xi)
    new_xi, new_s, new_v, new_g = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        new_xi[i], new_s[i] = xi[i] + length * dxi[i], s[i] + length * ds[i]
        new_v[i], new_g[i] = v[i] - dual * dg[i], g[i] + dual * dg[i]
    return new_xi, new_s, new_v, new_g
