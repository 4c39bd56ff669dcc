"""Probabilities of labels from a loss and a normal predictor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erfcx, expit, log_ndtr, ndtr

from softmargin.core.array import Array

__all__ = ["predictive_probability", "pseudo_probability", "sign_probability"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def sign_probability(f: Array, v: Array) -> Array:
    """P(f > 0) for f ~ N(f, v): confidence in the sign, not a class probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p: Array = np.where(v > 0, ndtr(f / np.sqrt(v)), np.where(f > 0, 1.0, np.where(f < 0, 0.0, 0.5)))
    return p


def pseudo_probability(f: Array, v: Array, rate: float) -> Array:
    """``E sigmoid(c [max(1 + f, 0) - max(1 - f, 0)])``, c = 2 rate, under f ~ N(f, v).

    The middle |f| <= 1 by Gauss-Legendre, the two tails by the geometric series of the sigmoid, whose terms are
    Gaussian integrals; both without cancellation.
    """
    c, s = 2.0 * rate, np.sqrt(np.maximum(v, 1e-20))
    # nodes in units of the spread: a difference of predictors would lose digits where it is tiny
    lo, hi = np.maximum((-1.0 - f) / s, -9.0), np.minimum((1.0 - f) / s, 9.0)
    half = np.maximum(0.5 * (hi - lo), 0.0)
    z = 0.5 * (hi + lo)[:, None] + half[:, None] * _NODES
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    middle = half * ((expit(2.0 * c * (f[:, None] + s[:, None] * z)) * density) @ _WEIGHTS)
    tail = _tail if c > 0.2 else _smooth_tail
    upper = ndtr((f - 1.0) / s) - tail(f, s, c)
    p: Array = np.clip(middle + upper + tail(-f, s, c), 0.0, 1.0)
    return p


def predictive_probability(loss: Any, f: Array, v: Array, rate: float) -> Array:
    """``E L(1)/(L(1) + L(-1))`` under f ~ N(f, v) of a smooth loss weighted by ``rate``, by Gauss-Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(96)
    x = (f[:, None] + np.sqrt(v)[:, None] * nodes).ravel()
    c, one = np.full(len(x), rate), np.ones(len(x))
    share = expit(loss.loglik(one, c, x) - loss.loglik(-one, c, x)).reshape(len(f), -1)
    return np.asarray(share @ (weights / weights.sum()))


def _smooth_tail(m: Array, s: Array, c: float) -> Array:
    """The same as ``_tail`` by Gauss-Legendre: for small c the integrand is smooth and the series long."""
    lo = np.clip((1.0 - m) / s, -9.0, 9.0)
    half = 0.5 * (9.0 - lo)
    z = 0.5 * (9.0 + lo)[:, None] + half[:, None] * _NODES
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return half * ((expit(-c * (m[:, None] + s[:, None] * z + 1.0)) * density) @ _WEIGHTS)


def _tail(m: Array, s: Array, c: float) -> Array:
    """``E[ 1/(1 + e^(c (f + 1))) ; f > 1 ]`` for f ~ N(m, s^2), by its alternating series."""
    total = np.zeros_like(m)
    for j in range(1, max(2, math.ceil(37.0 / (2.0 * c))) + 1):
        z = (1.0 - m + j * c * s * s) / s
        with np.errstate(over="ignore", invalid="ignore"):
            near = math.exp(-2.0 * j * c) * np.exp(-0.5 * ((1.0 - m) / s) ** 2) * 0.5 * erfcx(z / math.sqrt(2.0))
            far = np.exp(-j * c * (m + 1.0) + 0.5 * (j * c * s) ** 2 + log_ndtr(-z))
        total += (-1.0) ** (j - 1) * np.where(z > 0, near, far)
    return total
