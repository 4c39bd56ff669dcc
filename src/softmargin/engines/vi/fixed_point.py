"""EM and mean field: one fixed-point map, with and without the variance of the predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, relative
from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.engines.vi._heavy import fit_lighter, heavy

__all__ = ["EM", "FixedPointState", "MeanField"]


_FALL = 1e-6  # relative fall of the objective that is no longer the rounding of its sums


class _Start(NamedTuple):
    """Coefficients in the place of a Gaussian."""

    mean: Array


class FixedPointState(NamedTuple):
    """A Gaussian, the moments of the predictors under it, and the messages they give."""

    q: Any  # a Gaussian; EM uses its mean alone
    f: Array
    v: Array
    message: Message
    prior: PriorMessage
    objective: float

    @property
    def coefficients(self) -> tuple[Array, Any]:
        """Mean and a root of the covariance of the coefficients."""
        return self.q.mean, self.q.root

    @property
    def vector(self) -> Array:
        """What the map works on, without constraints: predictors, log variances, log prior precisions."""
        return np.concatenate((self.f, np.log(np.maximum(self.v, 1e-300)), self.prior.logs()))


@dataclass(frozen=True)
class FixedPoint(ABC):
    """Messages -> Gaussian -> moments -> messages, accelerated by SQUAREM and monotone.

    A cycle applies the map twice and extrapolates along the two differences; the extrapolated point is kept only
    where the map sends it at least as high as it sends the plain one. Reference: Varadhan and Roland (2008),
    Simple and globally convergent methods for accelerating the convergence of any EM algorithm.
    """

    accelerate: bool = True
    shrink: float = 1.0  # how much more the start is shrunk than the prior's own start
    needs_loss = ("expect",)

    def init(self, model: Model) -> FixedPointState:
        """Start from the messages at N(0, 1) predictors: ridge least squares of the margins."""
        n = len(model.y)
        message = model.loss.expect(model.y, model.c, np.zeros(n), np.ones(n))
        D = model.prior.start().precision.copy()
        D[: model.size][~model.free] *= self.shrink
        return self.moments(model, self._solve(model, message, D))

    def step(self, model: Model, state: FixedPointState, iteration: int) -> tuple[FixedPointState, Info]:
        """One plain application of the map, or one accelerated cycle of three."""
        one = self._map(model, state)
        new = one
        if self.accelerate:
            new = two = self._map(model, one)
            r = one.vector - state.vector
            bend = two.vector - one.vector - r
            # a weight of 2 counts like a repeated row
            unit = np.concatenate((model.c, model.c, np.ones(len(state.prior.precision))))
            length = float(np.sqrt((unit @ r**2) / max(float(unit @ bend**2), 1e-300)))
            while length > 1.0:
                leap = self._at(model, two.prior, state.vector + 2.0 * length * r + length * length * bend)
                if leap is not None and leap.objective >= two.objective:
                    new = leap
                    break
                length = 0.5 * (length - 1.0) + 1.0 if length > 1.5 else 1.0
        gain = new.objective - state.objective
        if not gain >= -_FALL * (1.0 + abs(state.objective)):  # the map ascends: this is rounding, and would go on
            return state, Info(state.objective, self.change(gain, state.objective))
        return new, Info(new.objective, self.change(gain, new.objective))

    def change(self, gain: float, objective: float) -> float:
        """How far a step moved, for the loop to stop by."""
        return abs(gain) / (1.0 + abs(objective))

    def coefficients(self, state: FixedPointState) -> tuple[Array, Any]:
        """Mean and a root of the covariance of the coefficients."""
        return state.q.mean, state.q.root

    def seen(self, model: Model, state: FixedPointState, *, rows: bool = True) -> FixedPointState:
        """The same q on a changed model."""
        return self.moments(model, state.q)

    def _map(self, model: Model, state: FixedPointState) -> FixedPointState:
        return self.moments(model, self._solve(model, state.message, state.prior.precision))

    def _at(self, model: Model, prior: PriorMessage, x: Array) -> FixedPointState | None:
        """The map applied to an extrapolated point."""
        n = len(model.y)
        if not np.isfinite(x).all() or np.abs(x[n:]).max() > 700.0:
            return None
        try:
            with np.errstate(over="raise", invalid="raise"):  # a leap may end anywhere
                message = model.loss.expect(model.y, model.c, x[:n], np.exp(x[n : 2 * n]))
                return self.moments(model, self._solve(model, message, prior.from_logs(x[2 * n :])))
        except (np.linalg.LinAlgError, FloatingPointError):
            return None

    def _solve(self, model: Model, message: Message, precision: Array) -> Any:
        """The Gaussian given the messages."""
        return model.gaussian(message.w, message.b, precision)

    @abstractmethod
    def moments(self, model: Model, q: Any) -> FixedPointState:
        """Moments of the predictors under q, the messages they give, and the objective."""


@dataclass(frozen=True)
class EM(FixedPoint):
    """Posterior mode by EM; a learned scale is maximised in each cycle (ECME).

    The predictors carry the variance ``smoothing^2``, which replaces |u| by sqrt(u^2 + smoothing^2): exact EM for
    an objective within ``smoothing * sum c`` of the true one, and free of the division by zero at the margin.
    """

    smoothing: float = 1e-7
    needs_prior = ("mode",)

    def _solve(self, model: Model, message: Message, precision: Array) -> Any:
        return model.solver(message.w, message.b, precision)  # only its mean is used

    def coefficients(self, state: FixedPointState) -> tuple[Array, Any]:
        """The point, with no spread."""
        return state.q.mean, np.zeros((len(state.q.mean), 1))

    def at(self, model: Model, beta: Array) -> FixedPointState:
        """The state of given coefficients, to start from."""
        return self.moments(model, _Start(beta))

    def moments(self, model: Model, q: Any) -> FixedPointState:
        f, v = model.blocks.matvec(q.mean), np.full(len(model.y), self.smoothing**2) + model.blocks.excess(q.mean)
        message = model.loss.expect(model.y, model.c, f, v)
        prior = model.prior.mode(q.mean)
        return FixedPointState(q, f, v, message, prior, float(message.bound.sum()) + prior.bound)


@dataclass(frozen=True)
class MeanField(FixedPoint):
    """Mean-field posterior of the augmented model: algorithms 1 and 2 of Luts and Ormerod (2014), and their bound."""

    needs_prior = ("expect",)

    def init(self, model: Model) -> FixedPointState:
        """With heavy rows the start is the fit of the same rows with smaller weights."""
        return self.moments(model, fit_lighter(self, model).q) if heavy(model) else super().init(model)

    def change(self, gain: float, objective: float) -> float:
        return relative(gain, objective)

    def moments(self, model: Model, q: Any) -> FixedPointState:
        f, v = model.blocks.moments(q.mean, q.root)
        message = model.loss.expect(model.y, model.c, f, v)
        prior = model.prior.expect(q.mean, q.var)
        return FixedPointState(q, f, v, message, prior, float(message.bound.sum()) + prior.bound + q.entropy)
