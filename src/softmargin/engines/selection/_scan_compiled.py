"""The collapsed scan given the row latents: coefficients integrated out, one candidate in O(1) by the sweep operator.

``M`` is ``[[A, r], [r', 0]]`` swept on the included set, with ``A`` the precision and ``r`` the linear term of the
coefficients given the latents. Convention: the pivot becomes ``-1/M_jj``, its row and column ``M_kj/M_jj``, the rest
``M_kl - M_kj M_jl/M_jj``; sweeping twice needs the opposite sign of the row the second time.
"""

from __future__ import annotations

import math
from typing import Any

from softmargin.rows.compiled import njit

__all__ = ["log_odds", "scan", "swap_gain", "sweep"]


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(M: Any, j: int, sign: float) -> None:
    """Enter j (sign +1) or take it out (sign -1), in place."""
    d = M[j, j]
    size = len(M)
    row = M[j].copy()
    for k in range(size):
        if k != j and row[k] != 0.0:
            ratio = row[k] / d
            for l in range(size):
                M[k, l] -= ratio * row[l]
    for k in range(size):
        M[j, k] = M[k, j] = sign * row[k] / d
    M[j, j] = -1.0 / d


@njit(cache=True, nogil=True, error_model="numpy")
def _schur(M: Any, j: int, inside: bool) -> tuple[float, float]:
    """Precision and linear term of coefficient j with the other included ones integrated out."""
    last = len(M) - 1
    if inside:
        s = -1.0 / M[j, j]
        return s, M[j, last] * s
    return M[j, j], M[j, last]


@njit(cache=True, nogil=True, error_model="numpy")
def log_odds(M: Any, d: Any, logit: Any, j: int, inside: bool) -> float:
    """Log odds of gamma_j = 1 given the other indicators: ``logit + log(d/s)/2 + q^2/(2 s)``."""
    s, q = _schur(M, j, inside)
    return logit[j] + 0.5 * math.log(d[j] / s) + 0.5 * q * q / s


@njit(cache=True, nogil=True, error_model="numpy")
def swap_gain(M: Any, d: Any, logit: Any, j: int, l: int) -> float:
    """Change of the log probability when the included j leaves and the excluded l enters."""
    last = len(M) - 1
    s = M[l, l] - M[l, j] * M[l, j] / M[j, j]
    q = M[l, last] - M[l, j] * M[j, last] / M[j, j]
    return logit[l] + 0.5 * math.log(d[l] / s) + 0.5 * q * q / s - log_odds(M, d, logit, j, True)


@njit(cache=True, nogil=True, error_model="numpy")
def scan(M: Any, d: Any, logit: Any, order: Any, uniform: Any, gamma: Any, inclusion: Any) -> int:
    """Sweep M on the included set, then draw every indicator in ``order``; returns how many changed."""
    for j in range(len(gamma)):
        if gamma[j]:
            sweep(M, j, 1.0)
    changed = 0
    for visit in range(len(order)):
        j = order[visit]
        odds = log_odds(M, d, logit, j, gamma[j])
        inclusion[j] = 1.0 / (1.0 + math.exp(-odds))
        enters = uniform[visit] < inclusion[j]
        if enters != gamma[j]:
            sweep(M, j, 1.0 if enters else -1.0)
            gamma[j] = enters
            changed += 1
    return changed
