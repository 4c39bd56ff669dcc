"""The exact posterior mode: primal-dual interior point, then the active set."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.active_set import ActiveSet, finish
from softmargin.engines.approach import Near, approach, many_rows
from softmargin.engines.certificate import certify
from softmargin.engines.edges import edges_of, room
from softmargin.engines.loop import Info, run
from softmargin.engines.model import Model
from softmargin.engines.penalty import Penalty
from softmargin.engines.reduced import reduced_mode
from softmargin.priors.base import PriorMessage
from softmargin.solvers.gaussian import Normal

__all__ = ["InteriorPoint", "ModeState", "Newton"]

_ENOUGH, _RATIO = 1500, 8  # rows, and rows for each coefficient, that the interior point takes on at once
_MANY = 8000  # rows from which a start near the mode is worth looking for
_TIGHT = 1e-13  # relative gap of few rows: the others weigh in the objective too
_ANSWERS = 5  # rounds between a scale and a mode that is linear in its precision
_CHANGES = 25  # exchanges of rows and coefficients at most, from the interior point to the exact mode


class _Point(NamedTuple):
    """Primal-dual iterate: ``1 - y f = xi - s`` with multipliers g in (0, 2c), and ``v = 2c - g`` carried apart."""

    beta: Array
    f: Array
    positive: tuple[Array, ...]  # xi, s
    dual: tuple[Array, ...]  # v, g: their products with the above go to zero
    edges: Any  # the variables of the penalty's edges
    gap: float
    mu: float  # smallest mean product so far
    stalled: int  # steps since it last fell
    best: Any = None  # an earlier iterate with a smaller certified gap, where there is one


@dataclass(frozen=True)
class InteriorPoint:
    """Mehrotra predictor-corrector for ``2 c'max(1 - y f, 0) + penalty(beta)``; one weighted Gram a step.

    Rows and the penalty's edges are treated alike: both have products with their multipliers that are driven to zero
    together, and both end up in the same normal matrix.
    """

    penalty: Penalty

    def init(self, model: Model) -> _Point:
        n, c = len(model.y), model.c
        rows = (np.full(n, 2.0), np.ones(n)), (c.copy(), c.copy())
        edges = edges_of(self.penalty).init()
        return _Point(np.zeros(model.size), np.zeros(n), *rows, edges, math.inf, math.inf, 0)

    def step(self, model: Model, x: _Point, iteration: int) -> tuple[_Point, Info]:
        y, blocks, kind = model.y, model.blocks, edges_of(self.penalty)
        (xi, s), (v, g) = x.positive, x.dual
        edges = kind.at(x.edges, x.beta)
        # residuals: 1 - y f = xi - s, and stationarity
        off_rows = y * x.f - 1.0 + xi - s
        stationary = self.penalty.precision * x.beta - blocks.rmatvec(y * g) + kind.subgradient(x.edges)
        count = 2 * len(y) + edges.degree
        mu = (sum(float(a @ b) for a, b in zip(x.positive, x.dual, strict=True)) + edges.product) / count
        inverse = 1.0 / (xi / v + s / g)

        def direction(aim: tuple[Array, ...], edge_aim: Any, gaussian: Any) -> tuple[Any, _Step]:
            """Newton step that sends each product to its aim, given as additive changes of the positive parts."""
            a1, a2 = aim
            toward = -off_rows - a1 + a2
            shift = -stationary - edges.pull(edge_aim)
            if gaussian is None:
                diagonal = self.penalty.precision + edges.diagonal
                gaussian = model.solver(inverse, y * inverse * toward, diagonal, shift, edges.dent)
                dbeta = gaussian.mean
            else:
                dbeta = gaussian.solve(blocks.rmatvec(y * inverse * toward) + shift)
            ahead = blocks.matvec(dbeta)
            dg = (toward - y * ahead) * inverse
            dpositive = (a1 + (xi / v) * dg, a2 - (s / g) * dg)
            return gaussian, _Step(dbeta, ahead, dpositive, (-dg, dg), edges.move(dbeta, edge_aim))

        def reach(move: _Step, share: float) -> tuple[float, float]:
            """Lengths of the primal and the dual step: they may differ where the penalty has no squares to tie them."""
            first, second = room(x.positive, move.positive), min(room(x.dual, move.dual), edges.room(move.edges))
            if edges.tied:
                first = second = min(first, second)
            return min(1.0, share * first), min(1.0, share * second)

        # 1. predictor: aim at products of zero
        gaussian, move = direction(tuple(-part for part in x.positive), edges.predictor(), None)
        length, dual = reach(move, 1.0)
        pairs = zip(x.positive, move.positive, x.dual, move.dual, strict=True)
        trial = sum(float((a + length * da) @ (b + dual * db)) for a, da, b, db in pairs)
        trial = (trial + edges.trial(move.edges, min(length, dual))) / count
        target = mu * (max(trial, 0.0) / mu) ** 3
        # 2. corrector: aim at the target with the second-order products
        parts = zip(x.positive, move.positive, x.dual, move.dual, strict=True)
        aim = tuple((target - da * db) / b - a for a, da, b, db in parts)
        _, move = direction(aim, edges.corrector(move.edges, target), gaussian)
        length, dual = reach(move, 0.995)
        beta, f = x.beta + length * move.beta, x.f + length * move.f
        new = _Point(
            beta,
            f,
            tuple(a + length * da for a, da in zip(x.positive, move.positive, strict=True)),
            tuple(b + dual * db for b, db in zip(x.dual, move.dual, strict=True)),
            kind.moved(x.edges, move.edges, length, dual, beta),
            x.gap,
            min(mu, x.mu),
            0 if mu < 0.9 * x.mu else x.stalled + 1,
        )
        certificate = certify(model, beta, f, new.dual[1], self.penalty)
        worse = not certificate.gap <= x.gap  # rounding has the last word near the end
        new = new._replace(gap=min(certificate.gap, x.gap), best=(x.best or x) if worse else None)
        # the normal matrix has no digits left
        lost = (certificate.gap > 1e3 * x.gap and x.gap < 1e-4) or (worse and x.gap < 1e-9)
        done = not np.isfinite(certificate.gap) or new.stalled > 25 or lost
        return (x if done else new), Info(-certificate.objective, certificate.gap, done)


class _Step(NamedTuple):
    beta: Array
    f: Array
    positive: tuple[Array, ...]
    dual: tuple[Array, ...]
    edges: Any


class ModeState(NamedTuple):
    """A mode at one value of the prior's scale, and the value that the coefficients call for next."""

    point: ActiveSet
    prior: PriorMessage
    penalty: Penalty
    objective: float
    tried: float  # log of the scale the coefficients were found at
    wanted: float  # log of the scale that maximises the density given them
    before: tuple[float, float]  # the previous (tried, wanted)


