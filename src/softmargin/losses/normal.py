"""Scalars of the normal law that are right in the far tails, and the face of losses with a normal latent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message
from softmargin.rows.compiled import njit

__all__ = ["check_whole_weights", "latent_normal", "log_cdf", "tail_draw"]

_SQRT_HALF = math.sqrt(0.5)
_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)
_COPIES = 1e6  # of rows at most where weights are drawn as copies: more take seconds a sweep and gigabytes
_FAR = 12.0  # beyond this many standard deviations the continued fraction is exact to rounding


@njit(cache=True, nogil=True, error_model="numpy")
def log_cdf(x: float) -> tuple[float, float, float]:
    """``log Phi(x)``, its derivative ``r = phi(x)/Phi(x)`` and minus its second derivative ``r (x + r)``."""
    if x > -_FAR:
        cdf = 0.5 * math.erfc(-x * _SQRT_HALF)
        ratio = math.exp(-0.5 * x * x - _LOG_ROOT) / cdf
        level = math.log(cdf) if x < 0.0 else math.log1p(-0.5 * math.erfc(x * _SQRT_HALF))
        return level, ratio, ratio * (x + ratio)
    t, rest = -x, 0.0
    for k in range(24, 1, -1):  # phi/Phi = t + 1/(t + 2/(t + 3/(t + ...)))
        rest = k / (t + rest)
    excess = 1.0 / (t + rest)
    ratio = t + excess
    return -0.5 * x * x - _LOG_ROOT - math.log(ratio), ratio, ratio * excess


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


def latent_normal(loss: Any, variance: float, y: Array, c: Array, f: Array, v: Array) -> Message:
    """Mean-field message of a loss ``exp l(f) = E g(z)``, z ~ N(f, variance), whose latent is z itself.

    The optimal density of z given f ~ N(f, v) is its law at the mean f, so ``w = c/variance``,
    ``b = c E z/variance`` with ``E z = f + variance l'(f)``, and ``bound = c (l(f) - v/(2 variance))``.
    """
    w = c / variance
    return Message(w, w * f + loss.score(y, c, f), loss.loglik(y, c, f) - 0.5 * w * v)


def check_whole_weights(loss: Any, c: Array) -> None:
    """Refuse fractional weights, and too heavy ones, where a row of weight c is drawn as c copies of it."""
    if not (c == np.floor(c)).all():
        bad = float(c[c != np.floor(c)][0])
        raise ValueError(
            f"{type(loss).__name__} draws a row of weight c as c copies, so weights must be whole numbers and one is "
            f"{bad:g}; use whole weights, the hinge or logit loss, or an inference without draws."
        )
    total = float(c.sum())
    if total > _COPIES:
        raise ValueError(
            f"{type(loss).__name__} draws a row of weight c as c copies, at most {_COPIES:.0e} in all, and the weights "
            f"sum to {total:.3g}; use smaller weights, the hinge or logit loss, or an inference without draws."
        )
