"""The squared loss: ``l(y, f) = -(y - f)^2 / 2``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from softmargin.core.array import Array
from softmargin.losses.row_loss import RowLoss

__all__ = ["Squared"]


@dataclass(frozen=True)
class Squared(RowLoss):
    """Normal errors: with weight ``c = 1/sigma^2`` the density of a row is ``exp(c l)/sqrt(2 pi/c)``.

    It is Gaussian as it stands, so there is no latent and all messages are ``w = c, b = c y``.
    """

    noise_power = 2.0  # a noise level sigma enters as the weight sigma^-2

    @staticmethod
    def loglik(y: float, c: float, f: float) -> float:
        return -0.5 * c * (y - f) ** 2

    @staticmethod
    def score(y: float, c: float, f: float) -> float:
        return c * (y - f)

    @staticmethod
    def expect(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        return c, c * y, -0.5 * c * ((y - f) ** 2 + v)

    gaussian = expect

    @staticmethod
    def draw(y: float, c: float, f: float) -> tuple[float, float]:
        return c, c * y

    def log_normalizer(self, kappa: Any) -> Any:
        return 0.5 * (math.log(2.0 * math.pi) - np.log(kappa))

    def noise_cdf(self, e: Array, kappa: Any) -> Array:
        return np.asarray(ndtr(e * np.sqrt(kappa)))

    def noise_variance(self, kappa: float) -> float:
        return 1.0 / kappa

    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        total = v + 1.0 / kappa
        return -0.5 * (np.log(2.0 * math.pi * total) + e * e / total)
