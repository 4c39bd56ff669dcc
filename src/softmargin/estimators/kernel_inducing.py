"""Kernel machines on inducing points: fits of all rows at once or in batches, and of rows that arrive later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.inducing import Inducing, InducingMap, Loose, inducing_map
from softmargin.designs.kernels import Kernel
from softmargin.designs.standardize import Columns
from softmargin.engines.inducing import InducingModel, fit_inducing, loose_cavity
from softmargin.engines.svi import SVI, SVIState
from softmargin.engines.svi_fit import fit_svi, held_out
from softmargin.estimators.fits import Fit, Settings, options_of
from softmargin.estimators.kernel_models import KernelBinary
from softmargin.estimators.kernel_search import KernelRows
from softmargin.estimators.readout import HeldOut
from softmargin.execution.blocks import Blocks
from softmargin.execution.streams import Purpose
from softmargin.link import fit_link

__all__ = ["KernelStream", "Points", "Task", "fit_batches", "fit_points", "points_of"]

_POINTS = 200  # inducing points unless asked for others
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


class Task(NamedTuple):
    """How to run: lengths, tolerances and options of the engine, and who is told."""

    run: dict[str, Any]
    callback: Callable[[int, Any], bool] | None

    def settings(self, readout: Any) -> Settings:
        """The same, resolved."""
        return Settings(readout, callback=self.callback, **self.run)


def _model(rows: KernelRows, features: InducingMap, design: Loose | Inducing, rate: float) -> InducingModel:
    free = np.zeros(features.size + 1, dtype=bool)
    free[0] = True
    blocks = Blocks(design, rows.sign, rate * rows.weight)
    return InducingModel(blocks, rows.loss, rows.prior.bind(free, len(rows.sign)), free, rows.streams)


class Points(NamedTuple):
    """Inducing points, what a prior scale of one stands for there, and the learning rate."""

    map: InducingMap
    base: float
    rate: float


def points_of(rows: KernelRows, kernel: Kernel, columns: Columns | None, size: int | None) -> InducingMap:
    """At most ``size`` inducing points that cover the rows."""
    n = len(rows.sign)
    if size is not None and size > n:
        raise ValueError(f"n_inducing must be at most the number of rows, {n}; got {size}.")
    seed = int(rows.streams.at(Purpose.START, iteration=1).integers(2**63))
    return inducing_map(kernel, rows.X, min(_POINTS, n) if size is None else size, np.random.default_rng(seed), columns)


def fit_points(rows: KernelRows, points: Points, task: Task) -> KernelBinary:
    """Fit with all rows in every step."""
    features, base, rate = points
    readout = rows.readout(features.size)
    settings = task.settings(readout)
    options_of(settings)
    model = _model(rows, features, features.design(rows.X), rate)
    fixed, outcome = fit_inducing(model, max_iter=settings.max_iter, tol=settings.tol, **_watch(settings))
    state, scale = outcome.state, float(fixed.prior.start().values["scale"])
    posterior = readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    still: Any = fixed.blocks.still
    held = readout.linked(fixed, *loose_cavity(state.f, state.v - still, still, state.message, readout.part))
    return KernelBinary(Fit(posterior, held, base * scale, outcome), rate, rows.loss, map=features, base=base)


def fit_batches(rows: KernelRows, points: Points, task: Task, before: KernelStream | None = None) -> KernelStream:
    """Fit by batches of rows, or go on from a fit to others; each of the new rows is then seen once.

    Features are computed when a batch needs them, so that memory grows with the rows themselves alone.
    The link is fitted on the rows seen last; rows beyond these have no leave-one-out predictors.
    """
    features, base, rate = points
    readout = rows.readout(features.size)
    settings = task.settings(readout)
    options = dict(options_of(settings, "batch", "first", "decay", "epochs"))
    epochs = options.pop("epochs", None)
    engine = SVI(**options)
    start = None if before is None else before.state
    model = _model(rows, features, Inducing(features, rows.X), rate)
    fit = fit_svi(model, engine, epochs=epochs, state=start, **_watch(settings))
    at, f, v, max_kv = held_out(fit, engine, readout.part, _KEPT)
    seen = Seen(f, v, rows.sign[at], rows.weight[at])
    if before is not None:
        seen = Seen(*(np.concatenate(pair)[-_KEPT:] for pair in zip(before.seen, seen, strict=True)))
        max_kv = max(max_kv, before.max_kv)
    loo = fit_link(seen.sign, seen.f, seen.v, seen.weight, max_kv)
    means, variances = np.full((2, len(rows.sign)), np.nan)
    means[at], variances[at] = f, v
    state = fit.state
    scale = float(state.prior.values["scale"])
    posterior = readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    done = Fit(posterior, HeldOut(means, variances, loo), base * scale, fit.outcome)
    return KernelStream(done, rate, rows.loss, map=features, base=base, state=state, seen=seen, max_kv=max_kv)


def _watch(settings: Settings) -> dict[str, Any]:
    return {"progress": settings.progress("kernel", None), "callback": settings.callback}
