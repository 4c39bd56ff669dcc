"""Each inference for regression as one function: an engine around which the noise level is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model
from softmargin.engines.sampling.gibbs import Gibbs
from softmargin.engines.sampling.hmc.sweeps import SweptHMC
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.inference.draws import ACCEPTED, BURN_IN, drawn_fit, suited
from softmargin.inference.regression_readout import HeldOutResponses, levels_of_draws, levels_of_law
from softmargin.inference.selecting import has_point_masses, selecting_variational
from softmargin.inference.settings import Inclusion, Settings, best_of, needs_no_draws, options_of, run_engine
from softmargin.posterior.coefficients import Posterior
from softmargin.unknowns.noise import LearnedNoise, Noise, NoiseState, NoisyGibbs, at_noise

__all__ = ["REGRESSIONS", "Regression", "variational"]


class Regression(NamedTuple):
    """A posterior in units of y, and equally probable values of the noise in units of the model's response."""

    posterior: Posterior
    scale: float
    outcome: Outcome
    levels: Array  # noise levels nu
    losses: tuple[Any, ...]  # and the loss that goes with each
    held: HeldOutResponses  # the training rows, each predicted without itself
    inclusion: Inclusion | None = None
    notice: str = ""  # what the user should know about the run


def _gaussian(
    settings: Settings,
    outcome: Outcome,
    held: HeldOutResponses,
    mean: Array,
    root: Any,
    scales: Array,
    weights: Array,
) -> Regression:
    """A Gaussian posterior with the noise of the engine's last state."""
    posterior = settings.readout.gaussian(np.array(mean), root, scales, weights)
    scale = float(np.exp(weights @ np.log(posterior.scales)))
    return Regression(posterior, scale, outcome, *levels_of_law(outcome.state), held)


def _at_one_scale(model: Model, settings: Settings, outcome: Outcome, mean: Array, root: Any) -> Regression:
    scale = outcome.state.inner.prior.values["scale"]
    held = settings.readout.of_fit(model, outcome.state)
    return _gaussian(settings, outcome, held, mean, root, np.array([scale]), np.ones(1))


def _selecting(model: Model, settings: Settings, noise: Noise) -> Regression:
    """The variational engine that a prior with point masses brings along.

    Its starts are compared at one noise level: first at the usual one, then at the one that was learned.
    """
    engine = selecting_variational(model.prior)(**options_of(settings, "starts"))

    def attempt(model: Model, noise: Noise) -> Outcome:
        learned = LearnedNoise(engine, noise)
        return run_engine(learned, model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)

    outcome = attempt(model, noise)
    if noise.level is None and not outcome.interrupted:
        outcome = best_of(lambda found: found, (outcome, attempt(*_settled(model, noise, outcome.state))))
    state = outcome.state.inner
    nothing = np.zeros_like(state.inclusion)
    found = _at_one_scale(model, settings, outcome, *engine.coefficients(state))
    return found._replace(inclusion=Inclusion(state.inclusion[None], nothing, nothing[None]))


def _settled(model: Model, noise: Noise, state: NoiseState) -> tuple[Model, Noise]:
    """The problem with a learned level and band to start from."""
    level, loss = float(state.law.weight) ** (-1.0 / state.loss.noise_power), state.loss
    if noise.width_prior is not None:
        loss = loss.with_band(noise.within(loss.band))
    return replace(model, loss=loss), replace(noise, first=noise.within(level))


def variational(model: Model, settings: Settings, noise: Noise) -> Outcome:
    """The best Gaussian at one scale."""
    engine = LearnedNoise(GaussianVI(), noise)
    return run_engine(engine, model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)


def _vb(model: Model, settings: Settings, noise: Noise, first: Outcome | None = None) -> Regression:
    """Exact Gaussian variational inference; a learned prior scale adds its spread by a mixture."""
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings, noise)
    options_of(settings)
    outcome = variational(model, settings, noise) if first is None else first
    state: NoiseState = outcome.state
    q = state.inner.q
    structured = not isinstance(q.root, np.ndarray)  # its mixture over scales would not be
    if model.prior.stretch(model.prior.start()) is None or outcome.interrupted or structured:
        return _at_one_scale(model, settings, outcome, q.mean, q.root)
    try:
        mixture = mix_over_scale(at_noise(model, state.loss, state.law.weight), state.inner)
    except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
        outcome.interrupted = True
        return _at_one_scale(model, settings, outcome, q.mean, q.root)
    held = settings.readout.of_mixture(model, mixture, state)
    return _gaussian(settings, outcome, held, *mixture[:4])


def _meanfield(model: Model, settings: Settings, noise: Noise, first: Outcome | None = None) -> Regression:
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings, noise)
    engine = LearnedNoise(MeanField(**options_of(settings, "accelerate")), noise)
    outcome = run_engine(engine, model, settings, "meanfield", max_iter=settings.max_iter, tol=settings.tol)
    return _at_one_scale(model, settings, outcome, outcome.state.inner.q.mean, outcome.state.inner.q.root)


