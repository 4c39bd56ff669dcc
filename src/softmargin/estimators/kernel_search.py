"""The width of a kernel, the units of its columns and the learning rate, by leave-one-out scores of quick fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.dense import Dense
from softmargin.designs.kernel_map import KernelMap, kernel_map, rescaled
from softmargin.designs.kernels import Kernel, resolve
from softmargin.designs.standardize import Columns, standardize
from softmargin.engines.gaussian_vi import GaussianVI, VIState
from softmargin.engines.loop import Outcome, run
from softmargin.engines.model import Model
from softmargin.estimators.readout import BinaryReadout
from softmargin.execution.blocks import Blocks
from softmargin.execution.streams import Streams
from softmargin.link import LeaveOneOut
from softmargin.priors.ridge import Ridge
from softmargin.priors.scales import HalfCauchy

__all__ = ["Candidate", "KernelRows", "Setting", "kernel_prior", "settle"]

_SPREAD = 2.5  # half of the prior standard deviations of f are larger
_ROUGH = 1e-4  # relative change of the bound at which a fit that is only compared stops
_STEPS = 40  # most steps of such a fit: where the scale collapses it would take many, and is not chosen
_TRUSTED = 0.7  # largest k v up to which a leave-one-out score may choose
_NARROWEST, _WIDEST = -2.0, 4.0  # widths tried, as powers of two of the mean distance
_WORTH = 3e-4  # gain of the score below which a width is not refined further
_ALIKE = 1.5  # ratio of spreads up to which columns are taken to have one unit
_POSITIVE = ("chi2", "additive_chi2")  # kernels of counts, which cannot be centred


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Training rows of two classes, and what the model of them is made of."""

    X: Any
    sign: Array
    count: Array
    weight: Array
    loss: Any
    prior: Any
    streams: Streams
    at: Any = None  # their numbers in all rows, for a precomputed kernel

    def model(self, F: Array, rate: float) -> Model:
        """The model on features F with a free intercept."""
        free = np.zeros(F.shape[1] + 1, dtype=bool)
        free[0] = True
        blocks = Blocks(Dense.plain(F, intercept=True), self.sign, rate * self.weight)
        return Model(blocks, self.loss, self.prior.bind(free, len(self.sign)), free, self.streams)

    def readout(self, size: int, tol: float = 1e-10) -> BinaryReadout:
        """How results on this many features, taken as they are, are read."""
        columns = Columns(np.arange(size), np.zeros(size), np.ones(size), True, size)
        return BinaryReadout(columns, None, np.minimum(1.0, 1.0 / self.count), self.weight, tol)

    def take(self, index: Any) -> KernelRows:
        """Some of the rows."""
        at = None if self.at is None else self.at[index]
        own = (self.X[index], self.sign[index], self.count[index], self.weight[index])
        return KernelRows(*own, self.loss, self.prior, self.streams, at)


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


class Candidate(NamedTuple):
    """A quick fit at one width."""

    setting: Setting
    step: float  # width as a power of two of the setting's own
    map: KernelMap
    features: Array
    rate: float
    outcome: Outcome
    loo: LeaveOneOut

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller is better; a score that cannot be trusted comes last."""
        return not self.loo.max_kv <= _TRUSTED, self.loo.objective

    @property
    def state(self) -> VIState:
        """Where the fit ended."""
        state: VIState = self.outcome.state
        return state


@dataclass(frozen=True)
class _Continued(GaussianVI):
    """The variational engine, started from the predictors and curvatures of a fit to the same rows in other columns."""

    before: VIState | None = None

    def init(self, model: Model) -> VIState:
        if self.before is None:
            return super().init(model)
        old = self.before
        D = np.full(model.size, old.Du[-1])
        D[0] = old.Du[0]
        q = model.gaussian(old.ku, old.ku * old.f, D)
        return self._evaluate(model, old.ku, D, q.mean, q)


def _settings(rows: KernelRows, kernel: Any, length_scale: Any, scaled: bool | str) -> list[Setting]:
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


class _Search:
    """Quick fits of the same rows, each started from the last; none is made twice."""

    def __init__(self, rows: KernelRows, rate: float, before: Candidate | None = None):
        self.rows, self.rate = rows, rate
        self.last = None if before is None else before.state
        self.found: dict[tuple[Kernel, float], Candidate] = {}

    def at(self, setting: Setting, step: float) -> Candidate:
        """The fit with the setting's length times ``2**step``."""
        key = setting.kernel, step
        if key not in self.found:
            rows, kernel = self.rows, setting.kernel
            if kernel.length is not None and step:
                kernel = kernel.with_length(kernel.length * 2.0**step)
            features, F = kernel_map(kernel, rows.X, rows.count, setting.columns, rows.at)
            model = rows.model(F, self.rate)
            outcome = run(_Continued(before=self.last), model, max_iter=_STEPS, tol=_ROUGH, inner=True)
            self.last = outcome.state
            held = rows.readout(F.shape[1], tol=1e-6).of_fit(model, outcome.state)
            self.found[key] = Candidate(setting, step, features, F, self.rate, outcome, held.loo)
        return self.found[key]

    def climb(self, best: Candidate, stride: float) -> Candidate:
        """Go on to wider or else to narrower kernels as long as that helps, and is worth a fit."""
        if best.setting.kernel.length is None:
            return best
        for side in (stride, -stride):
            start = best
            while _NARROWEST <= best.step + side <= _WIDEST:
                last, other = best, self.at(best.setting, best.step + side)
                if not other.rank < last.rank:
                    break
                best = other
                if last.rank[0] == best.rank[0] and last.rank[1] - best.rank[1] < _WORTH:
                    break
            if best is not start:
                break
        return best


def settle(
    rows: KernelRows, kernel: Any, length_scale: Any, scaled: bool | str, learning_rate: float | str
) -> Candidate:
    """The kernel, width and learning rate whose quick fit predicts left-out rows best.

    Widths are powers of the root of two around the mean distance; the bound would choose too wide ones. Units of the
    columns are settled first, at the mean distance, and the learning rate last, near the width that the smaller one
    prefers.
    """
    settings = _settings(rows, kernel, length_scale, scaled)
    learned = isinstance(length_scale, str) and length_scale == "learn"
    # a kernel far from the mean distance has a second, worse optimum; fits started from the mean distance avoid it
    fixed = not isinstance(length_scale, str) and settings[0].kernel.length is not None
    starts = _settings(rows, kernel, "mean-distance", scaled)[:1] if fixed else []
    found: dict[float, Candidate] = {}

    def best(rate: float) -> Candidate:
        if rate in found:
            return found[rate]
        before = next(iter(found.values()), None)
        search = _Search(rows, rate, before)
        if before is None:
            for start in starts:
                search.at(start, 0.0)
            chosen = min((search.at(setting, 0.0) for setting in settings), key=lambda one: one.rank)
            chosen = search.climb(chosen, 1.0) if learned else chosen
        else:
            chosen = search.at(before.setting, before.step)
        return found.setdefault(rate, search.climb(chosen, 0.5) if learned else chosen)

    if not isinstance(learning_rate, str):
        return best(float(learning_rate))
    if getattr(rows.loss, "normalised", False):
        return best(1.0)
    low, high = best(0.25), best(0.5)
    return high if high.loo.objective < low.loo.objective - 0.01 and high.loo.max_kv <= _TRUSTED else low
