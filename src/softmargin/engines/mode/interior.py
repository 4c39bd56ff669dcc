"""The exact posterior mode at one scale: a primal-dual interior point, then the active set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, run
from softmargin.core.model import Model
from softmargin.engines.mode._barriers import edges_of
from softmargin.engines.mode._interior_compiled import advanced, aim_at_zero, aim_centred, moved, products
from softmargin.engines.mode.active_set import ActiveSet, finish
from softmargin.engines.mode.duality_gap import certify, objective_of
from softmargin.priors.penalty import Penalty

__all__ = ["InteriorPoint", "Point", "exact_mode", "path"]

_LATE = 1e-2  # sum of the products, to the objective, below which the gap is certified
_ROUGH = 1e-4  # mean product, to a row's weight, above which single precision is good enough for a direction
_HEAVY = 0.99  # share of the rows that weigh no more than that one
_LEFT = 1e-4  # squared length, to that of the step, of what a direction may leave of the equations
_LONG = 40  # steps after which neither is left out
_SHARE = 0.995  # of the way to the boundary
_MOST = 200  # steps
_CHANGES = 25  # exchanges of rows and coefficients at most, from the interior point to the exact mode


class Point(NamedTuple):
    """Primal-dual iterate: ``1 - y f = xi - s`` with multipliers g in (0, 2c), and ``v = 2c - g`` carried apart."""

    beta: Array
    f: Array
    xi: Array
    s: Array
    v: Array
    g: Array
    edges: Any  # the variables of the penalty's edges
    gap: float
    mu: float  # smallest mean product so far
    stalled: int  # steps since it last fell
    rough: float  # mean product above which single precision is good enough for a direction
    best: Any = None  # an earlier iterate with a smaller certified gap, where there is one

    @property
    def rows(self) -> tuple[Array, Array, Array, Array]:
        """The row variables."""
        return self.xi, self.s, self.v, self.g

    def margin(self, c: Array) -> Any:
        """Rows that end up on the margin, by which of the products' factors is the larger."""
        inside = np.minimum(self.g, self.v) / np.maximum(2.0 * c, 1e-300)
        return inside > np.maximum(self.xi, self.s)


@dataclass(frozen=True)
class InteriorPoint:
    """Mehrotra predictor-corrector for ``2 c'max(1 - y f, 0) + penalty(beta)``; one weighted Gram a step.

    Rows and the penalty's edges are treated alike: both have products with their multipliers that are driven to zero
    together, and both end up in the same normal matrix. While the products are large, a matrix in single precision is
    good enough for a direction: residuals are always exact, so what it leaves the next step takes up.
    """

    penalty: Penalty

    def init(self, model: Model) -> Point:
        n, c = len(model.y), model.c
        rows = np.full(n, 2.0), np.ones(n), c.copy(), c.copy()
        edges = edges_of(self.penalty).init()
        rough = _ROUGH * float(np.quantile(c, _HEAVY))
        return Point(np.zeros(model.size), np.zeros(n), *rows, edges, math.inf, math.inf, 0, rough)

    def step(self, model: Model, x: Point, iteration: int) -> tuple[Point, Info]:
        y, blocks, kind = model.y, model.blocks, edges_of(self.penalty)
        edges = kind.at(x.edges, x.beta)
        stationary = self.penalty.precision * x.beta - blocks.rmatvec(y * x.g) + kind.subgradient(x.edges)
        diagonal, count = self.penalty.precision + edges.diagonal, 2 * len(y) + edges.degree

        # 1. predictor: aim at products of zero
        w, toward, message, total = aim_at_zero(y, x.f, *x.rows)
        total += edges.product
        mu = total / count
        early = iteration < _LONG and not total < _LATE * objective_of(model, x.beta, x.f, self.penalty)
        aim = edges.predictor()
        equations = w, message, diagonal, -stationary - edges.pull(aim), edges.rank_two
        try:
            single = iteration < _LONG and mu > x.rough
            found = _rough(model, *equations) if single else None
            gaussian, ahead = _exact(model, *equations) if found is None else found
        except np.linalg.LinAlgError:
            if math.isinf(x.mu):
                raise
            return x, Info(-math.inf, x.gap, True)  # the normal matrix has no digits left
        rough = math.inf if single and found is None else x.rough
        dbeta = gaussian.mean
        dxi, ds, dg, falls = moved(y, ahead, *x.rows, w, toward, -x.xi, -x.s)
        move = edges.move(dbeta, aim)
        length, dual = self._reach(edges, move, falls, 1.0)
        trial = products(*x.rows, dxi, ds, dg, length, dual) + edges.trial(move, min(length, dual))
        target = mu * (max(trial, 0.0) / total) ** 3

        # 2. corrector: aim at the target with the second-order products
        a, b, toward, message = aim_centred(y, x.f, *x.rows, w, dxi, ds, dg, target)
        aim = edges.corrector(move, target)
        dbeta = gaussian.solve(blocks.rmatvec(message) - stationary - edges.pull(aim))
        ahead = blocks.matvec(dbeta)
        dxi, ds, dg, falls = moved(y, ahead, *x.rows, w, toward, a, b)
        move = edges.move(dbeta, aim)
        length, dual = self._reach(edges, move, falls, _SHARE)
        beta, f = x.beta + length * dbeta, x.f + length * ahead
        new = Point(
            beta,
            f,
            *advanced(*x.rows, dxi, ds, dg, length, dual),
            kind.moved(x.edges, move, length, dual, beta),
            x.gap,
            min(mu, x.mu),
            0 if mu < 0.9 * x.mu else x.stalled + 1,
            rough,
        )
        return self._judged(model, x, new, early, found is not None)

    def _reach(self, edges: Any, move: Any, falls: tuple[float, float], share: float) -> tuple[float, float]:
        """Lengths of the primal and the dual step: they may differ where the penalty has no squares to tie them."""
        first, second = (1.0 / max(fall, 1e-300) for fall in falls)
        second = min(second, edges.room(move))
        if edges.tied:
            first = second = min(first, second)
        return min(1.0, share * first), min(1.0, share * second)

    def _judged(self, model: Model, x: Point, new: Point, early: bool, single: bool) -> tuple[Point, Info]:
        """The new iterate with its certified gap, or the old one where the normal matrix has no digits left."""
        broken, objective = new.stalled > 25 or not np.isfinite(new.f).all(), -math.inf
        if not early:
            certificate = certify(model, new.beta, new.f, new.g, self.penalty)
            worse = not certificate.gap <= x.gap  # rounding has the last word near the end
            lost = (certificate.gap > 1e3 * x.gap and x.gap < 1e-4) or (worse and x.gap < 1e-9)
            broken, objective = broken or lost or not np.isfinite(certificate.gap), -certificate.objective
            new = new._replace(gap=min(certificate.gap, x.gap), best=(x.best or x) if worse else None)
        if broken and single:  # there are more digits to be had
            return x._replace(rough=math.inf, stalled=0), Info(objective, math.inf)
        return (x if broken else new), Info(objective, math.inf if early else certificate.gap, broken)


