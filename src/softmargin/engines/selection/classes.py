"""Sampling which variables are in, for all classes at once, together with their class coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.engines.sampling.moves.scale import Line
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.engines.selection._classes_compiled import scan_variables
from softmargin.engines.selection._scan_compiled import sweep
from softmargin.rows.streams import Address, Purpose
from softmargin.solvers.gaussian import Gaussian
from softmargin.solvers.sum_to_zero import SumToZero

__all__ = ["ClassInclusion", "ClassScaleMoves", "VariableScan", "class_spike_slab"]

_MOST = 3000  # dimensions whose square is kept


@dataclass(frozen=True)
class ClassScaleMoves(MoveBase):
    """Slice updates of log g in beta -> g beta, then in (scale, beta) -> (g scale, g beta), row latents integrated out.

    Invariance: as ``ScaleMove`` and ``Interweave``, in the dimensions that the variables that are in fill.
    """

    reads = frozenset({"beta", "f", "gamma", "scale"})
    stale = frozenset({"loglik"})
    needs_loss = ("loglik",)
    needs_prior = ("slab_precision", "stretch")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with coefficients of another length and another scale."""
        assert chain.gamma is not None
        prior, beta, scale = _prior(model), chain.beta, chain.prior.values["scale"]
        q = len(chain.gamma)
        blocks = len(beta) // q
        precision = prior.slab_precision(scale)
        square = (beta.reshape(-1, q) ** 2).sum(axis=0)
        half, free = 0.5 * float(precision @ square), 0.5 * float(precision[prior.free] @ square[prior.free])
        d, n_free = (model.space.dimension(int(flags.sum()) * blocks) for flags in (chain.gamma, prior.free))
        if d == 0 or not beta.any():
            return chain

        def length(t: float) -> float:
            return d * t - half * math.exp(2.0 * t)

        t, rows = Line(model, chain.rows).update(random.rng, length, width=1.0 / math.sqrt(d))
        beta, free = math.exp(t) * beta, math.exp(2.0 * t) * free
        log_hyper = prior.stretch(chain.prior)
        if log_hyper is None:
            return chain._replace(beta=beta, rows=rows, mean=beta)

        def together(t: float) -> float:
            return float(log_hyper(t)) + n_free * t - free * math.exp(2.0 * t)

        t, rows = Line(model, rows).update(random.rng, together, width=0.5)
        g = math.exp(t)
        state = prior.state(g * scale, prior.inclusion_of(chain.prior), chain.gamma)
        return chain._replace(beta=g * beta, rows=rows, mean=g * beta, prior=state)


@dataclass(frozen=True)
class ClassInclusion(MoveBase):
    """The scale given the coefficients of the variables that are in, and the inclusion probability given which are.

    Invariance: two draws from full conditionals.
    """

    reads = frozenset({"beta", "gamma"})
    renews = frozenset({"scale", "local"})
    needs_prior = ("draw_inclusion", "state")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new variables of the prior."""
        assert chain.gamma is not None
        prior, gamma, scale = _prior(model), chain.gamma, chain.prior.values["scale"]
        rng = random.at(Purpose.PRIOR)
        if prior.scale_prior.learned:
            slab = chain.beta.reshape(-1, len(gamma))[:, gamma & ~prior.free]
            size = model.space.dimension(slab.size)
            scale = float(prior.scale_prior.draw(rng, float((slab * slab).sum()), size, scale**-2)) ** -0.5
        return chain._replace(prior=prior.state(scale, prior.draw_inclusion(rng, gamma), gamma))


@dataclass(frozen=True)
class VariableScan(MoveBase):
    """Row latents; every variable in or out for all classes; the coefficients that are in, as one block.

    Invariance: given the latents each indicator is drawn from its conditional given the others, coefficients
    integrated out; then the coefficients from theirs.
    """

    reads = frozenset({"f", "gamma", "scale"})
    renews = frozenset({"beta", "f", "gamma", "loglik"})
    needs_loss = ("draw", "loglik")
    needs_prior = ("slab_precision", "inclusion_of", "state")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with other variables."""
        assert chain.gamma is not None
        prior, space, gamma = _prior(model), _space(model), chain.gamma.copy()
        m, q = space.k - 1, len(gamma)
        w, b = draw_rows(model, chain.f, Purpose.LATENT, chain=random.chain, iteration=random.iteration)
        scale, pi = chain.prior.values["scale"], prior.inclusion_of(chain.prior)
        precision = prior.slab_precision(scale)
        A, r = _joint(space, *model.blocks.gram(w, b), precision)
        G = np.zeros((m * q + 1, m * q + 1))
        G[:-1, :-1], G[:-1, -1], G[-1, :-1] = A, r, r
        for at in np.flatnonzero(np.repeat(gamma, m)).tolist():
            sweep(G, at, 1.0)
        rng, inclusion = random.at(Purpose.COEFFICIENTS), np.ones(q)
        order, uniform = rng.permutation(q), rng.random(q)
        room = np.empty((m + 1, m))
        scan_variables(G, m, gamma, prior.always, precision, prior.log_odds(pi), order, uniform, inclusion, room)
        inside = np.repeat(gamma, m)
        theta = np.zeros(m * q)
        if inside.any():
            theta[inside] = Gaussian.from_precision(A[np.ix_(inside, inside)], r[inside]).draw(rng)
        beta = np.asarray(space.contrast.T @ theta.reshape(q, m).T).ravel()
        (rows, loglik), state = model.predicted(beta), prior.state(scale, pi, gamma)
        return chain._replace(
            beta=beta, rows=rows, prior=state, mean=beta, loglik=loglik, gamma=gamma, inclusion=inclusion
        )


def class_spike_slab(chains: int = 4, unknowns: tuple[Any, ...] | None = None) -> Chains:
    """Chains over (gamma, beta, scale, inclusion probability), where ``gamma_j`` decides for all classes.

    The model's prior is a spike-and-slab bound to the variables. A sweep: (1) unknowns; (2) scale moves; (3) inclusion
    probability and scale given the rest; (4) row latents, every variable in or out, and the coefficients that are in.

    Parameters
    ----------
    chains : int
        Number of chains; they start from the empty model, the full one, and random ones in turn.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    """
    moves = (DrawUnknowns(), ClassScaleMoves(), ClassInclusion(), VariableScan())
    return Chains(moves, _starts, chains, unknowns)


def _starts(model: Model, chains: int) -> tuple[Chain, ...]:
    """Every chain in a model of its own."""
    if model.dimension > _MOST:
        raise ValueError(
            f"selecting variables for all classes keeps a square matrix of {model.dimension} dimensions, more than "
            f"{_MOST}; use prior='group-lasso', or fewer columns."
        )
    return tuple(model.blocks.parallel(lambda k: _start(model.serial(), k), range(chains)))


def _start(model: Model, k: int) -> Chain:
    rng, prior = model.streams.at(Purpose.START, chain=k), _prior(model)
    share = (0.0, 1.0, 0.5)[k % 3]
    gamma = (rng.random(len(prior.free)) < share) | prior.always
    state, nothing = prior.start(), np.zeros(model.size)
    state = prior.state(state.values["scale"], prior.inclusion_of(state), gamma)
    chain = Chain(nothing, model.placed(rng.standard_normal(len(model.y))), state, nothing, 0.0, gamma)
    return VariableScan()(Address(model.streams, k, 0), model, chain)


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
