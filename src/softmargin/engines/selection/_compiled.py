"""Moves between models along compensated lines, with the row latents integrated out.

The active coefficients are packed: ``index[:m]`` lists them, ``place`` inverts it (-1 for those that are out),
``R`` is the inverse of the reference precision of the active block, ``cross[k]`` is the row of ``X'KX`` that belongs
to ``index[k]``. As beta_j moves by t, the other active coefficients move by t v with v the regression on beta_j that
the reference precision implies; v depends on the model and j only, so a move along the line keeps its conditioning.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.engines.products import matvec
from softmargin.engines.selection._line_compiled import (
    CELLS,
    approximation,
    begin_line,
    combine,
    draw_on_line,
    line_grid,
    value,
    weighted_product,
)
from softmargin.rows.compiled import njit

__all__ = [
    "Informed",
    "Room",
    "Rule",
    "add",
    "cross_row",
    "direction_in",
    "direction_out",
    "flips",
    "prior_terms",
    "remove",
    "room_for",
]

_LOG_2PI = math.log(2.0 * math.pi)
_BATCH = 4  # lines made at a time: more are cheaper each, and more are lost when the model changes


class Rule(NamedTuple):
    """What the moves of a sweep have in common: columns, the reference precision, and the prior."""

    Z: Array
    K: Array
    full: Array
    diagonal: Array
    D: Array
    logit: Array  # prior log odds, infinite for coefficients that are always in


class Room(NamedTuple):
    """Arrays to work in, made outside compiled code."""

    W: Array  # (lines, rows of the data)
    V: Array  # (lines, active coefficients)
    H: Array
    rows: Array  # (vectors, rows of the data)
    columns: Array  # (vectors, columns of the data)
    grid: Array
    kinks: Any


class Informed(NamedTuple):
    """More of them, for moves that score their candidates."""

    inverse: Array
    explained: Array


def room_for(n: int, p: int) -> Room:
    """Room for n rows and p columns."""
    return Room(
        np.empty((_BATCH, n)), np.empty((_BATCH, p)), np.empty(_BATCH), np.empty((2, n)), np.empty((6, p)),
        np.empty((3, CELLS + 2)), np.empty(n + 1, dtype=np.int32),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def cross_row(gemv: int, Z: Any, K: Any, full: Any, j: int, weighted: Any, out: Any) -> None:
    """Row j of ``X'KX``: copied where the whole is known, one pass over the columns otherwise."""
    if full.shape[0]:
        for l in range(len(out)):
            out[l] = full[j, l]
        return
    for i in range(len(K)):
        weighted[i] = K[i] * Z[j, i]
    matvec(gemv, Z, 0, len(K), len(Z), len(K), weighted, out)


@njit(cache=True, nogil=True, error_model="numpy")
def _cross_column(Z: Any, K: Any, full: Any, index: Any, m: int, j: int, g: Any) -> None:
    """Entries of column j of ``X'KX`` in the active rows."""
    if full.shape[0]:
        for k in range(m):
            g[k] = full[index[k], j]
        return
    for k in range(m):
        g[k] = weighted_product(K, Z, j, index[k])


