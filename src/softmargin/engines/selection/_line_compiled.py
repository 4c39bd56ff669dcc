"""The hinge posterior on a line: exact values at the nodes of a grid, and draws from their interpolation.

Rows are scaled: with ``u_i = 2 c_i (1 - y_i f_i)`` and ``w_i`` the decrease of u_i per unit of t,

    f(t) = -sum_i max(u_i - t w_i, 0) - a t - q t^2 / 2

is concave and piecewise quadratic. Everything below depends on (u, w, a, q) alone, never on where a chain stands on
the line, which is what makes the draws independence proposals.
"""

from __future__ import annotations

import math
from typing import Any

from softmargin.rows.compiled import njit

__all__ = [
    "CELLS",
    "approximation",
    "begin_line",
    "combine",
    "draw_on_line",
    "line_grid",
    "loss_at",
    "value",
    "weighted_product",
]

CELLS = 64
_DROP, _DEEP, _AIM = 8.0, 60.0, 18.0  # how far f must, may and should fall from the mode to the ends of the grid
_STRETCH = 512  # rows that are combined at a time
_FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered, which lets them vectorise; NaN and inf keep their sense


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def loss_at(u: Any, w: Any, t: float) -> float:
    """``sum max(u - t w, 0)``."""
    total = 0.0
    for i in range(len(u)):
        gap = u[i] - t * w[i]
        total += gap if gap > 0.0 else 0.0
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _pull(u: Any, w: Any, t: float) -> float:
    """Minus the derivative of the loss: the sum of w over rows inside the margin."""
    total = 0.0
    for i in range(len(u)):
        total += w[i] if u[i] > t * w[i] else 0.0
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def combine(Z: Any, index: Any, V: Any, count: int, m: int, W: Any) -> None:
    """Add ``sum_k V[q, k] Z[index_k]`` to W[q] for the first ``count`` lines q.

    Four rows of Z at a time, in stretches that stay in the first-level cache while all lines use them.
    """
    n = W.shape[1]
    for low in range(0, n, _STRETCH):
        high = min(low + _STRETCH, n)
        k = 0
        while k + 4 <= m:  # slices: the compiler then knows that no place is negative, and the loops run on vectors
            a, b = Z[index[k], low:high], Z[index[k + 1], low:high]
            c, d = Z[index[k + 2], low:high], Z[index[k + 3], low:high]
            for q in range(count):
                va, vb, vc, vd, w = V[q, k], V[q, k + 1], V[q, k + 2], V[q, k + 3], W[q, low:high]
                for i in range(high - low):
                    w[i] += va * a[i] + vb * b[i] + vc * c[i] + vd * d[i]
            k += 4
        while k < m:
            a = Z[index[k], low:high]
            for q in range(count):
                va, w = V[q, k], W[q, low:high]
                for i in range(high - low):
                    w[i] += va * a[i]
            k += 1


