"""The noise level of a regression, and the band of its loss.

A loss for regression carries its noise level nu as the weight ``kappa = nu^-power``: the density of a row that counts
``omega`` times is ``exp(omega (kappa l - log Z(kappa)))``. So an engine runs at weights ``kappa omega`` as it is, and
the level needs only two numbers, ``T = -sum omega l`` and ``N = sum omega``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.unknown import Seen, Unknown
from softmargin.core.visits import Face, expected_bound, likelihood
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step

__all__ = ["Noise", "NoiseDraw", "NoiseLaw", "NoiseState"]

_LOWEST, _HIGHEST = -9.0, 12.0  # log levels in spreads of the response: a smaller one is as good as none
_WIDEST = 5.0  # largest band that is tried, likewise
_START = 0.5


class _LogDensity(Protocol):
    def log_density(self, log_scale: float) -> float:
        """Log density of the logarithm of a positive number."""

    def log_densities(self, log_scales: Array) -> Array:
        """The same at many points."""


class NoiseLaw(NamedTuple):
    """The level's density given the residuals: its weight, its part of the bound, and points with their masses."""

    weight: float  # E kappa, or kappa at the mode
    value: float  # log of the integral over log nu, or its largest integrand
    points: Array  # log nu
    masses: Array


class NoiseState(NamedTuple):
    """The level's density, and the loss with its band."""

    law: NoiseLaw
    loss: Any

    @property
    def weight(self) -> float:
        """By which the rows' own weights are multiplied."""
        return self.law.weight


class NoiseDraw(NamedTuple):
    """A drawn level, and the loss with its band."""

    log_level: float
    loss: Any

    @property
    def weight(self) -> float:
        """By which the rows' own weights are multiplied."""
        return math.exp(-self.loss.noise_power * self.log_level)


