"""Rows of two classes under a kernel, quick fits of them, and the width whose quick fit predicts left-out rows best."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.designs.kernel.features import kernel_map, rescaled
from softmargin.designs.kernel.kernels import Kernel, resolve
from softmargin.designs.standardize import Columns, standardize
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.inference.choices import Candidate, Record, tilted
from softmargin.inference.readout import BinaryReadout
from softmargin.inference.settings import Fit
from softmargin.loo.folds import Part
from softmargin.models.kernel.models import KernelBinary
from softmargin.priors.ridge import Ridge
from softmargin.priors.scales import HalfCauchy
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

__all__ = [
    "TRUSTED",
    "WIDEST",
    "WORTH",
    "Before",
    "KernelRows",
    "Quick",
    "Search",
    "Setting",
    "Width",
    "kernel_prior",
    "quick_fit",
    "settings_of",
]

_SPREAD = 2.5  # half of the prior standard deviations of f are larger
_LOOSE = 1e-3  # share of a row's variance that the features of a fit which is only compared may leave out
_ROUGH = 1e-4  # relative change of the bound at which such a fit stops
_STEPS = 40  # most steps of such a fit: where the scale collapses it would take many, and is not chosen
TRUSTED = 0.8  # largest k v up to which a leave-one-out score may choose a width
NARROWEST, WIDEST = -3.0, 4.0  # widths tried, as powers of two of the mean distance
WORTH = 3e-4  # gain of the score below which the next width is not tried
_FLAT = 0.9  # share of the entropy of the classes above which a score says next to nothing
_ALIKE = 1.5  # ratio of spreads up to which columns are taken to have one unit
_POSITIVE = ("chi2", "additive_chi2")  # kernels of counts, which cannot be centred


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Training rows of two classes, and what the model of them is made of."""

    X: Any
    sign: Array
    count: Array
    weight: Array  # how much a row weighs in the link, and before rate and tilt in the pseudo-likelihood
    loss: Any
    prior: Any
    streams: Streams
    at: Any = None  # their numbers in all rows, for a precomputed kernel
    rate: float = 1.0
    by_class: tuple[float, float] = (1.0, 1.0)  # tilt of the first and of the second class
    tilt: bool = False

    @property
    def label(self) -> Any:
        """Class of every row, 0 or 1."""
        return (self.sign > 0.0).astype(np.intp)

    @property
    def c(self) -> Array:
        """Weights of the pseudo-likelihood."""
        return self.rate * self.weight * np.array(self.by_class)[self.label]

    def at_candidate(self, candidate: Candidate) -> KernelRows:
        """The same rows at a learning rate, with tilted weights or plain ones; tilts are those of their own shares."""
        by_class = (1.0, 1.0)
        if candidate.tilt:
            label, weight = self.label, tilted(self.label, self.weight)
            by_class = float(weight[label == 0][0]), float(weight[label == 1][0])
        return replace(self, rate=candidate.rate, tilt=candidate.tilt, by_class=by_class)

    def model(self, F: Array) -> Model:
        """The model on features F with a free intercept."""
        free = np.zeros(F.shape[1] + 1, dtype=bool)
        free[0] = True
        blocks = Blocks(Dense.plain(F, intercept=True), self.sign, self.c)
        return Model(blocks, self.loss, self.prior.bind(free, len(self.sign)), free, self.streams, Full())

    def readout(self, size: int, tol: float = 1e-10) -> BinaryReadout:
        """How results on this many features, taken as they are, are read; the link does not see tilts."""
        columns = Columns(np.arange(size), np.zeros(size), np.ones(size), True, size)
        part = np.minimum(1.0, 1.0 / self.count)
        return BinaryReadout(columns, None, part, self.weight, tol, free_offset=self.tilt)

    def take(self, index: Any) -> KernelRows:
        """Some of the rows."""
        at = None if self.at is None else self.at[index]
        own = {"X": self.X[index], "sign": self.sign[index], "count": self.count[index], "weight": self.weight[index]}
        return replace(self, at=at, **own)


