"""Hyperpriors on a scale nu, and the moves they allow.

Each works from two numbers: ``E``, the (expected) sum of squares of the coefficients that share the scale, and
``r``, how many there are. ``tau = nu^-2`` is the precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.capabilities import Parameters, Part, optional
from softmargin.rows.compiled import njit
from softmargin.rows.variates import log_concave

__all__ = ["FixedScale", "HalfCauchy", "HalfT", "InverseGamma", "ScalePrior", "check_scale"]

_LEAST = 1e-290  # energies and counts of nothing


def check_scale(owner: str, scale: Any, intercept_scale: Any) -> None:
    """Refuse what is neither a positive number nor the word "learn"."""
    learned = isinstance(scale, str) and scale == "learn"
    if not learned and not (isinstance(scale, Real) and 1e-100 < float(scale) < 1e100):
        many = f"; for one per column use Scaled({owner}(scale=1.0), by=[...])" if np.ndim(scale) == 1 else ""
        raise ValueError(f"{owner} scale must be a positive number or 'learn'; got {scale!r}{many}.")
    if not (isinstance(intercept_scale, Real) and 1e-100 < float(intercept_scale) < 1e100):
        raise ValueError(f"{owner} intercept_scale must be a positive number; got {intercept_scale!r}.")


class ScalePrior(Part, Parameters, ABC):
    """What a hyperprior on a scale can do.

    The plain methods are for normal coefficients. Those ending in ``power`` are for ``rho = nu^-kappa`` whose
    likelihood is ``rho^m exp(-rho e)``, as exponential-power coefficients give with energy e.
    """

    learned: bool = True  # whether the scale moves at all

    @property
    def first(self) -> float:
        """Where it starts."""
        return 1.0

    @abstractmethod
    def expect(self, E: float, r: float) -> tuple[float, float]:
        """``E tau`` under the optimal density of tau, and the bound without its ``(r/2) log 2 pi``."""

    @optional
    def mode(self, E: float, r: float) -> tuple[float, float]:
        """Conditional mode of tau, and the log joint density in tau there, without ``(r/2) log 2 pi``."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        """A draw of tau (or one invariant update from ``tau``)."""

    @abstractmethod
    def log_density(self, log_scale: float) -> float:
        """Log density of log nu."""

    def log_densities(self, log_scales: Array) -> Array:
        """The same at many points."""
        return np.array([self.log_density(each) for each in log_scales.tolist()])

    @abstractmethod
    def expect_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        """``E rho`` and the log evidence ``log E[rho^m exp(-rho e)]`` under the hyperprior."""

    @optional
    def mode_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        """Mode of rho, and the log joint density in rho there."""

    @abstractmethod
    def draw_power(self, rng: np.random.Generator, e: float, m: float, kappa: float, scale: float) -> float:
        """A draw of nu (or one invariant update from ``scale``)."""

    @abstractmethod
    def log_density_power(self, log_scale: float, kappa: float) -> float:
        """Log density of log nu where the hyperprior refers to ``nu^-kappa``."""


@dataclass(frozen=True)
class FixedScale(ScalePrior):
    """The scale is the given number."""

    scale: float
    learned = False

    @property
    def first(self) -> float:
        return self.scale

    def expect(self, E: float, r: float) -> tuple[float, float]:
        tau = self.scale**-2
        return tau, 0.5 * (r * math.log(tau) - tau * E)

    mode = expect

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        return self.scale**-2

    def log_density(self, log_scale: float) -> float:
        return 0.0

    def expect_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        log_rho = -kappa * math.log(self.scale)
        return math.exp(log_rho), m * log_rho - math.exp(log_rho) * e

    mode_power = expect_power

    def draw_power(self, rng: np.random.Generator, e: float, m: float, kappa: float, scale: float) -> float:
        return self.scale

    def log_density_power(self, log_scale: float, kappa: float) -> float:
        return 0.0


def _log1p_exp(x: float) -> float:
    """``log(1 + e^x)`` without overflow."""
    return (x if x > 0.0 else 0.0) + math.log1p(math.exp(-abs(x)))


@njit(cache=True, nogil=True)
def _mode(e: float, m: float, kappa: float, prior: float, tail: float, df: float) -> float:
    """Mode of ``rho^m exp(-rho e)`` times a half-t in log nu: between those of both, the half-t's at ``prior``."""
    l, half = (math.log(e) - math.log(m)) / kappa, 0.5 * (df + 1.0)
    low, high = min(l, prior), max(l, prior)
    for _ in range(200):
        power, turn = kappa * e * math.exp(min(-kappa * l, 600.0)), math.tanh(l - tail)
        slope = -kappa * m + power + 1.0 - half * (1.0 + turn)
        low, high = (l, high) if slope > 0.0 else (low, l)
        before, l = l, l + slope / (kappa * power + half * (1.0 - turn * turn) + 1e-250)
        if not low <= l <= high:
            l = 0.5 * (low + high)
        if abs(l - before) < 1e-8:
            break
    return l


