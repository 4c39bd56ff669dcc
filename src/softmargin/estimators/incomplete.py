"""Two classes with missing predictors: the missing cells are part of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.covariates import CovariateLaw
from softmargin.designs.base import Array
from softmargin.designs.imputed import Cells, Imputed, given_observed
from softmargin.designs.standardize import Columns
from softmargin.engines.fixed_point import EM, MeanField
from softmargin.engines.gaussian_vi import GaussianVI
from softmargin.engines.gibbs import Gibbs
from softmargin.engines.missing import Missing, MissingState, completed
from softmargin.engines.missing_cavities import missing_cavities
from softmargin.engines.missing_gibbs import CellAverage, MissingGibbs
from softmargin.engines.model import Model
from softmargin.engines.scale_mixture import Mixture, mix_over_scale
from softmargin.estimators.binary import Binary, Recipe, spread_of
from softmargin.estimators.choosing import at_candidate, chosen_by, loss_of, rough, row_order, two_classes
from softmargin.estimators.drawing import drawn_fit, sampler_of
from softmargin.estimators.fits import Fit, Inclusion, Settings, options_of, run_engine
from softmargin.estimators.problem import kept_columns, observed_columns, prepare
from softmargin.estimators.readout import BinaryReadout, HeldOut
from softmargin.execution.blocks import one_blas_thread
from softmargin.execution.streams import Purpose, Streams
from softmargin.inference.choices import Candidate, Part
from softmargin.priors.ridge import Ridge

__all__ = [
    "INCOMPLETE",
    "Found",
    "Incomplete",
    "check_takes_missing",
    "fit_incomplete",
    "imputed_table",
    "mixed_found",
    "quick_vb",
    "without_selection",
]


@dataclass(frozen=True, eq=False)
class Incomplete(Binary):
    """A fitted model with the law of the covariates, by which new rows are completed, and the training cells."""

    law: CovariateLaw | None = None
    cells: Cells | None = None

    takes_missing = True

    def design(self, X: Any) -> Any:
        """New rows: what is missing has its density given what is observed."""
        assert self.law is not None
        columns = self.columns
        rows = (X[:, columns.keep] - columns.shift) * columns.scale
        return given_observed(rows, *self.law, intercept=columns.intercept)

    def moments(self, X: Any) -> tuple[Array, Array]:
        """Missing cells add to the variance of f."""
        design: Imputed = self.design(X)
        posterior = self.fit.posterior
        v = design.row_quad(posterior.root) if posterior.has_spread else np.zeros(len(X))
        return posterior.predictor(design), v + design.excess(posterior.mean)

    def imputed(self, rows: Any, names: list[str]) -> pd.DataFrame:
        """The training cells as a table; ``rows`` are the positions of the fitted rows in the data."""
        assert self.cells is not None
        return imputed_table(self.cells, rows, names)

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n) of f, missing cells drawn too."""
        with one_blas_thread():
            rng, design = streams.at(Purpose.PREDICT), self.design(X)
            beta = spread_of(self.posterior, "sample").coefficient_draws(rng, n)
            f = np.column_stack([design.matvec(one) for one in beta])
            spread = np.column_stack([np.sqrt(np.maximum(design.excess(one), 0.0)) for one in beta])
            return np.asarray(f + spread * rng.standard_normal(f.shape))


def imputed_table(cells: Cells, rows: Any, names: list[str]) -> pd.DataFrame:
    """Missing cells with their mean and standard deviation."""
    row, column, mean, sd = cells
    return pd.DataFrame({"row": rows[row], "feature": [names[j] for j in column], "mean": mean, "sd": sd})


class Found(NamedTuple):
    """A fit, the law of the covariates and the training cells, in the units of the model."""

    fit: Fit
    law: CovariateLaw
    cells: Cells


