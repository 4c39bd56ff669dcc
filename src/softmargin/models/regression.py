"""Regression: its fitted model, and which loss it has when none is given.

Quick fits of the losses are compared by their bounds on the evidence. All of them are normalised densities of y with a
learned noise level, so the bounds of their fits are on one scale. A learned band enters at its best value, at the price
of its prior density in spreads of y. The rule was picked among leave-one-out densities with several handicaps,
leave-one-out errors, and the evidence with the band integrated out, on 588 simulated problems and 381 splits of 52 real
regressions; the differences between the first, the last and this one are small. ``docs/how-to/regression.md``
has its figures on problems that were simulated afterwards. One thing the evidence cannot see: where noise is skewed,
the density that fits it best may have its centre far from the mean of y, which is what ``predict`` is for. So the band
is refused where rows that are left out have a larger squared error with it, by more than one standard error (120
simulated problems with ten kinds of noise, and 13 real regressions).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.standardize import Columns
from softmargin.inference.choices import Record, mean_and_error
from softmargin.inference.functions import INFERENCES
from softmargin.inference.many_rows import sampled
from softmargin.inference.regression_readout import RegressionReadout, Units, half_widths
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.variational import fit_vb
from softmargin.models.compose import Data, compose
from softmargin.models.fitted import Fitted, Linear
from softmargin.models.stream import Stream
from softmargin.models.two_class import Recipe
from softmargin.posterior import diagnostics
from softmargin.priors.ridge import Ridge
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Purpose, Streams
from softmargin.unknowns.noise import Noise

__all__ = [
    "Likelihood",
    "LikelihoodChoice",
    "Regression",
    "Responses",
    "choose_likelihood",
    "fit_regression",
    "highest_evidence",
]


class Likelihood(NamedTuple):
    """A loss with what is known about its noise."""

    name: str
    loss: Any
    noise: Noise

    def of(self, model: Model) -> Model:
        """A regression with this likelihood; the noise is the first of its unknowns."""
        return replace(model, loss=self.loss).with_unknowns((self.noise, *model.unknowns[1:]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Responses(Fitted):
    """A fitted model of a numeric response; its posterior is in units of y."""

    units: Units
    likelihood: Likelihood
    record: Record  # of what was tried to choose the likelihood

    @property
    def noise(self) -> float:
        """Noise level in units of y: exp of the mean of its logarithm."""
        return self.units.spread * float(np.exp(np.log(self.fit.held.levels).mean()))

    @property
    def noise_variance(self) -> float:
        """Variance of a response around f, averaged over what is known of the noise."""
        held = self.fit.held
        known = zip(held.levels, held.losses, strict=True)
        each = [loss.noise_variance(float(level) ** -loss.noise_power) for level, loss in known]
        return self.units.spread**2 * float(np.mean(each))

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Of an approximation with draws of the noise, which samplers have recorded."""
        drawn = super().sampled(classes, wanted, streams)
        if "noise" not in drawn.variables:
            held, shape = self.fit.held, drawn.variables["intercept"].shape[:2]
            chosen = streams.at(Purpose.PREDICT, iteration=3).integers(len(held.levels), size=shape)
            drawn.variables["noise"] = self.units.spread * held.levels[chosen]
            if held.losses[0].band is not None:
                bands = np.array([loss.band for loss in held.losses])
                drawn.variables["epsilon"] = self.units.spread * bands[chosen]
        return drawn

    def predicted(self, X: Any) -> Array:
        """Posterior mean of f."""
        with one_blas_thread():
            return self._mean(X)

    def half_widths(self, X: Any, level: float) -> tuple[Array, Array]:
        """Mean of f, and half the width of the interval that contains a new y with probability ``level``."""
        with one_blas_thread():
            f, v = self.moments(X)
        spread, held = self.units.spread, self.fit.held
        return f, spread * half_widths(level, v / spread**2, held.levels, held.losses)


@dataclass(frozen=True, eq=False, kw_only=True)
class Regression(Responses, Linear):
    """A fitted regression on columns, effects of groups and missing entries."""

    stream: Stream | None = None  # where it was fitted by batches: what more rows go on from