@dataclass(frozen=True)
class HalfT(ScalePrior):
    """``nu`` half-t with ``df`` degrees of freedom, density proportional to ``(1 + nu^2/(df scale^2))^(-(df + 1)/2)``.

    Written as ``nu^2 | t ~ IG(df/2, df/t), t ~ IG(1/2, 1/scale^2)`` its mean-field densities have their joint fixed
    point in closed form. The joint mode with the coefficients degenerates at zero, so there is no ``mode``.
    """

    scale: float = 1.0
    df: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"{type(self).__name__} needs a positive scale; got {self.scale!r}.")
        if not 0 < self.df < math.inf:
            raise ValueError(f"{type(self).__name__} needs positive degrees of freedom; got {self.df!r}.")

    @cached_property
    def _constant(self) -> float:
        """Logarithm of the density of log nu where it crosses its scale, without the part that varies."""
        own = math.lgamma(0.5 * (self.df + 1.0)) - math.lgamma(0.5 * self.df)
        return math.log(2.0) + own - 0.5 * math.log(self.df * math.pi)

    @cached_property
    def _own_bound(self) -> float:
        """The part of the mean-field bound that the coefficients do not enter."""
        df, own = self.df, math.lgamma(0.5 * (self.df + 1.0)) - math.lgamma(0.5 * self.df) - math.lgamma(0.5)
        return own + 0.5 * df * math.log(df) - math.log(self.scale)

    @cached_property
    def _tail(self) -> float:
        """The log nu around which its tail begins."""
        return math.log(self.scale) + 0.5 * math.log(self.df)

    def expect(self, E: float, r: float) -> tuple[float, float]:
        df, q, e = self.df, self.scale**-2, max(0.5 * E, 1e-300)
        shape, other = 0.5 * (r + df), 0.5 * (df + 1.0)
        # E tau is the positive root of df e x^2 + b x - shape q = 0, in the form without cancellation
        b = df * (other - shape) + q * e
        root = math.hypot(b, 2.0 * math.sqrt(df * e * shape * q))  # b^2 may be too large a number
        tau = 2.0 * shape * q / (b + root) if b > 0.0 else (root - b) / (2.0 * df * e)
        inverse_t = other / (df * tau + q)
        bound = self._own_bound + math.lgamma(shape) - shape * math.log(df * inverse_t + e)
        return tau, bound - other * math.log(df * tau + q) + df * tau * inverse_t

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        return self._drawn(rng, 0.5 * E, 0.5 * r, 2.0) ** -2

    def log_density(self, log_scale: float) -> float:
        ratio = log_scale - math.log(self.scale)
        return self._constant + ratio - 0.5 * (self.df + 1.0) * _log1p_exp(2.0 * (log_scale - self._tail))

    def log_densities(self, log_scales: Array) -> Array:
        ratio = log_scales - math.log(self.scale)
        return self._constant + ratio - 0.5 * (self.df + 1.0) * np.logaddexp(0.0, 2.0 * ratio - math.log(self.df))

    def expect_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        """One-dimensional quadrature over log nu; the integrand is log-concave."""
        if not math.isfinite(e):
            raise FloatingPointError("the energy of the coefficients is not a finite number")
        l, prior = self._mode(e, m, kappa), math.log(self.scale) + 0.5 * math.log(self.df)
        curvature = kappa * kappa * e * math.exp(-kappa * l) + self._bend(l - prior)
        sd = 1.0 / math.sqrt(curvature)
        # to the right the integrand decays like exp(-(kappa m - 1) l) up to the prior's scale, then faster
        fast = max(l + 10.0 * sd if l > prior else l, prior) + 45.0 / (kappa * m + self.df)
        slow = l + max(10.0 * sd, 45.0 / (kappa * m - 1.0)) if kappa * m > 1.0 else math.inf
        high = min(fast, max(slow, l + 10.0 * sd))
        low = max(l - 10.0 * sd, (math.log(max(e, 1e-290)) - math.log(m + 750.0)) / kappa)
        spacing = min(0.125 * sd, 0.1 / max(kappa, 1.0))  # both edges of a plateau are this sharp
        grid = np.linspace(low, high, min(max(161, int((high - low) / spacing)), 8001))
        step = grid[1] - grid[0]
        rho = np.exp(-kappa * grid)
        values = self.log_densities(grid) - kappa * m * grid - rho * e
        top = float(values.max())
        weight = np.exp(values - top)
        total = float(weight.sum())
        return float(weight @ rho) / total, top + math.log(total * step)

    def _bend(self, distance: float) -> float:
        """Minus the second derivative of the log density of log nu, at this distance from where its tail begins."""
        return 0.5 * (self.df + 1.0) / math.cosh(min(abs(distance), 300.0)) ** 2

    def _mode(self, e: float, m: float, kappa: float) -> float:
        """Mode of ``-kappa m l - e exp(-kappa l) + log_density(l)``."""
        return float(_mode(max(e, _LEAST), max(m, _LEAST), kappa, math.log(self.scale), self._tail, self.df))

    def draw_power(self, rng: np.random.Generator, e: float, m: float, kappa: float, scale: float) -> float:
        return self._drawn(rng, e, m, kappa)

    def _drawn(self, rng: np.random.Generator, e: float, m: float, kappa: float) -> float:
        """An exact draw: an update from a scale far too small for its coefficients would go anywhere."""
        if not math.isfinite(e):
            raise FloatingPointError("the energy of the coefficients is not a finite number")
        e, tail, half, power = max(e, _LEAST), self._tail, 0.5 * (self.df + 1.0), 1.0 - kappa * m
        if kappa * m >= max(2.0, 2.0 * half / kappa):
            return math.exp(self._by_tangent(rng, e, m, kappa))

        def log_posterior(l: float) -> float:
            return power * l - half * _log1p_exp(2.0 * (l - tail)) - e * math.exp(min(-kappa * l, 700.0))

        width = 2.0 / (kappa * math.sqrt(m) + 1.0)
        return math.exp(log_concave(rng, log_posterior, self._mode(e, m, kappa), width=width))

    def _by_tangent(self, rng: np.random.Generator, e: float, m: float, kappa: float) -> float:
        """A draw of log nu by rejection, where the coefficients say more about it than the hyperprior.

        Without the hyperprior ``nu^-kappa`` is a gamma variable. The log density of log nu is concave, so its tangent
        at a point is above it: the tangent changes the shape of the gamma variable, the rest is rejection.
        """
        tail, half, log_e = self._tail, 0.5 * (self.df + 1.0), math.log(e)
        at = (log_e - math.log(m)) / kappa
        top, slope = _log1p_exp(2.0 * (at - tail)), 1.0 + math.tanh(at - tail)
        shape = m - (1.0 - half * slope) / kappa
        while True:
            l = (log_e - math.log(max(rng.standard_gamma(shape), _LEAST))) / kappa
            if half * (_log1p_exp(2.0 * (l - tail)) - top - slope * (l - at)) <= rng.standard_exponential():
                return l

    def log_density_power(self, log_scale: float, kappa: float) -> float:
        return self.log_density(log_scale)


