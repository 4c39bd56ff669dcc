"""The noise level of a regression, learned around any engine.

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
from softmargin.core.loop import Info, relative
from softmargin.core.model import Model
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step

__all__ = ["LearnedNoise", "Noise", "NoiseLaw", "NoiseState", "NoisyChain", "NoisyGibbs", "at_noise"]

_LOWEST, _HIGHEST = -9.0, 12.0  # log levels in spreads of the response: a smaller one is as good as none
_WIDEST = 5.0  # largest band that is tried, likewise
_START = 0.5


class _LogDensity(Protocol):
    def log_density(self, log_scale: float) -> float:
        """Log density of the logarithm of a positive number."""


class NoiseLaw(NamedTuple):
    """The level's density given the residuals: its weight, its part of the bound, and points with their masses."""

    weight: float  # E kappa, or kappa at the mode
    value: float  # log of the integral over log nu, or its largest integrand
    points: Array  # log nu
    masses: Array


@dataclass(frozen=True)
class Noise:
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
    def start(self) -> float:
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
        values = np.array([self.prior.log_density(l) for l in points.tolist()])
        values -= kappa * T + N * loss.log_normalizer(kappa)
        masses = np.exp(values - values.max())
        total = float(masses.sum())
        masses /= total
        value = float(values.max()) + math.log(total * (points[1] - points[0]))
        return NoiseLaw(float(masses @ kappa), value, points, masses)

    def draw(self, rng: np.random.Generator, model: Model, l: float, loss: Any, f: Array) -> tuple[float, Any]:
        """Slice updates of the band, where it is learned, and of the log level, given the predictors."""
        N, (low, high) = float(model.c.sum()), self.range
        width_prior = self.width_prior
        if width_prior is not None:
            kappa = math.exp(-loss.noise_power * l)

            def density(log_width: float) -> float:
                if not low < log_width < high:
                    return -math.inf
                other = loss.with_band(math.exp(log_width))
                fit = kappa * float(other.loglik(model.y, model.c, f).sum())
                return fit - N * float(other.log_normalizer(kappa)) + width_prior.log_density(log_width)

            loss = loss.with_band(math.exp(slice_step(rng, density, math.log(loss.band), width=1.0)))
        if self.level is None:
            T = -float(loss.loglik(model.y, model.c, f).sum())
            width = 4.0 / (loss.noise_power * math.sqrt(N + 1.0))
            l = slice_step(rng, self.log_density(loss, T, N), l, width=width)
        return l, loss

    def record(self, model: Model, chain: Any, l: float, loss: Any) -> NoisyChain:
        """A sampler's chain with its noise."""
        kappa = math.exp(-loss.noise_power * l)
        fit = kappa * float(loss.loglik(model.y, model.c, chain.f).sum())
        noted = {"noise": math.exp(l)} | ({} if self.width_prior is None else {"epsilon": loss.band})
        return NoisyChain(chain, l, loss, fit - float(model.c.sum()) * float(loss.log_normalizer(kappa)), noted)


def _largest(f: Callable[[float], float], low: float, high: float, tol: float = 1e-9) -> float:
    """Where a function with one hump is largest."""
    found = minimize_scalar(lambda x: -f(x), bounds=(low, high), method="bounded", options={"xatol": tol})
    return float(found.x)


class NoiseState(NamedTuple):
    """An engine's state at the weights that its noise level asks for."""

    inner: Any
    law: NoiseLaw
    loss: Any
    objective: float


