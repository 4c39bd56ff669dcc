"""Two classes with random effects and smooth terms beside the predictors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.components import DRAWS, Components, from_grid
from softmargin.designs.base import Array
from softmargin.designs.dense import Dense
from softmargin.designs.grouped import Grouped
from softmargin.designs.standardize import Columns, design_for
from softmargin.engines.covariance_mixture import mix_over_covariance
from softmargin.engines.fixed_point import EM
from softmargin.engines.missing import completed
from softmargin.engines.model import Model
from softmargin.engines.scale_mixture import mix_over_scale
from softmargin.estimators.binary import Recipe
from softmargin.estimators.choosing import Chosen, at_candidate, chosen_by, loss_of, quick_fit, row_order, two_classes
from softmargin.estimators.effects import Coded, Labelled, coded
from softmargin.estimators.fits import Fit, Inclusion, Settings, options_of, run_engine
from softmargin.estimators.incomplete import (
    INCOMPLETE,
    Found,
    check_takes_missing,
    mixed_found,
    without_selection,
)
from softmargin.estimators.inference import INFERENCES, fit_vb
from softmargin.estimators.mixed import Mixed, indicators
from softmargin.estimators.problem import bound_prior, kept_columns, observed_columns
from softmargin.estimators.readout import BinaryReadout, HeldOut
from softmargin.execution.blocks import Blocks, one_blas_thread
from softmargin.execution.streams import Streams
from softmargin.inference.choices import Candidate, Part
from softmargin.link import WORTH, fit_link
from softmargin.posterior import leading
from softmargin.priors.ridge import Ridge
from softmargin.priors.terms import Terms
from softmargin.solvers.arrowhead import Arrowhead

__all__ = ["fit_mixed"]

_PLAIN = 3000  # coefficients that an engine without elimination takes


def fit_mixed(
    recipe: Recipe,
    X: Labelled,
    sign: Array,
    count: Array,
    weight: Array,
    columns: Columns,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
    part: bool = False,
) -> Mixed:
    """Fit rows with signs -1 and 1 that belong to groups; ``part`` says that they are some of the data's rows."""
    with one_blas_thread():
        terms = coded(recipe.effects, X, columns, part=part)
        model = _model(recipe, X, sign, weight, columns, terms, streams, workers)
        readout = BinaryReadout(columns, None, np.minimum(1.0, 1.0 / count), weight)
        settings = Settings(readout, callback=callback, **recipe.run)
        infer = _INCOMPLETE if recipe.incomplete else _INFERENCES
        try:
            chosen = recipe.decided() or _chosen(recipe, X, sign, count, weight, columns, model, settings, streams)
            problem = at_candidate(model, settings, chosen.candidate)
            found, values = infer["vb" if recipe.quick else recipe.inference](*problem)
        finally:
            model.blocks.close()
    size, fit = int(columns.intercept) + len(columns.keep), found.fit
    kept = None if fit.inclusion is None else Inclusion(*(part[..., :size] for part in fit.inclusion))
    marginal = fit._replace(posterior=leading(fit.posterior, size), inclusion=kept)
    components = tuple(_components(term, values) for term in terms)
    cells = found.cells.to_user(columns) if recipe.incomplete else None
    own = {"joint": fit.posterior, "terms": terms, "components": components, "law": found.law, "cells": cells}
    return Mixed(marginal, chosen.candidate.rate, recipe.loss, chosen, **own)


def _chosen(
    recipe: Recipe,
    X: Labelled,
    sign: Array,
    count: Array,
    weight: Array,
    columns: Columns,
    model: Model,
    settings: Settings,
    streams: Streams,
) -> Chosen:
    """Tilt and rate, by quick fits under a normal prior where the prior has point masses."""
    plain, label = without_selection(model), (sign > 0.0).astype(np.intp)
    quiet = settings.aside()

    def quick(candidate: Candidate, least: float) -> Fit | None:
        if recipe.incomplete:
            return INCOMPLETE["vb"](*at_candidate(plain, quiet, candidate)).fit
        return quick_fit(plain, quiet, candidate, least)

    def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
        rows, times = train.rows, count[train.rows] * train.share
        own = X.at(rows)
        if recipe.incomplete:
            own = own._replace(X=observed_columns(own.X))
        kept = kept_columns(own.X, times, intercept=columns.intercept, standardized=recipe.standardized)
        part = (own, sign[rows], times, weight[rows] * train.share, kept)
        other = fit_mixed(recipe.refit(candidate), *part, streams=streams, part=True)
        return loss_of(other.probability(X.at(test.rows), "calibrated"), label[test.rows])

    return chosen_by(two_classes(recipe, quick, loss, label, count, row_order(X.X))).chosen


