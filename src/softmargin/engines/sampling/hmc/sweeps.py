"""Hamiltonian chains one by one, for a density that changes between their transitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.sampling.hmc.hmc import HMC, HMCState, Noise, Plan, _path, _start
from softmargin.engines.sampling.hmc.rows import Direct, Trajectory

__all__ = ["SweptChain", "SweptHMC"]


class SweptChain(NamedTuple):
    """Where one chain stands, in the form of the other samplers, and the state of the engine that it came from."""

    beta: Array
    f: Array
    prior: Any
    mean: Array  # expectation of the draw over its acceptance
    loglik: float
    state: HMCState


@dataclass(frozen=True)
class SweptHMC(HMC):
    """Hamiltonian Monte Carlo in the form of a Gibbs sampler: one transition of one chain a sweep.

    The model may have other weights, another loss or other responses in every sweep. What was tuned on the first one,
    the Gaussian to rotate and the number of steps, stays, and need not be right: a transition is accepted by the
    density of the model that the sweep is given.
    """

    def init(self, model: Model) -> tuple[SweptChain, ...]:  # type: ignore[override]
        """Tune on the model, and start every chain from its own draw of the Gaussian fit."""
        tuned = super().init(model)
        spread = np.sqrt(model.blocks.row_quad(tuned.plan.root))
        plan = tuned.plan._replace(rows=Direct(model, np.maximum(spread, 1e-10), None))
        alone = [replace(model, streams=model.streams.child(k)).serial() for k in range(self.chains)]
        return tuple(_chain(_start(own, plan, tuned.priors[0], 1)) for own in alone)

    def sweep(self, model: Model, chain: Any, k: int, iteration: int) -> SweptChain:
        """One transition of chain number ``k``, after the prior's own variables where they are not integrated out."""
        state, model = chain.state, replace(model, streams=chain.state.model.streams)
        plan = state.plan._replace(rows=replace(state.plan.rows, model=model))
        point = plan.rows.point(state.point.q, state.point.beta, plan.kappa)
        here = replace(state, model=model, plan=plan, point=point, ahead=None)
        return _chain(self.step(model, here, iteration - 1)[0])

    def moved(self, model: Model, chain: Any) -> Any:
        """The chain once the rows, their weights or the loss have changed: nothing is kept of them."""
        return chain

    def acceptance(self, chains: Sequence[SweptChain]) -> tuple[float, bool]:
        """Mean acceptance of the worst chain, and whether one was stuck."""
        health = [self.diagnostics(chain.state) for chain in chains]
        return min(float(each["acceptance"][0]) for each in health), any(each["stuck"].any() for each in health)

    def _path(self, model: Model, plan: Plan, noise: Noise, at: int) -> Trajectory:
        return _path(plan, noise, at, at + 1, plan.gram is None and plan.learned and self.scale_moves)


def _chain(state: HMCState) -> SweptChain:
    chain = state[0]
    return SweptChain(chain.beta, chain.f, chain.prior, chain.mean, chain.loglik, state)