@dataclass(frozen=True)
class LearnedNoise:
    """An engine for a point or an approximation, alternated with the best density of the noise level.

    Both halves raise one objective: the bound ``E log p - E log q`` with a factor for the level, or with ``mode`` the
    joint density of coefficients and log level. A learned band is a point that maximises the same objective.
    """

    engine: Any
    noise: Noise
    mode: bool = False

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the engine needs, and the normaliser."""
        return (*self.engine.needs_loss, "log_normalizer")

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """What the engine needs."""
        return tuple(self.engine.needs_prior)

    def init(self, model: Model) -> NoiseState:
        kappa = math.exp(-model.loss.noise_power * self.noise.start)
        inner = self.engine.init(model.with_weight(kappa * model.c))
        return self._learn(model, inner, model.loss)

    def step(self, model: Model, state: NoiseState, iteration: int) -> tuple[NoiseState, Info]:
        inner, info = self.engine.step(at_noise(model, state.loss, state.law.weight), state.inner, iteration)
        new = self._learn(model, inner, state.loss)
        gain = new.objective - state.objective
        change = abs(gain) / (1.0 + abs(new.objective)) if self.mode else relative(gain, new.objective)
        if inner is state.inner:  # it stands still, for a reason that its own change tells
            change = max(change, info.change)
        return new, Info(new.objective, math.inf if math.isinf(info.change) else change)  # not yet if the engine cannot

    def _learn(self, model: Model, inner: Any, loss: Any) -> NoiseState:
        """The level, and the band where it is learned, given the moments of the predictors."""
        N, width_prior = float(model.c.sum()), self.noise.width_prior

        def energy(loss: Any) -> float:
            face = getattr(loss, self.engine.needs_loss[0])
            return -float(face(model.y, model.c, inner.f, inner.v).bound.sum())

        def law(loss: Any) -> NoiseLaw:
            return self.noise.law(loss, energy(loss), N, mode=self.mode)

        if width_prior is not None:

            def value(width: float) -> float:
                return law(loss.with_band(width)).value + self.noise.log_width_density(width)

            best = self.noise.unit * _largest(lambda x: value(self.noise.unit * x), 1e-9, _WIDEST, 1e-5)
            loss = loss.with_band(best) if value(best) > value(loss.band) else loss
        found = law(loss)
        now = at_noise(model, loss, found.weight)
        inner = _seen_by(self.engine, now, inner)
        objective = inner.objective if hasattr(inner, "objective") else inner.bound
        total = objective + found.weight * energy(loss) + found.value  # the level's law has the energy already
        if width_prior is not None:
            total += self.noise.log_width_density(loss.band)
        return NoiseState(inner, found, loss, total)


def at_noise(model: Model, loss: Any, kappa: float) -> Model:
    """The problem at one noise level and band."""
    return replace(model.with_weight(kappa * model.c), loss=loss)


def _seen_by(engine: Any, model: Model, inner: Any) -> Any:
    """An engine's state with its messages computed anew, the approximation unchanged."""
    if hasattr(engine, "moments"):
        return engine.moments(model, inner.q)
    message = getattr(model.loss, engine.needs_loss[0])(model.y, model.c, inner.f, inner.v)
    bound = float(message.bound.sum()) + inner.prior.bound + inner.q.entropy
    return inner._replace(message=message, **{"objective" if hasattr(inner, "objective") else "bound": bound})


class Variables(NamedTuple):
    """Numbers of a chain by name."""

    values: dict[str, float]


class NoisyChain(NamedTuple):
    """A chain with its noise level and its loss; ``loglik`` is the normalised one."""

    chain: Any
    log_level: float
    loss: Any
    loglik: float
    noted: dict[str, float]  # what is worth recording

    @property
    def beta(self) -> Array:
        """Coefficients."""
        beta: Array = self.chain.beta
        return beta

    @property
    def mean(self) -> Array:
        """Conditional mean of the last draw."""
        mean: Array = self.chain.mean
        return mean

    @property
    def prior(self) -> Variables:
        """The prior's variables, and the noise."""
        return Variables(self.chain.prior.values | self.noted)

    @property
    def inclusion(self) -> Array:
        """Conditional inclusion probabilities, where the prior selects."""
        inclusion: Array = self.chain.inclusion
        return inclusion


@dataclass(frozen=True)
class NoisyGibbs:
    """A Gibbs sampler with the noise level, and the band where it is learned, drawn in each sweep.

    Both are slice updates given the predictors with the row latents integrated out, so they come before the sweep
    that draws the latents.

    Parameters
    ----------
    gibbs : Gibbs, or another sampler with ``chains``, ``init`` and ``sweep``
        Draws everything else.
    noise : Noise
        What is known about the noise.
    """

    gibbs: Any
    noise: Noise

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the sampler needs, and the normaliser."""
        return (*self.gibbs.needs_loss, "log_normalizer")

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.gibbs.needs_prior)

    def init(self, model: Model) -> tuple[NoisyChain, ...]:
        kappa = math.exp(-model.loss.noise_power * self.noise.start)
        chains = self.gibbs.init(model.with_weight(kappa * model.c))
        return tuple(self.noise.record(model, chain, self.noise.start, model.loss) for chain in chains)

    def step(self, model: Model, state: tuple[NoisyChain, ...], iteration: int) -> tuple[tuple[NoisyChain, ...], Info]:
        serial = model.serial() if self.gibbs.chains > 1 else model

        def sweep(k: int) -> NoisyChain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(sweep, range(self.gibbs.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, state: NoisyChain, k: int, iteration: int) -> NoisyChain:
        """One sweep of chain number ``k``."""
        # cell 1 of the moves: the sampler's own moves use cell 0
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration, cell=1)
        l, loss = self.noise.draw(rng, model, state.log_level, state.loss, state.chain.f)
        now, chain = at_noise(model, loss, math.exp(-loss.noise_power * l)), state.chain
        if hasattr(self.gibbs, "moved"):  # what the sampler keeps of the rows belongs to the old noise
            chain = self.gibbs.moved(now, chain)
        return self.noise.record(model, self.gibbs.sweep(now, chain, k, iteration), l, loss)
