"""From rows to a fitted kernel regression: width and likelihood by the evidence, then one way for every basis."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model
from softmargin.core.unknown import implied
from softmargin.designs.dense import Dense
from softmargin.designs.kernel.features import KernelMap, kernel_map
from softmargin.designs.kernel.inducing import Inducing, InducingMap
from softmargin.designs.standardize import Columns
from softmargin.engines.alternate import Alternate
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.inducing import InducingModel, fit_inducing
from softmargin.engines.vi.stochastic import SVI
from softmargin.engines.vi.stochastic_fit import fit_svi
from softmargin.inference.choices import Record
from softmargin.inference.functions import INFERENCES
from softmargin.inference.regression_readout import RegressionReadout, Units
from softmargin.inference.settings import Fit, Settings, options_of, rough
from softmargin.inference.variational import at_one_scale
from softmargin.loo.stochastic_cavity import held_out
from softmargin.models.kernel.inducing import level_sizes
from softmargin.models.kernel.levels import points_of
from softmargin.models.kernel.models import Featured
from softmargin.models.kernel.plan import FEW, Plan, merged
from softmargin.models.kernel.search import Search, Setting, Width, kernel_prior, settings_of
from softmargin.models.regression import Likelihood, Responses, highest_evidence
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose, Streams
from softmargin.solvers.full import Full

__all__ = ["KernelRegression", "fit_kernel_regression"]

_SEARCHED = 400  # rows, at most, that width and likelihood are chosen on
_LOOSE = 1e-6  # share of a row's variance that the features of a fit which is only compared may leave out
_STEPS, _ROUGH = 40, 1e-4  # limits of such a fit
_FLAT = 1e4  # standard deviation of the intercept, in spreads of the responses
_GAIN = 0.004  # rise of the leave-one-out log density from which more points are tried
_LEARNED = 2  # numbers of points for which the scale is learned; it hardly changes from there on
_FIRST = 5_000  # rows that tell the noise of a fit by batches
_KEPT = 20_000  # rows, at most, that such a fit has leave-one-out predictors of


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelRegression(Featured, Responses):
    """A fitted regression in kernel features."""


class Start(NamedTuple):
    """A likelihood whose noise starts where another fit had it, and the prior scale of that fit."""

    likelihood: Likelihood
    scale: float

    @classmethod
    def after(cls, likelihood: Likelihood, state: Any, base: float) -> Start:
        """Where a fit in units of ``base`` ended."""
        noise = state.unknowns[0]
        level = float(noise.weight ** (-1.0 / noise.loss.noise_power))
        there = likelihood._replace(loss=noise.loss, noise=replace(likelihood.noise, first=level))
        return cls(there, base * float(state.prior.values["scale"]))

    def other(self, likelihood: Likelihood) -> Start:
        """Another likelihood from the same noise level on."""
        return self._replace(likelihood=likelihood._replace(noise=replace(likelihood.noise, first=self.level)))

    @property
    def level(self) -> float | None:
        return self.likelihood.noise.first


@dataclass(frozen=True, eq=False)
class Targets:
    """Training rows with responses in units of the model, and what is known of their prior scale."""

    X: Any
    y: Array
    count: Array
    scale: float | str
    streams: Streams
    at: Any = None  # their numbers in all rows, for a precomputed kernel
    unit: float = 1.0  # spread of the responses

    def take(self, index: Any) -> Targets:
        """Some of the rows."""
        at = None if self.at is None else self.at[index]
        return replace(self, X=self.X[index], y=self.y[index], count=self.count[index], at=at)

    def base(self, start: Start) -> float:
        """What a fit takes as its unit of a learned scale, so that it starts where another one ended."""
        return start.scale if isinstance(self.scale, str) else 1.0

    def _prior(self, start: Start) -> Any:
        """The prior in these units; what is not given is learned in spreads of the responses."""
        base = self.base(start)
        prior = kernel_prior(self.scale, base / self.unit if isinstance(self.scale, str) else base)
        return replace(prior, intercept_scale=_FLAT * self.unit)

    def model(self, design: Any, start: Start, kind: Any = Model) -> Any:
        """The model on a design of features, in units of the start's scale."""
        free = np.zeros(design.shape[1], dtype=bool)
        free[0] = True
        blocks, (_, loss, noise) = Blocks(design, self.y, self.count), start.likelihood
        prior = self._prior(start).bind(free, len(self.y))
        return kind(blocks, loss, prior, free, self.streams, Full(), unknowns=(noise,))

    def featured(self, setting: Setting, start: Start, **loose: float) -> tuple[KernelMap, Model]:
        """The features of all rows, and the model on them."""
        features, F = kernel_map(setting.kernel, self.X, self.count, setting.columns, self.at, **loose)
        base = self.base(start)
        return features.in_units(base), self.model(Dense.plain(base * F, intercept=True), start)

    def readout(self, size: int, units: Units) -> RegressionReadout:
        """How results on this many features, taken as they are, are read."""
        columns = Columns(np.arange(size), np.zeros(size), np.ones(size), True, size)
        return RegressionReadout(columns, None, units, np.minimum(1.0, 1.0 / self.count), self.count)


