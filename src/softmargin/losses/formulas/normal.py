"""The normal law in scalars that are right in the far tails: what several losses average over and draw from."""

from __future__ import annotations

import math
from typing import Any

from softmargin.rows.arithmetic import exp_negative, log1p_unit, mills
from softmargin.rows.compiled import njit
from softmargin.rows.loops import scalar

__all__ = [
    "SD_FLOOR",
    "density_and_mills",
    "latent_normal",
    "log_cdf",
    "log_mills",
    "positive_part",
    "positive_square",
    "tail_draw",
]

SD_FLOOR = 1e-10  # a predictor is never known better than this, which keeps phi(u/s)/s finite
_ROOT = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)
_NOTHING = 38.0  # standard deviations at which the density is below the smallest normal number, and counts as zero
_FAR = 12.0  # beyond this many standard deviations the continued fraction is exact to rounding


@scalar
def density_and_mills(a: float) -> tuple[float, float]:
    """The standard normal density at ``a >= 0`` and Mills' ratio, whose product is the tail ``Phi(-a)``."""
    return _ROOT * exp_negative(-0.5 * a * a), mills(a)


@scalar
def positive_part(m: float, s: float) -> tuple[float, float, float]:
    """``E max(u, 0)`` for u ~ N(m, s^2), and its derivatives in m: ``Phi(m/s)`` and ``phi(m/s)/s``.

    With a = |m|/s and Mills' ratio M the first is ``max(m, 0) + s phi(a) (1 - a M(a))``; the bracket is near 1/a^2 far
    out, so up to three digits are lost where the density is nothing. Selects and no branches: loops vectorise.
    """
    t = m / s
    a = min(abs(t), _NOTHING)
    height, ratio = density_and_mills(a)
    tail = height * ratio
    return max(m, 0.0) + s * height * (1.0 - a * ratio), (1.0 - tail if t > 0.0 else tail), height / s


@scalar
def positive_square(m: float, s: float) -> tuple[float, float, float]:
    """``E max(u, 0)^2`` for u ~ N(m, s^2), ``E max(u, 0)`` and ``P(u > 0)``.

    With a = |m|/s the first is ``s^2 phi(a) ((1 + a^2) M(a) - a)`` for m < 0, and ``m^2 + s^2`` less that for m > 0.
    """
    mean, share, density = positive_part(m, s)
    a = min(abs(m) / s, _NOTHING)
    tail = s * s * (s * density * ((1.0 + a * a) * mills(a) - a))
    return (m * m + s * s - tail if m > 0.0 else tail), mean, share


@njit(cache=True, nogil=True, error_model="numpy")
def log_mills(z: float) -> float:
    """``log`` of the integral over t > 0 of ``exp(z t - t^2/2)``."""
    if z <= 0.0:
        return math.log(mills(-z))
    return 0.5 * z * z + _LOG_ROOT + log_cdf(z)[0]


@njit(cache=True, nogil=True, error_model="numpy")
def log_cdf(x: float) -> tuple[float, float, float]:
    """``log Phi(x)``, its derivative ``r = phi(x)/Phi(x)`` and minus its second derivative ``r (x + r)``."""
    height, tail = density_and_mills(abs(x))
    if x >= 0.0:
        above = height * tail
        ratio = height / (1.0 - above)
        return -log1p_unit(above / (1.0 - above)), ratio, ratio * (x + ratio)
    ratio = 1.0 / tail
    excess = ratio + x
    if x < -_FAR:
        rest = 0.0
        for k in range(24, 1, -1):  # phi/Phi = t + 1/(t + 2/(t + 3/(t + ...))) at t = -x
            rest = k / (rest - x)
        excess = 1.0 / (rest - x)
    return -0.5 * x * x - _LOG_ROOT + math.log(tail), ratio, ratio * excess


@njit(cache=True, nogil=True)
def tail_draw(rng: Any, m: float) -> float:
    """A draw of t > 0 with density proportional to ``exp(-(t - m)^2/2)``, without a difference of large numbers.

    Plain rejection near and above zero; below, an exponential of rate -m accepted with ``exp(-t^2/2)``.
    """
    if m > -0.5:
        while True:
            t = m + rng.standard_normal()
            if t > 0.0:
                return t
    while True:
        t = rng.standard_exponential() / -m
        if rng.random() <= math.exp(-0.5 * t * t):
            return t


@scalar
def latent_normal(
    variance: float, c: float, f: float, v: float, level: float, slope: float
) -> tuple[float, float, float]:
    """Mean-field message of a loss ``exp l(f) = E g(z)``, z ~ N(f, variance), whose latent is z itself.

    The optimal density of z given f ~ N(f, v) is its law at the mean f, so ``w = c/variance``,
    ``b = c E z/variance`` with ``E z = f + variance l'(f)``, and ``bound = c (l(f) - v/(2 variance))``.
    """
    w = c / variance
    return w, w * f + c * slope, c * level - 0.5 * w * v
