"""The hinge: ``l(y, f) = -2 max(1 - y f, 0)`` with y in {-1, +1}."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Pieces
from softmargin.losses.formulas.normal import SD_FLOOR, positive_part
from softmargin.losses.row_loss import RowLoss
from softmargin.rows.loops import scalar

__all__ = ["Hinge", "kink_draw", "kink_expect"]

_LATENT_FLOOR = 1e-14


@scalar
def kink_expect(c: float, u: float, v: float) -> tuple[float, float]:
    """``E 1/lam`` and ``-E c |u|`` at the optimal density of the latent of ``exp(-c |u|)``, u with variance v."""
    root = math.sqrt(u * u + v)
    return c / root if root > 0.0 else (math.inf if c > 0.0 else 0.0), -c * root


@scalar
def kink_draw(c: float, u: float, normal: float, uniform: float) -> float:
    """A draw of 1/lam ~ inverse Gaussian(c/|u|, c^2): Michael, Schucany and Haas, written for lam itself.

    With v = c |u| and lam = lam'/c^2, the two roots of the defining quadratic are B and v^2/B, both without
    cancellation for every v >= 0; v = 0 gives the chi-squared law on one degree of freedom.
    """
    v = c * abs(u)
    half = 0.5 * normal * normal
    large = v + half + math.sqrt(half * (2.0 * v + half))
    small = v * (v / large)
    latent = large if uniform * (large + v) <= large else small  # a select, not a branch: the loop vectorises
    return c * c / (latent if latent > _LATENT_FLOOR else _LATENT_FLOOR)


@dataclass(frozen=True)
class Hinge(RowLoss):
    """Hinge loss with row weights: pseudo-likelihood ``exp(-2 c max(1 - y f, 0))``.

    Augmentation: ``exp(-2 c max(u, 0))`` is the integral over lam > 0 of
    ``c (2 pi lam)^(-1/2) exp(-(u + c lam)^2 / (2 lam))`` with u = 1 - y f, so that given lam the row message is
    ``w = 1/lam, b = y (1/lam + c)``.

    References
    ----------
    Polson and Scott (2011), theorem 1 and corollary 2; Luts and Ormerod (2014), section 2.
    """

    margin_slope = 2.0

    @staticmethod
    def loglik(y: float, c: float, f: float) -> float:
        return -2.0 * c * max(1.0 - y * f, 0.0)

    @staticmethod
    def score(y: float, c: float, f: float) -> float:
        return 2.0 * c * y if y * f < 1.0 else 0.0

    @staticmethod
    def expect(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        u = 1.0 - y * f
        w, size = kink_expect(c, u, v)
        return w, y * (w + c), size - c * u

    @staticmethod
    def gaussian(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        mean, share, density = positive_part(1.0 - y * f, max(math.sqrt(v), SD_FLOOR))
        w = 2.0 * c * density
        return w, 2.0 * c * share * y + w * f, -2.0 * c * mean

    @staticmethod
    def draw(y: float, c: float, f: float, normal: float, uniform: float) -> tuple[float, float]:
        w = kink_draw(c, 1.0 - y * f, normal, uniform)
        return w, y * (w + c)

    def pieces(self, y: Array, c: Array) -> Pieces:
        return Pieces(np.ones((1, len(y))), y[None], 1.0)
