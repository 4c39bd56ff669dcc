"""Sampling which coefficients are in, their values integrated out given the row messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.engines.sampling.moves.prior_variables import PriorVariables
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.engines.selection._scan_compiled import scan, swap_gain, sweep
from softmargin.rows.compiled import njit
from softmargin.rows.streams import Address, Purpose
from softmargin.solvers.gaussian import Gaussian

__all__ = ["CollapsedScan", "collapsed"]

_MOST = 2000  # columns whose matrix a sweep works on


@njit(cache=True, nogil=True, error_model="numpy")
def _relocate(M: Any, d: Any, logit: Any, open_: Any, uniform: Any, gamma: Any, gain: Any) -> None:
    """Let one of the included coefficients go and draw who takes its place, itself or one of those that are out.

    ``M`` is swept on the included set. Which one goes is chosen evenly, and their number stays, so the draw is one of
    the conditional given all others. ``open_`` lists the coefficients that can be out, ``gain`` is room for as
    many numbers.
    """
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
class CollapsedScan(MoveBase):
    """Row latents; every indicator, and exchanges of one that is in for one that is out; the coefficients that are in.

    Invariance: given the latents, each indicator is drawn from its conditional given the others with all coefficients
    integrated out; an exchange is a draw of which coefficient takes the place of one chosen evenly among those that are
    in; then the coefficients that are in are one normal block. With the squared loss the latents are constants, and the
    result does not depend on where beta was.

    Parameters
    ----------
    swaps : int or None
        Exchanges per sweep; None makes as many as there are columns, at most 16.

    References
    ----------
    Polson and Scott (2011), section 3.3; George and McCulloch (1997), Approaches for Bayesian variable selection.
    """

    swaps: int | None = None

    reads = frozenset({"f", "gamma", "scale"})
    renews = frozenset({"beta", "f", "gamma", "loglik"})
    needs_loss = ("draw", "loglik")
    needs_prior = ("slab_precision", "inclusion_of", "state")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with other indicators and coefficients."""
        assert chain.gamma is not None
        prior: Any = model.prior
        p, scale, pi = model.size, chain.prior.values["scale"], prior.inclusion_of(chain.prior)
        drawn = draw_rows(model, chain.f, Purpose.LATENT, chain=random.chain, iteration=random.iteration)
        A, linear = model.blocks.gram(*drawn)
        d, logit = prior.slab_precision(scale), prior.log_odds(pi)
        A.flat[:: p + 1] += d
        M = np.zeros((p + 1, p + 1))
        M[:p, :p], M[:p, p], M[p, :p] = A, linear, linear
        gamma, inclusion, open_ = chain.gamma.copy(), np.ones(p), np.flatnonzero(~prior.always)
        order = random.rng.permutation(open_)
        scan(M, d, logit, order, random.rng.random(len(order)), gamma, inclusion)
        swaps = min(len(open_), 16) if self.swaps is None else self.swaps
        _relocate(M, d, logit, open_, random.rng.random((swaps, 2)), gamma, np.empty(len(open_)))
        inside = np.flatnonzero(gamma)
        mean, beta = np.zeros(p), np.zeros(p)
        if len(inside):
            q = Gaussian.from_precision(A[np.ix_(inside, inside)], linear[inside])
            mean[inside] = q.mean
            beta[inside] = q.draw(random.at(Purpose.COEFFICIENTS))
        (rows, loglik), state = model.predicted(beta), prior.state(scale, pi, gamma)
        return chain._replace(
            beta=beta, rows=rows, prior=state, mean=mean, loglik=loglik, gamma=gamma, inclusion=inclusion
        )


def collapsed(chains: int = 4, swaps: int | None = None, unknowns: tuple[Any, ...] | None = None) -> Chains:
    """Chains over (gamma, beta, scale, inclusion probability), for losses that are not sums of hinges.

    A sweep: (1) unknowns; (2) inclusion probability and scale given the rest; (3) row latents, indicators with all
    coefficients integrated out, and the coefficients that are in.

    Parameters
    ----------
    chains : int
        Number of chains. They start from the empty model, the full one and a random one in turn.
    swaps : int or None
        Exchanges per sweep; None makes as many as there are columns, at most 16.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    """
    return Chains((DrawUnknowns(), PriorVariables(), CollapsedScan(swaps)), _starts(swaps), chains, unknowns)


def _starts(swaps: int | None) -> Any:
    scan = CollapsedScan(swaps)

    def start(model: Model, k: int) -> Chain:
        prior: Any = model.prior
        rng, nothing = model.streams.at(Purpose.START, chain=k), np.zeros(model.size)
        gamma = prior.always | (rng.random(model.size) < (0.0, 1.0, 0.5)[k % 3])
        rows = model.placed(rng.standard_normal(len(model.y)))
        chain = Chain(nothing, rows, prior.start(), nothing, 0.0, gamma)
        address = Address(model.streams, k, 0, model.streams.at(Purpose.MOVES, chain=k))
        return scan(address, model, chain)

    def starts(model: Model, chains: int) -> tuple[Chain, ...]:
        if model.size > _MOST:
            raise ValueError(
                f"a spike-and-slab prior with {type(model.loss).__name__} is for at most {_MOST} columns; X has "
                f"{model.size}: screen them first, or use likelihood='hinge'."
            )
        serial = model.serial()
        return tuple(model.blocks.parallel(lambda k: start(serial, k), range(chains)))

    return starts
