"""Missing predictors drawn around any sampler of the coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Cells, predicted
from softmargin.designs.missing_patterns import Patterns, to_cells, to_coordinates, whiten
from softmargin.rows.streams import Purpose
from softmargin.unknowns.covariates import CovariateLaw, CovariatePrior
from softmargin.unknowns.missing import first_guess

__all__ = ["CellAverage", "MissingChain", "MissingGibbs"]


class MissingChain(NamedTuple):
    """A sampler's chain with its completed rows of standardized columns and the covariates' mean and precision."""

    chain: Any
    X: Array
    law: CovariateLaw
    patterns: Patterns

    def __getattr__(self, name: str) -> Any:
        """What else is asked for is the sampler's."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.chain, name)


@dataclass(frozen=True)
class MissingGibbs:
    """Several chains over the coefficients, the missing cells and the covariates' mean and covariance.

    A sweep: (1) the sampler's own, given the completed rows; (2) fresh latents of the incomplete rows given their
    predictors, then their missing cells given latents, coefficients and covariates, exactly; (3) the covariates' mean
    given their covariance, then the reverse. Companion chains at other row weights would share the missing cells and
    change their density, so a sampler that has them runs without.

    Parameters
    ----------
    sampler : Gibbs, LaplaceZeroGibbs or SpikeSlabGibbs
        Sampler of the coefficients.
    covariates : CovariatePrior
        Prior of the covariates' mean and covariance.

    References
    ----------
    Luts and Ormerod (2014), section 3.3 and appendix C.
    """

    sampler: Any
    covariates: CovariatePrior = field(default_factory=CovariatePrior)

    def __post_init__(self) -> None:
        if hasattr(self.sampler, "ladder"):
            object.__setattr__(self, "sampler", replace(self.sampler, ladder=()))

    @property
    def chains(self) -> int:
        """Number of chains."""
        return int(self.sampler.chains)

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.sampler.needs_loss)

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """What the sampler needs."""
        return tuple(self.sampler.needs_prior)

    def init(self, model: Model) -> tuple[MissingChain, ...]:
        """Start the sampler on rows completed without the responses."""
        guess, law = first_guess(model, self.covariates)
        chains = self.sampler.init(_completed(model, guess.dense.X))
        return tuple(MissingChain(chain, guess.dense.X, law, guess.patterns) for chain in chains)

    def step(
        self, model: Model, state: tuple[MissingChain, ...], iteration: int
    ) -> tuple[tuple[MissingChain, ...], Info]:
        """One sweep of every chain; chains run on the threads, and do not depend on how."""
        serial = model.serial()

        def sweep(k: int) -> MissingChain:
            return self.sweep(serial, state[k], k, iteration + 1)

        new = tuple(model.blocks.parallel(sweep, range(self.chains)))
        return new, Info(sum(chain.loglik for chain in new) / len(new), math.inf)

    def sweep(self, model: Model, state: MissingChain, k: int, iteration: int) -> MissingChain:
        """One sweep of chain number ``k``."""
        chain = self.sampler.sweep(_completed(model, state.X), state.chain, k, iteration)
        if not len(state.patterns.row):
            return state._replace(chain=chain)
        X = _draw_cells(model, state, chain, k, iteration)
        now = _completed(model, X)
        f = now.blocks.matvec(chain.beta)
        chain = chain._replace(f=f, loglik=float(model.loss.loglik(model.y, model.c, f).sum()))
        if hasattr(self.sampler, "moved"):
            chain = self.sampler.moved(now, chain)
        rng = model.streams.at(Purpose.COVARIATES, chain=k, iteration=iteration)
        law = self.covariates.draw(rng, X[:, : X.shape[1] - model.known], state.law.precision)
        return MissingChain(chain, X, law, state.patterns)


def _completed(model: Model, X: Array) -> Model:
    """The problem on completed rows: a new design each time, because samplers keep what they compute from one."""
    design = Dense.plain(X, intercept=model.blocks.design.intercept)
    return replace(model, blocks=model.blocks.redesigned(design))


def _draw_cells(model: Model, state: MissingChain, chain: Any, k: int, iteration: int) -> Array:
    """Missing cells given the rest, in the coordinates ``x_M = m0 + F'z`` where z is standard normal beforehand.

    A row's message (w, b) makes the precision of z ``I + w g g'``, with predictor ``f0 + g'z``: a rank-one change.
    """
    patterns, lead = state.patterns, int(model.blocks.design.intercept)
    F, _ = whiten(patterns, state.law.precision)
    X = predicted(state.X, patterns, F, state.law.mean, state.law.precision)
    w, b, eps, e = _random(model, patterns, chain.f, k, iteration)
    slopes = chain.beta[lead:]
    f0 = X[patterns.row] @ slopes + chain.beta[:lead].sum()
    g = to_coordinates(patterns, F, np.broadcast_to(slopes, (len(f0), len(slopes))))
    first, sizes = patterns.cell[:-1], np.diff(patterns.cell)
    shrink = 1.0 + w * np.add.reduceat(g * g, first)
    along = (b - w * f0 - w * np.add.reduceat(g * e, first) - np.sqrt(w) * eps) / shrink
    X[patterns.of_cells()] += to_cells(patterns, F, e + g * np.repeat(along, sizes))
    return X


def _random(model: Model, patterns: Patterns, f: Array, k: int, iteration: int) -> tuple[Array, Array, Array, Array]:
    """Messages of the incomplete rows at latents drawn given f, and normal numbers: one a row, one a missing cell."""
    parts = []
    for cell in model.blocks.cells:
        first, last = np.searchsorted(patterns.row, (cell.lo, cell.hi))
        rng = model.streams.at(Purpose.MISSING, chain=k, iteration=iteration, cell=cell.number)
        at = patterns.row[first:last]
        rows = model.loss.draw(rng, model.y[at], model.c[at], f[at])
        count = int(patterns.cell[last] - patterns.cell[first])
        parts.append((*rows, rng.standard_normal(len(at)), rng.standard_normal(count)))
    w, b, eps, e = (np.concatenate(column) for column in zip(*parts, strict=True))
    return w, b, eps, e


class CellAverage:
    """Averages over sweeps: the missing cells, and the covariates' law that new rows are completed by."""

    def __init__(self) -> None:
        self.count, self.sums = 0, [np.zeros(1)] * 4  # cells, their squares, mean, precision
        self.row, self.column = np.zeros((2, 0), dtype=np.intp)

    def add(self, state: MissingChain) -> None:
        """Take in one draw."""
        if not self.count:
            self.row, self.column = state.patterns.of_cells()
        x = state.X[self.row, self.column]
        new = x, x * x, state.law.mean, state.law.precision
        self.count += 1
        self.sums = [a + b for a, b in zip(self.sums, new, strict=True)]

    def imputed(self) -> Cells:
        """Mean and standard deviation of every missing cell."""
        mean, square = self.sums[0] / self.count, self.sums[1] / self.count
        return Cells(self.row, self.column, mean, np.sqrt(np.maximum(square - mean * mean, 0.0)))

    def law(self) -> CovariateLaw:
        """The posterior mean of the covariates' mean and precision."""
        return CovariateLaw(self.sums[2] / self.count, self.sums[3] / self.count)
