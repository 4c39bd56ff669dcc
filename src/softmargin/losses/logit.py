"""The logit: ``l(y, f) = -log(1 + exp(-y f))`` with y in {-1, +1}."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from softmargin.losses.formulas.polya_gamma import polya_gamma
from softmargin.losses.row_loss import RowLoss
from softmargin.rows.arithmetic import exp_negative, log1p_unit

__all__ = ["Logit"]

_SERIES = 0.1  # predictors below which five terms of the series are exact to rounding


@dataclass(frozen=True)
class Logit(RowLoss):
    """Logistic loss, a genuine likelihood.

    Augmentation: ``(1 + exp(-y f))^-c = 2^-c exp(c y f/2) E exp(-omega f^2/2)`` with omega ~ Polya-Gamma(c, 0), so
    that given omega the row message is ``w = omega, b = c y/2`` for every weight c > 0.

    References
    ----------
    Polson, Scott and Windle (2013), theorem 1; Jaakkola and Jordan (2000) for ``expect``.
    """

    latent_variance = math.pi**2 / 3.0
    normalised = True

    @staticmethod
    def derivatives(y: float, f: float) -> tuple[float, float, float]:
        t = y * f
        small = exp_negative(-abs(t))
        total = 1.0 + small
        wrong = (small if t > 0.0 else 1.0) / total
        return min(t, 0.0) - log1p_unit(small), y * wrong, small / (total * total)

    @staticmethod
    def bends(y: float) -> tuple[tuple[float, ...], float]:
        return (0.0,), 1.0

    @staticmethod
    def expect(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        xi = math.sqrt(f * f + v)
        small, square = exp_negative(-xi), xi * xi
        # tanh(xi/2)/xi; near zero, where the difference loses digits, by its series
        near = 0.5 - square * (1 / 24 - square * (1 / 240 - square * (17 / 40320 - square * (31 / 725760))))
        rate = near if xi < _SERIES else (1.0 - small) / ((1.0 + small) * xi)
        return 0.5 * c * rate, 0.5 * c * y, c * (0.5 * (y * f - xi) - log1p_unit(small))

    @staticmethod
    def draw(rng: Any, y: float, c: float, f: float) -> tuple[float, float]:
        return polya_gamma(rng, c, f), 0.5 * c * y
