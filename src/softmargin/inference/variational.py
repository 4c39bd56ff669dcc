"""Variational inference of any model: the best Gaussian, mixed over the scale of the prior or those of its terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome
from softmargin.core.model import Model
from softmargin.core.space import Root
from softmargin.core.unknown import implied
from softmargin.engines.alternate import Alternate
from softmargin.engines.vi.covariance_mixture import mix_over_covariance
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.engines.vi.scale_mixture import Mixture, mix_over_scale
from softmargin.inference.selecting import selecting_variational
from softmargin.inference.settings import Fit, Inclusion, Settings, best_of, needs_no_draws, options_of, run_engine
from softmargin.posterior.variance_components import DRAWS, from_grid

__all__ = ["View", "alternated", "at_one_scale", "fit_vb", "mean_field", "one_scale", "variational", "view"]


class View(NamedTuple):
    """An engine's last state, on the model that the states of the unknowns imply."""

    model: Model
    state: Any
    unknowns: tuple[Any, ...]


def view(model: Model, state: Any) -> View:
    """What an engine's outcome says, with or without unknowns."""
    if not model.unknowns:
        return View(model, state, ())
    return View(implied(model, state.unknowns), state.inner, state.unknowns)


def alternated(engine: Any, model: Model, **how: Any) -> Any:
    """The engine, alternated with the unknowns where there are any."""
    return Alternate(engine, **how) if model.unknowns else engine


def one_scale(settings: Settings, mean: Array, root: Any, scale: float) -> Any:
    """A Gaussian posterior at one value of the scale."""
    return settings.readout.gaussian(mean, root, np.array([scale]), np.ones(1))


def at_one_scale(engine: Any, model: Model, settings: Settings, outcome: Outcome, *, held: bool = True) -> Fit:
    """What a finished variational engine says, at the scale that it learned; ``held``: of rows left out too."""
    now, state, unknowns = view(model, outcome.state)
    scale = state.prior.values["scale"]
    mean, root = engine.coefficients(state)
    posterior = one_scale(settings, mean, root, scale)
    left_out = settings.readout.of_fit(now, state, unknowns) if held else None
    values = state.prior.values | _noted(model, unknowns)
    return Fit(posterior, left_out, scale, outcome, vi=state, unknowns=unknowns, values=values)


def _noted(model: Model, states: tuple[Any, ...]) -> dict[str, float]:
    """Numbers of the unknowns by name."""
    known = zip(model.unknowns, states, strict=True)
    return {name: value for unknown, state in known for name, value in unknown.noted(state).items()}


def fit_vb(model: Model, settings: Settings, *, least: float = 0.0, start: Any = None, held: bool = True) -> Any:
    """The best Gaussian at one scale; the scale's own spread is added by a mixture (see ``variational``).

    None as soon as the scale falls below ``least``: a fit on its way to a constant creeps, and is not waited for.
    ``start`` is a state to go on from.
    """
    options_of(settings)
    outcome = Outcome(None)
    limits: dict[str, Any] = {"max_iter": settings.max_iter, "tol": settings.tol}
    if least > 0.0:
        limits["enough"] = lambda state: state.prior.values["scale"] < least
    run_engine(alternated(GaussianVI(), model), model, settings, "vb", outcome=outcome, state=start, **limits)
    if outcome.state.prior.values["scale"] < least:
        return None
    return at_one_scale(GaussianVI(), model, settings, outcome, held=held)


def variational(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """The best Gaussian, with the spread that learned scales add; ``first`` is its fit at one scale, if made before."""
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings)
    options_of(settings)
    fit = fit_vb(model, settings, held=False) if first is None else first
    try:
        fit = fit if fit.outcome.interrupted else _mixed(model, settings, fit)
    except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
        fit.outcome.interrupted = True
    if fit.held is not None:
        return fit
    return fit._replace(held=settings.readout.of_fit(*view(model, fit.outcome.state)))


def _mixed(model: Model, settings: Settings, fit: Fit) -> Fit:
    """A fit with the spread of its learned scale; of a prior in parts, with that of the largest learned one."""
    now, state, unknowns = view(model, fit.outcome.state)
    scales, weights, values = np.array([fit.scale]), np.ones(1), fit.values
    mixture: Mixture | None = None
    if model.prior.parts:
        values, mixture = _term_draws(now, state)
    elif model.prior.stretch(model.prior.start()) is not None and isinstance(state.q.root, np.ndarray):
        mixture = mix_over_scale(now, state)
        scales, weights = mixture.scales, mixture.weights
    if mixture is None:  # a scale that is given, or a covariance without a plain root, whose mixture would have none
        root = state.q.root
        return fit._replace(remark=root.notice if isinstance(root, Root) else "", values=values)
    posterior = settings.readout.gaussian(mixture.mean, mixture.root, scales, weights)
    held = settings.readout.of_mixture(now, mixture, unknowns)
    scale = float(np.exp(weights @ np.log(scales)))  # it exists where the mean does not
    return fit._replace(posterior=posterior, scale=scale, held=held, values=values)


def _term_draws(model: Model, vi: VIState) -> tuple[dict[Any, Any], Mixture | None]:
    """Draws of what a variational fit says of the terms, and the mixture over the scale of the largest one.

    A standard deviation of its own is known on a grid of values at each of which the model is fitted again, and a
    covariance by such fits around the best one.
    """
    prior: Any = model.prior
    values: dict[Any, Any] = dict(vi.prior.values)
    rng = np.random.Generator(np.random.Philox(0))
    learned = [part for part in prior.parts[1:] if part.stretch(prior.start()) is not None]
    learned.sort(key=lambda part: -part.size)
    first = None
    for part in learned:
        if len(part.labels) > 1:
            draws, mixture = mix_over_covariance(model, vi, part, rng, DRAWS)
            values[part.labels] = draws
        else:
            mixture = mix_over_scale(model, vi, label=part.labels[0])
            values[part.labels[0]] = from_grid(rng, mixture.scales, mixture.weights)
        first = mixture if first is None else first
    return values, first


def _selecting(model: Model, settings: Settings) -> Fit:
    """The variational engine of a prior with point masses.

    Its starts are compared at one state of the unknowns: first at the usual one, then at the one that was learned.
    """
    engine = selecting_variational(model.prior)(**options_of(settings, "starts"))
    limits = {"max_iter": settings.max_iter, "tol": settings.tol}
    outcome = run_engine(alternated(engine, model), model, settings, "vb", **limits)
    if model.unknowns and not outcome.interrupted:
        again = alternated(engine, model, start=outcome.state.unknowns)
        outcome = best_of(lambda found: found, (outcome, run_engine(again, model, settings, "vb", **limits)))
    fit = at_one_scale(engine, model, settings, outcome)
    included = view(model, outcome.state).state.inclusion
    nothing = np.zeros_like(included)
    return fit._replace(vi=None, inclusion=Inclusion(included[None], nothing, nothing[None]))


def mean_field(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """The mean-field approximation of the augmented model, at one scale."""
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings)
    engine = MeanField(**options_of(settings, "accelerate"), enough=settings.tol)
    limits = {"max_iter": settings.max_iter, "tol": settings.tol}
    outcome = run_engine(alternated(engine, model), model, settings, "meanfield", **limits)
    return at_one_scale(engine, model, settings, outcome)._replace(vi=None)
