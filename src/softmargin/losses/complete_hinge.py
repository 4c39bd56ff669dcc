"""The hinge normalised over both labels, on a noisy predictor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.losses.formulas.normal import latent_normal, log_cdf
from softmargin.losses.noisy_hinge import check_noise, two_piece_draw, two_pieces
from softmargin.losses.row_loss import RowLoss
from softmargin.rows.compiled import njit

__all__ = ["CompleteHinge"]

_RATE = 2.0  # slope of the hinge
_LEAST = 2.0 * math.exp(-_RATE)  # smallest value of A(t) + A(-t), at t = 0
_SERIES = 10  # terms exp(-4 j) of the logistic function beyond the margins
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


@njit(cache=True, nogil=True)
def _likelihood(t: float, s: float) -> tuple[float, float]:
    """``log L`` at ``t = y f`` and its derivative; ``L = E p(z)``, ``z ~ N(t, s^2)``.

    ``p(z) = 1/(1 + exp(-k(z)))`` with ``k = 4 z`` up to the margins and ``2 (z +- 1)`` beyond. Beyond them p is a
    series of exponentials whose averages are closed, between them Gauss-Legendre quadrature.
    """
    # everything relative to the noisy hinge, which is L up to a factor between 1 and e^2/2
    scale = two_pieces(t, s)[0]
    level = math.exp(log_cdf((t - 1.0) / s)[0] - scale)
    slope, sign = 0.0, -1.0
    for j in range(1, _SERIES + 1):
        rate, sign = j * _RATE, -sign
        half = 0.5 * rate * rate * s * s
        above = sign * math.exp(half - rate * (1.0 + t) + log_cdf((t - 1.0) / s - rate * s)[0] - scale)
        below = sign * math.exp(half + rate * (t - 1.0) + log_cdf((-1.0 - t) / s - rate * s)[0] - scale)
        level += below - above
        slope += rate * (below + above)
    # between the margins the integrand is a normal density tilted by at most exp(4 z)
    low, high = max(t - 9.0 * s, -1.0), min(t + 2.0 * _RATE * s * s + 9.0 * s, 1.0)
    if high > low:
        half = 0.5 * (high - low)
        for k in range(len(_NODES)):
            z = low + half * (1.0 + _NODES[k])
            odds = math.exp(-2.0 * _RATE * z)
            density = math.exp(-0.5 * ((z - t) / s) ** 2 - scale) / (s * math.sqrt(2.0 * math.pi))
            mass = half * _WEIGHTS[k] * density / (1.0 + odds)
            level += mass
            slope += 2.0 * _RATE * mass * odds / (1.0 + odds)
    return scale + math.log(level), slope / level


@dataclass(frozen=True)
class CompleteHinge(RowLoss):
    """The hinge made a likelihood: ``P(y | z) = A(y z)/(A(z) + A(-z))`` with ``A(t) = exp(-2 max(1 - t, 0))``.

    z ~ N(f, noise^2) is the latent, with the message ``w = 1/noise^2, b = z/noise^2``. A row of weight c is c copies,
    so draws need whole weights. The loss is not concave in f (the odds steepen at the margin of the wrong side), so
    ``-E l''`` may be negative and there is no ``gaussian``.

    Parameters
    ----------
    noise : float
        Standard deviation of z around f.

    References
    ----------
    Mallick, Ghosh and Ghosh (2005).
    """

    noise: float = 1.0

    normalised = True
    whole_weights = True

    def __post_init__(self) -> None:
        check_noise("CompleteHinge", self.noise)

    @staticmethod
    def loglik(y: float, c: float, f: float, noise: float) -> float:
        return c * _likelihood(y * f, noise)[0]

    @staticmethod
    def score(y: float, c: float, f: float, noise: float) -> float:
        return c * y * _likelihood(y * f, noise)[1]

    @staticmethod
    def expect(y: float, c: float, f: float, v: float, noise: float) -> tuple[float, float, float]:
        level, slope = _likelihood(y * f, noise)
        return latent_normal(noise * noise, c, f, v, level, y * slope)

    @staticmethod
    def draw(rng: Any, y: float, c: float, f: float, noise: float) -> tuple[float, float]:
        """Rejection from the noisy hinge: accepted with ``min(A(z) + A(-z))/(A(z) + A(-z))``."""
        inside, total = two_pieces(y * f, noise)[1], 0.0
        for _ in range(int(c)):
            while True:
                z = two_piece_draw(rng, y * f, noise, inside)
                both = math.exp(-_RATE * max(1.0 - z, 0.0)) + math.exp(-_RATE * max(1.0 + z, 0.0))
                if rng.random() * both <= _LEAST:
                    break
            total += z
        return c / (noise * noise), y * total / (noise * noise)
