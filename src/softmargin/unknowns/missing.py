"""Missing entries of the rows, as an unknown beside the coefficients.

The missing entries of a row have a normal density of their own, found from the row's message, the first two moments of
the coefficients and the model of the covariates; none of this depends on the loss or the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.unknown import Seen, Unknown
from softmargin.core.visits import predictors
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Cells, Imputed, given_observed
from softmargin.designs.missing_patterns import Patterns, missing_patterns
from softmargin.rows.streams import Purpose
from softmargin.solvers.full import Full
from softmargin.unknowns._entry_densities import refreshed
from softmargin.unknowns._entry_draws import draw_entries
from softmargin.unknowns.covariates import CovariateLaw, CovariatePrior

__all__ = ["EntryAverage", "Missing", "MissingDraw", "MissingState", "completed", "first_guess"]

_ENTROPY = 1.0 + math.log(2.0 * math.pi)


class MissingState(NamedTuple):
    """The rows as they are now believed to be, and the covariates' law."""

    design: Imputed
    law: CovariateLaw

    def cells(self) -> Cells:
        """Mean and standard deviation of every missing entry."""
        return self.design.cells()


class MissingDraw(NamedTuple):
    """Completed rows of standardized columns, and the covariates' mean and precision, as drawn."""

    X: Array
    law: CovariateLaw
    patterns: Patterns


@dataclass(frozen=True)
class _Formed(Full):
    """All coefficients; the Gram with the spread of the rows in it is always formed."""

    def spread(self, design: Any, w: Array, linear: Array, precision: Array) -> Any:
        return self.gaussian(design.gram(w, w)[0], linear, precision)

    def wide(self, design: Any, w: Array, linear: Array, precision: Array, rank_two: Array | None = None) -> Any:
        return self.spread(design, w, linear, precision)


def completed(model: Model, design: Imputed) -> Model:
    """The problem on completed rows; where none was incomplete, as it was."""
    if not len(design.patterns.row):
        return replace(model, blocks=model.blocks.redesigned(design.dense))
    return replace(model, blocks=model.blocks.redesigned(design), space=_Formed())


def first_guess(
    design: Any,
    known: int,
    prior: CovariatePrior,
    times: Array,
    *,
    alone: bool = False,
    tol: float = 1e-6,
    most: int = 100,
) -> tuple[Imputed, CovariateLaw]:
    """The rows completed without the responses, and the covariates' law then, by their own alternation.

    Rows count ``times`` times each. The last ``known`` columns are no covariates; ``alone``, every incomplete row has a
    covariance of its own.
    """
    lead = int(design.intercept)
    everything = design.rows(np.arange(design.shape[0]))
    X = np.ascontiguousarray(everything[:, lead : everything.shape[1] - known])
    missing = np.isnan(X)
    empty = np.flatnonzero(missing.all(axis=0))
    if len(empty):
        raise ValueError(f"column {empty[0]} has no observed value; drop it.")
    prior.degrees(X.shape[1])
    variance = np.nanvar(X, axis=0)
    law = CovariateLaw(np.nanmean(X, axis=0), np.diag(1.0 / np.where(variance > 0.0, variance, 1.0)))
    last, patterns = -math.inf, missing_patterns(missing, alone=alone)
    for _ in range(most):
        guess = given_observed(X, law.mean, law.precision, intercept=bool(lead), patterns=patterns)
        if not missing.any():
            break
        law, value = prior.expect(guess.dense.X, guess.scatter(times), law.precision, times)
        value += 0.5 * guess.log_volume(times)
        if abs(value - last) <= tol * (1.0 + abs(value)):
            break
        last = value
    return guess.beside(everything[:, everything.shape[1] - known :]) if known else guess, law


