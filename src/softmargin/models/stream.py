"""Linear models of rows that go on to arrive: each batch is scored before it is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.unknown import implied
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import SVIFit, fit_svi
from softmargin.inference.choices import Candidate, tilted
from softmargin.inference.readout import BinaryReadout, HeldOut
from softmargin.inference.regression_readout import RegressionReadout
from softmargin.inference.settings import Fit, Settings, options_of
from softmargin.loo.link import WORTH, bent, fit_link
from softmargin.models.compose import Data, compose
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Scored", "Stream", "more_of_two_classes", "more_responses"]

_KEPT = 50_000  # rows of a batch that are scored, at most, and rows that the link is fitted on: those scored last


class Scored(NamedTuple):
    """Predictors of rows that were not yet learned, for the link."""

    f: Array
    v: Array
    sign: Array
    weight: Array
    times: Array  # how many observations a row is

    def then(self, other: Scored) -> Scored:
        """The last rows of these and of those that came after them."""
        return Scored(*(np.concatenate(pair)[-_KEPT:] for pair in zip(self, other, strict=True)))


class Stream(NamedTuple):
    """What goes on from batch to batch beside a fitted model."""

    state: SVIState
    unknowns: tuple[Any, ...] = ()  # states that the model was made with
    by_class: tuple[float, float] = (1.0, 1.0)  # what a row of either class weighs, its own weight apart
    scored: Scored | None = None

    @classmethod
    def of_two_classes(cls, fit: Fit, sign: Array, weight: Array, count: Array, candidate: Candidate) -> Stream | None:
        """After a fit by batches; the rows of which it has left-out predictors are those that were scored first."""
        if not isinstance(fit.outcome.state, SVIState):
            return None
        share = np.ones(2)
        if candidate.tilt:
            label = (sign > 0.0).astype(np.intp)
            share[label] = tilted(label, weight)
        known = np.isfinite(fit.held.f)
        scored = Scored(fit.held.f[known], fit.held.v[known], sign[known], weight[known], count[known])
        by_class = candidate.rate * float(share[0]), candidate.rate * float(share[1])
        return cls(fit.outcome.state, (), by_class, Scored(*(part[-_KEPT:] for part in scored)))

    @classmethod
    def of_responses(cls, fit: Fit) -> Stream | None:
        """The same of numbers, whose noise stays what it was."""
        known = isinstance(fit.outcome.state, SVIState)
        return cls(fit.outcome.state, fit.unknowns) if known else None


class _Learned(NamedTuple):
    """A batch: which of its rows were scored, their moments before it was learned, and the run that learned it."""

    at: Any
    f: Array
    v: Array
    run: SVIFit


def _learn(model: Model, settings: Settings, state: SVIState) -> _Learned:
    """Score the rows, then add them to those that the state has seen."""
    options = dict(options_of(settings, "batch", "first", "decay", "mean_field", "epochs"))
    epochs, engine = options.pop("epochs", None), SVI(**options)
    at = np.arange(model.n)
    if model.n > _KEPT:
        at = np.sort(shuffled(at[:_KEPT], model.n, model.streams.at(Purpose.CAVITY)))
    some = model.blocks.pick(at)
    f, v = some.matvec(state.q.mean), some.row_quad(state.q.root)
    watch = {"progress": settings.progress("svi", None), "callback": settings.callback}
    return _Learned(at, f, v, fit_svi(model, engine, epochs=epochs, state=state, **watch))


def more_of_two_classes(
    recipe: Any,
    before: Any,
    X: Any,
    sign: Array,
    count: Array,
    weight: Array,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Any:
    """A model of two classes after more rows: columns, tilt and learning rate stay, scale and link are learned on."""
    columns, stream = before.columns, before.stream
    with one_blas_thread():
        data = Data(X, sign, count, weight, columns)
        whole = compose(replace(recipe, solver="cholesky"), data, loss=before.loss, streams=streams, workers=workers)
        model = whole.model.with_weight(weight * np.where(sign > 0.0, stream.by_class[1], stream.by_class[0]))
        readout = BinaryReadout(columns, None, whole.part, weight)
        try:
            at, f, v, run = _learn(model, Settings(readout, callback=callback, **recipe.run), stream.state)
        finally:
            model.blocks.close()
    scored = stream.scored.then(Scored(f, v, sign[at], weight[at], count[at]))
    worth = 0.0 if before.chosen.candidate.tilt else WORTH
    kv = before.fit.loo.max_kv
    loo = fit_link(scored.sign, scored.f, scored.v, scored.weight, kv, offset=columns.intercept, worth=worth)
    if columns.intercept:
        loo, _ = bent(loo, scored.sign, scored.f, scored.v, scored.weight, scored.times)
    held, scale = HeldOut(f, v, loo).scattered(at, len(sign)), float(run.state.prior.values["scale"])
    posterior = readout.gaussian(run.state.q.mean, run.state.q.root, np.array([scale]), np.ones(1))
    fit = Fit(posterior, held, scale, run.outcome)
    parted = type(before).parted(fit, whole.reader(fit))
    return replace(before, stream=stream._replace(state=run.state, scored=scored), **parted)


def more_responses(
    recipe: Any,
    before: Any,
    X: Any,
    y: Array,
    count: Array,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> Any:
    """A regression after more rows: columns, units and noise stay, the scale is learned on."""
    columns, stream, units, likelihood = before.columns, before.stream, before.units, before.likelihood
    with one_blas_thread():
        data = Data(X, (y - units.centre) / units.spread, count, count, columns)
        form = {"loss": likelihood.loss, "unknowns": (likelihood.noise,), "streams": streams, "workers": workers}
        whole = compose(replace(recipe, solver="cholesky"), data, **form)
        model = implied(likelihood.of(whole.model), stream.unknowns)
        readout = RegressionReadout(columns, None, units, whole.part, count)
        try:
            at, f, v, run = _learn(model, Settings(readout, callback=callback, **recipe.run), stream.state)
        finally:
            model.blocks.close()
    some = replace(readout, part=readout.part[at], count=count[at])
    held = some.scored(model.y[at], f, v, before.fit.held.loo.max_kv, stream.unknowns).scattered(at, len(y))
    scale = float(run.state.prior.values["scale"])
    posterior = readout.gaussian(run.state.q.mean, run.state.q.root, np.array([scale]), np.ones(1))
    fit = Fit(posterior, held, units.spread * scale, run.outcome, unknowns=stream.unknowns)
    parted = type(before).parted(fit, whole.reader(fit, units.spread))
    return replace(before, stream=stream._replace(state=run.state), **parted)
