"""Two classes: from rows with signs to a posterior, its link, and what it says of new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.standardize import Columns
from softmargin.engines.mode.smoothed_start import many_rows
from softmargin.inference.choices import Candidate, Rules
from softmargin.inference.draws import without_selection
from softmargin.inference.functions import inference_for
from softmargin.inference.many_rows import sampled
from softmargin.inference.readout import BinaryReadout
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.trials import (
    Apart,
    Chosen,
    Decision,
    OutOfFold,
    at_candidate,
    chosen_by,
    finished,
    linked_by,
    loss_of,
    out_of_fold,
    quick_fit,
    two_classes,
)
from softmargin.inference.variational import fit_vb
from softmargin.loo.folds import Part, row_order
from softmargin.loo.link import FEW, TRUSTED, decided
from softmargin.losses.probability import predictive_probability, pseudo_probability, sign_probability
from softmargin.models.build import kept_columns
from softmargin.models.cold import WRONG, colder
from softmargin.models.compose import Data, compose, some_rows
from softmargin.models.fitted import Fitted, Linear
from softmargin.models.remarks import compared_with_logit
from softmargin.models.stream import Stream
from softmargin.models.wide import choose_wide, is_wide
from softmargin.priors.ridge import Ridge
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["Binary", "LinearBinary", "Recipe", "fit_two_classes"]


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
        return bool(self.prior.point_masses)

    @property
    def refits(self) -> bool:
        """Whether other rows mean other columns, so that folds are fitted as data of their own."""
        return self.incomplete or bool(self.effects)

    @property
    def chooses(self) -> bool:
        """Whether tilt and rate are chosen, here or for the fit that this one is compared for."""
        return isinstance(self.learning_rate, str) and not self.loss.normalised

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
class Binary(Fitted):
    """A fitted model of two classes."""

    learning_rate: float
    loss: Any = None
    chosen: Chosen | None = None

    @property
    def stretch(self) -> float:
        return 1.0 if self.chosen is None else self.chosen.stretch

    @property
    def loo(self) -> Any:
        """Leave-one-out scores and the link."""
        return self.fit.loo

    def offset(self, kind: str) -> float:
        """How far the link moves the boundary from f = 0."""
        return float(self.fit.held.offset) if kind == "calibrated" else 0.0

    def decision(self, X: Any, kind: str) -> Array:
        """Posterior mean of f, moved by the offset of the link so that it is positive where P is above one half."""
        with one_blas_thread():
            if self.offset(kind) == 0.0:  # no variances are needed
                return self._mean(X)
            return self._moved(*self._linked_moments(X), kind)

    def _moved(self, f: Array, v: Array, kind: str) -> Array:
        return f if self.offset(kind) == 0.0 else self.fit.loo.link.decision(f, v)

    def spread(self, X: Any, kind: str) -> Array:
        """As of f; where the decision is shrunk by the spread of f, so is its own."""
        spread, link = super().spread(X, kind), self.fit.loo.link
        curved = kind == "calibrated" and link.bend is not None
        return np.asarray(spread / link.shrink(self._linked_moments(X)[1])) if curved else spread

    def _linked_moments(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of f as the link takes them."""
        return self.moments(X)

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


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearBinary(Linear, Binary):
    """A fitted model of two classes with columns, effects of groups and missing entries."""

    stream: Stream | None = None  # where it was fitted by batches: what more rows go on from

    def _linked_moments(self, X: Any) -> tuple[Array, Array]:
        """The link weighs what is not known by lam, learned from rows of known groups.

        What groups vary by is no lack of knowledge and counts in full.
        """
        f, v, between = self.reader.moments(self.joint, X)
        return f, v + between / self.fit.loo.lam if self.reader.terms else v


def fit_two_classes(
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
    part: bool = False,
) -> LinearBinary:
    """Fit rows with signs -1 and 1 that count ``count`` times each and weigh ``weight``.

    ``part`` says that they are some of the data's rows.
    """
    with one_blas_thread():
        data = Data(X, sign, count, weight, columns)
        form = {"loss": recipe.loss, "workers": workers, "streams": streams, "part": part}
        chosen = recipe.decided()
        # a mode alone: its rate is given, not chosen by fits that need more of the rows
        point = chosen is not None and recipe.inference == "map" and recipe.loss.margin_slope > 0.0
        whole = compose(recipe, data, point=point, gaussian=recipe.inference == "vb", **form)
        model = whole.model
        settings = Settings(BinaryReadout(columns, whole.basis, whole.part, weight), callback=callback, **recipe.run)
        try:
            infer = _quick if recipe.quick else inference_for(recipe.inference, model)
            if chosen is None:
                choose = _choose_by_refits if recipe.refits else _choose
                plan = choose(recipe, data, form, model, settings)
                model = plan.model
                fit, chosen = plan.carried_out(infer, settings)
            else:
                fit = infer(*at_candidate(model, settings, chosen.candidate), None)
            if fit.posterior.has_spread and columns.intercept and not recipe.quick:  # a mode decides as an SVM does
                fit = fit._replace(held=fit.held.bent(sign, weight, count))
            if not (many_rows(model) or recipe.refits or recipe.quick):
                fit = fit._replace(remark=fit.remark or compared_with_logit(model, settings, weight, fit))
        finally:
            model.blocks.close()
    parted = LinearBinary.parted(fit, whole.reader(fit))
    stream = Stream.of_two_classes(fit, sign, weight, count, chosen.candidate) if whole.basis is None else None
    own: Any = {"learning_rate": chosen.candidate.rate, "loss": recipe.loss, "chosen": chosen, "stream": stream}
    return LinearBinary(**own, **parted)


