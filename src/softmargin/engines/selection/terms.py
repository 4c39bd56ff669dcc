"""Point masses on the fixed effects, normal terms beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step

__all__ = ["SelectionTerms"]


@dataclass(frozen=True)
class SelectionTerms:
    """A sampler that moves between models of the fixed effects, and the standard deviations of the terms.

    A sweep: (1) the sampler's own, the terms' coefficients always in with the precisions that their standard
    deviations give them; (2) for each learned standard deviation, a move of it together with its coefficients, and a
    draw of it given them. The chain's prior state carries the standard deviations.

    Parameters
    ----------
    sampler : SpikeSlabGibbs
        Sampler of the fixed effects.
    """

    sampler: Any
    needs_prior = ("draw", "parts")

    @property
    def chains(self) -> int:
        """Number of chains."""
        return int(self.sampler.chains)

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.sampler.needs_loss)

    def init(self, model: Model) -> tuple[Any, ...]:
        """Start the sampler with the terms at their start."""
        state = model.prior.start()
        return tuple(_joined(model, chain, state) for chain in self.sampler.init(_given(model, state)))

    def step(self, model: Model, state: tuple[Any, ...], iteration: int) -> tuple[tuple[Any, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial()
        new = tuple(model.blocks.parallel(lambda k: self.sweep(serial, state[k], k, iteration + 1), range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, chain: Any, k: int, iteration: int) -> Any:
        """One sweep of chain number ``k``."""
        before: PriorState = chain.prior
        chain = _joined(model, self.sampler.sweep(_given(model, before), chain, k, iteration), before)
        prior: Any = model.prior
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration, cell=1)
        for part in prior.parts[1:]:
            hyper = part.stretch(chain.prior)
            if hyper is None:
                continue
            chain = _together(model, chain, part, hyper, rng)
            own = part.prior.draw(rng, part.state(chain.prior), chain.beta[part.where])
            precision = chain.prior.precision.copy()
            part.put(precision, own.precision)
            chain = chain._replace(prior=PriorState(precision, chain.prior.values | part.named(own.values)))
        return chain._replace(loglik=float(model.loss.loglik(model.y, model.c, chain.f).sum()))

    def moved(self, model: Model, chain: Any) -> Any:
        """The chain once the columns have changed."""
        return self.sampler.moved(_given(model, chain.prior), chain)


def _given(model: Model, state: PriorState) -> Model:
    """The problem of the sampler: the terms' precisions are known."""
    prior: Any = model.prior
    return model.with_prior(prior.parts[0].prior.beside(state.precision[prior.parts[0].where.stop :]))


def _joined(model: Model, chain: Any, state: PriorState) -> Any:
    """The chain with the terms' standard deviations in its prior state."""
    prior: Any = model.prior
    names = {name for part in prior.parts[1:] for name in part.labels}
    values = {name: value for name, value in state.values.items() if name in names}
    return chain._replace(prior=PriorState(chain.prior.precision, chain.prior.values | values))


def _together(model: Model, chain: Any, part: Any, hyper: Any, rng: np.random.Generator) -> Any:
    """Slice update of g in (sd, u) -> (g sd, g u): the density of u given sd drops out."""
    own = np.zeros_like(chain.beta)
    own[part.where] = chain.beta[part.where]
    along = model.blocks.matvec(own)

    def log_density(t: float) -> float:
        if abs(t) > 20.0:
            return -math.inf
        f = chain.f + math.expm1(t) * along
        return float(model.loss.loglik(model.y, model.c, f).sum()) + float(hyper(t))

    t = slice_step(rng, log_density, 0.0, width=0.3)
    beta = chain.beta + math.expm1(t) * own
    return chain._replace(beta=beta, f=chain.f + math.expm1(t) * along, mean=beta, prior=part.stretched(chain.prior, t))
