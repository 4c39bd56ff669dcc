"""Stochastic variational inference: natural-gradient steps on batches of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.loop import Info, run
from softmargin.core.loss import Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.rows import Rows
from softmargin.core.space import Normal
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.inducing import (
    InducingModel,
    best_scale,
    fit_inducing,
    fixed_scale,
    log_scale_density,
    scale_terms,
)
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Purpose

__all__ = ["SVI", "SVIState", "Sums", "distance", "posterior_of", "sums_of"]

_LEAST = 1e-6  # shortest step
_FAR = 10.0  # squared distance per coefficient that one batch may move the mean by: ten times what is usual at most
_NEAR = 0.01  # likewise, within which the batch's messages are still right and its bound need not be looked at


class Sums(NamedTuple):
    """Messages averaged over rows: a row has the precision ``A`` and linear term ``c`` of the coefficients.

    ``rest`` is its curvature times the variance that the columns leave.
    """

    A: Array
    c: Array
    rest: float

    def towards(self, other: Sums, rho: float) -> Sums:
        """The weighted mean that has the part ``rho`` of the other."""
        rest = self.rest + rho * (other.rest - self.rest)
        return Sums(self.A + rho * (other.A - self.A), self.c + rho * (other.c - self.c), rest)


class SVIState(NamedTuple):
    """Where a run stands; it can be kept and gone on from, with the same rows or with new ones."""

    sums: Sums
    q: Normal
    prior: PriorMessage
    rows: float  # that q stands for
    total: float  # that it will stand for
    batches: float  # seen
    bound: float  # a row, without prior and entropy


@dataclass(frozen=True)
class SVI:
    """Natural-gradient ascent of the bound, one batch of rows per step.

    The Gaussian q of N rows has precision ``N A + D`` and linear term ``N c``, where A and c are row messages averaged
    over rows and D is the prior's precision at q. A step moves the averages towards those of a batch by the part
    ``rho_t = t^-decay``; that is a natural-gradient step of length rho_t. The start is a fit of some of the rows, t
    counts them as batches (and a batch with fewer rows as a part of one), and N grows with the rows seen until all
    have been, so that q is never surer than the rows behind it. A batch with a row far from all others, which stands
    for many, takes a shorter step; so does one whose own bound, of which the step is the natural gradient, would fall:
    heavy rows make the loss sharp on the scale of q's spread.

    Parameters
    ----------
    batch : int
        Rows of a step.
    first : int
        Rows of the fit that it starts from.
    decay : float
        Power with which steps become shorter as rows are added to a fit, above 1/2 and at most 1.
    mean_field : bool
        Average the latent variables of the loss, instead of the loss itself.

    References
    ----------
    Hensman, Matthews and Ghahramani (2015) for the bound; Wenzel et al. (2017) for the hinge; Khan and Lin (2017) for
    the natural gradient with exact averages of the loss.
    """

    batch: int = 512
    first: int = 4096
    decay: float = 0.9
    mean_field: bool = False

    needs_prior = ("gaussian", "expect")

    def __post_init__(self) -> None:
        if self.batch < 1 or self.first < 1:
            raise ValueError(f"batch and first must be at least 1; got {self.batch} and {self.first}.")
        if not 0.5 < self.decay <= 1.0:
            raise ValueError(f"decay must be above 0.5 and at most 1; got {self.decay}.")

    @property
    def needs_loss(self) -> tuple[str, ...]:
        return ("expect",) if self.mean_field else ("gaussian",)

    def init(self, model: Model) -> SVIState:
        """Fit some of the rows."""
        n = model.n
        size = min(n, self.first)
        rows = model.blocks.pick(np.sort(shuffled(np.arange(size), n, model.streams.at(Purpose.START))))
        engine: Any = MeanField() if self.mean_field else GaussianVI()
        if rows.design.rest is None:
            small = replace(model, blocks=rows, space=model.space.on(rows.design))
            state = run(engine, small, max_iter=100, tol=1e-4, inner=True).state
        else:
            small = InducingModel(rows, model.loss, model.prior, model.free, model.streams, model.space)
            state = fit_inducing(small, engine=engine, max_iter=100, tol=1e-4)[1].state
        sums = sums_of(rows.design, state.message)
        bound = state.data / size
        q, prior = posterior_of(model, sums, float(size), state.q, state.prior)
        return SVIState(sums, q, prior, float(size), float(n), size / self.batch, bound)

    def extended(self, state: SVIState, rows: int) -> SVIState:
        """The state before new rows of the same kind are added to those it has seen.

        However often it went through them, new rows weigh as much as any that it has seen once.
        """
        return state._replace(total=state.rows + rows, batches=state.rows / self.batch)

    def step(self, model: Model, state: SVIState, iteration: int) -> tuple[SVIState, Info]:
        """One batch."""
        index = self._index(model, iteration)
        batch = model.blocks.pick(index)
        message = self.messages(model, batch, state.q, state.prior)
        share = len(index) / self.batch
        batches, rows = state.batches + share, min(state.rows + len(index), state.total)
        rho, here = min(share * batches**-self.decay, 1.0), sums_of(batch.design, message)
        before = _batch_bound(message, rows, state.q, state.prior)
        while True:
            sums = state.sums.towards(here, rho)
            q, prior = posterior_of(model, sums, rows, state.q, state.prior)
            if rho < _LEAST or self._rises(model, batch, state.q, q, prior, rows, before):
                break
            rho *= 0.3
        bound = state.bound + rho * (float(message.bound.mean()) - state.bound)
        new = SVIState(sums, q, prior, rows, state.total, batches, bound)
        return new, Info(rows * bound + prior.bound + q.entropy, math.inf)

    def _rises(
        self, model: Model, batch: Rows, old: Normal, q: Normal, prior: PriorMessage, rows: float, low: float
    ) -> bool:
        """Whether the batch's bound is above ``low`` at q, as it must be next to the old one, and q is not too far."""
        moved = distance(old, q)
        if not moved <= _FAR * model.size:
            return False
        if moved + abs(q.logdet - old.logdet) <= _NEAR * model.size:
            return True
        bound = _batch_bound(self.messages(model, batch, q, prior), rows, q, prior)
        return bound >= low - 1e-12 * abs(low)

    def messages(self, model: Model, rows: Rows, q: Normal, prior: PriorMessage) -> Message:
        """Messages of some rows under q."""
        f, v, residual = self.moments(rows.design, q, prior)
        message: Message = self.face(model)(rows.y, rows.weight, f, v + residual)
        return message

    def face(self, model: Model) -> Any:
        """The face of the loss that gives the row messages."""
        return model.loss.expect if self.mean_field else model.loss.gaussian

    def moments(self, block: Design, q: Normal, prior: PriorMessage) -> tuple[Array, Array, Array | float]:
        """Mean and variance of the predictors of a block of rows, from the coefficients and from what these leave."""
        rest = block.rest
        residual = 0.0 if rest is None else prior.values["scale"] ** 2 * rest
        return block.matvec(q.mean), block.row_quad(q.root), residual

    def _index(self, model: Model, iteration: int) -> Any:
        """The rows of a batch: every epoch goes through all rows in an order of its own."""
        n = model.n
        batches = math.ceil(n / self.batch)
        epoch, k = divmod(iteration, batches)
        position = np.arange(k * n // batches, (k + 1) * n // batches)
        return np.sort(shuffled(position, n, model.streams.at(Purpose.MOVES, iteration=epoch)))


def posterior_of(model: Model, sums: Sums, rows: float, q: Normal, prior: PriorMessage) -> tuple[Normal, PriorMessage]:
    """The Gaussian of this many rows with these messages, and the prior there; the last q says what the prior is."""
    shrinkage, hyper = model.prior, 0.0
    if sums.rest > 0.0 and not fixed_scale(shrinkage):
        scale = best_scale(shrinkage, *scale_terms(model, q), rows * sums.rest, prior.values["scale"])
        shrinkage, hyper = shrinkage.at_scale(scale), log_scale_density(shrinkage, scale)
    here = shrinkage.gaussian(q.mean, q.var)
    linear = rows * sums.c if here.linear is None else rows * sums.c + here.linear
    new = model.space.gaussian(rows * sums.A, linear, here.precision)
    there = shrinkage.gaussian(new.mean, new.var)
    return new, there._replace(bound=there.bound + hyper)


def distance(old: Any, new: Normal) -> float:
    """Squared distance between the means, in units of the old covariance."""
    moved: Array = old.whitened(new.mean)
    return float(moved @ moved)


def _batch_bound(message: Message, rows: float, q: Normal, prior: PriorMessage) -> float:
    """The bound of this many rows like those of a batch."""
    return rows * float(message.bound.mean()) + prior.bound + q.entropy


def sums_of(block: Design, message: Message) -> Sums:
    """Messages of a block of rows, averaged over them."""
    A, c = block.gram(message.w, message.b)
    rest = block.rest
    n = len(message.w)
    return Sums(A / n, c / n, 0.0 if rest is None else float(message.w @ rest) / n)
