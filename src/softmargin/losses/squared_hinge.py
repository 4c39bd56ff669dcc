"""The squared hinge: ``l(y, f) = -max(1 - y f, 0)^2`` with y in {-1, +1}."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softmargin.losses.formulas.normal import SD_FLOOR, positive_square
from softmargin.losses.row_loss import RowLoss

__all__ = ["SquaredHinge"]


@dataclass(frozen=True)
class SquaredHinge(RowLoss):
    """Squared hinge with row weights: pseudo-likelihood ``exp(-c max(1 - y f, 0)^2)``.

    With u = 1 - y f, ``max(u, 0)^2`` is the least value of ``(u + lam)^2`` over lam >= 0, so that given lam the row
    message is ``w = 2 c, b = 2 c y (1 + lam)``; under f ~ N(f, v) the best lam is ``max(-E u, 0)``. There is no
    ``draw``: components of a mixture of normals in u would all need a weight of at least 2 c, for the tail on one
    side, and such a mixture that is constant on the other is not known. Draws are made by "hmc", from the score.

    References
    ----------
    Chang, Hsieh and Lin (2008), Coordinate descent method for large-scale L2-loss linear support vector machines.
    """

    @staticmethod
    def loglik(y: float, c: float, f: float) -> float:
        return -c * max(1.0 - y * f, 0.0) ** 2

    @staticmethod
    def score(y: float, c: float, f: float) -> float:
        return 2.0 * c * y * max(1.0 - y * f, 0.0)

    @staticmethod
    def expect(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        u = 1.0 - y * f
        return 2.0 * c, 2.0 * c * y * (1.0 + max(-u, 0.0)), -c * (max(u, 0.0) ** 2 + v)

    @staticmethod
    def gaussian(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        square, mean, share = positive_square(1.0 - y * f, max(math.sqrt(v), SD_FLOOR))
        w = 2.0 * c * share
        return w, 2.0 * c * mean * y + w * f, -c * square
