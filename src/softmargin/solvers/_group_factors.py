"""Cholesky factors of one small block per group, and products with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.rows.compiled import njit

__all__ = ["factor", "lower", "upper"]


@njit(cache=True, nogil=True, error_model="numpy")
def factor(block: Any, inverse: Any) -> float:
    """Write L^-1 of every block ``L L'`` and return the sum of log |block|; nan where one is not positive."""
    m, s = block.shape[0], block.shape[1]
    L = np.zeros((s, s))
    total = 0.0
    for g in range(m):
        for a in range(s):
            for b in range(a + 1):
                value = block[g, a, b]
                for k in range(b):
                    value -= L[a, k] * L[b, k]
                if a == b:
                    if not value > 0.0:
                        return np.nan
                    L[a, a] = np.sqrt(value)
                    total += np.log(value)
                else:
                    L[a, b] = value / L[b, b]
        for b in range(s):
            inverse[g, b, b] = 1.0 / L[b, b]
            for a in range(b + 1, s):
                value = 0.0
                for k in range(b, a):
                    value -= L[a, k] * inverse[g, k, b]
                inverse[g, a, b] = value / L[a, a]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def lower(inverse: Any, B: Any, out: Any) -> None:
    """Write ``L_g^-1 B_g`` of every group."""
    m, s, p = B.shape
    for g in range(m):
        for a in range(s):
            for j in range(p):
                out[g, a, j] = 0.0
            for b in range(a + 1):
                for j in range(p):
                    out[g, a, j] += inverse[g, a, b] * B[g, b, j]


@njit(cache=True, nogil=True, error_model="numpy")
def upper(inverse: Any, V: Any, out: Any) -> None:
    """Write ``L_g^-T V_g`` of every group."""
    m, s, p = V.shape
    for g in range(m):
        for a in range(s):
            for j in range(p):
                out[g, a, j] = 0.0
            for b in range(a, s):
                for j in range(p):
                    out[g, a, j] += inverse[g, b, a] * V[g, b, j]
