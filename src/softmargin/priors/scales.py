"""Hyperpriors on a scale nu, and the moves they allow.

Each works from two numbers: ``E``, the (expected) sum of squares of the coefficients that share the scale, and
``r``, how many there are. ``tau = nu^-2`` is the precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from softmargin.execution.variates import slice_step

__all__ = ["FixedScale", "HalfCauchy", "InverseGamma", "ScalePrior"]


class ScalePrior(Protocol):
    """What a hyperprior on a scale can do."""

    @property
    def learned(self) -> bool:
        """Whether the scale moves at all."""

    def expect(self, E: float, r: int) -> tuple[float, float]:
        """``E tau`` under the optimal density of tau, and the bound without its ``(r/2) log 2 pi``."""

    def mode(self, E: float, r: int) -> tuple[float, float]:
        """Conditional mode of tau, and the log joint density in tau there, without ``(r/2) log 2 pi``."""

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        """A draw of tau (or one invariant update from ``tau``)."""

    def log_density(self, log_scale: float) -> float:
        """Log density of log nu."""


@dataclass(frozen=True)
class FixedScale:
    """The scale is the given number."""

    scale: float
    learned = False

    def expect(self, E: float, r: int) -> tuple[float, float]:
        tau = self.scale**-2
        return tau, 0.5 * (r * math.log(tau) - tau * E)

    mode = expect

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        return self.scale**-2

    def log_density(self, log_scale: float) -> float:
        return 0.0


@dataclass(frozen=True)
class HalfCauchy:
    """``nu ~ half-Cauchy(scale)``, density proportional to ``1/(1 + nu^2/scale^2)``.

    Written as ``nu^2 | t ~ IG(1/2, 1/t), t ~ IG(1/2, 1/scale^2)`` its mean-field densities have their joint fixed
    point in closed form. The joint mode with the coefficients degenerates at zero, so there is no ``mode``.
    """

    scale: float = 1.0
    learned = True

    def expect(self, E: float, r: int) -> tuple[float, float]:
        shape, q, e = 0.5 * (r + 1), self.scale**-2, 0.5 * E
        # E tau is the positive root of e x^2 + b x - shape q = 0, in the form without cancellation
        b = 1.0 + q * e - shape
        root = math.sqrt(b * b + 4.0 * e * shape * q)
        tau = 2.0 * shape * q / (b + root) if b > 0.0 else (root - b) / (2.0 * e)
        inverse_t = 1.0 / (tau + q)
        bound = -math.log(math.pi) + 0.5 * math.log(q) - shape * math.log(inverse_t + e) + math.lgamma(shape)
        return tau, bound - math.log(tau + q) + tau * inverse_t

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        def log_posterior(log_scale: float) -> float:
            if log_scale < -300.0:
                return -math.inf
            return self.log_density(log_scale) - r * log_scale - 0.5 * E * math.exp(-2.0 * log_scale)

        width = 2.0 / math.sqrt(r + 1.0)
        return math.exp(-2.0 * slice_step(rng, log_posterior, -0.5 * math.log(tau), width=width))

    def log_density(self, log_scale: float) -> float:
        ratio = log_scale - math.log(self.scale)
        # log(2/pi) - log(1 + e^(2 ratio)) + ratio, safe for large ratios
        return math.log(2.0 / math.pi) - abs(ratio) - math.log1p(math.exp(-2.0 * abs(ratio)))


@dataclass(frozen=True)
class InverseGamma:
    """``nu^2 ~ IG(a, b)``, that is ``tau ~ Gamma(a, rate b)``."""

    a: float
    b: float
    learned = True

    def __post_init__(self) -> None:
        if not (self.a > 0 and self.b > 0):
            raise ValueError(f"InverseGamma needs a > 0 and b > 0; got a={self.a}, b={self.b}.")

    def expect(self, E: float, r: int) -> tuple[float, float]:
        shape, rate = self.a + 0.5 * r, self.b + 0.5 * E
        bound = self.a * math.log(self.b) - math.lgamma(self.a) + math.lgamma(shape) - shape * math.log(rate)
        return shape / rate, bound

    def mode(self, E: float, r: int) -> tuple[float, float]:
        power, rate = self.a + 0.5 * r - 1.0, self.b + 0.5 * E
        if power <= 0:
            raise ValueError(f"no mode: a + r/2 must exceed 1 and is {self.a + 0.5 * r}; use a larger a.")
        tau = power / rate
        return tau, self.a * math.log(self.b) - math.lgamma(self.a) + power * math.log(tau) - tau * rate

    def draw(self, rng: np.random.Generator, E: float, r: int, tau: float) -> float:
        return float(rng.gamma(self.a + 0.5 * r) / (self.b + 0.5 * E))

    def log_density(self, log_scale: float) -> float:
        tau = math.exp(-2.0 * log_scale)
        density = self.a * math.log(self.b) - math.lgamma(self.a) - 2.0 * (self.a - 1.0) * log_scale - self.b * tau
        return density + math.log(2.0) - 2.0 * log_scale
