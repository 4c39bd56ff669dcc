"""Birth, death and swap of active rows with the coefficients integrated out, on the factors of ``_jump_factors``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.engines.kernel._jump_factors import back_solve, dot, drop, extend, leaving, log_death
from softmargin.losses.normal import tail_draw
from softmargin.rows.compiled import njit

__all__ = ["advance", "holmes_held", "jumps", "rates"]

_EACH = 0.3  # probability of a birth, and of a death; the rest are swaps
_TEMPER = 0.5  # informed births: power of the estimated likelihood ratio
_LEAST_GAP = 1e-12


@njit(cache=True, nogil=True)
def holmes_held(rng: Any, y: Any, row: Any, V: Any, s: Any, z: Any) -> None:
    """One pass over the probit latents, each given all others with the coefficients integrated out.

    ``V = G' L^-T`` by rows; with ``h_i = |V_i|^2`` and ``f_i = V_i z`` latent i is normal with mean
    ``f_i - h_i/(1 - h_i) (s_i - f_i)`` and variance ``1/(1 - h_i)``, cut to its label's side. ``row`` names the
    data row of every latent: a row of weight c has c of them. ``z = sum_i V_i s_i`` is kept true.
    """
    h = np.empty(len(V))
    for i in range(len(V)):
        h[i] = dot(V[i], V[i])
    for l in range(len(row)):
        i = row[l]
        f, gap = dot(V[i], z), max(1.0 - h[i], _LEAST_GAP)
        sd = 1.0 / math.sqrt(gap)
        mean = f - h[i] / gap * (s[l] - f)
        new = y[i] * sd * tail_draw(rng, y[i] * mean / sd)
        change = new - s[l]
        s[l] = new
        for a in range(len(z)):
            z[a] += change * V[i, a]


@njit(cache=True, nogil=True)
def rates(k: int, k_max: int) -> tuple[float, float]:
    """Probabilities of proposing a birth and a death from k active rows."""
    if k == 0:
        return 1.0, 0.0
    if k >= k_max:
        return 0.0, 1.0
    return _EACH, _EACH


@njit(cache=True, nogil=True)
def _scores(
    K: Any,
    jitter: float,
    w: Any,
    b: Any,
    g: float,
    place: Any,
    G: Any,
    R: Any,
    L: Any,
    z: Any,
    k: int,
    a: int,
    score: Any,
) -> float:
    """Tempered estimates of the log likelihood ratio of every birth, -inf for active rows; returns their log sum.

    With a >= 0 everything refers to the set without the row in place a. The pull of a candidate on the residual is
    exact; its precision is not, and the mean squared pull over the candidates stands for it.
    """
    n, mean, q = len(score), z[: k + 1].copy(), np.zeros(k)
    if a >= 0:
        x = np.zeros(k + 1)
        leaving(R, L, k, a, q, x)
        q /= math.sqrt(dot(q, q))
        mean -= x * (dot(x, mean) / dot(x, x))
    back_solve(L, k + 1, mean)
    residual = b - w * np.dot(mean, G[: k + 1])
    pull = np.dot(K, residual)
    along = np.dot(q, G[1 : k + 1])
    total, count = 0.0, 0
    for i in range(n):
        if place[i] >= 0 and place[i] != a:
            score[i] = -math.inf
            continue
        rho = K[i, i] + jitter + along[i] * along[i]
        for l in range(1, k + 1):
            rho -= G[l, i] * G[l, i]
        score[i] = pull[i] * pull[i] / max(rho, jitter)
        total += score[i]
        count += 1
    if count == 0:
        return -math.inf
    scale, top = 0.5 * _TEMPER / (g + total / count), -math.inf
    for i in range(n):
        score[i] *= scale
        top = max(top, score[i])
    total = 0.0
    for i in range(n):
        total += math.exp(score[i] - top)
    return top + math.log(total)


@njit(cache=True, nogil=True)
def _pick(rng: Any, score: Any, log_sum: float) -> int:
    """An index with probability proportional to exp(score)."""
    left, last = rng.random(), -1
    for i in range(len(score)):
        if score[i] > -math.inf:
            last = i
            left -= math.exp(score[i] - log_sum)
            if left < 0.0:
                break
    return last


@njit(cache=True, nogil=True)
def _outside(rng: Any, place: Any) -> int:
    """A row that is not active, all alike."""
    while True:
        j = int(rng.random() * len(place))
        if place[j] < 0:
            return j


@njit(cache=True, nogil=True)
def jumps(
    rng: Any,
    K: Any,
    jitter: float,
    w: Any,
    b: Any,
    g: float,
    prior: tuple[float, float],
    k_max: int,
    times: int,
    informed: bool,
    index: Any,
    G: Any,
    R: Any,
    L: Any,
    z: Any,
    k: int,
    counts: Any,
) -> int:
    """Metropolis moves of the active set; returns its size.

    A swap is a birth followed by the death of an older row, both evaluated before anything is rotated. ``counts``
    gathers proposals and acceptances of births, deaths and swaps.
    """
    n = len(K)
    place, score = np.full(n, -1), np.empty(n)
    for a in range(k):
        place[index[a]] = a
    q, x = np.empty(len(index) + 1), np.empty(len(index) + 2)
    for _ in range(times):
        birth, death = rates(k, k_max)
        kind, level = rng.random(), math.log(1.0 - rng.random())
        if kind < birth:
            counts[0, 0] += 1
            if informed:
                log_sum = _scores(K, jitter, w, b, g, place, G, R, L, z, k, -1, score)
                j = _pick(rng, score, log_sum)
                proposal = score[j] - log_sum
            else:
                j, proposal = _outside(rng, place), -math.log(n - k)
            ratio = extend(K, jitter, w, b, g, j, G, R, L, z, k)
            ratio += math.log((k + prior[0]) / (n - k - 1 + prior[1]))
            ratio += math.log(rates(k + 1, k_max)[1] / (birth * (k + 1.0))) - proposal
            if level < ratio:
                counts[0, 1] += 1
                index[k], place[j] = j, k
                k += 1
        elif kind < birth + death:
            counts[1, 0] += 1
            a = int(rng.random() * k)
            ratio = log_death(R, L, z, g, k, a, q, x)
            ratio += math.log((n - k + prior[1]) / (k - 1 + prior[0]))
            ratio += math.log(rates(k - 1, k_max)[0] * k / death)
            if informed:
                if level >= ratio:  # the way back has probability at most one
                    continue
                log_sum = _scores(K, jitter, w, b, g, place, G, R, L, z, k, a, score)
                ratio += score[index[a]] - log_sum
            else:
                ratio -= math.log(n - k + 1.0)
            if level < ratio:
                counts[1, 1] += 1
                place[index[a]] = -1
                drop(index, G, R, L, z, k, a)
                k -= 1
                for i in range(a, k):
                    place[index[i]] = i
        else:
            counts[2, 0] += 1
            a, j = int(rng.random() * k), _outside(rng, place)
            ratio = extend(K, jitter, w, b, g, j, G, R, L, z, k)
            ratio += log_death(R, L, z, g, k + 1, a, q, x)
            if level < ratio:
                counts[2, 1] += 1
                place[index[a]] = -1
                index[k] = j
                drop(index, G, R, L, z, k + 1, a)
                for i in range(a, k):
                    place[index[i]] = i
    return k


@njit(cache=True, nogil=True)
def advance(
    rng: Any,
    K: Any,
    jitter: float,
    y: Any,
    row: Any,
    V: Any,
    s: Any,
    w: Any,
    b: Any,
    g: float,
    prior: tuple[float, float],
    k_max: int,
    times: int,
    informed: bool,
    index: Any,
    G: Any,
    R: Any,
    L: Any,
    z: Any,
    k: int,
    counts: Any,
    x: Any,
) -> int:
    """A sweep but for the precisions: latents where there are any in ``s``, active set, coefficients into ``x``.

    L is the factor of the present precision; z, and b where there are latents, are filled here. Returns the number of
    active rows.
    """
    if len(s):
        linear = np.dot(b, V)
        holmes_held(rng, y, row, V, s, linear)
        z[: k + 1] = linear
        b[:] = 0.0
        for l in range(len(row)):
            b[row[l]] += s[l]
    else:
        linear = np.dot(G[: k + 1], b)
        for a in range(k + 1):
            z[a] = (linear[a] - dot(L[a, :a], z[:a])) / L[a, a]
    k = jumps(rng, K, jitter, w, b, g, prior, k_max, times, informed, index, G, R, L, z, k, counts)
    for a in range(k + 1):
        x[a] = z[a] + rng.standard_normal()
    back_solve(L, k + 1, x)
    return k