class _Tried(Width):
    """A quick fit at one width, ranked by its bound on the evidence per row."""

    __slots__ = ()

    @property
    def rank(self) -> tuple[bool, float]:
        return False, -float(self.machine.evidence) / float(self.machine.total)


class _Quick(NamedTuple):
    evidence: float  # in units of y
    total: float  # observations
    start: Start


class _Widths(Search):
    """Quick fits of one likelihood at several widths, each started from where the best before it ended."""

    def __init__(self, rows: Targets, record: Record, start: Start, units: Units):
        super().__init__(rows, record)
        self.first, self.total = start, float(rows.count.sum())
        self.logs = self.total * math.log(units.spread)  # from the model's responses to the units of y

    def at(self, setting: Setting, step: float) -> Width:
        key = setting.kernel, step
        if key not in self.found:
            begun, tried, rows = time.process_time(), setting.wider(step), self.rows
            best = min(self.found.values(), key=lambda one: one.rank, default=None)
            start = self.first if best is None else best.machine.start
            _, model = rows.featured(tried, start, tolerance=_LOOSE)
            state = run(Alternate(GaussianVI()), model, max_iter=_STEPS, tol=_ROUGH, inner=True).state
            found = Start.after(start.likelihood, state, rows.base(start))
            evidence, value = state.objective - self.logs, tried.value | {"likelihood": start.likelihood.name}
            self.found[key] = _Tried(setting, step, _Quick(evidence, self.total, found))
            self.record.add(value, "evidence bound", evidence, np.nan, time.process_time() - begun)
        return self.found[key]

    def best(self, settings: list[Setting], *, learned: bool) -> Width:
        """The setting with the highest evidence, its width moved as long as that raises it."""
        best = min((self.at(setting, 0.0) for setting in settings), key=lambda one: one.rank)
        return self.refined(self.climb(best)) if learned else best


class Settled(NamedTuple):
    """The kernel to take, and where a fit with it starts."""

    setting: Setting
    start: Start
    record: Record


def _settle(plan: Plan, rows: Targets, likelihoods: tuple[Likelihood, ...], units: Units) -> Settled:
    """Width and units of the columns under the first likelihood, then the likelihood, then the width under that."""
    some, record = rows, Record()
    if len(rows.y) > _SEARCHED:
        some = rows.take(np.sort(_some_rows(rows, _SEARCHED)))
    settings = settings_of(some, plan.kernel, plan.length_scale, plan.scaled)
    learned = plan.length_scale == "learn" and settings[0].kernel.length is not None
    width = _Widths(some, record, Start(likelihoods[0], rows.unit), units).best(settings, learned=learned)
    start, setting = width.machine.start, width.setting.wider(width.step)
    if len(likelihoods) > 1:
        features, model = some.featured(setting, start, tolerance=_LOOSE)
        told = rough(Settings(some.readout(len(features.lower), units)))
        chosen = highest_evidence(tuple(start.other(each).likelihood for each in likelihoods), model, told)
        record.entries += [entry._replace(value=setting.value | entry.value) for entry in chosen.record.entries]
        if chosen.likelihood.name != likelihoods[0].name:
            again = _Widths(some, record, start.other(chosen.likelihood), units).best([setting], learned=learned)
            start, setting = again.machine.start, setting.wider(again.step)
    record.taken = setting.value | {"likelihood": start.likelihood.name}
    return Settled(setting, start, record)


def _some_rows(rows: Targets, size: int) -> Any:
    """Numbers of some of the rows."""
    return shuffled(np.arange(size), len(rows.y), rows.streams.at(Purpose.START))


def fit_kernel_regression(
    plan: Plan,
    likelihoods: tuple[Likelihood, ...],
    units: Units,
    X: Any,
    y: Array,
    count: Array,
    *,
    streams: Streams,
    at: Any = None,
    unit: float = 1.0,
    callback: Callable[[int, Any], bool] | None = None,
) -> KernelRegression:
    """Fit rows that count ``count`` times each, with the width and the likelihood of the highest evidence.

    ``unit`` is the spread of the responses in ``units``. Copies of a row are one row that counts more: no work is done
    twice, and the result is that of weights.
    """
    with one_blas_thread():
        rows = Targets(X, (y - units.centre) / units.spread, count, plan.scale, streams, at, unit)
        rows, inverse = merged(plan, rows, rows.y, "count")
        settled = _settle(plan, rows, likelihoods, units)
        if plan.inference == "svi":
            found = _by_batches(plan, rows, settled, units, callback)
        elif plan.inducing(len(rows.y)):
            found = _on_points(plan, rows, settled, units, callback)
        else:
            features, model = rows.featured(settled.setting, settled.start)
            settings = Settings(rows.readout(len(features.lower), units), callback=callback, **plan.run)
            found = _Done(features, INFERENCES[plan.inference](model, settings, None), settled.start)
    base, fit = rows.base(found.start), found.fit
    left = fit.held
    held = left._replace(f=left.f[inverse], v=left.v[inverse], log_density=left.log_density[inverse])
    fit = fit._replace(held=held, scale=units.spread * base * fit.scale)
    own: dict[str, Any] = {"units": units, "likelihood": found.start.likelihood, "record": settled.record}
    return KernelRegression(fit, map=found.features, base=base, **own)


