"""The hinge on a noisy predictor: ``l(y, f) = log E exp(-2 max(1 - y z, 0))`` with z ~ N(f, noise^2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.losses.formulas.normal import latent_normal, log_cdf, tail_draw
from softmargin.losses.row_loss import RowLoss
from softmargin.rows.compiled import njit

__all__ = ["NoisyHinge", "check_noise", "two_piece_draw", "two_pieces"]

_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)


def check_noise(owner: str, noise: float) -> None:
    """Refuse what is no standard deviation."""
    if not 0.0 < noise < np.inf:
        raise ValueError(f"{owner} noise must be a positive number; got {noise!r}.")


@njit(cache=True, nogil=True)
def two_pieces(t: float, s: float) -> tuple[float, float]:
    """``log L`` at ``t = y f`` and the share that z inside the margin has in it.

    ``L = Phi((t - 1)/s) + exp(-2 (1 - t) + 2 s^2) Phi((1 - t - 2 s^2)/s)``.
    """
    above = log_cdf((t - 1.0) / s)[0]
    below = 2.0 * (t - 1.0 + s * s) + log_cdf((1.0 - t) / s - 2.0 * s)[0]
    top = max(above, below)
    total = top + math.log(math.exp(above - top) + math.exp(below - top))
    return total, math.exp(below - total)


@njit(cache=True, nogil=True)
def two_piece_draw(rng: Any, t: float, s: float, inside: float) -> float:
    """``y z`` given the label: a normal above 1, or one shifted by 2 s^2 below, each cut at 1."""
    if rng.random() < inside:
        return 1.0 - s * tail_draw(rng, (1.0 - t) / s - 2.0 * s)
    return 1.0 + s * tail_draw(rng, (t - 1.0) / s)


@dataclass(frozen=True)
class NoisyHinge(RowLoss):
    """Hinge with a noisy predictor, the Bayesian support vector machine of Mallick and others.

    Given z the row message is ``w = 1/noise^2, b = z/noise^2``. A row of weight c is c copies with a z each, so draws
    need whole weights.

    Parameters
    ----------
    noise : float
        Standard deviation of z around f; zero would be the hinge itself.

    References
    ----------
    Mallick, Ghosh and Ghosh (2005); Polson and Scott (2011), section 2.2.
    """

    noise: float = 1.0

    whole_weights = True

    def __post_init__(self) -> None:
        check_noise("NoisyHinge", self.noise)

    @staticmethod
    def derivatives(y: float, f: float, noise: float) -> tuple[float, float, float]:
        t = y * f
        level, inside = two_pieces(t, noise)
        density = math.exp(-0.5 * ((1.0 - t) / noise) ** 2 - _LOG_ROOT - level) / noise
        return level, 2.0 * y * inside, 2.0 * density - 4.0 * inside * (1.0 - inside)

    @staticmethod
    def bends(y: float, noise: float) -> tuple[tuple[float, ...], float]:
        return (y, y * (1.0 - 2.0 * noise * noise)), noise  # where either piece begins to matter

    @staticmethod
    def expect(y: float, c: float, f: float, v: float, noise: float) -> tuple[float, float, float]:
        level, inside = two_pieces(y * f, noise)
        return latent_normal(noise * noise, c, f, v, level, 2.0 * y * inside)

    @staticmethod
    def draw(rng: Any, y: float, c: float, f: float, noise: float) -> tuple[float, float]:
        inside, total = two_pieces(y * f, noise)[1], 0.0
        for _ in range(int(c)):
            total += two_piece_draw(rng, y * f, noise, inside)
        return c / (noise * noise), y * total / (noise * noise)