def _map(model: Model, settings: Settings, noise: Noise, first: Outcome | None = None) -> Regression:
    """The mode; rows are left out of the variational fit, since a point has no spread to take a row from."""
    needs_no_draws(model)
    if not hasattr(model.prior, "mode"):
        raise ValueError("this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.")
    options = dict(options_of(settings, "accelerate", "smoothing", "starts"))
    convex = model.prior.penalty(1.0) is not None
    starts = options.pop("starts", (1.0,) if convex else (0.01, 1.0, 100.0))
    tol = min(settings.tol, 1e-12)  # EM creeps: a small change of the objective is not yet a small distance
    state = _first_fit(model, settings, noise, first, "rows were being left out")
    held = settings.readout.of_fit(model, state)
    if noise.width_prior is not None:  # the band that the variational fit finds: a joint mode would overfit it
        model, noise = replace(model, loss=state.loss), replace(noise, width_prior=None)

    def attempt(start: float) -> Outcome:
        engine = LearnedNoise(EM(shrink=start, **options), noise, mode=True)
        return run_engine(engine, model, settings, "em", max_iter=settings.max_iter, tol=tol)

    outcome = best_of(attempt, starts)
    inner = outcome.state.inner
    scale = inner.prior.values["scale"]
    posterior = settings.readout.point(inner.q.mean.copy(), scale)
    return Regression(posterior, settings.readout.units.spread * scale, outcome, *levels_of_law(outcome.state), held)


def _first_fit(model: Model, settings: Settings, noise: Noise, first: Outcome | None, what: str) -> NoiseState:
    """The variational fit that another engine starts from, run unless it was made already."""
    found = first
    if found is None:
        found = run(LearnedNoise(GaussianVI(), noise), model, max_iter=settings.max_iter, tol=settings.tol)
    if found.interrupted:
        raise KeyboardInterrupt(f"interrupted while {what}")
    state: NoiseState = found.state
    return state


def _sampler(model: Model, settings: Settings) -> Any:
    """The suited sampler with the options that it knows.

    Heated companions of a chain are not offered: at a learned noise level they would need their own normaliser.
    """
    sampler = suited(model, Gibbs)
    names = {field.name for field in fields(sampler)}
    options: dict[str, Any] = dict(options_of(settings, *(names - {"chains", "warmup", "ladder"})))
    own: dict[str, Any] = {"warmup": settings.warmup, "ladder": ()}
    return sampler(chains=settings.chains, **options, **{name: own[name] for name in own.keys() & names})


def _drawn(engine: NoisyGibbs, model: Model, settings: Settings, label: str) -> Regression:
    """Run chains and read the posterior and the noise off them."""
    fit, units = drawn_fit(engine, model, settings, label), settings.readout.units
    levels = levels_of_draws(fit.posterior.recorded, model.loss, units)
    held = settings.readout.of_noisy_draws(model, fit, *levels)
    return Regression(fit.posterior, units.spread * fit.scale, fit.outcome, *levels, held, fit.inclusion)


def _gibbs(model: Model, settings: Settings, noise: Noise, first: Outcome | None = None) -> Regression:
    found = _drawn(NoisyGibbs(_sampler(model, settings), noise), model, settings, "gibbs")
    found.outcome.state = None  # with the rows that samplers keep
    return found


def _hmc(model: Model, settings: Settings, noise: Noise, first: Outcome | None = None) -> Regression:
    if has_point_masses(model.prior):
        raise ValueError("a prior with point masses has draws of its own: use inference='gibbs'.")
    if hasattr(model.blocks.design, "entries") or model.dimension > 2 * len(model.y):
        raise ValueError("inference='hmc' is not for so many columns; use inference='gibbs'.")
    engine = SweptHMC(chains=settings.chains, **options_of(settings, "scale_moves"))
    model, noise = _settled(model, noise, _first_fit(model, settings, noise, first, "the chains were being prepared"))
    short = replace(settings, warmup=min(settings.warmup, BURN_IN))
    found = _drawn(NoisyGibbs(engine, noise), model, short, "hmc")
    rate, stuck = engine.acceptance([each.chain for each in found.outcome.state])
    found.outcome.state = None
    if not stuck and rate >= ACCEPTED:
        return found
    return found._replace(notice=f"a chain of hmc hardly moves (acceptance {rate:.2f}); use inference='gibbs'.")


REGRESSIONS: dict[str, Callable[[Model, Settings, Noise, Outcome | None], Regression]] = {
    "map": _map,
    "vb": _vb,
    "meanfield": _meanfield,
    "gibbs": _gibbs,
    "hmc": _hmc,
}
