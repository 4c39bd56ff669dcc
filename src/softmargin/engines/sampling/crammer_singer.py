"""Gibbs sampling of class scores that share one loss: one class at a time, given the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.gibbs import Chain, Gibbs, _interweave, _scale_move
from softmargin.losses.hinge import Hinge
from softmargin.rows.streams import Purpose
from softmargin.solvers.full import Full

__all__ = ["ScoreGibbs", "ScoreModel"]


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
class ScoreGibbs(Gibbs):
    """The data-augmentation sampler, class by class.

    A loss that depends on differences of scores sees a change ``delta`` of one block, spread as ``delta (1 - 1/k)`` on
    its own class and ``-delta/k`` on the others so that the blocks still sum to zero, as a change ``x'delta`` of that
    score alone; and there it is a hinge. Under a normal prior of precision D its log density has the prior part
    ``-delta'D delta (1 - 1/k)/2 - beta_r'D delta``.
    """

    needs_loss = ("hinge", "loglik")

    def _start(self, model: Any, k: int) -> Chain:
        rng, prior = model.streams.at(Purpose.START, chain=k), model.prior.start()
        if model.prior.stretch(prior) is not None:
            prior = model.prior.stretched(prior, float(rng.normal()))
        return self._classes(model.serial(), np.zeros(model.size), np.zeros((len(model.label), model.k)), prior, k, 0)

    def sweep(self, model: Any, chain: Chain, k: int, iteration: int) -> Chain:
        """One sweep of chain number ``k``."""
        beta, f, prior = chain.beta, chain.f, chain.prior
        if self.scale_moves:
            rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
            beta, f = _scale_move(model, rng, beta, f, prior)
            beta, f, prior = _interweave(model, rng, beta, f, prior)
        prior = model.prior.draw(model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration), prior, beta)
        return self._classes(model, beta, f, prior, k, iteration)

    def _classes(self, model: ScoreModel, beta: Array, f: Array, prior: PriorState, k: int, iteration: int) -> Chain:
        one, classes, loss = model.one(), model.k, model.loss
        hinge: Any = one.loss
        blocks, f = beta.reshape(classes, -1).copy(), f.copy()
        precision = prior.precision.reshape(classes, -1)
        for r in range(classes):
            y, offset = loss.hinge(model.label, f, r)  # type: ignore[attr-defined]
            g, at = f[:, r] - offset, {"chain": k, "iteration": iteration, "cell": r}
            w, b = hinge.draw(model.streams.at(Purpose.LATENT, **at), y, model.c, g)
            q = one.solver(w, b - w * g, precision[r] * (1.0 - 1.0 / classes), -precision[r] * blocks[r])
            delta = q.draw(model.streams.at(Purpose.COEFFICIENTS, **at))
            step = one.blocks.matvec(delta)
            blocks -= delta / classes
            f -= step[:, None] / classes
            blocks[r] += delta
            f[:, r] += step
        blocks -= blocks.mean(axis=0)  # rounding adds up over sweeps
        f = np.column_stack([one.blocks.matvec(block) for block in blocks])
        new = blocks.ravel()
        return Chain(new, f, prior, new, float(loss.loglik(model.label, model.c, f).sum()))