class _Done(NamedTuple):
    features: KernelMap
    fit: Fit
    start: Start


class _Level(NamedTuple):
    """A fit on some number of points; its model has the scale that it found."""

    features: InducingMap
    model: InducingModel
    outcome: Outcome
    fit: Fit
    start: Start


def _fitted(
    rows: Targets,
    features: InducingMap,
    start: Start,
    settings: Settings,
    *,
    learned: bool = True,
    before: _Level | None = None,
) -> _Level:
    """Fit the rows on the points, the scale ``learned`` or kept; or go on from a fit ``before`` on the same points."""
    engine = Alternate(GaussianVI())
    if before is None:
        model: Any = rows.model(features.design(rows.X), start, InducingModel)
        there = model.with_prior(model.prior.at_scale(float(model.prior.start().values["scale"])))
        model, state = model if learned else there, engine.init(there)
    else:
        model, state = before.model, before.outcome.state
    watch = {"progress": settings.progress("kernel", None), "callback": settings.callback}
    fixed, outcome = fit_inducing(
        model, engine=engine, max_iter=settings.max_iter, tol=settings.tol, state=state, **watch
    )
    return _Level(features, fixed, outcome, at_one_scale(GaussianVI(), fixed, settings, outcome), start)


def _on_points(
    plan: Plan, rows: Targets, settled: Settled, units: Units, callback: Callable[[int, Any], bool] | None
) -> _Done:
    """On as many points as are given, or twice as many as long as left-out rows are predicted better by it."""

    def told(size: int, **limits: Any) -> Settings:
        return replace(Settings(rows.readout(size, units), callback=callback, **plan.run), **limits)

    options_of(told(1))
    tol, start, best = float(plan.run["tol"]), settled.start, None
    sizes = level_sizes(len(rows.y)) if plan.n_inducing is None else iter([plan.n_inducing])
    for number, size in enumerate(sizes):
        begun, base = time.process_time(), rows.base(start)
        features = points_of(rows, settled.setting, size).in_units(base)
        close = told(features.size, tol=max(tol, _ROUGH))
        level = _fitted(rows, features, start, close, learned=number < _LEARNED)
        density = level.fit.held.loo.log_density
        value = {"n_inducing": features.size, **settled.record.taken}
        settled.record.add(value, "leave-one-out", density, np.nan, time.process_time() - begun)
        gain = np.inf if best is None else density - best.fit.held.loo.log_density
        best = level
        if features.size < size or level.outcome.interrupted or gain <= _GAIN:
            break
        start = Start.after(start.likelihood, level.outcome.state, base)
    assert best is not None
    settled.record.taken["n_inducing"] = best.features.size
    if tol < _ROUGH and not best.outcome.interrupted:
        best = _fitted(rows, best.features, best.start, told(best.features.size), before=best)
    return _Done(best.features, best.fit, best.start)


def _by_batches(
    plan: Plan, rows: Targets, settled: Settled, units: Units, callback: Callable[[int, Any], bool] | None
) -> _Done:
    """By batches of rows, at the noise that some of them have; very many rows have no leave-one-out predictors."""
    n, start = len(rows.y), settled.start
    features = points_of(rows, settled.setting, min(FEW, n) if plan.n_inducing is None else plan.n_inducing)
    features, readout = features.in_units(rows.base(start)), rows.readout(features.size, units)
    settings = Settings(readout, callback=callback, **plan.run)
    options = dict(options_of(settings, "batch", "first", "decay", "epochs"))
    epochs, engine = options.pop("epochs", None), SVI(**options)
    few = rows.take(np.sort(_some_rows(rows, min(n, _FIRST))))
    quick = rough(replace(settings, readout=few.readout(features.size, units)))
    states = _fitted(few, features, start, quick).fit.unknowns
    model = implied(rows.model(Inducing(features, rows.X), start, InducingModel), states)
    progress = settings.progress("svi", None)
    done = fit_svi(model, engine, epochs=epochs, progress=progress, callback=callback)
    at, f, v, max_kv = held_out(done, engine, readout.part, _KEPT)
    held = replace(readout, part=readout.part[at], count=readout.count[at])
    left_out = held.of_moments(rows.y[at], f, v, max_kv, states).scattered(at, n)
    scale = float(done.state.prior.values["scale"])
    posterior = readout.gaussian(done.state.q.mean, done.state.q.root, np.array([scale]), np.ones(1))
    return _Done(features, Fit(posterior, left_out, scale, done.outcome, unknowns=states), start)
