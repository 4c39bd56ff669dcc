"""Variational inference with inducing points on all rows, and the kernel's amplitude."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model
from softmargin.core.prior import PriorBase
from softmargin.core.space import Normal
from softmargin.engines.vi.gaussian import GaussianVI, VIState

__all__ = [
    "InducingModel",
    "Neighbour",
    "best_scale",
    "fit_inducing",
    "fixed_scale",
    "log_scale_density",
    "scale_terms",
]

_ROUNDS = 12  # values of the scale at most
_FAR = 2.0  # largest step of the logarithm of the scale
_LOOSE = 1e-3  # precision of free coefficients at a start
_LONG = 4.0  # step in units of the gap where the slope is not known


@dataclass(frozen=True, eq=False)
class InducingModel(Model):
    """A model whose predictors are ``x'beta + e``, with e from the same prior of scale s: its variance is ``s^2 rest``.

    The variance goes with the scale, so engines work on the model with a scale fixed, which ``with_prior`` gives, and
    the scale is learned around them. The bound is then exact for every scale.
    """

    def with_prior(self, prior: PriorBase) -> InducingModel:
        """The same rows under another prior, what the columns leave scaled by it."""
        design: Any = self.blocks.design
        return replace(
            self, prior=prior, blocks=self.blocks.with_residual(prior.start().values["scale"] ** 2 * design.rest)
        )


class Neighbour(NamedTuple):
    """Row messages and scale of a fit to the same rows in other columns."""

    w: Array
    b: Array
    scale: float

    def start(self, model: Model, engine: GaussianVI) -> VIState:
        """The state of a model with these messages."""
        D = np.full(model.size, self.scale**-2.0)
        D[model.free] = _LOOSE
        return engine.from_messages(model, self.w, self.b, D)


def fixed_scale(prior: PriorBase) -> bool:
    """Whether nothing is learned about the prior's scale."""
    return prior.stretch(prior.start()) is None


def log_scale_density(prior: PriorBase, scale: float) -> float:
    """Log density of the logarithm of a learned scale."""
    start, hyper = prior.start(), prior.stretch(prior.start())
    assert hyper is not None
    return hyper(math.log(scale) - math.log(start.values["scale"]))


def scale_terms(model: Model, q: Normal) -> tuple[float, int]:
    """Expected sum of the squares of the shrunk coefficients, and their number."""
    shrunk = ~model.free
    return float((q.mean**2 + q.var)[shrunk].sum()), int(shrunk.sum())


def best_scale(prior: PriorBase, square: float, shrunk: int, pressure: float, near: float) -> float:
    """Scale s at which the bound is largest for given coefficients.

    It maximises ``-r log s - E/(2 s^2) - s^2 R/2 + log p(log s)``, with E the expected sum of the ``shrunk`` r squares
    and R the sum of row curvatures times what the columns leave. At R = 0 this is where the mean-field density of the
    scale has it: both have the same stationary point in log s.
    """

    def loss(x: float) -> float:
        grow = math.exp(2.0 * x)
        return shrunk * x + 0.5 * (square / grow + pressure * grow) - log_scale_density(prior, math.exp(x))

    x, reach = math.log(near), _FAR
    for _ in range(10):
        found = float(minimize_scalar(loss, bounds=(x - reach, x + reach), method="bounded", options={"xatol": 1e-9}).x)
        if abs(found - x) < 0.99 * reach:
            break
        x = found
    return math.exp(found)


def fit_inducing(
    model: InducingModel,
    *,
    engine: Any = None,
    max_iter: int = 500,
    tol: float = 1e-6,
    state: Any = None,
    **watch: Any,
) -> tuple[InducingModel, Outcome]:
    """Fit all rows; a learned scale is where the best scale for the coefficients is the scale they were fitted at.

    Returns the model with the scale fixed there, and the run on it, whose trace has the log density of a learned log
    scale in its bounds. Secant steps in log scale, each fit started from the last one.

    Parameters
    ----------
    model : InducingModel
        Rows, loss and prior.
    engine : GaussianVI or MeanField
        Exact averages of the loss, the default, or its latent averaged.
    max_iter, tol : int, float
        Of every run.
    state : optional
        State of a neighbouring fit to start from, or a ``Neighbour`` with other points.
    **watch
        ``progress`` and ``callback`` of the runs.
    """
    engine = GaussianVI() if engine is None else engine
    if fixed_scale(model.prior):
        fixed = model.with_prior(model.prior)
        return fixed, run(engine, fixed, max_iter=max_iter, tol=tol, state=_warm(engine, fixed, state), **watch)
    if state is None:  # the scale of a model in which columns are everything is close
        state = run(engine, model, max_iter=max_iter, tol=max(tol, 1e-4), inner=True).state
    x = math.log(state.scale if isinstance(state, Neighbour) else state.prior.values["scale"])
    trace: list[float] = []
    steps, last = 0, None
    for _ in range(_ROUNDS):
        fixed = model.with_prior(model.prior.at_scale(math.exp(x)))
        outcome = run(engine, fixed, max_iter=max_iter, tol=tol, state=_warm(engine, fixed, state), **watch)
        state, steps = outcome.state, steps + outcome.n_iter
        trace += [bound + log_scale_density(model.prior, math.exp(x)) for bound in outcome.trace]
        gap = _gap(model, state, x)
        slope = 0.0 if last is None else (gap - last[1]) / (x - last[0])  # below zero next to the fixed point
        step = -gap / slope if slope < 0.0 else _LONG * gap
        # the bound rises by about this much from here to its top; a gap alone is far smaller than the way there
        if outcome.interrupted or abs(gap * step) * model.size <= tol * (1.0 + abs(trace[-1])):
            break
        last, x = (x, gap), x + min(max(step, -_FAR), _FAR)
    return fixed, replace(outcome, trace=trace, n_iter=steps)


def _gap(model: Model, state: Any, x: float) -> float:
    """How far the best scale for the coefficients is from the one they were fitted at, in logarithms."""
    design: Any = model.blocks.design
    pressure = float(state.message.w @ design.rest)
    return math.log(best_scale(model.prior, *scale_terms(model, state.q), pressure, math.exp(x))) - x


def _warm(engine: Any, model: Model, state: Any) -> Any:
    """A state of a neighbouring model as a start, where there is one."""
    if state is None:
        return None
    if isinstance(state, Neighbour):
        return state.start(model, engine)
    return engine.restart(model, state)
