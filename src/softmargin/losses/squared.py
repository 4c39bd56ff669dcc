"""The squared loss: ``l(y, f) = -(y - f)^2 / 2``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from softmargin.core.array import Array
from softmargin.core.loss import Message, Rows

__all__ = ["Squared"]


@dataclass(frozen=True)
class Squared:
    """Normal errors: with weight ``c = 1/sigma^2`` the density of a row is ``exp(c l)/sqrt(2 pi/c)``.

    It is Gaussian as it stands, so there is no latent and all messages are ``w = c, b = c y``.
    """

    noise_power = 2.0  # a noise level sigma enters as the weight sigma^-2

    def log_normalizer(self, kappa: Any) -> Any:
        """``log of the integral of exp(kappa l(y, f))`` over y."""
        return 0.5 * (math.log(2.0 * math.pi) - np.log(kappa))

    def noise_cdf(self, e: Array, kappa: Array) -> Array:
        """Distribution function of y - f at weights ``kappa``."""
        p: Array = ndtr(e * np.sqrt(kappa))
        return p

    def noise_variance(self, kappa: float) -> float:
        """Variance of y - f at weight ``kappa``."""
        return 1.0 / kappa

    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        """Log density of y at ``e = y - E f`` and weight ``kappa``, for f with the variance v."""
        total = v + 1.0 / kappa
        return -0.5 * (np.log(2.0 * math.pi * total) + e * e / total)

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        return -0.5 * c * (y - f) ** 2

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return c * (y - f)

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return Message(c.copy(), c * y, -0.5 * c * ((y - f) ** 2 + v))

    gaussian = expect

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        return Rows(c.copy(), c * y)
