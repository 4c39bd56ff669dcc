"""Two classes: from rows with signs to a posterior, its link, and what it says of new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from softmargin import diagnostics
from softmargin.designs.base import Array, Design
from softmargin.designs.standardize import Columns, design_for
from softmargin.engines.approach import many_rows
from softmargin.engines.model import Model
from softmargin.estimators.fits import Fit, Inclusion, Settings
from softmargin.estimators.inference import fit_vb
from softmargin.estimators.problem import prepare
from softmargin.estimators.readout import BinaryReadout
from softmargin.estimators.tall import inference_for, sampled
from softmargin.estimators.wide import narrowed
from softmargin.execution.blocks import one_blas_thread
from softmargin.execution.streams import Purpose, Streams
from softmargin.posterior import DrawsPosterior, GaussianPosterior
from softmargin.priors.ridge import Ridge

__all__ = ["Binary", "Recipe", "better_rate", "fit_binary", "settled", "spread_of"]

_RATES = (0.25, 0.5)  # candidates of learning_rate="auto"
_MARGIN = 0.01  # the larger one must be better by this much
_TRUSTED = 0.7  # largest k v up to which the leave-one-out score may choose


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


@dataclass(frozen=True, eq=False)
class Binary:
    """A fitted model of two classes."""

    fit: Fit
    learning_rate: float
    loss: Any = None

    takes_missing = False  # whether new rows may have missing values

    @property
    def parts(self) -> tuple[Binary, ...]:
        """The models that this one consists of."""
        return (self,)

    @property
    def columns(self) -> Columns:
        return self.fit.posterior.columns

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
        """Posterior mean of f plus the offset of the link."""
        with one_blas_thread():
            return self.fit.posterior.predictor(self.design(X)) + self.offset(kind)

    def moments(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of f."""
        f, v = self.fit.posterior.moments(self.design(X))
        return f, v

    def positive(self, X: Any, kind: str) -> Array:
        """Probability of the second class."""
        with one_blas_thread():
            f, v = self.moments(X)
        if kind == "calibrated":
            return self.fit.loo.link.probability(f, v)
        if kind == "pseudo" and hasattr(self.loss, "box"):
            return diagnostics.pseudo_probability(f, v, self.learning_rate)
        if kind == "pseudo":
            return diagnostics.predictive_probability(self.loss, f, v, self.learning_rate)
        return diagnostics.sign_probability(f, v)

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
            posterior: GaussianPosterior = spread_of(self.fit.posterior, "sample")
            return posterior.sample(self.design(X), streams.at(Purpose.PREDICT), n)

    def inclusion(self) -> Inclusion | None:
        """Inclusion probabilities of the columns of X; zero for constant ones."""
        return None if self.fit.inclusion is None else self.fit.inclusion.by_column(self.columns)

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, in the units of X."""
        return diagnostics.sampled(spread_of(self.fit.posterior, "to_arviz"), draws, streams)

    def summary(self, names: list[str], level: float, classes: Any = None) -> pd.DataFrame:
        """One row a coefficient, the intercept first where there is one."""
        posterior = self.fit.posterior
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
            frame = frame.join(diagnostics.mixing_table(posterior, frame.index))
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
        # a mode alone: its rate is given, not settled by fits that need more of the rows
        given = not isinstance(recipe.learning_rate, str)
        point = given and recipe.inference == "map" and hasattr(recipe.loss, "box")
        problem = prepare(*rows, prior=recipe.prior, solver=recipe.solver, point=point, **form)
        model = problem.model
        readout = BinaryReadout(columns, problem.coordinates.basis, problem.part, weight)
        settings = Settings(readout, callback=callback, **recipe.run)
        infer = inference_for(recipe.inference, model)
        narrow = None
        light = hasattr(model.blocks.design, "entries")  # products alone: quick fits at any size
        try:
            if not isinstance(recipe.learning_rate, str):
                rate, first = float(recipe.learning_rate), None
            elif getattr(recipe.loss, "normalised", False):
                rate, first = 1.0, None
            elif many_rows(model) and hasattr(model.prior, "gaussian"):
                rate, first = settled(*sampled(model, settings))[0], None
            elif hasattr(model.prior, "gaussian") and (model.size <= len(sign) + model.free_dimension or light):
                rate, first = settled(model, settings)
                narrow = narrowed(recipe, model, settings, columns, count, first)
            else:  # point masses, or more columns than rows: settled under a normal prior
                normal = prepare(*rows, prior=Ridge(), **form)
                basis = normal.coordinates.basis
                others = replace(settings, readout=replace(readout, basis=basis))
                rate, usual = settled(normal.model, others)
                narrow = narrowed(recipe, normal.model, others, columns, count, usual)
                normal.model.blocks.close()
                first = None
            if narrow is not None:
                rate, first = narrow.rate, None if first is None else narrow.first
                model, settings = narrow.model(model), narrow.settings(settings)
            return Binary(infer(model.with_weight(rate * model.c), settings, first), rate, recipe.loss)
        finally:
            model.blocks.close()


def settled(model: Model, settings: Settings) -> tuple[float, Fit]:
    """The learning rate that the leave-one-out scores of quick fits prefer, and its fit."""
    quiet = replace(settings, options={}, callback=None, readout=settings.readout.quick())
    fits = {rate: fit_vb(model.with_weight(rate * model.c), quiet) for rate in _RATES}
    rate = better_rate(fits.__getitem__)
    return rate, fits[rate]


def better_rate(fit: Callable[[float], Fit]) -> float:
    """The learning rate whose fit has the better leave-one-out score; the larger one must be clearly better."""
    low, high = (fit(rate) for rate in _RATES)
    if low.outcome.interrupted or high.outcome.interrupted:
        raise KeyboardInterrupt("interrupted while the learning rate was being settled")
    better = high.loo.objective < low.loo.objective - _MARGIN
    return _RATES[int(better and high.loo.max_kv <= _TRUSTED)]
