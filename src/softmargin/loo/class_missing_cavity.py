"""Joint leave-one-out moments of the class scores of rows with missing entries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Imputed, predicted
from softmargin.designs.missing_patterns import whiten
from softmargin.rows.compiled import njit

__all__ = ["incomplete_cavities"]

_LARGEST = 0.999  # of the precision along any direction that one row may supply


@njit(cache=True, nogil=True, error_model="numpy")
def _incomplete(
    columns: Any, start: Any, block: Any, cell: Any, F: Any, F0: Any, lead: int, roots: Any, mean: Any, rows: Any,
    blind: Any, curvature: Any, linear: Any, f: Any, V: Any,
) -> float:  # fmt: skip
    """Take each row's messages out of the coefficients, and its class out of its missing entries.

    The row adds ``w_r (x x' + S)`` to the precision of class r and ``b_r x`` to its linear term; with
    ``W = [x, S^(1/2)]`` and U the products of every class's root with W, the identity of Woodbury leaves a system of
    k (m + 1) equations.
    """
    k, q, M = roots.shape
    largest = 0.0
    for i in range(len(rows)):
        m = cell[i + 1] - cell[i]
        W, T = np.zeros((m + 1, q)), np.zeros((m, q))
        W[0] = rows[i]
        for j in range(m):
            for l in range(m):
                at = lead + columns[start[i] + l]
                W[j + 1, at] = F[block[i] + j * m + l]
                T[j, at] = F0[block[i] + j * m + l]
        size = k * (m + 1)
        U, G, pull = np.empty((size, M)), np.empty((size, M)), np.empty(size)
        for r in range(k):
            U[r * (m + 1) : (r + 1) * (m + 1)] = W @ roots[r]
            pull[r * (m + 1) : (r + 1) * (m + 1)] = curvature[i, r] * (W @ mean[r])
            pull[r * (m + 1)] -= linear[i, r]
            for j in range(m + 1):
                G[r * (m + 1) + j] = math.sqrt(curvature[i, r]) * U[r * (m + 1) + j]
        share = np.linalg.eigvalsh(G @ G.T)[-1]
        largest = max(largest, share)
        less = 1.0 if share <= _LARGEST else _LARGEST / share
        H = np.eye(size) - less * (G @ G.T)
        step = less * (pull @ U)
        change = step + less * (np.linalg.solve(H, G @ step) @ G)  # in coordinates of the root
        for j in range(m + 1):  # the row without its class: its mean, then its cells
            x = blind[i] if j == 0 else T[j - 1]
            A, ahead = np.empty((k, M)), np.empty(k)
            for r in range(k):
                A[r] = x @ roots[r]
                ahead[r] = x @ mean[r] + A[r] @ change
            B = G @ A.T
            spread = A @ A.T + less * (B.T @ np.linalg.solve(H, B))
            for r in range(k):
                if j == 0:
                    f[i, r] = ahead[r]
                for s in range(k):
                    own = spread[r, s] if j == 0 else spread[r, s] + ahead[r] * ahead[s]
                    V[i, r, s] = own if j == 0 else V[i, r, s] + own
    return largest


def incomplete_cavities(
    design: Imputed, mean: Array, root: Array, curvature: Array, linear: Array
) -> tuple[Array, Array, float]:
    """Moments of the scores of the incomplete rows, and the largest share, their own messages taken out.

    ``curvature`` and ``linear`` (incomplete row, class) are what is taken out, of the score itself. The messages have
    also shaped the missing entries, so these are put back to what the covariates say.
    """
    patterns, lead, k = design.patterns, int(design.intercept), curvature.shape[1]
    F0, _ = whiten(patterns, design.law.precision)
    blind = Dense.plain(predicted(design.dense.X, patterns, F0, *design.law), intercept=bool(lead))
    scaled = np.concatenate([part.ravel() for _, part in design.each()])
    f, V = np.empty((len(patterns.row), k)), np.empty((len(patterns.row), k, k))
    largest = _incomplete(
        patterns.columns, patterns.start, patterns.block, patterns.cell, scaled, F0, lead,
        np.ascontiguousarray(root.reshape(k, -1, root.shape[1])), np.ascontiguousarray(mean.reshape(k, -1)),
        design.rows(patterns.row), blind.rows(patterns.row), curvature, linear, f, V,
    )  # fmt: skip
    return f, V, largest
