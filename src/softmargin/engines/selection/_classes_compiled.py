"""Compiled scan over variables with several coefficients each, coefficients integrated out."""

from __future__ import annotations

import math
from typing import Any

from softmargin.engines.selection._scan_compiled import sweep
from softmargin.rows.compiled import njit

__all__ = ["log_odds", "scan_variables"]


@njit(cache=True, nogil=True, error_model="numpy")
def log_odds(G: Any, first: int, m: int, inside: bool, precision: float, room: Any) -> float:
    """``(m log d - log|S|)/2 + q'S^-1 q/2`` of the variable at ``first``: its log Bayes factor given the others.

    S is the Schur complement of its m coefficients and q their residual score, both read off the swept matrix. For a
    variable that is in, the block is ``-S^-1`` and the last column ``S^-1 q``. ``room``, (m + 1, m), is to work in.
    """
    last = len(G) - 1
    L, z = room, room[m]
    total = 0.0  # log|block|
    for a in range(m):
        for b in range(a + 1):
            value = -G[first + a, first + b] if inside else G[first + a, first + b]
            for c in range(b):
                value -= L[a, c] * L[b, c]
            if a == b:
                L[a, a] = math.sqrt(value)
                total += 2.0 * math.log(L[a, a])
            else:
                L[a, b] = value / L[b, b]
    # |L^-1 column|^2: q'S^-1 q for a variable that is out, b'S b for one that is in, b = S^-1 q
    square = 0.0
    for a in range(m):
        value = G[first + a, last]
        for c in range(a):
            value -= L[a, c] * z[c]
        z[a] = value / L[a, a]
        square += z[a] * z[a]
    log_det = -total if inside else total
    return 0.5 * (m * math.log(precision) - log_det + square)


@njit(cache=True, nogil=True, error_model="numpy")
def scan_variables(
    G: Any, m: int, gamma: Any, always: Any, precision: Any, log_prior_odds: Any, order: Any, uniform: Any, out: Any,
    room: Any,
) -> None:  # fmt: skip
    """One exact scan: every variable in or out given the others; ``out`` receives the probabilities used.

    G starts as ``[[A, r], [r', 0]]``, variables in blocks of m, swept on those that gamma marks; it ends swept on the
    new set.
    """
    for t in range(len(order)):
        j = order[t]
        if always[j]:
            out[j] = 1.0
            continue
        odds = log_prior_odds[j] + log_odds(G, j * m, m, gamma[j], precision[j], room)
        probability = 1.0 / (1.0 + math.exp(-odds)) if odds > -700.0 else 0.0
        out[j] = probability
        new = uniform[t] < probability
        if new != gamma[j]:
            sign = 1.0 if new else -1.0
            for a in range(m):
                sweep(G, j * m + a, sign)
            gamma[j] = new
