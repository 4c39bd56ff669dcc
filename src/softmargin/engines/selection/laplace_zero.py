"""Exact draws under the Laplace-zero prior: indicators with their coefficients integrated out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.gibbs import Gibbs, _interweave, _scale_move
from softmargin.losses.normal import log_mills, tail_draw
from softmargin.rows.compiled import njit
from softmargin.rows.in_memory import Cell
from softmargin.rows.streams import Purpose
from softmargin.solvers.gaussian import Gaussian

__all__ = ["LaplaceZeroGibbs", "SelectionChain", "log_inclusion_odds"]


class SelectionChain(NamedTuple):
    """Where one chain stands; a coefficient that is left out is exactly zero."""

    beta: Array
    f: Array
    prior: PriorState
    mean: Array  # mean of the last draw of the coefficients that are in, zero elsewhere
    loglik: float
    gamma: Flags
    inclusion: Array  # probability of each coefficient being in, given the others, when it was last visited


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
    rng: Any, A: Any, linear: Any, order: Any, rate: float, logit: float, learned: bool, beta: Any, inclusion: Any
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
class LaplaceZeroGibbs(Gibbs):
    """Several chains with every indicator drawn after its coefficient is integrated out.

    A sweep: (1) scale move and interweaving on the posterior without latents; (2) row latents, turned at once into
    the weighted Gram; (3) indicators with their coefficients, in random order; (4) scale given the coefficients that
    are in, then their local precisions, then a learned inclusion probability; (5) all coefficients that are in, as
    one block. Local precisions are integrated out of (1) and (3), which the scheme in the paper does not do.

    Parameters
    ----------
    chains : int
        Number of chains.
    scale_moves : bool
        Whether to make moves (1).
    scans : int
        Passes over the indicators a sweep; a pass costs far less than the Gram.

    References
    ----------
    Luts and Ormerod (2014), section 3.2 and appendix B.
    """

    scans: int = 3
    needs_prior = ("draw", "along", "stretch", "expect_inclusion")

    @staticmethod
    def _prior(model: Model) -> Any:
        return model.prior

    def _start(self, model: Model, k: int) -> SelectionChain:  # type: ignore[override]
        model, bound = model.serial(), self._prior(model)
        rng = model.streams.at(Purpose.START, chain=k)
        f, beta = rng.standard_normal(len(model.y)), np.zeros(model.size)
        prior = bound.start()
        if bound.stretch(prior) is not None:
            prior = bound.stretched(prior, float(rng.normal()))
        beta[bound.always] = rng.standard_normal(int(bound.always.sum()))
        if k % 2:  # every other chain starts with all coefficients in
            beta[bound.candidates] = rng.standard_normal(len(bound.candidates))
        return self._coefficients(model, f, prior, k, 0, beta)

    def sweep(  # type: ignore[override]
        self, model: Model, chain: Any, k: int, iteration: int
    ) -> SelectionChain:
        """One sweep of chain number ``k``."""
        beta, f, prior = chain.beta, chain.f, chain.prior
        if self.scale_moves:
            rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
            beta, f = _scale_move(model, rng, beta, f, prior)
            beta, f, prior = _interweave(model, rng, beta, f, prior)
        return self._coefficients(model, f, prior, k, iteration, beta)

    def _coefficients(  # type: ignore[override]
        self, model: Model, f: Array, prior: PriorState, k: int, iteration: int, beta: Array
    ) -> SelectionChain:
        """Steps 2 to 5."""
        blocks, bound = model.blocks, self._prior(model)

        def collect(cell: Cell) -> tuple[Array, Array]:
            at = slice(cell.lo, cell.hi)
            rng = model.streams.at(Purpose.LATENT, chain=k, iteration=iteration, cell=cell.number)
            w, b = model.loss.draw(rng, blocks.y[at], blocks.weight[at], f[at])
            return blocks.design.gram(w, b, cell.lo, cell.hi)

        A, linear = blocks.reduce(collect)
        beta, inclusion = beta.copy(), np.ones(len(beta))
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        rate, learned = 1.0 / prior.values["scale"], bound.inclusion is None
        for _ in range(self.scans):
            order = rng.permutation(bound.candidates)
            _scan(rng, A, linear, order, rate, bound.prior_log_odds, learned, beta, inclusion)
        prior = bound.draw(rng, prior, beta)
        gamma = bound.free | bound.always | (beta != 0.0)
        inside = np.flatnonzero(gamma)
        mean, beta = np.zeros(len(gamma)), np.zeros(len(gamma))
        if len(inside):
            active = A[np.ix_(inside, inside)]
            active.flat[:: len(inside) + 1] += prior.precision[inside]
            q = Gaussian.from_precision(active, linear[inside])
            mean[inside] = q.mean
            beta[inside] = q.draw(model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration))
        f = blocks.matvec(beta)
        loglik = float(model.loss.loglik(model.y, model.c, f).sum())
        return SelectionChain(beta, f, prior, mean, loglik, gamma, inclusion)
