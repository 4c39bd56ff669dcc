"""Sampling which coefficients are in, their values integrated out given the row messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.gibbs import draw_rows
from softmargin.engines.selection._scan_compiled import scan, swap_gain, sweep
from softmargin.engines.selection.laplace_zero import SelectionChain
from softmargin.rows.compiled import njit
from softmargin.rows.streams import Purpose
from softmargin.solvers.gaussian import Gaussian

__all__ = ["CollapsedGibbs"]

_MOST = 2000  # columns whose matrix a sweep works on


@njit(cache=True, nogil=True, error_model="numpy")
def _relocate(M: Any, d: Any, logit: Any, open_: Any, uniform: Any, gamma: Any) -> None:
    """Let one of the included coefficients go and draw who takes its place, itself or one of those that are out.

    ``M`` is swept on the included set. Which one goes is chosen evenly, and their number stays, so the draw is one of
    the conditional given all others. ``open_`` lists the coefficients that can be out.
    """
    gain = np.empty(len(open_))
    for turn in range(len(uniform)):
        size = 0
        for l in open_:
            size += gamma[l]
        if size == 0:
            return
        skip, j = int(uniform[turn, 0] * size), -1
        for l in open_:
            if gamma[l]:
                if skip == 0:
                    j = l
                    break
                skip -= 1
        top = 0.0
        for k in range(len(open_)):
            l = open_[k]
            gain[k] = 0.0 if l == j else -math.inf
            if not gamma[l]:
                gain[k] = swap_gain(M, d, logit, j, l)
                top = max(top, gain[k])
        total = 0.0
        for k in range(len(open_)):
            total += math.exp(gain[k] - top)
        left, chosen = uniform[turn, 1] * total, j
        for k in range(len(open_)):
            left -= math.exp(gain[k] - top)
            if left < 0.0:
                chosen = open_[k]
                break
        if chosen != j:
            sweep(M, j, -1.0)
            sweep(M, chosen, 1.0)
            gamma[j], gamma[chosen] = False, True


@dataclass(frozen=True)
class CollapsedGibbs:
    """Several chains over (gamma, beta, scale, inclusion probability), for losses that are not sums of hinges.

    A sweep: (1) inclusion probability and scale given the rest; (2) row messages given beta; (3) every indicator in
    turn, and exchanges of one that is in for one that is out, all coefficients integrated out; (4) the coefficients
    that are in, as one block. With the squared loss the messages are no draws, and (3) and (4) do not depend on where
    beta was.

    Parameters
    ----------
    chains : int
        Number of chains. They start from the empty model, the full one and a random one in turn.
    swaps : int or None
        Exchanges a sweep; None makes as many as there are columns, at most 16.

    References
    ----------
    Polson and Scott (2011), section 3.3; George and McCulloch (1997), Approaches for Bayesian variable selection.
    """

    chains: int = 4
    swaps: int | None = None
    needs_loss = ("draw", "loglik")
    needs_prior = ("draw_inclusion", "draw_scale", "slab_precision")

    def init(self, model: Model) -> tuple[SelectionChain, ...]:
        """Start every chain in a model of its own."""
        if model.size > _MOST:
            raise ValueError(
                f"a spike-and-slab prior with {type(model.loss).__name__} is for at most {_MOST} columns; X has "
                f"{model.size}: screen them first, or use likelihood='hinge'."
            )
        serial = model.serial()
        return tuple(model.blocks.parallel(lambda k: self._start(serial, k), range(self.chains)))

    def step(
        self, model: Model, state: tuple[SelectionChain, ...], iteration: int
    ) -> tuple[tuple[SelectionChain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial()
        new = tuple(model.blocks.parallel(lambda k: self.sweep(serial, state[k], k, iteration + 1), range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, chain: SelectionChain, k: int, iteration: int) -> SelectionChain:
        """One sweep of chain number ``k``."""
        prior: Any = model.prior
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        pi = prior.draw_inclusion(rng, chain.gamma)
        scale = prior.draw_scale(rng, chain.prior.values["scale"], chain.beta, chain.gamma)
        return self._coefficients(model, chain.f, chain.gamma, prior.state(scale, pi, chain.gamma), pi, k, iteration)

    def moved(self, model: Model, chain: Any) -> Any:
        """The chain once the rows, their weights or the loss have changed: nothing is kept of them."""
        return chain

    def _start(self, model: Model, k: int) -> SelectionChain:
        prior: Any = model.prior
        rng = model.streams.at(Purpose.START, chain=k)
        gamma = prior.always | (rng.random(model.size) < (0.0, 1.0, 0.5)[k % 3])
        state = prior.start()
        return self._coefficients(
            model, rng.standard_normal(len(model.y)), gamma, state, prior.inclusion_of(state), k, 0
        )

    def _coefficients(
        self, model: Model, f: Array, gamma: Flags, state: PriorState, pi: float, k: int, iteration: int
    ) -> SelectionChain:
        """Steps 2 to 4."""
        prior: Any = model.prior
        p, scale = model.size, state.values["scale"]
        A, linear = model.blocks.gram(*draw_rows(model, f, Purpose.LATENT, chain=k, iteration=iteration))
        d, logit = prior.slab_precision(scale), np.full(p, math.log(pi) - math.log1p(-pi))
        A.flat[:: p + 1] += d
        M = np.zeros((p + 1, p + 1))
        M[:p, :p], M[:p, p], M[p, :p] = A, linear, linear
        gamma, inclusion, open_ = gamma.copy(), np.ones(p), np.flatnonzero(~prior.always)
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
        order = rng.permutation(open_)
        scan(M, d, logit, order, rng.random(len(order)), gamma, inclusion)
        swaps = min(len(open_), 16) if self.swaps is None else self.swaps
        _relocate(M, d, logit, open_, rng.random((swaps, 2)), gamma)
        inside = np.flatnonzero(gamma)
        mean, beta = np.zeros(p), np.zeros(p)
        if len(inside):
            q = Gaussian.from_precision(A[np.ix_(inside, inside)], linear[inside])
            mean[inside] = q.mean
            beta[inside] = q.draw(model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration))
        f = model.blocks.matvec(beta)
        loglik = float(model.loss.loglik(model.y, model.c, f).sum())
        return SelectionChain(beta, f, prior.state(scale, pi, gamma), mean, loglik, gamma, inclusion)