def kernel_prior(scale: float | str, base: float = 1.0, *, mode: bool = False) -> Ridge:
    """Prior of kernel features in units of ``base``; a learned scale has long tails, since wide kernels need them."""
    if not isinstance(scale, str):
        return Ridge(scale=scale / base)
    if mode:  # as many features as rows: their joint mode with the scale is, uselessly, near zero
        return Ridge(scale=1.0)
    return Ridge(scale=scale, hyperprior=HalfCauchy(_SPREAD / base))


class Setting(NamedTuple):
    """A kernel on columns as found (None) or rescaled, with the length it starts from."""

    kernel: Kernel
    columns: Columns | None

    def wider(self, step: float) -> Setting:
        """The same with the length times ``2**step``."""
        kernel = self.kernel
        if kernel.length is None or not step:
            return self
        return self._replace(kernel=kernel.with_length(kernel.length * 2.0**step))

    @property
    def value(self) -> dict[str, Any]:
        """What a record says of it."""
        length = {} if self.kernel.length is None else {"length_scale": self.kernel.length}
        return length | {"standardize": self.columns is not None}


def settings_of(rows: Any, kernel: Any, length_scale: Any, scaled: bool | str) -> list[Setting]:
    """The kernels to compare: on the columns as found, on rescaled ones, or on both if their spreads are unlike."""
    plain = isinstance(kernel, str) and kernel == "precomputed"
    columns = None if plain else standardize(rows.X, rows.count)
    if columns is None or not len(columns.keep):
        choices: list[Columns | None] = [None]
    elif isinstance(scaled, str):
        alike = columns.scale.max() <= _ALIKE * columns.scale.min() or kernel in _POSITIVE
        choices = [None, columns] if isinstance(rows.X, np.ndarray) and not alike else [None]
    else:
        choices = [columns] if scaled else [None]
    return [Setting(resolve(kernel, length_scale, rescaled(rows.X, c), rows.count), c) for c in choices]


class Before(NamedTuple):
    """What a fit to the same rows in other columns leaves to the next."""

    ku: Array  # row precisions
    f: Array  # mean of the predictors
    Du: Array  # prior precision

    def of_all(self, train: Part, n: int) -> Before:
        """The same of all n rows, where the fit was of some of them."""
        ku, f = np.zeros((2, n))
        ku[train.rows], f[train.rows] = self.ku / train.share, self.f
        return self._replace(ku=ku, f=f)


@dataclass(frozen=True)
class _Continued(GaussianVI):
    """The variational engine, started from the messages of a fit to the same rows in other columns."""

    before: Before | None = None

    def init(self, model: Model) -> VIState:
        if self.before is None:
            return super().init(model)
        old = self.before
        D = np.full(model.size, old.Du[-1])
        D[0] = old.Du[0]
        return self.from_messages(model, old.ku, old.ku * old.f, D)


@dataclass(frozen=True, eq=False, kw_only=True)
class Quick(KernelBinary):
    """A machine on features that leave a share of every training row's variance out, and as much of new rows'."""

    loose: float

    @property
    def left(self) -> Before:
        """What it leaves to the next fit."""
        assert self.fit.vi is not None
        return Before(self.fit.vi.ku, self.fit.vi.f, self.fit.vi.Du)

    def moments(self, X: Any) -> tuple[Array, Array]:
        design, outside = self._design(X)
        f, v = self.fit.posterior.moments(design)
        return f, v + self.fit.posterior.square * np.maximum(outside - self.loose, 0.0)


def quick_fit(
    rows: KernelRows,
    setting: Setting,
    before: Before | None = None,
    *,
    least: float = 0.0,
    loose: float = _LOOSE,
) -> Quick | None:
    """A fit to be compared, started from another one of the same rows; None as soon as its scale is below ``least``.

    Its features may leave the share ``loose`` of a row's variance out.
    """
    features, F = kernel_map(setting.kernel, rows.X, rows.count, setting.columns, rows.at, tolerance=loose)
    model, outcome = rows.model(F), Outcome(None)

    def fallen(state: Any) -> bool:
        return bool(state.prior.values["scale"] < least)

    run(_Continued(before=before), model, max_iter=_STEPS, tol=_ROUGH, inner=True, outcome=outcome, enough=fallen)
    if fallen(outcome.state):
        return None
    state, readout = outcome.state, rows.readout(F.shape[1], tol=1e-6)
    scale = float(state.prior.values["scale"])
    posterior = readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    fit = Fit(posterior, readout.of_fit(model, state), scale, outcome, vi=state)
    return Quick(fit, rows.rate, rows.loss, map=features, loose=loose)


