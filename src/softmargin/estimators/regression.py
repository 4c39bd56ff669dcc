"""Each inference for regression as one function: an engine around which the noise level is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.fixed_point import EM, MeanField
from softmargin.engines.gaussian_vi import GaussianVI
from softmargin.engines.gibbs import Gibbs
from softmargin.engines.loop import Info, Outcome, run
from softmargin.engines.model import Model
from softmargin.engines.noise import LearnedNoise, Noise, NoiseState, NoisyGibbs
from softmargin.engines.scale_mixture import mix_over_scale
from softmargin.estimators.inference import Settings, _best, _spread, options_of, run_engine
from softmargin.posterior import DrawsPosterior, GaussianPosterior, PointPosterior, Posterior
from softmargin.solvers.wide import enlarged

__all__ = ["REGRESSIONS", "Regression", "Units", "half_widths"]

_NODES = 40  # values of the noise level that stand for its density
_HERMITE = np.polynomial.hermite_e.hermegauss(48)


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


class Regression(NamedTuple):
    """A posterior in units of y, and equally probable values of the noise in units of the model's response."""

    posterior: Posterior
    scale: float
    outcome: Outcome
    levels: Array  # noise levels nu
    losses: tuple[Any, ...]  # and the loss that goes with each
    inclusion: None = None  # no prior with point masses


def _levels(state: NoiseState) -> tuple[Array, tuple[Any, ...]]:
    """Quantiles of the level's density."""
    below = np.cumsum(state.law.masses) - 0.5 * state.law.masses
    points = np.interp((np.arange(_NODES) + 0.5) / _NODES, below, state.law.points)
    return np.exp(points), (state.loss,) * _NODES


def _gaussian(settings: Settings, units: Units, outcome: Outcome, q: Any, scales: Array, weights: Array) -> Regression:
    """Assemble a Gaussian posterior, q with ``mean`` and ``root``."""
    mean = units.mean(np.array(q.mean), settings.readout.columns.intercept)
    square, root = float(weights @ scales**2), enlarged(q.root, units.spread)
    spread = units.spread
    posterior = GaussianPosterior(
        settings.readout.columns, settings.readout.basis, mean, spread**2 * square, root, spread * scales, weights
    )
    scale = spread * float(np.exp(weights @ np.log(scales)))
    return Regression(posterior, scale, outcome, *_levels(outcome.state))


def _vb(model: Model, settings: Settings, noise: Noise, units: Units) -> Regression:
    """Exact Gaussian variational inference; a learned prior scale adds its spread by a mixture."""
    options_of(settings)
    engine = LearnedNoise(GaussianVI(), noise)
    outcome = run_engine(engine, model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)
    state: NoiseState = outcome.state
    structured = not isinstance(state.inner.q.root, np.ndarray)  # its mixture over scales would not be
    if model.prior.stretch(model.prior.start()) is None or outcome.interrupted or structured:
        scales = np.array([state.inner.prior.values["scale"]])
        return _gaussian(settings, units, outcome, state.inner.q, scales, np.ones(1))
    now = replace(model.with_weight(state.law.weight * model.c), loss=state.loss)
    try:
        mixture = mix_over_scale(now, state.inner)
    except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
        outcome.interrupted = True
        return _gaussian(
            settings, units, outcome, state.inner.q, np.array([state.inner.prior.values["scale"]]), np.ones(1)
        )
    return _gaussian(settings, units, outcome, mixture, mixture.scales, mixture.weights)


def _meanfield(model: Model, settings: Settings, noise: Noise, units: Units) -> Regression:
    engine = LearnedNoise(MeanField(**options_of(settings, "accelerate")), noise)
    outcome = run_engine(engine, model, settings, "meanfield", max_iter=settings.max_iter, tol=settings.tol)
    inner = outcome.state.inner
    return _gaussian(settings, units, outcome, inner.q, np.array([inner.prior.values["scale"]]), np.ones(1))


