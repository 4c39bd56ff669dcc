"""How trajectories see the rows: the exact density at their ends, the score of the loss smoothed on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.sampling.hmc._compiled import (
    BLOCK,
    LOT,
    MOST,
    decide,
    finish,
    journey,
    leap,
    likelihood,
    longer,
    products,
    pull,
    room_for,
)
from softmargin.engines.sampling.hmc._scale import SharedPrior
from softmargin.engines.sampling.hmc._visits import NARROW, likelihoods, slopes, spreads
from softmargin.rows.in_memory import at_home

__all__ = ["Motion", "Outcome", "Point", "Rows", "Trajectory", "rows_for"]

_FAR = 1e3  # predictors on the outer lines of a loss with kinks
_CERTAIN = 3.5  # sds from its kink at which a row's score no longer moves the kicks


class Point(NamedTuple):
    """Where the chains stand; one row per chain."""

    q: Array  # whitened coefficients
    beta: Array
    pull: Array  # smoothed score of the rows in the coefficients
    loglik: Array


class Motion(NamedTuple):
    """The prior ``exp(-precision beta^2/2)`` of each chain times one that all share, and the Gaussian to rotate."""

    precision: Array  # (chain, coefficient)
    shared: SharedPrior
    spread: Array  # sd of each coefficient, the unit of smoothing |beta|
    root: Array  # (1 or chain, coefficient, coordinate)
    turned: Array  # transpose of the first root
    centre: Array  # (1 or chain, coefficient)
    origin: Array  # whitened centre
    dimension: int  # of the space of coefficients


class Trajectory(NamedTuple):
    """Random numbers of some transitions (transition, chain, ...), and their steps and smoothing in sds."""

    momentum: Array
    theta: Array  # angle
    uniform: Array  # decides
    far: Array  # moves of log |beta| before the trajectories, or empty
    far_uniform: Array
    steps: int
    kappa: float


class Outcome(NamedTuple):
    """Where a transition led: the point, the coefficients averaged over acceptance, its probability, whether it was."""

    point: Point
    mean: Array
    probability: Array
    accept: Any


class Rows(Protocol):
    """The rows of a model, prepared."""

    @property
    def moving(self) -> int:
        """How many rows the kicks look at."""

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        """Everything about given coefficients."""

    def transitions(self, point: Point, motion: Motion, path: Trajectory) -> list[Outcome]:
        """Trajectories of every chain, one after another, each accepted or refused by the exact density."""


class Lines(NamedTuple):
    """A loss of two straight lines: for every row the kink, the slope left of it, its jump, and the value there."""

    kink: Array
    left: Array
    jump: Array
    top: Array


def two_lines(model: Model) -> Lines | None:
    """The kink of every row if the loss is two straight lines, None otherwise.

    A concave function that touches the crossing of two of its tangents is made of them.
    """
    loss, y, c = model.loss, model.y, model.c
    far = np.full(len(y), _FAR)
    left, right = loss.score(y, c, -far), loss.score(y, c, far)
    low, high = loss.loglik(y, c, -far), loss.loglik(y, c, far)
    jump = right - left
    bends = jump != 0.0
    # the lines cross where low + left (kink + far) = high + right (kink - far)
    kink = np.where(bends, (low - high + (left + right) * far) / np.where(bends, jump, 1.0), 0.0)
    top = loss.loglik(y, c, kink)
    touches = np.abs(top - low - left * (kink + far)) <= 1e-9 * (1.0 + np.abs(low) + np.abs(high))
    return Lines(kink, left, jump, top) if bool(np.all(touches & (np.abs(kink) < _FAR))) else None


@dataclass(frozen=True, eq=False)
class Copied:
    """Columns copied once, in blocks of rows, for a loss of two straight lines.

    Kicks may be any function of the position, so they are in single precision, and rows that are on one side of their
    kink for certain enter them as a constant. The density has all rows and double precision.
    """

    model: Model
    lines: Lines
    X: Array  # (block, coefficient, row)
    base: Array  # score of the rows that are certain
    narrow: Any  # the other rows, as X
    ramps: tuple[Any, Any, Any, Any]  # their kinks, slopes of the smoothed step at width one, left scores and jumps

    @property
    def moving(self) -> int:
        return int(self.ramps[0].size)

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        pulls, loglik, blas, room = np.empty_like(beta), np.empty(len(q)), products(), self._room(beta, q)
        total, ends = np.empty((LOT, beta.shape[1])), np.empty(LOT)
        for lo in range(0, len(beta), LOT):
            at, here, lot = slice(lo, lo + LOT), len(beta[lo : lo + LOT]), _lot(beta, lo)
            likelihood(blas.gemm, lot, self.X, self.model.n, tuple(self.lines), room.block, ends)
            pull(blas.single, lot, self.base, self.narrow, self.ramps, 1.0 / kappa, room, total)
            pulls[at], loglik[at] = total[:here], ends[:here]
        return Point(q, beta, pulls, loglik)

    def _room(self, beta: Array, q: Array) -> Any:
        return room_for(beta.shape[1], q.shape[1], self.narrow.shape[2], self.X.shape[2])

    def transitions(self, point: Point, motion: Motion, path: Trajectory) -> list[Outcome]:
        count, chains = path.theta.shape
        found = [np.empty((count, *values.shape)) for values in (*point, point.beta)]
        found += [np.empty((count, chains)), np.empty((count, chains), dtype=bool)]

        def run(lo: int) -> None:
            for first in range(lo, min(lo + share, chains), LOT):
                here = min(LOT, chains - first)
                for whole, part in zip(found, self._moved(first, here, point, motion, path), strict=True):
                    whole[:, first : first + here] = part[:, :here]

        blocks = self.model.blocks
        share = LOT * max(1, math.ceil(chains / LOT / blocks.workers))  # lots are shared out over the threads
        blocks.parallel(run, range(0, chains, share))
        return list(map(Outcome, map(Point, *found[:4]), *found[4:]))

    def _moved(self, first: int, here: int, point: Point, motion: Motion, path: Trajectory) -> tuple[Any, ...]:
        """Points, coefficients averaged over acceptance, its probabilities and outcomes, of one lot of chains."""
        start, count = tuple(_lot(values, first) for values in point), len(path.theta)
        q, beta = start[:2]
        noise = tuple(_lots(values, first) for values in path[:5])
        shared = len(motion.root) == 1
        root, centre = (x if shared else _lot(x, first) for x in (motion.root, motion.centre))
        gaussian = _lot(motion.precision, first), motion.shared.form, root, motion.turned, centre, *motion[6:]
        moving = np.empty_like(q), np.empty_like(q), np.empty_like(beta), np.empty_like(beta)
        small = np.empty(LOT), np.empty((2, LOT)), np.empty(LOT)
        ends = tuple(np.empty((count, *values.shape)) for values in start)
        mean, chance = np.empty((count, *beta.shape)), np.empty((count, LOT))
        accept = np.empty((count, LOT), dtype=bool)
        journey(
            here, products(), start, noise, path.steps, 1.0 / path.kappa, gaussian, path.kappa * motion.spread, self.X,
            self.model.n, tuple(self.lines), self.base, self.narrow, self.ramps, self._room(beta, q), moving, small,
            ends, mean, chance, accept,
        )  # fmt: skip
        return *ends, mean, chance, accept


@dataclass(frozen=True, eq=False)
class Direct:
    """Passes over the rows wherever they are: the score of any loss, one pass per step and lot of chains."""

    model: Model
    spread: Any  # handle of the sd of each predictor, the unit of smoothing

    @property
    def moving(self) -> int:
        return self.model.n

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        pull, loglik = np.empty_like(beta), np.empty(len(beta))
        for lo in range(0, len(beta), LOT):
            at, here = slice(lo, lo + LOT), len(beta[lo : lo + LOT])
            lot, ends = self._pass(_lot(beta, lo), kappa, True)
            pull[at], loglik[at] = lot[:here], ends[:here]
        return Point(q, beta, pull, loglik)

    def _pass(self, beta: Array, kappa: float, last: bool) -> Any:
        """Smoothed score of the rows in the coefficients; the log likelihoods as well where it is the ``last`` one."""
        return self.model.blocks.sum(slopes, (self.model.loss, beta, kappa, last), self.spread)

    def transitions(self, point: Point, motion: Motion, path: Trajectory) -> list[Outcome]:
        found = []
        for t in range(len(path.theta)):
            if len(path.far):
                point = self._stretched(point, motion, path, t)
            found.append(self._transition(point, motion, path, t))
            point = found[-1].point
        return found

    def _stretched(self, point: Point, motion: Motion, path: Trajectory, t: int) -> Point:
        """A far move of the length of beta, which separable data with a learned scale need."""
        beta, g, prior = point.beta, np.exp(path.far[t])[:, None], motion.shared.form
        there = g * beta
        lots = [(self.model.loss, _lot(there, lo)) for lo in range(0, len(beta), LOT)]
        gain = np.concatenate([self.model.blocks.sum(likelihoods, lot)[0] for lot in lots])
        for k in range(len(beta)):
            rise = float(gain[k] - point.loglik[k])
            chance = longer(k, beta, there, path.far[t, k], rise, motion.dimension, motion.precision, prior)
            g[k] = g[k] if path.far_uniform[t, k] < chance else 1.0
        if (g == 1.0).all():
            return point
        return self.point(g * point.q + (g - 1.0) * motion.origin, g * beta, path.kappa)

    def _transition(self, point: Point, motion: Motion, path: Trajectory, t: int) -> Outcome:
        new = Point(*(values.copy() for values in point))
        chains, width, shared = path.theta.shape[1], path.kappa * motion.spread, len(motion.root) == 1
        prior, blas, room = motion.shared.form, products(), room_for(point.beta.shape[1], point.q.shape[1], 0, 0)
        mean, probability, accept = np.empty_like(new.beta), np.empty(chains), np.empty(chains, dtype=bool)
        for lo in range(0, chains, LOT):
            given = (point.q, path.momentum[t], point.pull, point.beta, motion.precision)
            q, r, pull, beta, D = (_lot(values, lo) for values in given)
            root, centre = (x if shared else _lot(x, lo) for x in (motion.root, motion.centre))
            angle = _lot(path.theta[t], lo) / path.steps
            size, turn = np.tan(0.5 * angle), np.stack((np.cos(angle), np.sin(angle)))
            factor, ends = 1.0, np.empty(0)  # half a kick at either end, two half kicks at once in between
            for step in range(path.steps):
                finish(blas, q, r, pull, beta, D, prior, width, root, size, factor, room)
                leap(blas, q, r, beta, root, motion.turned, centre, turn)
                pull, *found = self._pass(beta, path.kappa, step == path.steps - 1)
                factor, ends = 2.0, found[0] if found else ends
            finish(blas, q, r, pull, beta, D, prior, width, root, size, 1.0, room)
            here = _lot(point.beta, lo), _lot(path.momentum[t], lo)
            for k in range(len(point.q[lo : lo + LOT])):
                at, loglik = lo + k, float(ends[k])
                chance = decide(k, *here, float(point.loglik[at]), beta, r, loglik, D, prior)
                mean[at] = point.beta[at] + chance * (beta[k] - point.beta[at])
                probability[at], accept[at] = chance, path.uniform[t, at] < chance
                if accept[at]:
                    new.q[at], new.beta[at], new.pull[at], new.loglik[at] = q[k], beta[k], pull[k], loglik
        return Outcome(new, mean, probability, accept)


def _lot(values: Array, first: int) -> Array:
    """The entries of one lot of chains, filled up with zeros."""
    out = np.zeros((LOT, *values.shape[1:]))
    part = values[first : first + LOT]
    out[: len(part)] = part
    return out


def _lots(values: Array, first: int) -> Array:
    """The entries (transition, chain, ...) of one lot of chains, filled up with zeros."""
    part = values[:, first : first + LOT]
    if part.shape[1] == LOT:
        return np.ascontiguousarray(part)
    out = np.zeros((len(values), LOT, *values.shape[2:]))
    out[:, : part.shape[1]] = part
    return out


def rows_for(model: Model, at: Any, *, certain: bool = True) -> Rows:
    """The rows as trajectories want them, given the moments of the predictors that a fit has left with the rows.

    The variances set the smoothing; from the means, unless told otherwise, rows are found whose side of the kink is
    ``certain``.
    """
    home = at_home(model.blocks)
    lines = None if home is None else two_lines(model)
    if home is None or lines is None:
        return Direct(model, model.blocks.keep(spreads, None, at)[0])
    (n, p), moments = model.blocks.shape, model.blocks.fetch(at)
    spread = np.maximum(np.sqrt(moments.v), NARROW)
    X, past = home.design.rows(np.arange(n)), (moments.f - lines.kink) / spread if certain else np.zeros(n)
    near = np.abs(past) < _CERTAIN
    score = np.where(near, 0.0, np.where(past < 0.0, lines.left, lines.left + lines.jump))
    most = max(8, min(BLOCK, MOST // p))
    ramps = tuple(
        _blocks(values[near, None], most, np.float32)[:, 0]
        for values in (lines.kink, 0.5 / spread, lines.left, lines.jump)
    )
    near_by, lines = (
        replace(model, blocks=home),
        Lines(*(_blocks(each[:, None], most, np.float64)[:, 0] for each in lines)),
    )
    return Copied(near_by, lines, _blocks(X, most, np.float64), score @ X, _blocks(X[near], most, np.float32), ramps)


def _blocks(X: Array, most: int, dtype: Any) -> Any:
    """Rows in blocks of (block, column, row), at most so many rows in each, filled up with zeros."""
    n, p = X.shape
    count = max(1, math.ceil(n / most))
    rows = 8 * max(1, math.ceil(n / count / 8))
    out = np.zeros((count, rows, p), dtype)
    out.reshape(count * rows, p)[:n] = X
    return np.ascontiguousarray(out.transpose(0, 2, 1))
