"""Kernel machines on inducing points: fits of all rows at once or in batches, and of rows that arrive later."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome
from softmargin.designs.kernel.inducing import Inducing, InducingMap, Loose, inducing_map
from softmargin.engines.vi.inducing import InducingModel, Neighbour, fit_inducing
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import fit_svi
from softmargin.inference.readout import HeldOut
from softmargin.inference.settings import Fit, Settings, options_of
from softmargin.inference.trials import Chosen
from softmargin.loo.link import WORTH, fit_link
from softmargin.loo.stochastic_cavity import held_out, loose_cavity
from softmargin.models.kernel.choice import Settled
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.plan import FEW
from softmargin.models.kernel.search import KernelRows, Setting
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Purpose
from softmargin.solvers.full import Full

__all__ = ["KernelStream", "Task", "fit_batches", "fit_points", "level_sizes", "points_of"]

_MOST = 1000  # of them
_WORK = 2.5e9  # rows times squared points, at most: a step then takes a fraction of a second
_NEAR = 0.7  # share of the most points from which the most are taken
_GAIN = 0.004  # fall of the leave-one-out objective, in units of ``_unit``, from which more points are tried
_ROUGH = 1e-4  # tolerance of fits that are compared
_LEARNED = 2  # numbers of points for which the scale is learned; it hardly changes from there on
_KEPT = 20_000  # rows, at most, that the link is fitted on


class Seen(NamedTuple):
    """Predictors of rows without their own messages, for the link."""

    f: Array
    v: Array
    sign: Array
    weight: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelStream(KernelBinary):
    """A kernel machine on inducing points that can go on to new rows."""

    state: SVIState
    seen: Seen
    max_kv: float
    by_class: tuple[float, float]  # tilt of the classes


class Task(NamedTuple):
    """How to run: lengths, tolerances and options of the engine, and who is told."""

    run: dict[str, Any]
    callback: Callable[[int, Any], bool] | None

    def settings(self, readout: Any) -> Settings:
        """The same, resolved."""
        return Settings(readout, callback=self.callback, **self.run)


def _model(rows: KernelRows, features: InducingMap, design: Loose | Inducing) -> InducingModel:
    free = np.zeros(features.size + 1, dtype=bool)
    free[0] = True
    blocks = Blocks(design, rows.sign, rows.c)
    return InducingModel(blocks, rows.loss, rows.prior.bind(free, len(rows.sign)), free, rows.streams, Full())


def points_of(rows: Any, setting: Setting, size: int) -> InducingMap:
    """At most ``size`` inducing points that cover the rows."""
    n = rows.X.shape[0]
    if size > n:
        raise ValueError(f"n_inducing must be at most the number of rows, {n}; got {size}.")
    seed = int(rows.streams.at(Purpose.START, iteration=1).integers(2**63))
    return inducing_map(setting.kernel, rows.X, size, np.random.default_rng(seed), setting.columns)


def level_sizes(n: int) -> Iterator[int]:
    """Numbers of points to try for n rows: doubled from 200 on, up to all rows or what the work allows."""
    limit = min(n, _MOST, max(FEW, math.isqrt(int(_WORK / n))))
    size = FEW
    while size < _NEAR * limit:
        yield size
        size *= 2
    yield limit


class _Level(NamedTuple):
    """A fit with some number of points."""

    features: InducingMap
    model: InducingModel  # its scale fixed where it was learned
    outcome: Outcome
    held: HeldOut

    @property
    def scale(self) -> float:
        return float(self.model.prior.start().values["scale"])

    @property
    def messages(self) -> Neighbour:
        """What a fit with more points starts from."""
        message = self.outcome.state.message
        return Neighbour(message.w, message.b, self.scale)


def _fitted(
    rows: KernelRows, features: InducingMap, model: InducingModel, tol: float, task: Task, state: Any
) -> _Level:
    settings = task.settings(None)
    fixed, outcome = fit_inducing(model, max_iter=settings.max_iter, tol=tol, state=state, **_watch(settings))
    state, readout = outcome.state, rows.readout(features.size)
    residual: Any = fixed.blocks.residual
    held = readout.linked(fixed, *loose_cavity(state.f, state.v - residual, residual, state.message, readout.part))
    return _Level(features, fixed, outcome, held)


def fit_points(rows: KernelRows, settled: Settled, base: float, task: Task, size: int | None) -> KernelBinary:
    """Fit with all rows in every step, on ``size`` points or on as many as leave-one-out asks for.

    The prior scale is in units of ``base``.
    """
    options_of(task.settings(None))
    tol, chosen, start = float(task.run["tol"]), Chosen(settled.candidate, settled.record), settled.messages(rows, base)
    if size is not None:
        features = points_of(rows, settled.setting, size).in_units(base)
        level = _fitted(rows, features, _model(rows, features, features.design(rows.X)), tol, task, start)
    else:
        level = _enough(rows, settled, base, max(tol, _ROUGH), task, start)
        if tol < _ROUGH and not level.outcome.interrupted:
            level = _fitted(rows, level.features, level.model, tol, task, level.outcome.state)
    state, scale = level.outcome.state, level.scale
    posterior = rows.readout(level.features.size).gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    fit = Fit(posterior, level.held, base * scale, level.outcome)
    return KernelBinary(fit, rows.rate, rows.loss, chosen, map=level.features, base=base)


def _enough(rows: KernelRows, settled: Settled, base: float, tol: float, task: Task, start: Neighbour) -> _Level:
    """Double the points while that pays; each fit starts from the messages and the scale of the one before."""
    record = settled.record
    best: _Level | None = None
    for number, size in enumerate(level_sizes(len(rows.sign))):
        begun = time.process_time()
        features = points_of(rows, settled.setting, size).in_units(base)
        model: Any = _model(rows, features, features.design(rows.X))
        if best is not None and number >= _LEARNED:
            model = replace(model, prior=model.prior.at_scale(best.scale))
        level = _fitted(rows, features, model, tol, task, start if best is None else best.messages)
        value = {"n_inducing": features.size, **record.taken}
        record.add(value, "leave-one-out", level.held.loo.objective, np.nan, time.process_time() - begun)
        gain = math.inf if best is None else best.held.loo.objective - level.held.loo.objective
        best = level  # also where that gained nothing: rows that are points themselves flatter the score of fewer
        spanned = features.size < size  # these points determine the others
        if spanned or level.outcome.interrupted or gain <= _GAIN * _unit(best.held.loo.objective):
            break
    assert best is not None
    record.taken["n_inducing"] = best.features.size
    return best


def _unit(objective: float) -> float:
    """One where classes overlap, less where rows are predicted so well that little is left to gain."""
    return max(0.25, 4.0 * objective)


def fit_batches(
    rows: KernelRows,
    features: InducingMap,
    base: float,
    chosen: Chosen | None,
    task: Task,
    before: KernelStream | None = None,
) -> KernelStream:
    """Fit by batches of rows, or go on from a fit to others; each of the new rows is then seen once.

    Features are computed when a batch needs them, so that memory grows with the rows themselves alone.
    The link is fitted on the rows seen last; rows beyond these have no leave-one-out predictors.
    """
    readout = rows.readout(features.size)
    settings = task.settings(readout)
    options = dict(options_of(settings, "batch", "first", "decay", "epochs"))
    epochs = options.pop("epochs", None)
    engine = SVI(**options)
    start = None if before is None else before.state
    model = _model(rows, features, Inducing(features, rows.X))
    fit = fit_svi(model, engine, epochs=epochs, state=start, **_watch(settings))
    at, f, v, max_kv = held_out(fit, engine, readout.part, _KEPT)
    seen = Seen(f, v, rows.sign[at], rows.weight[at])
    if before is not None:
        seen = Seen(*(np.concatenate(pair)[-_KEPT:] for pair in zip(before.seen, seen, strict=True)))
        max_kv = max(max_kv, before.max_kv)
    loo = fit_link(seen.sign, seen.f, seen.v, seen.weight, max_kv, worth=0.0 if rows.tilt else WORTH)
    means, variances = np.full((2, len(rows.sign)), np.nan)
    means[at], variances[at] = f, v
    state = fit.state
    scale = float(state.prior.values["scale"])
    posterior = readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    done = Fit(posterior, HeldOut(means, variances, loo), base * scale, fit.outcome)
    kept: dict[str, Any] = {"state": state, "seen": seen, "max_kv": max_kv, "by_class": rows.by_class}
    return KernelStream(done, rows.rate, rows.loss, chosen, map=features, base=base, **kept)


def _watch(settings: Settings) -> dict[str, Any]:
    return {"progress": settings.progress("kernel", None), "callback": settings.callback}