def _map(model: Model, settings: Settings, noise: Noise, units: Units) -> Regression:
    if not hasattr(model.prior, "mode"):
        raise ValueError("this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.")
    options = dict(options_of(settings, "accelerate", "smoothing", "starts"))
    convex = model.prior.penalty(1.0) is not None
    starts = options.pop("starts", (1.0,) if convex else (0.01, 1.0, 100.0))
    tol = min(settings.tol, 1e-12)  # EM creeps: a small change of the objective is not yet a small distance
    if noise.width_prior is not None:  # the band that the variational fit finds: a joint mode would overfit it
        found = run(LearnedNoise(GaussianVI(), noise), model, max_iter=settings.max_iter, tol=settings.tol)
        if found.interrupted:
            raise KeyboardInterrupt("interrupted while the band was being settled")
        model, noise = replace(model, loss=found.state.loss), replace(noise, width_prior=None)

    def attempt(start: float) -> Outcome:
        engine = LearnedNoise(EM(shrink=start, **options), noise, mode=True)
        return run_engine(engine, model, settings, "em", max_iter=settings.max_iter, tol=tol)

    outcome = _best(attempt, starts)
    inner = outcome.state.inner
    scale = units.spread * inner.prior.values["scale"]
    mean = units.mean(inner.q.mean.copy(), settings.readout.columns.intercept)
    posterior = PointPosterior(settings.readout.columns, settings.readout.basis, mean, scale**2)
    return Regression(posterior, scale, outcome, *_levels(outcome.state))


def _gibbs(model: Model, settings: Settings, noise: Noise, units: Units) -> Regression:
    engine = NoisyGibbs(Gibbs(chains=settings.chains, **options_of(settings, "scale_moves")), noise)
    sweeps = settings.warmup + settings.draws * settings.thin
    shape = (settings.draws, settings.chains)
    draws, mean = np.empty((*shape, model.size)), np.zeros(model.size)
    scale, loglik, level = np.empty((3, *shape))
    losses = np.empty(shape, dtype=object)
    kept, current = 0, Outcome(None)

    def keep(iteration: int, info: Info) -> bool:
        nonlocal kept, mean
        past = iteration - settings.warmup
        if past > 0 and past % settings.thin == 0:
            for k, state in enumerate(current.state):
                draws[kept, k], scale[kept, k] = state.chain.beta, state.chain.prior.values["scale"]
                loglik[kept, k], level[kept, k], losses[kept, k] = state.loglik, state.log_level, state.loss
                mean += state.chain.mean
            kept += 1
        return bool(settings.callback and settings.callback(iteration, info))

    outcome = run_engine(engine, model, replace(settings, callback=keep), "gibbs", max_iter=sweeps, outcome=current)
    if kept < 2:
        raise KeyboardInterrupt("interrupted before two draws were kept")
    outcome.converged = kept == settings.draws
    spread, intercept = units.spread, settings.readout.columns.intercept
    draws = np.ascontiguousarray(draws[:kept].swapaxes(0, 1))
    scale, loglik, level = (values[:kept].T.copy() for values in (scale, loglik, level))
    recorded = {"noise": spread * np.exp(level)}
    if noise.width_prior is not None:
        recorded["epsilon"] = spread * np.array([[loss.width for loss in chain] for chain in losses[:kept].T])
    posterior = DrawsPosterior(
        settings.readout.columns,
        settings.readout.basis,
        units.mean(mean / (kept * settings.chains), intercept),
        spread**2 * float((scale**2).mean()),
        spread * _spread(draws.reshape(-1, model.size)),
        spread * scale.ravel(),
        np.full(scale.size, 1.0 / scale.size),
        units.mean(draws, intercept),
        loglik,
        recorded,
    )
    chosen = np.linspace(0, level.size - 1, min(level.size, 2 * _NODES)).astype(int)
    few = np.exp(level.ravel()[chosen]), tuple(losses[:kept].T.ravel()[chosen])
    return Regression(posterior, spread * float(np.exp(np.log(scale).mean())), outcome, *few)


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


REGRESSIONS: dict[str, Callable[[Model, Settings, Noise, Units], Regression]] = {
    "map": _map,
    "vb": _vb,
    "meanfield": _meanfield,
    "gibbs": _gibbs,
}