@njit(cache=True, nogil=True, error_model="numpy")
def begin_line(Z: Any, j: int, place: int, w: Any) -> None:
    """What column j itself adds to its line: nothing where it is active, and so among those that are combined."""
    for i in range(len(w)):
        w[i] = Z[j, i] if place < 0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def weighted_product(K: Any, Z: Any, j: int, l: int) -> float:
    """``sum_i K_i Z_ji Z_li``."""
    total = 0.0
    for i in range(len(K)):
        total += K[i] * Z[j, i] * Z[l, i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _kinks(u: Any, w: Any, low: float, high: float, found: Any) -> int:
    """List the rows whose kink lies between two points."""
    count = 0
    for i in range(len(u)):
        found[count] = i
        count += (u[i] - low * w[i] > 0.0) != (u[i] - high * w[i] > 0.0)
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def value(u: Any, w: Any, a: float, q: float, t: float) -> float:
    """f(t)."""
    return -loss_at(u, w, t) - (a + 0.5 * q * t) * t


@njit(cache=True, nogil=True, error_model="numpy")
def _mode(u: Any, w: Any, a: float, q: float, h: float) -> tuple[float, float]:
    """A point within a fraction of a standard deviation of the mode, and a guess of that deviation.

    Secant steps from t = 0 with first curvature h, kept inside the bracket that the signs of the slope give.
    """
    t, curvature, cap = 0.0, max(h, q), math.inf
    left, right, rise, fall = -math.inf, math.inf, 0.0, 0.0
    g = _pull(u, w, t) - a
    for count in range(80):
        if g > 0.0:
            left, rise = t, g
        else:
            right, fall = t, -g
        if abs(g) < 0.3 * math.sqrt(curvature) or (right - left) * max(rise, fall) < 0.3:
            break
        step = min(max(g / curvature, -cap), cap)
        new = t + step
        if not left < new < right or (count % 4 == 3 and right - left < math.inf):
            new = 0.5 * (left + right)
        cap = 8.0 * abs(new - t)
        last, g = g, _pull(u, w, new) - a - q * new
        if new == t:
            break
        curvature = max((last - g) / (new - t), q)
        t = new
    return t, 1.0 / math.sqrt(curvature)


@njit(cache=True, nogil=True, error_model="numpy")
def _reach(u: Any, w: Any, a: float, q: float, t: float, top: float, length: float) -> float:
    """How far to go from t so that f has fallen by an amount between _DROP and _DEEP; the sign is the direction."""
    near, far = 0.0, math.inf  # lengths known to be too short and too long
    for _ in range(200):
        drop = top - value(u, w, a, q, t + length)
        if drop < _DROP:
            near = abs(length)
            factor = min(max(math.sqrt(_AIM / max(drop, 1e-3)), 1.5), 4.0)
        elif drop > _DEEP:
            far = abs(length)
            factor = max(math.sqrt(_AIM / drop), 0.1)
        else:
            break
        if not near < factor * abs(length) < far:
            factor = 0.5 * (near + far) / abs(length)
        length *= factor
    return length


@njit(cache=True, nogil=True, error_model="numpy")
def line_grid(u: Any, w: Any, a: float, q: float, h: float, kinks: Any, grid: Any) -> tuple[float, float, float]:
    """Fill ``grid`` with the interpolation of f; return its start, its cell width and log of its integral.

    Row 0 of the (3, CELLS + 2) array holds f at the nodes, row 1 the correction of every cell for the concavity
    that the chord misses, row 2 the masses: left tail, cells, right tail, relative to the largest node. ``kinks`` is
    room for one number more than there are rows.
    """
    t, sd = _mode(u, w, a, q, h)
    top = value(u, w, a, q, t)
    low = t + _reach(u, w, a, q, t, top, -6.0 * sd)
    high = t + _reach(u, w, a, q, t, top, 6.0 * sd)
    width = (high - low) / CELLS
    node, bend, mass = grid[0], grid[1], grid[2]
    # a row whose kink lies in cell k adds |w| (t - kink) to the loss beyond it: two sums per cell give all nodes
    for k in range(CELLS + 1):
        node[k], bend[k] = 0.0, 0.0
    start, slope = loss_at(u, w, low), _pull(u, w, low)
    for r in range(_kinks(u, w, low, high, kinks)):
        i = kinks[r]
        fall = w[i]
        at_low = u[i] - low * fall
        k = min(max(int(at_low / (width * fall)), 0), CELLS - 1)
        node[k] += abs(fall)
        bend[k] += abs(at_low)
    weight, moment = 0.0, 0.0
    for k in range(CELLS + 1):
        extra, shift = node[k], bend[k]
        s = k * width
        x = low + s
        node[k] = -(start - slope * s + weight * s - moment) - (a + 0.5 * q * x) * x
        weight += extra
        moment += shift
    best = node[0]
    for k in range(1, CELLS + 1):
        best = max(best, node[k])
    before = 2.0 * node[1] - node[0] - node[2]
    for k in range(CELLS):
        after = before
        if 1 <= k + 1 < CELLS:
            after = 2.0 * node[k + 1] - node[k] - node[k + 2]
        bend[k] = max(before + after, 0.0) / 24.0
        before = after
    total = 0.0
    for k in range(CELLS):
        here, there = node[k], node[k + 1]
        d = abs(there - here)
        flat = (1.0 - math.exp(-d)) / d if d > 1e-5 else 1.0 - 0.5 * d
        part = width * flat * math.exp(max(here, there) - best + bend[k])
        mass[k + 1] = part
        total += part
    first, final = node[0], node[CELLS]
    left = width * math.exp(first - best) / max(node[1] - first, 1e-300)
    right = width * math.exp(final - best) / max(node[CELLS - 1] - final, 1e-300)
    mass[0], mass[CELLS + 1] = left, right
    total += left + right
    return low, width, best + math.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def approximation(grid: Any, low: float, width: float, t: float) -> float:
    """The interpolation of f at t: chord plus correction in a cell, straight lines beyond the ends."""
    node = grid[0]
    x = (t - low) / width
    if x >= CELLS:
        last = node[CELLS]
        return last + (last - node[CELLS - 1]) * (x - CELLS)
    k = int(x) if x >= 0.0 else 0
    here = node[k]
    chord = here + (node[k + 1] - here) * (x - k)
    return chord + grid[1, k] if x >= 0.0 else chord


@njit(cache=True, nogil=True, error_model="numpy")
def draw_on_line(rng: Any, grid: Any, low: float, width: float) -> float:
    """A draw from exp of the interpolation."""
    node, mass = grid[0], grid[2]
    total, k = 0.0, 0
    for cell in range(CELLS + 2):
        total += mass[cell]
    left = rng.random() * total
    while k < CELLS + 1 and left >= mass[k]:
        left -= mass[k]
        k += 1
    away = -math.log(1.0 - rng.random())  # distance from the higher end in units of 1/slope
    if k == 0:
        return low - width * away / (node[1] - node[0])
    if k == CELLS + 1:
        return low + width * (CELLS + away / (node[CELLS - 1] - node[CELLS]))
    d = node[k] - node[k - 1]
    size = abs(d)
    # truncate the exponential to the cell by inversion
    uniform = 1.0 - math.exp(-away)
    part = -math.log1p(-uniform * (1.0 - math.exp(-size))) / size if size > 1e-5 else uniform
    return low + width * (k - 1 + (1.0 - part if d > 0.0 else part))
