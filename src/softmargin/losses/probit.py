"""The probit: ``l(y, f) = log Phi(y f)`` with y in {-1, +1}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message, Rows
from softmargin.losses._averages import gaussian_average
from softmargin.losses.normal import check_whole_weights, latent_normal, log_cdf, tail_draw
from softmargin.rows.compiled import njit

__all__ = ["Probit"]


@njit(cache=True, nogil=True)
def _derivatives(y: Any, x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            level, slope, curvature = log_cdf(y[i, 0] * x[i, k])
            out[0, i, k], out[1, i, k], out[2, i, k] = level, y[i, 0] * slope, curvature


def _along(y: Array, x: Array) -> tuple[Array, Array, Array]:
    """``l``, ``l'`` and ``-l''`` of rows at several predictors each."""
    out = np.empty((3, *x.shape))
    _derivatives(y, x, out)
    return out[0], out[1], out[2]


@njit(cache=True, nogil=True)
def _draw(rng: Any, y: Any, c: Any, f: Any, b: Any) -> None:
    for i in range(len(y)):
        total = 0.0
        for _ in range(int(c[i])):
            total += tail_draw(rng, y[i] * f[i])
        b[i] = y[i] * total


@dataclass(frozen=True)
class Probit:
    """Probit loss, a genuine likelihood: the label is the sign of z ~ N(f, 1).

    Given z the row message is ``w = 1, b = z``; z given the label is normal, truncated to the label's side. A row of
    weight c is c copies with a z each, so draws need whole weights; a mixture with one fixed w for a fractional power
    of Phi cannot exist, because such mixtures are entire in f and Phi has complex zeros. The averages take any weight.

    References
    ----------
    Albert and Chib (1993).
    """

    latent = 1.0  # variance of the noise whose sign the response is
    normalised = True  # probabilities of the two responses sum to one: the learning rate is 1

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        return c * _along(y[:, None], f[:, None])[0][:, 0]

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return c * _along(y[:, None], f[:, None])[1][:, 0]

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return latent_normal(self, 1.0, y, c, f, v)

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return gaussian_average(_along, y, c, f, v, (np.zeros(len(f)),), 1.0)

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        check_whole_weights(self, c)
        b = np.empty(len(y))
        _draw(rng, y, c, f, b)
        return Rows(c.astype(float), b)
