"""Informed moves between models: candidates are scored in one pass over the columns.

The packed active block is that of ``_compiled.py``. A score is the log odds of entering if the posterior were
normal with the reference precision; it decides who is proposed, the line of the candidate decides what is accepted.
"""

from __future__ import annotations

import math
from typing import Any

from softmargin.engines.products import matmat, matvec
from softmargin.engines.selection._compiled import add, cross_row, direction_in, direction_out, flips, remove
from softmargin.engines.selection._line_compiled import (
    approximation,
    begin_line,
    combine,
    draw_on_line,
    line_grid,
    loss_at,
    value,
)
from softmargin.rows.compiled import njit

__all__ = ["BIRTHS", "FLIPS", "SWAPS", "line_moves"]

FLIPS, BIRTHS, SWAPS = range(3)

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _leave(rule: Any, block: Any, m: int, a: int, beta: Any, u: Any, room: Any, alpha: Any) -> tuple[float, float]:
    """What is left without the active coefficient in place a: ``alpha``, and the rows in the first of the room.

    The log weight of its value is returned, and the curvature of its line, the first of the room.
    """
    Z, D, u0 = rule.Z, rule.D, room.rest
    v, w = room.v, room.w
    j = block.index[a]
    b, h = beta[j], direction_in(block.R, m, a, v)
    begin_line(Z, j, a, w)
    combine(Z, block.index, room.V, min(m, 1), m, room.W)  # a constant 1 would keep the loops off vector registers
    linear, quadratic = 0.0, 0.0
    for k in range(m):
        l, vk = block.index[k], v[k]
        left = beta[l] - b * vk if k != a else 0.0
        alpha[k] = left
        linear += D[l] * left * vk
        quadratic += D[l] * vk * vk  # v is one in place a: the prior of beta_j itself
    for i in range(len(u)):
        u0[i] = u[i] + b * w[i]
    low, width, log_mass = line_grid(u0, w, linear, quadratic, h, room.kinks, room.grid)
    error = value(u0, w, linear, quadratic, b) - approximation(room.grid, low, width, b)
    return rule.logit[j] + 0.5 * math.log(D[j]) + log_mass + error, h


@njit(cache=True, nogil=True, error_model="numpy")
def _enter(
    rng: Any, rule: Any, block: Any, inverse: Any, m: int, l: int, u: Any, room: Any, alpha: Any
) -> tuple[float, float, float]:
    """A value for a coefficient that is out, with its log weight and the curvature of its line, the first of the room.

    ``inverse`` is that of the active block, the active coefficients are ``alpha`` and the rows ``u`` at zero.
    """
    Z, D, g = rule.Z, rule.D, room.g
    v, w = room.v, room.w
    for k in range(m):
        g[k] = block.cross[k, l]
    h = rule.diagonal[l] + D[l] + direction_out(inverse, m, g, v)
    begin_line(Z, l, -1, w)
    combine(Z, block.index, room.V, min(m, 1), m, room.W)
    linear, quadratic = 0.0, D[l]
    for k in range(m):
        vk = v[k]
        d = D[block.index[k]] * vk
        linear += d * alpha[k]
        quadratic += d * vk
    low, width, log_mass = line_grid(u, w, linear, quadratic, h, room.kinks, room.grid)
    t = draw_on_line(rng, room.grid, low, width)
    error = value(u, w, linear, quadratic, t) - approximation(room.grid, low, width, t)
    return t, rule.logit[l] + 0.5 * math.log(D[l]) + log_mass + error, h


@njit(cache=True, nogil=True, error_model="numpy")
def _scores(
    blas: Any, rule: Any, block: Any, u0: Any, alpha: Any, m: int, skip: int, temper: float, room: Any, informed: Any
) -> None:
    """Approximate log odds of entering, for every coefficient that is out; -inf for the active ones.

    ``skip`` is the place of a coefficient that counts as out (-1: none); its row and column of the inverse of the
    active block are zero.
    """
    D, cross = rule.D, block.cross
    index, place = block.index, block.place
    inside, score = room.inside, room.score
    active, pull = room.active, room.pull
    inverse, explained = informed.inverse, informed.explained
    n, p = len(u0), len(D)
    for i in range(n):
        inside[i] = 1.0 if u0[i] > 0.0 else 0.0
    matvec(blas.gemv, rule.Z, 0, n, p, n, inside, score)
    for k in range(m):
        l = index[k]
        active[k] = score[l] - D[l] * alpha[k]
    if m:
        matvec(blas.gemv, inverse, 0, len(inverse), m, m, active, pull)
        matmat(blas.gemm, m, m, p, inverse, 0, len(inverse), cross, 0, p, explained, 0, p)
    for l in range(p):
        q, d, at = score[l], D[l], place[l]
        h = rule.diagonal[l] + d
        for k in range(m):
            c = cross[k, l]
            q -= c * pull[k]
            h -= c * explained[k, l]
        h = max(h, 0.5 * d)
        odds = temper * (rule.logit[l] + 0.5 * math.log(d / h) + 0.5 * q * q / h)
        score[l] = odds if at < 0 or at == skip else -math.inf


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
def _without(R: Any, m: int, a: int, inverse: Any) -> None:
    """The inverse of the active block; with a >= 0 that of the block without place a, zero there."""
    for k in range(m):
        ratio = R[k, a] / R[a, a] if a >= 0 else 0.0
        for l in range(m):
            inverse[k, l] = R[k, l] - ratio * R[a, l] if k != a and l != a else 0.0


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
def _accept(
    blas: Any, rule: Any, block: Any, m: int, a: int, l: int, t: float, h: float, beta: Any, u: Any, room: Any
) -> int:
    """Let the coefficient in place a leave and l enter at t, where these are not -1; returns the number of active ones.

    The room holds what is left without the first, and the line of the second.
    """
    index, u0, alpha = block.index, room.rest, room.alpha
    v, w = room.v, room.w
    for k in range(m):
        beta[index[k]] = alpha[k] + t * v[k]
    for i in range(len(u)):
        u[i] = u0[i] - t * w[i]
    if a >= 0:
        beta[index[a]] = 0.0
        remove(block, m, a)
        m -= 1
        v[a] = v[m]
    if l >= 0:
        beta[l] = t
        cross_row(blas.gemv, rule, l, room)
        add(block, m, room.row, l, v, h)
        m += 1
    return m


