"""Row latents and coefficients: the data augmentation of Polson and Scott."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.loss import Rows
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.core.prior import PriorState
from softmargin.core.visits import Latents
from softmargin.rows.streams import Address, Purpose

__all__ = ["Coefficients", "Predictors", "draw_rows", "from_rows", "spread_prior"]


@dataclass(frozen=True)
class Coefficients(MoveBase):
    """Row latents given the predictors, turned at once into the weighted Gram matrix; then all of beta as one block.

    Invariance: two draws from full conditionals. Given the latents and the prior's precision the coefficients are
    normal with precision ``X'WX + D``; the latents are forgotten.

    References
    ----------
    Polson and Scott (2011), Bayesian Analysis 6, section 3.1.
    """

    reads = frozenset({"f", "local"})
    renews = frozenset({"beta", "f", "loglik"})
    needs_loss = ("draw", "loglik")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new coefficients."""
        latents = Latents(model.loss, model.streams, Purpose.LATENT, random.chain, random.iteration)
        q = model.solver_of(visits.drawn, latents, chain.rows, chain.prior.precision)
        beta = q.draw(random.at(Purpose.COEFFICIENTS))
        rows, loglik = model.predicted(beta)
        return chain._replace(beta=beta, rows=rows, mean=q.mean, loglik=loglik)


@dataclass(frozen=True)
class Predictors(MoveBase):
    """Linear predictors of the present coefficients, after a move that does without them.

    Invariance: nothing is drawn.
    """

    reads = frozenset({"beta"})
    renews = frozenset({"f"})

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with its own predictors."""
        return chain._replace(rows=model.blocks.keep(visits.predictors, chain.beta)[0])


def draw_rows(model: Model, f: Array, purpose: Purpose, *, chain: int = 0, iteration: int = 0) -> Rows:
    """Row messages drawn given the predictors, every cell from its own stream, home."""
    latents = Latents(model.loss, model.streams, purpose, chain, iteration)
    return Rows(*model.blocks.fetch(model.blocks.keep(visits.drawn, latents, model.placed(f))[0]))


def spread_prior(model: Model, rng: np.random.Generator) -> PriorState:
    """A prior to start a chain from, a learned scale spread around its start."""
    prior = model.prior.start()
    if model.prior.stretch(prior) is None:
        return prior
    return model.prior.stretched(prior, float(rng.normal()))


def from_rows(model: Model, chains: int) -> tuple[Chain, ...]:
    """Every chain from its own draw: rows at N(0, 1) predictors, prior scale spread around its start."""

    def start(k: int) -> Chain:
        serial, nothing = model.serial(), np.zeros(model.size)
        prior = spread_prior(serial, model.streams.at(Purpose.START, chain=k, iteration=1))
        rows, _ = serial.blocks.keep(visits.started, Latents(model.loss, model.streams, Purpose.START, k, 0))
        return Coefficients()(Address(model.streams, k, 0), serial, Chain(nothing, rows, prior, nothing, 0.0))

    return tuple(model.blocks.parallel(start, range(chains)))
