"""The minimum of a link's objective in its three numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.compiled import njit
from softmargin.rows.totals import runs

__all__ = ["KAPPA", "Numbers", "Objective", "Rows", "Targets", "minimised"]

Numbers = list[float]  # one for each of (log a, b, log lam)
Objective = tuple[float, Numbers, list[Numbers]]  # value, gradient, Hessian
KAPPA = math.pi / 8.0
_LOWER = (-6.0, -20.0, -5.0)  # log a, b, log lam
_UPPER = (6.0, 20.0, 5.0)
# Standard deviation of log a below zero, 0.5 to 3 tried on 226 development sets: the smaller, the more is gained where
# signals are weak and rows are few, and the more is lost where there is no signal.
_FLATTER = 3.0
_ENOUGH = 50_000  # rows that find the way to the minimum
_AT_ONCE = 2048  # rows that are summed in one piece, of which all vectors are made


@dataclass(frozen=True, eq=False)
class Targets:
    """What the probabilities are to be in either class, made where they are wanted."""

    y: Array
    low: float
    high: float

    def __getitem__(self, at: Any) -> Any:
        return np.where(self.y[at] > 0, self.high, self.low)


class Rows(NamedTuple):
    """Rows with what their probabilities are to be, and their left-out predictors."""

    target: Any
    f: Array
    v: Array
    weight: Array

    def thinned(self, every: int) -> Rows:
        """Some of the rows, that weigh as much as all."""
        some = slice(None, None, every)
        f, v = (np.ascontiguousarray(x[some]) for x in (self.f, self.v))
        return Rows(self.target[some], f, v, every * self.weight[some])


def minimised(
    theta: Numbers, moving: list[bool], rows: Rows, tol: float, known: Objective | None = None
) -> tuple[Numbers, Objective]:
    """The minimum from a point where the objective may be ``known``; of very many rows some find the way to it."""
    every = len(rows.f) // _ENOUGH
    if len(rows.f) <= _AT_ONCE:
        rows = Rows(*(np.ascontiguousarray(each) for each in (rows.target[:], *rows[1:])))
    if every > 1:
        theta, known = _minimise(theta, moving, rows.thinned(every), 1e-6)[0], None
    return _minimise(theta, moving, rows, tol, known)


def _minimise(
    theta: Numbers, moving: list[bool], rows: Rows, tol: float, known: Objective | None = None
) -> tuple[Numbers, Objective]:
    """Projected Newton steps in the coordinates that are ``moving``.

    In plain numbers: calls for arrays of three would take longer than the rows of a small fit.
    """
    value, gradient, hessian = known or _objective(theta, *rows)
    for _ in range(100):
        free = [
            i
            for i in range(3)
            if moving[i]
            and not (theta[i] <= _LOWER[i] and gradient[i] > 0.0)
            and not (theta[i] >= _UPPER[i] and gradient[i] < 0.0)
        ]
        if not free or max(abs(gradient[i]) for i in free) <= tol * (1.0 + abs(value)):
            break
        step = _direction(gradient, hessian, free)
        shorter = min(1.0, 3.0 / max(max(map(abs, step)), 1e-300))
        step = [shorter * each for each in step]
        if -_product(gradient, step) <= 1e-15 * math.sqrt(len(rows.f)) * (1.0 + abs(value)):
            # what is left to gain is lost in the rounding of the sum, while the step is still right
            theta = _moved(theta, 1.0, step)
            return theta, _objective(theta, *rows)
        length = 1.0
        for _ in range(30):
            trial = _moved(theta, length, step)
            change = [new - old for new, old in zip(trial, theta, strict=True)]
            new = _objective(trial, *rows)
            if new[0] <= value + 1e-4 * _product(gradient, change):
                break
            length *= 0.5
        else:
            break
        theta, (value, gradient, hessian) = trial, new
        if max(map(abs, change)) <= 1e-2 * tol:
            break
    return theta, (value, gradient, hessian)


def _product(x: Numbers, y: Numbers) -> float:
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def _moved(theta: Numbers, length: float, step: Numbers) -> Numbers:
    """A step, ended at the sides of the box."""
    return [min(max(theta[i] + length * step[i], _LOWER[i]), _UPPER[i]) for i in range(3)]


def _direction(gradient: Numbers, hessian: list[Numbers], free: list[int]) -> Numbers:
    """Newton's step in the free coordinates by elimination, a descent direction even where it is not convex."""
    (h00, h01, h02), (_, h11, h12), (_, _, h22) = hessian
    g0, g1, g2 = gradient
    least = 1e-10 * (1.0 + max(abs(hessian[i][i]) for i in free))
    if 0 not in free:  # coordinates that stay are solved for apart, and their answer is zero
        h00, h01, h02, g0 = 1.0, 0.0, 0.0, 0.0
    if 1 not in free:
        h01, h11, h12, g1 = 0.0, 1.0, 0.0, 0.0
    if 2 not in free:
        h02, h12, h22, g2 = 0.0, 0.0, 1.0, 0.0
    if h00 <= least:
        return _downhill(gradient, hessian, free)
    l1, l2 = h01 / h00, h02 / h00
    h11, h12, h22 = h11 - l1 * h01, h12 - l1 * h02, h22 - l2 * h02
    if h11 <= least:
        return _downhill(gradient, hessian, free)
    l = h12 / h11
    h22 -= l * h12
    if h22 <= least:
        return _downhill(gradient, hessian, free)
    g1 -= l1 * g0
    s2 = -(g2 - l2 * g0 - l * g1) / h22
    s1 = -g1 / h11 - l * s2
    return [-g0 / h00 - l1 * s1 - l2 * s2, s1, s2]