@dataclass(frozen=True)
class Noise(Unknown):
    """What is known about the noise before the data.

    Parameters
    ----------
    prior : object with ``log_density``
        Prior of a learned level, as the log density of its logarithm.
    level : float or None
        The level, where it is fixed.
    width_prior : object with ``log_density``, or None
        Prior of the band of the loss (epsilon), where it is learned.
    unit : float
        Spread of the response, around which levels are looked for.
    first : float or None
        Where a learned level starts; None is half the unit.
    """

    prior: _LogDensity
    level: float | None = None
    width_prior: _LogDensity | None = None
    unit: float = 1.0
    first: float | None = None

    @property
    def start_level(self) -> float:
        """Log level to start from."""
        if self.level is not None:
            return math.log(self.level)
        return math.log(_START * self.unit if self.first is None else self.first)

    @property
    def range(self) -> tuple[float, float]:
        """Log levels, and logs of bands, that are considered."""
        return _LOWEST + math.log(self.unit), _HIGHEST + math.log(self.unit)

    def log_width_density(self, width: float) -> float:
        """Log prior density of a learned band, measured in spreads of the response."""
        assert self.width_prior is not None
        return self.width_prior.log_density(math.log(width)) - math.log(width / self.unit)

    def within(self, level: float) -> float:
        """A level or band to start draws from, inside what they consider."""
        low, high = self.range
        return math.exp(min(max(math.log(max(level, 1e-300)), low + 1.0), high - 1.0))

    def log_density(self, loss: Any, T: float, N: float) -> Callable[[float], float]:
        """Log of likelihood times prior as a function of log nu."""
        low, high = self.range

        def value(l: float) -> float:
            if not low < l < high:
                return -math.inf
            kappa = math.exp(-loss.noise_power * l)
            return self.prior.log_density(l) - kappa * T - N * float(loss.log_normalizer(kappa))

        return value

    def law(self, loss: Any, T: float, N: float, *, mode: bool = False) -> NoiseLaw:
        """The density of the level given ``T`` and ``N``, or with ``mode`` its largest point."""
        if self.level is not None:
            l = math.log(self.level)
            fixed = math.exp(-loss.noise_power * l)
            value = -fixed * T - N * float(loss.log_normalizer(fixed))
            return NoiseLaw(fixed, value, np.array([l]), np.ones(1))
        density, (low, high) = self.log_density(loss, T, N), self.range
        peak = _largest(density, low, high)  # concave in log nu
        if mode:
            return NoiseLaw(math.exp(-loss.noise_power * peak), density(peak), np.array([peak]), np.ones(1))
        h = 1e-3
        bend = (2.0 * density(peak) - density(peak - h) - density(peak + h)) / (h * h)
        sd = min(max(1.0 / math.sqrt(max(bend, 1e-6)), 1e-4), 3.0)
        points = np.linspace(max(peak - 12.0 * sd, low), min(peak + 12.0 * sd, high), 123)[1:-1]
        kappa = np.exp(-loss.noise_power * points)
        values = self.prior.log_densities(points)
        values -= kappa * T + N * loss.log_normalizer(kappa)
        masses = np.exp(values - values.max())
        total = float(masses.sum())
        masses /= total
        value = float(values.max()) + math.log(total * (points[1] - points[0]))
        return NoiseLaw(float(masses @ kappa), value, points, masses)

    def start(self, model: Model) -> NoiseState:
        """The level to start from, with the loss as it is."""
        loss: Any = model.loss
        kappa = math.exp(-loss.noise_power * self.start_level)
        return NoiseState(NoiseLaw(kappa, 0.0, np.array([self.start_level]), np.ones(1)), loss)

    def drawn(self, state: NoiseState) -> NoiseDraw:
        """The level that the mean weight stands for, inside what draws consider."""
        loss = state.loss
        if self.width_prior is not None:
            loss = loss.with_band(self.within(loss.band))
        if self.level is not None:
            return NoiseDraw(math.log(self.level), loss)
        return NoiseDraw(math.log(self.within(float(state.weight) ** (-1.0 / loss.noise_power))), loss)

    def apply(self, model: Model, state: NoiseState | NoiseDraw) -> Model:
        """The problem at one noise level and band."""
        return replace(model, blocks=model.blocks.reweighted(state.weight), loss=state.loss)

    def expect(self, model: Model, state: NoiseState, seen: Seen, *, careful: bool = False) -> tuple[NoiseState, float]:
        """The level's density, and the best band where it is learned, given the moments of the predictors."""
        N, loss = float(model.c.sum()), state.loss

        def energy(loss: Any) -> float:
            return -float(model.blocks.sum(expected_bound, Face(loss, seen.face), seen.rows)[0][0])

        def law(loss: Any) -> NoiseLaw:
            return self.law(loss, energy(loss), N, mode=seen.mode)

        if self.width_prior is not None and not seen.mode:  # a joint mode would overfit the band

            def value(width: float) -> float:
                return law(loss.with_band(width)).value + self.log_width_density(width)

            best = self.unit * _largest(lambda x: value(self.unit * x), 1e-9, _WIDEST, 1e-5)
            loss = loss.with_band(best) if value(best) > value(loss.band) else loss
        found = law(loss)
        part = found.weight * energy(loss) + found.value  # the level's law has the energy already
        if self.width_prior is not None:
            part += self.log_width_density(loss.band)
        return NoiseState(found, loss), part

    def draw(self, random: Any, model: Model, state: NoiseDraw, chain: Any) -> tuple[NoiseDraw, Any]:
        """Slice updates of the band, where it is learned, and of the log level, given the predictors."""
        l, loss, rng = state.log_level, state.loss, random.at(Purpose.NOISE)
        N, (low, high) = float(model.c.sum()), self.range
        width_prior = self.width_prior
        if width_prior is not None:
            kappa = math.exp(-loss.noise_power * l)

            def density(log_width: float) -> float:
                if not low < log_width < high:
                    return -math.inf
                other = loss.with_band(math.exp(log_width))
                fit = kappa * _loglik(model, other, chain)
                return fit - N * float(other.log_normalizer(kappa)) + width_prior.log_density(log_width)

            loss = loss.with_band(math.exp(slice_step(rng, density, math.log(loss.band), width=1.0)))
        if self.level is None:
            T = -_loglik(model, loss, chain)
            width = 4.0 / (loss.noise_power * math.sqrt(N + 1.0))
            l = slice_step(rng, self.log_density(loss, T, N), l, width=width)
        return NoiseDraw(l, loss), chain

    def log_normalizer(self, model: Model, state: NoiseDraw) -> float:
        """Of the density of all responses."""
        return float(model.c.sum()) * float(state.loss.log_normalizer(state.weight))

    def noted(self, state: NoiseState | NoiseDraw) -> dict[str, float]:
        """The level, and the band where it is learned."""
        noted = {"noise": state.weight ** (-1.0 / state.loss.noise_power)}
        return noted if self.width_prior is None else noted | {"epsilon": state.loss.band}


def _loglik(model: Model, loss: Any, chain: Any) -> float:
    """The log likelihood of a loss at the predictors of a chain."""
    return float(model.blocks.sum(likelihood, loss, chain.rows)[0][0])


def _largest(f: Callable[[float], float], low: float, high: float, tol: float = 1e-9) -> float:
    """Where a function with one hump is largest."""
    found = minimize_scalar(lambda x: -f(x), bounds=(low, high), method="bounded", options={"xatol": tol})
    return float(found.x)
