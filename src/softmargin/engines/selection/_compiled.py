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
    w: Array  # the first line of W, and of V
    v: Array
    rest: Array  # of the rows, without the coefficient that moves
    inside: Array
    g: Array  # this and what follows, but for the last two: as many as columns
    row: Array
    score: Array
    alpha: Array
    active: Array
    pull: Array
    grid: Array
    kinks: Any


class Informed(NamedTuple):
    """More of them, for moves that score their candidates."""

    inverse: Array
    explained: Array


def room_for(n: int, p: int) -> Room:
    """Room for n rows and p columns."""
    W, V = np.empty((_BATCH, n)), np.empty((_BATCH, p))
    rows, columns, grid = np.empty((2, n)), np.empty((6, p)), np.empty((3, CELLS + 2))
    kinks: Any = np.empty(n + 1, dtype=np.int32)
    return Room._make([W, V, np.empty(_BATCH), W[0], V[0], *rows, *columns, grid, kinks])


@njit(cache=True, nogil=True, error_model="numpy")
def cross_row(gemv: int, rule: Any, j: int, room: Any) -> None:
    """Row j of ``X'KX`` into the room: copied where the whole is known, one pass over the columns otherwise."""
    Z, K, full = rule.Z, rule.K, rule.full
    weighted, out = room.inside, room.row
    if full.shape[0]:
        for l in range(len(out)):
            out[l] = full[j, l]
        return
    for i in range(len(K)):
        weighted[i] = K[i] * Z[j, i]
    matvec(gemv, Z, 0, len(K), len(Z), len(K), weighted, out)


@njit(cache=True, nogil=True, error_model="numpy")
def _cross_column(rule: Any, index: Any, m: int, j: int, g: Any) -> None:
    """Entries of column j of ``X'KX`` in the active rows."""
    full = rule.full
    for k in range(m):
        g[k] = full[index[k], j] if full.shape[0] else weighted_product(rule.K, rule.Z, j, index[k])


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
            j, vk = index[k], v[k]
            d = D[j] * vk
            linear += d * (beta[j] - b * vk)
            quadratic += d * vk
    return linear, quadratic


@njit(cache=True, nogil=True, error_model="numpy")
def add(block: Any, m: int, row: Any, j: int, v: Any, h: float) -> None:
    """Enter j in place m; v and h are those of its line."""
    R, cross = block.R, block.cross
    for k in range(m):
        vk = v[k]
        for l in range(m):
            R[k, l] += vk * v[l] / h
        R[k, m] = R[m, k] = vk / h
    R[m, m] = 1.0 / h
    for l in range(len(row)):
        cross[m, l] = row[l]
    block.index[m], block.place[j] = j, m


@njit(cache=True, nogil=True, error_model="numpy")
def remove(block: Any, m: int, a: int) -> None:
    """Take out place a and move the last active coefficient there."""
    R, cross = block.R, block.cross
    index, place = block.index, block.place
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
        moved = index[last]
        index[a], place[moved] = moved, a


@njit(cache=True, nogil=True, error_model="numpy")
def _lines(rule: Any, block: Any, picks: Any, first: int, count: int, m: int, room: Any) -> None:
    """Directions, their predictors and curvatures for several coefficients in the same model."""
    index, R, g = block.index, block.R, room.g
    for q in range(count):
        j, v = picks[first + q], room.V[q]
        a = block.place[j]
        if a >= 0:
            h = direction_in(R, m, a, v)
        else:
            _cross_column(rule, index, m, j, g)
            h = rule.diagonal[j] + rule.D[j] + direction_out(R, m, g, v)
        room.H[q] = h
        begin_line(rule.Z, j, a, room.W[q])
    combine(rule.Z, index, room.V, count, m, room.W)


@njit(cache=True, nogil=True, error_model="numpy")
def flips(
    rng: Any, blas: Any, rule: Any, block: Any, m: int, picks: Any, beta: Any, u: Any, inclusion: Any, counts: Any,
    room: Any,
) -> tuple[int, int]:  # fmt: skip
    """Visit the coefficients ``picks`` in turn: draw (in or out, value) along the line of each.

    Returns the number of active coefficients and how many picks were visited: fewer than all if the packed arrays
    are full. ``counts`` adds up visits, accepted moves, changes of the model; ``room`` is to work in.
    """
    n, D, logit = len(u), rule.D, rule.logit
    index, place = block.index, block.place
    u0, grid = room.rest, room.grid
    ready = stop = 0  # lines of the picks ready..stop are at hand; they hold until the model changes
    for visit in range(len(picks)):
        if m == len(index) and m < len(beta):
            return m, visit
        if visit >= stop:
            ready, stop = visit, min(visit + _BATCH, len(picks))
            _lines(rule, block, picks, ready, stop - ready, m, room)
        j, line = picks[visit], visit - ready
        v, w, h = room.V[line], room.W[line], room.H[line]
        a, d, prior = place[j], D[j], logit[j]
        inside = a >= 0
        b = beta[j] if inside else 0.0
        for i in range(n):
            u0[i] = u[i] + b * w[i]
        linear, quadratic = prior_terms(beta, D, index, m, v, b, a)
        quadratic += d
        low, width, log_mass = line_grid(u0, w, linear, quadratic, h, room.kinks, grid)
        log_odds = math.inf
        if prior < math.inf:
            log_odds = prior + 0.5 * (math.log(d) - _LOG_2PI) + log_mass - value(u0, w, linear, quadratic, 0.0)
        inclusion[j] = 1.0 / (1.0 + math.exp(-log_odds))
        # Metropolised Gibbs: propose the other side where the odds allow, then a fresh value if that is "in"
        log_uniform = math.log(1.0 - rng.random())
        enters = log_uniform >= -log_odds if inside else log_uniform < log_odds
        counts[0] += 1
        if not inside and not enters:
            counts[1] += 1
            continue
        ratio, t = 0.0, 0.0
        if enters:
            t = draw_on_line(rng, grid, low, width)
            ratio += value(u0, w, linear, quadratic, t) - approximation(grid, low, width, t)
        if inside:
            ratio -= value(u0, w, linear, quadratic, b) - approximation(grid, low, width, b)
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
            cross_row(blas.gemv, rule, j, room)
            add(block, m, room.row, j, v, h)
            m += 1
        elif inside and not enters:
            remove(block, m, a)
            m -= 1
        if enters != inside:
            stop = 0
            counts[2] += 1
    return m, len(picks)
