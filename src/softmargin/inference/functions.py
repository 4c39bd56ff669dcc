"""Each inference as one function: run an engine on a model and return its posterior and what calibration needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.engines.mode.active_set import ActiveSet, finish
from softmargin.engines.mode.annealing import Annealing
from softmargin.engines.mode.dual_descent import mode_engine
from softmargin.engines.mode.duality_gap import Certificate, certify_given
from softmargin.engines.mode.single_changes import best_change
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.inference.deferred import deferred
from softmargin.inference.draws import draw_by_gibbs, draw_by_hmc
from softmargin.inference.evidence import settled_scale
from softmargin.inference.selecting import selecting_variational
from softmargin.inference.settings import Fit, Inclusion, Settings, best_of, needs_no_draws, options_of, run_engine
from softmargin.priors.penalty import Penalty

__all__ = [
    "INFERENCES",
    "fit_vb",
]

_CHANGES = 20  # most single changes by which a mode that need not be the best is improved
_UNFINISHED = 1e-6  # certified gap above which a mode is not called found


def _gaussian(settings: Settings, mean: Array, root: Any, scale: float) -> Any:
    """A Gaussian posterior at one value of the scale."""
    return settings.readout.gaussian(mean, root, np.array([scale]), np.ones(1))


def fit_vb(model: Model, settings: Settings, *, least: float = 0.0, start: VIState | None = None) -> Any:
    """Exact Gaussian variational inference; the scale's own spread is added by a mixture (see ``_vb``).

    None as soon as the scale falls below ``least``: a fit on its way to a constant creeps, and is not waited for.
    ``start`` is a state to go on from.
    """
    options_of(settings)
    outcome = Outcome(None)
    if least > 0.0:
        settings = replace(settings, callback=lambda *_: outcome.state.prior.values["scale"] < least)
    limits = {"max_iter": settings.max_iter, "tol": settings.tol}
    run_engine(GaussianVI(), model, settings, "vb", outcome=outcome, state=start, **limits)
    state: VIState = outcome.state
    if state.prior.values["scale"] < least:
        return None
    scale = state.prior.values["scale"]
    posterior = _gaussian(settings, state.q.mean, state.q.root, scale)
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, vi=state)


def _selecting(model: Model, settings: Settings) -> Fit:
    """The variational engine that a prior with point masses brings along."""
    engine = selecting_variational(model.prior)(**options_of(settings, "starts"))
    outcome = run_engine(engine, model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)
    state = outcome.state
    scale = state.prior.values["scale"]
    mean, root = engine.coefficients(state)
    posterior = _gaussian(settings, mean, root, scale)
    nothing = np.zeros_like(state.inclusion)
    inclusion = Inclusion(state.inclusion[None], nothing, nothing[None])
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, inclusion=inclusion)


def _vb(model: Model, settings: Settings, first: Fit | None) -> Fit:
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings)
    options_of(settings)
    fit = fit_vb(model, settings) if first is None else first
    assert fit.vi is not None
    structured = not isinstance(fit.vi.q.root, np.ndarray)  # its mixture over scales would not be
    if model.prior.stretch(model.prior.start()) is None or fit.outcome.interrupted or structured:
        return fit._replace(notice=getattr(fit.vi.q.root, "notice", ""))
    try:
        mixture = mix_over_scale(model, fit.vi)
    except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
        fit.outcome.interrupted = True
        return fit
    posterior = settings.readout.gaussian(mixture.mean, mixture.root, mixture.scales, mixture.weights)
    scale = float(np.exp(mixture.weights @ np.log(mixture.scales)))  # it exists where the mean does not
    return fit._replace(posterior=posterior, scale=scale, held=settings.readout.of_mixture(model, mixture))


def _meanfield(model: Model, settings: Settings, first: Fit | None) -> Fit:
    needs_no_draws(model)
    if selecting_variational(model.prior) is not None:
        return _selecting(model, settings)
    engine = MeanField(**options_of(settings, "accelerate"))
    outcome = run_engine(engine, model, settings, "meanfield", max_iter=settings.max_iter, tol=settings.tol)
    state = outcome.state
    scale = state.prior.values["scale"]
    posterior = _gaussian(settings, state.q.mean, state.q.root, scale)
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome)


def _certified(model: Model, beta: Array, g: Array, prior: PriorMessage) -> tuple[ActiveSet, Penalty]:
    """The end point of EM, refined and certified where the penalty is convex."""
    parts = model.prior.penalty(prior.values["scale"])
    margin = np.abs(1.0 - model.y * model.blocks.matvec(beta)) < 1e-4
    if parts is None:  # no dual: the tangent of the penalty at the end point stands in for it
        penalty = Penalty(prior.precision, np.zeros(len(beta)))
        active = (np.abs(beta) > 1e-6 * np.abs(beta).max()) | model.free
        beta = np.where(active, beta, 0.0)
        gap = Certificate(float("nan"), float("nan"), float("nan"))
        return ActiveSet(beta, model.blocks.matvec(beta), g, margin, active, gap), penalty
    penalty = Penalty(*parts)
    active = np.abs(beta) > 1e-6 * np.abs(beta).max()
    if penalty.blocks > 1:  # lengths over the blocks: a variable is in or out in all of them
        active = np.tile(active.reshape(penalty.blocks, -1).any(axis=0), penalty.blocks)
    active |= ~np.tile(penalty.sharp, penalty.blocks)
    return finish(model, beta, g, margin, penalty, active=active), penalty


def _positive(starts: Any) -> tuple[float, ...]:
    """Starts that are a list of positive numbers."""
    values = np.asarray(starts, dtype=float)
    if values.ndim != 1 or not len(values) or not (values > 0).all():
        raise ValueError(f"engine_options starts must list positive numbers; got {starts!r}.")
    return tuple(values.tolist())


def _em(model: Model, settings: Settings, anneal: bool, convex: bool) -> Outcome:
    """The best end of EM over several starts, improved by single changes of coefficients if not ``convex``."""
    own = ("sweeps", "cold", "chains") if anneal else ("starts",)
    options = dict(options_of(settings, "algorithm", "accelerate", "smoothing", *own))
    options.pop("algorithm", None)
    engine = EM(**{name: value for name, value in options.items() if name not in own})
    # EM creeps: a small change of the objective is not yet a small distance
    tol = min(settings.tol, 1e-9)

    def climb(em: EM, state: Any) -> Outcome:
        return run_engine(em, model, settings, "em", max_iter=settings.max_iter, tol=tol, state=state)

    if anneal:
        search = Annealing(**{name: value for name, value in options.items() if name in own})
        chains = run_engine(search, model, settings, "anneal", max_iter=search.sweeps).state
        outcome = best_of(lambda chain: climb(engine, engine.at(model, chain.beta)), chains)
    else:
        starts = _positive(options.get("starts", (1.0,) if convex else (0.01, 1.0, 100.0)))
        outcome = best_of(lambda start: climb(replace(engine, shrink=start), None), starts)
    for _ in range(0 if convex else _CHANGES):
        state = outcome.state
        change = best_change(model, state.q.mean, state.f, state.prior.values["scale"])
        if change is None or outcome.interrupted:
            break
        beta = state.q.mean.copy()
        beta[change.at] = change.value
        again = climb(engine, engine.at(model, beta))
        if again.state.objective <= state.objective + tol * abs(state.objective):
            break
        outcome = again
    return outcome


def _map(model: Model, settings: Settings, first: Fit | None) -> Fit:
    """The mode at the scale of the variational fit; with ``starts``, jointly with the scale from each of them."""
    needs_no_draws(model)
    if not hasattr(model.prior, "mode"):
        raise ValueError("this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.")
    algorithm = _algorithm(model, settings)
    settled = None if "starts" in settings.options else settled_scale(model, settings, first)
    if settled is not None:
        model = model.with_prior(model.prior.at_scale(settled.scale))
    fit = (_newton if algorithm == "newton" else _climbed)(model, settings)
    if settled is not None and not settled.converged:
        fit.outcome.converged, fit.outcome.change = False, settled.change
    return fit


def _algorithm(model: Model, settings: Settings) -> str:
    """How the mode is to be found."""
    convex, linear = model.prior.penalty(1.0) is not None, model.loss.margin_slope > 0.0
    algorithm: str = settings.options.get("algorithm", "newton" if convex and linear else "em")
    if algorithm not in ("newton", "em", "anneal"):
        raise ValueError(f"engine_options algorithm must be 'newton', 'em' or 'anneal'; got {algorithm!r}.")
    if algorithm != "newton" and linear and hasattr(model.blocks.design, "entries"):
        raise ValueError(f"solver='cg' finds the mode by algorithm='newton' alone; got {algorithm!r}.")
    return algorithm


def _climbed(model: Model, settings: Settings) -> Fit:
    """The mode by EM or annealing; certified where the loss has a margin and the penalty is convex."""
    convex, linear = model.prior.penalty(1.0) is not None, model.loss.margin_slope > 0.0
    anneal = settings.options.get("algorithm") == "anneal"
    outcome = _em(model, settings, anneal, convex or not linear or model.dimension < model.size)
    state = outcome.state
    if not linear:  # nothing sits on a margin, and there is no gap to certify
        scale = state.prior.values["scale"]
        held = settings.readout.of_smooth_mode(model, state.q.mean, state.f, state.prior.precision)
        return Fit(settings.readout.point(state.q.mean, scale), held, scale, outcome, gap=float("nan"))
    g = np.clip(model.y * (state.message.b - state.message.w * state.f), 0.0, 2.0 * model.c)
    point, penalty = _certified(model, state.q.mean, g, state.prior)
    way = "use algorithm='newton' or raise max_iter"
    return _of_mode(model, settings, outcome, point, penalty, way)


def _newton(model: Model, settings: Settings) -> Fit:
    """The exact mode with its certificate."""
    starts = _positive(options_of(settings, "algorithm", "starts").get("starts", (1.0,)))
    tol = min(settings.tol, 1e-6)
    engine = mode_engine(model)
    outcome = best_of(
        lambda start: run_engine(engine(start=start), model, settings, "map", max_iter=settings.max_iter, tol=tol),
        starts if model.prior.stretch(model.prior.start()) is not None else (1.0,),
    )
    way = "try another scale of the prior, or columns in similar units"
    return _of_mode(model, settings, outcome, outcome.state.point, outcome.state.penalty, way)


def _of_mode(model: Model, settings: Settings, outcome: Outcome, point: ActiveSet, penalty: Penalty, way: str) -> Fit:
    """A mode with its leave-one-out predictors; ``way`` is what to do where its gap is large."""
    notice, gap = "", point.certificate.gap
    if not np.isnan(gap):
        gap = certify_given(model, point.beta, point.g, penalty).gap
    if gap > _UNFINISHED:
        outcome.change = gap
        notice = f"the mode is certified to a relative gap of {gap:.1e} only; {way}."
    scale = outcome.state.prior.values["scale"]
    later = hasattr(model.space, "left_out")  # products alone: what takes the longest waits until it is asked for
    held = (deferred if later else type(settings.readout).of_mode)(settings.readout, model, point, penalty)
    return Fit(settings.readout.point(point.beta, scale), held, scale, outcome, gap=gap, notice=notice)


INFERENCES: dict[str, Callable[[Model, Settings, Fit | None], Fit]] = {
    "map": _map,
    "vb": _vb,
    "meanfield": _meanfield,
    "gibbs": draw_by_gibbs,
    "hmc": draw_by_hmc,
}