def _model(
    recipe: Recipe,
    X: Labelled,
    sign: Array,
    weight: Array,
    columns: Columns,
    terms: tuple[Coded, ...],
    streams: Streams,
    workers: int,
) -> Model:
    """The groups eliminated where that can be done, and as plain columns where engines need those."""
    n, parts = len(sign), tuple(term.term(X) for term in terms)
    base: Any = design_for(X.X, columns)
    own = base.shape[1]
    free = np.zeros(own + sum(part.size for part in parts), dtype=bool)
    free[: int(columns.intercept)] = True
    fixed = bound_prior(recipe.prior, free[:own], columns, n, recipe.names)
    bound = Terms(Ridge(), tuple(term.prior for term in terms)).bind(free, n).with_fixed(fixed)
    if hasattr(fixed, "sampler") and not hasattr(fixed, "beside"):
        raise ValueError(f"{type(recipe.prior).__name__} does not go with random effects; use SpikeSlab.")
    if recipe.incomplete:
        check_takes_missing(recipe.inference)
    reason = (
        ("a fit with missing values" if recipe.incomplete else "")
        or ("a prior that selects" if bound.selects else "")
        or ("inference='hmc'" if recipe.inference == "hmc" else "")
    )
    if not reason:
        grouped: Any = Grouped(base, parts)
        blocks = Blocks(grouped, sign, weight, workers=workers)
        return Model(blocks, recipe.loss, bound, free, streams, Arrowhead(bound.coupling))
    if bound.coupling is not None:
        raise ValueError(f"{reason} needs uncorrelated effects: use RandomEffect(..., covariance='diagonal').")
    if len(free) > _PLAIN:
        raise ValueError(
            f"{reason} needs a column for every group, and {len(free)} are more than {_PLAIN}; use inference='vb' or "
            "'gibbs' with complete rows and a prior such as Ridge or Horseshoe."
        )
    rows = np.column_stack((base.rows(np.arange(n))[:, int(columns.intercept) :], indicators(parts)))
    design = Dense.plain(rows, intercept=columns.intercept)
    blocks = Blocks(design, sign, weight, workers=workers)
    return Model(blocks, recipe.loss, bound, free, streams, known=sum(part.size for part in parts))


class _Complete(NamedTuple):
    """A fit without missing values."""

    fit: Fit
    law: None = None
    cells: None = None


def _components(term: Coded, values: dict[Any, Any]) -> Components:
    """The covariance of a term's effects from what an engine says of its labels."""
    if term.labels in values:  # draws of whole matrices
        return Components(term.name, term.effects, term.turn(), values[term.labels])
    sd = np.stack([np.atleast_1d(values[label]).ravel() for label in term.labels], axis=-1)
    S = np.zeros((len(sd), sd.shape[1], sd.shape[1]))
    S[:, range(sd.shape[1]), range(sd.shape[1])] = sd**2
    for a, first in enumerate(term.labels):
        for b in range(a + 1, len(term.labels)):
            correlation = np.ravel(values.get(f"corr({first}, {term.labels[b]})", 0.0))
            S[:, a, b] = S[:, b, a] = correlation * sd[:, a] * sd[:, b]
    return Components(term.name, term.effects, term.turn(), S, values.get(None))


def _term_draws(model: Model, vi: Any) -> tuple[dict[Any, Any], Any]:
    """Draws of what a variational fit says of the terms, and the mixture over the scale of the largest one.

    A standard deviation of its own is known on a grid of values at each of which the model is fitted again, and a
    covariance by such fits around the best one.
    """
    prior: Any = model.prior
    values: dict[Any, Any] = dict(vi.prior.values)
    rng = np.random.Generator(np.random.Philox(0))
    learned = [part for part in prior.parts[1:] if part.stretch(prior.start()) is not None]
    learned.sort(key=lambda part: -len(range(*part.where.indices(model.size))))
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


def _vb(model: Model, settings: Settings) -> tuple[_Complete, dict[Any, Any]]:
    """The Gaussian fit, mixed over the standard deviation of the largest term that learns one of its own."""
    _needs_no_draws(model)
    options_of(settings)
    fit = fit_vb(model, settings)
    assert fit.vi is not None
    if fit.outcome.interrupted:
        return _Complete(fit), dict(fit.vi.prior.values)
    values, mixture = _term_draws(model, fit.vi)
    if mixture is not None:
        posterior = settings.readout.gaussian(mixture.mean, mixture.root, np.array([fit.scale]), np.ones(1))
        fit = fit._replace(posterior=posterior, held=settings.readout.of_mixture(model, mixture))
    return _Complete(fit), values


def _needs_no_draws(model: Model) -> None:
    reason = getattr(model.prior, "only_draws", "")
    if reason:
        raise ValueError(f"{reason}.")


def _has_mode(model: Model) -> None:
    _needs_no_draws(model)
    prior: Any = model.prior
    fixed = prior.parts[0].prior
    if not hasattr(fixed, "penalty") or fixed.penalty(1.0) is None:
        raise ValueError("this prior has no unique mode beside random effects; use inference='vb' or 'gibbs'.")


def _meanfield(model: Model, settings: Settings) -> tuple[_Complete, dict[Any, Any]]:
    _needs_no_draws(model)
    fit = INFERENCES["meanfield"](model, settings, None)
    return _Complete(fit), dict(fit.outcome.state.prior.values)


