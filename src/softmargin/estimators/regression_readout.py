"""What is read off an engine for regression: the posterior in units of y, and intervals of new responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.standardize import Columns
from softmargin.engines.model import Model
from softmargin.engines.noise import NoiseState
from softmargin.posterior import DrawsPosterior, GaussianPosterior, PointPosterior, Posterior
from softmargin.solvers.wide import enlarged

__all__ = ["RegressionReadout", "Units", "half_widths", "levels_of_draws", "levels_of_law"]

_NODES = 40  # values of the noise level that stand for its density
_HERMITE = np.polynomial.hermite_e.hermegauss(48)
_IN_UNITS = ("noise", "epsilon")  # what is recorded in units of the response


class Units(NamedTuple):
    """The response that the model sees is ``(y - centre)/spread``."""

    centre: float
    spread: float

    def mean(self, beta: Array, intercept: bool) -> Array:
        """Coefficients (..., q) in units of y."""
        beta = self.spread * beta
        if intercept:
            beta[..., 0] += self.centre
        return beta


@dataclass(frozen=True, eq=False)
class RegressionReadout:
    """Posteriors in units of y from results in units of the model's response; nothing is left out in turn."""

    columns: Columns
    basis: Array | None
    units: Units

    def _mean(self, beta: Array) -> Array:
        return self.units.mean(beta, self.columns.intercept)

    def point(self, beta: Array, scale: float) -> Posterior:
        """The posterior of a mode."""
        return PointPosterior(self.columns, self.basis, self._mean(beta), (self.units.spread * scale) ** 2)

    def gaussian(self, mean: Array, root: Any, scales: Array, weights: Array) -> Posterior:
        """A Gaussian posterior with a discrete density of the prior scale."""
        scales = self.units.spread * scales
        root = enlarged(root, self.units.spread)
        return GaussianPosterior(
            self.columns, self.basis, self._mean(mean), float(weights @ scales**2), root, scales, weights
        )

    def draws(
        self, mean: Array, root: Array, scale: Array, draws: Array, loglik: Array, recorded: dict[str, Array]
    ) -> Posterior:
        """A posterior of draws (chains, draws, coefficients)."""
        spread = self.units.spread
        scales, weights = spread * scale.ravel(), np.full(scale.size, 1.0 / scale.size)
        noted = {name: values * (spread if name in _IN_UNITS else 1.0) for name, values in recorded.items()}
        return DrawsPosterior(
            self.columns, self.basis, self._mean(mean), float((scales**2).mean()), spread * root, scales, weights,
            self._mean(draws), loglik, noted,
        )  # fmt: skip

    def averager(self, model: Model) -> None:
        """No sweeps are collected."""

    def of_draws(self, model: Model, draws: Array, scale: Array, average: Any) -> None:
        """No predictors without their own row."""


def levels_of_law(state: NoiseState) -> tuple[Array, tuple[Any, ...]]:
    """Equally probable noise levels of a fit, with the loss that goes with each."""
    below = np.cumsum(state.law.masses) - 0.5 * state.law.masses
    points = np.interp((np.arange(_NODES) + 0.5) / _NODES, below, state.law.points)
    return np.exp(points), (state.loss,) * _NODES


def levels_of_draws(recorded: dict[str, Array], loss: Any, units: Units) -> tuple[Array, tuple[Any, ...]]:
    """The same of some of the draws."""
    noise = recorded["noise"].ravel() / units.spread
    chosen = np.linspace(0, noise.size - 1, min(noise.size, 2 * _NODES)).astype(int)
    losses = (loss,) * len(chosen)
    if "epsilon" in recorded:
        losses = tuple(loss.with_width(width) for width in recorded["epsilon"].ravel()[chosen] / units.spread)
    return noise[chosen], losses


def half_widths(level: float, v: Array, levels: Array, losses: tuple[Any, ...]) -> Array:
    """h with ``P(|f + e| <= h) = level`` for f ~ N(0, v) and noise e averaged over its levels; all are symmetric.

    h depends on the variance alone, so it is found on a grid of variances and interpolated between.
    """
    top, low = float(np.sqrt(v.max())), float(np.sqrt(v.min()))
    sd = np.linspace(low, top, 33) if top > low else np.array([low])
    nodes, weights = _HERMITE
    weights = weights / weights.sum()

    def inside(h: Array) -> Array:
        total = np.zeros(len(sd))
        shift = sd[:, None] * nodes
        for nu, loss in zip(levels, losses, strict=True):
            kappa = nu**-loss.noise_power
            total += (2.0 * loss.noise_cdf(h[:, None] + shift, kappa) - 1.0) @ weights
        return total / len(losses)

    lower, upper = np.zeros(len(sd)), np.full(len(sd), 1.0)
    while (inside(upper) < level).any():
        upper *= 2.0
    for _ in range(32):
        middle = 0.5 * (lower + upper)
        enough = inside(middle) >= level
        lower, upper = np.where(enough, lower, middle), np.where(enough, middle, upper)
    return np.interp(np.sqrt(v), sd, upper)
