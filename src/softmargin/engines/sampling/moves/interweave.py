"""A learned scale together with the coefficients that it shrinks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.core.visits import less, predictors
from softmargin.engines.sampling.moves.scale import Line

__all__ = ["Interweave", "InterweaveParts"]


@dataclass(frozen=True)
class Interweave(MoveBase):
    """Slice update of g in (scale, beta) -> (g scale, g beta), row latents integrated out.

    Where the prior has a centre, what the coefficients are less that centre grows.

    Invariance: with beta/scale and the local variables fixed the prior of the shrunk coefficients drops out of the
    density of log g, and the coefficients that are not shrunk bring their own prior and one factor g each. If these
    did not move, the scale of separable data would be stuck, because the boundary moves unless all coefficients grow
    together.

    References
    ----------
    Yu and Meng (2011), To center or not to center, Journal of Computational and Graphical Statistics 20.
    """

    reads = frozenset({"beta", "f", "scale"})
    stale = frozenset({"loglik"})
    needs_loss = ("loglik",)
    needs_prior = ("stretch",)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with another scale and coefficients of another length."""
        beta, prior = chain.beta, chain.prior
        log_hyper = model.prior.stretch(prior)
        if log_hyper is None:
            return chain
        n_free, centre = model.free_dimension, model.prior.centre
        own = beta if centre is None else beta - centre
        line = Line(model, chain.rows) if centre is None else _apart(model, chain.rows, own)
        half = 0.5 * float(prior.precision[: model.size][model.free] @ beta[model.free] ** 2)

        def log_density(t: float) -> float:
            return float(log_hyper(t)) + n_free * t - half * math.exp(2.0 * t)

        t, rows = line.update(random.rng, log_density, width=0.5)
        beta = math.exp(t) * own if centre is None else centre + math.exp(t) * own
        return chain._replace(beta=beta, rows=rows, mean=beta, prior=model.prior.stretched(prior, t))


def _apart(model: Model, rows: Any, own: Array) -> Line:
    """Predictors of which the part that comes from ``own`` coefficients grows, and the rest stays."""
    moving, _ = model.blocks.keep(predictors, own)
    fixed, _ = model.blocks.keep(less, None, rows, moving)
    return Line(model, moving, fixed)


@dataclass(frozen=True)
class InterweaveParts(MoveBase):
    """The same for each part of a prior in turn: its shrunk coefficients grow with its scale, all others stay.

    Invariance: as ``Interweave``, with the coefficients outside the part, and those of it that are not shrunk, fixed.
    """

    reads = frozenset({"beta", "f", "scale"})
    stale = frozenset({"loglik"})
    needs_loss = ("loglik",)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with other scales of the parts."""
        for part in model.prior.parts:
            chain = _one_part(random.rng, model, part, chain)
        return chain


def _one_part(rng: np.random.Generator, model: Model, part: Any, chain: Chain) -> Chain:
    beta, prior = chain.beta, chain.prior
    log_hyper = part.stretch(prior)
    if log_hyper is None:
        return chain
    own, centre = np.zeros_like(beta), 0.0 if part.prior.centre is None else part.prior.centre
    own[part.where] = np.where(model.free[part.where], 0.0, beta[part.where] - centre)
    t, rows = _apart(model, chain.rows, own).update(rng, lambda t: float(log_hyper(t)), width=0.5)
    beta = beta + math.expm1(t) * own
    return chain._replace(beta=beta, rows=rows, mean=beta, prior=part.stretched(prior, t))
