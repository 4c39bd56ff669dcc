"""From a nearly optimal point to the exact mode: rows on the margin become equations.

This is the restricted least squares of Polson and Scott, section 3.2, with the corrected partitioned inverse and
with the test that releases a row whose multiplier leaves [0, 2c].
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.visits import Marked
from softmargin.engines.mode.duality_gap import Certificate, boxed, certify, largest_multipliers
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import Blocks
from softmargin.rows.totals import largest_at, runs, totals_of

__all__ = ["ActiveSet", "Flags", "certify_given", "finish", "leave_one_out"]

Flags = np.ndarray[Any, np.dtype[np.bool_]]
_BENDS = 6  # Newton steps from the interior point's accuracy to rounding
_EXACT = 1e-12  # a relative gap that rounding hardly improves
_SINGULAR = 1e-15  # a reciprocal condition number that rounding cannot tell from zero
_SLACK = 1e-8  # per unit of a multiplier: the root of rounding, so that half of the digits are right before refinement
_AS_GOOD = 1e-8  # a relative gap at which zeros may be set
_MARGIN = 1e-6  # distance from the margin at which a row is on it
_ROUNDED = float(np.finfo(np.float64).eps)  # what rounding leaves in the loss of a row on the margin


class ActiveSet(NamedTuple):
    """A point with its multipliers, the rows that sit on the margin, and the coefficients that are not zero."""

    beta: Array
    f: Array
    g: Array
    margin: Flags
    active: Flags
    certificate: Certificate


def _pulled(block: Any, small: None, inside: Marked) -> Any:
    """Sum ``X'(2 c y)`` over the rows inside the margin."""
    return (block.rmatvec(np.where(inside.marks != 0, 2.0 * block.weight * block.y, 0.0)),)


def _solve(
    model: Model,
    penalty: Penalty,
    margin: Flags,
    inside: Flags,
    active: Flags,
    slope: Array,
    bend: Array | None = None,
) -> tuple[Array, Array] | None:
    """Solve ``(D + bend) beta + slope = 2 Z_U'c_U + Z_S'g_S, Z_S beta = 1`` over the active coefficients.

    U are the rows inside the margin and S those on it; the unknowns are (beta, g_S), and where equations tie the
    coefficients their multipliers.
    """
    y = model.y
    Z = (model.blocks.design.rows(np.flatnonzero(margin)) * y[margin][:, None])[:, active]
    Z = np.vstack((Z, model.space.ties(active)))
    m, p = Z.shape
    pinned = int(margin.sum())
    (pulled,) = model.blocks.sum(_pulled, None, model.blocks.place(Marked(inside)))
    pull = pulled[active] - slope[active]
    precision = penalty.precision[active]
    # columns scaled by D^-1/2 where that is moderate, so that shrunk and free coefficients are comparable
    size = precision if bend is None else precision + bend.diagonal()
    unit = 1.0 / np.sqrt(np.maximum(size, 1e-4 * max(float(size.max()), 1e-4)))
    K = np.zeros((p + m, p + m))
    K[np.arange(p), np.arange(p)] = precision * unit * unit
    if bend is not None:
        K[:p, :p] += bend * unit * unit[:, None]
    K[p:, :p] = Z * unit
    K[:p, p:] = -K[p:, :p].T
    rhs = np.concatenate((pull * unit, np.ones(pinned), np.zeros(m - pinned)))
    factor, pivots, singular = dgetrf(K)
    if singular or dgecon(factor, np.abs(K).sum(axis=0).max())[0] < _SINGULAR:
        # more rows on the margin than coefficients, or copies of one: Z beta + _SLACK g = 1 always has a solution, in
        # which the multipliers of rows that cannot be on the margin together are far outside their box; coefficients of
        # dependent columns that nothing else bends need as much
        slack = K.copy()
        slack.flat[:: p + m + 1] += _SLACK
        factor, pivots, singular = dgetrf(slack)
    solution = dgetrs(factor, pivots, rhs)[0]
    for _ in range(2):  # iterative refinement; where the equations agree it takes the slack away
        solution += dgetrs(factor, pivots, rhs - K @ solution)[0]
    if singular or not np.isfinite(solution).all():
        return None
    beta = np.zeros(len(active))
    beta[active] = solution[:p] * unit
    return beta, np.asarray(solution[p : p + pinned], dtype=np.float64)


def _solve_lengths(
    model: Model, penalty: Penalty, margin: Flags, inside: Flags, active: Flags, beta: Array
) -> tuple[Array, Array] | None:
    """The same for lengths, which bend: Newton steps from a nearly optimal point."""
    solved = None
    for _ in range(_BENDS):
        slope, bend = penalty.tangent(beta, active)
        solved = _solve(model, penalty, margin, inside, active, slope, bend)
        if solved is None:
            return None
        beta = solved[0]
    return solved


