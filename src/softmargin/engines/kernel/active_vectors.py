"""Draws of kernel expansions on a few active rows, by reversible jumps between sets of them."""

from __future__ import annotations

import math

import numpy as np

from softmargin.core.move import Move
from softmargin.engines.kernel.active_chain import ActiveChain, Law, factor
from softmargin.engines.kernel.active_set import Jumps
from softmargin.engines.kernel.coefficients import BasisCoefficients, LawOfCoefficients
from softmargin.engines.kernel.data import KernelData, LengthScale
from softmargin.engines.kernel.latents import CollapsedLatents, CopyLatents, RowLatents
from softmargin.engines.kernel.length import LengthMove
from softmargin.engines.kernel.precisions import Precisions, Stretch
from softmargin.engines.sampling.chains import Chains
from softmargin.losses.row_loss import check_whole_weights
from softmargin.rows.streams import Purpose

__all__ = ["active_vectors"]

_FIRST = 5  # largest number of rows that a chain starts with


def active_vectors(
    max_active: int,
    times: int,
    collapsed: bool = False,
    informed: bool = False,
    length: LengthScale | None = None,
    warmup: int = 0,
    chains: int = 1,
) -> Chains:
    """Chains over active sets, coefficients and precisions.

    A sweep: (1) row latents given the predictors; (2) a learned length scale, (3) for the probit every latent given the
    others, and (4) the active set, all with the coefficients integrated out; (5) intercept and coefficients; (6) their
    precisions; (7) g and the coefficients stretched together, latents integrated out. Moves 2 to 4 discard the
    coefficients, so 5 must come before anything uses them: the order printed in the paper, latents, precisions,
    coefficients, active set, is not invariant.

    Parameters
    ----------
    max_active : int
        Largest number of active rows.
    times : int
        Birth, death or swap proposals a sweep.
    collapsed : bool
        Whether to make move (3), which the probit alone allows.
    informed : bool
        Whether births choose rows by their pull on the residual; a proposal then costs a pass over the kernel matrix.
    length : LengthScale or None
        Learn the length scale.
    warmup : int
        Sweeps during which the length scale's step adapts.
    chains : int
        Number of chains.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), section 3.2; Holmes and Held (2006), Bayesian Analysis 1, 145-168.
    """
    latents = CopyLatents() if collapsed else RowLatents()
    between: tuple[Move, ...] = () if length is None else (LengthMove(length, warmup),)
    between += (CollapsedLatents(),) if collapsed else ()
    end = (Jumps(max_active, times, informed), BasisCoefficients(), Precisions(), Stretch())

    def start(model: KernelData, chains: int) -> tuple[ActiveChain, ...]:
        if collapsed:
            check_whole_weights(model.loss, model.c)
        first = math.nan if length is None else length.first
        return tuple(_start(model, k, min(max_active, _FIRST), first) for k in range(chains))

    return Chains((latents, LawOfCoefficients(same_weights=collapsed), *between, *end), start, chains)


def _start(model: KernelData, chain: int, most: int, length: float) -> ActiveChain:
    """A few random active rows, predictors of zero."""
    rng, nothing = model.streams.at(Purpose.START, chain=chain), np.zeros(len(model.y))
    index = rng.permutation(len(model.y))[: int(rng.integers(1, most + 1))]
    eta, g = model.prior.start()
    G, R = factor(model.K, index)
    x = np.zeros(len(G))
    law = Law.of((G * model.c) @ G.T, x, eta, g)
    counts = np.zeros((3, 2), dtype=np.int64)
    return ActiveChain(
        model.K, index, G, R, law, model.c, nothing, np.empty(0), x, nothing, eta, g, length, -1.0, math.nan, counts
    )  # fmt: skip
