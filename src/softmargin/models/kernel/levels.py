"""Fits of many rows on inducing points, of which a kernel machine may need few or many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.loop import Outcome
from softmargin.designs.kernel.inducing import Inducing, InducingMap, Loose, choose_points, map_of_points
from softmargin.engines.vi.inducing import InducingModel, Neighbour, fit_inducing
from softmargin.inference.readout import HeldOut
from softmargin.inference.settings import Fit
from softmargin.inference.trials import Chosen
from softmargin.loo.stochastic_cavity import loose_cavity
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.search import KernelRows, Setting
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Purpose
from softmargin.solvers.full import Full

__all__ = ["Level", "centres", "fit_level", "machine_of", "messages_at", "model_on", "points_of"]

_CHUNK = 2048  # rows at a time


def model_on(rows: KernelRows, features: InducingMap, design: Loose | Inducing) -> InducingModel:
    """The model of rows on inducing points with a free intercept."""
    free = np.zeros(features.size + 1, dtype=bool)
    free[0] = True
    blocks = Blocks(design, rows.sign, rows.c)
    return InducingModel(blocks, rows.loss, rows.prior.bind(free, len(rows.sign)), free, rows.streams, Full())


def centres(rows: Any, setting: Setting, size: int) -> Any:
    """At most ``size`` points that cover the rows, in the columns that the kernel sees; any length takes the same."""
    n = rows.X.shape[0]
    if size > n:
        raise ValueError(f"n_inducing must be at most the number of rows, {n}; got {size}.")
    seed = int(rows.streams.at(Purpose.START, iteration=1).integers(2**63))
    return choose_points(rows.X, size, np.random.default_rng(seed), setting.columns)


def points_of(rows: Any, setting: Setting, size: int) -> InducingMap:
    """The map of at most ``size`` inducing points that cover the rows."""
    return map_of_points(setting.kernel, centres(rows, setting, size), setting.columns)


class Level(NamedTuple):
    """A fit with some number of points."""

    features: InducingMap
    model: InducingModel  # its scale fixed where it was learned
    outcome: Outcome
    held: HeldOut

    @property
    def scale(self) -> float:
        return float(self.model.prior.start().values["scale"])

    @property
    def undetermined(self) -> float:
        """Share of the predictors' variance that the points leave to the prior."""
        residual: Any = self.model.blocks.residual
        return float(np.mean(residual) / np.mean(self.outcome.state.v))

    @property
    def messages(self) -> Neighbour:
        """What a fit of the same rows with other points starts from."""
        message = self.outcome.state.message
        return Neighbour(message.w, message.b, self.scale)


def fit_level(
    rows: KernelRows, features: InducingMap, model: InducingModel, *, tol: float, state: Any, **run: Any
) -> Level:
    """The fit of a model from a start, with predictors of rows that are left out; ``run`` goes to the loop."""
    fixed, outcome = fit_inducing(model, tol=tol, state=state, **run)
    state, readout = outcome.state, rows.readout(features.size)
    residual: Any = fixed.blocks.residual
    held = readout.linked(fixed, *loose_cavity(state.f, state.v - residual, residual, state.message, readout.part))
    return Level(features, fixed, outcome, held)


def machine_of(rows: KernelRows, level: Level, base: float = 1.0, chosen: Chosen | None = None) -> KernelBinary:
    """The machine that a level is, its prior scale in units of ``base``."""
    state, scale = level.outcome.state, level.scale
    posterior = rows.readout(level.features.size).gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    fit = Fit(posterior, level.held, base * scale, level.outcome, vi=state)
    return KernelBinary(fit, rows.rate, rows.loss, chosen, map=level.features, base=base)


def messages_at(rows: KernelRows, machine: KernelBinary, base: float = 1.0) -> Neighbour:
    """What rows say at the predictors that a machine of others has for them, for a fit in units of ``base``."""
    parts = [machine.moments(rows.X[lo : lo + _CHUNK]) for lo in range(0, len(rows.sign), _CHUNK)]
    f, v = (np.concatenate(part) for part in zip(*parts, strict=True))
    message = rows.loss.gaussian(rows.sign, rows.c, f, v)
    return Neighbour(message.w, message.b, machine.fit.scale / base)
