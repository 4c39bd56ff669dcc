"""Gibbs sampling with the latents, in the order that leaves the posterior invariant."""

from __future__ import annotations

from typing import Any

from softmargin.core.move import Move
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.axes import AxisMoves
from softmargin.engines.sampling.moves.coefficients import Coefficients, from_rows
from softmargin.engines.sampling.moves.interweave import Interweave, InterweaveParts
from softmargin.engines.sampling.moves.prior_variables import PriorVariables
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns

__all__ = ["gibbs"]


def gibbs(chains: int = 4, scale_moves: bool = True, unknowns: tuple[Any, ...] | None = None) -> Chains:
    """Chains of the data-augmentation sampler.

    A sweep: (1) unknowns; (2) moves of beta along the axes of the variational fit, or where these cannot be had along
    itself, and (3) interweaving of a learned scale, and of each part's own where a prior has parts, on the posterior
    with all latents integrated out; (4) prior variables given beta, scale first, local variables after; (5) row latents
    given beta, and beta given everything, as one block. The order printed in the papers (local variables before the
    scale, with the local ones stale) is not invariant.

    Parameters
    ----------
    chains : int
        Number of chains.
    scale_moves : bool
        Whether to make moves (2) and (3). Without them the sampler is that of Polson and Scott.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    """
    between: tuple[Move, ...] = (AxisMoves(), Interweave(), InterweaveParts()) if scale_moves else ()
    return Chains((DrawUnknowns(), *between, PriorVariables(), Coefficients()), from_rows, chains, unknowns)