@dataclass(frozen=True)
class HalfCauchy(HalfT):
    """``nu ~ half-Cauchy(scale)``, density proportional to ``1/(1 + nu^2/scale^2)``: the half-t with one degree."""

    df: float = field(default=1.0, init=False, repr=False)


@dataclass(frozen=True)
class InverseGamma(ScalePrior):
    """``nu^2 ~ IG(a, b)``, that is ``tau ~ Gamma(a, rate b)``."""

    a: float
    b: float

    def __post_init__(self) -> None:
        if not (self.a > 0 and self.b > 0):
            raise ValueError(f"InverseGamma needs a > 0 and b > 0; got a={self.a}, b={self.b}.")

    def expect(self, E: float, r: float) -> tuple[float, float]:
        return self.expect_power(0.5 * E, 0.5 * r, 2.0)

    def mode(self, E: float, r: float) -> tuple[float, float]:
        power, rate = self.a + 0.5 * r - 1.0, self.b + 0.5 * E
        if power <= 0:
            raise ValueError(f"no mode: a + r/2 must exceed 1 and is {self.a + 0.5 * r}; use a larger a.")
        tau = power / rate
        return tau, self.a * math.log(self.b) - math.lgamma(self.a) + power * math.log(tau) - tau * rate

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        return float(rng.gamma(self.a + 0.5 * r) / (self.b + 0.5 * E))

    def log_density(self, log_scale: float) -> float:
        return self.log_density_power(log_scale, 2.0)

    def expect_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        shape, rate = self.a + m, self.b + e
        evidence = self.a * math.log(self.b) - math.lgamma(self.a) + math.lgamma(shape) - shape * math.log(rate)
        return shape / rate, evidence

    def mode_power(self, e: float, m: float, kappa: float) -> tuple[float, float]:
        return self.mode(2.0 * e, 2.0 * m)

    def draw_power(self, rng: np.random.Generator, e: float, m: float, kappa: float, scale: float) -> float:
        return float((rng.gamma(self.a + m) / (self.b + e)) ** (-1.0 / kappa))

    def log_density_power(self, log_scale: float, kappa: float) -> float:
        log_rho = -kappa * log_scale
        density = self.a * math.log(self.b) - math.lgamma(self.a) + (self.a - 1.0) * log_rho
        return density - self.b * math.exp(log_rho) + math.log(kappa) + log_rho
