"""The coefficients that are in, and the scan over all indicators given the row latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.engines.selection._scan_compiled import scan
from softmargin.engines.selection.columns import Columns, energies, with_columns
from softmargin.priors.spike_slab import BoundSpikeSlab
from softmargin.rows.streams import Purpose
from softmargin.solvers.gaussian import Gaussian

__all__ = ["ActiveCoefficients", "PlainScan", "many_columns"]

_WIDE = 1000  # columns from which X'KX is not formed


def many_columns(model: Model) -> bool:
    """Whether there are too many columns for their matrix."""
    return model.size > _WIDE or model.size > len(model.y)


@dataclass(frozen=True)
class ActiveCoefficients(MoveBase):
    """Row latents given the predictors, and the coefficients that are in, as one block.

    Invariance: two draws from full conditionals at given indicators. With many columns the inclusion probability of
    every coefficient given the latents is noted from time to time; that changes nothing in the chain.
    """

    reads = frozenset({"f", "gamma", "scale"})
    renews = frozenset({"beta", "f", "local", "loglik"})
    needs_loss = ("draw", "loglik", "pieces")
    needs_prior = ("slab_precision", "inclusion_of", "state")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new coefficients."""
        assert chain.gamma is not None
        prior: Any = model.prior
        gamma = chain.gamma
        columns, chain = with_columns(model, chain)
        scale, pi = chain.prior.values["scale"], prior.inclusion_of(chain.prior)
        n, messages = model.n, np.zeros((2, len(columns.slope)))  # a row's message goes to its first hinge
        messages[:, :n] = draw_rows(model, chain.f, Purpose.LATENT, chain=random.chain, iteration=random.iteration)
        w, b = messages[0] * columns.inverse**2, messages[1] * columns.inverse
        index = np.flatnonzero(gamma)
        beta, mean, inclusion = np.zeros(model.size), np.zeros(model.size), chain.inclusion
        active, q = columns.Z[index], None
        if len(index):
            half = active * np.sqrt(w)
            A = half @ half.T
            A.flat[:: len(index) + 1] += prior.slab_precision(scale)[index]
            q = Gaussian.from_precision(A, active @ b)
            beta[index] = q.draw(random.at(Purpose.COEFFICIENTS))
            mean[index] = q.mean
        if many_columns(model) and random.iteration and random.iteration % (1 + len(beta) // 2000) == 0:
            inclusion = _inclusions(columns, w, b, index, active, q, prior, scale, prior.log_odds(pi))
        (rows, loglik), state = model.predicted(beta), prior.state(scale, pi, gamma)
        return chain._replace(beta=beta, rows=rows, mean=mean, loglik=loglik, inclusion=inclusion, prior=state)


def _inclusions(
    columns: Columns, w: Array, b: Array, index: Any, active: Array, q: Gaussian | None, prior: BoundSpikeSlab,
    scale: float, logit: Array,
) -> Array:  # fmt: skip
    """P(gamma_j = 1 | other indicators, latents) of every j, in one pass over the columns; q is None if none is in."""
    d = prior.slab_precision(scale)
    s, r = np.empty(len(d)), columns.Z @ b
    energies(columns.Z, w, s)
    s += d
    if q is not None:
        block = (active * w) @ columns.Z.T  # (active, p): X_A' W X
        r -= q.mean @ block
        s -= np.einsum("kj,kj->j", block, q.root @ (q.root.T @ block))
        s[index] = 1.0 / q.var
        r[index] = q.mean * s[index]
    s = np.maximum(s, 0.5 * d)
    odds = logit + 0.5 * np.log(d / s) + 0.5 * r * r / s
    inclusion: Array = np.where(prior.always, 1.0, 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(odds, -700.0), 700.0))))
    return inclusion


@dataclass(frozen=True)
class PlainScan(MoveBase):
    """Latents given beta, indicators given latents with beta integrated out, beta given both.

    Invariance: each a draw from its conditional; the indicators in random order.

    References
    ----------
    Polson and Scott (2011), section 3.3.
    """

    reads = frozenset({"f", "gamma", "scale"})
    renews = frozenset({"beta", "f", "gamma", "local", "loglik"})
    needs_loss = ("draw", "loglik")
    needs_prior = ("slab_precision", "inclusion_of", "state")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with other indicators and coefficients."""
        assert chain.gamma is not None
        prior: Any = model.prior
        p, rng, scale, pi = model.size, random.rng, chain.prior.values["scale"], prior.inclusion_of(chain.prior)
        w, b = draw_rows(model, chain.f, Purpose.LATENT, chain=random.chain, iteration=random.iteration)
        d = prior.slab_precision(scale)
        M = np.zeros((p + 1, p + 1))
        A, r = model.blocks.gram(w, b)
        A.flat[:: p + 1] += d
        M[:p, :p], M[:p, p], M[p, :p] = A, r, r
        gamma, inclusion = chain.gamma.copy(), np.ones(p)
        order = rng.permutation(np.flatnonzero(~prior.always))
        changed = scan(M, d, prior.log_odds(pi), order, rng.random(len(order)), gamma, inclusion)
        index = np.flatnonzero(gamma)
        beta, mean = np.zeros(p), np.zeros(p)
        if len(index):
            q = Gaussian.from_precision(A[np.ix_(index, index)], r[index])
            beta[index] = q.draw(random.at(Purpose.COEFFICIENTS))
            mean[index] = q.mean
        (rows, loglik), state = model.predicted(beta), prior.state(scale, pi, gamma)
        tally = chain.own["tally"]
        tally = tally._replace(flips=tally.flips + np.array([len(order), len(order), changed]))
        chain = chain._replace(
            beta=beta, rows=rows, prior=state, mean=mean, loglik=loglik, gamma=gamma, inclusion=inclusion
        )
        return chain.keeping(tally=tally)