@dataclass(frozen=True)
class Newton:
    """Posterior mode with a certificate; a learned scale is updated in alternation (ECME).

    A step finds the exact mode of the coefficients at one value of the scale, then the mode of the scale given the
    coefficients, so the joint density never falls. The scalar sequence is accelerated by secant steps, taken only
    where they raise the joint density. With a fixed scale the first step is the answer.
    """

    start: float = 1.0
    gap: float = 1e-9
    needs_loss = ("loglik", "box")
    needs_prior = ("mode", "penalty")

    def init(self, model: Model) -> ModeState:
        fixed = model.prior.stretch(model.prior.start()) is None
        scale = model.prior.start().values["scale"] if fixed else self.start
        near = None
        if many_rows(model):
            penalty = self._penalty(model, scale)
            near, q = approach(model, penalty)
            scale = scale if fixed else self._near_scale(model, near.beta, penalty, q)
        return self._mode(model, math.log(scale), (math.nan, math.nan), near)

    def _near_scale(self, model: Model, beta: Array, penalty: Penalty, q: Normal) -> float:
        """The scale that goes with its mode, when the mode answers to the squares of the penalty as q says."""
        moved = beta
        for _ in range(_ANSWERS):
            scale: float = model.prior.mode(moved).values["scale"]
            moved = beta - q.solve((self._penalty(model, scale).precision - penalty.precision) * moved)
        return scale

    def step(self, model: Model, state: ModeState, iteration: int) -> tuple[ModeState, Info]:
        residual = state.wanted - state.tried
        change = abs(residual)
        if change == 0.0:
            return state, Info(state.objective, 0.0, True)
        last_tried, last_wanted = state.before
        here = (state.tried, state.wanted)
        slope = (state.wanted - last_wanted) / (state.tried - last_tried) if state.tried != last_tried else math.nan
        new = None
        if slope < 0.999 and math.isfinite(slope):
            leap = state.tried + min(max(residual / (1.0 - slope), -3.0), 3.0)
            new = self._mode(model, leap, here, state.point)
            new = new if new.objective >= state.objective else None
        if new is None:
            new = self._mode(model, state.wanted, here, state.point)
        if new.objective < state.objective - 1e-12 * (1.0 + abs(state.objective)):  # only rounding is left
            return state, Info(state.objective, change, True)
        new = new._replace(objective=max(new.objective, state.objective))
        return new, Info(new.objective, abs(new.wanted - new.tried))

    def _mode(
        self, model: Model, log_scale: float, before: tuple[float, float], near: Near | ActiveSet | None = None
    ) -> ModeState:
        penalty = self._penalty(model, math.exp(log_scale))
        point = self.at(model, penalty, near)
        prior = model.prior.mode(point.beta)
        objective = float(model.loss.loglik(model.y, model.c, point.f).sum()) + prior.bound
        return ModeState(point, prior, penalty, objective, log_scale, math.log(prior.values["scale"]), before)

    def _penalty(self, model: Model, scale: float) -> Penalty:
        parts = model.prior.penalty(scale)
        if parts is None:
            raise ValueError(
                "the interior point needs a penalty of squares, absolute values and lengths (ridge, lasso); use "
                "engine_options={'algorithm': 'em'}."
            )
        return Penalty(*parts)

    def at(self, model: Model, penalty: Penalty, near: Near | ActiveSet | None = None) -> ActiveSet:
        """The mode of the coefficients under a given penalty.

        ``near`` is a point close to it, as the mode at another scale. With many rows only those near the margin of such
        a point are worked on, and all of them checked.
        """
        few = model.dimension != model.size or len(model.y) <= max(_ENOUGH, _RATIO * model.size)
        if near is None and len(model.y) > _MANY and not few and hasattr(model.blocks.design, "pick"):
            near = approach(model, penalty)[0]
        if near is None or few:
            return self._interior(model, penalty)
        solve = replace(self, gap=_TIGHT)._interior
        found = reduced_mode(model, penalty, near.f, solve, rough=isinstance(near, Near))
        return self._interior(model, penalty) if found is None else found

    def _interior(self, model: Model, penalty: Penalty) -> ActiveSet:
        """The interior point on all rows, then the active set."""
        x: _Point = run(InteriorPoint(penalty), model, max_iter=200, tol=self.gap, inner=True).state
        x = x.best or x
        (xi, s), (v, g) = x.positive, x.dual
        margin = np.minimum(g, v) / np.maximum(2.0 * model.c, 1e-300) > np.maximum(xi, s)
        active = edges_of(penalty).active(x.edges)
        changes = _CHANGES if model.space.exchanges else 0
        return finish(model, x.beta, np.clip(g, 0.0, 2.0 * model.c), margin, penalty, active=active, changes=changes)
