"""Compiled passes over sparse rows for coordinate descent on the multipliers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.compiled import njit

__all__ = ["Rows", "slopes", "sweep", "towards"]

_INNER = 200  # conjugate-gradient iterations of a joint move at most
_fast: Any = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract"}}


class Rows(NamedTuple):
    """Signed rows in the metric of the prior, ``z_i = sqrt(1/tau) y_i (x_i - shift)``, as entries and a shift.

    Places have no sign: that spares compiled loops the test for negative ones.
    """

    data: Array  # entries, scaled and signed, without the shift
    indices: Any
    indptr: Any
    y: Array
    along: Array  # product of the entries of every row with the shift
    square: float  # squared length of the shift
    top: Array  # upper end of the box
    size: Array  # squared length of the rows, and what the intercept adds
    width: int  # number of columns
    rho: float  # variance of the intercept around its last value; zero without an intercept
    keep: float  # what its prior leaves of the last value


@njit(**_fast)
def _sums(rows: Any, g: Any) -> Any:
    """The sum of the entries of the rows times g, and those of y and of ``along``."""
    sums, total, crossed = np.zeros(rows.width), 0.0, 0.0
    for i in range(len(g)):
        if g[i] != 0.0:
            for s in range(rows.indptr[i], rows.indptr[i + 1]):
                sums[rows.indices[s]] += g[i] * rows.data[s]
            total += rows.y[i] * g[i]
            crossed += rows.along[i] * g[i]
    return sums, total, crossed


@njit(**_fast)
def slopes(rows: Any, g: Any, base: float) -> Any:
    """Derivatives ``z_i'Z'g + y_i b - 1`` of the dual, b the intercept that goes with g."""
    sums, total, crossed = _sums(rows, g)
    level = total * (rows.square + rows.rho) - crossed + rows.keep * base
    out = np.empty(len(g))
    for i in range(len(g)):
        product = 0.0
        for s in range(rows.indptr[i], rows.indptr[i + 1]):
            product += rows.data[s] * sums[rows.indices[s]]
        out[i] = product - total * rows.along[i] + rows.y[i] * level - 1.0
    return out


@njit(**_fast)
def sweep(rows: Any, g: Any, base: float, most: int, settled: float, state: Any) -> float:
    """Sweeps that take one multiplier after the other, in random order, to its best value given the others.

    The intercept follows after each sweep; the last one is returned. A multiplier at an end of its box whose slope
    presses against it more than any slope of the last sweep pulled is left out from then on. Sweeps end when no more
    than a share ``settled`` of the multipliers inside the box has come or gone in one. ``state`` is that of a xorshift
    generator.
    """
    sums, total, crossed = _sums(rows, g)
    constant = rows.square + rows.rho
    order, active, inside = np.arange(len(g)), len(g), 0
    for i in range(len(g)):
        inside += 0.0 < g[i] < rows.top[i]
    word = state[0]
    above, below = np.inf, -np.inf
    for _ in range(most):
        highest, lowest, changes, at = 0.0, 0.0, 0, 0
        level = rows.keep * base
        while at < active:
            word ^= word << np.uint64(13)
            word ^= word >> np.uint64(7)
            word ^= word << np.uint64(17)
            pick = at + np.int64(((word >> np.uint64(32)) * np.uint64(active - at)) >> np.uint64(32))
            i = order[pick]
            order[pick] = order[at]
            product = 0.0
            for s in range(rows.indptr[i], rows.indptr[i + 1]):
                product += rows.data[s] * sums[rows.indices[s]]
            slope = product - total * rows.along[i] + rows.y[i] * (total * constant - crossed + level) - 1.0
            old, top = g[i], rows.top[i]
            if (old == 0.0 and slope > above) or (old == top and slope < below):
                active -= 1
                order[at] = order[active]
                order[active] = i
                continue
            order[at] = i
            at += 1
            new = min(max(old - slope / rows.size[i], 0.0), top)
            change = new - old
            if change != 0.0:
                highest, lowest = max(highest, slope), min(lowest, slope)
                entered = (0.0 < new < top) - (0.0 < old < top)
                inside += entered
                changes += abs(entered)
                g[i] = new
                for s in range(rows.indptr[i], rows.indptr[i + 1]):
                    sums[rows.indices[s]] += change * rows.data[s]
                total += change * rows.y[i]
                crossed += change * rows.along[i]
        base = level + rows.rho * total
        if changes <= settled * inside:
            break
        above = highest if highest > 0.0 else np.inf
        below = lowest if lowest < 0.0 else -np.inf
    state[0] = word
    return base


@njit(**_fast)
def towards(rows: Any, index: Any, slope: Any, g: Any, goal: float, clear: float) -> Any:
    """The move of the multipliers of the rows ``index`` that makes their slopes zero, by conjugate gradients.

    It ends when these rows add less than ``goal`` to the duality gap, as they are or lifted over the margin, or early
    where only ``clear`` of the squared residual is left and a multiplier would leave its box.
    """
    m, constant = len(index), rows.square + rows.rho
    d, r, p, ahead, sums = np.zeros(m), np.empty(m), np.empty(m), np.empty(m), np.empty(rows.width)
    rz = 0.0
    for k in range(m):
        r[k] = -slope[index[k]]
        p[k] = r[k] / rows.size[index[k]]
        rz += r[k] * p[k]
    clear *= rz
    for _ in range(_INNER):
        sums[:] = 0.0
        total, crossed, bend, length = 0.0, 0.0, 0.0, 0.0
        for k in range(m):
            i = index[k]
            for s in range(rows.indptr[i], rows.indptr[i + 1]):
                sums[rows.indices[s]] += p[k] * rows.data[s]
            total += rows.y[i] * p[k]
            crossed += rows.along[i] * p[k]
        for k in range(m):
            i = index[k]
            product = 0.0
            for s in range(rows.indptr[i], rows.indptr[i + 1]):
                product += rows.data[s] * sums[rows.indices[s]]
            ahead[k] = product - total * rows.along[i] + rows.y[i] * (total * constant - crossed)
            bend += p[k] * ahead[k]
            length += rows.size[i] * p[k] * p[k]
        if bend <= 1e-14 * length:  # more rows than directions: sweeps settle the rest
            break
        step, new, leaves = rz / bend, 0.0, False
        gap, short, pulls, total = 0.0, 0.0, 0.0, 0.0
        for k in range(m):
            i = index[k]
            d[k] += step * p[k]
            r[k] -= step * ahead[k]
            new += r[k] * r[k] / rows.size[i]
            low = g[i] + d[k]
            high = rows.top[i] - low
            leaves = leaves or low < 0.0 or high < 0.0
            gap += max(r[k] * high, -r[k] * low)
            short, pulls, total = max(short, r[k]), pulls + r[k] * low, total + low
        if new <= clear if leaves else min(gap, short * total - pulls) <= goal:
            break
        for k in range(m):
            p[k] = r[k] / rows.size[index[k]] + (new / rz) * p[k]
        rz = new
    return d
