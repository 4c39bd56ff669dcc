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
from softmargin.designs.imputed import Cells, Imputed, given_observed, predicted
from softmargin.designs.missing_patterns import Patterns, missing_patterns, rotate, to_cells, to_coordinates, whiten
from softmargin.rows.streams import Purpose
from softmargin.solvers.full import Full
from softmargin.unknowns._entry_draws import draw_entries
from softmargin.unknowns.covariates import CovariateLaw, CovariatePrior

__all__ = ["EntryAverage", "Missing", "MissingDraw", "MissingState", "completed", "first_guess"]

_FLOOR = 1e-14  # least variance of a predictor: messages stay finite where the coefficients are known and zero
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
    design: Any, known: int, prior: CovariatePrior, *, alone: bool = False, tol: float = 1e-6, most: int = 100
) -> tuple[Imputed, CovariateLaw]:
    """The rows completed without the responses, and the covariates' law then, by their own alternation.

    The last ``known`` columns are no covariates; ``alone``, every incomplete row has a covariance of its own.
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
        law, value = prior.expect(guess.dense.X, guess.scatter(), law.precision)
        value += 0.5 * guess.log_volume()
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

    Parameters
    ----------
    covariates : CovariatePrior
        Prior of the covariates' mean and covariance.
    rounds : int
        How often a row's message and its missing entries are brought into agreement within a step, at most.

    References
    ----------
    Luts and Ormerod (2014), section 3.3 and appendix C.
    """

    covariates: CovariatePrior = field(default_factory=CovariatePrior)
    rounds: int = 50

    changes_rows = True

    def start(self, model: Model) -> MissingState:
        """The rows completed without the responses."""
        if type(model.space) is not Full:
            raise TypeError("missing predictors go with one output; impute them before the fit instead.")
        return MissingState(*first_guess(model.blocks.design, model.known, self.covariates))

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
        law, value = self.covariates.expect(design.covariates, design.scatter(), law.precision)
        return MissingState(design, law), value + 0.5 * (_ENTROPY * len(design.s) + design.log_volume())

    def _refreshed(self, model: Model, state: MissingState, seen: Seen) -> Imputed:
        """The best densities of the entries."""
        face = seen.of(model.loss)
        return refreshed(face, model, seen.message, *state, seen.mean, seen.root, self.rounds)

    def _entries(self, random: Any, model: Model, state: MissingDraw, chain: Any) -> Array:
        """The rows with entries drawn given the rest of a chain."""
        return draw_entries(random, model, state.patterns, state.law, state.X, chain)

    def draw(self, random: Any, model: Model, state: MissingDraw, chain: Any) -> tuple[MissingDraw, Any]:
        """Fresh latents of the incomplete rows, their entries given these, then the covariates' mean and covariance."""
        if not len(state.patterns.row):
            return state, chain
        X = self._entries(random, model, state, chain)
        rng = random.at(Purpose.COVARIATES)
        law = self.covariates.draw(rng, X[:, : X.shape[1] - model.known], state.law.precision)
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


class _Rows(NamedTuple):
    """The incomplete rows in the coordinates ``x_M = m0 + F'z`` in which all that matters is diagonal.

    The predictor is ``f0 + g'z`` on average over the coefficients, and its second moment
    ``constant + 2 t'z + sum lam z^2``; g, t and lam have one number per missing entry.
    """

    patterns: Patterns
    f0: Array
    v0: Array
    g: Array
    t: Array
    lam: Array

    def total(self, values: Array) -> Array:
        """Sum over the cells of a row."""
        return np.add.reduceat(values, self.patterns.cell[:-1])

    def each(self, values: Array) -> Array:
        """A row's number for each of its cells."""
        return np.repeat(values, np.diff(self.patterns.cell))

    def answer(self, k: Array, b: Array) -> tuple[Array, Array]:
        """Mean and variance of z under row messages (k, b)."""
        k, b = self.each(k), self.each(b)
        s = 1.0 / (1.0 + k * self.lam)
        return (b * self.g - k * self.t) * s, s

    def predictors(self, z: Array, s: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of the predictors, and minus the divergence of z from the covariates' law."""
        ahead = self.total(self.g * z)
        side = self.total((self.t - self.each(self.f0) * self.g) * z)
        spread = self.v0 + 2.0 * side + self.total(self.lam * z * z) - ahead * ahead
        v = np.maximum(spread, 0.0) + self.total(self.lam * s) + _FLOOR
        return self.f0 + ahead, v, 0.5 * self.total(np.log(s) - s - z * z + 1.0)


def refreshed(
    face: Any, model: Model, message: Any, design: Imputed, law: CovariateLaw, mean: Array, root: Array, rounds: int
) -> Imputed:
    """The best normal densities of the missing entries for coefficients of this mean and covariance ``root root'``.

    Every row is a concave problem of its own whose solution has the form of ``_Rows.answer``: two numbers per row are
    iterated, towards the message of the present density, less far where that would lower the row's objective.
    """
    rows, F, log_det, X = _coordinates(design, law, mean, root)
    at = design.patterns.row
    y, c, k, b = model.y[at], model.c[at], message.w[at], message.b[at]

    def look(k: Array, b: Array) -> tuple[Any, Array]:
        f, v, part = rows.predictors(*rows.answer(k, b))
        found = face(y, c, f, v)
        return found, found.bound + part

    found, value = look(k, b)
    rho = np.ones(len(at))
    for _ in range(rounds):
        new_k, new_b = k + rho * (found.w - k), b + rho * (found.b - b)
        trial, other = look(new_k, new_b)
        better = other >= value
        change = float(np.abs(other - value).sum())  # a step that went too far is taken again, shorter
        k, b = np.where(better, new_k, k), np.where(better, new_b, b)
        found = type(found)(*(np.where(better, x, old) for x, old in zip(trial, found, strict=True)))
        value = np.where(better, other, value)
        rho = np.where(better, np.minimum(1.0, 1.5 * rho), 0.3 * rho)
        if change <= 1e-10 * (1.0 + abs(float(value.sum()))):
            break
    z, s = rows.answer(k, b)
    X[design.patterns.of_cells()] += to_cells(design.patterns, F, z)
    return Imputed(Dense.plain(X, intercept=design.intercept), design.patterns, F, s, log_det, design.known)


def _coordinates(design: Imputed, law: CovariateLaw, mean: Array, root: Array) -> tuple[_Rows, Array, Array, Array]:
    """The incomplete rows ready for their messages, the patterns' factors, and the rows completed without messages."""
    patterns, lead = design.patterns, int(design.intercept)
    moment = root @ root.T + np.outer(mean, mean)
    F, log_det = whiten(patterns, law.precision)
    F, lam = rotate(patterns, F, np.column_stack((root, mean))[lead:])
    X = predicted(design.dense.X, patterns, F, law.mean, law.precision)
    C = np.concatenate((np.ones((len(patterns.row), lead)), X[patterns.row]), axis=1)
    spread = C @ root
    slopes = np.broadcast_to(mean[lead:], (len(C), len(mean) - lead))
    rows = _Rows(
        patterns,
        C @ mean,
        np.einsum("ij,ij->i", spread, spread),
        to_coordinates(patterns, F, slopes),
        to_coordinates(patterns, F, (C @ moment)[:, lead:]),
        patterns.repeated(lam),
    )
    return rows, F, log_det, X


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
