"""A monotone curve in place of the straight line of a link, where rows left out show one.

A logistic link takes the log odds for a straight line in f. Where they are another rising curve, as next to a column
that acts in steps, no slope and offset are right. The curve here is piecewise linear between eighths of the left-out
arguments; logarithms of its slopes are a random walk around zero, so that it comes from the line itself. It is
taken where its evidence says so.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import expit

from softmargin.core.array import Array

__all__ = ["ENOUGH", "Bend", "Curve", "fit_bend"]

_PIECES = 8
_STEP = 1.5  # prior standard deviation of the change of a log slope from a piece to the next
_LEVEL = 1.0  # and of their mean
_SHIFT = 0.5  # and of the height in the middle
_UNLIKELY = -2.0  # log evidence at the first step below which no curve comes out
ENOUGH = 10_000  # rows above which those of nearly the same argument are put together
_CELLS = 2048  # of arguments, then
_LARGEST = 0.999


class Bend(NamedTuple):
    """The curve: its heights at knots, and its slopes before, between and behind them."""

    knots: tuple[float, ...]
    heights: tuple[float, ...]
    slopes: tuple[float, ...]

    def __call__(self, x: Array) -> Array:
        """Heights of the curve."""
        knots, piece = np.array(self.knots), np.searchsorted(self.knots, x)
        near = np.maximum(piece - 1, 0)
        out: Array = np.array(self.heights)[near] + np.array(self.slopes)[piece] * (x - knots[near])
        return out

    def inverse(self, z: Array) -> Array:
        """Where it has these heights."""
        return Bend(self.heights, self.knots, tuple(1.0 / slope for slope in self.slopes))(z)

    @property
    def zero(self) -> float:
        """Where it crosses zero."""
        piece = int(np.searchsorted(self.heights, 0.0))
        near = max(piece - 1, 0)
        return self.knots[near] - self.heights[near] / self.slopes[piece]


class Curve(NamedTuple):
    """A fitted curve, and what it would be without a row."""

    bend: Bend
    evidence: float  # log evidence over the straight line
    middle: float  # where its height is a number of its own
    root: Array  # Cholesky factor of the Hessian of the minimum

    def left_out(self, y: Array, x: Array, weight: Array) -> Array:
        """Its heights at the arguments of rows under the curve without ``weight`` of the row: one Newton step."""
        bend = self.bend
        parts = _parts(x, np.array(bend.knots), self.middle) * np.array(bend.slopes)[:, None]
        jacobian = np.vstack((np.ones(len(x)), parts))
        lever = (jacobian * dpotrs(self.root, jacobian, lower=1)[0]).sum(axis=0) * weight
        z: Array = bend(x)
        p = expit(z)
        step: Array = lever * (p - (y > 0.0)) / (1.0 - np.minimum(lever * p * (1.0 - p), _LARGEST))
        return z + step


class _Found(NamedTuple):
    """Minus the log posterior of (height in the middle, log slopes), its gradient and Hessian."""

    value: float
    gradient: Array
    hessian: Array
    bending: Array  # the part of its diagonal that may be negative

    def root(self) -> Array:
        """Cholesky factor of the Hessian, or of its convex part where it has another one as well."""
        factor, info = dpotrf(self.hessian, lower=1)
        if info != 0:
            factor, info = dpotrf(self.hessian - np.diag(self.bending), lower=1)
        return np.asarray(factor)


class _Prior(NamedTuple):
    """Normal density of (height in the middle, log slopes) around the straight line."""

    precision: Array
    half_log: float  # half the log determinant of the precision


def fit_bend(y: Array, x: Array, weight: Array) -> Curve | None:
    """The curve that turns arguments of a sigmoid into better ones.

    Minimises ``sum w log(1 + exp(-y g(x)))`` with a normal prior, by Newton's method; the evidence is Laplace's. None
    where the arguments take too few values, or where no curve is in sight.
    """
    if len(x) > ENOUGH:
        y, x, weight = _pooled(y, x, weight)
    if len(x) == 0 or not weight.sum() > 0.0:
        return None
    quantiles = _quantiles(x, weight)
    middle = float(quantiles[len(quantiles) // 2])
    knots = quantiles[np.append(True, quantiles[1:] > quantiles[:-1])]
    if len(knots) < 2:
        return None
    parts, positive = _parts(x, knots, middle), y > 0.0
    prior, half = _prior(len(knots) + 1)

    def at(theta: Array) -> _Found:
        jacobian = np.empty((len(theta), len(x)))
        jacobian[0] = 1.0
        np.multiply(parts, np.exp(theta[1:])[:, None], out=jacobian[1:])
        z = jacobian[1:].sum(axis=0) + (middle + theta[0])
        p = 0.5 + 0.5 * np.tanh(0.5 * z)
        own, down = prior @ theta, jacobian @ (weight * (p - positive))
        hessian = (jacobian * (weight * p * (1.0 - p))) @ jacobian.T + prior
        bending = down.copy()
        bending[0] = 0.0
        hessian.flat[:: len(theta) + 1] += bending
        value = float(weight @ np.logaddexp(0.0, np.where(positive, -z, z))) + 0.5 * float(theta @ own)
        return _Found(value, down + own, hessian, bending)

    theta = np.zeros(len(prior))
    start = found = at(theta)
    root = found.root()
    step = -dpotrs(root, found.gradient, lower=1)[0]
    # the evidence that a first Newton step promises, which is seldom far from what the last one brings
    if half - _log_determinant(root) - 0.5 * float(found.gradient @ step) < _UNLIKELY:
        return None
    for _ in range(100):
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        length = 1.0
        for _ in range(30):
            new = at(theta + length * step)
            if new.value <= found.value + 1e-4 * length * float(found.gradient @ step):
                break
            length *= 0.5
        else:
            break
        gained, theta, found = found.value - new.value, theta + length * step, new
        root = found.root()
        if gained <= 1e-12 * (1.0 + abs(found.value)):
            break
        step = -dpotrs(root, found.gradient, lower=1)[0]
    slopes = np.exp(theta[1:])
    heights = middle + theta[0] + slopes @ _parts(knots, knots, middle)
    evidence = start.value - found.value - _log_determinant(root) + half
    bend = Bend(tuple(knots.tolist()), tuple(heights.tolist()), tuple(slopes.tolist()))
    return Curve(bend, evidence, middle, root)


def _pooled(y: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Rows of nearly the same argument put together, for either class: two rows at their mean, in whatever order.

    Cells are narrow around the mean of the arguments and wide far from it.
    """
    total = float(weight.sum())
    if not total > 0.0:
        return y[:0], x[:0], weight[:0]
    away = x - float(weight @ x) / total
    spread = math.sqrt(float(weight @ (away * away)) / total)
    if not 0.0 < spread < math.inf:
        return y[:0], x[:0], weight[:0]
    place = away / (np.abs(away) + spread)
    cell = ((place + 1.0) * (0.5 * _CELLS)).astype(np.intp).clip(0, _CELLS - 1)
    whole, sums = np.bincount(cell, weight, _CELLS), np.bincount(cell, weight * x, _CELLS)
    upper = np.bincount(cell, weight * (y > 0.0), _CELLS)
    centre = sums / np.where(whole > 0.0, whole, 1.0)
    sign = np.repeat([1.0, -1.0], _CELLS)
    each, centre = np.concatenate((upper, np.maximum(whole - upper, 0.0))), np.tile(centre, 2)
    some = each > 0.0
    return sign[some], centre[some], each[some]