class Width(NamedTuple):
    """A quick fit at one width."""

    setting: Setting  # where the search began
    step: float  # width as a power of two of the setting's own
    machine: Any

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller is better; a score that cannot be trusted comes last.

        The log loss itself, without the link's prior: narrow kernels on clean rows have a large posterior variance and
        a small lam, and would pay for that in units that a few hundred rows feel.
        """
        return not self.machine.loo.max_kv <= TRUSTED, self.machine.loo.score


class Search:
    """Quick fits of the same rows, each started from the last; none is made twice."""

    def __init__(self, rows: Any, record: Record):
        self.rows, self.record = rows, record
        self.last: Before | None = None
        self.found: dict[tuple[Kernel, float], Width] = {}

    def at(self, setting: Setting, step: float) -> Width:
        """The fit with the setting's length times ``2**step``."""
        key = setting.kernel, step
        if key not in self.found:
            begun, tried = time.process_time(), setting.wider(step)
            machine = quick_fit(self.rows, tried, self.last)
            assert machine is not None
            self.last = machine.left
            value = tried.value | {"tilt": self.rows.tilt, "learning_rate": self.rows.rate}
            seconds = time.process_time() - begun
            self.record.add(value, "leave-one-out", machine.loo.score, np.nan, seconds)
            self.found[key] = Width(setting, step, machine)
        return self.found[key]

    def climb(self, best: Width) -> Width:
        """Double the width or halve it, whichever helps, as long as that is worth a fit."""
        if best.setting.kernel.length is None:
            return best
        start = best
        for side in (1.0, -1.0):
            other = self.at(start.setting, start.step + side)
            best = min(best, other, key=lambda one: one.rank)
        side, last = best.step - start.step, start
        while best is not last and NARROWEST <= best.step + side <= WIDEST:
            if last.rank[0] == best.rank[0] and last.rank[1] - best.rank[1] < WORTH:
                break
            last, other = best, self.at(best.setting, best.step + side)
            best = min(best, other, key=lambda one: one.rank)
        return best

    def unseen(self, best: Width, entropy: float) -> Width:
        """Where the best width says next to nothing, the best of all narrower ones, if one does say something.

        Many small regions of either class are flat to a wide kernel, and none of its neighbours sees them.
        """
        if best.setting.kernel.length is None or best.rank < (False, _FLAT * entropy):
            return best
        steps = np.arange(min(best.step, 0.0) - 1.0, NARROWEST - 1.0, -1.0)
        narrow = [self.at(best.setting, float(step)) for step in steps]
        return min([best, *(one for one in narrow if one.rank < (False, _FLAT * entropy))], key=lambda one: one.rank)

    def refined(self, best: Width) -> Width:
        """Move to the lowest point of the parabola through the neighbours, or else by half a step to the narrow side.

        The score rises faster towards narrow kernels than towards wide ones, so that a parabola ends too far on the
        wide side. Nothing is tried where a parabola leaves no gain in sight that is worth a fit.
        """
        near = [self.found.get((best.setting.kernel, best.step + side)) for side in (-1.0, 1.0)]
        if best.rank[0] or any(one is None or one.rank[0] for one in near):
            return best
        below, above = (one.rank[1] for one in near if one is not None)
        bend = below + above - 2.0 * best.rank[1]
        if bend < 8.0 * WORTH:  # what half a step may gain
            return best
        shift = min(max(round(2.0 * (below - above) / bend) / 4.0, -0.5), 0.5)  # finer moves are those of rounding
        if 0.5 * bend * shift**2 >= WORTH:
            moved = self.at(best.setting, best.step + shift)
            if moved.rank < best.rank:
                return moved
        return min(best, self.at(best.setting, best.step - 0.5), key=lambda one: one.rank)
