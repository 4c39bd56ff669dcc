"""Gaussian variational inference with many rows: most of them are on one side of the margin for certain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.loop import Info, run
from softmargin.core.model import Model
from softmargin.core.space import Normal
from softmargin.core.visits import Face, Marked, Moments, One, RowState, messages
from softmargin.engines.mode.screening import few_rows
from softmargin.engines.mode.smoothed_start import approach, picked, spread_rows, thinned
from softmargin.engines.vi._gaussian_visits import Precisions
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.priors.penalty import Penalty
from softmargin.rows.totals import flags, kth_smallest, places, runs

__all__ = ["Screened", "ScreenedVI"]

_CERTAIN = 8.5  # standard deviations from the margin beyond which a row's message is linear or zero to rounding
_REACHES = (10.0, 40.0, np.inf)  # standard deviations within which rows are worked on; more where that was too few
_STEPS = 100
_START = 1e-4  # relative change of the bound at which the optimum of a subsample is near enough to start from
_SAMPLE = 4000  # rows whose variances say what those of all are like
_LEAST, _RATIO = 1000, 20  # rows, and rows for each coefficient, that are worked on at least


class Screened(NamedTuple):
    """An approximation as all rows see it, and the problem of few rows that it is the optimum of."""

    whole: VIState
    small: Model
    few: VIState | None


@dataclass(frozen=True)
class ScreenedVI:
    """The same optimum as ``GaussianVI``, with work on the rows near the margin only.

    A row more than ``_CERTAIN`` standard deviations outside the margin has no part in the bound, and one as far inside
    adds a linear term: both exactly, to rounding. A step screens the rows by the present approximation, climbs to the
    optimum of what is left, and looks at all rows again; it is the last where none has come near. The bound is always
    that of all rows.
    """

    tol: float
    needs_loss = ("gaussian", "margin_slope")
    needs_prior = ("gaussian", "expect")

    def init(self, model: Model) -> Screened:
        """From a point near the mode and the curvature there; or from the optimum of a subsample.

        The latter where the former is not known: where a class is rare, no row may be near the margin of a first guess.
        """
        precision = model.prior.start().precision
        near, q = approach(model, Penalty(precision, np.zeros(len(precision))), sharper=1)
        some = picked(model, spread_rows(model.n, _SAMPLE)).blocks
        f, v = near.f, some.row_quad(q.root)
        q = q.with_mean(near.beta)
        if not near.settled or float(v.mean()) > 1.0:
            q = run(GaussianVI(), thinned(model), max_iter=_STEPS, tol=_START, inner=True).state.q
            f, v = model.blocks.matvec(q.mean), some.row_quad(q.root)
        return Screened(_guessed(model, q, f, v), model, None)

    def step(self, model: Model, state: Screened, iteration: int) -> tuple[Screened, Info]:
        """Climb to the optimum over the rows that the present approximation says are near."""
        old = state.whole
        before = model.blocks.keep(_distances, None, old.rows)[0]
        least = _nearest(before.fetch().f, max(_LEAST, _RATIO * model.size))
        for reach in _REACHES:
            near, inside = _screened(before.fetch().f, max(reach, least))
            small, index = few_rows(model, near, inside)
            k = np.zeros(small.n)  # the sums of certain rows have no curvature
            k[: len(index)] = old.ku[index]
            start = GaussianVI().at(small, k, old.Du, old.q.mean)
            climb = run(GaussianVI(), small, max_iter=_STEPS, tol=self.tol, state=start, inner=True)
            new = GaussianVI().given(model, climb.state.q)
            k = new.ku.copy()
            k[index] = climb.state.ku[: len(index)]
            new = new._replace(Du=climb.state.Du, precisions=model.blocks.place(Precisions(k, None, k)), t=0.0)
            sides = model.blocks.place(Marked(near))
            right = float(model.blocks.sum(_moved, None, new.rows, before, sides)[0][0]) == 0.0
            if right:
                break
            if math.isinf(old.bound):  # a start has no bound until it is asked for
                old = old._replace(bound=GaussianVI().given(model, old.q).bound)
            if new.bound >= old.bound:
                break
        change = abs(new.bound - old.bound) / (1.0 + abs(new.bound))
        return Screened(new, small, climb.state), Info(new.bound, change, climb.converged and right)


def _guessed(model: Model, q: Normal, f: Array, sample: Array) -> VIState:
    """A start from predictors f: variances of the rows that may be near the margin, judging by those of a sample.

    The others have the mean of the sample, and no bound is claimed: the first step looks at all rows.
    """
    v, y, reach = np.full(len(f), float(sample.mean())), model.y, _REACHES[0] * math.sqrt(2.0 * float(sample.max()))
    close = places(len(f), lambda at: np.abs(1.0 - y[at] * f[at]) < reach)
    for at in runs(len(close)):
        v[close[at]] = picked(model, close[at]).blocks.row_quad(q.root)
    rows = model.blocks.place(Moments(f, v))
    return GaussianVI().known(model, q, model.blocks.keep(messages, Face(model.loss, "gaussian"), rows)[0], -math.inf)


def _nearest(distance: Array, rows: int) -> float:
    """The distance within which there are so many rows at least: where classes are rare, none may be near."""
    if rows >= len(distance):
        return math.inf
    return kth_smallest(len(distance), lambda at: np.abs(distance[at]), rows)


def _screened(distance: Array, reach: float) -> tuple[Flags, Flags]:
    """Which rows are near the margin, and which of the others inside."""
    n = len(distance)
    near = flags(n, lambda at: np.abs(distance[at]) < reach)
    return near, flags(n, lambda at: ~near[at] & (distance[at] > 0.0))


def _moved(block: Any, small: None, kept: RowState, before: One, near: Marked) -> Any:
    """Count the rows that are not near the margin, and now may be or are on the other side."""
    now = _from_margin(block, kept)
    stays = (near.marks != 0) | ((np.abs(now) > _CERTAIN) & ((now > 0.0) == (before.f > 0.0)))
    return (block.sums((~stays).astype(float)),)


def _distances(block: Any, small: None, kept: RowState) -> Any:
    """Keep how far inside the margin the rows are, in standard deviations."""
    return One(_from_margin(block, kept)), ()


def _from_margin(block: Any, kept: RowState) -> Array:
    return (1.0 - block.y * kept.f) / np.sqrt(np.maximum(kept.v, 1e-300))