@njit(cache=True, nogil=True, error_model="numpy")
def direction_out(R: Any, m: int, g: Any, v: Any) -> float:
    """Line of a coefficient that is out, with g its column of P; returns ``sum g v``, which P_jj turns into h."""
    total = 0.0
    for k in range(m):
        s = 0.0
        for l in range(m):
            s -= R[k, l] * g[l]
        v[k] = s
        total += s * g[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def direction_in(R: Any, m: int, a: int, v: Any) -> float:
    """Line of the active coefficient in place a, where v is 1; returns the curvature of the reference."""
    scale = 1.0 / R[a, a]
    for k in range(m):
        v[k] = R[k, a] * scale
    return scale


@njit(cache=True, nogil=True, error_model="numpy")
def prior_terms(beta: Any, D: Any, index: Any, m: int, v: Any, b: float, a: int) -> tuple[float, float]:
    """Linear and quadratic term of the prior of the active coefficients but place a, at beta - b v + t v."""
    linear, quadratic = 0.0, 0.0
    for k in range(m):
        if k != a:
            d = D[index[k]] * v[k]
            linear += d * (beta[index[k]] - b * v[k])
            quadratic += d * v[k]
    return linear, quadratic


@njit(cache=True, nogil=True, error_model="numpy")
def add(index: Any, place: Any, m: int, R: Any, cross: Any, row: Any, j: int, v: Any, h: float) -> None:
    """Enter j in place m; v and h are those of its line."""
    for k in range(m):
        for l in range(m):
            R[k, l] += v[k] * v[l] / h
        R[k, m] = R[m, k] = v[k] / h
    R[m, m] = 1.0 / h
    for l in range(len(row)):
        cross[m, l] = row[l]
    index[m], place[j] = j, m


@njit(cache=True, nogil=True, error_model="numpy")
def remove(index: Any, place: Any, m: int, R: Any, cross: Any, a: int) -> None:
    """Take out place a and move the last active coefficient there."""
    last, pivot = m - 1, R[a, a]
    for k in range(m):
        if k != a:
            ratio = R[k, a] / pivot
            for l in range(m):
                if l != a:
                    R[k, l] -= ratio * R[a, l]
    place[index[a]] = -1
    if a != last:
        for k in range(m):
            R[a, k] = R[last, k]
        for k in range(m):
            R[k, a] = R[k, last]
        for l in range(cross.shape[1]):
            cross[a, l] = cross[last, l]
        index[a] = index[last]
        place[index[a]] = a


@njit(cache=True, nogil=True, error_model="numpy")
def _lines(
    Z: Any, K: Any, full: Any, diagonal: Any, D: Any, picks: Any, first: int, count: int, index: Any, place: Any,
    m: int, R: Any, g: Any, V: Any, W: Any, H: Any,
) -> None:  # fmt: skip
    """Directions, their predictors and curvatures for several coefficients in the same model."""
    for q in range(count):
        j = picks[first + q]
        a = place[j]
        if a >= 0:
            H[q] = direction_in(R, m, a, V[q])
        else:
            _cross_column(Z, K, full, index, m, j, g)
            H[q] = diagonal[j] + D[j] + direction_out(R, m, g, V[q])
        begin_line(Z, j, a, W[q])
    combine(Z, index, V, count, m, W)


@njit(cache=True, nogil=True, error_model="numpy")
def flips(
    rng: Any, blas: Any, rule: Any, block: Any, m: int, picks: Any, beta: Any, u: Any, inclusion: Any, counts: Any,
    room: Any,
) -> tuple[int, int]:  # fmt: skip
    """Visit the coefficients ``picks`` in turn: draw (in or out, value) along the line of each.

    Returns the number of active coefficients and how many picks were visited: fewer than all if the packed arrays
    are full. ``counts`` adds up visits, accepted moves, changes of the model; ``room`` is to work in.
    """
    n, (Z, K, full, diagonal, D, logit), (index, place, R, cross) = len(u), rule, block
    W, V, H, grid, kinks = room.W, room.V, room.H, room.grid, room.kinks
    u0, weighted, g, row = room.rows[0], room.rows[1], room.columns[0], room.columns[1]
    ready = stop = 0  # lines of the picks ready..stop are at hand; they hold until the model changes
    for visit in range(len(picks)):
        if m == len(index) and m < len(beta):
            return m, visit
        if visit >= stop:
            ready, stop = visit, min(visit + _BATCH, len(picks))
            _lines(Z, K, full, diagonal, D, picks, ready, stop - ready, index, place, m, R, g, V, W, H)
        v, w, h = V[visit - ready], W[visit - ready], H[visit - ready]
        j = picks[visit]
        a = place[j]
        inside = a >= 0
        b = beta[j] if inside else 0.0
        for i in range(n):
            u0[i] = u[i] + b * w[i]
        linear, quadratic = prior_terms(beta, D, index, m, v, b, a)
        quadratic += D[j]
        low, width, log_mass = line_grid(u0, w, linear, quadratic, h, kinks, grid)
        log_odds = math.inf
        if logit[j] < math.inf:
            log_odds = logit[j] + 0.5 * (math.log(D[j]) - _LOG_2PI) + log_mass - value(u0, w, linear, quadratic, 0.0)
        inclusion[j] = 1.0 / (1.0 + math.exp(-log_odds))
        # Metropolised Gibbs: propose the other side where the odds allow, then a fresh value if that is "in"
        log_uniform = math.log(1.0 - rng.random())
        enters = log_uniform >= -log_odds if inside else log_uniform < log_odds
        if not inside and not enters:
            counts[0] += 1
            counts[1] += 1
            continue
        ratio, t = 0.0, 0.0
        if enters:
            t = draw_on_line(rng, grid, low, width)
            ratio += value(u0, w, linear, quadratic, t) - approximation(grid, low, width, t)
        if inside:
            ratio -= value(u0, w, linear, quadratic, b) - approximation(grid, low, width, b)
        counts[0] += 1
        if math.log(1.0 - rng.random()) >= ratio:
            continue
        counts[1] += 1
        for k in range(m):
            if k != a:
                beta[index[k]] += (t - b) * v[k]
        beta[j] = t
        for i in range(n):
            u[i] = u0[i] - t * w[i]
        if enters and not inside:
            cross_row(blas.gemv, Z, K, full, j, weighted, row)
            add(index, place, m, R, cross, row, j, v, h)
            m += 1
            stop = 0
            counts[2] += 1
        elif inside and not enters:
            remove(index, place, m, R, cross, a)
            m -= 1
            stop = 0
            counts[2] += 1
    return m, len(picks)
