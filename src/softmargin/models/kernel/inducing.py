"""Kernel machines on inducing points: fits of all rows at once or in batches, and of rows that arrive later."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.kernel.inducing import Inducing, InducingMap
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import fit_svi
from softmargin.inference.readout import HeldOut
from softmargin.inference.settings import Fit, Settings, options_of
from softmargin.inference.trials import Chosen
from softmargin.loo.link import WORTH, fit_link
from softmargin.loo.stochastic_cavity import held_out
from softmargin.models.kernel.choice import Settled
from softmargin.models.kernel.cold import TIGHT, Cold, colder
from softmargin.models.kernel.levels import Level, fit_level, machine_of, messages_at, model_on, points_of
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.plan import FEW
from softmargin.models.kernel.search import KernelRows

__all__ = ["KernelStream", "Task", "fit_batches", "fit_points", "level_sizes"]

_MOST = 1000  # of them
_WORK = 2.5e9  # rows times squared points, at most: a step then takes a fraction of a second
_NEAR = 0.7  # share of the most points from which the most are taken
_GAIN = 0.004  # fall of the leave-one-out objective, in units of ``_unit``, from which more points are tried
_NOTHING = 0.02  # share of the predictors' variance left undetermined for which more points are not tried
_ROUGH = 1e-4  # tolerance of fits that are compared
_ROUGHER = 1e-3  # of those that more points may follow
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


def level_sizes(n: int) -> Iterator[int]:
    """Numbers of points to try for n rows: doubled from 200 on, up to all rows or what the work allows."""
    limit = min(n, _MOST, max(FEW, math.isqrt(int(_WORK / n))))
    size = FEW
    while size < _NEAR * limit:
        yield size
        size *= 2
    yield limit


def fit_points(rows: KernelRows, settled: Settled, base: float, task: Task, size: int | None) -> KernelBinary:
    """Fit with all rows in every step, on ``size`` points or on as many as leave-one-out asks for.

    The prior scale is in units of ``base``.
    """
    settings = task.settings(None)
    options_of(settings)
    tol, chosen = float(task.run["tol"]), Chosen(settled.candidate, settled.record)
    run = {"max_iter": settings.max_iter, **_watch(settings)}
    if size is not None:
        features = points_of(rows, settled.setting, size).in_units(base)
        model = model_on(rows, features, features.design(rows.X))
        level = fit_level(rows, features, model, tol=tol, state=settled.messages(rows, base), **run)
    else:
        doubling = _Doubling(rows, settled, base, {"tol": max(tol, _ROUGH), **run})
        level, cold = doubling.enough()
        if cold is not None:
            rows, chosen = cold.rows(rows, base), Chosen(cold.candidate, settled.record)
        if tol < (_ROUGH if cold is None else TIGHT) and not level.outcome.interrupted:
            level = fit_level(rows, level.features, level.model, tol=tol, state=level.outcome.state, **run)
    return machine_of(rows, level, base, chosen)


@dataclass(frozen=True, eq=False)
class _Doubling:
    """Fits with more and more points; all but the last see the rows that choices were made on, where rows are many."""

    rows: KernelRows
    settled: Settled
    base: float
    run: dict[str, Any]

    def enough(self) -> tuple[Level, Cold | None]:
        """Double the points while that pays; each fit starts from the messages and the scale of the one before.

        Where they are to be as many as there may be, the rows hardly overlap, and the cold posterior is tried as well.
        """
        record, best = self.settled.record, self.settled.level
        sizes = list(level_sizes(len(self.rows.sign)))
        for number, size in enumerate(sizes):
            if number == 0 and best is not None:
                level = best
            elif best is not None and size == sizes[-1] and (found := self.colder(size, best)) is not None:
                return found
            else:
                level = self.fitted(size, best, learns=number < _LEARNED, last=size == sizes[-1])
            gain = math.inf if number == 0 or best is None else best.held.loo.objective - level.held.loo.objective
            best = level  # also where that gained nothing: rows that are points themselves flatter the score of fewer
            spanned = best.features.size < size or best.undetermined < _NOTHING  # these points determine the others
            if spanned or best.outcome.interrupted or gain <= _GAIN * _unit(best.held.loo.objective):
                break
        assert best is not None
        if len(best.model.y) < len(self.rows.sign):
            best = self.fitted(max(best.features.size, size), best, learns=False, last=True)
        record.taken["n_inducing"] = best.features.size
        return best, None

    def colder(self, size: int, best: Level) -> tuple[Level, Cold] | None:
        """The cold posterior on ``size`` points, if folds prefer it."""
        cold = colder(self.rows, self.settled, best.held.loo.score)
        if cold is None:
            return None
        begun, record, rows = time.process_time(), self.settled.record, cold.rows(self.rows, self.base)
        setting = cold.among(size)
        features = points_of(rows, setting, size).in_units(self.base)
        model = model_on(rows, features, features.design(rows.X))
        run = self.run | {"tol": min(self.run["tol"], TIGHT)}
        level = fit_level(rows, features, model, state=cold.messages(rows, self.base), **run)
        value, score = {"n_inducing": features.size, **cold.value, **setting.value}, level.held.loo.objective
        record.add(value, "leave-one-out", score, np.nan, time.process_time() - begun)
        if level.outcome.interrupted:
            return None
        record.taken = value
        return level, cold

    def fitted(self, size: int, before: Level | None, *, learns: bool, last: bool) -> Level:
        """The fit on ``size`` points; with all rows if it is the ``last``, whose scale is that of the one before."""
        begun, settled = time.process_time(), self.settled
        rows = self.rows if last or settled.level is None else settled.seen(self.rows)
        features = points_of(rows, settled.setting, size).in_units(self.base)
        model: Any = model_on(rows, features, features.design(rows.X))
        if before is None:
            start = settled.messages(rows, self.base)
        elif len(before.model.y) == len(rows.sign):
            start = before.messages
        else:
            start, learns = messages_at(rows, machine_of(rows, before, self.base), self.base), False
        if before is not None and not learns:
            model = replace(model, prior=model.prior.at_scale(before.scale))
        run = self.run if last else self.run | {"tol": max(self.run["tol"], _ROUGHER)}
        level = fit_level(rows, features, model, state=start, **run)
        value = {"n_inducing": features.size, **settled.record.taken}
        settled.record.add(value, "leave-one-out", level.held.loo.objective, np.nan, time.process_time() - begun)
        return level


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
    model = model_on(rows, features, Inducing(features, rows.X))
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
