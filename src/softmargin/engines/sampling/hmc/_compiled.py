"""Compiled trajectories of several chains at once.

Chains go through every product in lots of four, the last lot filled up, so that a chain's numbers do not depend on how
many others there are. Rows stand in blocks of columns: arrays of shape (blocks, coefficients, rows of a block).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.rows.compiled import njit

__all__ = [
    "BLOCK",
    "LOT",
    "MOST",
    "decide",
    "finish",
    "journey",
    "leap",
    "longer",
    "predict",
    "pulls",
    "ramp",
]

LOT = 4
BLOCK = 256  # rows of a block, at most: products of this size skip the packing that large products need
MOST = 240_000  # numbers in a block, at most, for the same reason
_SLICE = 256  # coefficients of one product with the rows' scores, again
_FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered, which lets them vectorise; NaN and inf keep their sense


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
def _pull(beta: Any, base: Any, X: Any, ramps: Any, sharp: Any, work: Any, total: Any) -> None:
    """Score of the rows in the coefficients of one lot, smoothed, in single precision; ``base`` is of other rows."""
    kink, slope, left, jump = ramps
    narrow, f, part, whole = work
    narrow[:] = beta
    sharp = X.dtype.type(sharp)
    for b in range(len(X)):
        np.dot(narrow, X[b], f)
        ramp(f, kink[b], slope[b], left[b], jump[b], sharp)
        for j in range(0, X.shape[1], _SLICE):
            np.dot(X[b, j : j + _SLICE], f.T, part[j : j + _SLICE])
        if b == 0:
            whole[:] = part
        else:
            whole += part
    for k in range(LOT):
        for j in range(len(base)):
            total[k, j] = base[j] + whole[j, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _room(X: Any) -> Any:
    """What ``_pull`` works in."""
    p, rows = X.shape[1:]
    return (
        np.empty((LOT, p), X.dtype), np.empty((LOT, rows), X.dtype),
        np.empty((p, LOT), X.dtype), np.empty((p, LOT), X.dtype),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _energy(beta: Any, quadratic: Any, linear: Any, middle: Any) -> float:
    """What a scale multiplies in the negative log prior of one chain."""
    total = 0.0
    for j in range(len(beta)):
        b = beta[j] - middle[j]
        total += 0.5 * quadratic[j] * b * b + linear[j] * abs(b)
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
def finish(
    q: Any, r: Any, pull: Any, beta: Any, precision: Any, prior: Any, width: Any, root: Any, size: Any, work: Any
) -> None:
    """Kick: ``r += size (q + root'(pull + score of the prior))``, all that the rotation leaves out.

    The sign in the score of |beta| is smoothed to ``clip(beta / width, -1, 1)``; ``root`` serves all chains or is one
    each; ``work`` has room for one number per coefficient and one per coordinate.
    """
    quadratic, linear, table, grid, middle = prior
    g, out = work
    for k in range(len(q)):
        rho = table[0, 0] if len(table) == 1 else _multiplier(_energy(beta[k], quadratic, linear, middle), table, grid)
        for j in range(beta.shape[1]):
            b = beta[k, j] - middle[j]
            sign = b / width[j]
            sign = sign if sign > -1.0 else -1.0
            sign = sign if sign < 1.0 else 1.0
            g[k, j] = pull[k, j] - precision[k, j] * b - rho * (quadratic[j] * b + linear[j] * sign)
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
    q: Any, r: Any, pull: Any, beta: Any, precision: Any, prior: Any, width: Any, root: Any, turned: Any, centre: Any,
    size: Any, turn: Any, work: Any,
) -> None:  # fmt: skip
    """A kick, then the rotation of (q, r) that the Gaussian reference makes, and the coefficients there.

    ``turn`` holds the cosine and the sine of every chain's angle, ``turned`` is the transpose of the first root.
    """
    finish(q, r, pull, beta, precision, prior, width, root, size, work)
    for k in range(len(q)):
        cos, sin = turn[0, k], turn[1, k]
        for j in range(q.shape[1]):
            position, momentum = q[k, j], r[k, j]
            q[k, j] = position * cos + momentum * sin
            r[k, j] = momentum * cos - position * sin
    if len(root) == 1:
        np.dot(q, turned, beta)
        for k in range(len(q)):
            for j in range(beta.shape[1]):
                beta[k, j] += centre[0, j]
    else:
        for k in range(len(q)):
            beta[k] = np.dot(root[k], q[k]) + centre[k]


@njit(cache=True, nogil=True, error_model="numpy")
def decide(
    beta: Any, r: Any, loglik: float, end: Any, momentum: Any, end_loglik: float, precision: Any, prior: Any
) -> float:
    """Probability of accepting the end of one trajectory, by the exact density."""
    quadratic, linear, table, grid, middle = prior
    change = end_loglik - loglik
    change += _evidence(_energy(end, quadratic, linear, middle), table, grid)
    change -= _evidence(_energy(beta, quadratic, linear, middle), table, grid)
    for j in range(len(beta)):
        a, b = beta[j] - middle[j], end[j] - middle[j]
        change += 0.5 * precision[j] * (a * a - b * b)
    for j in range(len(r)):
        change += 0.5 * (r[j] * r[j] - momentum[j] * momentum[j])
    return np.exp(change) if change < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def longer(beta: Any, t: float, gain: float, dimension: int, precision: Any, prior: Any) -> float:
    """Probability of accepting ``beta -> e^t beta`` where that adds ``gain`` to the log pseudo-likelihood."""
    quadratic, linear, table, grid, middle = prior
    there = np.exp(t) * beta
    change = gain + dimension * t
    change += _evidence(_energy(there, quadratic, linear, middle), table, grid)
    change -= _evidence(_energy(beta, quadratic, linear, middle), table, grid)
    for j in range(len(beta)):
        a, b = beta[j] - middle[j], there[j] - middle[j]
        change += 0.5 * precision[j] * (a * a - b * b)
    return np.exp(change) if change < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(values: Any, first: int, out: Any) -> None:
    """The rows of one lot, filled up with zeros."""
    for k in range(LOT):
        for j in range(values.shape[1]):
            out[k, j] = values[first + k, j] if first + k < len(values) else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def pulls(beta: Any, base: Any, X: Any, ramps: Any, sharp: float, out: Any) -> None:
    """Smoothed score of the rows for every chain."""
    b, g, work = np.empty((LOT, beta.shape[1])), np.empty((LOT, beta.shape[1])), _room(X)
    for first in range(0, len(beta), LOT):
        _fill(beta, first, b)
        _pull(b, base, X, ramps, sharp, work, g)
        for k in range(min(LOT, len(beta) - first)):
            out[first + k] = g[k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _lines(beta: Any, X: Any, lines: Any, block: Any, loglik: Any) -> None:
    """Log pseudo-likelihood of a lot, of two lines a row that cross at ``top``, in double precision."""
    kink, left, jump, top = lines
    n = len(kink)
    loglik[:] = 0.0
    for t in range(len(X)):
        np.dot(beta, X[t], block)
        lo = t * X.shape[2]
        hi = min(n, lo + X.shape[2])
        a, b, c, d = kink[lo:hi], left[lo:hi], jump[lo:hi], top[lo:hi]
        for k in range(LOT):
            f, total = block[k], 0.0
            for i in range(len(a)):
                past = f[i] - a[i]
                total += d[i] + b[i] * past + c[i] * (past if past > 0.0 else 0.0)
            loglik[k] += total


@njit(cache=True, nogil=True, error_model="numpy")
def predict(beta: Any, X: Any, lines: Any, loglik: Any) -> None:
    """Log pseudo-likelihood of every chain."""
    b, block, lot = np.empty((LOT, beta.shape[1])), np.empty((LOT, X.shape[2])), np.empty(LOT)
    for first in range(0, len(beta), LOT):
        _fill(beta, first, b)
        _lines(b, X, lines, block, lot)
        for k in range(min(LOT, len(beta) - first)):
            loglik[first + k] = lot[k]


@njit(cache=True, nogil=True, error_model="numpy")
def journey(
    lo: int, hi: int, start: Any, path: Any, steps: int, sharp: float, motion: Any, width: Any, wide: Any, lines: Any,
    base: Any, X: Any, ramps: Any, ends: Any, mean: Any, probability: Any, accept: Any,
) -> None:  # fmt: skip
    """Trajectories of chains lo..hi, one after another, each accepted or refused; lots go all the way in turn.

    ``path`` holds random numbers (transition, chain, ...), ``motion`` the prior and the Gaussian to rotate, ``ends``
    takes the points (transition, chain, ...) and ``mean`` their averages over the two outcomes.
    """
    normal, theta, uniform, far, far_uniform = path
    precision, prior, root, turned, centre, origin, dimension = motion
    q, beta, pull, loglik = start
    p, d, shared = beta.shape[1], q.shape[1], len(root) == 1
    q0, b0, g0, l0 = np.empty((LOT, d)), np.empty((LOT, p)), np.empty((LOT, p)), np.zeros(LOT)
    Q, R, B, G, D = np.empty((LOT, d)), np.empty((LOT, d)), np.empty((LOT, p)), np.empty((LOT, p)), np.empty((LOT, p))
    end, turn, size, block = np.empty(LOT), np.empty((2, LOT)), np.empty(LOT), np.empty((LOT, wide.shape[2]))
    kick, room = (np.empty((LOT, p)), np.empty((LOT, d))), _room(X)
    own_root, own_centre = (root, centre) if shared else (np.zeros((LOT, p, d)), np.zeros((LOT, p)))
    for first in range(lo, hi, LOT):
        here = min(LOT, len(q) - first)
        for values, lot in ((q, q0), (beta, b0), (pull, g0), (precision, D)):
            _fill(values, first, lot)
        l0[:here] = loglik[first : first + here]
        if not shared:
            own_root[:here], own_centre[:here] = root[first : first + here], centre[first : first + here]
        for t in range(len(normal)):
            if len(far):  # a far move of the length of beta, which separable data with a learned scale need
                B[:] = b0
                for k in range(here):
                    B[k] *= np.exp(far[t, first + k])
                _lines(B, wide, lines, block, end)
                moved = False
                for k in range(here):
                    move, at = far[t, first + k], first + k
                    if far_uniform[t, at] < longer(b0[k], move, end[k] - l0[k], dimension, D[k], prior):
                        q0[k] = np.exp(move) * q0[k] + (np.exp(move) - 1.0) * origin
                        b0[k], l0[k], moved = B[k], end[k], True
                if moved:
                    _pull(b0, base, X, ramps, sharp, room, g0)
            for k in range(LOT):
                angle = theta[t, first + k] / steps if k < here else 0.0
                turn[0, k], turn[1, k], size[k] = np.cos(angle), np.sin(angle), np.tan(0.5 * angle)
            Q[:], B[:], G[:] = q0, b0, g0
            _fill(normal[t], first, R)
            for step in range(steps):
                leap(Q, R, G, B, D, prior, width, own_root, turned, own_centre, size, turn, kick)
                _pull(B, base, X, ramps, sharp, room, G)
                if step == 0:
                    size *= 2.0  # two half kicks at once
            size *= 0.5
            finish(Q, R, G, B, D, prior, width, own_root, size, kick)
            _lines(B, wide, lines, block, end)
            for k in range(here):
                at = first + k
                chance = decide(b0[k], normal[t, at], l0[k], B[k], R[k], end[k], D[k], prior)
                probability[t, at], accept[t, at] = chance, uniform[t, at] < chance
                for j in range(p):
                    mean[t, at, j] = b0[k, j] + chance * (B[k, j] - b0[k, j])
                if accept[t, at]:
                    for j in range(d):
                        q0[k, j] = Q[k, j]
                    for j in range(p):
                        b0[k, j], g0[k, j] = B[k, j], G[k, j]
                    l0[k] = end[k]
                for j in range(d):
                    ends[0][t, at, j] = q0[k, j]
                for j in range(p):
                    ends[1][t, at, j], ends[2][t, at, j] = b0[k, j], g0[k, j]
                ends[3][t, at] = l0[k]
