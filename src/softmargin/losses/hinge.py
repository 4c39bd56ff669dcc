"""The hinge: ``l(y, f) = -2 max(1 - y f, 0)`` with y in {-1, +1}."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message, Pieces, Rows
from softmargin.losses._fast_normal import LARGEST, density, mills
from softmargin.rows.compiled import njit

__all__ = ["Hinge"]

_SD_FLOOR = 1e-10  # a predictor is never known better than this, which keeps phi(u/s)/s finite
_LATENT_FLOOR = 1e-14


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(y: Any, c: Any, f: Any, v: Any, w: Any, b: Any, bound: Any) -> None:
    for i in range(len(y)):
        u = 1.0 - y[i] * f[i]
        root = math.sqrt(u * u + v[i])
        w[i] = c[i] / root if root > 0.0 else (math.inf if c[i] > 0.0 else 0.0)
        b[i] = y[i] * (w[i] + c[i])
        bound[i] = -c[i] * (u + root)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _gaussian(y: Any, c: Any, f: Any, v: Any, w: Any, b: Any, bound: Any) -> None:
    """With t = m/s standard deviations inside the margin, ``E max(m + s z, 0) = max(m, 0) + s phi(t) (1 - a M(a))``.

    Here a = |t| and M is Mills' ratio; the bracket is near 1/a^2 far out, so up to three digits are lost where the
    density is nothing. Selects and no branches: the loop vectorises.
    """
    for i in range(len(y)):
        m = 1.0 - y[i] * f[i]
        s = max(math.sqrt(v[i]), _SD_FLOOR)
        t = m / s
        near = abs(t) < LARGEST
        a = abs(t) if near else LARGEST
        height, ratio = density(a) if near else 0.0, mills(a)
        tail = height * ratio
        cdf = 1.0 - tail if t > 0.0 else tail
        curvature = 2.0 * c[i] * height / s
        w[i] = curvature
        b[i] = 2.0 * c[i] * cdf * y[i] + curvature * f[i]
        bound[i] = -2.0 * c[i] * (max(m, 0.0) + s * height * (1.0 - a * ratio))


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(y: Any, c: Any, f: Any, normal: Any, uniform: Any, w: Any, b: Any) -> None:
    """Latent lam with 1/lam ~ inverse Gaussian(c/|u|, c^2): Michael, Schucany and Haas, written for lam itself.

    With v = c |u| and lam = lam'/c^2, the two roots of the defining quadratic are B and v^2/B, both without
    cancellation for every v >= 0; v = 0 gives the chi-squared law on one degree of freedom.
    """
    for i in range(len(y)):
        v = c[i] * abs(1.0 - y[i] * f[i])
        half = 0.5 * normal[i] * normal[i]
        large = v + half + math.sqrt(half * (2.0 * v + half))
        small = v * (v / large)
        latent = large if uniform[i] * (large + v) <= large else small  # a select, not a branch: the loop vectorises
        latent = latent if latent > _LATENT_FLOOR else _LATENT_FLOOR
        weight = c[i] * c[i] / latent
        w[i] = weight
        b[i] = y[i] * (weight + c[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _loglik(y: Any, c: Any, f: Any, out: Any) -> None:
    for i in range(len(y)):
        u = 1.0 - y[i] * f[i]
        out[i] = -2.0 * c[i] * (u if u > 0.0 else 0.0)


@dataclass(frozen=True)
class Hinge:
    """Hinge loss with row weights: pseudo-likelihood ``exp(-2 c max(1 - y f, 0))``.

    Augmentation: ``exp(-2 c max(u, 0))`` is the integral over lam > 0 of
    ``c (2 pi lam)^(-1/2) exp(-(u + c lam)^2 / (2 lam))`` with u = 1 - y f, so that given lam the row message is
    ``w = 1/lam, b = y (1/lam + c)``.

    References
    ----------
    Polson and Scott (2011), theorem 1 and corollary 2; Luts and Ormerod (2014), section 2.
    """

    box = 2.0  # the slope of a row in y f is between 0 and this, times its weight, and linear in pieces

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        out = np.empty(len(y))
        _loglik(y, c, f, out)
        return out

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return np.where(y * f < 1.0, 2.0 * c * y, 0.0)

    def pieces(self, y: Array, c: Array) -> Pieces:
        return Pieces(np.ones((1, len(y))), y[None], 1.0)

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        message = Message(np.empty(len(y)), np.empty(len(y)), np.empty(len(y)))
        _expect(y, c, f, v, *message)
        return message

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        message = Message(np.empty(len(y)), np.empty(len(y)), np.empty(len(y)))
        _gaussian(y, c, f, v, *message)
        return message

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        rows = Rows(np.empty(len(y)), np.empty(len(y)))
        _draw(y, c, f, rng.standard_normal(len(y)), rng.random(len(y)), *rows)
        return rows
