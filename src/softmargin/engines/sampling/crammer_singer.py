"""Gibbs sampling of class scores that share one loss: one class at a time, given the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import Move, MoveBase
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.coefficients import spread_prior
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.prior_variables import PriorVariables
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.losses.hinge import Hinge
from softmargin.rows.streams import Address, Purpose
from softmargin.solvers.full import Full

__all__ = ["ClassByClass", "ScoreModel", "score_gibbs"]


@dataclass(frozen=True, eq=False)
class ScoreModel(Model):
    """Rows with a class each; coefficients are k blocks that sum to zero, predictors are n x k scores."""

    label: Any = None
    k: int = 0

    @property
    def y(self) -> Any:
        return self.label

    @property
    def size(self) -> int:
        return self.k * self.blocks.design.shape[1]

    @property
    def dimension(self) -> int:
        return (self.k - 1) * self.blocks.design.shape[1]

    @property
    def free_dimension(self) -> int:
        return int(self.free.sum()) // self.k * (self.k - 1)

    def one(self) -> Model:
        """The rows as those of a single score."""
        q = self.blocks.design.shape[1]
        return Model(self.blocks, Hinge(), self.prior, self.free[:q], self.streams, Full())


@dataclass(frozen=True)
class ClassByClass(MoveBase):
    """Row latents and the coefficients of one class at a time, given those of the others.

    Invariance: a loss that depends on differences of scores sees a change ``delta`` of one block, spread as
    ``delta (1 - 1/k)`` on its own class and ``-delta/k`` on the others so that the blocks still sum to zero, as a
    change ``x'delta`` of that score alone; and there it is a hinge. Under a normal prior of precision D its log density
    has the prior part ``-delta'D delta (1 - 1/k)/2 - beta_r'D delta``. Latents and delta are drawn from these
    conditionals.
    """

    reads = frozenset({"beta", "f", "local"})
    renews = frozenset({"beta", "f", "loglik"})
    needs_loss = ("hinge", "loglik")

    def __call__(self, random: Any, model: Any, chain: Chain) -> Chain:
        """The chain with new coefficients of every class."""
        one, classes, loss = model.one(), model.k, model.loss
        hinge: Any = one.loss
        blocks, f = chain.beta.reshape(classes, -1).copy(), chain.f.copy()
        precision = chain.prior.precision.reshape(classes, -1)
        for r in range(classes):
            y, offset = loss.hinge(model.label, f, r)
            g = f[:, r] - offset
            w, b = hinge.draw(random.at(Purpose.LATENT, cell=r), y, model.c, g)
            q = one.solver(w, b - w * g, precision[r] * (1.0 - 1.0 / classes), -precision[r] * blocks[r])
            delta = q.draw(random.at(Purpose.COEFFICIENTS, cell=r))
            step = one.blocks.matvec(delta)
            blocks -= delta / classes
            f -= step[:, None] / classes
            blocks[r] += delta
            f[:, r] += step
        blocks -= blocks.mean(axis=0)  # rounding adds up over sweeps
        f = np.column_stack([one.blocks.matvec(block) for block in blocks])
        beta = blocks.ravel()
        loglik = float(loss.loglik(model.label, model.c, f).sum())
        return chain._replace(beta=beta, rows=model.placed(f), mean=beta, loglik=loglik)


def score_gibbs(chains: int = 4, scale_moves: bool = True) -> Chains:
    """Chains of class scores that share one loss: scale moves, prior variables, then class by class.

    Parameters
    ----------
    chains : int
        Number of chains.
    scale_moves : bool
        Whether to make the moves of the length and of a learned scale.
    """
    between: tuple[Move, ...] = (ScaleMove(), Interweave()) if scale_moves else ()
    return Chains((*between, PriorVariables(), ClassByClass()), _start, chains)


def _start(model: Any, chains: int) -> tuple[Chain, ...]:
    """Every chain from coefficients of zero, prior scale spread around its start."""

    def start(k: int) -> Chain:
        prior, nothing = spread_prior(model, model.streams.at(Purpose.START, chain=k)), np.zeros(model.size)
        rows = model.placed(np.zeros((len(model.label), model.k)))
        chain = Chain(nothing, rows, prior, nothing, 0.0)
        moved: Chain = ClassByClass()(Address(model.streams, k, 0), model.serial(), chain)
        return moved

    return tuple(model.blocks.parallel(start, range(chains)))