def _quick(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    fit: Fit = fit_vb(model, settings.aside())
    if fit.outcome.interrupted:
        raise KeyboardInterrupt("interrupted while the learning rate was being chosen")
    return fit


class _Plan(NamedTuple):
    """What was chosen, whether its quick fit is one of the model itself, refits of its folds, and the model.

    ``whole`` says whether the quick fit, run on, is the fit asked for.
    """

    decision: Decision
    own: bool
    refits: Callable[[Decision, Fit], OutOfFold | None]
    model: Model
    whole: bool
    wrong: float = 0.0  # labels that the link takes for wrong

    def carried_out(self, infer: Any, settings: Settings) -> tuple[Fit, Chosen]:
        """The whole fit; the tilted one where the plain one turns out to be next to a constant."""
        decision = self.decision
        settings = replace(settings, readout=replace(settings.readout, wrong=self.wrong))
        fit = self._fitted(decision, infer, settings)
        if decision.collapsed(fit) and not fit.outcome.interrupted:
            decision = decision.instead()
            fit = self._fitted(decision, infer, settings)
        return fit, decision.chosen

    def _fitted(self, decision: Decision, infer: Any, settings: Settings) -> Fit:
        """The fit, with left-out predictors of refits where those of the closed form are not to be trusted."""
        model, settings = at_candidate(self.model, settings, decision.chosen.candidate)
        first = finished(model, settings if self.whole else settings.aside(), decision.fit) if self.own else None
        fit: Fit = infer(model, settings, first)
        if fit.outcome.interrupted or not fit.posterior.has_spread:
            return fit
        found = self.refits(decision, fit)
        return fit if found is None else linked_by(found, model, settings, fit)


def _choose_by_refits(recipe: Recipe, data: Data, form: dict[str, Any], model: Model, settings: Settings) -> _Plan:
    """Tilt and rate of a model with unknowns or terms: other rows mean other columns, so folds are whole fits."""
    X, sign, count, weight, columns = data
    plain, label = without_selection(model), (sign > 0.0).astype(np.intp)
    quiet = settings.aside()

    def quick(candidate: Candidate, least: float) -> Fit | None:
        whole: Fit | None = fit_vb(*at_candidate(plain, quiet, candidate)) if recipe.incomplete else None
        return quick_fit(plain, quiet, candidate, least) if whole is None else whole

    def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
        rows, times = train.rows, count[train.rows] * train.share
        own, values = some_rows(recipe, X, rows)
        held = X.at(test.rows) if recipe.effects else X[test.rows]
        kept = kept_columns(values, times, intercept=columns.intercept, standardized=recipe.standardized)
        some = (own, sign[rows], times, weight[rows] * train.share, kept)
        other = fit_two_classes(recipe.refit(candidate), *some, streams=form["streams"], part=True)
        return loss_of(other.probability(held, "calibrated"), label[test.rows])

    order = cache(lambda: row_order(X.X if recipe.effects else X, columns, label, count))
    chosen = chosen_by(two_classes(recipe, quick, loss, label, count, order)).chosen
    return _Plan(Decision(chosen, None), False, lambda decision, fit: None, model, False)


def _choose(recipe: Recipe, data: Data, form: dict[str, Any], model: Model, settings: Settings) -> _Plan:
    """Tilt and rate by quick fits, of some rows where there are many, and under a normal prior where it must be."""
    X, sign, count, _, columns = data
    normal, own, whole = None, not model.prior.selects, recipe.inference == "vb"
    light = model.blocks.design.offers("entries")  # products alone: quick fits at any size
    index = np.arange(len(sign))
    if own and many_rows(model):
        index, quick_model, quick_settings = sampled(model, settings)
    elif own and (model.size <= len(sign) + model.free_dimension or light):
        quick_model, quick_settings = model, settings
    else:  # point masses, or more columns than rows: chosen under a normal prior
        normal = compose(recipe, data, prior=Ridge(), solver="auto", **form)
        quick_model = normal.model
        quick_settings = replace(settings, readout=replace(settings.readout, basis=normal.basis))

    label, number = (sign[index] > 0.0).astype(np.intp), count[index]
    order = cache(lambda: row_order(X[index], columns, label, number))
    try:
        if is_wide(recipe, len(columns.keep), count):
            aims: dict[str, Any] = {"tilts": recipe.tilts, "label": label, "count": number, "order": order()}
            wide = choose_wide(quick_model, quick_settings, **aims)
            if wide is not None:
                decision = Decision(wide.chosen, wide.first)
                own = quick_model is model
                return _Plan(decision, own, lambda decision, fit: wide.refits, wide.model(model), whole)

        last: list[tuple[Candidate, Fit]] = []

        def quick(candidate: Candidate, least: float) -> Fit | None:
            near = next((one for one in reversed(last) if one[0].tilt == candidate.tilt), None)
            fit = quick_fit(quick_model, quick_settings, candidate, least, near)
            last.extend([] if fit is None else [(candidate, fit)])
            return fit

        parts = Apart(quick_model, quick_settings)

        def refits(decision: Decision, fit: Fit) -> OutOfFold | None:
            whole = decision.fit.vi
            trusted = not fit.loo.max_kv > TRUSTED or number.sum() < FEW or len(index) < len(sign)
            if trusted or whole is None:
                return None
            about = (decision.chosen.candidate, whole, label, order(), Rules.folds)
            return out_of_fold(parts, *about)

        trials = two_classes(recipe, quick, parts.loss, label, number, order)
        decision, own, wrong = chosen_by(trials), quick_model is model, 0.0
        cold = colder(recipe, trials, decision, parts)
        if cold is not None:
            decision, parts, model, wrong = cold.decision, cold.parts, cold.model(model), WRONG
        return _Plan(decision, own, refits, model, whole, wrong)
    finally:
        if normal is not None:
            normal.model.blocks.close()
