"""Leave-one-out moments of predictors whose rows have missing cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import AnyMessage, Rows
from softmargin.core.model import Model
from softmargin.core.visits import Moments, One, RowState
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Imputed, predicted
from softmargin.loo.link import cavity
from softmargin.loo.stochastic_cavity import loose_cavity
from softmargin.rows.compiled import njit
from softmargin.rows.totals import Largest
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["left_out", "missing_cavities"]

_LARGEST = 0.999  # of the precision along any direction that one row may supply


@njit(cache=True, nogil=True, error_model="numpy")
def _incomplete(
    kind: Any, columns: Any, start: Any, block: Any, F: Any, s: Any, cell: Any, lead: int, root: Any, mean: Any,
    rows: Any, blind: Any, k: Any, b: Any, f: Any, v: Any,
) -> float:  # fmt: skip
    """Take each row's message out of the coefficients, and its response out of its missing cells.

    The row adds ``w (x x' + S)`` to the precision and ``b x`` to the linear term; with ``W = [x, S^(1/2)]``, ``R`` the
    root of the covariance and ``U = R'W`` the identity of Woodbury leaves a system of one equation more than cells.
    """
    q, largest = len(mean), 0.0
    for i in range(len(kind)):
        p = kind[i]
        M = columns[start[p] : start[p + 1]]
        m = len(M)
        T = np.zeros((q, m))  # columns of F' in all coordinates
        for j in range(m):
            for l in range(m):
                T[lead + M[l], j] = F[block[p] + j * m + l]
        W = np.empty((q, m + 1))
        W[:, 0] = rows[i]
        for j in range(m):
            W[:, j + 1] = T[:, j] * math.sqrt(s[cell[i] + j])
        U = root.T @ W
        share = np.linalg.eigvalsh(U.T @ U)[-1] * k[i]
        largest = max(largest, share)
        weight = k[i] if share <= _LARGEST else k[i] * _LARGEST / share
        H = np.eye(m + 1) - weight * (U.T @ U)
        pull = weight * (W.T @ mean)
        pull[0] -= b[i] * (weight / k[i] if k[i] > 0.0 else 1.0)
        change = U @ np.linalg.solve(H, pull)  # in coordinates of the root
        a = root.T @ blind[i]
        Ua = U.T @ a
        f[i] = blind[i] @ mean + a @ change
        v[i] = a @ a + weight * (Ua @ np.linalg.solve(H, Ua))
        for j in range(m):  # the cells as they are without the response
            g = root.T @ np.ascontiguousarray(T[:, j])
            Ug = U.T @ g
            v[i] += g @ g + weight * (Ug @ np.linalg.solve(H, Ug))
            v[i] += (np.ascontiguousarray(T[:, j]) @ mean + g @ change) ** 2
    return largest


def left_out(model: Model, state: Any, part: Array, message: AnyMessage | None = None) -> tuple[Array, Array, float]:
    """Moments of the predictors of a Gaussian fit with the part ``part`` of each row's own message taken out.

    The third number is the largest k v. Rows with missing entries know how to be seen without their response; what the
    columns leave of a row's variance no message has changed. Another ``message`` than that of the state may be given.
    """
    design: Any = model.blocks.design
    law = design.law
    if law is None:
        rows = state.rows if message is None else model.blocks.place(RowState(state.f, state.v, message.w, message.b))
        found, (largest,) = model.blocks.keep(_cavities, None, rows, model.blocks.place(One(part)))
        return *model.blocks.fetch(found), float(largest.value)
    message = state.message if message is None else message
    mean, root = state.coefficients
    return missing_cavities(design, law, mean, root, message, state.f, state.v, part)


def _cavities(block: Any, small: None, rows: RowState, part: One) -> Any:
    """Keep the moments of the predictors without their own messages; find the largest k v."""
    f, v, _ = loose_cavity(rows.f, rows.v - block.residual, block.residual, Rows(rows.w, rows.b), part.f)

    def largest(own: Any, lo: int, hi: int) -> Largest:
        return Largest(float(own.max()))

    return Moments(f, v), (block.added(largest, part.f * rows.w * (rows.v - block.residual)),)


def missing_cavities(
    design: Imputed, law: CovariateLaw, mean: Array, root: Array, message: AnyMessage, f: Array, v: Array, part: Array
) -> tuple[Array, Array, float]:
    """Moments of the predictors with the part ``part`` of each row's own message taken out, and the largest k v.

    As ``cavity`` for complete rows, to which it is equal. An incomplete row's message has also shaped its missing
    cells, so they are put back to what the covariates say.
    """
    f_out, v_out, largest = cavity(f, v, message.w, message.b, part)
    patterns, lead = design.patterns, int(design.intercept)
    at = patterns.row
    if not len(at):
        return f_out, v_out, largest
    known = np.ones(len(f), dtype=bool)
    known[at] = False
    largest = float((part * message.w * v)[known].max()) if known.any() else 0.0
    blind = Dense.plain(predicted(design.dense.X, patterns, design.F, *law), intercept=bool(lead))
    rows = design.rows(at)
    f_own, v_own = np.empty(len(at)), np.empty(len(at))
    own = _incomplete(
        patterns.kind, patterns.columns, patterns.start, patterns.block, design.F, design.s, patterns.cell, lead,
        np.ascontiguousarray(root), mean, rows, blind.rows(at), part[at] * message.w[at], part[at] * message.b[at],
        f_own, v_own,
    )  # fmt: skip
    f_out[at], v_out[at] = f_own, v_own
    return f_out, v_out, max(largest, own)