@dataclass(frozen=True, eq=False)
class _ModeReadout(BinaryReadout):
    """A mode beside groups; ``lost`` is by how much a row of the variational fit misses itself."""

    lost: Array | None = None

    def of_mode(self, model: Model, point: Any, penalty: Any) -> HeldOut:
        return self.of_predictors(model, point.f)

    def of_smooth_mode(self, model: Model, beta: Array, f: Array, precision: Array) -> HeldOut:
        return self.of_predictors(model, f)

    def linked(self, model: Model, f: Array, v: Array, max_kv: float, *, smooth: bool = False) -> HeldOut:
        """With an offset: few rows a group leave the mode of their effects far from the mean."""
        offset, worth = self.columns.intercept, 0.0 if self.free_offset else WORTH
        loo = fit_link(model.y, f, v, self.weight, max_kv, offset=offset, worth=worth, smooth=smooth, tol=self.tol)
        return HeldOut(f, v, loo)

    def of_predictors(self, model: Model, f: Array) -> HeldOut:
        """The mode's predictors moved as those of the variational fit.

        The rule of the span is poor here: without one of its few rows a group's others change their sets.
        """
        assert self.lost is not None
        return self.linked(model, f - self.lost, np.zeros_like(f), float("nan"), smooth=True)


def _map(model: Model, settings: Settings) -> tuple[_Complete, dict[Any, Any]]:
    """The mode given the standard deviations of a variational fit: jointly with them it is, uselessly, at zero."""
    _has_mode(model)
    prior: Any = model.prior
    quick = fit_vb(model, settings.aside())
    assert quick.vi is not None
    given, values = model.with_prior(prior.settled(quick.vi.prior)), dict(quick.vi.prior.values)
    r = settings.readout
    readout = _ModeReadout(**vars(r), lost=quick.vi.f - quick.held.f)
    if prior.coupling is None:
        return _Complete(INFERENCES["map"](given, replace(settings, readout=readout), None)), values
    engine = EM(**options_of(settings, "accelerate", "smoothing"))
    outcome = run_engine(engine, given, settings, "em", max_iter=settings.max_iter, tol=min(settings.tol, 1e-9))
    scale = outcome.state.prior.values["scale"]
    held = readout.of_predictors(given, outcome.state.f)
    fit = Fit(readout.point(outcome.state.q.mean, scale), held, scale, outcome, gap=float("nan"))
    return _Complete(fit), values


def _recorded(model: Model, fit: Fit) -> dict[Any, Any]:
    """Draws of the terms' standard deviations, or the values that they are fixed at."""
    recorded = {name: np.asarray(draws) for name, draws in fit.posterior.recorded.items()}
    return model.prior.start().values | recorded | {None: len(fit.posterior.draws)}


def _drawn(inference: str) -> Callable[[Model, Settings], tuple[_Complete, dict[Any, Any]]]:
    def run(model: Model, settings: Settings) -> tuple[_Complete, dict[Any, Any]]:
        fit = INFERENCES[inference](model, settings, None)
        return _Complete(fit), _recorded(model, fit)

    return run


def _incomplete_vb(model: Model, settings: Settings) -> tuple[Found, dict[Any, Any]]:
    found = INCOMPLETE["vb"](model, settings)
    state = found.fit.outcome.state
    if found.fit.outcome.interrupted:
        return found, dict(state.inner.prior.values)
    values, mixture = _term_draws(completed(model, state.design), state.inner)
    if mixture is not None:
        found = mixed_found(found, model, settings, mixture, own=False)
    return found, values


def _incomplete_meanfield(model: Model, settings: Settings) -> tuple[Found, dict[Any, Any]]:
    _needs_no_draws(model)
    found = INCOMPLETE["meanfield"](model, settings)
    return found, dict(found.fit.outcome.state.inner.prior.values)


def _incomplete_map(model: Model, settings: Settings) -> tuple[Found, dict[Any, Any]]:
    _has_mode(model)
    quick = INCOMPLETE["vb"](model, settings.aside()).fit.outcome.state.inner.prior
    prior: Any = model.prior
    return INCOMPLETE["map"](model.with_prior(prior.settled(quick)), settings), dict(quick.values)


def _incomplete_gibbs(model: Model, settings: Settings) -> tuple[Found, dict[Any, Any]]:
    found = INCOMPLETE["gibbs"](model, settings)
    return found, _recorded(model, found.fit)


_INFERENCES: dict[str, Callable[[Model, Settings], tuple[Any, dict[Any, Any]]]] = {
    "vb": _vb,
    "meanfield": _meanfield,
    "map": _map,
    "gibbs": _drawn("gibbs"),
    "hmc": _drawn("hmc"),
}
_INCOMPLETE: dict[str, Callable[[Model, Settings], tuple[Any, dict[Any, Any]]]] = {
    "vb": _incomplete_vb,
    "meanfield": _incomplete_meanfield,
    "map": _incomplete_map,
    "gibbs": _incomplete_gibbs,
}
