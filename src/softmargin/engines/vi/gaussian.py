"""Exact Gaussian variational inference: the best N(mu, Sigma) for the pseudo-posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, relative
from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.space import Normal
from softmargin.engines.vi._anderson import History, extrapolate
from softmargin.engines.vi._heavy import LIGHTER, fit_lighter, heavy

__all__ = ["GaussianVI", "VIState"]

_LOG_FLOOR = -500.0  # curvatures below e^-500 say nothing; the floor keeps their logarithms finite
_NOTHING = 1e-12  # part of a row in the trace of precision times covariance below which the row is left out
_FAR = 0.03  # relative rise of the bound by a step after which older steps say nothing of the next
_WORTH = 1e-3  # gain by the scale of q, in gains by its mean, below which it is left alone
_ENOUGH = 5  # trials of a line search after which any rise will do
_ATTEMPTS = 60  # most trials: a kink of a large weight may be at a tiny part of the first step
_ROUGH = 1e-4  # relative rise above which the next covariance may come from a matrix in single precision
_EPSILON = float(np.finfo(float).eps)
_LARGE = 100_000  # numbers in the design from which that saves time worth having


class VIState(NamedTuple):
    """An accepted approximation and what the next step needs."""

    q: Any  # a Gaussian on the space of the coefficients
    f: Array  # mean of the linear predictors
    v: Array  # their variances
    ku: Array  # row precisions that built q, those too small to be felt among them
    Du: Array  # prior precision that built q
    message: Message  # rows at q: w is the curvature that the next q should use
    prior: PriorMessage  # prior at q, likewise
    bound: float
    history: History
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
    needs_prior = ("gaussian",)

    def init(self, model: Model) -> VIState:
        """Start from the messages at N(0, 1) predictors: ridge least squares, then the scale move."""
        if heavy(model):
            light: VIState = fit_lighter(self, model)
            return self.at(model, LIGHTER * light.ku, light.Du, light.q.mean)
        n = len(model.y)
        first = model.loss.gaussian(model.y, model.c, np.zeros(n), np.ones(n))
        D = model.prior.start().precision.copy()
        D[: model.size][model.free] = np.maximum(D[: model.size][model.free], 1e-3)
        q, _ = _shaped(model, first.w, first.b, D, rough=True)
        return self._evaluate(model, first.w, D, q.mean, q)

    def at(self, model: Model, ku: Array, Du: Array, mean: Array) -> VIState:
        """The state with given row and prior precisions, from a given mean."""
        return self._evaluate(model, ku, Du, mean, model.gaussian(ku, ku, Du))

    def from_messages(self, model: Model, w: Array, b: Array, Du: Array) -> VIState:
        """The state with given row messages and prior precisions: a start from a fit of the same rows elsewhere."""
        q = model.gaussian(w, b, Du)
        return self._evaluate(model, w, Du, q.mean, q)

    def step(self, model: Model, state: VIState, iteration: int) -> tuple[VIState, Info]:
        """One accepted ascent step."""
        rho = self._damping(model, state)
        new = self._propose(model, state, rho)
        open_ = 0.0
        if new is None or not new.bound >= state.bound - 1e-11 * abs(state.bound):
            new = self._natural_path(model, state, 0.7 * rho)
            open_ = self._decrement(model, state) if new.q is state.q else 0.0  # standing still is not convergence
        change = relative(max(abs(new.bound - state.bound), open_), new.bound)
        if change > _FAR:
            new = new._replace(history=History())
        return new._replace(rise=change), Info(new.bound, math.inf if new.rough else change)  # no end with a rough q

    def restart(self, model: Model, state: VIState) -> VIState:
        """A warm start: the state as seen by another prior, ready for its first step."""
        prior = model.prior.gaussian(state.q.mean, state.q.var)
        v, message = state.v, state.message
        if isinstance(model.blocks.still, np.ndarray):  # it goes with the prior
            v = model.blocks.row_quad(state.q.root) + model.blocks.excess(state.q.mean)
            message = model.loss.gaussian(model.y, model.c, state.f, v)
        bound = float(message.bound.sum()) + prior.bound + state.q.entropy
        return state._replace(v=v, message=message, prior=prior, bound=bound, history=History())

    def coefficients(self, state: VIState) -> tuple[Array, Any]:
        """Mean and a root of the covariance of the coefficients."""
        return state.q.mean, state.q.root

    def seen(self, model: Model, state: VIState, *, rows: bool = True) -> VIState:
        """The same q on a model with other weights or loss, or with other ``rows``."""
        f, v = model.blocks.moments(state.q.mean, state.q.root) if rows else (state.f, state.v)
        message = model.loss.gaussian(model.y, model.c, f, v)
        bound = float(message.bound.sum()) + state.prior.bound + state.q.entropy
        return state._replace(f=f, v=v, message=message, bound=bound)

    def _damping(self, model: Model, state: VIState) -> float:
        """Damping from the sensitivity of the curvatures to the variances.

        A uniform change of the curvatures by e^d changes the variances by about e^-d times the share that the data
        have in the precision; d log w / d log sd, averaged with weights w v, says how the curvatures answer.
        """
        k, v, still = state.message.w, state.v - model.blocks.still, model.blocks.still
        share = k * v
        total = float(share.sum())
        if total <= 0.0:
            return 1.0
        nudge = 1e-4
        moved = model.loss.gaussian(model.y, model.c, state.f, v * (1.0 + nudge) + still).w
        answer = float((v * (moved - k)).sum()) / total / (0.5 * math.log1p(nudge))
        return 1.0 / (1.0 + max(0.0, 0.5 * answer * min(total / model.dimension, 1.0)))

    def _propose(self, model: Model, state: VIState, rho: float) -> VIState | None:
        """Damped new curvatures in logarithms, accelerated over (mean, log curvatures, log prior precision)."""
        old_k = np.log(np.maximum(state.ku, 1e-200))
        new_k = np.maximum(np.log(np.maximum(state.message.w, 1e-200)), _LOG_FLOOR)
        with np.errstate(divide="ignore"):  # a sharp prior has no curvature far from its corner
            log_D, p = np.maximum(state.prior.logs(), _LOG_FLOOR), model.size
        target = np.concatenate((state.q.mean, old_k + rho * (new_k - old_k), log_D))
        even = np.full(len(log_D), len(log_D) ** -0.5)
        weight = np.concatenate((1.0 / np.sqrt(state.q.var[:p]), np.sqrt(state.message.w * state.v), even))
        x, history = extrapolate(state.history, target, weight, self.window)
        mean, log_k, log_D = x[:p], x[p : p + len(old_k)], x[p + len(old_k) :]
        slack = 0.7
        log_k = np.clip(log_k, np.minimum(old_k, new_k) - slack, np.maximum(old_k, new_k) + slack)
        used = np.concatenate((mean, log_k, log_D))
        try:
            with np.errstate(over="raise"):  # an extrapolation may end anywhere
                ku, Du = np.exp(log_k), state.prior.from_logs(log_D)
            felt = np.where(ku * state.v > _NOTHING, ku, 0.0)  # rows far from the margin cost no time
            q, rough = _shaped(model, felt, np.zeros(len(felt)), Du, rough=state.rise > _ROUGH)
            with np.errstate(over="raise", invalid="raise"):  # where nothing bends a Newton step has no length
                return self._evaluate(model, ku, Du, mean, q, history.entered(used))._replace(rough=rough)
        except (np.linalg.LinAlgError, FloatingPointError):
            return None

    def _natural_path(self, model: Model, state: VIState, rho: float) -> VIState:
        """Ascend along (1 - rho) old + rho new precision; small enough rho must raise the bound."""
        while rho > 1e-8:
            ku = (1.0 - rho) * state.ku + rho * state.message.w
            Du = (1.0 - rho) * state.Du + rho * state.prior.precision
            try:
                with np.errstate(over="raise", invalid="raise"):
                    new = self.at(model, ku, Du, state.q.mean)
                if new.bound >= state.bound - 1e-13 * abs(state.bound):
                    return new
            except FloatingPointError:
                pass
            rho *= 0.3
        return state._replace(history=History())

    def _decrement(self, model: Model, state: VIState) -> float:
        """What a quadratic model of the bound promises for a move of the mean."""
        gradient = model.blocks.rmatvec(state.message.b - state.message.w * state.f) + state.prior.pull(state.q.mean)
        gradient -= model.blocks.drag(state.message.w, state.q.mean)
        return 0.5 * float(gradient @ state.q.solve(gradient))

    def _evaluate(
        self, model: Model, ku: Array, Du: Array, mean: Array, q: Normal, history: History | None = None
    ) -> VIState:
        """The best mean and scale for a given shape of the covariance, and the bound there."""
        q = q.with_mean(mean)
        excess = model.blocks.excess(mean)
        f, v = model.blocks.moments(mean, q.root)
        message = model.loss.gaussian(model.y, model.c, f, v)
        prior = model.prior.gaussian(mean, q.var)
        # 1. mean: one Newton direction, then a line search along it
        gradient = model.blocks.rmatvec(message.b - message.w * f) + prior.pull(mean)
        gradient -= model.blocks.drag(message.w, mean)
        direction = q.solve(gradient)
        ahead = model.blocks.matvec(direction)
        square = model.blocks.excess(direction) - model.blocks.still  # the variance is quadratic along the line
        wider = model.blocks.excess(mean + direction) - excess - square, square
        slope = float(gradient @ direction)
        tau, message, prior = _line_search(model, q, mean, f, v, direction, ahead, wider, slope)
        q, f, v = q.with_mean(mean + tau * direction), f + tau * ahead, _variance(v, wider, tau)
        # 2. scale of q as a whole
        gained = 0.5 * tau * slope
        t, message, prior = _scale_search(model, q, f, v, message, prior, _WORTH * gained)
        if t != 0.0:
            still = model.blocks.still
            q, f, v = q.dilated(t), f * math.exp(t), (v - still) * math.exp(2.0 * t) + still
            ku, Du = ku * math.exp(-2.0 * t), Du * math.exp(-2.0 * t)
        bound = float(message.bound.sum()) + prior.bound + q.entropy
        return VIState(q, f, v, ku, Du, message, prior, bound, history or History())


def _shaped(model: Model, w: Array, b: Array, precision: Array, *, rough: bool) -> tuple[Normal, bool]:
    """The Gaussian of these messages, and whether it is a ``rough`` one: its bound is exact, but it is not the best."""
    q = model.direction(w, b, precision) if rough and len(w) * model.size >= _LARGE else None
    return (model.gaussian(w, b, precision), False) if q is None else (q, True)


def _variance(v: Array, wider: Any, tau: float) -> Array:
    """Variances of the predictors at a point of the line, no smaller than the rounding of their terms."""
    rounding = _EPSILON * (v + abs(tau * wider[0]) + tau * tau * wider[1])
    return np.maximum(v + tau * (wider[0] + tau * wider[1]), rounding)


def _line_search(
    model: Model, q: Normal, mean: Array, f: Array, v: Array, direction: Array, ahead: Array, wider: Any, slope: float
) -> tuple[float, Message, PriorMessage]:
    """Safeguarded Newton on the slope of the bound along the direction, covariance fixed.

    It ends at a point that is no lower than the start: where the slope is small, or where it still rises. ``wider``
    has the linear and quadratic terms of the predictors' variances, zero where no cells are missing.
    """
    low, high, tau, below = 0.0, math.inf, 1.0, None
    for attempt in range(_ATTEMPTS):
        at = f + tau * ahead
        message = model.loss.gaussian(model.y, model.c, at, _variance(v, wider, tau))
        prior = model.prior.gaussian(mean + tau * direction, q.var)
        here = float((message.b - message.w * at) @ ahead + prior.pull(mean + tau * direction) @ direction)
        here -= 0.5 * float((message.w * (wider[0] + 2.0 * tau * wider[1])).sum())
        if abs(here) <= 0.1 * abs(slope) or (here > 0.0 and attempt >= _ENOUGH):
            break
        if here > 0.0:
            low, below = tau, (tau, message, prior)
        elif attempt >= _ENOUGH and below is not None:
            return below
        else:
            high = tau
        curvature = float(message.w @ (ahead * ahead + wider[1])) + prior.bend(direction)
        step = tau + here / curvature if curvature > 0.0 else math.inf
        inside = low < step < high and step < 8.0 * max(tau, 1e-12)
        between = 0.5 * (low + high)
        tau = step if inside else (between if high < math.inf else 2.0 * tau)
    return tau, message, prior


def _scale_search(
    model: Model, q: Normal, f: Array, v: Array, message: Message, prior: PriorMessage, least: float
) -> tuple[float, Message, PriorMessage]:
    """Maximise the bound over (mean, covariance) -> (e^t mean, e^2t covariance) by safeguarded secant steps.

    Nothing is done where a gain of at most ``least`` is in sight.
    """
    still = model.blocks.still
    v = v - still
    square = f * f + v

    def slope(t: float, m: Message, p: PriorMessage) -> float:
        """Derivative of the bound in t."""
        grow = math.exp(t)
        pull = grow * float(m.b @ f) - grow * grow * float(m.w @ square)
        prior_pull = grow * float(p.pull(grow * q.mean) @ q.mean) - grow * grow * float(p.precision @ q.var)
        return pull + prior_pull + model.dimension

    def value(t: float, m: Message, p: PriorMessage) -> float:
        return float(m.bound.sum()) + p.bound + model.dimension * t

    first = last_slope = slope(0.0, message, prior)
    curvature = float(message.w @ square) + 2.0 * (prior.bend(q.mean) + float(prior.precision @ q.var))
    if abs(first) < 1e-9 * model.dimension or first * first <= 2.0 * least * curvature:
        return 0.0, message, prior
    best = (value(0.0, message, prior), 0.0, message, prior)
    t = 0.0
    for _ in range(5):
        step = min(max(last_slope / max(curvature, 1e-12), -1.0), 1.0)
        t += step
        grow = math.exp(t)
        m = model.loss.gaussian(model.y, model.c, grow * f, grow * grow * v + still)
        p = model.prior.gaussian(grow * q.mean, grow * grow * q.var)
        here = slope(t, m, p)
        candidate = (value(t, m, p), t, m, p)
        if candidate[0] > best[0]:
            best = candidate
        if abs(here) <= max(1e-2 * abs(first), 1e-9 * model.dimension) or abs(step) < 1e-9:
            break
        secant = (last_slope - here) / step
        curvature = secant if secant > 0.0 else 2.0 * curvature
        last_slope = here
    return best[1], best[2], best[3]
