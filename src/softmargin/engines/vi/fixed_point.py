"""EM and mean field: one fixed-point map, with and without the variance of the predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, relative
from softmargin.core.loss import Rows as Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.rows import Kept
from softmargin.core.visits import Face, messages_at, smoothed, standard
from softmargin.engines.vi._heavy import fit_lighter, heavy
from softmargin.engines.vi._squarem import Parabola, leap_messages, parabola

__all__ = ["EM", "FixedPointState", "MeanField", "series_of"]


_FALL = 1e-6  # relative fall of the objective that is no longer the rounding of its sums


class _Start(NamedTuple):
    """Coefficients in the place of a Gaussian."""

    mean: Array


class FixedPointState(NamedTuple):
    """A Gaussian, and, with the rows, the moments of the predictors under it and the messages they give."""

    q: Any  # a Gaussian; EM uses its mean alone
    rows: Kept  # RowState at q
    prior: PriorMessage
    data: float  # the rows' part of the objective
    objective: float

    @property
    def coefficients(self) -> tuple[Array, Any]:
        """Mean and a root of the covariance of the coefficients."""
        return self.q.mean, self.q.root

    @property
    def f(self) -> Array:
        """Mean of the linear predictors, fetched from the rows."""
        f: Array = self.rows.fetch().f
        return f

    @property
    def v(self) -> Array:
        """Variance of the linear predictors, fetched from the rows."""
        v: Array = self.rows.fetch().v
        return v

    @property
    def message(self) -> Message:
        """Row messages, fetched from the rows."""
        message: Message = self.rows.fetch().message
        return message

    @property
    def ku(self) -> Array:
        """Row precisions that q has of each row, up to convergence: those of the messages."""
        return self.message.w


@dataclass(frozen=True)
class FixedPoint(ABC):
    """Messages -> Gaussian -> moments -> messages, accelerated by SQUAREM and monotone.

    A cycle applies the map twice and extrapolates along the two differences; the extrapolated point is kept only
    where the map sends it at least as high as it sends the plain one. Where the two gains, as a geometric series, come
    to no more than ``enough`` there is nothing left to extrapolate to. Reference: Varadhan and Roland (2008),
    Simple and globally convergent methods for accelerating the convergence of any EM algorithm.
    """

    accelerate: bool = True
    shrink: float = 1.0  # how much more the start is shrunk than the prior's own start
    enough: float = 0.0  # relative gain that is not worth an extrapolation
    needs_loss = ("expect",)

    def init(self, model: Model) -> FixedPointState:
        """Start from the messages at N(0, 1) predictors: ridge least squares of the margins."""
        first, _ = model.blocks.keep(standard, (_face(model), 1.0))
        D = model.prior.start().precision.copy()
        D[: model.size][~model.free] *= self.shrink
        return self.moments(model, self._solve(model, first, D))

    def step(self, model: Model, state: FixedPointState, iteration: int) -> tuple[FixedPointState, Info]:
        """One plain application of the map, or one accelerated cycle of three."""
        one = self._map(model, state)
        new = one
        if self.accelerate:
            new = two = self._map(model, one)
            left = self.change(series_of(one.objective - state.objective, two.objective - one.objective), two.objective)
            if left <= self.enough:
                return two, Info(two.objective, left)
            way = parabola(model, state, one, two)
            length = way.length
            while length > 1.0:
                leap = self._leap(model, way, two, length)
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

    def restart(self, model: Model, state: FixedPointState) -> FixedPointState:
        """A warm start: the same q under another prior."""
        return self.moments(model, state.q)

    def seen(self, model: Model, state: FixedPointState, *, rows: bool = True) -> FixedPointState:
        """The same q on a changed model."""
        return self.moments(model, state.q)

    def _map(self, model: Model, state: FixedPointState) -> FixedPointState:
        return self.moments(model, self._solve(model, state.rows, state.prior.precision))

    def _leap(self, model: Model, way: Parabola, two: FixedPointState, length: float) -> FixedPointState | None:
        """The map applied to an extrapolated point; None where it ends nowhere."""
        try:
            with np.errstate(over="raise", invalid="raise"):  # a leap may end anywhere
                found = leap_messages(model, way, length)
                if found is None:
                    return None
                messages, logs = found
                return self.moments(model, self._solve(model, messages, two.prior.from_logs(logs)))
        except (np.linalg.LinAlgError, FloatingPointError):
            return None

    def _solve(self, model: Model, messages: Kept, precision: Array) -> Any:
        """The Gaussian given the messages."""
        return model.conditional(messages, precision)[0]

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

    def _solve(self, model: Model, messages: Kept, precision: Array) -> Any:
        if not model.more_coefficients:
            return model.conditional(messages, precision)[0]
        found = model.blocks.fetch(messages)
        return model.solver(found.w, found.b, precision)  # only its mean is used

    def coefficients(self, state: FixedPointState) -> tuple[Array, Any]:
        """The point, with no spread."""
        return state.q.mean, np.zeros((len(state.q.mean), 1))

    def at(self, model: Model, beta: Array) -> FixedPointState:
        """The state of given coefficients, to start from."""
        return self.moments(model, _Start(beta))

    def moments(self, model: Model, q: Any) -> FixedPointState:
        rows, ((data,),) = model.blocks.keep(smoothed, (_face(model), q.mean, self.smoothing**2))
        prior = model.prior.mode(q.mean)
        return FixedPointState(q, rows, prior, float(data), float(data) + prior.bound)


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
        small = _face(model), q.mean, model.space.row_root(q)
        rows, ((data,),) = model.blocks.keep(messages_at, small)
        prior = model.prior.expect(q.mean, q.var)
        return FixedPointState(q, rows, prior, float(data), float(data) + prior.bound + q.entropy)


def series_of(first: float, second: float) -> float:
    """What gains of a geometric series come to; without bound where they do not fall."""
    return first * first / (first - second) if 0.0 <= second < first else np.inf


def _face(model: Model) -> Face:
    """The averages of the loss that these engines work with."""
    return Face(model.loss, "expect")
