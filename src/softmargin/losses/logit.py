"""The logit: ``l(y, f) = -log(1 + exp(-y f))`` with y in {-1, +1}."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from softmargin.core.array import Array
from softmargin.core.loss import Message, Rows
from softmargin.losses._averages import gaussian_average
from softmargin.losses._polya_gamma import polya_gamma

__all__ = ["Logit"]

_STRAIGHT = 40.0  # predictor from which exp(-|f|) is below the rounding of f


def _along(y: Array, x: Array) -> tuple[Array, Array, Array]:
    """``l``, ``l'`` and ``-l''`` of rows at several predictors each."""
    margin = y * x
    small = np.exp(-np.abs(margin))
    total = 1.0 + small
    curvature = small / (total * total)
    wrong = np.where(margin > 0.0, small, 1.0) / total
    return np.minimum(margin, 0.0) - np.log(total), y * wrong, curvature


@dataclass(frozen=True)
class Logit:
    """Logistic loss, a genuine likelihood.

    Augmentation: ``(1 + exp(-y f))^-c = 2^-c exp(c y f/2) E exp(-omega f^2/2)`` with omega ~ Polya-Gamma(c, 0), so
    that given omega the row message is ``w = omega, b = c y/2`` for every weight c > 0.

    References
    ----------
    Polson, Scott and Windle (2013), theorem 1; Jaakkola and Jordan (2000) for ``expect``.
    """

    latent = math.pi**2 / 3.0  # variance of the noise whose sign the response is
    normalised = True  # probabilities of the two responses sum to one: the learning rate is 1

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        return -c * np.logaddexp(0.0, -y * f)

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return c * y * expit(-y * f)

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        xi = np.sqrt(f * f + v)
        safe = np.maximum(xi, 1e-8)
        w = 0.5 * c * np.tanh(0.5 * safe) / safe  # 1/4 at zero
        return Message(w, 0.5 * c * y, c * (0.5 * (y * f - xi) - np.log1p(np.exp(-xi))))

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return gaussian_average(_along, y, c, f, v, (np.zeros(len(f)),), 1.0, straight=_STRAIGHT)

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        return Rows(polya_gamma(rng, c, f), 0.5 * c * y)
