"""Informed moves between models: candidates are scored in one pass over the columns.

The packed active block is that of ``_compiled.py``. A score is the log odds of entering if the posterior were
normal with the reference precision; it decides who is proposed, the line of the candidate decides what is accepted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.engines.selection._compiled import add, cross_row, direction_in, direction_out, prior_terms, remove
from softmargin.engines.selection._line_compiled import approximation, combine, draw_on_line, line_grid, value
from softmargin.rows.compiled import njit

__all__ = ["births", "swaps"]

_LOG_2PI = math.log(2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _line_out(Z: Any, R: Any, index: Any, m: int, j: int, g: Any, V: Any, W: Any) -> float:
    """Line of a coefficient that is out, in the only row of V and W."""
    total = direction_out(R, m, g, V[0])
    W[0] = Z[j]
    combine(Z, index, V, 1, m, W)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _line_in(Z: Any, R: Any, index: Any, m: int, a: int, V: Any, W: Any) -> float:
    """Line of the active coefficient in place a, in the only row of V and W."""
    h = direction_in(R, m, a, V[0])
    W[0] = 0.0
    combine(Z, index, V, 1, m, W)
    return h


@njit(cache=True, nogil=True, error_model="numpy")
def _scores(
    Z: Any,
    u0: Any,
    D: Any,
    diagonal: Any,
    logit: Any,
    alpha: Any,
    index: Any,
    place: Any,
    m: int,
    skip: int,
    packed: Any,
    cross: Any,
    temper: float,
    score: Any,
) -> None:
    """Approximate log odds of entering, for every coefficient that is out; -inf for the active ones.

    ``skip`` is the place of a coefficient that counts as out (-1: none); its row and column of ``packed``, the
    inverse of the active block, are zero.
    """
    inside = np.empty(len(u0))
    for i in range(len(u0)):
        inside[i] = 1.0 if u0[i] > 0.0 else 0.0
    G = np.dot(Z, inside)
    active = np.empty(m)
    for k in range(m):
        active[k] = G[index[k]] - D[index[k]] * alpha[k]
    pull = np.dot(packed, active)
    explained = np.dot(packed, cross[:m])
    for l in range(len(score)):
        if place[l] >= 0 and place[l] != skip:
            score[l] = -math.inf
            continue
        q, h = G[l], diagonal[l] + D[l]
        for k in range(m):
            q -= cross[k, l] * pull[k]
            h -= cross[k, l] * explained[k, l]
        h = max(h, 0.5 * D[l])
        score[l] = temper * (logit[l] + 0.5 * math.log(D[l] / h) + 0.5 * q * q / h)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_sum_without(score: Any, left_out: int) -> float:
    """Log of the sum of exponentials over all but one entry, with a maximum of its own."""
    top = -math.inf
    for l in range(len(score)):
        if l != left_out and score[l] > top:
            top = score[l]
    if top == -math.inf:
        return top
    total = 0.0
    for l in range(len(score)):
        if l != left_out:
            total += math.exp(score[l] - top)
    return top + math.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_without(rng: Any, score: Any, left_out: int, log_total: float) -> int:
    """An index with probability proportional to exp(score), one left out."""
    left, last = rng.random(), -1
    for l in range(len(score)):
        if l != left_out and score[l] > -math.inf:
            last = l
            left -= math.exp(score[l] - log_total)
            if left < 0.0:
                break
    return last


@njit(cache=True, nogil=True, error_model="numpy")
def _without(R: Any, m: int, a: int, packed: Any) -> None:
    """The inverse of the active block, contiguous; with a >= 0 that of the block without place a, zero there."""
    for k in range(m):
        for l in range(m):
            packed[k, l] = R[k, l]
    if a >= 0:
        for k in range(m):
            for l in range(m):
                packed[k, l] -= R[k, a] * R[l, a] / R[a, a]
        for k in range(m):
            packed[k, a] = packed[a, k] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _pick_active(rng: Any, index: Any, m: int, logit: Any, weight: Any) -> tuple[int, float]:
    """The place of an active coefficient that may leave, chosen by weight, and the sum of those weights."""
    total = 0.0
    for k in range(m):
        if logit[index[k]] < math.inf:
            total += weight[index[k]]
    left, chosen = rng.random() * total, -1
    for k in range(m):
        if logit[index[k]] < math.inf:
            chosen = k
            left -= weight[index[k]]
            if left < 0.0:
                break
    return chosen, total


@njit(cache=True, nogil=True, error_model="numpy")
def swaps(
    rng: Any,
    Z: Any,
    K: Any,
    full: Any,
    diagonal: Any,
    D: Any,
    logit: Any,
    times: int,
    weight: Any,
    temper: float,
    beta: Any,
    u: Any,
    index: Any,
    place: Any,
    m: int,
    R: Any,
    cross: Any,
    counts: Any,
) -> None:
    """Exchange an active coefficient for one that is out, chosen by its score where the first has left."""
    n, p = len(u), len(beta)
    W, V, W_new, V_new = np.empty((1, n)), np.empty((1, len(index))), np.empty((1, n)), np.empty((1, len(index)))
    w, v, w_new, v_new = W[0], V[0], W_new[0], V_new[0]
    u0, g = np.empty(n), np.empty(len(index))
    row, score, alpha = np.empty(p), np.empty(p), np.empty(len(index))
    packed, grid = np.empty((m, m)), np.empty((3, 66))
    for _ in range(times):
        a, total = _pick_active(rng, index, m, logit, weight)
        if a < 0:
            return
        counts[0] += 1
        j = index[a]
        b = beta[j]
        h = _line_in(Z, R, index, m, a, V, W)
        for k in range(m):
            alpha[k] = beta[index[k]] - b * v[k]
        alpha[a] = 0.0
        for i in range(n):
            u0[i] = u[i] + b * w[i]
        _without(R, m, a, packed)
        _scores(Z, u0, D, diagonal, logit, alpha, index, place, m, a, packed, cross, temper, score)
        forward = _log_sum_without(score, j)
        if forward == -math.inf:
            continue
        l = _draw_without(rng, score, j, forward)
        linear, quadratic = prior_terms(beta, D, index, m, v, b, a)
        quadratic += D[j]
        low, width, log_mass = line_grid(u0, w, linear, quadratic, h, grid)
        error = value(u0, w, linear, quadratic, b) - approximation(grid, low, width, b)
        old = logit[j] + 0.5 * math.log(D[j]) + log_mass + error - score[j]
        for k in range(m):
            g[k] = cross[k, l]
        h_new = diagonal[l] + D[l] + _line_out(Z, packed, index, m, l, g, V_new, W_new)
        linear, quadratic = 0.0, D[l]
        for k in range(m):
            linear += D[index[k]] * alpha[k] * v_new[k]
            quadratic += D[index[k]] * v_new[k] * v_new[k]
        low, width, log_mass = line_grid(u0, w_new, linear, quadratic, h_new, grid)
        t = draw_on_line(rng, grid, low, width)
        error = value(u0, w_new, linear, quadratic, t) - approximation(grid, low, width, t)
        new = logit[l] + 0.5 * math.log(D[l]) + log_mass + error - score[l]
        ratio = new - old + forward - _log_sum_without(score, l)
        ratio += math.log(weight[l] / (total - weight[j] + weight[l])) - math.log(weight[j] / total)
        if math.log(1.0 - rng.random()) >= ratio:
            continue
        counts[1] += 1
        for k in range(m):
            beta[index[k]] = alpha[k] + t * v_new[k]
        beta[j], beta[l] = 0.0, t
        for i in range(n):
            u[i] = u0[i] - t * w_new[i]
        remove(index, place, m, R, cross, a)
        v_new[a] = v_new[m - 1]
        cross_row(Z, K, full, l, row)
        add(index, place, m - 1, R, cross, row, l, v_new, h_new)


@njit(cache=True, nogil=True, error_model="numpy")
def births(
    rng: Any,
    Z: Any,
    K: Any,
    full: Any,
    diagonal: Any,
    D: Any,
    logit: Any,
    times: int,
    weight: Any,
    temper: float,
    beta: Any,
    u: Any,
    index: Any,
    place: Any,
    m: int,
    R: Any,
    cross: Any,
    counts: Any,
) -> tuple[int, int]:
    """Enter a coefficient chosen by its score, or let one chosen at random leave; a fair coin decides which.

    Returns the number of active coefficients and the tries made: fewer than ``times`` if the arrays are full.
    """
    n, p = len(u), len(beta)
    W, V, u0, g = np.empty((1, n)), np.empty((1, len(index))), np.empty(n), np.empty(len(index))
    w, v = W[0], V[0]
    row, score, alpha = np.empty(p), np.empty(p), np.empty(len(index))
    grid, even = np.empty((3, 66)), np.ones(p)
    for done in range(times):
        if m == len(index) and m < p:
            return m, done
        counts[0] += 1
        enters = rng.random() < 0.5
        log_uniform = math.log(1.0 - rng.random())
        if enters:
            packed = np.empty((m, m))
            _without(R, m, -1, packed)
            for k in range(m):
                alpha[k] = beta[index[k]]
            _scores(Z, u, D, diagonal, logit, alpha, index, place, m, -1, packed, cross, temper, score)
            total = _log_sum_without(score, -1)
            if total == -math.inf:
                continue
            j = _draw_without(rng, score, -1, total)
            for k in range(m):
                g[k] = cross[k, j]
            h = diagonal[j] + D[j] + _line_out(Z, R, index, m, j, g, V, W)
            linear, quadratic = prior_terms(beta, D, index, m, v, 0.0, -1)
            quadratic += D[j]
            low, width, log_mass = line_grid(u, w, linear, quadratic, h, grid)
            t = draw_on_line(rng, grid, low, width)
            ratio = value(u, w, linear, quadratic, t) - approximation(grid, low, width, t)
            ratio += logit[j] + 0.5 * (math.log(D[j]) - _LOG_2PI) + log_mass - value(u, w, linear, quadratic, 0.0)
            ratio -= score[j] - total
            leaving = 1  # how many could leave from the larger model
            for k in range(m):
                leaving += logit[index[k]] < math.inf
            if log_uniform >= ratio - math.log(leaving):
                continue
            for k in range(m):
                beta[index[k]] += t * v[k]
            beta[j] = t
            for i in range(n):
                u[i] -= t * w[i]
            cross_row(Z, K, full, j, row)
            add(index, place, m, R, cross, row, j, v, h)
            m += 1
        else:
            a, count = _pick_active(rng, index, m, logit, even)
            if a < 0:
                continue
            j = index[a]
            b = beta[j]
            h = _line_in(Z, R, index, m, a, V, W)
            for k in range(m):
                alpha[k] = beta[index[k]] - b * v[k]
            alpha[a] = 0.0
            for i in range(n):
                u0[i] = u[i] + b * w[i]
            linear, quadratic = prior_terms(beta, D, index, m, v, b, a)
            quadratic += D[j]
            low, width, log_mass = line_grid(u0, w, linear, quadratic, h, grid)
            ratio = value(u0, w, linear, quadratic, b) - approximation(grid, low, width, b)
            ratio += logit[j] + 0.5 * (math.log(D[j]) - _LOG_2PI) + log_mass - value(u0, w, linear, quadratic, 0.0)
            ratio = math.log(count) - ratio
            if log_uniform >= ratio:  # the way back has probability at most one: no pass over the columns needed
                continue
            packed = np.empty((m, m))
            _without(R, m, a, packed)
            _scores(Z, u0, D, diagonal, logit, alpha, index, place, m, a, packed, cross, temper, score)
            if log_uniform >= ratio + score[j] - _log_sum_without(score, -1):
                continue
            for k in range(m):
                beta[index[k]] = alpha[k]
            beta[j] = 0.0
            u[:] = u0
            remove(index, place, m, R, cross, a)
            m -= 1
        counts[1] += 1
    return m, times
