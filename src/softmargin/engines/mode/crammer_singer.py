"""The mode under the hinge of Crammer and Singer and a normal prior, by a primal-dual interior-point method."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.classes import helmert
from softmargin.solvers.gaussian import Gaussian

__all__ = ["ScorePoint", "mode_root", "score_mode"]

_STEPS = 100
_CLOSE = 1e-11  # relative gap at which the search ends
_SPENT = 1e-13  # mean complementarity, per unit of 2c, below which rounding rules
_INSIDE = 0.99  # share of the way to the boundary
_SMOOTH = 1e-3  # mean complementarity, per unit of 2c and in units of the margin, from which curvatures may be taken
_FAR = 1.1  # times the objective of the mode: points further from it say nothing of left-out rows
_SHORT = 1e-6  # relative gap of a path that did not arrive


class ScorePoint(NamedTuple):
    """Coefficients (k, q) with the scores (n, k) and multipliers (n, k) of the rows.

    ``z`` sums to 2c in every row; the loss has the derivative ``z - 2 c [r = y]`` in the scores.
    """

    beta: Array
    f: Array
    z: Array
    curvature: Array  # (n, k, k) in the scores
    objective: float
    gap: float


def score_mode(X: Array, label: Any, c: Array, precision: Array, k: int) -> tuple[ScorePoint, ScorePoint]:
    """The minimum of ``2 sum_i c_i max_r(1 - [r = y_i] + f_r - f_y) + sum_r beta_r' D beta_r / 2``, and a smooth point.

    With slacks ``s_r = xi - (1 - [r = y]) - f_r + f_y >= 0`` and multipliers z the optimum has ``sum_r z_r = 2c``,
    ``z s = 0`` and ``D beta_r = sum_i x_i (2 c_i [r = y_i] - z_ir)``. A Newton step on ``z s = 2 c mu``, which makes a
    row of weight w what w rows are, changes z by
    ``(diag h - h h'/sum h) df`` with ``h = z/s``, so that each row brings a k x k curvature in its scores. The second
    point is one on the way, where curvatures are still those of a smooth loss. The gap is certified: any such z gives
    the lower bound ``sum z (1 - [r = y]) - |D^(-1/2) X'(2c [r = y] - z)|^2 / 2``. Where weights are so unlike that
    this path does not arrive, it is taken with one target for all rows.
    """
    found = _path(X, label, c, precision, k, c)
    if found[0].gap > _SHORT:
        other = _path(X, label, c, precision, k, np.full(len(c), c.mean()))
        found = min(found, other, key=lambda points: points[0].gap)
    return found


def _path(X: Array, label: Any, c: Array, precision: Array, k: int, share: Array) -> tuple[ScorePoint, ScorePoint]:
    """Both points by a path of targets in proportion to the rows' ``share``."""
    (n, q), A = X.shape, helmert(k)
    own = np.zeros((n, k))
    own[np.arange(n), label] = 1.0
    C, margin = 2.0 * c, 1.0 - own
    whole, share = 2.0 * k * float(share.sum()), 2.0 * share[:, None]
    theta, z = np.zeros((k - 1, q)), np.repeat(C[:, None] / k, k, axis=1)
    s = 2.0 - margin  # xi = 2 and scores of zero; later slacks are carried along, as differences they would cancel
    smooth, point = [], None
    for _ in range(_STEPS):
        f = X @ theta.T @ A
        h = z / s
        total = h.sum(axis=1, keepdims=True)
        curvature = _curvature(h, total)
        point = _point(X, A, theta, f, z, curvature, C, own, precision)
        mu = float((z * s).sum()) / whole
        if mu < _SMOOTH:
            smooth.append(point)
        if point.gap < _CLOSE or mu < _SPENT:
            break
        q_theta = _factor(X, A, curvature, precision)
        residual = precision * theta + ((z - C[:, None] * own) @ A.T).T @ X

        def direction(
            target: Array,
            *,
            q_theta: Gaussian = q_theta,
            s: Array = s,
            h: Array = h,
            total: Array = total,
            residual: Array = residual,
            z: Array = z,
        ) -> tuple[Array, ...]:
            aim = target / s
            kappa = aim - z - h * (aim.sum(axis=1, keepdims=True) - C[:, None]) / total
            step = q_theta.solve(-(residual + (kappa @ A.T).T @ X).ravel()).reshape(k - 1, q)
            df = X @ step.T @ A
            lift = (aim.sum(axis=1) - C + (h * df).sum(axis=1)) / total[:, 0]  # of xi + f_y
            return step, aim - z + h * (df - lift[:, None]), lift[:, None] - df

        step, dz, ds = direction(np.zeros_like(z))
        reach = _reach(z, dz), _reach(s, ds)
        ahead = float(((z + reach[0] * dz) * (s + reach[1] * ds)).sum()) / whole
        step, dz, ds = direction(share * mu * (ahead / mu) ** 3 - dz * ds)
        t = min(1.0, _INSIDE * min(_reach(z, dz), _reach(s, ds)))
        theta, z, s = theta + t * step, z + t * dz, s + t * ds
    assert point is not None
    near = (one for one in smooth if one.objective <= _FAR * point.objective)
    return point, next(near, point)


def mode_root(X: Array, point: ScorePoint, precision: Array) -> Array:
    """R (k q, m) with ``R R'`` the covariance of the coefficients under the curvatures of a point."""
    A = helmert(len(point.beta))
    root = _factor(X, A, point.curvature, precision).root
    return np.asarray(np.einsum("sr,sjm->rjm", A, root.reshape(len(A), X.shape[1], -1))).reshape(point.beta.size, -1)


def _curvature(h: Array, total: Array) -> Array:
    """``diag h - h h'/total`` with the diagonal from the rest of its row, where nothing cancels."""
    W = -h[:, :, None] * (h / total)[:, None, :]
    at = np.arange(h.shape[1])
    W[:, at, at] = 0.0
    W[:, at, at] = -W.sum(axis=2)
    return W


def _factor(X: Array, A: Array, curvature: Array, precision: Array) -> Gaussian:
    """The precision ``D + sum_i (A W_i A') kron x_i x_i'`` of the contrasts, factored."""
    m, q = len(A), X.shape[1]
    W = np.einsum("sr,iru,tu->ist", A, curvature, A, optimize=True)
    M = np.empty((m, q, m, q))
    for s in range(m):
        for t in range(s + 1):
            M[s, :, t] = X.T @ (W[:, s, t, None] * X)
            M[t, :, s] = M[s, :, t].T
    M = M.reshape(m * q, m * q)
    M.flat[:: m * q + 1] += np.tile(precision, m)
    return Gaussian.from_precision(M, np.zeros(m * q))


def _point(
    X: Array, A: Array, theta: Array, f: Array, z: Array, curvature: Array, C: Array, own: Array, precision: Array
) -> ScorePoint:
    worst = np.maximum((1.0 - own + f - (f * own).sum(axis=1, keepdims=True)).max(axis=1), 0.0)
    objective = float(C @ worst) + 0.5 * float((precision * theta**2).sum())
    z = z * (C / z.sum(axis=1))[:, None]  # but for rounding it is
    score = ((C[:, None] * own - z) @ A.T).T @ X
    lower = float((z * (1.0 - own)).sum()) - 0.5 * float((score**2 / precision).sum())
    gap = (objective - lower) / max(abs(objective), 1e-300)
    return ScorePoint(A.T @ theta, f, z, curvature, objective, gap)


def _reach(x: Array, dx: Array) -> float:
    """The longest step, up to 1, that keeps x positive."""
    falling = dx < 0.0
    return float(min(1.0, (x[falling] / -dx[falling]).min())) if falling.any() else 1.0