@njit(cache=True, nogil=True, error_model="numpy")
def _informed_moves(
    rng: Any, blas: Any, rule: Any, block: Any, m: int, times: int, swap: bool, weight: Any, temper: float, beta: Any,
    u: Any, counts: Any, room: Any, informed: Any,
) -> tuple[int, int]:  # fmt: skip
    """Let an active coefficient leave that is chosen by weight, or one enter that is chosen by its score, or both.

    A swap is both, its newcomer scored where the other has left; if it is no swap a fair coin decides. Returns the
    number of active coefficients and the tries made: fewer than ``times`` if the arrays are full.
    """
    logit, index = rule.logit, block.index
    w, u0 = room.w, room.rest
    score, alpha = room.score, room.alpha
    for done in range(times):
        leaves, enters, log_uniform = True, True, 0.0
        if not swap:
            if m == len(index) and m < len(beta):
                return m, done
            enters = rng.random() < 0.5
            leaves, log_uniform = not enters, math.log(1.0 - rng.random())
        a, j, l = -1, -1, -1
        old, total = 0.0, 0.0
        if leaves:
            a, total = _pick_active(rng, index, m, logit, weight)
        if swap and a < 0:
            return m, times
        counts[0] += 1
        if leaves and a < 0:
            continue
        if leaves:
            j = index[a]
            old, _ = _leave(rule, block, m, a, beta, u, room, alpha)
        else:
            for k in range(m):
                alpha[k] = beta[index[k]]
            for i in range(len(u)):
                u0[i] = u[i]
        ratio, t, h = 0.0, 0.0, 0.0
        if not enters:
            ratio = math.log(total) - old - loss_at(u0, w, 0.0) + _HALF_LOG_2PI
            if log_uniform >= ratio:  # the way back has probability at most one: no pass over the columns needed
                continue
        _without(block.R, m, a, informed.inverse)
        _scores(blas, rule, block, u0, alpha, m, a, temper, room, informed)
        log_sum = _log_sum_without(score, j if swap else -1)
        if log_sum == -math.inf:
            continue
        if enters:
            l = _draw_without(rng, score, j, log_sum)
            t, ratio, h = _enter(rng, rule, block, informed.inverse, m, l, u0, room, alpha)
        if swap:
            ratio += score[j] - score[l] - old + log_sum - _log_sum_without(score, l)
            ratio += math.log(weight[l] / (total - weight[j] + weight[l])) - math.log(weight[j] / total)
            log_uniform = math.log(1.0 - rng.random())
        elif enters:
            leaving = 1  # how many could leave from the larger model
            for k in range(m):
                leaving += logit[index[k]] < math.inf
            ratio += loss_at(u0, w, 0.0) - _HALF_LOG_2PI - score[l] + log_sum - math.log(leaving)
        else:
            ratio += score[j] - log_sum
        if log_uniform < ratio:
            counts[1] += 1
            m = _accept(blas, rule, block, m, a, l, t, h, beta, u, room)
    return m, times


@njit(cache=True, nogil=True, error_model="numpy")
def line_moves(
    rng: Any, blas: Any, rule: Any, block: Any, m: int, kind: int, picks: Any, times: int, weight: Any, temper: float,
    beta: Any, u: Any, inclusion: Any, counts: Any, room: Any, informed: Any,
) -> tuple[int, int]:  # fmt: skip
    """Moves of one kind: flips of ``picks``, or so many births and deaths, or swaps.

    Returns the number of active coefficients and how many moves were made: fewer than all if the packed arrays are
    full. Python calls this function alone, so that what the kinds have in common becomes machine code once.
    """
    if kind == FLIPS:
        return flips(rng, blas, rule, block, m, picks, beta, u, inclusion, counts, room)
    return _informed_moves(
        rng, blas, rule, block, m, times, kind == SWAPS, weight, temper, beta, u, counts, room, informed
    )
