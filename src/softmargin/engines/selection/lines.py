"""Moves between models along compensated lines, row latents integrated out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.core.visits import predictors
from softmargin.engines.products import addresses
from softmargin.engines.selection._compiled import Informed, Rule, room_for
from softmargin.engines.selection._informed_compiled import BIRTHS, FLIPS, SWAPS, line_moves
from softmargin.engines.selection._reference import (
    Reference,
    Window,
    new_reference,
    new_window,
    pack,
    pick_weights,
)
from softmargin.engines.selection.active import many_columns
from softmargin.engines.selection.columns import Columns, curvature, energies, with_columns

__all__ = ["LineMoves", "Lines", "WatchLines"]

_ADAPT = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 1.0)  # when, in parts of the warm-up


class Lines(NamedTuple):
    """What the lines of a chain are made of, and what has been seen since that was last adapted."""

    reference: Reference
    window: Window


@dataclass(frozen=True)
class LineMoves(MoveBase):
    """Flips of single coefficients, births and deaths, and swaps, all along compensated lines.

    Invariance: as beta_j moves by t the other coefficients that are in move by ``t v``, v the regression on beta_j that
    a reference precision implies; v depends on the model and j alone, so the line and the exact density on it are the
    same before and after, row latents integrated out. A flip is a Metropolised Gibbs step over (in or out, value on the
    line); births, deaths and swaps choose their candidates by a score and accept by the ratio that makes up for it.
    The reference adapts during the warm-up, whose draws must not be kept, and never after.

    Parameters
    ----------
    warmup : int
        Sweeps during which the reference adapts.
    flips, swaps, births : int or None
        How many of these moves a sweep makes; None chooses by the number of columns.
    temper : float
        Exponent of the approximate odds by which candidates of informed moves are chosen.
    """

    warmup: int
    flips: int | None = None
    swaps: int | None = None
    births: int | None = None
    temper: float = 0.5

    reads = frozenset({"beta", "f", "gamma", "scale"})
    renews = frozenset({"gamma"})
    stale = frozenset({"local", "loglik"})
    needs_loss = ("loglik", "pieces")
    needs_prior = ("slab_precision", "inclusion_of")

    def prepare(self, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """The chains with a reference at the curvature of their first predictors."""
        return tuple(self._prepared(model, chain) for chain in chains)

    def _prepared(self, model: Model, chain: Chain) -> Chain:
        prior: Any = model.prior
        columns, chain = with_columns(model, chain)
        weight = pick_weights(np.full(model.size, 0.5), prior.always)
        reference = new_reference(columns, curvature(model, chain.f), weight, many_columns(model))
        return chain.keeping(lines=Lines(reference, new_window(len(columns.slope), model.size)))

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain after all of these moves."""
        before = chain.own.get("columns")
        columns, chain = with_columns(model, chain)
        lines = self._adapted(model, columns, chain.own["lines"], random.iteration)
        if columns is not before and many_columns(model):  # the rows of X'KX that are kept belong to other columns
            diagonal = np.empty(model.size)
            energies(columns.Z, lines.reference.K, diagonal)
            lines = lines._replace(reference=lines.reference._replace(diagonal=diagonal, kept={}))
        return self._moved(random.rng, model, chain, columns, lines)

    def _adapted(self, model: Model, columns: Columns, lines: Lines, iteration: int) -> Lines:
        """At set times of the warm-up, a new reference from the sweeps since the last one."""
        reference, window = lines
        due = {math.ceil(part * self.warmup) for part in _ADAPT} if iteration <= self.warmup + 1 else set()
        if not window.sweeps or iteration - 1 not in due:
            return lines
        prior: Any = model.prior
        weight = reference.weight
        if window.sweeps >= 10:
            weight = pick_weights(window.inclusion / window.sweeps, prior.always)
        reference = new_reference(columns, window.curvature / window.sweeps, weight, many_columns(model))
        return Lines(reference, new_window(len(columns.slope), model.size))

    def _moved(self, rng: np.random.Generator, model: Model, chain: Chain, columns: Columns, lines: Lines) -> Chain:
        """The moves, on copies."""
        assert chain.gamma is not None and chain.inclusion is not None
        prior: Any = model.prior
        reference, p, wide = lines.reference, model.size, many_columns(model)
        scale, pi = chain.prior.values["scale"], prior.inclusion_of(chain.prior)
        D = prior.slab_precision(scale)
        logit = np.where(prior.always, math.inf, prior.log_odds(pi))
        beta, inclusion, u = chain.beta.copy(), chain.inclusion.copy(), columns.slope - columns.lowered(chain.f)
        tally = chain.own["tally"]
        counts = {"flips": tally.flips.copy(), "swaps": tally.swaps.copy(), "births": tally.births.copy()}
        n_flips = (20 if wide else min(p, 100)) if self.flips is None else self.flips
        n_swaps = min(p, 16) if self.swaps is None else self.swaps
        n_births = (16 if wide else 0) if self.births is None else self.births
        cumulative = np.cumsum(reference.weight)
        picks = np.searchsorted(cumulative, rng.random(n_flips) * cumulative[-1], side="right")
        picks = np.minimum(picks, p - 1)
        rule = Rule(columns.Z, reference.K, reference.full, reference.diagonal, D, logit)
        packed, reference = pack(columns, reference, chain.gamma, D)
        m, blas, room, even = int(chain.gamma.sum()), addresses(), room_for(len(u), p), np.ones(p)
        for name, kind, left, weight in (
            ("flips", FLIPS, n_flips, even),
            ("births", BIRTHS, n_births, even),
            ("swaps", SWAPS, n_swaps, reference.weight),
        ):
            while left:
                more = Informed(np.empty_like(packed.R), np.empty_like(packed.cross))
                guide = kind, picks, left, weight, self.temper
                m, done = line_moves(rng, blas, rule, packed, m, *guide, beta, u, inclusion, counts[name], room, more)
                picks, left = picks[done:], left - done
                if left:
                    packed, reference = pack(columns, reference, packed.place >= 0, D)
        rows, gamma = model.blocks.keep(predictors, beta)[0], packed.place >= 0
        if not n_flips:  # the other moves evaluate no probabilities: being in or out stands for them
            inclusion = gamma.astype(np.float64)
        chain = chain._replace(beta=beta, rows=rows, mean=beta, gamma=gamma, inclusion=inclusion)
        return chain.keeping(tally=tally._replace(**counts), lines=lines._replace(reference=reference))


@dataclass(frozen=True)
class WatchLines(MoveBase):
    """Adds a sweep of the warm-up to what the reference will adapt to. Invariance: it changes nothing but that."""

    warmup: int

    reads = frozenset({"f"})

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with the sweep seen."""
        if random.iteration > self.warmup:
            return chain
        lines: Lines = chain.own["lines"]
        window, seen = lines.window, chain.inclusion
        assert seen is not None
        window = Window(window.curvature + curvature(model, chain.f), window.inclusion + seen, window.sweeps + 1)
        return chain.keeping(lines=lines._replace(window=window))
