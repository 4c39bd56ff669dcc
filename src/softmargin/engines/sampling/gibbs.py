"""Gibbs sampling with the latents, in the order that leaves the posterior invariant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.loss import Rows
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.axis_moves import Axes, axes_for
from softmargin.rows.in_memory import Cell
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step

__all__ = ["Chain", "Gibbs", "draw_rows"]

_FAR = 50.0  # no single move changes a scale by more than e^50


class Chain(NamedTuple):
    """Where one chain stands; row latents are not part of it."""

    beta: Array
    f: Array
    prior: PriorState
    mean: Array  # conditional mean of the last draw, for Rao-Blackwell averages
    loglik: float
    axes: Axes | None = None  # along which the coefficients also move, where there are any


@dataclass(frozen=True)
class Gibbs:
    """Several chains of the data-augmentation sampler, one sweep of each a step.

    A sweep: (1) moves of beta along the axes of the variational fit, or where these cannot be had along itself,
    beta -> g beta, and (2) interweaving of a learned scale, and of each part's own where a prior has parts, by slice
    sampling on the posterior with all latents integrated out; (3) prior variables given beta, scale first, local
    variables after; (4) row latents given beta, turned at once into the weighted Gram; (5) beta given everything, as
    one block.
    The order printed in the papers (local variables before the scale, with the local ones stale) is not invariant.

    Parameters
    ----------
    chains : int
        Number of chains.
    scale_moves : bool
        Whether to make moves (1) and (2). Without them the sampler is that of Polson and Scott.
    """

    chains: int = 4
    scale_moves: bool = True
    needs_loss = ("draw", "loglik")
    needs_prior = ("draw", "along", "stretch", "logpdf")

    def init(self, model: Model) -> tuple[Chain, ...]:
        """Start every chain from its own draw: rows at N(0, 1) predictors, prior scale spread around its start."""
        axes = axes_for(model) if self.scale_moves else None
        starts = model.blocks.parallel(lambda k: self._start(model, k), range(self.chains))
        return tuple(starts if axes is None else (start._replace(axes=axes) for start in starts))

    def step(self, model: Model, state: tuple[Chain, ...], iteration: int) -> tuple[tuple[Chain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial() if self.chains > 1 else model

        def sweep(k: int) -> Chain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(sweep, range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def _start(self, model: Model, k: int) -> Chain:
        model = model.serial()
        rng = model.streams.at(Purpose.START, chain=k)
        f = rng.standard_normal(len(model.y))
        prior = model.prior.start()
        if model.prior.stretch(prior) is not None:
            prior = model.prior.stretched(prior, float(rng.normal()))
        return self._coefficients(model, f, prior, k, 0)

    def sweep(self, model: Model, chain: Chain, k: int, iteration: int) -> Chain:
        """One sweep of chain number ``k``."""
        beta, f, prior = chain.beta, chain.f, chain.prior
        if self.scale_moves:
            rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
            if chain.axes is not None and chain.axes.serve(model):
                beta, f = chain.axes.move(model, rng, beta, f, prior)
            else:
                beta, f = _scale_move(model, rng, beta, f, prior)
            beta, f, prior = _interweave(model, rng, beta, f, prior)
            for part in getattr(model.prior, "parts", ()):
                beta, f, prior = _interweave_part(model, rng, part, beta, f, prior)
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        prior = model.prior.draw(rng, prior, beta)
        new = self._coefficients(model, f, prior, k, iteration)
        return new if chain.axes is None else new._replace(axes=chain.axes)

    def moved(self, model: Model, chain: Any) -> Any:
        """The chain once the rows, their weights or the loss have changed: nothing is kept of them."""
        return chain

    def _coefficients(self, model: Model, f: Array, prior: PriorState, k: int, iteration: int) -> Chain:
        """Steps 4 and 5: latents cell by cell, then the coefficients."""
        w, b = draw_rows(model, f, Purpose.LATENT, chain=k, iteration=iteration)
        q = model.solver(w, b, prior.precision)
        beta = q.draw(model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration))
        f = model.blocks.matvec(beta)
        return Chain(beta, f, prior, q.mean, float(model.loss.loglik(model.y, model.c, f).sum()))


def draw_rows(model: Model, f: Array, purpose: Purpose, *, chain: int = 0, iteration: int = 0) -> Rows:
    """Row messages drawn given the predictors, every cell from its own stream."""

    def draw(cell: Cell) -> Rows:
        at = slice(cell.lo, cell.hi)
        rng = model.streams.at(purpose, chain=chain, iteration=iteration, cell=cell.number)
        return model.loss.draw(rng, model.y[at], model.c[at], f[at])

    drawn = model.blocks.map(draw)
    return Rows(*(np.concatenate(column) for column in zip(*drawn, strict=True)))


def _loglik_along(model: Model, f: Array) -> Callable[[float], float]:
    """``t -> log pseudo-likelihood at e^t f``."""
    return lambda t: float(model.loss.loglik(model.y, model.c, math.exp(t) * f).sum())


def _scale_move(
    model: Model, rng: np.random.Generator, beta: Array, f: Array, prior: PriorState
) -> tuple[Array, Array]:
    """Slice update of g in beta -> g beta, every coordinate scaled: log target + dimension log g."""
    if not beta.any():
        return beta, f
    loglik, log_prior, d = _loglik_along(model, f), model.prior.along(prior, beta), model.dimension

    def log_density(t: float) -> float:
        return loglik(t) + log_prior(t) + d * t if abs(t) < _FAR else -math.inf

    g = math.exp(slice_step(rng, log_density, 0.0, width=1.0 / math.sqrt(d)))
    return g * beta, g * f


def _interweave(
    model: Model, rng: np.random.Generator, beta: Array, f: Array, prior: PriorState
) -> tuple[Array, Array, PriorState]:
    """Slice update of g in (scale, beta) -> (g scale, g beta).

    With beta/scale held the prior of the shrunk coefficients drops out; the free ones move along, which brings
    their own prior and one factor g each. Holding the free ones still would leave the scale of separable data
    stuck, because the boundary moves unless all coefficients grow together.
    """
    log_hyper = model.prior.stretch(prior)
    if log_hyper is None:
        return beta, f, prior
    loglik, n_free = _loglik_along(model, f), model.free_dimension
    half = 0.5 * float(prior.precision[: model.size][model.free] @ beta[model.free] ** 2)

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        return loglik(t) + log_hyper(t) + n_free * t - half * math.exp(2.0 * t)

    t = slice_step(rng, log_density, 0.0, width=0.5)
    g = math.exp(t)
    return g * beta, g * f, model.prior.stretched(prior, t)


def _interweave_part(
    model: Model, rng: np.random.Generator, part: Any, beta: Array, f: Array, prior: PriorState
) -> tuple[Array, Array, PriorState]:
    """The same for one part of a prior: its shrunk coefficients grow with its scale, all others stay."""
    log_hyper = part.stretch(prior)
    if log_hyper is None:
        return beta, f, prior
    own = np.zeros_like(beta)
    own[part.where] = np.where(model.free[part.where], 0.0, beta[part.where])
    moving = model.blocks.matvec(own)
    still = f - moving

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        return float(model.loss.loglik(model.y, model.c, still + math.exp(t) * moving).sum()) + float(log_hyper(t))

    t = slice_step(rng, log_density, 0.0, width=0.5)
    return beta + math.expm1(t) * own, still + math.exp(t) * moving, part.stretched(prior, t)