@dataclass(frozen=True)
class Missing(Unknown):
    """The missing entries of the rows, with a normal model of the covariates.

    With the mean-field engines every part is a coordinate ascent of one bound ``E log p - E log q``: algorithm 4 of
    Luts and Ormerod (2014) with a proper prior of the covariances. EM keeps the coefficients at a point and averages
    over everything else, so it climbs a lower bound of their log posterior density. The Gaussian engine needs
    ``E l(x'beta)`` with both x and beta normal: the predictor's density is replaced by the normal one with its mean
    and variance, which is exact for rows without missing entries and at known coefficients, and the objective is
    otherwise no strict bound; every part raises it.

    A row that weighs w is w rows, each with entries of its own that answer to one response: their density is found
    from the message of one of them, and counts w times in the covariates' law and in the bound. Draws of these entries
    are shared by the w rows, and the coefficients vary more for it.

    Parameters
    ----------
    covariates : CovariatePrior
        Prior of the covariates' mean and covariance.
    rounds : int
        How often a row's message and its missing entries are brought into agreement within a step, at most.
    weight : array, optional
        What the rows weigh, before learning rate and tilt. Default: 1.

    References
    ----------
    Luts and Ormerod (2014), section 3.3 and appendix C.
    """

    covariates: CovariatePrior = field(default_factory=CovariatePrior)
    rounds: int = 50
    weight: Array | None = field(default=None, compare=False)

    changes_rows = True

    def times(self, n: int) -> Array:
        """How many rows each of the n rows is."""
        return np.ones(n) if self.weight is None else self.weight

    def start(self, model: Model) -> MissingState:
        """The rows completed without the responses."""
        if type(model.space) is not Full:
            raise TypeError("missing predictors go with one output; impute them before the fit instead.")
        design = model.blocks.design
        return MissingState(*first_guess(design, model.known, self.covariates, self.times(design.shape[0])))

    def drawn(self, state: MissingState) -> MissingDraw:
        """The entries at their means."""
        return MissingDraw(state.design.dense.X, state.law, state.design.patterns)

    def apply(self, model: Model, state: MissingState | MissingDraw) -> Model:
        """The problem on completed rows."""
        if isinstance(state, MissingState):
            return self._completed(model, replace(state.design, law=state.law))
        # a new design each time, because samplers keep what they compute from one
        return self._on(model, Dense.plain(state.X, intercept=self._rows(model).intercept))

    def _rows(self, model: Model) -> Any:
        """The rows whose entries are missing."""
        return model.blocks.design

    def _on(self, model: Model, rows: Dense) -> Model:
        return replace(model, blocks=model.blocks.redesigned(rows))

    def _completed(self, model: Model, rows: Imputed) -> Model:
        return completed(model, rows)

    def expect(
        self, model: Model, state: MissingState, seen: Seen, *, careful: bool = False
    ) -> tuple[MissingState, float]:
        """The entries given the coefficients and the covariates, then the covariates given the entries.

        Where stiff rows do not settle a ``careful`` change leaves their entries as they are.
        """
        design, law = state
        if not len(design.patterns.row):
            return state, 0.0
        if not careful:
            design = self._refreshed(model, state, seen)
        times = self.times(design.shape[0])
        law, value = self.covariates.expect(design.covariates, design.scatter(times), law.precision, times)
        entries = float(times[design.patterns.row] @ np.diff(design.patterns.cell))
        return MissingState(design, law), value + 0.5 * (_ENTROPY * entries + design.log_volume(times))

    def _refreshed(self, model: Model, state: MissingState, seen: Seen) -> Imputed:
        """The best densities of the entries."""
        face, times = seen.of(model.loss), self.times(state.design.shape[0])[state.design.patterns.row]
        return refreshed(face, model, times, seen.message, *state, seen.mean, seen.root, self.rounds)

    def _entries(self, random: Any, model: Model, state: MissingDraw, chain: Any) -> Array:
        """The rows with entries drawn given the rest of a chain."""
        times = self.times(len(state.X))
        return draw_entries(random, model, times, state.patterns, state.law, state.X, chain)

    def draw(self, random: Any, model: Model, state: MissingDraw, chain: Any) -> tuple[MissingDraw, Any]:
        """Fresh latents of the incomplete rows, their entries given these, then the covariates' mean and covariance."""
        if not len(state.patterns.row):
            return state, chain
        X = self._entries(random, model, state, chain)
        rng = random.at(Purpose.COVARIATES)
        law = self.covariates.draw(rng, X[:, : X.shape[1] - model.known], state.law.precision, self.times(len(X)))
        new = MissingDraw(X, law, state.patterns)
        return new, chain._replace(rows=self.apply(model, new).blocks.keep(predictors, chain.beta)[0])

    def log_normalizer(self, model: Model, state: MissingDraw) -> float:
        """The likelihood of the responses is normalised as it is."""
        return 0.0

    def noted(self, state: MissingState | MissingDraw) -> dict[str, float]:
        """Entries are averaged, not recorded."""
        return {}

    def collector(self) -> EntryAverage:
        """Averages of the entries and of the covariates' law."""
        return EntryAverage()


class EntryAverage:
    """Averages over sweeps: the missing entries, and the covariates' law that new rows are completed by."""

    def __init__(self) -> None:
        self.count, self.sums = 0, [np.zeros(1)] * 4  # entries, their squares, mean, precision
        self.row, self.column = np.zeros((2, 0), dtype=np.intp)

    def add(self, state: MissingDraw) -> None:
        """Take in one draw."""
        if not self.count:
            self.row, self.column = state.patterns.of_cells()
        x = state.X[self.row, self.column]
        new = x, x * x, state.law.mean, state.law.precision
        self.count += 1
        self.sums = [a + b for a, b in zip(self.sums, new, strict=True)]

    def cells(self) -> Cells:
        """Mean and standard deviation of every missing entry."""
        mean, square = self.sums[0] / self.count, self.sums[1] / self.count
        return Cells(self.row, self.column, mean, np.sqrt(np.maximum(square - mean * mean, 0.0)))

    @property
    def law(self) -> CovariateLaw:
        """The posterior mean of the covariates' mean and precision."""
        return CovariateLaw(self.sums[2] / self.count, self.sums[3] / self.count)