def fit_incomplete(
    recipe: Recipe,
    X: Any,
    sign: Array,
    count: Array,
    weight: Array,
    columns: Columns,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Incomplete:
    """Fit rows with signs -1 and 1 and NaN where a predictor is missing."""
    check_takes_missing(recipe.inference)
    with one_blas_thread():
        form = {"loss": recipe.loss, "names": recipe.names, "workers": workers, "streams": streams}
        problem = prepare(X, sign, count, weight, columns, prior=recipe.prior, solver="cholesky", **form)
        model = problem.model
        settings = Settings(BinaryReadout(columns, None, problem.part, weight), callback=callback, **recipe.run)
        label = (sign > 0.0).astype(np.intp)
        quiet, plain = settings.aside(), without_selection(model)

        def quick(candidate: Candidate, least: float) -> Fit:
            return quick_vb(*at_candidate(plain, quiet, candidate)).fit

        def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
            rows, times = train.rows, count[train.rows] * train.share
            own = observed_columns(X[rows])
            kept = kept_columns(own, times, intercept=columns.intercept, standardized=recipe.standardized)
            part = (own, sign[rows], times, weight[rows] * train.share, kept)
            other = fit_incomplete(recipe.refit(candidate), *part, streams=streams)
            return loss_of(other.probability(X[test.rows], "calibrated"), label[test.rows])

        try:
            chosen = recipe.decided() or chosen_by(two_classes(recipe, quick, loss, label, count, row_order(X))).chosen
            own = at_candidate(model, settings, chosen.candidate)
            found = quick_vb(*own) if recipe.quick else INCOMPLETE[recipe.inference](*own)
        finally:
            model.blocks.close()
    cells = found.cells.to_user(columns)
    return Incomplete(found.fit, chosen.candidate.rate, recipe.loss, chosen, law=found.law, cells=cells)


def check_takes_missing(inference: str) -> None:
    """Refuse an inference that needs complete rows."""
    if inference not in INCOMPLETE:
        raise ValueError(f"inference={inference!r} does not take missing values; use 'vb' or 'gibbs'.")


def without_selection(model: Model) -> Model:
    """The model under a normal prior where its own has point masses."""
    prior: Any = model.prior
    if getattr(prior, "selects", not hasattr(prior, "gaussian")):
        if not hasattr(prior, "parts"):
            return model.with_prior(Ridge().bind(model.free, len(model.y)))
        fixed = Ridge().bind(model.free[prior.parts[0].where], len(model.y))
        return model.with_prior(prior.with_fixed(fixed))
    return model


def _held(settings: Settings, model: Model, state: MissingState, parts: list[Any], weights: Array) -> HeldOut:
    """Predictors without their own rows, of a mixture of Gaussian fits to the same completed rows."""
    outs = [
        missing_cavities(state.design, state.law, mean, root, inner.message, inner.f, inner.v, settings.readout.part)
        for inner, mean, root in parts
    ]
    f = sum(p * out[0] for p, out in zip(weights, outs, strict=True))
    v = sum(p * (out[1] + (out[0] - f) ** 2) for p, out in zip(weights, outs, strict=True))
    share = float(weights @ np.array([out[2] for out in outs]))
    held: HeldOut = settings.readout.linked(model, np.asarray(f), np.asarray(v), share)
    return held


def _fitted(engine: Any, label: str, model: Model, settings: Settings) -> Found:
    """Run a variational engine around the missing cells."""
    outcome = run_engine(Missing(engine), model, settings, label, max_iter=settings.max_iter, tol=settings.tol)
    state: MissingState = outcome.state
    inner = state.inner
    mean, root = engine.coefficients(inner)
    scale, one = inner.prior.values["scale"], np.ones(1)
    inclusion = None
    if hasattr(inner, "inclusion"):
        nothing = np.zeros_like(inner.inclusion)
        inclusion = Inclusion(inner.inclusion[None], nothing, nothing[None])
    held = _held(settings, model, state, [(inner, mean, root)], one)
    posterior = settings.readout.gaussian(mean, root, np.array([scale]), one)
    return Found(Fit(posterior, held, scale, outcome, inclusion=inclusion), state.law, state.design.cells())


def mixed_found(found: Found, model: Model, settings: Settings, mixture: Mixture, own: bool = True) -> Found:
    """A fit replaced by a mixture of fits to the same completed rows; ``own`` if over the scale of the coefficients."""
    parts = [(each, each.q.mean, each.q.root) for each in mixture.states]
    held = _held(settings, model, found.fit.outcome.state, parts, mixture.weights)
    scales, weights = (mixture.scales, mixture.weights) if own else (np.array([found.fit.scale]), np.ones(1))
    posterior = settings.readout.gaussian(mixture.mean, mixture.root, scales, weights)
    scale = float(np.exp(weights @ np.log(scales)))
    return found._replace(fit=found.fit._replace(posterior=posterior, held=held, scale=scale))


def quick_vb(model: Model, settings: Settings) -> Found:
    """A Gaussian fit without the spread of its scale."""
    return _fitted(GaussianVI(), "vb", model, settings)


def _vb(model: Model, settings: Settings) -> Found:
    if hasattr(model.prior, "variational"):
        return _fitted(model.prior.variational(**options_of(settings, "starts")), "vb", model, settings)
    reason = getattr(model.prior, "only_draws", "")
    if reason:
        raise ValueError(f"{reason}.")
    options_of(settings)
    found = _fitted(GaussianVI(), "vb", model, settings)
    several = hasattr(model.prior, "parts")  # what is beside the predictors has scales of its own to be mixed over
    if several or found.fit.outcome.interrupted or model.prior.stretch(model.prior.start()) is None:
        return found
    state = found.fit.outcome.state
    return mixed_found(found, model, settings, mix_over_scale(completed(model, state.design), state.inner))


def _meanfield(model: Model, settings: Settings) -> Found:
    if hasattr(model.prior, "variational"):
        return _vb(model, settings)
    return _fitted(MeanField(**options_of(settings, "accelerate")), "meanfield", model, settings)


def _quick(model: Model, settings: Settings) -> HeldOut:
    """Leave-one-out predictors of a quick fit, under a normal prior where the prior has point masses."""
    held: HeldOut = _vb(without_selection(model), rough(settings)).fit.held
    return held


def _map(model: Model, settings: Settings) -> Found:
    """EM; its link is fitted on the leave-one-out predictors of a Gaussian fit."""
    if not hasattr(model.prior, "mode"):
        raise ValueError("this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.")
    engine = EM(**options_of(settings, "accelerate", "smoothing"))
    outcome = run_engine(Missing(engine), model, settings, "em", max_iter=settings.max_iter, tol=settings.tol)
    state: MissingState = outcome.state
    scale = state.inner.prior.values["scale"]
    out = _quick(model, settings)
    held = settings.readout.linked(model, out.f, np.zeros_like(out.f), float("nan"), smooth=True)
    posterior = settings.readout.point(state.inner.q.mean, scale)
    return Found(Fit(posterior, held, scale, outcome, gap=float("nan")), state.law, state.design.cells())


@dataclass(frozen=True, eq=False)
class _DrawnReadout(BinaryReadout):
    """Draws with missing cells: sums over the cells, and the link of a quick fit."""

    held: HeldOut | None = None
    cells: CellAverage | None = None

    def averager(self, model: Model) -> Any:
        return self

    def add(self, chain: Any, iteration: int) -> None:
        """Take in one draw of the cells."""
        assert self.cells is not None
        self.cells.add(chain)

    def of_draws(self, model: Model, draws: Array, scale: Array, average: Any) -> HeldOut:
        assert self.held is not None
        return self.held


def _gibbs(model: Model, settings: Settings) -> Found:
    """Draws of coefficients, cells and covariates."""
    sampler = sampler_of(model, settings, Gibbs)
    cells, r = CellAverage(), settings.readout
    readout = _DrawnReadout(**vars(r), held=_quick(model, settings), cells=cells)
    fit = drawn_fit(MissingGibbs(sampler), model, replace(settings, readout=readout), "gibbs")
    return Found(fit, cells.law(), cells.imputed())


INCOMPLETE: dict[str, Callable[[Model, Settings], Found]] = {
    "vb": _vb,
    "map": _map,
    "meanfield": _meanfield,
    "gibbs": _gibbs,
}
