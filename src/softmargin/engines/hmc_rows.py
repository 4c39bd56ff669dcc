"""How trajectories see the rows: the exact density at their ends, the score of the loss smoothed on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.hmc_kernels import (
    BLOCK,
    LOT,
    decide,
    finish,
    leap,
    line_loglik,
    predict,
    pulls,
    ramp,
    transition,
)
from softmargin.engines.hmc_scale import SharedPrior
from softmargin.engines.model import Model
from softmargin.execution.blocks import Cell

__all__ = ["Motion", "Outcome", "Point", "Rows", "Trajectory", "rows_for"]

_COPY = 1 << 24  # entries of a design up to which it is copied for the compiled trajectory
_FAR = 1e3  # predictors on the outer lines of a loss with kinks
_NARROW = 1e-10  # spread of a predictor, at least


class Point(NamedTuple):
    """Where the chains stand; one row a chain."""

    q: Array  # whitened coefficients
    beta: Array
    f: Array  # linear predictors
    pull: Array  # smoothed score of the rows in the coefficients
    loglik: Array


class Motion(NamedTuple):
    """The prior ``exp(-precision beta^2/2)`` of each chain times one that all share, and the Gaussian to rotate."""

    precision: Array  # (chain, coefficient)
    shared: SharedPrior
    spread: Array  # sd of each coefficient, the unit of smoothing |beta|
    root: Array  # (1 or chain, coefficient, coordinate)
    centre: Array  # (1 or chain, coefficient)


class Trajectory(NamedTuple):
    """Random numbers and length of one transition: momenta, angles, numbers that decide; steps, smoothing in sds."""

    momentum: Array
    theta: Array
    uniform: Array
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

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        """Everything about given coefficients."""

    def loglik(self, f: Array) -> Array:
        """Log pseudo-likelihood of every chain."""

    def transition(self, point: Point, motion: Motion, path: Trajectory) -> Outcome:
        """One trajectory of every chain, accepted or refused by the exact density."""


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
    """Columns copied once, in blocks of rows, for a loss of two straight lines."""

    model: Model
    lines: Lines
    X: Array  # (block, coefficient, row): double precision for the density
    narrow: Any  # single precision for the kicks, which may be any function
    ramps: tuple[
        Any, Any, Any, Any
    ]  # kink, slope of the smoothed step at width one, left score, jump, of the rows of each block

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        f, pull, loglik = np.empty((len(beta), len(self.model.y))), np.empty_like(beta), np.empty(len(q))
        predict(beta, self.X, *self.lines, f, loglik)
        pulls(beta, self.narrow, *self.ramps, 1.0 / kappa, pull)
        return Point(q, beta, f, pull, loglik)

    def loglik(self, f: Array) -> Array:
        total = np.empty(len(f))
        line_loglik(f, *self.lines, total)
        return total

    def transition(self, point: Point, motion: Motion, path: Trajectory) -> Outcome:
        new = Point(*(values.copy() for values in point))
        chains = len(path.theta)
        mean, probability, accept = np.empty_like(new.beta), np.empty(chains), np.empty(chains, dtype=bool)
        width, shared = path.kappa * motion.spread, len(motion.root) == 1

        def run(at: slice) -> None:
            own = slice(None) if shared else at
            transition(
                new.q[at], new.beta[at], new.f[at], new.pull[at], new.loglik[at], mean[at], probability[at], accept[at],
                path.momentum[at], path.theta[at], path.uniform[at], path.steps, 1.0 / path.kappa,
                motion.precision[at], motion.shared.form, width, motion.root[own], motion.centre[own],
                self.X, self.lines, self.narrow, self.ramps,
            )  # fmt: skip

        blocks = self.model.blocks
        share = LOT * max(1, math.ceil(chains / LOT / blocks.workers))  # lots are shared out over the threads
        blocks.parallel(run, [slice(lo, lo + share) for lo in range(0, chains, share)])
        return Outcome(new, mean, probability, accept)


@dataclass(frozen=True, eq=False)
class Direct:
    """Products of the design itself, cell by cell, and the score of any loss."""

    model: Model
    spread: Array  # sd of each predictor, the unit of smoothing
    lines: Lines | None

    def point(self, q: Array, beta: Array, kappa: float) -> Point:
        f = np.empty((len(beta), len(self.model.y)))
        pull = np.empty_like(beta)
        for lo in range(0, len(beta), LOT):
            at, here = slice(lo, lo + LOT), len(beta[lo : lo + LOT])
            lot = _lot(beta, lo)
            f[at], pull[at] = self._predict(lot)[:here], self._pull(lot, kappa)[:here]
        return Point(q, beta, f, pull, self.loglik(f))

    def loglik(self, f: Array) -> Array:
        return np.array([self.model.loss.loglik(self.model.y, self.model.c, row).sum() for row in f])

    def _predict(self, beta: Array) -> Array:
        return np.concatenate(self.model.blocks.map(lambda cell: self._forward(beta, cell)), axis=1)

    def _forward(self, beta: Array, cell: Cell) -> Array:
        design = self.model.blocks.design
        lead = int(design.intercept)
        f = design.matmat(np.ascontiguousarray(beta[:, lead:].T), cell.lo, cell.hi).T
        return np.ascontiguousarray(f + beta[:, :lead].sum(axis=1)[:, None])

    def _pull(self, beta: Array, kappa: float) -> Array:
        design = self.model.blocks.design

        def collect(cell: Cell) -> tuple[Array]:
            score = self._forward(beta, cell)
            self._smooth(score, cell, kappa)
            return (np.stack([design.rmatvec(row, cell.lo, cell.hi) for row in score]),)

        total: Array = self.model.blocks.reduce(collect)[0]
        return total

    def _smooth(self, f: Array, cell: Cell, kappa: float) -> None:
        """Overwrite predictors by the mean score over (f - width, f + width)."""
        at = slice(cell.lo, cell.hi)
        if self.lines is not None:
            kink, left, jump, _ = (values[at] for values in self.lines)
            ramp(f, kink, 0.5 / self.spread[at], left, jump, 1.0 / kappa)
            return
        loglik, y, c, width = self.model.loss.loglik, self.model.y[at], self.model.c[at], kappa * self.spread[at]
        for row in f:
            row[:] = (loglik(y, c, row + width) - loglik(y, c, row - width)) / (2.0 * width)

    def transition(self, point: Point, motion: Motion, path: Trajectory) -> Outcome:
        new = Point(*(values.copy() for values in point))
        chains, width, shared = len(path.theta), path.kappa * motion.spread, len(motion.root) == 1
        prior = motion.shared.form
        mean, probability, accept = np.empty_like(new.beta), np.empty(chains), np.empty(chains, dtype=bool)
        for lo in range(0, chains, LOT):
            given = (point.q, path.momentum, point.pull, point.beta, motion.precision)
            q, r, pull, beta, D = (_lot(values, lo) for values in given)
            root, centre = (x if shared else _lot(x, lo) for x in (motion.root, motion.centre))
            angle = _lot(path.theta, lo) / path.steps
            size = np.tan(0.5 * angle)
            weight = size
            for _ in range(path.steps):
                leap(q, r, pull, beta, D, prior, width, root, centre, weight, angle)
                pull = self._pull(beta, path.kappa)
                weight = 2.0 * size
            finish(q, r, pull, beta, D, prior, width, root, size)
            f = self._predict(beta)
            ends = self.loglik(f)
            for k in range(len(point.q[lo : lo + LOT])):
                at, loglik = lo + k, float(ends[k])
                start = point.beta[at], path.momentum[at], point.loglik[at]
                chance = decide(*start, beta[k], r[k], loglik, D[k], prior)
                mean[at] = point.beta[at] + chance * (beta[k] - point.beta[at])
                probability[at], accept[at] = chance, path.uniform[at] < chance
                if accept[at]:
                    new.q[at], new.beta[at], new.f[at], new.pull[at] = q[k], beta[k], f[k], pull[k]
                    new.loglik[at] = loglik
        return Outcome(new, mean, probability, accept)


def _lot(values: Array, first: int) -> Array:
    """The entries of one lot of chains, filled up with zeros."""
    out = np.zeros((LOT, *values.shape[1:]))
    part = values[first : first + LOT]
    out[: len(part)] = part
    return out


def rows_for(model: Model, variance: Array) -> Rows:
    """The rows as trajectories want them, given the variance of each predictor, which sets the smoothing."""
    n, p = model.blocks.design.shape
    spread, lines = np.maximum(np.sqrt(variance), _NARROW), two_lines(model)
    if lines is None or n * p > _COPY:
        return Direct(model, spread, lines)
    count = math.ceil(n / BLOCK)
    X = np.zeros((count, p, BLOCK))
    for b, lo in enumerate(range(0, n, BLOCK)):
        hi = min(lo + BLOCK, n)
        X[b, :, : hi - lo] = model.blocks.design.rows(np.arange(lo, hi)).T

    def blocked(values: Array) -> Any:
        out = np.zeros((count, BLOCK), dtype=np.float32)
        out.ravel()[:n] = values
        return out

    ramps = blocked(lines.kink), blocked(0.5 / spread), blocked(lines.left), blocked(lines.jump)
    return Copied(model, lines, X, X.astype(np.float32), ramps)
