"""The exact posterior mode: primal-dual interior point, then the active set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.active_set import ActiveSet, finish
from softmargin.engines.certificate import certify
from softmargin.engines.loop import Info, run
from softmargin.engines.model import Model
from softmargin.priors.base import PriorMessage
from softmargin.solvers.gaussian import Gaussian

__all__ = ["InteriorPoint", "ModeState", "Newton"]


class _Point(NamedTuple):
    """Primal-dual iterate: ``1 - y f = xi - s``, multipliers g in (0, 2c) with ``v = 2c - g`` carried apart."""

    beta: Array
    f: Array
    g: Array
    v: Array
    xi: Array
    s: Array
    gap: float
    stalled: int


@dataclass(frozen=True)
class InteriorPoint:
    """Mehrotra predictor-corrector for ``2 c'max(1 - y f, 0) + beta'D beta/2``; one weighted Gram a step."""

    precision: Array

    def init(self, model: Model) -> _Point:
        n = len(model.y)
        c = model.c
        return _Point(np.zeros(model.size), np.zeros(n), c.copy(), c.copy(), np.full(n, 2.0), np.ones(n), math.inf, 0)

    def step(self, model: Model, x: _Point, iteration: int) -> tuple[_Point, Info]:
        y, D, blocks = model.y, self.precision, model.blocks
        n = len(y)
        # residuals of 1 - y f = xi - s and of D beta = X'(y g)
        primal = y * x.f - 1.0 + x.xi - x.s
        dual = D * x.beta - blocks.rmatvec(y * x.g)
        mu = float(x.xi @ x.v + x.s @ x.g) / (2 * n)
        inverse = 1.0 / (x.xi / x.v + x.s / x.g)

        # 1. predictor: aim at mu = 0
        toward = -primal + x.xi - x.s
        A, rhs = blocks.gram(inverse, y * inverse * toward)
        A.flat[:: len(D) + 1] += D
        gaussian = Gaussian.from_precision(A, rhs - dual)
        ahead = blocks.matvec(gaussian.mean)
        dg = (toward - y * ahead) * inverse
        dxi = -x.xi + (x.xi / x.v) * dg
        ds = -x.s - (x.s / x.g) * dg
        step = min(1.0, _room(x, dg, dxi, ds))
        trial = (x.xi + step * dxi) @ (x.v - step * dg) + (x.s + step * ds) @ (x.g + step * dg)
        target = mu * (max(float(trial), 0.0) / (2 * n * mu)) ** 3

        # 2. corrector: aim at the target with the second-order products
        a1 = (target + dxi * dg) / x.v - x.xi
        a2 = (target - ds * dg) / x.g - x.s
        toward = -primal - a1 + a2
        dbeta = gaussian.solve(blocks.rmatvec(y * inverse * toward) - dual)
        ahead = blocks.matvec(dbeta)
        dg = (toward - y * ahead) * inverse
        dxi = a1 + (x.xi / x.v) * dg
        ds = a2 - (x.s / x.g) * dg
        step = min(1.0, 0.995 * _room(x, dg, dxi, ds))
        beta = x.beta + step * dbeta
        f = x.f + step * ahead
        new = _Point(beta, f, x.g + step * dg, x.v - step * dg, x.xi + step * dxi, x.s + step * ds, x.gap, x.stalled)
        certificate = certify(model, beta, f, new.g, D)
        better = certificate.gap < 0.9 * x.gap
        new = new._replace(gap=min(certificate.gap, x.gap), stalled=0 if better else x.stalled + 1)
        done = not np.isfinite(certificate.gap) or new.stalled > 6
        return (x if done else new), Info(-certificate.objective, certificate.gap, done)


def _room(x: _Point, dg: Array, dxi: Array, ds: Array) -> float:
    """Largest step that keeps all variables positive."""
    room = math.inf
    for value, change in ((x.g, dg), (x.v, -dg), (x.xi, dxi), (x.s, ds)):
        ratio = -change / value
        room = min(room, 1.0 / max(float(ratio.max()), 1e-300))
    return room


class ModeState(NamedTuple):
    """A mode at one value of the prior's scale, and the value that the coefficients call for next."""

    point: ActiveSet
    prior: PriorMessage
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
    needs_loss = ("loglik",)
    needs_prior = ("mode", "at_scale")

    def init(self, model: Model) -> ModeState:
        fixed = model.prior.stretch(model.prior.start()) is None
        scale = model.prior.start().values["scale"] if fixed else self.start
        return self._mode(model, math.log(scale), (math.nan, math.nan))

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
            new = self._mode(model, leap, here)
            new = new if new.objective >= state.objective else None
        if new is None:
            new = self._mode(model, state.wanted, here)
        if new.objective < state.objective:  # only rounding is left
            return state, Info(state.objective, change, True)
        return new, Info(new.objective, abs(new.wanted - new.tried))

    def _mode(self, model: Model, log_scale: float, before: tuple[float, float]) -> ModeState:
        precision = model.prior.at_scale(math.exp(log_scale)).start().precision
        point = self.at(model, precision)
        prior = model.prior.mode(point.beta)
        objective = float(model.loss.loglik(model.y, model.c, point.f).sum()) + prior.bound
        return ModeState(point, prior, objective, log_scale, math.log(prior.values["scale"]), before)

    def at(self, model: Model, precision: Array) -> ActiveSet:
        """The mode of the coefficients under a given prior precision."""
        inner = run(InteriorPoint(precision), model, max_iter=200, tol=self.gap)
        x: _Point = inner.state
        margin = np.minimum(x.g, x.v) / np.maximum(2.0 * model.c, 1e-300) > np.maximum(x.xi, x.s)
        return finish(model, x.beta, np.clip(x.g, 0.0, 2.0 * model.c), margin, precision)