def finish(
    model: Model,
    beta: Array,
    g: Array,
    margin: Flags,
    penalty: Penalty,
    *,
    active: Flags | None = None,
    changes: int = 40,
    f: Array | None = None,
) -> ActiveSet:
    """Refine (beta, g) by moving the single worst violator between the sets until none is left.

    The refined point is returned only where its certified gap is smaller than that of the point given. Absolute
    values in the penalty make coefficients outside ``active`` exactly zero. ``f`` are the predictors where known.
    """
    y, c = model.y, model.c
    f = model.blocks.matvec(beta) if f is None else f
    active = np.ones(len(beta), dtype=bool) if active is None else active
    best = ActiveSet(beta, f, g, margin, active, certify(model, beta, f, g, penalty))
    inside, sign = ~margin & (g > c), np.sign(beta)
    margin, active = margin.copy(), active.copy()  # those of the point given stay as they are
    most = 2 * model.size + 50  # many copies of one row on the margin: the point is degenerate and good as it is
    for _ in range(changes):
        exact = best.certificate.gap <= _EXACT and bool((best.beta[~best.active] == 0.0).all())
        if exact or not 0 < margin.sum() <= most:
            break
        if penalty.blocks == 1:
            solved = _solve(model, penalty, margin, inside, active, penalty.rate * sign)
        else:
            solved = _solve_lengths(model, penalty, margin, inside, active, beta)
        if solved is None:
            break
        beta, on_margin = model.space.restored(solved[0], active), solved[1]
        del f, g  # where rows are very many those of the best point are all that there is room for
        f = model.blocks.matvec(beta)
        g = largest_multipliers(inside, c)
        g[margin] = on_margin
        certificate = certify(model, beta, f, g, penalty)
        known = best.certificate
        lower = certificate.objective <= known.objective + 1e-9 * abs(known.objective)
        if lower and certificate.gap < max(known.gap, _EXACT):
            best = ActiveSet(beta, f, boxed(g, c), margin.copy(), active.copy(), certificate)
        # violations: a multiplier outside its box, a row on the wrong side of the margin, a coefficient of the
        # wrong sign, a zero coefficient whose score exceeds its rate
        worst = [
            largest_at(len(f), partial(_outside_box, g, c, margin)),
            largest_at(len(f), partial(_wrong_side, y, f, margin, inside)),
        ]
        if penalty.corner.any():
            score = model.blocks.rmatvec(y * boxed(g, c))
            score = model.space.dual_representative(score, penalty.precision, penalty.corner)
            over = np.abs(score) / np.where(penalty.sharp, penalty.rate, np.inf) - 1.0
            worst += [
                _largest(np.where(penalty.sharp & active, -beta * sign, -np.inf)),
                _largest(np.where(penalty.sharp & ~active, over, -np.inf)),
            ]
        kind = int(np.argmax([value for value, _ in worst]))
        value, at = worst[kind]
        if value <= 1e-10:
            break
        if kind == 0:
            margin[at], inside[at] = False, g[at] > c[at]
        elif kind == 1:
            margin[at], inside[at] = True, False
        elif kind == 2:
            active[at] = False
        else:
            active[at], sign[at] = True, np.sign(score[at])
    return _exact_zeros(model, best, penalty)


def _outside_box(g: Array, c: Array, margin: Flags, at: slice) -> Array:
    """How far multipliers of rows on the margin are outside their box, in units of its size."""
    most = 2.0 * c[at]
    out = np.maximum(-g[at], g[at] - most) / np.maximum(most, 1e-300)
    return np.where(margin[at], out, -np.inf)


def _wrong_side(y: Array, f: Array, margin: Flags, inside: Flags, at: slice) -> Array:
    """How far rows off the margin are on the other side of it."""
    u = 1.0 - y[at] * f[at]
    return np.where(margin[at], -np.inf, np.where(inside[at], -u, u))


def _exact_zeros(model: Model, point: ActiveSet, penalty: Penalty) -> ActiveSet:
    """The point with its inactive coefficients at zero, where that is as good within ``_AS_GOOD``.

    It matters where so many rows share the margin that the equations of the exchange cannot be solved.
    """
    if not point.beta[~point.active].any():
        return point
    beta = model.space.restored(np.where(point.active, point.beta, 0.0), point.active)
    f = model.blocks.matvec(beta)
    certificate = certify(model, beta, f, point.g, penalty)
    if certificate.gap > max(_AS_GOOD, point.certificate.gap):
        return point
    return point._replace(beta=beta, f=f, certificate=certificate)


