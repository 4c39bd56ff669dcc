"""Draws under the Laplace-zero prior: indicators with their coefficients integrated out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import Move, MoveBase
from softmargin.core.visits import Latents, drawn, gram_of, started
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.coefficients import spread_prior
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.losses.formulas.normal import log_mills, tail_draw
from softmargin.rows.compiled import njit
from softmargin.rows.streams import Address, Purpose
from softmargin.solvers.gaussian import Gaussian

__all__ = ["LaplaceZeroScan", "laplace_zero", "log_inclusion_odds"]


@njit(cache=True, nogil=True, error_model="numpy")
def log_inclusion_odds(curvature: float, pull: float, rate: float) -> tuple[float, float, float]:
    """``log`` of the integral of ``(rate/2) exp(-rate |v| - curvature v^2/2 + pull v)``, and of its two halves.

    Added to the prior log odds it gives those of a coefficient whose Laplace value is integrated out.
    """
    sd = 1.0 / math.sqrt(max(curvature, 1e-200))
    constant = math.log(0.5 * rate * sd)
    right = constant + log_mills((pull - rate) * sd)
    left = constant + log_mills((-pull - rate) * sd)
    top = max(left, right)
    return top + math.log(math.exp(left - top) + math.exp(right - top)), left, right


@njit(cache=True, nogil=True, error_model="numpy")
def _scan(
    rng: Any, A: Any, linear: Any, order: Any, rate: float, logits: Any, learned: bool, beta: Any, inclusion: Any
) -> None:
    """Draw (g_k, v_k) of every candidate given the others, its value integrated out of the choice; O(q) each."""
    m, size = len(order), 0
    for k in order:
        size += beta[k] != 0.0
    pull = linear - A @ beta
    for k in order:
        old = beta[k]
        h = pull[k] + A[k, k] * old
        total, _, right = log_inclusion_odds(A[k, k], h, rate)
        logit = logits[k]
        if learned:  # uniform prior of the inclusion probability integrated out
            others = size - (old != 0.0)
            logit = math.log((1.0 + others) / (m - others))
        odds = logit + total
        inclusion[k] = 1.0 / (1.0 + math.exp(-odds)) if odds > -700.0 else 0.0
        new = 0.0
        if rng.random() < inclusion[k]:
            sd = 1.0 / math.sqrt(max(A[k, k], 1e-200))
            if rng.random() < math.exp(right - total):
                new = sd * tail_draw(rng, (h - rate) * sd)
            else:
                new = -sd * tail_draw(rng, (-h - rate) * sd)
        if new != old:
            size += (new != 0.0) - (old != 0.0)
            beta[k] = new
            for l in range(len(pull)):
                pull[l] -= A[k, l] * (new - old)


@dataclass(frozen=True)
class LaplaceZeroScan(MoveBase):
    """Row latents; every indicator with its coefficient, in random order; prior variables; coefficients as one block.

    Invariance: given the latents each pair (indicator, value) is drawn from its conditional given the others, local
    precisions integrated out, which the scheme in the paper does not do; then the scale given the coefficients that are
    in, their local precisions, a learned inclusion probability, and all coefficients that are in, each from its
    conditional in this order.

    Parameters
    ----------
    scans : int
        Passes over the indicators per sweep; a pass costs far less than the Gram matrix.

    References
    ----------
    Luts and Ormerod (2014), section 3.2 and appendix B.
    """

    scans: int = 3

    reads = frozenset({"beta", "f", "scale"})
    renews = frozenset({"beta", "f", "gamma", "scale", "local", "loglik"})
    needs_loss = ("draw", "loglik")
    needs_prior = ("draw", "expect_inclusion")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with other indicators and coefficients."""
        bound: Any = model.prior
        latents = Latents(model.loss, model.streams, Purpose.LATENT, random.chain, random.iteration)
        A, linear = model.blocks.sum(gram_of, (drawn, latents), chain.rows)
        beta, inclusion = chain.beta.copy(), np.ones(len(chain.beta))
        rng = random.at(Purpose.PRIOR)
        rate, learned = 1.0 / chain.prior.values["scale"], bound.inclusion is None
        for _ in range(self.scans):
            order = rng.permutation(bound.candidates)
            _scan(rng, A, linear, order, rate, bound.prior_log_odds, learned, beta, inclusion)
        prior = bound.draw(rng, chain.prior, beta)
        gamma = bound.free | bound.always | (beta != 0.0)
        inside = np.flatnonzero(gamma)
        mean, beta = np.zeros(len(gamma)), np.zeros(len(gamma))
        if len(inside):
            active = A[np.ix_(inside, inside)]
            active.flat[:: len(inside) + 1] += prior.precision[inside]
            q = Gaussian.from_precision(active, linear[inside])
            mean[inside] = q.mean
            beta[inside] = q.draw(random.at(Purpose.COEFFICIENTS))
        rows, loglik = model.predicted(beta)
        return chain._replace(
            beta=beta, rows=rows, prior=prior, mean=mean, loglik=loglik, gamma=gamma, inclusion=inclusion
        )  # fmt: skip


def laplace_zero(
    chains: int = 4, scale_moves: bool = True, scans: int = 3, unknowns: tuple[Any, ...] | None = None
) -> Chains:
    """Chains with every indicator drawn after its coefficient is integrated out.

    A sweep: (1) unknowns; (2) scale move and interweaving on the posterior without latents; (3) row latents,
    indicators, prior variables and coefficients.

    Parameters
    ----------
    chains : int
        Number of chains. Every other one starts with all coefficients in.
    scale_moves : bool
        Whether to make moves (2).
    scans : int
        Passes over the indicators per sweep.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    """
    scan = LaplaceZeroScan(scans)

    def start(model: Model, chains: int) -> tuple[Chain, ...]:
        return tuple(model.blocks.parallel(lambda k: _start(scan, model.serial(), k), range(chains)))

    between: tuple[Move, ...] = (ScaleMove(), Interweave()) if scale_moves else ()
    return Chains((DrawUnknowns(), *between, scan), start, chains, unknowns)


def _start(scan: LaplaceZeroScan, model: Model, k: int) -> Chain:
    bound: Any = model.prior
    rows, _ = model.blocks.keep(started, Latents(model.loss, model.streams, Purpose.START, k, 0))
    rng, beta = model.streams.at(Purpose.START, chain=k, iteration=1), np.zeros(model.size)
    prior = spread_prior(model, rng)
    beta[bound.always] = rng.standard_normal(int(bound.always.sum()))
    if k % 2:
        beta[bound.candidates] = rng.standard_normal(len(bound.candidates))
    return scan(Address(model.streams, k, 0), model, Chain(beta, rows, prior, beta, 0.0))
