"""Sampling which coefficients are in, together with their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.array import Flags
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import Move
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.prior_variables import PriorVariables
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.engines.selection.active import ActiveCoefficients, PlainScan, many_columns
from softmargin.engines.selection.columns import Columns, columns_of
from softmargin.engines.selection.lines import LineMoves, WatchLines
from softmargin.engines.selection.tally import Count
from softmargin.engines.selection.tempering import Tempered, tempered_starts
from softmargin.rows.streams import Address, Purpose

__all__ = ["spike_slab"]

_SETTLE = 3  # draws of the coefficients before the first sweep


def spike_slab(
    chains: int = 4,
    warmup: int = 1000,
    scan: str = "lines",
    flips: int | None = None,
    swaps: int | None = None,
    births: int | None = None,
    scale_moves: bool = True,
    ladder: tuple[float, ...] | None = None,
    temper: float = 0.5,
    unknowns: tuple[Any, ...] | None = None,
) -> Chains:
    """Chains over (gamma, beta, scale, inclusion probability).

    A sweep: (1) unknowns; (2) scale move and interweaving of a learned scale; (3) inclusion probability and scale given
    the rest; (4) flips, births and deaths, and swaps along compensated lines, row latents integrated out; (5) row
    latents given beta, and the active coefficients given everything, as one block. During the warm-up the reference
    precision of the lines and the choice of coefficients adapt; afterwards nothing does.

    Parameters
    ----------
    chains : int
        Number of chains. They start from the empty model, the full one (few columns) or the best single columns
        (many), a random one, and the best columns, in turn.
    warmup : int
        Sweeps during which the sampler adapts; they must not be kept.
    scan : {"lines", "plain"}
        "plain" replaces (4) and (5) by the scan given the latents (Polson and Scott), for comparison.
    flips, swaps, births : int or None
        How many of these moves a sweep makes; None chooses by the number of columns.
    scale_moves : bool
        Whether to make the moves (2).
    ladder : tuple of float or None
        Factors, decreasing below 1, by which the row weights of companion chains are multiplied; see ``Tempered``.
    temper : float
        Exponent of the approximate odds by which candidates of informed moves are chosen.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    """
    if scan not in ("lines", "plain"):
        raise ValueError(f"scan must be 'lines' or 'plain'; got {scan!r}.")
    lines: tuple[Move, ...] = (LineMoves(warmup, flips, swaps, births, temper), ActiveCoefficients())
    scans = (*lines, WatchLines(warmup)) if scan == "lines" else (PlainScan(),)
    between: tuple[Move, ...] = (ScaleMove(), Interweave()) if scale_moves else ()
    levels = Tempered((*between, PriorVariables(), *scans, Count(warmup)), ladder if scan == "lines" else ())

    def start(model: Model, chains: int) -> tuple[Chain, ...]:
        _check_hinge(model)
        serial, factors = model.serial(), levels.of(model)
        columns = columns_of(serial)

        def one(k: int) -> Chain:
            cold = _start(serial, k, columns)
            return cold.keeping(hot=tempered_starts(_start, serial, k, factors))

        return tuple(model.blocks.parallel(one, range(chains)))

    return Chains((DrawUnknowns(), levels), start, chains, unknowns)


def _start(model: Model, k: int, columns: Columns | None = None) -> Chain:
    """A chain in a model of its own, its coefficients drawn a few times."""
    prior: Any = model.prior
    columns = columns_of(model) if columns is None else columns
    rng, nothing = model.streams.at(Purpose.START, chain=k), np.zeros(model.size)
    state = prior.start()
    scale, pi = state.values["scale"], prior.inclusion_of(state)
    if prior.scale_prior.learned:
        scale *= math.exp(float(rng.normal()))
    gamma = _start_model(rng, columns, prior.always, k, len(model.y), many_columns(model))
    rows = model.placed(rng.standard_normal(len(model.y)))
    chain = Chain(
        nothing, rows, prior.state(scale, pi, gamma), nothing, 0.0, gamma, gamma.astype(float), own={"columns": columns}
    )
    for turn in range(_SETTLE):
        chain = ActiveCoefficients()(Address(model.streams, k + (turn << 48), 0), model, chain)
    return chain


def _check_hinge(model: Model) -> None:
    """The lines need the hinge, or a sum of hinges: refuse a loss whose values differ from its pieces."""
    y, c = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 0.5, 2.0, 1.0])
    f = np.array([0.3, 0.7, 1.5, -2.5])
    start, sign, _ = model.loss.pieces(y, c)
    hinges = -2.0 * c * np.maximum(start - sign * f, 0.0).sum(axis=0)
    if not np.allclose(model.loss.loglik(y, c, f), hinges, rtol=1e-12, atol=1e-12):
        raise TypeError(
            f"the spike-and-slab sampler needs the hinge, and {type(model.loss).__name__} is another loss; choose "
            "another prior."
        )


def _start_model(rng: np.random.Generator, columns: Columns, always: Flags, k: int, n: int, wide: bool) -> Flags:
    """Empty, full (or a few of the best), random, best columns: in turn over the chains."""
    p, gamma = len(always), always.copy()
    open_ = np.flatnonzero(~always)
    few = min(len(open_), max(1, n // 4), 20) if wide else max(1, len(open_) // 2)
    if k % 4 == 1 and not wide:
        gamma[:] = True
    elif k % 4 == 2 and len(open_):
        gamma[rng.permutation(open_)[:few]] = True
    elif k % 4 in (1, 3) and len(open_):
        size = max(1, few // 4) if k % 4 == 1 else few
        pull = np.abs(columns.Z @ (columns.slope > 0.0))[
            open_
        ]  # score at zero; every row of a hinge is inside its margin
        gamma[open_[np.argsort(-pull, kind="stable")[:size]]] = True
    assert len(gamma) == p
    return gamma
