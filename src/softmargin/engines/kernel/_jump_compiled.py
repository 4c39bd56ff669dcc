"""Birth, death and swap of active rows with the coefficients integrated out, on the factors of ``_jump_factors``."""

from __future__ import annotations

import math
from typing import Any

from softmargin.engines.kernel._jump_factors import back_solve, drop, extend, inner, log_death
from softmargin.engines.products import matvec, rmatvec
from softmargin.losses.formulas.normal import tail_draw
from softmargin.rows.compiled import njit

__all__ = ["holmes_held", "jumps", "rates"]

_EACH = 0.3  # probability of a birth, and of a death; the rest are swaps
_TEMPER = 0.5  # informed births: power of the estimated likelihood ratio
_LEAST_GAP = 1e-12


@njit(cache=True, nogil=True, error_model="numpy")
def holmes_held(rng: Any, y: Any, row: Any, V: Any, s: Any, z: Any) -> None:
    """One pass over the probit latents, each given all others with the coefficients integrated out.

    ``V = G' L^-T`` by rows; with ``h_i = |V_i|^2`` and ``f_i = V_i z`` latent i is normal with mean
    ``f_i - h_i/(1 - h_i) (s_i - f_i)`` and variance ``1/(1 - h_i)``, cut to its label's side. ``row`` names the
    data row of every latent: a row of weight c has c of them. ``z = sum_i V_i s_i`` is kept true.
    """
    size, h, last = V.shape[1], 0.0, -1
    for l in range(len(row)):
        i = row[l]
        v = V[i]
        if i != last:  # latents of one row follow one another
            h, last = inner(v, v, 0, size), i
        f, gap = inner(v, z, 0, size), max(1.0 - h, _LEAST_GAP)
        sd = 1.0 / math.sqrt(gap)
        mean = f - h / gap * (s[l] - f)
        new = y[i] * sd * tail_draw(rng, y[i] * mean / sd)
        change = new - s[l]
        s[l] = new
        for a in range(size):
            z[a] += change * v[a]


@njit(cache=True, nogil=True, error_model="numpy")
def rates(k: int, k_max: int) -> tuple[float, float]:
    """Probabilities of proposing a birth and a death from k active rows."""
    if k == 0:
        return 1.0, 0.0
    if k >= k_max:
        return 0.0, 1.0
    return _EACH, _EACH


@njit(cache=True, nogil=True, error_model="numpy")
def _scores(
    room: Any, K: Any, jitter: float, w: Any, b: Any, g: float, G: Any, L: Any, z: Any, k: int, a: int
) -> float:
    """Tempered estimates of the log likelihood ratio of every birth, -inf for active rows; returns their log sum.

    They are the first of the room's rows. With a >= 0 everything refers to the set without the row in place a, whose
    ``leaving`` is in the room. The pull of a candidate on the residual is exact; its precision is not, and the mean
    squared pull over the candidates stands for it.
    """
    n, place, score = len(K), room.place, room.rows[0]
    residual, pull, along = room.rows[1], room.rows[2], room.rows[3]
    q, x, mean = room.columns[0], room.columns[1], room.columns[2]
    for i in range(k + 1):
        mean[i] = z[i]
    if a >= 0:
        size, share = math.sqrt(inner(q, q, 0, k)), inner(x, mean, 0, k + 1) / inner(x, x, 0, k + 1)
        for i in range(k):
            q[i] /= size
        for i in range(k + 1):
            mean[i] -= x[i] * share
        rmatvec(room.gemv, G, n, n, k, n, q, along)
    back_solve(L, k + 1, mean)
    rmatvec(room.gemv, G, 0, n, k + 1, n, mean, residual)
    for i in range(n):
        residual[i] = b[i] - w[i] * residual[i]
    matvec(room.gemv, K, 0, n, n, n, residual, pull)
    total, count = 0.0, 0
    for i in range(n):
        if place[i] >= 0 and place[i] != a:
            score[i] = -math.inf
            continue
        rho = K[i, i] + jitter + (along[i] * along[i] if a >= 0 else 0.0)
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


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def _outside(rng: Any, place: Any) -> int:
    """A row that is not active, all alike."""
    while True:
        j = int(rng.random() * len(place))
        if place[j] < 0:
            return j


@njit(cache=True, nogil=True, error_model="numpy")
def jumps(
    rng: Any, room: Any, K: Any, jitter: float, w: Any, b: Any, g: float, prior: tuple[float, float], k_max: int,
    times: int, informed: bool, index: Any, G: Any, R: Any, L: Any, z: Any, k: int, counts: Any,
) -> int:  # fmt: skip
    """Metropolis moves of the active set; returns its size.

    A swap is a birth followed by the death of an older row, both evaluated before anything is rotated. ``counts``
    gathers proposals and acceptances of births, deaths and swaps; ``room`` is to work in.
    """
    n, place, score = len(K), room.place, room.rows[0]
    q, x = room.columns[0], room.columns[1]
    for i in range(n):
        place[i] = -1
    for a in range(k):
        place[index[a]] = a
    for _ in range(times):
        birth, death = rates(k, k_max)
        kind, level = rng.random(), math.log(1.0 - rng.random())
        if kind < birth:
            counts[0, 0] += 1
            if informed:
                log_sum = _scores(room, K, jitter, w, b, g, G, L, z, k, -1)
                j = _pick(rng, score, log_sum)
                proposal = score[j] - log_sum
            else:
                j, proposal = _outside(rng, place), -math.log(n - k)
            ratio = extend(room, K, jitter, w, b, g, j, G, R, L, z, k)
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
                log_sum = _scores(room, K, jitter, w, b, g, G, L, z, k, a)
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
            ratio = extend(room, K, jitter, w, b, g, j, G, R, L, z, k)
            ratio += log_death(R, L, z, g, k + 1, a, q, x)
            if level < ratio:
                counts[2, 1] += 1
                place[index[a]] = -1
                index[k] = j
                drop(index, G, R, L, z, k + 1, a)
                for i in range(a, k):
                    place[index[i]] = i
    return k
