"""Compiled trajectories of several chains at once.

Chains go through every product in lots of four, the last lot filled up, so that a chain's numbers do not depend on how
many others there are. Rows stand in blocks of columns: arrays of shape (blocks, coefficients, rows of a block).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = [
    "BLOCK",
    "LOT",
    "decide",
    "finish",
    "leap",
    "line_loglik",
    "predict",
    "pulls",
    "ramp",
    "stretch",
    "transition",
]

LOT = 4
BLOCK = 256  # rows of a block: products of this size skip the packing that large products need


@njit(cache=True, nogil=True, error_model="numpy")
def ramp(f: Any, kink: Any, slope: Any, left: Any, jump: Any, sharp: Any) -> None:
    """Overwrite predictors by smoothed scores: from ``left`` to ``left + jump`` over a stretch around the kink."""
    half, one, zero = f.dtype.type(0.5), f.dtype.type(1.0), f.dtype.type(0.0)
    for k in range(len(f)):
        row = f[k]
        for i in range(len(row)):
            x = half + (row[i] - kink[i]) * (slope[i] * sharp)
            x = x if x > zero else zero
            x = x if x < one else one
            row[i] = left[i] + jump[i] * x


@njit(cache=True, nogil=True, error_model="numpy")
def _pull(beta: Any, X: Any, kink: Any, slope: Any, left: Any, jump: Any, sharp: Any, total: Any) -> None:
    """Score of the rows in the coefficients of one lot, smoothed, in single precision."""
    narrow = beta.astype(X.dtype)
    f = np.empty((LOT, X.shape[2]), X.dtype)
    part, whole = np.empty((X.shape[1], LOT), X.dtype), np.zeros((X.shape[1], LOT), X.dtype)
    sharp = X.dtype.type(sharp)
    for b in range(len(X)):
        np.dot(narrow, X[b], f)
        ramp(f, kink[b], slope[b], left[b], jump[b], sharp)
        np.dot(X[b], f.T, part)
        whole += part
    total[:] = whole.T


@njit(cache=True, nogil=True, error_model="numpy")
def _energy(beta: Any, quadratic: Any, linear: Any) -> float:
    """What a scale multiplies in the negative log prior of one chain."""
    total = 0.0
    for j in range(len(beta)):
        total += 0.5 * quadratic[j] * beta[j] * beta[j] + linear[j] * abs(beta[j])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _cell(energy: float, table: Any, grid: Any) -> tuple[int, float]:
    """The interval of the table that holds log energy, and the place in it; -1 outside."""
    place = (np.log(energy) - grid[0]) / grid[1] if energy > 0.0 else -1.0
    if not 0.0 <= place < len(table) - 1:
        return -1, 0.0
    return int(place), place - int(place)


@njit(cache=True, nogil=True, error_model="numpy")
def _evidence(energy: float, table: Any, grid: Any) -> float:
    """Log prior as a function of the energy, scale fixed (a table of one entry) or integrated out (cubic pieces)."""
    if len(table) == 1:
        return -table[0, 0] * energy
    i, u = _cell(energy, table, grid)
    if i < 0:
        return -np.inf
    here, there, step = table[i], table[i + 1], grid[1]
    rise = there[0] - here[0]
    a, b = here[1] * step - rise, rise - there[1] * step
    return here[0] + u * rise + u * (1.0 - u) * (a * (1.0 - u) + b * u)


@njit(cache=True, nogil=True, error_model="numpy")
def _multiplier(energy: float, table: Any, grid: Any) -> float:
    """Minus the derivative of the log prior in the energy: the inverse scale, or its mean."""
    if len(table) == 1:
        return table[0, 0]
    i, u = _cell(energy, table, grid)
    return 0.0 if i < 0 else -((1.0 - u) * table[i, 1] + u * table[i + 1, 1]) / energy


@njit(cache=True, nogil=True, error_model="numpy")
def finish(q: Any, r: Any, pull: Any, beta: Any, precision: Any, prior: Any, width: Any, root: Any, size: Any) -> None:
    """Kick: ``r += size (q + root'(pull + score of the prior))``, all that the rotation leaves out.

    The sign in the score of |beta| is smoothed to ``clip(beta / width, -1, 1)``; ``root`` serves all chains or is one
    each.
    """
    quadratic, linear, table, grid = prior
    g = np.empty_like(beta)
    for k in range(len(q)):
        rho = _multiplier(_energy(beta[k], quadratic, linear), table, grid)
        for j in range(beta.shape[1]):
            b = beta[k, j]
            slope = quadratic[j] * b + linear[j] * min(max(b / width[j], -1.0), 1.0)
            g[k, j] = pull[k, j] - precision[k, j] * b - rho * slope
    out = np.empty_like(q)
    if len(root) == 1:
        np.dot(g, root[0], out)
    else:
        for k in range(len(q)):
            out[k] = np.dot(g[k], root[k])
    for k in range(len(q)):
        for j in range(q.shape[1]):
            r[k, j] += size[k] * (q[k, j] + out[k, j])


@njit(cache=True, nogil=True, error_model="numpy")
def leap(
    q: Any, r: Any, pull: Any, beta: Any, precision: Any, prior: Any, width: Any, root: Any, centre: Any, size: Any,
    angle: Any,
) -> None:  # fmt: skip
    """A kick, then the rotation of (q, r) that the Gaussian reference makes, and the coefficients there."""
    finish(q, r, pull, beta, precision, prior, width, root, size)
    for k in range(len(q)):
        cos, sin = np.cos(angle[k]), np.sin(angle[k])
        for j in range(q.shape[1]):
            position, momentum = q[k, j], r[k, j]
            q[k, j] = position * cos + momentum * sin
            r[k, j] = momentum * cos - position * sin
    if len(root) == 1:
        np.dot(q, root[0].T, beta)
        beta += centre[0]
    else:
        for k in range(len(q)):
            beta[k] = np.dot(root[k], q[k]) + centre[k]


@njit(cache=True, nogil=True, error_model="numpy")
def decide(
    beta: Any, r: Any, loglik: float, end: Any, momentum: Any, end_loglik: float, precision: Any, prior: Any
) -> float:
    """Probability of accepting the end of one trajectory, by the exact density."""
    quadratic, linear, table, grid = prior
    change = end_loglik - loglik
    change += _evidence(_energy(end, quadratic, linear), table, grid)
    change -= _evidence(_energy(beta, quadratic, linear), table, grid)
    for j in range(len(beta)):
        change += 0.5 * precision[j] * (beta[j] * beta[j] - end[j] * end[j])
    for j in range(len(r)):
        change += 0.5 * (r[j] * r[j] - momentum[j] * momentum[j])
    return np.exp(change) if change < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def stretch(
    beta: Any, loglik: Any, ahead: Any, t: Any, uniform: Any, dimension: int, precision: Any, prior: Any, accept: Any
) -> None:
    """Metropolis on ``beta -> e^t beta`` of every chain, with likelihoods ``loglik`` here and ``ahead`` there."""
    quadratic, linear, table, grid = prior
    for k in range(len(beta)):
        there = np.exp(t[k]) * beta[k]
        change = ahead[k] - loglik[k] + dimension * t[k]
        change += _evidence(_energy(there, quadratic, linear), table, grid)
        change -= _evidence(_energy(beta[k], quadratic, linear), table, grid)
        for j in range(beta.shape[1]):
            change += 0.5 * precision[k, j] * (beta[k, j] * beta[k, j] - there[j] * there[j])
        accept[k] = uniform[k] < np.exp(min(change, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def line_loglik(f: Any, kink: Any, left: Any, jump: Any, top: Any, loglik: Any) -> None:
    """Log pseudo-likelihood of two lines for given predictors."""
    for k in range(len(f)):
        total = 0.0
        for i in range(f.shape[1]):
            past = f[k, i] - kink[i]
            total += top[i] + (left[i] if past < 0.0 else left[i] + jump[i]) * past
        loglik[k] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(values: Any, first: int, out: Any) -> None:
    """The rows of one lot, filled up with zeros."""
    for k in range(LOT):
        for j in range(values.shape[1]):
            out[k, j] = values[first + k, j] if first + k < len(values) else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def pulls(beta: Any, X: Any, kink: Any, slope: Any, left: Any, jump: Any, sharp: float, out: Any) -> None:
    """Smoothed score of the rows for every chain."""
    b, g = np.empty((LOT, beta.shape[1])), np.empty((LOT, beta.shape[1]))
    for first in range(0, len(beta), LOT):
        _fill(beta, first, b)
        _pull(b, X, kink, slope, left, jump, sharp, g)
        for k in range(min(LOT, len(beta) - first)):
            out[first + k] = g[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _lines(beta: Any, X: Any, kink: Any, left: Any, jump: Any, top: Any, f: Any, loglik: Any) -> None:
    """Predictors of a lot in double precision, and the log pseudo-likelihood of two lines that cross at ``top``."""
    n = f.shape[1]
    block = np.empty((LOT, X.shape[2]))
    loglik[:] = 0.0
    for t in range(len(X)):
        np.dot(beta, X[t], block)
        lo = t * X.shape[2]
        hi = min(n, lo + X.shape[2])
        for k in range(LOT):
            total = 0.0
            for i in range(lo, hi):
                value = block[k, i - lo]
                f[k, i] = value
                past = value - kink[i]
                total += top[i] + (left[i] if past < 0.0 else left[i] + jump[i]) * past
            loglik[k] += total


@njit(cache=True, nogil=True, error_model="numpy")
def predict(beta: Any, X: Any, kink: Any, left: Any, jump: Any, top: Any, f: Any, loglik: Any) -> None:
    """Predictors and log pseudo-likelihood of every chain."""
    b, lot_f, lot_loglik = np.empty((LOT, beta.shape[1])), np.empty((LOT, f.shape[1])), np.empty(LOT)
    for first in range(0, len(beta), LOT):
        _fill(beta, first, b)
        _lines(b, X, kink, left, jump, top, lot_f, lot_loglik)
        for k in range(min(LOT, len(beta) - first)):
            f[first + k], loglik[first + k] = lot_f[k], lot_loglik[k]


@njit(cache=True, nogil=True, error_model="numpy")
def transition(
    q: Any, beta: Any, f: Any, pull: Any, loglik: Any, mean: Any, probability: Any, accept: Any, normal: Any,
    theta: Any, uniform: Any, steps: int, sharp: float, precision: Any, prior: Any, width: Any, root: Any, centre: Any,
    wide: Any, lines: Any, X: Any, ramps: Any,
) -> None:  # fmt: skip
    """One trajectory of every chain, accepted or refused in place; ``mean`` is the average over the two outcomes."""
    p, d, shared = beta.shape[1], q.shape[1], len(root) == 1
    Q, R, B = np.empty((LOT, d)), np.empty((LOT, d)), np.empty((LOT, p))
    G, D = np.empty((LOT, p)), np.empty((LOT, p))
    F, end_loglik, angle = np.empty((LOT, f.shape[1])), np.empty(LOT), np.zeros(LOT)
    own_root, own_centre = (root, centre) if shared else (np.zeros((LOT, p, d)), np.zeros((LOT, p)))
    for first in range(0, len(q), LOT):
        here = min(LOT, len(q) - first)
        for values, lot in ((q, Q), (normal, R), (beta, B), (pull, G), (precision, D)):
            _fill(values, first, lot)
        angle[:here] = theta[first : first + here] / steps
        if not shared:
            own_root[:here], own_centre[:here] = root[first : first + here], centre[first : first + here]
        size = np.tan(0.5 * angle)
        weight = size
        for _ in range(steps):
            leap(Q, R, G, B, D, prior, width, own_root, own_centre, weight, angle)
            _pull(B, X, ramps[0], ramps[1], ramps[2], ramps[3], sharp, G)
            weight = 2.0 * size
        finish(Q, R, G, B, D, prior, width, own_root, size)
        _lines(B, wide, lines[0], lines[1], lines[2], lines[3], F, end_loglik)
        for k in range(here):
            at = first + k
            chance = decide(beta[at], normal[at], loglik[at], B[k], R[k], end_loglik[k], D[k], prior)
            mean[at] = beta[at] + chance * (B[k] - beta[at])
            probability[at], accept[at] = chance, uniform[at] < chance
            if accept[at]:
                q[at], beta[at], f[at], pull[at], loglik[at] = Q[k], B[k], F[k], G[k], end_loglik[k]