def _downhill(gradient: Numbers, hessian: list[Numbers], free: list[int]) -> Numbers:
    """The step of the convex parabola with the same axes, where the objective curves down along one of them."""
    step = [0.0, 0.0, 0.0]
    values, vectors = np.linalg.eigh(np.array(hessian)[np.ix_(free, free)])
    values = np.maximum(np.abs(values), 1e-10 * (1.0 + np.abs(values).max()))
    down = -vectors @ ((vectors.T @ np.array(gradient)[free]) / values)
    for j, each in zip(free, down.tolist(), strict=True):
        step[j] = each
    return step


def _objective(theta: Numbers, target: Any, f: Array, v: Array, weight: Array) -> Objective:
    """Value, gradient and Hessian in (log a, b, log lam)."""
    log_a, b, log_lam = theta
    if isinstance(target, np.ndarray):  # few rows, in one piece
        found = _sums(log_a, b, log_lam, target, f, v, weight)
    else:
        pieces = (tuple(np.ascontiguousarray(x[at]) for x in (target, f, v, weight)) for at in runs(len(f)))
        found = tuple(map(sum, zip(*(_sums(log_a, b, log_lam, *piece) for piece in pieces), strict=True)))
    value, g0, g1, g2, h00, h01, h02, h11, h12, h22 = found
    flat, bent = min(log_a, 0.0) / _FLATTER**2, (log_a < 0.0) / _FLATTER**2  # derivatives of the penalty on log a
    hessian = [[h00 + bent, h01, h02], [h01, h11, h12], [h02, h12, h22 + 1.0]]
    return value + 0.5 * (log_lam**2 + flat * log_a), [g0 + flat, g1, g2 + log_lam], hessian


@njit(cache=True, nogil=True, error_model="numpy")
def _sums(log_a: float, b: float, log_lam: float, target: Any, f: Any, v: Any, weight: Any) -> tuple[float, ...]:
    """Sums over rows of ``w [log(1 + e^eta) - t eta]``, its gradient, and its Hessian above the diagonal."""
    a, lam = math.exp(log_a), math.exp(log_lam)
    total, g0, g1, g2 = 0.0, 0.0, 0.0, 0.0
    h00, h01, h02, h11, h12, h22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(f)):
        square = KAPPA * lam * a * a * v[i]
        inverse = 1.0 / math.sqrt(1.0 + square)
        share = square * inverse * inverse
        slope = a * f[i] * inverse
        eta = slope + b
        bend = slope * share * (1.0 - share)
        d0, d2 = slope - slope * share, -0.5 * slope * share  # derivatives of eta in log a and log lam; in b: one
        small = math.exp(-abs(eta))
        half = 1.0 / (1.0 + small)
        up = half if eta > 0.0 else small * half  # sigmoid(eta)
        down = small * half if eta > 0.0 else half  # sigmoid(-eta)
        tail = math.log1p(small)
        t = target[i]
        # log(1 + e^eta) - t eta without cancellation where the target is met
        loss = t * ((0.0 if eta > 0.0 else -eta) + tail) + (1.0 - t) * ((eta if eta > 0.0 else 0.0) + tail)
        total += weight[i] * loss
        first = weight[i] * ((1.0 - t) * up - t * down)
        second = weight[i] * up * down
        g0 += first * d0
        g1 += first
        g2 += first * d2
        h00 += second * d0 * d0 + first * (slope - slope * share - d0 * share - 2.0 * bend)
        h01 += second * d0
        h02 += second * d0 * d2 + first * (-0.5 * slope * share - d2 * share - bend)
        h11 += second
        h12 += second * d2
        h22 += second * d2 * d2 + first * (-0.5 * d2 * share - 0.5 * bend)
    return total, g0, g1, g2, h00, h01, h02, h11, h12, h22
