"""The epsilon-insensitive loss: ``l(y, f) = -2 max(|y - f| - epsilon, 0)``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr

from softmargin.core.array import Array
from softmargin.core.loss import Message, Pieces, Rows
from softmargin.losses.hinge import Hinge

__all__ = ["EpsilonInsensitive"]

_HINGE = Hinge()


@dataclass(frozen=True)
class EpsilonInsensitive:
    """Epsilon-insensitive loss: two hinges, one on either side of the response, each with its own latent.

    With weight ``c`` the density of a row is ``exp(c l)/(2 epsilon + 1/c)``: flat within epsilon of f, exponential of
    rate 2c beyond. ``epsilon = 0`` gives Laplace errors and the least absolute deviations.

    Parameters
    ----------
    epsilon : float
        Half width of the band in which errors cost nothing.

    References
    ----------
    Polson and Scott (2011), section 2.2.
    """

    epsilon: float = 0.1

    noise_power = 1.0  # a noise level nu enters as the weight 1/nu

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon must be a number of at least 0; got {self.epsilon!r}.")

    def log_normalizer(self, kappa: Any) -> Any:
        """``log of the integral of exp(kappa l(y, f))`` over y."""
        return np.log(2.0 * self.epsilon + 1.0 / kappa)

    def noise_cdf(self, e: Array, kappa: Array) -> Array:
        """Distribution function of y - f at weights ``kappa``."""
        total, size = 2.0 * self.epsilon + 1.0 / kappa, np.abs(e)
        inside = np.minimum(size, self.epsilon) / total
        beyond = 0.5 / kappa / total * -np.expm1(-2.0 * kappa * np.maximum(size - self.epsilon, 0.0))
        return 0.5 + np.sign(e) * (inside + beyond)

    def noise_variance(self, kappa: float) -> float:
        """Variance of y - f at weight ``kappa``: that of the flat part and of the two tails."""
        band, tail = self.epsilon, 1.0 / kappa
        return (2.0 * band**3 / 3.0 + tail * (band**2 + tail * (band + 0.5 * tail))) / (2.0 * band + tail)

    def log_predictive(self, e: Array, v: Array, kappa: float) -> Array:
        """Log density of y at ``e = y - E f`` and weight ``kappa``, for f ~ N(E f, v).

        The flat part of the density and its two exponential tails are averaged apart, in closed form.
        """
        total = 2.0 * self.epsilon + 1.0 / kappa
        s, size = np.maximum(np.sqrt(v), 1e-9 * total), np.abs(e)
        upper, lower = log_ndtr((self.epsilon - size) / s), log_ndtr((-self.epsilon - size) / s)
        with np.errstate(divide="ignore"):  # a band of zero has no flat part
            flat = upper + np.log(-np.expm1(lower - upper))
        tails = np.logaddexp(_tail(size - self.epsilon, s, kappa), _tail(-size - self.epsilon, s, kappa))
        out: Array = np.logaddexp(flat, tails) - np.log(total)
        return out

    @property
    def width(self) -> float:
        """The number that ``with_width`` changes."""
        return self.epsilon

    def with_width(self, width: float) -> EpsilonInsensitive:
        """The same loss with another band."""
        return EpsilonInsensitive(width)

    def loglik(self, y: Array, c: Array, f: Array) -> Array:
        return -2.0 * c * np.maximum(np.abs(y - f) - self.epsilon, 0.0)

    def score(self, y: Array, c: Array, f: Array) -> Array:
        return np.where(np.abs(y - f) > self.epsilon, 2.0 * c * np.sign(y - f), 0.0)

    def pieces(self, y: Array, c: Array) -> Pieces:
        one = np.ones(len(y))
        start = np.stack((y - self.epsilon, -y - self.epsilon))
        return Pieces(start, np.stack((one, -one)), self.epsilon + 1.0 / float(c.mean()))

    def _sides(self, y: Array, f: Array) -> tuple[tuple[Array, Array, Array], ...]:
        """Label, predictor and its shift against f of the hinges on ``y - epsilon - f`` and ``f - y - epsilon``."""
        one = np.ones(len(y))
        below, above = 1.0 - (y - self.epsilon), -1.0 - (y + self.epsilon)
        return (one, f + below, below), (-one, f + above, above)

    def _both(self, face: str, y: Array, c: Array, f: Array, v: Array) -> Message:
        w, b, bound = np.zeros((3, len(y)))
        for label, at, shift in self._sides(y, f):
            side = getattr(_HINGE, face)(label, c, at, v)
            w += side.w
            b += side.b - side.w * shift  # the same message as a function of f
            bound += side.bound
        return Message(w, b, bound)

    def expect(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return self._both("expect", y, c, f, v)

    def gaussian(self, y: Array, c: Array, f: Array, v: Array) -> Message:
        return self._both("gaussian", y, c, f, v)

    def draw(self, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        w, b = np.zeros((2, len(y)))
        for label, at, shift in self._sides(y, f):
            side = _HINGE.draw(rng, label, c, at)
            w += side.w
            b += side.b - side.w * shift
        return Rows(w, b)


def _tail(u: Array, s: Array, kappa: float) -> Array:
    """Log of ``E exp(-2 kappa x) 1{x > 0}`` for x ~ N(u, s^2), without cancellation on either side."""
    x = math.sqrt(2.0) * kappa * s - u / (math.sqrt(2.0) * s)
    far = np.log(0.5 * erfcx(np.maximum(x, 0.0))) - 0.5 * (u / s) ** 2
    near = log_ndtr(-math.sqrt(2.0) * x) - 2.0 * kappa * (u - kappa * s * s)
    return np.where(x > 0.0, far, near)