def _quantiles(x: Array, weight: Array) -> Array:
    """Eighths of weighted values, halfway between two where they are between two: the same from either end."""
    order = x.argsort(kind="stable")
    sums = weight[order].cumsum()
    places = sums.searchsorted(sums[-1] * _shares(_PIECES))
    values: Array = x[order[np.minimum(places, len(x) - 1)]]
    return 0.5 * (values[0] + values[1])


@cache
def _shares(pieces: int) -> Array:
    """The inner ends of so many parts of one, a little less and a little more."""
    return np.add.outer((-1e-9, 1e-9), np.arange(1, pieces) / pieces)


def _parts(x: Array, knots: Array, middle: float) -> Array:
    """How much of the way from the middle to each x lies in each piece: rows whose sum is x less the middle."""
    ends = np.concatenate(([-np.inf], knots, [np.inf]))[:, None]
    low, high = ends[:-1], ends[1:]
    return np.minimum(np.maximum(x, low), high) - np.minimum(np.maximum(middle, low), high)


@cache
def _prior(pieces: int) -> _Prior:
    """The prior of the height in the middle, of the mean of the log slopes, and of their changes."""
    changes = np.diff(np.eye(pieces), axis=0) / _STEP
    out = np.zeros((pieces + 1, pieces + 1))
    out[0, 0] = 1.0 / _SHIFT**2
    out[1:, 1:] = changes.T @ changes + 1.0 / (pieces * _LEVEL) ** 2
    return _Prior(out, 0.5 * float(np.linalg.slogdet(out)[1]))


def _log_determinant(root: Array) -> float:
    """Half the log determinant of a matrix with this Cholesky factor."""
    return float(np.log(root.diagonal()).sum())
