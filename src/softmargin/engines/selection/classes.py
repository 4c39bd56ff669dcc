"""Sampling which variables are in, for all classes at once, together with their class coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.gibbs import draw_rows
from softmargin.engines.selection._classes_compiled import scan_variables, sweep
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step
from softmargin.solvers.gaussian import Gaussian
from softmargin.solvers.sum_to_zero import SumToZero

__all__ = ["ClassSelectionChain", "ClassSpikeSlabGibbs"]

_FAR = 50.0  # no single move changes a scale by more than e^50
_MOST = 3000  # dimensions whose square is kept


class ClassSelectionChain(NamedTuple):
    """Where one chain stands; row latents are not part of it."""

    beta: Array  # class coordinates
    f: Array
    gamma: Flags  # variables that are in
    prior: PriorState  # its precision is over the variables
    inclusion: Array  # probability with which each variable was last drawn in
    loglik: float


@dataclass(frozen=True)
class ClassSpikeSlabGibbs:
    """Several chains over (gamma, beta, scale, inclusion probability), one sweep of each a step.

    The model's prior is a spike-and-slab bound to the variables: ``gamma_j`` decides for all classes. A sweep: (1)
    scale moves; (2) inclusion probability and scale given the rest; (3) row latents given beta; (4) every variable in
    or out given the latents, coefficients integrated out; (5) the coefficients that are in, as one block.

    Parameters
    ----------
    chains : int
        Number of chains; they start from the empty model, the full one, and random ones in turn.
    """

    chains: int = 4
    needs_loss = ("draw", "loglik")
    needs_prior = ("draw_inclusion", "slab_precision", "inclusion_of", "state")

    def init(self, model: Model) -> tuple[ClassSelectionChain, ...]:
        """Start every chain in a model of its own."""
        if model.dimension > _MOST:
            raise ValueError(
                f"selecting variables for all classes keeps a square matrix of {model.dimension} dimensions, more than "
                f"{_MOST}; use prior='group-lasso', or fewer columns."
            )
        return tuple(model.blocks.parallel(lambda k: self._start(model.serial(), k), range(self.chains)))

    def step(
        self, model: Model, state: tuple[ClassSelectionChain, ...], iteration: int
    ) -> tuple[tuple[ClassSelectionChain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial()

        def one(k: int) -> ClassSelectionChain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(one, range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def _start(self, model: Model, k: int) -> ClassSelectionChain:
        rng, prior = model.streams.at(Purpose.START, chain=k), _prior(model)
        share = (0.0, 1.0, 0.5)[k % 3]
        gamma = (rng.random(len(prior.free)) < share) | prior.always
        state = prior.start()
        state = prior.state(state.values["scale"], prior.inclusion_of(state), gamma)
        f = rng.standard_normal(len(model.y))
        return self._draw(model, f, gamma, state, k, 0)

    def sweep(self, model: Model, chain: ClassSelectionChain, k: int, iteration: int) -> ClassSelectionChain:
        """One sweep of chain number ``k``."""
        prior, gamma = _prior(model), chain.gamma
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
        beta, f, scale = _scale_moves(model, rng, chain)
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        if prior.scale_prior.learned:
            slab = beta.reshape(-1, len(gamma))[:, gamma & ~prior.free]
            size = model.space.dimension(slab.size)
            scale = float(prior.scale_prior.draw(rng, float((slab * slab).sum()), size, scale**-2)) ** -0.5
        state = prior.state(scale, prior.draw_inclusion(rng, gamma), gamma)
        return self._draw(model, f, gamma, state, k, iteration)

    def moved(self, model: Model, chain: Any) -> Any:
        """The chain once the rows, their weights or the loss have changed: nothing is kept of them."""
        return chain

    def _draw(
        self, model: Model, f: Array, gamma: Flags, state: PriorState, k: int, iteration: int
    ) -> ClassSelectionChain:
        """Steps 3 to 5."""
        prior, space = _prior(model), _space(model)
        m, q = space.k - 1, len(gamma)
        w, b = draw_rows(model, f, Purpose.LATENT, chain=k, iteration=iteration)
        scale, pi = state.values["scale"], prior.inclusion_of(state)
        precision = prior.slab_precision(scale)
        A, r = _joint(space, *model.blocks.gram(w, b), precision)
        G = np.zeros((m * q + 1, m * q + 1))
        G[:-1, :-1], G[:-1, -1], G[-1, :-1] = A, r, r
        for at in np.flatnonzero(np.repeat(gamma, m)).tolist():
            sweep(G, at, 1.0)
        rng = model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration)
        gamma, inclusion = gamma.copy(), np.ones(q)
        order, uniform = rng.permutation(q), rng.random(q)
        odds = math.log(pi) - math.log1p(-pi)
        scan_variables(G, m, gamma, prior.always, precision, odds, order, uniform, inclusion)
        inside = np.repeat(gamma, m)
        theta = np.zeros(m * q)
        if inside.any():
            theta[inside] = Gaussian.from_precision(A[np.ix_(inside, inside)], r[inside]).draw(rng)
        beta = np.asarray(space.contrast.T @ theta.reshape(q, m).T).ravel()
        f = model.blocks.matvec(beta)
        loglik = float(model.loss.loglik(model.y, model.c, f).sum())
        return ClassSelectionChain(beta, f, gamma, prior.state(scale, pi, gamma), inclusion, loglik)


def _prior(model: Model) -> Any:
    return model.prior


def _space(model: Model) -> SumToZero:
    space: Any = model.space
    return space


def _joint(space: SumToZero, A: Array, c: Array, precision: Array) -> tuple[Array, Array]:
    """Precision and linear term in contrast coordinates, the k - 1 coordinates of a variable next to each other."""
    k, q = A.shape[:2]
    M = space.assembled(A, precision).transpose(2, 0, 3, 1)
    return M.reshape(q * (k - 1), q * (k - 1)), np.ascontiguousarray((space.contrast @ c.reshape(k, q)).T).ravel()


def _scale_moves(model: Model, rng: np.random.Generator, chain: ClassSelectionChain) -> tuple[Array, Array, float]:
    """beta -> g beta, then (scale, beta) -> (g scale, g beta), each by a slice update of log g."""
    prior, beta, f, scale = _prior(model), chain.beta, chain.f, chain.prior.values["scale"]
    q = len(chain.gamma)
    blocks = len(beta) // q
    precision = prior.slab_precision(scale)
    square = (beta.reshape(-1, q) ** 2).sum(axis=0)
    half, free = 0.5 * float(precision @ square), 0.5 * float(precision[prior.free] @ square[prior.free])
    d, n_free = (model.space.dimension(int(flags.sum()) * blocks) for flags in (chain.gamma, prior.free))
    if d == 0 or not beta.any():
        return beta, f, scale

    def loglik(t: float) -> float:
        return float(model.loss.loglik(model.y, model.c, math.exp(t) * f).sum())

    def stretched(t: float) -> float:
        return loglik(t) + d * t - half * math.exp(2.0 * t) if abs(t) < _FAR else -math.inf

    g = math.exp(slice_step(rng, stretched, 0.0, width=1.0 / math.sqrt(d)))
    beta, f, free = g * beta, g * f, g * g * free
    log_hyper = prior.stretch(chain.prior)
    if log_hyper is None:
        return beta, f, scale

    def together(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        return loglik(t) + log_hyper(t) + n_free * t - free * math.exp(2.0 * t)

    t = slice_step(rng, together, 0.0, width=0.5)
    return math.exp(t) * beta, math.exp(t) * f, math.exp(t) * scale
