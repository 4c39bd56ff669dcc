"""Leave-one-out moments of predictors whose rows have missing entries."""

from __future__ import annotations

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
from softmargin.rows.totals import Largest
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["left_out", "missing_cavities"]

_LARGEST = 0.999  # of the precision along any direction that one row may supply
_NUMBERS = 2e6  # in an array over rows, coefficients and missing entries: more would be memory for nothing


def _incomplete(
    T: Array, s: Array, root: Array, mean: Array, rows: Array, blind: Array, k: Array, b: Array
) -> tuple[Array, Array, float]:
    """Take the messages of rows with m missing entries out of the coefficients, and their responses out of the cells.

    A row adds ``w (x x' + S)`` to the precision and ``b x`` to the linear term; with ``W = [x, S^(1/2)]``, ``R`` the
    root of the covariance and ``U = R'W`` the identity of Woodbury leaves a system of one equation more than cells.
    ``T`` holds the columns of F' in all coordinates, (rows, coefficients, m); all products are of all rows at once.
    """
    W = np.concatenate((rows[:, :, None], T * np.sqrt(s)[:, None, :]), axis=2)
    U = root.T @ W
    UU = U.transpose(0, 2, 1) @ U
    share = np.linalg.eigvalsh(UU)[:, -1] * k
    weight = np.where(share <= _LARGEST, k, k * _LARGEST / np.maximum(share, _LARGEST))
    H = np.eye(W.shape[2]) - weight[:, None, None] * UU
    pull = weight[:, None] * (mean @ W)
    pull[:, 0] -= b * np.divide(weight, k, out=np.ones_like(k), where=k > 0.0)
    change = (U @ np.linalg.solve(H, pull[:, :, None]))[:, :, 0]  # in coordinates of the root
    seen = np.concatenate((blind[:, :, None], T), axis=2)  # the row without its response, then its cells
    A = root.T @ seen
    UA = U.transpose(0, 2, 1) @ A
    spread = (A * A).sum(axis=1) + weight[:, None] * (UA * np.linalg.solve(H, UA)).sum(axis=1)
    ahead = mean @ seen + np.einsum("iq,iqj->ij", change, A)
    return ahead[:, 0], spread.sum(axis=1) + (ahead[:, 1:] ** 2).sum(axis=1), float(share.max())


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
    rows, unseen = design.rows(at), blind.rows(at)
    own_w, own_b, missing = part[at] * message.w[at], part[at] * message.b[at], np.diff(patterns.cell)
    room = max(1, int(_NUMBERS / (len(mean) * (missing.max() + 1))))
    for m in np.unique(missing):  # rows with as many missing entries at once
        every = np.flatnonzero(missing == m)
        for some in np.split(every, range(room, len(every), room)):
            kind, T = patterns.kind[some], np.zeros((len(some), len(mean), m))
            F = design.F[patterns.block[kind][:, None] + np.arange(m * m)].reshape(-1, m, m)
            columns = lead + patterns.columns[patterns.start[kind][:, None] + np.arange(m)]
            T[np.arange(len(some))[:, None], columns] = F.transpose(0, 2, 1)
            s = design.s[patterns.cell[some][:, None] + np.arange(m)]
            given = T, s, root, mean, rows[some], unseen[some], own_w[some], own_b[some]
            f_out[at[some]], v_out[at[some]], own = _incomplete(*given)
            largest = max(largest, own)
    return f_out, v_out, largest