Equations = tuple[Any, Array]


def _exact(model: Model, w: Array, message: Array, diagonal: Array, shift: Array, rank_two: Array | None) -> Equations:
    """The normal equations of a step, and where they send the predictors."""
    with np.errstate(over="ignore", invalid="ignore"):  # at the end of all digits; the step is then not taken
        gaussian = model.solver(w, message, diagonal, shift, rank_two)
        return gaussian, model.blocks.matvec(gaussian.mean)


def _rough(
    model: Model, w: Array, message: Array, diagonal: Array, shift: Array, rank_two: Array | None
) -> Equations | None:
    """The same in single precision, None where that leaves too much of the equations."""
    gaussian = None if rank_two is not None else model.direction(w, message, diagonal, shift)
    if gaussian is None:
        return None
    ahead = model.blocks.matvec(gaussian.mean)
    left = model.blocks.rmatvec(message - w * ahead) + shift - diagonal * gaussian.mean
    size = float(w @ (ahead * ahead)) + float(diagonal @ (gaussian.mean * gaussian.mean))
    return (gaussian, ahead) if float(left @ gaussian.solve(left)) <= _LEFT * size else None


def path(model: Model, penalty: Penalty, gap: float, x: Point | None = None) -> Point:
    """Where the interior point is at a given relative gap, from the beginning or from ``x`` on."""
    x = run(InteriorPoint(penalty), model, max_iter=_MOST, tol=gap, state=x, inner=True).state
    return x.best or x


def exact_mode(model: Model, penalty: Penalty, gap: float, x: Point | None = None) -> ActiveSet:
    """The interior point to a given gap, then the active set."""
    x = path(model, penalty, gap, x)
    margin = x.margin(model.c)
    active = edges_of(penalty).active(x.edges, _equations(model, penalty, margin))
    changes = _CHANGES if model.space.exchanges else 0
    return finish(model, x.beta, np.clip(x.g, 0.0, 2.0 * model.c), margin, penalty, active=active, changes=changes)


def _equations(model: Model, penalty: Penalty, margin: Any) -> int:
    """How many coefficients rows on the margin determine: one for each that differs, where no square bends them."""
    straight = penalty.corner & (penalty.precision == 0.0)
    if not straight.any() or margin.sum() > 2 * model.size + 50:
        return 0
    rows = model.blocks.design.rows(np.flatnonzero(margin)) * model.y[margin][:, None]
    return min(len(np.unique(rows.round(12), axis=0)), model.size)
