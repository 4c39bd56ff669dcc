"""The one shape every loss answers in."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from softmargin.core.array import Array

__all__ = ["Loss", "Message", "Pieces", "Rows"]


class Rows(NamedTuple):
    """Row messages: the row contributes ``-w f^2/2 + b f`` to the log density of its linear predictor f."""

    w: Array
    b: Array


class Message(NamedTuple):
    """Row messages together with each row's part of the bound."""

    w: Array
    b: Array
    bound: Array


class Pieces(NamedTuple):
    """A loss as a sum of hinges: ``l(y, f) = -2 sum_k max(start_k - sign_k f, 0)``, one row of the arrays each."""

    start: Array  # (pieces, n)
    sign: Array  # -1 or 1
    width: float  # of predictors over which a kink may be smoothed


@runtime_checkable
class Loss(Protocol):
    """A pseudo log likelihood ``l(y, f)`` times a weight ``c`` per row, and its two Gaussian faces.

    All arrays have one entry a row: ``y`` the response, ``c`` the weight, ``f`` the mean and ``v`` the variance of
    the linear predictor. A loss leaves out a face that it does not have; engines say which ones they need.

    A loss for regression also has ``log_normalizer(kappa)``, the log of the integral of ``exp(kappa l)`` over y;
    ``noise_cdf(e, kappa)``, the distribution function of ``y - f``; ``log_predictive(e, v, kappa)``, the log density of
    ``y - E f`` for f with the variance v; and ``noise_power``, the power with which a noise level enters the weight,
    ``kappa = level^-noise_power``. One with a band has ``width`` and ``with_width``. A loss that is a sum of hinges
    has ``pieces(y, c)``.
    """

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        """``c l(y, f)``."""

    def score(self, y: Array, c: Array, f: Array) -> Array:
        """Derivative of ``loglik`` in f."""

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        """Latent averaged over its optimal density under f ~ N(f, v); v = 0 is the E-step of EM."""

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        """Exact averages under f ~ N(f, v): ``w = -E l''``, ``b = E l' + w f``, ``bound = E l``."""

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        """A draw of the latent given f."""