def fit_regression(
    recipe: Recipe,
    likelihoods: tuple[Likelihood, ...],
    units: Units,
    X: Any,
    y: Array,
    count: Array,
    columns: Columns,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Regression:
    """Fit rows that count ``count`` times each, with the likelihood of the highest evidence."""
    recipe = replace(recipe, prior=recipe.prior.in_units(units.spread))
    data = Data(X, (y - units.centre) / units.spread, count, count, columns)
    form = {"loss": likelihoods[0].loss, "unknowns": (likelihoods[0].noise,), "streams": streams, "workers": workers}

    def under_ridge() -> Any:
        return compose(recipe, data, prior=Ridge(), solver="auto", **form)

    with one_blas_thread():
        whole = compose(recipe, data, **form)
        readout = RegressionReadout(columns, whole.basis, units, whole.part, count)
        settings = Settings(readout, callback=callback, **recipe.run)
        try:
            model, choosing = whole.model, settings
            if recipe.inference == "svi" and not recipe.refits:  # by batches: chosen on some of the rows
                _, model, choosing = sampled(model, settings)
            likelihood, record, first = choose_likelihood(likelihoods, model, choosing, under_ridge)
            first = first if model is whole.model else None
            if first is not None and first.outcome.interrupted and recipe.inference != "vb":
                raise KeyboardInterrupt("interrupted while the likelihood was being chosen")
            fit = INFERENCES[recipe.inference](likelihood.of(whole.model), settings, first)
        finally:
            whole.model.blocks.close()
    parted = Regression.parted(fit._replace(scale=units.spread * fit.scale), whole.reader(fit, units.spread))
    stream = Stream.of_responses(fit) if whole.basis is None else None
    return Regression(units=units, likelihood=likelihood, record=record, stream=stream, **parted)


class LikelihoodChoice(NamedTuple):
    """The likelihood that was taken, what was tried, and its variational fit where that is one of the model itself."""

    likelihood: Likelihood
    record: Record
    first: Fit | None


def choose_likelihood(
    likelihoods: tuple[Likelihood, ...], model: Model, settings: Settings, under_ridge: Callable[[], Any]
) -> LikelihoodChoice:
    """The likelihood with the highest bound on the evidence.

    Fits are those of the model; where its prior has point masses, or there are more columns than rows, they are made
    ``under_ridge`` instead. A fit that is stopped by the user ends the choice.
    """
    if len(likelihoods) == 1:
        return LikelihoodChoice(likelihoods[0], Record(), None)
    few = model.size <= len(model.y) or model.blocks.design.offers("entries") or bool(model.prior.parts)
    if few and not model.prior.selects and not model.prior.only_draws:
        return highest_evidence(likelihoods, model, settings)
    other = under_ridge()
    readout = replace(settings.readout, basis=other.basis)
    try:
        found = highest_evidence(likelihoods, other.model, replace(settings, readout=readout, callback=None))
    finally:
        other.model.blocks.close()
    if found.first is not None and found.first.outcome.interrupted:
        raise KeyboardInterrupt("interrupted while the likelihood was being chosen")
    return found._replace(first=None)


def highest_evidence(likelihoods: tuple[Likelihood, ...], model: Model, settings: Settings) -> LikelihoodChoice:
    """Fit them in turn and take the one with the highest bound, unless it predicts rows that are left out worse.

    The simplest comes first; another one must have a squared error that is not larger by more than a standard error.
    Of those there are when the user stops, a whole one is taken.
    """
    record, readout, plain = Record(), settings.readout, replace(settings, options={}, verbose=0)
    logs = math.log(readout.units.spread)  # from the model's response to the units of y
    taken: tuple[Likelihood, Fit, Array] | None = None
    for each in likelihoods:
        begun = time.process_time()
        fit = fit_vb(each.of(model), plain)
        seconds, name, bound = time.process_time() - begun, {"likelihood": each.name}, fit.outcome.state.objective
        record.add(name, "evidence bound", bound - float(readout.count.sum()) * logs, math.nan, seconds)
        left_out = mean_and_error(fit.held.log_density - logs, readout.count)
        record.add(name, "leave-one-out", *left_out, 0.0)  # told, not asked
        squares = (model.y - fit.held.f) ** 2
        error = mean_and_error(readout.units.spread**2 * squares, readout.count)
        record.add(name, "leave-one-out squared error", *error, 0.0)
        if taken is None or (
            bound > taken[1].outcome.state.objective
            and not fit.outcome.interrupted
            and not _worse(squares - taken[2], readout.count)
        ):
            taken = each, fit, squares
        if fit.outcome.interrupted:
            taken[1].outcome.interrupted, taken[1].outcome.converged = True, False
            break
    assert taken is not None
    record.taken = {"likelihood": taken[0].name}
    return LikelihoodChoice(taken[0], record, taken[1])


def _worse(difference: Array, count: Array) -> bool:
    """Whether a mean is above zero by more than its standard error."""
    mean, error = mean_and_error(difference, count)
    return mean > error
