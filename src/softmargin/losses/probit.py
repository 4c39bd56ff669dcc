"""The probit: ``l(y, f) = log Phi(y f)`` with y in {-1, +1}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softmargin.losses.formulas.normal import latent_normal, log_cdf, tail_draw
from softmargin.losses.row_loss import RowLoss

__all__ = ["Probit"]


@dataclass(frozen=True)
class Probit(RowLoss):
    """Probit loss, a genuine likelihood: the label is the sign of z ~ N(f, 1).

    Given z the row message is ``w = 1, b = z``; z given the label is normal, truncated to the label's side. A row of
    weight c is c copies with a z each, so draws need whole weights; a mixture with one fixed w for a fractional power
    of Phi cannot exist, because such mixtures are entire in f and Phi has complex zeros. The averages take any weight.

    References
    ----------
    Albert and Chib (1993).
    """

    latent_variance = 1.0
    normalised = True
    whole_weights = True

    @staticmethod
    def derivatives(y: float, f: float) -> tuple[float, float, float]:
        level, slope, curvature = log_cdf(y * f)
        return level, y * slope, curvature

    @staticmethod
    def bends(y: float) -> tuple[tuple[float, ...], float]:
        return (0.0,), 1.0

    @staticmethod
    def expect(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        level, slope, _ = log_cdf(y * f)
        return latent_normal(1.0, c, f, v, level, y * slope)

    @staticmethod
    def draw(rng: Any, y: float, c: float, f: float) -> tuple[float, float]:
        total = 0.0
        for _ in range(int(c)):
            total += tail_draw(rng, y * f)
        return c, y * total
