"""Silverman's g-prior of kernel expansions, with a point mass at zero for rows that are not active."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["GPrior"]

Gamma = tuple[float, float]


def _check(name: str, pair: Gamma | float, *, fixed: bool = True) -> None:
    """Refuse what is no pair of positive numbers (nor one, where one fixes the value)."""
    values = pair if isinstance(pair, tuple) else (pair, pair)
    fits = len(values) == 2 and all(0.0 < value < math.inf for value in values)
    if not fits or not (fixed or isinstance(pair, tuple)):
        wanted = "a positive number or two of them" if fixed else "two positive numbers"
        raise ValueError(f"GPrior {name} must be {wanted}; got {pair!r}.")


def _draw(rng: np.random.Generator, prior: Gamma | float, square: float, size: int) -> float:
    """A precision given the sum of squares of ``size`` normal values that share it."""
    if not isinstance(prior, tuple):
        return prior
    a, b = prior
    return max(float(rng.gamma(0.5 * (a + size)) / (0.5 * (b + square))), 1e-100)


def _log_density(prior: Gamma | float, log_value: float) -> float:
    """Log density of the logarithm of a precision, up to a constant."""
    if not isinstance(prior, tuple):
        return 0.0
    return 0.5 * (prior[0] * log_value - prior[1] * math.exp(log_value))


@dataclass(frozen=True)
class GPrior:
    """Prior of ``f = u + sum over active j of beta_j K(., x_j)``.

    ``beta ~ N(0, (g K_aa)^-1)`` for the active rows a, ``u ~ N(0, 1/eta)``, both precisions gamma distributed; every
    row is active with probability alpha, ``alpha ~ Beta(a, b)`` integrated out: k given rows have probability
    ``B(k + a, n - k + b)/B(a, b)``. The defaults are those of the paper.

    Parameters
    ----------
    shrinkage : (float, float) or float
        ``g ~ Gamma(a/2, rate b/2)``; a number fixes g.
    intercept : (float, float) or float
        The same for eta.
    inclusion : (float, float)
        The two parameters of the beta prior; (1, 1) makes the number of active rows uniform.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), sections 2.2 and 3.1, equation (10).
    """

    shrinkage: Gamma | float = (4.0, 0.1)
    intercept: Gamma | float = (1.0, 0.1)
    inclusion: Gamma = (1.0, 1.0)

    def __post_init__(self) -> None:
        _check("shrinkage", self.shrinkage)
        _check("intercept", self.intercept)
        _check("inclusion", self.inclusion, fixed=False)

    def start(self) -> tuple[float, float]:
        """(eta, g) at their prior means, or where they are fixed."""
        eta, g = (pair[0] / pair[1] if isinstance(pair, tuple) else pair for pair in (self.intercept, self.shrinkage))
        return eta, g

    def draw_eta(self, rng: np.random.Generator, u: float) -> float:
        """The intercept's precision given the intercept."""
        return _draw(rng, self.intercept, u * u, 1)

    def draw_g(self, rng: np.random.Generator, square: float, size: int) -> float:
        """g given ``beta' K_aa beta`` and how many coefficients there are."""
        return _draw(rng, self.shrinkage, square, size)

    def log_g(self, log_value: float) -> float:
        """Log density of log g, up to a constant; zero where g is fixed."""
        return _log_density(self.shrinkage, log_value)
