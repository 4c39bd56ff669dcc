"""Moves between models along compensated lines, with the row latents integrated out.

The active coefficients are packed: ``index[:m]`` lists them, ``place`` inverts it (-1 for those that are out),
``R`` is the inverse of the reference precision of the active block, ``cross[k]`` is the row of ``X'KX`` that belongs
to ``index[k]``. As beta_j moves by t, the other active coefficients move by t v with v the regression on beta_j that
the reference precision implies; v depends on the model and j only, so a move along the line keeps its conditioning.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.engines.selection._line_compiled import approximation, combine, draw_on_line, line_grid, value
from softmargin.rows.compiled import njit

__all__ = ["add", "cross_row", "direction_in", "direction_out", "flips", "prior_terms", "remove"]

_LOG_2PI = math.log(2.0 * math.pi)
_BATCH = 4  # lines made at a time: more are cheaper each, and more are lost when the model changes


@njit(cache=True, nogil=True, error_model="numpy")
def cross_row(Z: Any, K: Any, full: Any, j: int, out: Any) -> None:
    """Row j of ``X'KX``: copied where the whole is known, one pass over the columns otherwise."""
    if full.shape[0]:
        out[:] = full[j]
    else:
        np.dot(Z, K * Z[j], out)


@njit(cache=True, nogil=True, error_model="numpy")
def _cross_column(Z: Any, K: Any, full: Any, index: Any, m: int, j: int, g: Any) -> None:
    """Entries of column j of ``X'KX`` in the active rows."""
    if full.shape[0]:
        for k in range(m):
            g[k] = full[index[k], j]
        return
    weighted = K * Z[j]
    for k in range(m):
        g[k] = np.dot(Z[index[k]], weighted)


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
    cross[m] = row
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
        cross[a] = cross[last]
        index[a] = index[last]
        place[index[a]] = a


@njit(cache=True, nogil=True, error_model="numpy")
def _lines(
    Z: Any, K: Any, full: Any, diagonal: Any, D: Any, picks: Any, index: Any, place: Any, m: int, R: Any, g: Any,
    V: Any, W: Any, H: Any,
) -> None:  # fmt: skip
    """Directions, their predictors and curvatures for several coefficients in the same model."""
    for q in range(len(picks)):
        j = picks[q]
        a = place[j]
        if a >= 0:
            H[q] = direction_in(R, m, a, V[q])
            W[q] = 0.0
        else:
            _cross_column(Z, K, full, index, m, j, g)
            H[q] = diagonal[j] + D[j] + direction_out(R, m, g, V[q])
            W[q] = Z[j]
    combine(Z, index, V, len(picks), m, W)


@njit(cache=True, nogil=True, error_model="numpy")
def flips(
    rng: Any,
    Z: Any,
    K: Any,
    full: Any,
    diagonal: Any,
    D: Any,
    logit: Any,
    picks: Any,
    beta: Any,
    u: Any,
    index: Any,
    place: Any,
    m: int,
    R: Any,
    cross: Any,
    inclusion: Any,
    counts: Any,
) -> tuple[int, int]:
    """Visit the coefficients ``picks`` in turn: draw (in or out, value) along the line of each.

    Returns the number of active coefficients and how many picks were visited: fewer than all if the packed arrays
    are full. ``logit`` is the prior log odds, infinite for coefficients that are always in. ``counts`` adds up
    visits, accepted moves, changes of the model.
    """
    n = len(u)
    W, u0, V, H = np.empty((_BATCH, n)), np.empty(n), np.empty((_BATCH, len(index))), np.empty(_BATCH)
    g, row = np.empty(len(index)), np.empty(len(beta))
    grid = np.empty((3, 66))
    ready = stop = 0  # lines of the picks ready..stop are at hand; they hold until the model changes
    for visit in range(len(picks)):
        if m == len(index) and m < len(beta):
            return m, visit
        if visit >= stop:
            ready, stop = visit, min(visit + _BATCH, len(picks))
            _lines(Z, K, full, diagonal, D, picks[ready:stop], index, place, m, R, g, V, W, H)
        v, w, h = V[visit - ready], W[visit - ready], H[visit - ready]
        j = picks[visit]
        a = place[j]
        inside = a >= 0
        b = 0.0
        if inside:
            b = beta[j]
            for i in range(n):
                u0[i] = u[i] + b * w[i]
        else:
            u0[:] = u
        linear, quadratic = prior_terms(beta, D, index, m, v, b, a)
        quadratic += D[j]
        low, width, log_mass = line_grid(u0, w, linear, quadratic, h, grid)
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
            cross_row(Z, K, full, j, row)
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
