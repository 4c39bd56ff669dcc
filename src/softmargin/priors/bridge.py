"""Exponential-power priors: density proportional to ``exp(-|beta/nu|^alpha)``; alpha = 1 is the lasso."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import hyp1f1

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState, dimensions
from softmargin.priors.scales import FixedScale, HalfT, InverseGamma, ScalePrior, check_scale
from softmargin.refusals import refused
from softmargin.rows.variates import slice_step, tilted_stable

__all__ = ["Bridge", "Lasso"]

_LOG_2PI = math.log(2.0 * math.pi)
_SMALLEST = 1e-150  # |beta| below this has no logarithm worth taking
_LARGEST = 1e16  # cap on a local precision
_ALPHA_MIN = 0.2  # learned exponents stay above


@dataclass(frozen=True)
class Bridge(Prior):
    """Bridge prior, density proportional to ``exp(-|beta/scale|^alpha)``.

    Parameters
    ----------
    alpha : float in (0, 2] or "learn"
        Exponent; 1 is the lasso, 2 a normal prior with standard deviation ``scale / sqrt(2)``. "learn" (for draws)
        has a uniform prior on (0.2, 2).
    scale : float or "learn"
        Scale of the coefficients.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned scale; None is half-t with 10 degrees of freedom, for the joint mode with the
        scale Gamma(2, 1) on ``scale^-alpha``.
        ``InverseGamma(a, b)`` puts Gamma(a, rate b) on ``scale^-alpha``.
    intercept_scale : float
        Standard deviation of the intercept.

    References
    ----------
    Polson and Scott (2011), sections 2.2 and 3.
    """

    alpha: float | str = 0.5
    scale: float | str = "learn"
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4

    selects = True  # modes have exact zeros

    def __post_init__(self) -> None:
        if isinstance(self.alpha, str):
            if self.alpha != "learn":
                raise ValueError(f"alpha must be a number in (0, 2] or 'learn'; got {self.alpha!r}.")
        elif not (isinstance(self.alpha, Real) and 0 < self.alpha <= 2):
            raise ValueError(f"alpha must be a number in (0, 2] or 'learn'; got {self.alpha!r}.")
        check_scale("Bridge", self.scale, self.intercept_scale)

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundBridge:
        """Attach the prior to coefficients.

        ``free`` marks the intercept, and with several ``classes`` the coefficients are that many blocks which sum to
        zero.
        """
        if classes > 1 and isinstance(self.alpha, str):
            raise ValueError(refused("learned exponent of classes"))
        alpha = 1.0 if isinstance(self.alpha, str) else float(self.alpha)
        learn_alpha = isinstance(self.alpha, str)
        posterior: Any
        at_mode: Any
        if isinstance(self.scale, str):
            posterior = HalfT(1.0) if self.hyperprior is None else self.hyperprior
            at_mode = InverseGamma(2.0, 1.0) if self.hyperprior is None else self.hyperprior
            at_mode = at_mode if at_mode.offers("mode") else None
        else:
            posterior = at_mode = FixedScale(float(self.scale))
        return BoundBridge(free, self.intercept_scale**-2, posterior, at_mode, alpha, learn_alpha, classes, rows)


def Lasso(
    scale: float | str = "learn",
    hyperprior: HalfT | InverseGamma | None = None,
    intercept_scale: float = 1e4,
) -> Bridge:
    """Laplace prior, density proportional to ``exp(-|beta|/scale)``: the bridge with alpha = 1."""
    return Bridge(1.0, scale, hyperprior, intercept_scale)


@dataclass(frozen=True, eq=False)
class BoundBridge(PriorBase):
    """An exponential-power prior on given coefficients."""

    free: Flags
    flat: float
    scale_prior: ScalePrior
    mode_prior: ScalePrior | None
    alpha: float
    learn_alpha: bool = False
    classes: int = 1
    rows: int | None = None

    @property
    def only_draws(self) -> str:
        """Why this prior serves draws alone, or nothing."""
        return refused("learned exponent without draws") if self.learn_alpha else ""

    @cached_property
    def _shrunk(self) -> Any:
        return np.flatnonzero(~self.free)

    @cached_property
    def _size(self) -> int:
        """Dimensions that are shrunk."""
        return dimensions(~self.free, self.classes)

    def _log_constant(self, alpha: float) -> float:
        """Normaliser without the scale: that of every variable, and that of the free coefficients."""
        n_free = dimensions(self.free, self.classes)
        own = len(self._shrunk) // self.classes * _log_normaliser(alpha, self.classes)
        return own + 0.5 * n_free * (math.log(self.flat) - _LOG_2PI)

    def _message(
        self,
        solve: Callable[[float, float, float], tuple[float, float]],
        size: int,
        energy: Array,
        slope: Array,
        moment: Array,
    ) -> PriorMessage:
        """Precision ``rho slope`` with rho = scale^-alpha solved from the total energy of ``size`` dimensions."""
        rho, bound = solve(float(energy.sum()), size / self.alpha, self.alpha)
        precision = np.full(len(self.free), self.flat)
        precision[self._shrunk] = np.minimum(rho * slope, _LARGEST)
        bound += self._log_constant(self.alpha) - 0.5 * self.flat * float(moment[self.free].sum())
        return PriorMessage(precision, bound, {"scale": rho ** (-1.0 / self.alpha)})

    def start(self) -> PriorState:
        scale = self.scale_prior.first
        values = {"scale": scale} | ({"alpha": self.alpha} if self.learn_alpha else {})
        return PriorState(np.where(self.free, self.flat, scale**-2), values)

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        """Mean field: ``E|b|^alpha`` replaced by its bound ``(E b^2)^(alpha/2)``."""
        moment = mean * mean + var
        m = np.maximum(moment[self._shrunk], _SMALLEST)
        return self._message(
            self.scale_prior.expect_power,
            self._size,
            m ** (0.5 * self.alpha),
            self.alpha * m ** (0.5 * self.alpha - 1.0),
            moment,
        )

    def gaussian(self, mean: Array, var: Array) -> PriorMessage:
        """Exact ``E|b|^alpha`` under N(mean, var) for alpha >= 1; below, where it is not convex, mean field.

        With x = mean^2/(2 var) and Kummer's M: ``E = k var^(alpha/2) M(-alpha/2, 1/2, -x)``,
        ``dE/dmean = k alpha var^(alpha/2 - 1) mean M(1 - alpha/2, 3/2, -x)`` and
        ``dE/dvar = (k alpha/2) var^(alpha/2 - 1) M(1 - alpha/2, 1/2, -x)``.
        """
        if self.alpha < 1.0:
            return self.expect(mean, var)
        a, m, v = self.alpha, mean[self._shrunk], np.maximum(var[self._shrunk], 1e-300)
        k = 2.0 ** (0.5 * a) * math.gamma(0.5 * (1.0 + a)) / math.sqrt(math.pi)
        x = np.minimum(0.5 * m * m / v, 1e6)
        energy = np.where(x < 1e6, k * v ** (0.5 * a) * hyp1f1(-0.5 * a, 0.5, -x), np.abs(m) ** a)
        unit = k * a * v ** (0.5 * a - 1.0)
        slope = unit * hyp1f1(1.0 - 0.5 * a, 0.5, -x)  # twice dE/dvar
        steep = np.where(x < 1e6, unit * m * hyp1f1(1.0 - 0.5 * a, 1.5, -x), a * np.sign(m) * np.abs(m) ** (a - 1.0))
        message = self._message(
            self.scale_prior.expect_power, self._size, energy, np.maximum(slope, 0.0), mean * mean + var
        )
        rho = message.values["scale"] ** -a
        linear = np.zeros(len(self.free))
        linear[self._shrunk] = message.precision[self._shrunk] * m - rho * steep
        return message._replace(linear=linear)

    def mode(self, beta: Array) -> PriorMessage:
        if self.mode_prior is None:
            raise ValueError(refused("no joint mode"))
        size = np.maximum(np.abs(beta[self._shrunk]), _SMALLEST)
        slope = np.minimum(self.alpha * size ** (self.alpha - 2.0), _LARGEST)
        # n rows hold at most n coefficients away from zero; the others say nothing about the scale
        n_free = dimensions(self.free, self.classes)
        seen = self._size if self.rows is None else min(self._size, max(self.rows - n_free, 1))
        return self._message(self.mode_prior.mode_power, seen, size**self.alpha, slope, beta * beta)

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Exponent and scale with the local scales integrated out, then the local scales: a block draw."""
        size = np.maximum(np.abs(beta[self._shrunk]), _SMALLEST)
        alpha, scale = state.values.get("alpha", self.alpha), state.values["scale"]
        if self.learn_alpha:
            alpha = slice_step(rng, lambda a: self._log_alpha(a, size), alpha, width=0.5)
        if self.scale_prior.learned:
            energy = float((size**alpha).sum())
            scale = self.scale_prior.draw_power(rng, energy, self._size / alpha, alpha, scale)
        precision = np.full(len(self.free), self.flat)
        local = tilted_stable(rng, size / scale, alpha)  # 1/omega
        precision[self._shrunk] = np.minimum(local / scale**2, _LARGEST)
        values = {"scale": scale} | ({"alpha": alpha} if self.learn_alpha else {})
        return PriorState(precision, values)

    def _log_alpha(self, alpha: float, size: Array) -> float:
        """Log density of alpha given the coefficients, the scale integrated out."""
        if not _ALPHA_MIN < alpha < 2.0:
            return -math.inf
        _, evidence = self.scale_prior.expect_power(float((size**alpha).sum()), len(size) / alpha, alpha)
        return evidence - len(size) * math.lgamma(1.0 + 1.0 / alpha)

    def logpdf(self, state: PriorState, beta: Array) -> float:
        alpha = state.values.get("alpha", self.alpha)
        own = -self._size * math.log(state.values["scale"]) + self._log_constant(alpha)
        return own + self.along(state, beta)(0.0)

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        alpha = state.values.get("alpha", self.alpha)
        energy = float((np.abs(beta[self._shrunk]) ** alpha).sum()) * state.values["scale"] ** -alpha
        half = 0.5 * self.flat * float((beta[self.free] ** 2).sum())
        return lambda t: -energy * math.exp(alpha * t) - half * math.exp(2.0 * t)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        if not self.scale_prior.learned or not len(self._shrunk):
            return None
        here, power = math.log(state.values["scale"]), state.values.get("alpha", self.alpha)
        return lambda t: self.scale_prior.log_density_power(here + t, power)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        grow = math.exp(t)
        precision = np.where(self.free, state.precision, state.precision / grow**2)
        return PriorState(precision, state.values | {"scale": state.values["scale"] * grow})

    def at_scale(self, scale: float) -> BoundBridge:
        fixed = FixedScale(scale)
        return replace(self, scale_prior=fixed, mode_prior=fixed)

    def tempered(self, scale: float, temperature: float) -> BoundBridge:
        """The density at this scale raised to the power 1/temperature."""
        fixed = self.at_scale(scale * temperature ** (1.0 / self.alpha))
        return replace(fixed, flat=self.flat / temperature)

    def concave_penalty(self, beta: Array, scale: float) -> Array:
        """Negative log density of shrunk coefficients, each by itself, up to a constant."""
        return np.abs(beta / scale) ** self.alpha

    def penalty(self, scale: float) -> tuple[Array, Array] | None:
        """Quadratic precision and rate of |beta| of the negative log density, where it is of that form."""
        if self.alpha == 2.0:
            return np.where(self.free, self.flat, 2.0 / scale**2), np.zeros(len(self.free))
        if self.alpha != 1.0:
            return None
        return np.where(self.free, self.flat, 0.0), np.where(self.free, 0.0, 1.0 / scale)


def _log_normaliser(alpha: float, k: int) -> float:
    """Log of 1 over the integral of ``exp(-sum |b_r|^alpha)`` over one coefficient, or over k that sum to zero.

    Over k it is ``sqrt(k)/(2 pi)`` times the integral of the k-th power of the Fourier transform: closed at alpha = 1
    and 2. Between, where nothing that is learned depends on it, k - 1 independent coefficients stand in.
    """
    if k > 1 and alpha == 1.0:
        integral = 0.5 * math.log(k / math.pi) + (k - 1.0) * math.log(2.0)
        return math.lgamma(k) - math.lgamma(k - 0.5) - integral
    return -max(k - 1, 1) * (math.log(2.0) + math.lgamma(1.0 + 1.0 / alpha))
