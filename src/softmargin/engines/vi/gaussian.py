"""Exact Gaussian variational inference: the best N(mu, Sigma) for the pseudo-posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.core.loop import Info, relative
from softmargin.core.loss import Rows as Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.rows import Kept
from softmargin.core.space import Normal
from softmargin.core.visits import Face
from softmargin.engines.vi import _gaussian_visits as own
from softmargin.engines.vi._anderson import History, steps_of, weights_of
from softmargin.engines.vi._heavy import LIGHTER, fit_lighter, heavy
from softmargin.engines.vi._searches import line_search, scale_search

__all__ = ["GaussianVI", "VIState"]

_LOG_FLOOR = -500.0  # prior precisions below e^-500 say nothing; the floor keeps their logarithms finite
_NOTHING = 1e-12  # part of a row in the trace of precision times covariance below which the row is left out
_FAR = 0.03  # relative rise of the bound by a step after which older steps say nothing of the next
_WORTH = 1e-3  # gain by the scale of q, in gains by its mean, below which it is left alone
_NUDGE = 1e-4  # relative change of the variances by which the answer of the curvatures is found
_ROUGH = 1e-4  # relative rise above which the next covariance may come from a matrix in single precision
_LARGE = 100_000  # numbers in the design from which that saves time worth having


class VIState(NamedTuple):
    """An accepted approximation and what the next step needs; vectors over rows stay with the rows."""

    q: Any  # a Gaussian on the space of the coefficients
    rows: Kept  # RowState at q: moments of the predictors, and messages, whose w is what the next q should use
    precisions: Kept  # of the rows, that gave q its shape
    Du: Array  # prior precision of q, its scale included
    prior: PriorMessage  # prior at q; its precision is what the next q should use
    data: float  # the rows' part of the bound
    bound: float
    t: float = 0.0  # q has standard deviations e^t times those that its row precisions gave it
    history: History = History()
    rise: float = math.inf  # of the bound by the last step, relative
    rough: bool = False  # whether q came from a matrix in single precision

    @property
    def objective(self) -> float:
        """The bound."""
        return self.bound

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
        """Row messages at q, fetched from the rows."""
        message: Message = self.rows.fetch().message
        return message

    @property
    def ku(self) -> Array:
        """Row precisions of q, its scale included, fetched from the rows."""
        ku: Array = self.precisions.fetch().ku
        return math.exp(-2.0 * self.t) * ku if self.t else ku


@dataclass(frozen=True)
class GaussianVI:
    """Monotone ascent of ``E log pseudo-likelihood - KL(q || prior)`` over Gaussians q.

    The state is the vector of row curvatures, so the precision ``X'diag(ku)X + diag(Du)`` is positive definite by
    construction. Each step factors it once, moves the mean by a line search at fixed covariance, moves the overall
    scale of q by another, and proposes new curvatures by Anderson acceleration with a computed damping. A step that
    lowers the bound is replaced by the natural-gradient path from the last accepted q, which ascends.

    With heavy rows the start is the fit of the same rows with smaller weights, see ``heavy``.
    """

    window: int = 5
    needs_loss = ("gaussian",)
    needs_prior = ("gaussian", "expect")

    def init(self, model: Model) -> VIState:
        """Start from the messages at N(0, 1) predictors: ridge least squares, then the scale move."""
        if heavy(model):
            light: VIState = fit_lighter(self, model)
            return self.at(model, LIGHTER * light.ku, light.Du, light.q.mean)
        first, _ = model.blocks.keep(own.standard, _face(model))
        D = model.prior.start().precision.copy()
        D[: model.size][model.free] = np.maximum(D[: model.size][model.free], 1e-3)
        q, _ = model.conditional(first, D, rough=_worth_rounding(model))
        return self._evaluate(model, first, D, q.mean, q)

    def at(self, model: Model, ku: Array, Du: Array, mean: Array) -> VIState:
        """The state with given row and prior precisions, from a given mean."""
        return self._from(model, model.blocks.place(own.Precisions(ku, None, ku)), Du, mean)

    def from_messages(self, model: Model, w: Array, b: Array, Du: Array) -> VIState:
        """The state with given row messages and prior precisions: a start from a fit of the same rows elsewhere."""
        return self._from(model, model.blocks.place(own.Precisions(w, b, w)), Du, None)

    def _from(self, model: Model, precisions: Kept, Du: Array, mean: Array | None) -> VIState:
        q, _ = model.conditional(precisions, Du)
        return self._evaluate(model, precisions, Du, q.mean if mean is None else mean, q)

    def given(self, model: Model, q: Normal) -> VIState:
        """The state of a Gaussian that came from elsewhere, as if its own curvatures had built it."""
        rows, (data,) = model.blocks.keep(visits.messages_at, (_face(model), q.mean, model.space.row_root(q)))
        return self.known(model, q, rows, float(data[0]))

    def known(self, model: Model, q: Normal, rows: Kept, data: float) -> VIState:
        """The same with moments and messages at hand, and the rows' part of the bound."""
        prior = model.prior.gaussian(q.mean, q.var)
        precisions, _ = model.blocks.keep(own.curvatures, None, rows)
        return VIState(q, rows, precisions, prior.precision, prior, data, data + prior.bound + q.entropy)

    def step(self, model: Model, state: VIState, iteration: int) -> tuple[VIState, Info]:
        """One accepted ascent step."""
        rho = self._damping(model, state)
        new = self._propose(model, state, rho)
        open_ = 0.0
        if new is None or not new.bound >= state.bound - model.space.rounding * abs(state.bound):
            new = self._natural_path(model, state, 0.7 * rho)
            open_ = self._decrement(model, state) if new.q is state.q else 0.0  # standing still is not convergence
        change = relative(max(abs(new.bound - state.bound), open_), new.bound)
        if change > _FAR:
            new = new._replace(history=History())
        return new._replace(rise=change), Info(new.bound, math.inf if new.rough else change)  # no end with a rough q

    def restart(self, model: Model, state: VIState) -> VIState:
        """A warm start: the state as seen by another prior, ready for its first step."""
        prior = model.prior.gaussian(state.q.mean, state.q.var)
        rows, data = state.rows, state.data
        if model.blocks.has_residual:  # it goes with the prior
            small = _face(model), state.q.mean, model.space.row_root(state.q)
            rows, (found,) = model.blocks.keep(own.refreshed, small, rows)
            data = float(found[0])
        bound = data + prior.bound + state.q.entropy
        return state._replace(rows=rows, prior=prior, data=data, bound=bound, history=History())

    def coefficients(self, state: VIState) -> tuple[Array, Any]:
        """Mean and a root of the covariance of the coefficients."""
        return state.q.mean, state.q.root

    def seen(self, model: Model, state: VIState, *, rows: bool = True) -> VIState:
        """The same q on a model with other weights or loss, or with other ``rows``."""
        face = _face(model)
        if rows:
            small = face, state.q.mean, model.space.row_root(state.q)
            found, (data,) = model.blocks.keep(visits.messages_at, small)
        else:
            found, (data,) = model.blocks.keep(visits.messages, face, state.rows)
        bound = float(data[0]) + state.prior.bound + state.q.entropy
        return state._replace(rows=found, data=float(data[0]), bound=bound)

    def _damping(self, model: Model, state: VIState) -> float:
        """Damping from the sensitivity of the curvatures to the variances.

        A uniform change of the curvatures by e^d changes the variances by about e^-d times the share that the data
        have in the precision; d log w / d log sd, averaged with weights w v, says how the curvatures answer.
        """
        ((total, moved),) = model.blocks.sum(own.sensitivity, (_face(model), _NUDGE), state.rows)
        if total <= 0.0:
            return 1.0
        answer = float(moved) / float(total) / (0.5 * math.log1p(_NUDGE))
        return 1.0 / (1.0 + max(0.0, 0.5 * answer * min(float(total) / model.dimension, 1.0)))

    def _propose(self, model: Model, state: VIState, rho: float) -> VIState | None:
        """Damped new curvatures in logarithms, accelerated over (mean, log curvatures, log prior precision)."""
        rows, p = model.blocks, model.size
        with np.errstate(divide="ignore"):  # a sharp prior has no curvature far from its corner
            log_D = np.maximum(state.prior.logs(), _LOG_FLOOR)
        short = np.concatenate((state.q.mean, log_D))
        small = rho, state.t, state.history.pending is not None
        before = state.history.rows[-(self.window - 1) :] if self.window > 1 else ()
        found, products = rows.keep(own.image, small, state.rows, state.precisions, *before)
        history = state.history.extended(found, short, self.window)
        images, share = (found,), None
        if len(history.rows) > 1:
            even = np.full(len(log_D), len(log_D) ** -0.5)
            units = np.concatenate((1.0 / np.sqrt(state.q.var[:p]), even))
            steps = steps_of(np.array(history.residuals) * units)
            share = weights_of(products[0] + steps @ steps.T)
        if share is not None:
            images, short = history.rows, share @ np.array(history.images)
        mean, log_D = short[:p], short[p:]
        try:
            with np.errstate(over="raise"):  # an extrapolation may end anywhere
                Du = state.prior.from_logs(log_D)
                precisions, _ = rows.keep(
                    own.combined, (share, state.t, _NOTHING), state.rows, state.precisions, *images
                )
            coarse = state.rise > _ROUGH and _worth_rounding(model)
            q, rough = model.conditional(precisions, Du, rough=coarse)
            with np.errstate(over="raise", invalid="raise"):  # where nothing bends a Newton step has no length
                new = self._evaluate(model, precisions, Du, mean, q)
        except (np.linalg.LinAlgError, FloatingPointError):
            return None
        return new._replace(rough=rough, history=history.entered(short))

    def _natural_path(self, model: Model, state: VIState, rho: float) -> VIState:
        """Ascend along (1 - rho) old + rho new precision; small enough rho must raise the bound."""
        while rho > 1e-8:
            Du = (1.0 - rho) * state.Du + rho * state.prior.precision
            try:
                with np.errstate(over="raise", invalid="raise"):
                    small = rho, math.exp(-2.0 * state.t)
                    precisions, _ = model.blocks.keep(own.between, small, state.rows, state.precisions)
                    new = self._from(model, precisions, Du, state.q.mean)
                if new.bound >= state.bound - 0.01 * model.space.rounding * abs(state.bound):
                    return new
            except FloatingPointError:
                pass
            rho *= 0.3
        return state._replace(history=History())

    def _decrement(self, model: Model, state: VIState) -> float:
        """What a quadratic model of the bound promises for a move of the mean."""
        gradient = _gradient(model.blocks.sum(own.gradient, state.q.mean, state.rows), state.prior, state.q.mean)
        return 0.5 * float(gradient @ state.q.solve(gradient))

    def _evaluate(self, model: Model, precisions: Kept, Du: Array, mean: Array, q: Normal) -> VIState:
        """The best mean and scale for a given shape of the covariance, and the bound there."""
        rows, face = model.blocks, _face(model)
        q = q.with_mean(mean)
        start, sums = rows.keep(own.gradient_at, (face, mean, model.space.row_root(q)))
        # 1. mean: one Newton direction, then a line search along it
        gradient = _gradient(sums, model.prior.gaussian(mean, q.var), mean)
        direction = q.solve(gradient)
        along, _ = rows.keep(own.line, (mean, direction))
        slope = float(gradient @ direction)
        tau, there = line_search(model, face, q, start, direction, along, slope)
        q = q.with_mean(mean + tau * direction)
        # 2. scale of q as a whole
        t, there = scale_search(model, face, q, there, _WORTH * 0.5 * tau * slope)
        if t != 0.0:
            q, Du = q.dilated(t), Du * math.exp(-2.0 * t)
        bound = there.data + there.prior.bound + q.entropy
        return VIState(q, there.rows, precisions, Du, there.prior, there.data, bound, t)


def _face(model: Model) -> Face:
    """The averages of the loss that this engine works with."""
    return Face(model.loss, "gaussian")


def _gradient(sums: tuple[Array, ...], prior: PriorMessage, mean: Array) -> Array:
    """Gradient of the bound in the mean, from the sums of the rows' part and of what missing entries take off."""
    gradient: Array = sums[0] + prior.pull(mean)
    return gradient - sums[1] if len(sums) > 1 else gradient


def _worth_rounding(model: Model) -> bool:
    """Whether a Gram matrix in single precision saves time worth having."""
    return model.n * model.size >= _LARGE
