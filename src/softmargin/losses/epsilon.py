"""The epsilon-insensitive loss: ``l(y, f) = -2 max(|y - f| - epsilon, 0)``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr

from softmargin.core.array import Array
from softmargin.core.loss import Pieces
from softmargin.losses.formulas.normal import SD_FLOOR, positive_part
from softmargin.losses.hinge import kink_draw, kink_expect
from softmargin.losses.row_loss import RowLoss

__all__ = ["EpsilonInsensitive", "log_tail"]


@dataclass(frozen=True)
class EpsilonInsensitive(RowLoss):
    """Epsilon-insensitive loss: two hinges, one on either side of the response, each with its own latent.

    With weight ``c`` the density of a row is ``exp(c l)/(2 epsilon + 1/c)``: flat within epsilon of f, exponential of
    rate 2c beyond. ``epsilon = 0`` gives Laplace errors and the least absolute deviations.

    Parameters
    ----------
    epsilon : float
        Half width of the band in which errors cost nothing.

    References
    ----------
    Polson and Scott (2011), section 2.2.
    """

    epsilon: float = 0.1

    noise_power = 1.0  # a noise level nu enters as the weight 1/nu

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon must be a number of at least 0; got {self.epsilon!r}.")

    @staticmethod
    def loglik(y: float, c: float, f: float, epsilon: float) -> float:
        return -2.0 * c * max(abs(y - f) - epsilon, 0.0)

    @staticmethod
    def score(y: float, c: float, f: float, epsilon: float) -> float:
        side = 2.0 * c if y > f else -2.0 * c
        return side if abs(y - f) > epsilon else 0.0

    @staticmethod
    def expect(y: float, c: float, f: float, v: float, epsilon: float) -> tuple[float, float, float]:
        below, above = y - epsilon - f, f - y - epsilon
        w, size = kink_expect(c, below, v)
        w2, size2 = kink_expect(c, above, v)
        # the hinges' ends, c and -c, cancel in b; each pulls to its edge of the band
        return w + w2, w * (y - epsilon) + w2 * (y + epsilon), size - c * below + size2 - c * above

    @staticmethod
    def gaussian(y: float, c: float, f: float, v: float, epsilon: float) -> tuple[float, float, float]:
        s = max(math.sqrt(v), SD_FLOOR)
        mean, share, density = positive_part(y - epsilon - f, s)
        mean2, share2, density2 = positive_part(f - y - epsilon, s)
        w = 2.0 * c * (density + density2)
        return w, 2.0 * c * (share - share2) + w * f, -2.0 * c * (mean + mean2)

    @staticmethod
    def draw(
        y: float, c: float, f: float, normal: float, uniform: float, normal2: float, uniform2: float, epsilon: float
    ) -> tuple[float, float]:
        w = kink_draw(c, y - epsilon - f, normal, uniform)
        w2 = kink_draw(c, f - y - epsilon, normal2, uniform2)
        return w + w2, w * (y - epsilon) + w2 * (y + epsilon)

    def pieces(self, y: Array, c: Array) -> Pieces:
        one = np.ones(len(y))
        start = np.stack((y - self.epsilon, -y - self.epsilon))
        return Pieces(start, np.stack((one, -one)), self.epsilon + 1.0 / float(c.mean()))

    @property
    def band(self) -> float:
        return self.epsilon

    def with_band(self, band: float) -> EpsilonInsensitive:
        return EpsilonInsensitive(band)

    def log_normalizer(self, kappa: Any) -> Any:
        return np.log(2.0 * self.epsilon + 1.0 / kappa)

    def noise_cdf(self, e: Array, kappa: Any) -> Array:
        total, size = 2.0 * self.epsilon + 1.0 / kappa, np.abs(e)
        inside = np.minimum(size, self.epsilon) / total
        beyond = 0.5 / kappa / total * -np.expm1(-2.0 * kappa * np.maximum(size - self.epsilon, 0.0))
        return np.asarray(0.5 + np.sign(e) * (inside + beyond))

    def noise_variance(self, kappa: float) -> float:
        """That of the flat part and of the two tails."""
        band, tail = self.epsilon, 1.0 / kappa
        return (2.0 * band**3 / 3.0 + tail * (band**2 + tail * (band + 0.5 * tail))) / (2.0 * band + tail)

    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        """The flat part of the density and its two exponential tails are averaged apart, in closed form."""
        total = 2.0 * self.epsilon + 1.0 / kappa
        s, size = np.maximum(np.sqrt(v), 1e-9 * total), np.abs(e)
        upper, lower = log_ndtr((self.epsilon - size) / s), log_ndtr((-self.epsilon - size) / s)
        with np.errstate(divide="ignore"):  # a band of zero has no flat part
            flat = upper + np.log(-np.expm1(lower - upper))
        tails = np.logaddexp(log_tail(size - self.epsilon, s, kappa), log_tail(-size - self.epsilon, s, kappa))
        return np.asarray(np.logaddexp(flat, tails) - np.log(total))


def log_tail(u: Array, s: Array, kappa: float) -> Array:
    """Log of ``E exp(-2 kappa x) 1{x > 0}`` for x ~ N(u, s^2), without cancellation on either side."""
    x = math.sqrt(2.0) * kappa * s - u / (math.sqrt(2.0) * s)
    far = np.log(0.5 * erfcx(np.maximum(x, 0.0))) - 0.5 * (u / s) ** 2
    near = log_ndtr(-math.sqrt(2.0) * x) - 2.0 * kappa * (u - kappa * s * s)
    return np.where(x > 0.0, far, near)
