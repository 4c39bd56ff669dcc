"""The check loss of quantile regression: ``l(y, f) = -2 e (q - [e < 0])`` with ``e = y - f``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.losses.epsilon import log_tail
from softmargin.losses.formulas.normal import SD_FLOOR, positive_part
from softmargin.losses.hinge import kink_draw, kink_expect
from softmargin.losses.row_loss import RowLoss

__all__ = ["Check"]


@dataclass(frozen=True)
class Check(RowLoss):
    """Check loss: errors have an asymmetric Laplace law whose quantile at ``quantile`` is zero.

    It is ``-|e| - (2 q - 1) e``, so given the latent of ``exp(-c |e|)``, that of the hinge, the row message is
    ``w = 1/lam, b = y/lam + (2 q - 1) c``. With weight c the density of a row is ``2 c q (1 - q) exp(c l)``.

    Parameters
    ----------
    quantile : float
        Share of responses below f, between 0 and 1; 0.5 is the median.

    References
    ----------
    Koenker and Bassett (1978); Kozumi and Kobayashi (2011), section 2.
    """

    quantile: float = 0.5

    noise_power = 1.0  # a noise level nu enters as the weight 1/nu

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise ValueError(f"quantile must be a number between 0 and 1; got {self.quantile!r}.")

    @staticmethod
    def loglik(y: float, c: float, f: float, quantile: float) -> float:
        return -2.0 * c * max(quantile * (y - f), (quantile - 1.0) * (y - f))

    @staticmethod
    def score(y: float, c: float, f: float, quantile: float) -> float:
        return 2.0 * c * (quantile if y > f else quantile - 1.0)

    @staticmethod
    def expect(y: float, c: float, f: float, v: float, quantile: float) -> tuple[float, float, float]:
        w, size = kink_expect(c, y - f, v)
        lean = (2.0 * quantile - 1.0) * c
        return w, w * y + lean, size - lean * (y - f)

    @staticmethod
    def gaussian(y: float, c: float, f: float, v: float, quantile: float) -> tuple[float, float, float]:
        s = max(math.sqrt(v), SD_FLOOR)
        above, share, density = positive_part(y - f, s)
        below = positive_part(f - y, s)[0]
        w = 2.0 * c * density
        return w, 2.0 * c * (share - 1.0 + quantile) + w * f, -2.0 * c * (quantile * above + (1.0 - quantile) * below)

    @staticmethod
    def draw(y: float, c: float, f: float, normal: float, uniform: float, quantile: float) -> tuple[float, float]:
        w = kink_draw(c, y - f, normal, uniform)
        return w, w * y + (2.0 * quantile - 1.0) * c

    def log_normalizer(self, kappa: Any) -> Any:
        return -np.log(2.0 * self.quantile * (1.0 - self.quantile) * kappa)

    def noise_cdf(self, e: Array, kappa: Any) -> Array:
        q = self.quantile
        below = q * np.exp(2.0 * kappa * (1.0 - q) * np.minimum(e, 0.0))
        return np.asarray(
            np.where(np.asarray(e) < 0.0, below, 1.0 - (1.0 - q) * np.exp(-2.0 * kappa * q * np.maximum(e, 0.0)))
        )

    def noise_variance(self, kappa: float) -> float:
        """That of the two exponential tails, around their common mean."""
        q, above, below = self.quantile, 0.5 / (kappa * self.quantile), 0.5 / (kappa * (1.0 - self.quantile))
        return 2.0 * ((1.0 - q) * above**2 + q * below**2) - ((1.0 - q) * above - q * below) ** 2

    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        """The two exponential tails are averaged apart, in closed form."""
        s = np.maximum(np.sqrt(v), 1e-9 / kappa)
        tails = log_tail(e, s, kappa * self.quantile), log_tail(-e, s, kappa * (1.0 - self.quantile))
        return np.asarray(np.logaddexp(*tails) - self.log_normalizer(kappa))
