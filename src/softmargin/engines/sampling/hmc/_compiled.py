"""Compiled trajectories of several chains at once.

Chains go through every product in lots of four, the last lot filled up, so that a chain's numbers do not depend on how
many others there are. Rows stand in blocks of columns: arrays of shape (blocks, coefficients, rows of a block).
Everything works in arrays that are made outside.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.engines.products import addresses, matmat, matmat_t, matvec, rmatvec
from softmargin.rows.compiled import njit

__all__ = [
    "BLOCK",
    "LOT",
    "MOST",
    "Products",
    "Room",
    "decide",
    "finish",
    "journey",
    "leap",
    "likelihood",
    "longer",
    "products",
    "pull",
    "room_for",
]

LOT = 4
BLOCK = 256  # rows of a block, at most: products of this size skip the packing that large products need
MOST = 240_000  # numbers in a block, at most, for the same reason
_SLICE = 256  # coefficients of one product with the rows' scores, again
_FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered, which lets them vectorise; NaN and inf keep their sense
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


class Products(NamedTuple):
    """Addresses of matrix products in double precision, and in single precision."""

    gemv: int
    gemm: int
    single: int


def products() -> Products:
    """Those of this process."""
    return Products(*addresses("d"), addresses("s").gemm)


class Room(NamedTuple):
    """Arrays that one lot works in."""

    narrow: Any  # (chain, coefficient), in single precision as the next three
    f: Any  # (chain, row of a block)
    part: Any  # (coefficient, chain)
    whole: Any
    block: Array  # (chain, row of a block)
    g: Array  # (chain, coefficient)
    image: Array  # (chain, coordinate)


def room_for(p: int, d: int, narrow_rows: int, rows: int) -> Room:
    """Room for p coefficients, d coordinates, and blocks of so many rows in either precision."""
    return Room(
        np.empty((LOT, p), np.float32), np.empty((LOT, narrow_rows), np.float32), np.empty((p, LOT), np.float32),
        np.empty((p, LOT), np.float32), np.empty((LOT, rows)), np.empty((LOT, p)), np.empty((LOT, d)),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _ramp(b: int, kink: Any, slope: Any, left: Any, jump: Any, sharp: Any, f: Any) -> None:
    """Overwrite predictors by smoothed scores: from ``left`` to ``left + jump`` over a stretch around the kink."""
    for k in range(LOT):
        for i in range(f.shape[1]):
            x = _HALF + (f[k, i] - kink[b, i]) * (slope[b, i] * sharp)
            x = x if x > _ZERO else _ZERO
            x = x if x < _ONE else _ONE
            f[k, i] = left[b, i] + jump[b, i] * x


@njit(cache=True, nogil=True, error_model="numpy")
def pull(gemm: int, beta: Any, base: Any, X: Any, ramps: Any, sharp: float, room: Any, total: Any) -> None:
    """Score of the rows in the coefficients of one lot, smoothed, in single precision; ``base`` is of other rows."""
    kink, slope, left, jump = ramps
    narrow, f, part, whole = room.narrow, room.f, room.part, room.whole
    blocks, p, rows = X.shape
    for k in range(LOT):
        for j in range(p):
            narrow[k, j] = beta[k, j]
    for b in range(blocks):
        matmat(gemm, LOT, p, rows, narrow, 0, p, X, b * p * rows, rows, f, 0, rows)
        _ramp(b, kink, slope, left, jump, np.float32(sharp), f)
        for j in range(0, p, _SLICE):
            matmat_t(gemm, min(_SLICE, p - j), rows, LOT, X, (b * p + j) * rows, rows, f, 0, rows, part, j * LOT, LOT)
        for j in range(p):
            for k in range(LOT):
                whole[j, k] = part[j, k] if b == 0 else whole[j, k] + part[j, k]
    for k in range(LOT):
        for j in range(p):
            total[k, j] = base[j] + whole[j, k]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def likelihood(gemm: int, beta: Any, X: Any, n: int, lines: Any, block: Any, loglik: Any) -> None:
    """Log pseudo-likelihood of a lot over n rows, of two lines each that cross at ``top``, in double precision."""
    kink, left, jump, top = lines
    blocks, p, rows = X.shape
    for k in range(LOT):
        loglik[k] = 0.0
    for t in range(blocks):
        matmat(gemm, LOT, p, rows, beta, 0, p, X, t * p * rows, rows, block, 0, rows)
        for k in range(LOT):
            total = 0.0
            for i in range(min(rows, n - t * rows)):
                past = block[k, i] - kink[t, i]
                total += top[t, i] + left[t, i] * past + jump[t, i] * (past if past > 0.0 else 0.0)
            loglik[k] += total


@njit(cache=True, nogil=True, error_model="numpy")
def _energy(k: int, beta: Any, quadratic: Any, linear: Any, middle: Any) -> float:
    """What a scale multiplies in the negative log prior of one chain."""
    total = 0.0
    for j in range(beta.shape[1]):
        b = beta[k, j] - middle[j]
        total += 0.5 * quadratic[j] * b * b + linear[j] * abs(b)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _cell(energy: float, table: Any, grid: Any) -> float:
    """The place of log energy in the table, counted in nodes; -1 outside."""
    place = (math.log(energy) - grid[0]) / grid[1] if energy > 0.0 else -1.0
    return place if 0.0 <= place < len(table) - 1 else -1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _evidence(energy: float, table: Any, grid: Any) -> float:
    """Log prior as a function of the energy, scale fixed (a table of one entry) or integrated out (cubic pieces)."""
    if len(table) == 1:
        return -table[0, 0] * energy
    place = _cell(energy, table, grid)
    if place < 0.0:
        return -math.inf
    i, step = int(place), grid[1]
    u, here = place - i, table[i, 0]
    rise = table[i + 1, 0] - here
    a, b = table[i, 1] * step - rise, rise - table[i + 1, 1] * step
    return here + u * rise + u * (1.0 - u) * (a * (1.0 - u) + b * u)


@njit(cache=True, nogil=True, error_model="numpy")
def _multiplier(energy: float, table: Any, grid: Any) -> float:
    """Minus the derivative of the log prior in the energy: the inverse scale, or its mean."""
    place = _cell(energy, table, grid)
    if place < 0.0:
        return 0.0
    i = int(place)
    u = place - i
    return -((1.0 - u) * table[i, 1] + u * table[i + 1, 1]) / energy


@njit(cache=True, nogil=True, error_model="numpy")
def finish(
    blas: Any, q: Any, r: Any, pull: Any, beta: Any, precision: Any, prior: Any, width: Any, root: Any, size: Any,
    factor: float, room: Any,
) -> None:  # fmt: skip
    """Kick: ``r += factor size (q + root'(pull + score of the prior))``, all that the rotation leaves out.

    The sign in the score of |beta| is smoothed to ``clip(beta / width, -1, 1)``; ``root`` serves all chains or is one
    each.
    """
    quadratic, linear, table, grid, middle = prior
    g, out, p, d = room.g, room.image, beta.shape[1], q.shape[1]
    for k in range(LOT):
        rho = table[0, 0] if len(table) == 1 else _multiplier(_energy(k, beta, quadratic, linear, middle), table, grid)
        for j in range(p):
            b = beta[k, j] - middle[j]
            sign = b / width[j]
            sign = sign if sign > -1.0 else -1.0
            sign = sign if sign < 1.0 else 1.0
            g[k, j] = pull[k, j] - precision[k, j] * b - rho * (quadratic[j] * b + linear[j] * sign)
    if len(root) == 1:
        matmat(blas.gemm, LOT, p, d, g, 0, p, root, 0, d, out, 0, d)
    else:
        for k in range(LOT):
            rmatvec(blas.gemv, root, k * p * d, d, p, d, g[k], out[k])
    for k in range(LOT):
        for j in range(d):
            r[k, j] += factor * size[k] * (q[k, j] + out[k, j])


@njit(cache=True, nogil=True, error_model="numpy")
def leap(blas: Any, q: Any, r: Any, beta: Any, root: Any, turned: Any, centre: Any, turn: Any) -> None:
    """The rotation of (q, r) that the Gaussian reference makes, and the coefficients there.

    ``turn`` holds the cosine and the sine of every chain's angle, ``turned`` is the transpose of the first root.
    """
    p, d, shared = beta.shape[1], q.shape[1], len(root) == 1
    for k in range(LOT):
        cos, sin = turn[0, k], turn[1, k]
        for j in range(d):
            position, momentum = q[k, j], r[k, j]
            q[k, j] = position * cos + momentum * sin
            r[k, j] = momentum * cos - position * sin
    if shared:
        matmat(blas.gemm, LOT, d, p, q, 0, d, turned, 0, p, beta, 0, p)
    else:
        for k in range(LOT):
            matvec(blas.gemv, root, k * p * d, d, p, d, q[k], beta[k])
    for k in range(LOT):
        at = 0 if shared else k
        for j in range(p):
            beta[k, j] += centre[at, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _changed(change: float, k: int, beta: Any, there: Any, precision: Any, prior: Any) -> float:
    """A change with that of the log prior added, as one chain goes from beta to another place."""
    quadratic, linear, table, grid, middle = prior
    change += _evidence(_energy(k, there, quadratic, linear, middle), table, grid)
    change -= _evidence(_energy(k, beta, quadratic, linear, middle), table, grid)
    for j in range(beta.shape[1]):
        a, b = beta[k, j] - middle[j], there[k, j] - middle[j]
        change += 0.5 * precision[k, j] * (a * a - b * b)
    return change


@njit(cache=True, nogil=True, error_model="numpy")
def decide(
    k: int, beta: Any, r: Any, loglik: float, end: Any, momentum: Any, end_loglik: float, precision: Any, prior: Any
) -> float:
    """Probability of accepting the end of the trajectory of chain k, by the exact density."""
    change = _changed(end_loglik - loglik, k, beta, end, precision, prior)
    for j in range(r.shape[1]):
        change += 0.5 * (r[k, j] * r[k, j] - momentum[k, j] * momentum[k, j])
    return math.exp(change) if change < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def longer(k: int, beta: Any, there: Any, t: float, gain: float, dimension: int, precision: Any, prior: Any) -> float:
    """Probability of accepting ``beta -> e^t beta`` where that adds ``gain`` to the log pseudo-likelihood."""
    change = _changed(gain + dimension * t, k, beta, there, precision, prior)
    return math.exp(change) if change < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _copy(values: Any, out: Any) -> None:
    for k in range(LOT):
        for j in range(values.shape[1]):
            out[k, j] = values[k, j]


@njit(cache=True, nogil=True, error_model="numpy")
def journey(
    here: int, blas: Any, start: Any, path: Any, steps: int, sharp: float, motion: Any, width: Any, wide: Any, n: int,
    lines: Any, base: Any, X: Any, ramps: Any, room: Any, moving: Any, small: Any, ends: Any, mean: Any, chance: Any,
    accept: Any,
) -> None:  # fmt: skip
    """Trajectories of a lot of chains, of which the first ``here`` are meant, each accepted or refused.

    ``start`` holds the points and is overwritten, ``path`` random numbers (transition, chain, ...), ``motion`` the
    prior and the Gaussian to rotate, ``moving`` and ``small`` are room; ``ends`` takes the points (transition, chain,
    ...) and ``mean`` their averages over the two outcomes.
    """
    q0, b0, g0, l0 = start
    normal, theta, uniform, far, far_uniform = path
    D, prior, root, turned, centre, origin, dimension = motion
    Q, R, B, G = moving
    end, turn, size = small
    q_end, b_end, g_end, l_end = ends
    p, d = b0.shape[1], q0.shape[1]
    for t in range(len(normal)):
        if len(far):  # a far move of the length of beta, which separable data with a learned scale need
            for k in range(LOT):
                grown = math.exp(far[t, k])
                for j in range(p):
                    B[k, j] = b0[k, j] * grown
            likelihood(blas.gemm, B, wide, n, lines, room.block, end)
            moved = False
            for k in range(here):
                if far_uniform[t, k] < longer(k, b0, B, far[t, k], end[k] - l0[k], dimension, D, prior):
                    grown = math.exp(far[t, k])
                    for j in range(d):
                        q0[k, j] = grown * q0[k, j] + (grown - 1.0) * origin[j]
                    for j in range(p):
                        b0[k, j] = B[k, j]
                    l0[k], moved = end[k], True
            if moved:
                pull(blas.single, b0, base, X, ramps, sharp, room, g0)
        for k in range(LOT):
            angle = theta[t, k] / steps
            turn[0, k], turn[1, k], size[k] = math.cos(angle), math.sin(angle), math.tan(0.5 * angle)
        _copy(q0, Q)
        _copy(b0, B)
        _copy(g0, G)
        _copy(normal[t], R)
        for step in range(steps + 1):  # half a kick, then leaps with two half kicks at once in between, and half a kick
            factor = 2.0 if 0 < step < steps else 1.0
            finish(blas, Q, R, G, B, D, prior, width, root, size, factor, room)
            if step < steps:
                leap(blas, Q, R, B, root, turned, centre, turn)
                pull(blas.single, B, base, X, ramps, sharp, room, G)
        likelihood(blas.gemm, B, wide, n, lines, room.block, end)
        for k in range(here):
            probability = decide(k, b0, normal[t], l0[k], B, R, end[k], D, prior)
            for j in range(p):
                mean[t, k, j] = b0[k, j] + probability * (B[k, j] - b0[k, j])
            chance[t, k], accept[t, k] = probability, uniform[t, k] < probability
            if accept[t, k]:
                for j in range(d):
                    q0[k, j] = Q[k, j]
                for j in range(p):
                    b0[k, j], g0[k, j] = B[k, j], G[k, j]
                l0[k] = end[k]
            for j in range(d):
                q_end[t, k, j] = q0[k, j]
            for j in range(p):
                b_end[t, k, j], g_end[t, k, j] = b0[k, j], g0[k, j]
            l_end[t, k] = l0[k]
