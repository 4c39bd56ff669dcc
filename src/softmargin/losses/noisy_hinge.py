"""The hinge on a noisy predictor: ``l(y, f) = log E exp(-2 max(1 - y z, 0))`` with z ~ N(f, noise^2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message, Rows
from softmargin.losses._averages import gaussian_average
from softmargin.losses.normal import check_whole_weights, latent_normal, log_cdf, tail_draw
from softmargin.rows.compiled import njit

__all__ = ["NoisyHinge", "check_noise", "two_pieces"]

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
def _derivatives(y: Any, x: Any, s: float, out: Any) -> None:
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            t = y[i, 0] * x[i, k]
            level, inside = two_pieces(t, s)
            density = math.exp(-0.5 * ((1.0 - t) / s) ** 2 - _LOG_ROOT - level) / s
            out[0, i, k], out[1, i, k] = level, 2.0 * y[i, 0] * inside
            out[2, i, k] = 2.0 * density - 4.0 * inside * (1.0 - inside)


@njit(cache=True, nogil=True)
def two_piece_draw(rng: Any, t: float, s: float, inside: float) -> float:
    """``y z`` given the label: a normal above 1, or one shifted by 2 s^2 below, each cut at 1."""
    if rng.random() < inside:
        return 1.0 - s * tail_draw(rng, (1.0 - t) / s - 2.0 * s)
    return 1.0 + s * tail_draw(rng, (t - 1.0) / s)


@njit(cache=True, nogil=True)
def _draw(rng: Any, y: Any, c: Any, f: Any, s: float, b: Any) -> None:
    for i in range(len(y)):
        t, total = y[i] * f[i], 0.0
        inside = two_pieces(t, s)[1]
        for _ in range(int(c[i])):
            total += two_piece_draw(rng, t, s, inside)
        b[i] = y[i] * total / (s * s)


@dataclass(frozen=True)
class NoisyHinge:
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

    def __post_init__(self) -> None:
        check_noise("NoisyHinge", self.noise)

    def _along(self, y: Array, x: Array) -> tuple[Array, Array, Array]:
        """``l``, ``l'`` and ``-l''`` of rows at several predictors each."""
        out = np.empty((3, *x.shape))
        _derivatives(y, x, self.noise, out)
        return out[0], out[1], out[2]

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        return c * self._along(y[:, None], f[:, None])[0][:, 0]

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return c * self._along(y[:, None], f[:, None])[1][:, 0]

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return latent_normal(self, self.noise**2, y, c, f, v)

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        bends = (y, y * (1.0 - 2.0 * self.noise**2))  # where either piece begins to matter
        return gaussian_average(self._along, y, c, f, v, bends, self.noise)

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        check_whole_weights(self, c)
        b = np.empty(len(y))
        _draw(rng, y, c, f, self.noise, b)
        return Rows(c / self.noise**2, b)
