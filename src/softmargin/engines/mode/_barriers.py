"""The sharp part of a penalty inside the interior point: absolute values, or lengths over the classes.

Both kinds answer the same questions. ``at`` prepares one iterate: ``diagonal`` and ``rank_two`` enter the normal
matrix, ``pull`` its right side, ``move`` gives the step of the edges' own variables from that of the coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.priors.penalty import Penalty

__all__ = ["Cones", "Corners", "edges_of", "room"]


def edges_of(penalty: Penalty) -> Any:
    """The kind of edges that a penalty has."""
    return Corners(penalty) if penalty.blocks == 1 else Cones(penalty)


def room(values: tuple[Array, ...], changes: tuple[Array, ...]) -> float:
    """Largest step that keeps all values positive."""
    largest = math.inf
    for value, change in zip(values, changes, strict=True):
        if len(value):
            largest = min(largest, 1.0 / max(float((-change / value).max()), 1e-300))
    return largest


class Split(NamedTuple):
    """``beta = p - q`` with multiplier kappa in (-rate, rate), and both distances of kappa carried apart."""

    positive: tuple[Array, Array]  # p, q
    dual: tuple[Array, Array]  # rate - kappa, rate + kappa
    kappa: Array


@dataclass(frozen=True, eq=False)
class Corners:
    """Absolute values ``rate_j |beta_j|``."""

    penalty: Penalty

    def init(self) -> Split:
        rate = self.penalty.rate[self.penalty.sharp]
        one = np.ones(len(rate))
        return Split((one, one), (rate.copy(), rate.copy()), np.zeros(len(rate)))

    def at(self, state: Split, beta: Array) -> _CornersAt:
        """Prepare one iterate."""
        (p, q), (zp, zq) = state.positive, state.dual
        sharp = self.penalty.sharp
        return _CornersAt(state, sharp, beta[sharp] - p + q, 1.0 / (p / zp + q / zq))

    def subgradient(self, state: Split) -> Array:
        """The multipliers as a vector over all coefficients."""
        out = np.zeros(len(self.penalty.precision))
        out[self.penalty.sharp] = state.kappa
        return out

    def moved(self, state: Split, change: Split, length: float, dual: float, beta: Array) -> Split:
        """The state after a step."""
        return Split(
            (state.positive[0] + length * change.positive[0], state.positive[1] + length * change.positive[1]),
            (state.dual[0] + dual * change.dual[0], state.dual[1] + dual * change.dual[1]),
            state.kappa + dual * change.kappa,
        )

    def active(self, state: Split, least: int = 0) -> Any:
        """Coefficients that are not zero at the end, by which of the two products is closed.

        At least as many as ``least`` equations need: where rounding ends the path before a small coefficient shows,
        those that are nearest to it.
        """
        (p, q), (zp, zq) = state.positive, state.dual
        active, sharp = np.ones(len(self.penalty.precision), dtype=bool), self.penalty.sharp
        size = np.maximum(p, q) * self.penalty.rate[sharp] / np.maximum(np.minimum(zp, zq), 1e-300)
        active[sharp] = size > 1.0
        missing = least - int(active.sum())
        if missing > 0:
            small = np.flatnonzero(~active)
            active[small[np.argsort(-size[~active[sharp]], kind="stable")[:missing]]] = True
        return active


@dataclass(frozen=True, eq=False)
class _CornersAt:
    """One iterate: ``weight`` is what the two products put on the diagonal."""

    state: Split
    sharp: Any
    off: Array
    weight: Array

    @property
    def degree(self) -> int:
        """How many products there are."""
        return 2 * len(self.weight)

    @property
    def product(self) -> float:
        """Sum of the products."""
        return sum(float(a @ b) for a, b in zip(self.state.positive, self.state.dual, strict=True))

    @property
    def diagonal(self) -> Array:
        out = np.zeros(len(self.sharp))
        out[self.sharp] = self.weight
        return out

    rank_two = None
    tied = True  # squares on other coefficients tie the primal and the dual step

    def predictor(self) -> tuple[Array, Array]:
        """Aim at products of zero, as additive changes of the positive parts."""
        p, q = self.state.positive
        return -p, -q

    def corrector(self, change: Split, target: float) -> tuple[Array, Array]:
        """Aim at the target with the second-order products."""
        parts = zip(self.state.positive, change.positive, self.state.dual, change.dual, strict=True)
        first, second = ((target - da * db) / b - a for a, da, b, db in parts)
        return first, second

    def pull(self, aim: tuple[Array, Array]) -> Array:
        out = np.zeros(len(self.sharp))
        out[self.sharp] = self.weight * (self.off - (aim[0] - aim[1]))
        return out

    def move(self, dbeta: Array, aim: tuple[Array, Array]) -> Split:
        (p, q), (zp, zq) = self.state.positive, self.state.dual
        dkappa = self.weight * dbeta[self.sharp] + self.weight * (self.off - (aim[0] - aim[1]))
        return Split(
            (aim[0] + (p / zp) * dkappa, aim[1] - (q / zq) * dkappa),
            (-dkappa, dkappa),
            dkappa,
        )

    def room(self, change: Split) -> float:
        return room(self.state.positive + self.state.dual, change.positive + change.dual)

    def trial(self, change: Split, length: float) -> float:
        """Sum of the products after a step."""
        pairs = zip(self.state.positive, change.positive, self.state.dual, change.dual, strict=True)
        return sum(float((a + length * da) @ (b + length * db)) for a, da, b, db in pairs)


class Lengths(NamedTuple):
    """Multipliers ``kappa_j`` of length below ``rate_j``, tied to the coefficients by ``tau kappa = rate beta``.

    ``tau = m + (m^2 + |beta|^2)^(1/2)`` is what the logarithmic barrier of the cone ``|beta| <= tau`` gives at weight
    ``m rate``. The distance ``rate - |kappa|`` is carried apart: as a difference it would lose its digits.
    """

    beta: Array  # k x variables
    kappa: Array
    slack: Array
    m: Array


@dataclass(frozen=True, eq=False)
class Cones:
    """Lengths ``rate_j |beta_j|`` of a variable's coefficients over the classes.

    Reference: Andersen, Christiansen, Conn and Overton (2000), An efficient primal-dual interior-point method for
    minimizing a sum of Euclidean norms, SIAM Journal on Scientific Computing 22.
    """

    penalty: Penalty

    def init(self) -> Lengths:
        rate = self.penalty.rate[self.penalty.sharp]
        zero = np.zeros((self.penalty.blocks, len(rate)))
        return Lengths(zero, zero, rate.copy(), np.full(len(rate), 0.5))

    def at(self, state: Lengths, beta: Array) -> _ConesAt:
        """Prepare one iterate."""
        rate = self.penalty.rate[self.penalty.sharp]
        s = np.sqrt(state.m**2 + (state.beta**2).sum(axis=0))
        return _ConesAt(self.penalty, state, rate, s, state.m + s)

    def subgradient(self, state: Lengths) -> Array:
        """The multipliers as a vector over all coefficients."""
        return _full(self.penalty, state.kappa)

    def moved(self, state: Lengths, change: Lengths, length: float, dual: float, beta: Array) -> Lengths:
        """The state after a step."""
        slack = state.slack - _growth(state.kappa, dual * change.kappa)
        return Lengths(
            beta.reshape(self.penalty.blocks, -1)[:, self.penalty.sharp],
            state.kappa + dual * change.kappa,
            np.maximum(slack, 1e-4 * state.slack),  # only rounding takes it further down
            state.m + min(length, dual) * change.m,
        )

    def active(self, state: Lengths, least: int = 0) -> Any:
        """Coefficients of the variables that are not zero at the end; lengths bend, so that no number is needed."""
        active = np.ones((self.penalty.blocks, len(self.penalty.rate)), dtype=bool)
        inside = _length(state.beta) > state.slack / self.penalty.rate[self.penalty.sharp]
        active[:, self.penalty.sharp] = inside
        return active.ravel()


@dataclass(frozen=True, eq=False)
class _ConesAt:
    """One iterate: the equations of the multipliers are linearised in beta, kappa and m."""

    penalty: Penalty
    state: Lengths
    rate: Array
    s: Array
    tau: Array
    tied = False  # multipliers at the edge of their ball must not hold the coefficients back

    @property
    def degree(self) -> int:
        return len(self.rate)

    @property
    def product(self) -> float:
        return float(self.rate @ self.state.m)

    @cached_property
    def _bends(self) -> tuple[Array, Array]:
        """u, v with ``u u' - v v'`` the symmetric part of ``kappa beta' / (s tau)``."""
        kappa, beta = self.state.kappa, self.state.beta / (self.s * self.tau)
        balance = np.sqrt(np.maximum(_length(kappa), 1e-150) / np.maximum(_length(beta), 1e-150))
        kappa, beta = kappa / balance, beta * balance
        return 0.5 * (kappa + beta), 0.5 * (kappa - beta)

    @property
    def diagonal(self) -> Array:
        return _full(self.penalty, np.tile(self.rate / self.tau, (self.penalty.blocks, 1)))

    @property
    def rank_two(self) -> Array:
        return np.stack([_full(self.penalty, part) for part in self._bends])

    def predictor(self) -> Array:
        """Aim at a barrier of zero."""
        return np.zeros(len(self.rate))

    def corrector(self, change: Lengths, target: float) -> Array:
        return np.asarray(target / self.rate)

    def _residual(self, aim: Array) -> Array:
        _, kappa, _, m = self.state
        grow = (1.0 + m / self.s) * (aim - m)
        return np.asarray((self.rate * self.state.beta - (self.tau + grow) * kappa) / self.tau)

    def pull(self, aim: Array) -> Array:
        return _full(self.penalty, self._residual(aim))

    def move(self, dbeta: Array, aim: Array) -> Lengths:
        inside = dbeta.reshape(self.penalty.blocks, -1)[:, self.penalty.sharp]
        u, v = self._bends
        dkappa = (self.rate / self.tau) * inside - u * (u * inside).sum(axis=0) + v * (v * inside).sum(axis=0)
        return Lengths(inside, dkappa + self._residual(aim), self.state.slack, aim - self.state.m)

    def room(self, change: Lengths) -> float:
        """Largest step that keeps the multipliers below their rates: the first root of a quadratic for each."""
        kappa, d = self.state.kappa, change.kappa
        a, b = (d * d).sum(axis=0), (kappa * d).sum(axis=0)
        c = self.state.slack * (2.0 * self.rate - self.state.slack)
        root = np.sqrt(b * b + a * c)
        with np.errstate(divide="ignore"):
            step = np.where(b > 0.0, c / (root + b), (root - b) / a)
        return float(step.min(initial=np.inf))

    def trial(self, change: Lengths, length: float) -> float:
        return float(self.rate @ (self.state.m + length * change.m))


def _length(x: Array) -> Array:
    return np.sqrt((x * x).sum(axis=0))


def _growth(x: Array, d: Array) -> Array:
    """``|x + d| - |x|`` without cancellation."""
    total = _length(x + d) + _length(x)
    return np.asarray(((2.0 * x + d) * d).sum(axis=0) / np.maximum(total, 1e-300))


def _full(penalty: Penalty, inside: Array) -> Array:
    """Values of the sharp variables on all coefficients, zero elsewhere."""
    out = np.zeros((penalty.blocks, len(penalty.rate)))
    out[:, penalty.sharp] = inside
    return out.ravel()