def certify_given(model: Model, point: ActiveSet, penalty: Penalty) -> Certificate:
    """The certificate of a point in the columns as they were given, also where the model works in the rows' space.

    The coefficients are those that the user gets: what the basis leaves out is in the gap, and so is the rounding of
    rows on the margin, which counts where the objective itself is next to nothing.
    """
    y, c, f, found = model.y, model.c, point.f, point.certificate
    if model.span is not None:
        design, beta = model.span.given, model.span.lift(point.beta)
        lead = int(design.intercept)
        precision = np.full(len(beta), penalty.precision[-1])  # the prior does not change under rotations
        precision[:lead] = penalty.precision[:lead]
        given = replace(model, blocks=Blocks(design, y, c), free=np.arange(len(beta)) < lead, span=None)
        f = given.blocks.matvec(beta)
        found = certify(given, beta, f, point.g, Penalty(precision, np.zeros(len(beta))))
    on_it = totals_of(len(f), lambda at: [np.where(np.abs(1.0 - y[at] * f[at]) < _MARGIN, c[at], 0.0)])
    rounding = _ROUNDED * float(on_it[0])
    return found._replace(gap=found.gap + rounding / max(abs(found.objective), 1e-300))


def _largest(values: Array) -> tuple[float, int]:
    at = int(np.argmax(values))
    return float(values[at]), at


def leave_one_out(model: Model, point: ActiveSet, penalty: Penalty, part: Array) -> Array:
    """Predictors without the part ``part`` of each row, exact while no other row changes its set (the span rule).

    Without that part the row's multiplier must lie below ``(1 - part) 2c``; where it does not, it is moved there
    and the fit answers by the Schur complement of the margin system: ``f_-i = f_i - y_i delta_i S_i``, S_i the
    squared distance of x_i, in the metric D^-1, from the span of the margin rows (of the other margin rows for a
    row on the margin). Copies of a margin row share one multiplier and are treated as one row.
    """
    y, c, margin = model.y, model.c, point.margin
    # a nearly flat coordinate would drown the others in rounding; the margin rows determine it anyway
    # an absolute value is replaced by the parabola that touches it at the point
    bent = np.where(point.active & (point.beta != 0.0), penalty.rate / np.maximum(np.abs(point.beta), 1e-12), 0.0)
    precision = penalty.precision + bent
    precision = np.maximum(precision, 1e-4 * float(precision.max()))
    metric = np.zeros(len(precision))
    metric[point.active] = 1.0 / np.sqrt(precision[point.active])  # zero coefficients do not move
    on_margin = np.zeros(0)
    if margin.any():
        rows = model.blocks.design.rows(np.flatnonzero(margin)) * metric
        signed = np.column_stack((y[margin], rows.round(12)))
        _, first, copy = np.unique(signed, axis=0, return_index=True, return_inverse=True)
        rows, copy = rows[first], copy.ravel()
        total_g, total_c = np.bincount(copy, point.g[margin]), np.bincount(copy, c[margin])
        on_margin = np.maximum(total_g[copy] - 2.0 * (total_c[copy] - part[margin] * c[margin]), 0.0)
        distance, own = _distances(model, rows, metric)
        on_margin *= own[copy]
    else:
        distance = _squares(model, metric)
    loo = distance  # its own vector, which is not needed any more
    for at in runs(len(loo)):
        excess = np.maximum(point.g[at] - (1.0 - part[at]) * 2.0 * c[at], 0.0)
        loo[at] = point.f[at] - y[at] * excess * distance[at]
    loo[margin] = point.f[margin] - y[margin] * on_margin
    if not margin.any():  # a step along the flat intercept ends where rows meet the margin
        loo = np.clip(loo, min(float(point.f.min()), -1.0), max(float(point.f.max()), 1.0))
    return loo


def _squares(model: Model, metric: Array) -> Array:
    """Squared lengths of the rows in a metric."""
    lead = int(model.blocks.design.intercept)
    return model.blocks.design.scaled(metric[lead:]).norms() + float((metric[:lead] ** 2).sum())


def _distances(model: Model, rows: Array, metric: Array) -> tuple[Array, Array]:
    """Squared distance of every row of the model from the span of ``rows``, and of each of these from the others' span.

    What is orthogonal to the span is multiplied with where it is the smaller part. A row that the others span, as where
    there are more of them than coefficients, is at distance zero.
    """
    m, p = rows.shape
    left, size, right = np.linalg.svd(rows, full_matrices=m < p < 2 * m)
    rank = int((size > 1e-8 * size[0]).sum())
    left, size = left[:, :rank], size[:rank]
    leverage = np.einsum("ij,ij->i", left, left)
    left = left / size
    own = np.where(leverage > 1.0 - 1e-9, 1.0 / np.einsum("ij,ij->i", left, left), 0.0)
    if len(right) == p <= 2 * rank:
        return model.blocks.row_quad(np.ascontiguousarray((right[rank:] * metric).T)), own
    within = model.blocks.row_quad(np.ascontiguousarray((right[:rank] * metric).T))
    return np.maximum(_squares(model, metric) - within, 0.0), own
