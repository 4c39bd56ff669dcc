"""The one shape every loss answers in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from softmargin.core.array import Array
from softmargin.core.capabilities import Parameters, Part, optional

__all__ = ["AnyMessage", "Loss", "Message", "Pieces", "Rows"]


class Rows(NamedTuple):
    """Row messages: the row contributes ``-w f^2/2 + b f`` to the log density of its linear predictor f."""

    w: Array
    b: Array


class Message(NamedTuple):
    """Row messages together with each row's part of the bound."""

    w: Array
    b: Array
    bound: Array


AnyMessage = Message | Rows  # where the bound does not matter


class Pieces(NamedTuple):
    """A loss as a sum of hinges: ``l(y, f) = -2 sum_k max(start_k - sign_k f, 0)``, one row of the arrays each."""

    start: Array  # (pieces, n)
    sign: Array  # -1 or 1
    width: float  # of predictors over which a kink may be smoothed


class Loss(Part, Parameters):
    """A pseudo log likelihood ``l(y, f)`` times a weight ``c`` per row, and its two Gaussian faces.

    All arrays have one entry per row: ``y`` the response, ``c`` the weight, ``f`` the mean and ``v`` the variance of
    the linear predictor. Its faces are

    - ``loglik(y, c, f)``: ``c l(y, f)`` of each row, and ``score(y, c, f)``: its derivative in f;
    - ``expect(y, c, f, v)``: the message with the latent averaged over its optimal density under f ~ N(f, v), and the
      bound; v = 0 is the E-step of EM;
    - ``gaussian(y, c, f, v)``: exact averages under f ~ N(f, v), ``w = -E l''``, ``b = E l' + w f``, ``bound = E l``;
    - ``draw(rng, y, c, f)``: the message of a draw of the latent given f;
    - ``pieces(y, c)`` where the loss is a sum of hinges;
    - for regression ``log_normalizer(kappa)``, ``noise_cdf(e, kappa)`` and ``log_predictive(e, v, kappa)``.

    A loss leaves out a face that it does not have; engines say which ones they need, and ``offers`` says what is there.
    What a loss *is* has a value here that holds unless the loss says otherwise.

    A loss written as scalar formulas of one row derives from ``softmargin.losses.RowLoss``, which makes the faces.

    Attributes
    ----------
    normalised : bool
        Whether ``exp l`` sums to one over the responses: a genuine likelihood, whose learning rate is 1.
    latent_variance : float
        Variance of the noise whose sign the response is; not a number where there is no such noise.
    whole_weights : bool
        Whether ``draw`` takes a row of weight c as c copies of it, so that weights must be whole numbers.
    margin_slope : float
        k of a loss ``-k max(1 - y f, 0)``, which has a dual problem with a box; 0 for every other loss.
    noise_power : float
        Power with which a noise level enters the weight, ``kappa = level^-noise_power``; 0 without a noise level.
    band : float or None
        Half width of the band in which errors cost nothing, for a loss that has one, which ``with_band`` changes.
    """

    # faces of a row, there only where a loss has them
    loglik: Callable[..., Any]  # (y, c, f) -> c l(y, f)
    score: Callable[..., Any]  # (y, c, f) -> its derivative in f
    expect: Callable[..., Any]  # (y, c, f, v) -> Message
    gaussian: Callable[..., Any]  # (y, c, f, v) -> Message
    draw: Callable[..., Any]  # (rng, y, c, f) -> Rows

    normalised: bool = False
    latent_variance: float = math.nan
    whole_weights: bool = False
    margin_slope: float = 0.0
    noise_power: float = 0.0

    @property
    def band(self) -> float | None:
        return None

    def loglik_along(self, y: Array, c: Array, factors: Any, along: Array, *fixed: Array) -> Any:
        """``loglik`` at each of some multiples of predictors, to which others may be added: one vector per multiple."""
        return [self.loglik(y, c, sum(fixed, g * along)) for g in factors]

    @optional
    def pieces(self, y: Array, c: Array) -> Pieces:
        """The loss as a sum of hinges of slope 2."""

    @optional
    def log_normalizer(self, kappa: Any) -> Any:
        """Of a loss for regression: the log of the integral of ``exp(kappa l(y, f))`` over y."""

    @optional
    def noise_cdf(self, e: Array, kappa: Any) -> Array:
        """The distribution function of ``y - f`` at weights ``kappa``."""

    @optional
    def noise_variance(self, kappa: float) -> float:
        """The variance of ``y - f`` at weight ``kappa``."""

    @optional
    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        """The log density of y at ``e = y - E f`` for f ~ N(E f, v)."""

    @optional
    def with_band(self, band: float) -> Loss:
        """The same loss with another band."""

    @optional
    def hinge(self, label: Any, f: Array, r: int) -> tuple[Array, Array]:
        """Of a loss of class scores: it is an ordinary hinge in one of them; its signs, and where it begins."""
