"""The posterior mode of any model: exactly where loss and penalty allow it, by EM elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, Standstill
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.engines.alternate import Alternate
from softmargin.engines.mode.active_set import ActiveSet, certify_given, finish
from softmargin.engines.mode.annealing import Annealing
from softmargin.engines.mode.dual_descent import mode_engine
from softmargin.engines.mode.duality_gap import Certificate
from softmargin.engines.mode.single_changes import best_change
from softmargin.engines.mode.smoothed_start import Near, brought_home
from softmargin.engines.vi.fixed_point import EM
from softmargin.inference.evidence import settled_scale
from softmargin.inference.mode_left_out import left_out_of_mode
from softmargin.inference.settings import Fit, Settings, best_of, needs_no_draws, options_of, rough, run_engine
from softmargin.inference.variational import fit_vb, view
from softmargin.priors.penalty import Penalty
from softmargin.refusals import refused

__all__ = ["UNFINISHED", "mode"]

_CHANGES = 20  # most single changes by which a mode that need not be the best is improved
UNFINISHED = 1e-6  # certified gap above which a mode is not called found
_PATIENCE = 20  # steps in a row without a rise after which EM beside unknowns or terms has come to its rounding
_CLOSE = 1e-12  # relative change at which EM beside unknowns or terms ends: it creeps


def mode(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """The mode at the scale of the variational fit; with ``starts``, jointly with the scale from each of them."""
    needs_no_draws(model)
    if not model.prior.has_mode:
        raise ValueError(refused("no mode"))
    model = brought_home(model)
    if model.unknowns or model.prior.parts:
        return _beside(model, settings, first)
    algorithm = _algorithm(model, settings)
    settled = None if "starts" in settings.options else settled_scale(model, settings, first)
    if settled is not None:
        model = model.with_prior(model.prior.at_scale(settled.scale))
    near = None if settled is None else settled.near
    fit = _newton(model, settings, near=near) if algorithm == "newton" else _climbed(model, settings)
    if settled is not None and not settled.converged:
        fit.outcome.converged, fit.outcome.change = False, settled.change
    return fit


def _beside(model: Model, settings: Settings, first: Fit | None) -> Fit:
    """The mode beside unknowns and terms, from where the variational fit has them.

    The terms' standard deviations are those of that fit: jointly with their effects they are, uselessly, zero at the
    mode. Left-out predictors are as far from the mode's as they are from that fit's, since without one of its few rows
    a group's others change their sets.
    """
    # steps over missing entries are slow: a rough fit, and one start where it has them and the coefficients
    slow = any(unknown.changes_rows for unknown in model.unknowns)
    quick = fit_vb(model, rough(settings) if slow else settings.aside()) if first is None else first
    if quick.outcome.interrupted:
        raise KeyboardInterrupt("interrupted while the mode was being prepared")
    there, state, unknowns = view(model, quick.outcome.state)
    mean = settings.readout.predictors(there, state.coefficients[0], state.f)
    out = settings.readout.of_fit(there, state, unknowns) if quick.held is None else quick.held
    prior: Any = model.prior
    if prior.parts:
        prior = prior.settled(state.prior)
    if "starts" not in settings.options:
        prior = prior.at_scale(state.prior.values["scale"])
    given = model.with_prior(prior)

    def held(now: Model, beta: Array, f: Array, unknowns: tuple[Any, ...] = ()) -> Any:
        predictors = settings.readout.predictors(now, beta, f)
        return settings.readout.of_point(now, predictors, mean, out, unknowns)

    convex, values = prior.penalty(1.0) is not None, dict(state.prior.values)
    exact = convex and prior.centre is None and model.loss.margin_slope > 0.0
    if not unknowns and exact and "algorithm" not in settings.options:
        return _newton(given, settings, held)._replace(values=values)
    options = dict(options_of(settings, "algorithm", "accelerate", "smoothing", "starts"))
    options.pop("algorithm", None)
    near = slow and "starts" not in options
    starts = _positive(options.pop("starts", (1.0,) if convex or model.prior.parts or slow else (0.01, 1.0, 100.0)))

    def attempt(start: float) -> Outcome:
        engine = EM(shrink=start, **options)
        joint = Alternate(engine, mode=True, start=unknowns) if unknowns else engine
        limits = {"max_iter": settings.max_iter, "tol": min(settings.tol, _CLOSE)}
        first, still = joint.at(given, state.coefficients[0]) if near else None, Standstill(_PATIENCE)
        return still.settle(run_engine(joint, given, settings, "em", state=first, enough=still, **limits))

    outcome = best_of(attempt, starts)
    now, point, unknowns = view(given, outcome.state)
    scale = point.prior.values["scale"]
    posterior = settings.readout.point(point.q.mean.copy(), scale)
    found = held(now, point.q.mean, point.f, unknowns)
    return Fit(posterior, found, scale, outcome, gap=float("nan"), unknowns=unknowns, values=values)


def _certified(model: Model, beta: Array, g: Array, prior: PriorMessage) -> tuple[ActiveSet, Penalty]:
    """The end point of EM, refined and certified where the penalty is convex."""
    parts = model.prior.penalty(prior.values["scale"]) if model.prior.centre is None else None
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
    single = not convex and model.prior.offers("concave_penalty")
    for _ in range(_CHANGES if single else 0):
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


def _algorithm(model: Model, settings: Settings) -> str:
    """How the mode is to be found."""
    convex, linear = model.prior.penalty(1.0) is not None, model.loss.margin_slope > 0.0
    centred = model.prior.centre is not None
    algorithm: str = settings.options.get("algorithm", "newton" if convex and linear and not centred else "em")
    if centred and algorithm == "newton":
        raise ValueError(refused("means along a path", what="algorithm='newton'"))
    if algorithm not in ("newton", "em", "anneal"):
        raise ValueError(f"engine_options algorithm must be 'newton', 'em' or 'anneal'; got {algorithm!r}.")
    if algorithm != "newton" and linear and model.blocks.design.offers("entries"):
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


def _newton(model: Model, settings: Settings, held: Any = None, near: Near | None = None) -> Fit:
    """The exact mode with its certificate; ``near`` is a point next to it, where one is known."""
    starts = _positive(options_of(settings, "algorithm", "starts").get("starts", (1.0,)))
    limits = {"max_iter": settings.max_iter, "tol": min(settings.tol, 1e-6)}
    engine = mode_engine(model)
    outcome = best_of(
        lambda start: run_engine(engine(start=start, near=near), model, settings, "map", **limits),
        starts if model.prior.stretch(model.prior.start()) is not None else (1.0,),
    )
    way = "try another scale of the prior, or columns in similar units"
    point, scale = outcome.state.point, outcome.state.prior.values["scale"]
    refit = partial(_coefficients, settings=settings, scale=scale, beta=point.beta) if held is None else None
    return _of_mode(model, settings, outcome, point, outcome.state.penalty, way, held, refit)


def _coefficients(model: Model, settings: Settings, scale: float, beta: Array) -> Array:
    """The mode of some rows under a fixed scale; ``beta`` is that of all rows."""
    model = model.with_prior(model.prior.at_scale(scale))
    quiet, limits = settings.aside(), {"max_iter": settings.max_iter, "tol": min(settings.tol, 1e-6)}
    engine = mode_engine(model)(start=1.0, near=Near.at(model, beta))
    found: Array = run_engine(engine, model, quiet, "map", **limits).state.point.beta
    return found


def _of_mode(
    model: Model,
    settings: Settings,
    outcome: Outcome,
    point: ActiveSet,
    penalty: Penalty,
    way: str,
    held: Any = None,
    refit: Callable[[Model], Array] | None = None,
) -> Fit:
    """A mode with its leave-one-out predictors; ``way`` is what to do where its gap is large.

    ``held`` makes the predictors without their own rows, where the mode itself cannot, and ``refit`` the coefficients
    of the mode of some rows, where it is found as fast as this one.
    """
    notice, gap = "", point.certificate.gap
    if not np.isnan(gap):
        gap = certify_given(model, point, penalty).gap
    if gap > UNFINISHED:
        outcome.change = gap
        notice = f"the mode is certified to a relative gap of {gap:.1e} only; {way}."
    scale = outcome.state.prior.values["scale"]
    if held is not None:
        left_out = held(model, point.beta, point.f)
    else:
        left_out, stopped = left_out_of_mode(settings.readout, model, point, penalty, refit)
        if stopped is not None:
            outcome.interrupted, outcome.reason = True, f" ({stopped})" if str(stopped) else ""
    return Fit(settings.readout.point(point.beta, scale), left_out, scale, outcome, gap=gap, notice=notice)
