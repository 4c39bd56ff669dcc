"""Sampling which coefficients are in, together with their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.engines.selection._compiled import flips
from softmargin.engines.selection._draws import coefficients, interweave, plain_scan, scale_move
from softmargin.engines.selection._informed_compiled import births, swaps
from softmargin.engines.selection._state import (
    Rows,
    SelectionChain,
    Window,
    curvature,
    energies,
    new_reference,
    new_tally,
    new_window,
    pack,
    pick_weights,
    rows_of,
)
from softmargin.rows.streams import Purpose

__all__ = ["SpikeSlabGibbs"]

_ADAPT = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 1.0)  # when, in parts of the warm-up
_WIDE = 1000  # columns from which X'KX is not formed


@dataclass(frozen=True)
class SpikeSlabGibbs:
    """Several chains over (gamma, beta, scale, inclusion probability), one sweep of each a step.

    A sweep: (1) scale move, beta -> g beta, and interweaving of a learned scale; (2) inclusion probability and
    scale given the rest; (3) flips: (gamma_j, beta_j) along its compensated line, row latents integrated out;
    (4) swaps, and births and deaths where there are many columns, by informed choice; (5) row latents given beta,
    and the active coefficients given everything, as one block. During the warm-up the reference precision of the
    lines and the choice of coefficients adapt; afterwards nothing does.

    Parameters
    ----------
    chains : int
        Number of chains. They start from the empty model, the full one (few columns) or the best single columns
        (many), a random one, and the best columns, in turn.
    warmup : int
        Sweeps during which the sampler adapts; they must not be kept.
    scan : {"lines", "plain"}
        "plain" replaces (3) and (4) by the scan given the latents (Polson and Scott), for comparison.
    flips, swaps, births : int or None
        How many of these moves a sweep makes; None chooses by the number of columns.
    scale_moves : bool
        Whether to make the moves (1).
    ladder : tuple of float or None
        Factors, decreasing below 1, by which the row weights of companion chains are multiplied; neighbours
        exchange their states, so that a model which separates the classes can be left. None: (0.65, 0.42, 0.27) where
        there are more columns than rows and at most 200 rows, none otherwise.
    temper : float
        Exponent of the approximate odds by which candidates of informed moves are chosen.
    """

    chains: int = 4
    warmup: int = 1000
    scan: str = "lines"
    flips: int | None = None
    swaps: int | None = None
    births: int | None = None
    scale_moves: bool = True
    ladder: tuple[float, ...] | None = None
    temper: float = 0.5
    needs_loss = ("draw", "loglik", "pieces")
    needs_prior = ("draw_inclusion", "draw_scale", "slab_precision")

    def __post_init__(self) -> None:
        if self.scan not in ("lines", "plain"):
            raise ValueError(f"scan must be 'lines' or 'plain'; got {self.scan!r}.")

    def init(self, model: Model) -> tuple[SelectionChain, ...]:
        """Start every chain in a model of its own."""
        _check_hinge(model)
        rows_of(model)
        serial, factors = model.serial(), self._factors(model)
        for factor in factors:
            rows_of(_heated(serial, factor))

        def start(k: int) -> SelectionChain:
            hot = (self._start(_heated(serial, factor), _level(k, r)) for r, factor in enumerate(factors, start=1))
            return self._start(serial, k)._replace(hot=tuple(hot))

        return tuple(model.blocks.parallel(start, range(self.chains)))

    def step(
        self, model: Model, state: tuple[SelectionChain, ...], iteration: int
    ) -> tuple[tuple[SelectionChain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial()

        def one(k: int) -> SelectionChain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(one, range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, chain: SelectionChain, k: int, iteration: int) -> SelectionChain:
        """One sweep of chain number ``k`` and its companions, then exchanges between neighbours."""
        if not chain.hot:
            return self._sweep(model, chain, k, iteration)
        factors = self._factors(model)
        levels = [self._sweep(model, chain._replace(hot=()), k, iteration)]
        for r, factor in enumerate(factors, start=1):
            levels.append(self._sweep(_heated(model, factor), chain.hot[r - 1], _level(k, r), iteration))
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration, cell=1)
        heat = (1.0, *factors)
        for r in range(iteration % 2, len(factors), 2):
            levels[r], levels[r + 1] = _exchange(rng, levels[r], levels[r + 1], heat[r], heat[r + 1])
        return levels[0]._replace(hot=tuple(levels[1:]))

    def moved(self, model: Model, chain: SelectionChain) -> SelectionChain:
        """The chain once the columns have changed: what is kept of them row by row belongs to the old ones."""
        if chain.reference is None or not self._wide(model):  # the full reference stays what it is: any will do
            return chain
        rows, diagonal = rows_of(model), np.empty(model.size)
        energies(rows.Z, chain.reference.K, diagonal)
        return chain._replace(reference=chain.reference._replace(diagonal=diagonal, kept={}))

    def _factors(self, model: Model) -> tuple[float, ...]:
        if self.scan == "plain":
            return ()
        if self.ladder is None:
            return (0.65, 0.42, 0.27) if len(model.y) <= min(200, model.size) else ()
        return self.ladder

    def _sweep(self, model: Model, chain: SelectionChain, k: int, iteration: int) -> SelectionChain:
        """One sweep of one level."""
        prior: Any = model.prior
        rows, rng = rows_of(model), model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
        beta, f, scale = chain.beta, chain.f, chain.prior.values["scale"]
        if self.scale_moves:
            beta, f = scale_move(rng, rows, prior, beta, f, scale, chain.gamma)
            beta, f, scale = interweave(rng, rows, prior, beta, f, scale, chain)
        draws = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        pi = prior.draw_inclusion(draws, chain.gamma)
        scale = prior.draw_scale(draws, scale, beta, chain.gamma)
        chain = chain._replace(beta=beta, f=f, prior=prior.state(scale, pi, chain.gamma))
        if self.scan == "plain":
            return self._counted(model, plain_scan(model, chain, rng, scale, pi, k, iteration), iteration)
        chain = self._adapted(model, chain, rows, iteration)
        chain = self._moves(model, chain, rows, rng, scale, pi)
        every = 1 + len(beta) // 2000 if self._wide(model) else 0
        chain = coefficients(model, chain, rows, scale, pi, k, iteration, every > 0 and iteration % every == 0)
        return self._counted(model, chain, iteration)

    def diagnostics(self, state: tuple[SelectionChain, ...]) -> dict[str, Array]:
        """Acceptance rates of each chain, and how far indicators and conditional probabilities disagree.

        ``gap`` is, per chain and coefficient, the frequency of the indicator minus the average conditional
        probability since the end of the warm-up: beyond its Monte Carlo error it should be zero.
        """
        tallies = [chain.tally for chain in state]
        sweeps = np.array([[max(tally.sweeps, 1)] for tally in tallies])

        def rate(name: str, part: int) -> Array:
            counts = np.array([getattr(tally, name) for tally in tallies])
            return counts[:, part] / np.maximum(counts[:, 0], 1.0)

        return {
            "gap": np.array([tally.indicator - tally.inclusion for tally in tallies]) / sweeps,
            "indicator": np.array([tally.indicator for tally in tallies]) / sweeps,
            "inclusion": np.array([tally.inclusion for tally in tallies]) / sweeps,
            "flip_acceptance": rate("flips", 1),
            "flip_changes": rate("flips", 2),
            "swap_acceptance": rate("swaps", 1),
            "birth_acceptance": rate("births", 1),
            "exchange_acceptance": rate("exchanges", 1),
        }

    def _wide(self, model: Model) -> bool:
        return model.size > _WIDE or model.size > len(model.y)

    def _start(self, model: Model, k: int) -> SelectionChain:
        prior: Any = model.prior
        n, p = len(model.y), model.size
        rows, rng = rows_of(model), model.streams.at(Purpose.START, chain=k)
        state = prior.start()
        scale, pi = state.values["scale"], prior.inclusion_of(state)
        if prior.scale_prior.learned:
            scale *= math.exp(float(rng.normal()))
        gamma = _start_model(rng, rows, prior.always, k, n, self._wide(model))
        f = rng.standard_normal(n)
        chain = SelectionChain(
            np.zeros(p), f, prior.state(scale, pi, gamma), np.zeros(p), 0.0, gamma, gamma.astype(float), None,
            new_window(len(rows.slope), p), new_tally(p),
        )  # fmt: skip
        for turn in range(3):
            chain = coefficients(model, chain, rows, scale, pi, k, 0, False, turn=turn)
        if self.scan == "lines":
            weight = pick_weights(np.full(p, 0.5), prior.always)
            chain = chain._replace(reference=new_reference(rows, curvature(model, chain.f), weight, self._wide(model)))
        return chain

    def _adapted(self, model: Model, chain: SelectionChain, rows: Rows, iteration: int) -> SelectionChain:
        """At set times of the warm-up, a new reference from the sweeps since the last one."""
        if iteration > self.warmup + 1:
            return chain
        assert chain.reference is not None
        window = chain.window
        if window.sweeps and iteration - 1 in {math.ceil(part * self.warmup) for part in _ADAPT}:
            prior: Any = model.prior
            weight = chain.reference.weight
            if window.sweeps >= 10:
                weight = pick_weights(window.inclusion / window.sweeps, prior.always)
            reference = new_reference(rows, window.curvature / window.sweeps, weight, self._wide(model))
            return chain._replace(reference=reference, window=new_window(len(rows.slope), model.size))
        return chain

    def _counted(self, model: Model, chain: SelectionChain, iteration: int) -> SelectionChain:
        """Add the sweep to the sums: those of the adaptation in the warm-up, those of the diagnostics after it."""
        if iteration <= self.warmup:
            window = chain.window
            if self.scan == "lines":
                window = Window(
                    window.curvature + curvature(model, chain.f), window.inclusion + chain.inclusion, window.sweeps + 1
                )
            return chain._replace(window=window, tally=new_tally(model.size))
        tally = chain.tally
        tally = tally._replace(
            sweeps=tally.sweeps + 1,
            indicator=tally.indicator + chain.gamma,
            inclusion=tally.inclusion + chain.inclusion,
        )
        return chain._replace(tally=tally)

    def _moves(
        self, model: Model, chain: SelectionChain, rows: Rows, rng: np.random.Generator, scale: float, pi: float
    ) -> SelectionChain:
        """Steps 3 and 4, on copies."""
        prior: Any = model.prior
        assert chain.reference is not None
        reference, p, wide = chain.reference, model.size, self._wide(model)
        D = prior.slab_precision(scale)
        logit = np.where(prior.always, math.inf, math.log(pi) - math.log1p(-pi))
        beta, inclusion, u = chain.beta.copy(), chain.inclusion.copy(), rows.slope - rows.moved(chain.f)
        tally = chain.tally._replace(
            flips=chain.tally.flips.copy(),
            swaps=chain.tally.swaps.copy(),
            births=chain.tally.births.copy(),
        )
        n_flips = (20 if wide else min(p, 100)) if self.flips is None else self.flips
        n_swaps = min(p, 16) if self.swaps is None else self.swaps
        n_births = (16 if wide else 0) if self.births is None else self.births
        cumulative = np.cumsum(reference.weight)
        picks = np.searchsorted(cumulative, rng.random(n_flips) * cumulative[-1], side="right")
        picks = np.minimum(picks, p - 1)
        rule = (rows.Z, reference.K, reference.full, reference.diagonal, D, logit)
        gamma = chain.gamma
        packed, m = pack(rows, reference, gamma, D), int(gamma.sum())

        def grown() -> tuple[Any, int]:
            here = packed.place >= 0
            return pack(rows, reference, here, D), int(here.sum())

        while len(picks):
            m, done = flips(
                rng, *rule, picks, beta, u, packed.index, packed.place, m, packed.R, packed.cross, inclusion,
                tally.flips,
            )  # fmt: skip
            picks = picks[done:]
            if len(picks):
                packed, m = grown()
        while n_births:
            m, done = births(
                rng, *rule, n_births, reference.weight, self.temper, beta, u, packed.index, packed.place, m, packed.R,
                packed.cross, tally.births,
            )  # fmt: skip
            n_births -= done
            if n_births:
                packed, m = grown()
        swaps(
            rng, *rule, n_swaps, reference.weight, self.temper, beta, u, packed.index, packed.place, m, packed.R,
            packed.cross, tally.swaps,
        )  # fmt: skip
        return chain._replace(
            beta=beta,
            f=model.blocks.matvec(beta),
            gamma=packed.place >= 0,
            inclusion=inclusion,
            tally=tally,
        )


def _heated(model: Model, factor: float) -> Model:
    """The same problem with row weights multiplied by a factor."""
    return model.with_weight(factor * model.c)


def _level(k: int, r: int) -> int:
    """The address of the random numbers of level r of chain k."""
    return k + (r << 32)


def _exchange(
    rng: np.random.Generator, cold: SelectionChain, hot: SelectionChain, a: float, b: float
) -> tuple[SelectionChain, SelectionChain]:
    """Metropolis exchange of the states of two levels whose weights are a and b times the rows' own.

    What a level has learned stays with it: reference, sums, and the inclusion probabilities last computed there.
    """
    ratio = (a - b) * (hot.loglik / b - cold.loglik / a)
    accepted = math.log(1.0 - rng.random()) < ratio
    tally = cold.tally._replace(exchanges=cold.tally.exchanges + np.array([1.0, float(accepted)]))
    cold = cold._replace(tally=tally)
    if not accepted:
        return cold, hot

    def moved(to: SelectionChain, by: SelectionChain, factor: float) -> SelectionChain:
        # the conditional mean belongs to latents of the other level: only the draw itself is a draw here
        return to._replace(
            beta=by.beta, f=by.f, prior=by.prior, mean=by.beta, loglik=by.loglik * factor, gamma=by.gamma
        )

    return moved(cold, hot, a / b), moved(hot, cold, b / a)


def _check_hinge(model: Model) -> None:
    """The lines need the hinge, or a sum of hinges: refuse a loss whose values differ from its pieces."""
    y, c = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 0.5, 2.0, 1.0])
    f = np.array([0.3, 0.7, 1.5, -2.5])
    start, sign, _ = model.loss.pieces(y, c)
    hinges = -2.0 * c * np.maximum(start - sign * f, 0.0).sum(axis=0)
    if not np.allclose(model.loss.loglik(y, c, f), hinges, rtol=1e-12, atol=1e-12):
        raise TypeError(
            f"SpikeSlabGibbs needs the hinge, and {type(model.loss).__name__} is another loss; choose another prior."
        )


def _start_model(rng: np.random.Generator, rows: Rows, always: Flags, k: int, n: int, wide: bool) -> Flags:
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
        pull = np.abs(rows.Z @ (rows.slope > 0.0))[open_]  # score at zero; every row of a hinge is inside its margin
        gamma[open_[np.argsort(-pull, kind="stable")[:size]]] = True
    assert len(gamma) == p
    return gamma
