"""Two classes: from rows with signs to a posterior, its link, and what it says of new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.model import Model
from softmargin.designs.standardize import Columns, design_for
from softmargin.engines.mode.smoothed_start import many_rows
from softmargin.inference.choices import Candidate, Part, Rules
from softmargin.inference.many_rows import inference_for, sampled
from softmargin.inference.readout import BinaryReadout
from softmargin.inference.settings import Fit, Inclusion, Settings
from softmargin.inference.trials import (
    Chosen,
    Decision,
    OutOfFold,
    apart_loss,
    at_candidate,
    chosen_by,
    finished,
    linked_by,
    out_of_fold,
    quick_fit,
    row_order,
    two_classes,
)
from softmargin.loo.link import decided
from softmargin.losses.probability import predictive_probability, pseudo_probability, sign_probability
from softmargin.models.build import prepare
from softmargin.models.remarks import compared_with_logit
from softmargin.models.wide import choose_wide, is_wide
from softmargin.posterior import diagnostics
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, widened
from softmargin.priors.ridge import Ridge
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Binary", "Recipe", "fit_binary", "spread_of"]


# Left-out predictors of the closed form flatter the more the larger k v is, and those of refits vary the more the fewer
# rows there are: on 18 sets the links of refits were better above both limits, and worse with 60 to 140 rows.
_TRUSTED, _ENOUGH = 0.6, 200


@dataclass(frozen=True)
class Recipe:
    """What the user asked for, checked; ``run`` are the lengths, tolerances and options of the engine."""

    prior: Any
    loss: Any
    inference: str
    learning_rate: float | str
    solver: str = "auto"
    run: dict[str, Any] = field(default_factory=dict)
    names: Any = None  # of the columns
    incomplete: bool = False  # whether predictors are missing
    effects: tuple[Any, ...] = ()  # of groups, and smooth ones
    standardized: Any = True  # how columns are scaled
    tilts: bool = False  # whether the automatic choice may tilt: weights and costs that the user gave stay as they are
    candidate: Candidate | None = None  # tilt and rate of a fit that the choice compares
    quick: bool = False  # whether the spread of the scale is left out, for fits that are only compared

    @property
    def selects(self) -> bool:
        """Whether the prior says which columns are in."""
        return hasattr(self.prior, "always_include")

    def decided(self) -> Chosen | None:
        """Tilt and rate where there is nothing to choose: given, or those of a genuine likelihood."""
        if self.candidate is not None:
            return Chosen(self.candidate)
        if not isinstance(self.learning_rate, str):
            return Chosen.given(float(self.learning_rate))
        return Chosen.given(1.0) if self.loss.normalised else None

    def refit(self, candidate: Candidate, prior: Any = None) -> Recipe:
        """The recipe of a fit that is only compared."""
        run = self.run | {"options": {}, "verbose": 0}
        prior = self.prior if prior is None else prior
        return replace(self, prior=prior, inference="vb", candidate=candidate, quick=True, run=run)


@dataclass(frozen=True, eq=False)
class Binary:
    """A fitted model of two classes."""

    fit: Fit
    learning_rate: float
    loss: Any = None
    chosen: Chosen | None = None

    takes_missing = False  # whether new rows may have missing values

    @property
    def parts(self) -> tuple[Binary, ...]:
        """The models that this one consists of."""
        return (self,)

    @property
    def columns(self) -> Columns:
        return self.fit.posterior.columns

    @property
    def posterior(self) -> Any:
        """The posterior as it is reported: standard deviations are those of the base rate, whatever rate was chosen."""
        return widened(self.fit.posterior, self.stretch)

    @property
    def stretch(self) -> float:
        """By how much posterior standard deviations are widened where they are reported."""
        return 1.0 if self.chosen is None else self.chosen.stretch

    @property
    def loo(self) -> Any:
        """Leave-one-out scores and the link."""
        return self.fit.loo

    def offset(self, kind: str) -> float:
        """How far the link moves the boundary from f = 0."""
        return float(self.fit.held.offset) if kind == "calibrated" else 0.0

    def design(self, X: Any) -> Design:
        """New rows in the columns of the model."""
        return design_for(X, self.columns)

    def decision(self, X: Any, kind: str) -> Array:
        """Posterior mean of f, moved by the offset of the link so that it is positive where P is above one half."""
        with one_blas_thread():
            if self.offset(kind) == 0.0:  # no variances are needed
                return self.fit.posterior.predictor(self.design(X))
            return self._moved(*self._linked_moments(X), kind)

    def _moved(self, f: Array, v: Array, kind: str) -> Array:
        return f if self.offset(kind) == 0.0 else self.fit.loo.link.decision(f, v)

    def _linked_moments(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of f as the link takes them."""
        return self.moments(X)

    def moments(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of f."""
        f, v = self.fit.posterior.moments(self.design(X))
        return f, v

    def positive(self, X: Any, kind: str) -> Array:
        """Probability of the second class, above one half exactly where ``decision`` is positive."""
        with one_blas_thread():
            f, v = self._linked_moments(X) if kind == "calibrated" else self.moments(X)
        return decided(self._probability_given(f, v, kind), self._moved(f, v, kind))

    def _probability_given(self, f: Array, v: Array, kind: str) -> Array:
        if kind == "calibrated":
            return self.fit.loo.link.probability(f, v)
        if kind == "pseudo" and self.loss.margin_slope > 0.0:
            return pseudo_probability(f, v, self.learning_rate)
        if kind == "pseudo":
            return predictive_probability(self.loss, f, v, self.learning_rate)
        return sign_probability(f, v)

    def probability(self, X: Any, kind: str) -> Array:
        """Probabilities (rows, 2) of the classes."""
        second = self.positive(X, kind)
        return np.column_stack((1.0 - second, second))

    @property
    def loo_probability(self) -> Array:
        """The same of the training rows, each left out."""
        second = self.fit.held.probability
        return np.column_stack((1.0 - second, second))

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n) of f."""
        with one_blas_thread():
            posterior: GaussianPosterior = spread_of(self.posterior, "sample")
            return posterior.sample(self.design(X), streams.at(Purpose.PREDICT), n)

    def inclusion(self) -> Inclusion | None:
        """Inclusion probabilities of the columns of X; zero for constant ones."""
        return None if self.fit.inclusion is None else self.fit.inclusion.by_column(self.columns)

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, in the units of X."""
        return diagnostics.sampled(spread_of(self.posterior, "to_arviz"), draws, streams)

    def summary(self, names: list[str], level: float, classes: Any = None) -> pd.DataFrame:
        """One row a coefficient, the intercept first where there is one."""
        posterior = self.posterior
        if isinstance(posterior, GaussianPosterior):
            table = posterior.table(level)
        else:
            coef, intercept = posterior.user_mean()
            table = {"mean": np.concatenate(([intercept], coef))}
        frame = pd.DataFrame(table, index=pd.Index(["Intercept", *names], name="feature"))
        chosen = self.inclusion()
        if chosen is not None:
            frame["inclusion"] = np.concatenate(([1.0], chosen.chains.mean(axis=0)))
            frame["inclusion_error"] = np.concatenate(([0.0], chosen.error))
            frame["inclusion_range"] = np.concatenate(([0.0], np.ptp(chosen.chains, axis=0)))
        if isinstance(posterior, DrawsPosterior):
            frame = frame.assign(**posterior.in_blocks().mixing())
        return frame if self.columns.intercept else frame.iloc[1:]


def spread_of(posterior: Any, what: str) -> Any:
    """The posterior, where it has a spread."""
    if not posterior.has_spread:
        raise ValueError(
            f"{what} needs a posterior, and inference='map' gives a point; fit with inference='vb' or 'gibbs'."
        )
    return posterior


def fit_binary(
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
) -> Binary:
    """Fit rows with signs -1 and 1 that count ``count`` times each and weigh ``weight``."""
    with one_blas_thread():
        rows = (X, sign, count, weight, columns)
        form = {"loss": recipe.loss, "names": recipe.names, "workers": workers, "streams": streams}
        chosen = recipe.decided()
        # a mode alone: its rate is given, not chosen by fits that need more of the rows
        point = chosen is not None and recipe.inference == "map" and recipe.loss.margin_slope > 0.0
        problem = prepare(
            *rows, prior=recipe.prior, solver=recipe.solver, point=point, gaussian=recipe.inference == "vb", **form
        )
        model = problem.model
        readout = BinaryReadout(columns, problem.coordinates.basis, problem.part, weight)
        settings = Settings(readout, callback=callback, **recipe.run)
        try:
            infer = inference_for(recipe.inference, model)
            if chosen is None:
                plan = _choose(recipe, rows, form, model, settings)
                model = plan.model
                fit, chosen = plan.carried_out(infer, settings)
            else:
                fit = infer(*at_candidate(model, settings, chosen.candidate), None)
            if not many_rows(model):
                fit = fit._replace(remark=compared_with_logit(model, settings, weight, fit))
            return Binary(fit, chosen.candidate.rate, recipe.loss, chosen)
        finally:
            model.blocks.close()


class _Plan(NamedTuple):
    """What was chosen, whether its quick fit is one of the model itself, refits of its folds, and the model."""

    decision: Decision
    own: bool
    refits: Callable[[Decision, Fit], OutOfFold | None]
    model: Model

    def carried_out(self, infer: Any, settings: Settings) -> tuple[Fit, Chosen]:
        """The whole fit; the tilted one where the plain one turns out to be next to a constant."""
        decision = self.decision
        fit = self._fitted(decision, infer, settings)
        if decision.collapsed(fit) and not fit.outcome.interrupted:
            decision = decision.instead()
            fit = self._fitted(decision, infer, settings)
        return fit, decision.chosen

    def _fitted(self, decision: Decision, infer: Any, settings: Settings) -> Fit:
        """The fit, with left-out predictors of refits where those of the closed form are not to be trusted."""
        model, settings = at_candidate(self.model, settings, decision.chosen.candidate)
        fit: Fit = infer(model, settings, finished(model, settings, decision.fit) if self.own else None)
        if fit.outcome.interrupted or not fit.posterior.has_spread:
            return fit
        found = self.refits(decision, fit)
        return fit if found is None else linked_by(found, model, settings, fit)


def _choose(recipe: Recipe, rows: Any, form: dict[str, Any], model: Model, settings: Settings) -> _Plan:
    """Tilt and rate by quick fits, of some rows where there are many, and under a normal prior where it must be."""
    X, sign, count, _, columns = rows
    normal, own = None, hasattr(model.prior, "gaussian")
    light = hasattr(model.blocks.design, "entries")  # products alone: quick fits at any size
    index = np.arange(len(sign))
    if own and many_rows(model):
        index, quick_model, quick_settings = sampled(model, settings)
    elif own and (model.size <= len(sign) + model.free_dimension or light):
        quick_model, quick_settings = model, settings
    else:  # point masses, or more columns than rows: chosen under a normal prior
        normal = prepare(*rows, prior=Ridge(), **form)
        quick_model = normal.model
        quick_settings = replace(settings, readout=replace(settings.readout, basis=normal.coordinates.basis))

    label, order, number = (sign[index] > 0.0).astype(np.intp), row_order(X[index]), count[index]
    try:
        if is_wide(recipe, len(columns.keep), count):
            about = {"tilts": recipe.tilts, "label": label, "count": number, "order": order}
            wide = choose_wide(quick_model, quick_settings, **about)
            if wide is not None:
                decision = Decision(wide.chosen, wide.first)
                return _Plan(decision, quick_model is model, lambda decision, fit: wide.refits, wide.model(model))

        last: list[tuple[Candidate, Fit]] = []

        def quick(candidate: Candidate, least: float) -> Fit | None:
            near = next((one for one in reversed(last) if one[0].tilt == candidate.tilt), None)
            fit = quick_fit(quick_model, quick_settings, candidate, least, near)
            last.extend([] if fit is None else [(candidate, fit)])
            return fit

        def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
            return apart_loss(quick_model, quick_settings, candidate, whole, train, test)

        def refits(decision: Decision, fit: Fit) -> OutOfFold | None:
            whole = decision.fit.vi
            trusted = not fit.loo.max_kv > _TRUSTED or number.sum() < _ENOUGH or len(index) < len(sign)
            if trusted or whole is None:
                return None
            about = (decision.chosen.candidate, whole, label, order, Rules.folds)
            return out_of_fold(quick_model, quick_settings, *about)

        decision = chosen_by(two_classes(recipe, quick, loss, label, number, order))
        return _Plan(decision, quick_model is model, refits, model)
    finally:
        if normal is not None:
            normal.model.blocks.close()
