"""Normal prior: ``beta_j ~ N(0, nu^2)``, free coefficients ``N(0, intercept_scale^2)``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState, dimensions
from softmargin.priors.scales import FixedScale, HalfT, InverseGamma, ScalePrior, check_scale
from softmargin.refusals import refused

__all__ = ["Ridge"]

_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Ridge(Prior):
    """Normal prior with a common standard deviation, fixed or learned.

    Parameters
    ----------
    scale : float or "learn"
        Standard deviation of the coefficients (of standardized columns when the estimator standardizes).
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned scale. None is half-t with 10 degrees of freedom; for the joint mode with the scale, where
        that degenerates, it is InverseGamma(2, 1) on the variance.
    intercept_scale : float
        Standard deviation of the intercept (of standardized columns when the estimator standardizes).

    Examples
    --------
    >>> from softmargin.priors import Ridge
    >>> Ridge(scale=0.5)
    Ridge(scale=0.5, hyperprior=None, intercept_scale=10000.0)
    """

    scale: float | str = "learn"
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4

    isotropic = True  # rotations of the shrunk coefficients leave the prior unchanged

    def __post_init__(self) -> None:
        check_scale("Ridge", self.scale, self.intercept_scale)

    @property
    def learned(self) -> bool:
        """Whether the scale is learned."""
        return isinstance(self.scale, str)

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundRidge:
        """Attach the prior to coefficients.

        ``free`` marks the intercept, ``rows`` counts the data, and with several ``classes`` the coefficients are that
        many blocks which sum to zero.
        """
        if not isinstance(self.scale, str):
            fixed = FixedScale(float(self.scale))
            return BoundRidge(free, self.intercept_scale**-2, fixed, fixed, rows, classes)
        default = self.hyperprior is None
        posterior: Any = HalfT(1.0) if self.hyperprior is None else self.hyperprior
        at_mode: Any = InverseGamma(2.0, 1.0) if default else self.hyperprior
        at_mode = at_mode if at_mode.offers("mode") else None
        return BoundRidge(free, self.intercept_scale**-2, posterior, at_mode, rows, classes)


@dataclass(frozen=True, eq=False)
class BoundRidge(PriorBase):
    """A normal prior on given coefficients."""

    free: Flags
    flat: float
    scale_prior: ScalePrior
    mode_prior: ScalePrior | None
    rows: int | None = None
    classes: int = 1

    isotropic = True

    @cached_property
    def _shrunk(self) -> Array:
        return (~self.free).astype(float)

    @cached_property
    def _both(self) -> Array:
        """A matrix that makes the sums of the moments of shrunk and of free coefficients."""
        return np.array((self._shrunk, self.free))

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return dimensions(~self.free, self.classes), dimensions(self.free, self.classes)

    def _precision(self, tau: float) -> Array:
        return np.where(self.free, self.flat, tau)

    def _message(self, solved: Callable[[float, int], tuple[float, float]], moment: Array, r: int) -> PriorMessage:
        shrunk, loose = (self._both @ moment).tolist()
        tau, bound = solved(shrunk, r)
        free = self._sizes[1] * (math.log(self.flat) - _LOG_2PI) - self.flat * loose
        return PriorMessage(self._precision(tau), bound + 0.5 * (free - r * _LOG_2PI), {"scale": tau**-0.5})

    def start(self) -> PriorState:
        tau = self.scale_prior.first**-2
        return PriorState(self._precision(tau), {"scale": tau**-0.5})

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.scale_prior.expect, mean * mean + var, self._sizes[0])

    gaussian = expect  # the log density is quadratic: both averages are the same

    def mode(self, beta: Array) -> PriorMessage:
        if self.mode_prior is None:
            raise ValueError(refused("no joint mode"))
        # n rows see at most n directions; the others, at zero in the mode, say nothing about the scale
        r, n_free = self._sizes
        seen = r if self.rows is None else min(r, max(self.rows - n_free, 1))
        return self._message(self.mode_prior.mode, beta * beta, seen)

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        if not self.scale_prior.learned:
            return state
        E = float((beta * beta) @ self._shrunk)
        tau = self.scale_prior.draw(rng, E, self._sizes[0], state.values["scale"] ** -2)
        return PriorState(self._precision(tau), {"scale": tau**-0.5})

    def logpdf(self, state: PriorState, beta: Array) -> float:
        (r, n_free), square = self._sizes, float(state.precision @ (beta * beta))
        log_precision = n_free * math.log(self.flat) - 2.0 * r * math.log(state.values["scale"])
        return 0.5 * (log_precision - square - (r + n_free) * _LOG_2PI)

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        half = 0.5 * float(state.precision @ (beta * beta))
        return lambda step: -half * math.exp(2.0 * step)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        if not self.scale_prior.learned or not self._sizes[0]:
            return None
        here = math.log(state.values["scale"])
        return lambda t: self.scale_prior.log_density(here + t)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        scale = state.values["scale"] * math.exp(t)
        return PriorState(self._precision(scale**-2), {"scale": scale})

    def at_scale(self, scale: float) -> BoundRidge:
        fixed = FixedScale(scale)
        return replace(self, scale_prior=fixed, mode_prior=fixed)

    def tempered(self, scale: float, temperature: float) -> BoundRidge:
        """The density at this scale raised to the power 1/temperature."""
        fixed = self.at_scale(scale * math.sqrt(temperature))
        return replace(fixed, flat=self.flat / temperature)

    def penalty(self, scale: float) -> tuple[Array, Array]:
        """Quadratic precision and rate of |beta| of the negative log density."""
        return self._precision(scale**-2), np.zeros(len(self.free))
