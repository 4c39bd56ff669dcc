"""Missing predictors around any engine that gives the coefficients a mean and a covariance.

The missing cells of a row have a normal density of their own, found from the row's message, the first two moments of
the coefficients and the model of the covariates; none of this depends on the loss or the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.covariates import CovariateLaw, CovariatePrior
from softmargin.designs.base import Array
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Imputed, given_observed, predicted
from softmargin.designs.patterns import Patterns, missing_patterns, rotate, to_cells, to_coordinates, whiten
from softmargin.engines.loop import Info
from softmargin.engines.model import Model
from softmargin.solvers.space import Full

__all__ = ["Missing", "MissingState", "completed", "first_guess"]

_FLOOR = 1e-14  # least variance of a predictor: messages stay finite where the coefficients are known and zero
_ENTROPY = 1.0 + math.log(2.0 * math.pi)


class MissingState(NamedTuple):
    """An engine's state on the rows as they are now believed to be."""

    inner: Any
    design: Imputed
    law: CovariateLaw
    objective: float


@dataclass(frozen=True)
class _Formed(Full):
    """All coefficients; the Gram with the spread of the rows in it is always formed."""

    def spread(self, design: Any, w: Array, linear: Array, precision: Array) -> Any:
        return self.gaussian(design.gram(w, w)[0], linear, precision)

    def wide(self, design: Any, w: Array, linear: Array, precision: Array, dent: Array | None = None) -> Any:
        return self.spread(design, w, linear, precision)


def completed(model: Model, design: Imputed) -> Model:
    """The problem on completed rows; where none was incomplete, as it was."""
    if not len(design.patterns.row):
        return replace(model, blocks=model.blocks.redesigned(design.dense))
    return replace(model, blocks=model.blocks.redesigned(design), space=_Formed())


def first_guess(
    model: Model, prior: CovariatePrior, *, tol: float = 1e-6, most: int = 100
) -> tuple[Imputed, CovariateLaw]:
    """The rows completed without the responses, and the covariates' law then, by their own alternation."""
    if type(model.space) is not Full:
        raise TypeError(
            "missing predictors go with one output and without random effects; impute them before the fit instead."
        )
    design = model.blocks.design
    lead = int(design.intercept)
    everything = design.rows(np.arange(design.shape[0]))
    X = np.ascontiguousarray(everything[:, lead : everything.shape[1] - model.known])
    missing = np.isnan(X)
    empty = np.flatnonzero(missing.all(axis=0))
    if len(empty):
        raise ValueError(f"column {empty[0]} has no observed value; drop it.")
    prior.degrees(X.shape[1])
    variance = np.nanvar(X, axis=0)
    law = CovariateLaw(np.nanmean(X, axis=0), np.diag(1.0 / np.where(variance > 0.0, variance, 1.0)))
    last, patterns = -math.inf, missing_patterns(missing)
    for _ in range(most):
        guess = given_observed(X, law.mean, law.precision, intercept=bool(lead), patterns=patterns)
        if not missing.any():
            break
        law, value = prior.expect(guess.dense.X, guess.scatter(), law.precision)
        value += 0.5 * guess.log_volume()
        if abs(value - last) <= tol * (1.0 + abs(value)):
            break
        last = value
    return guess.beside(everything[:, everything.shape[1] - model.known :]) if model.known else guess, law


@dataclass(frozen=True)
class Missing:
    """An engine for an approximation or a mode, alternated with the density of the missing cells and the covariates.

    With the mean-field engines every part is a coordinate ascent of one bound ``E log p - E log q``: algorithm 4 of
    Luts and Ormerod (2014) with a proper prior of the covariances. EM keeps the coefficients at a point and averages
    over everything else, so it climbs a lower bound of their log posterior density. The Gaussian engine needs
    ``E l(x'beta)`` with both x and beta normal: the predictor's density is replaced by the normal one with its mean
    and variance, which is exact for rows without missing cells and at known coefficients, and the objective is
    otherwise no strict bound; every part raises it.

    Parameters
    ----------
    engine : engine with ``coefficients``
        GaussianVI, MeanField, EM or LaplaceZeroVB.
    covariates : CovariatePrior
        Prior of the covariates' mean and covariance.
    rounds : int
        How often a row's message and its missing cells are brought into agreement within a step, at most.
    """

    engine: Any
    covariates: CovariatePrior = field(default_factory=CovariatePrior)
    rounds: int = 50

    @property
    def needs_loss(self) -> tuple[str, ...]:
        """What the engine needs."""
        return tuple(self.engine.needs_loss)

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """What the engine needs."""
        return tuple(self.engine.needs_prior)

    def init(self, model: Model) -> MissingState:
        design, law = first_guess(model, self.covariates)
        return self._refresh(model, self.engine.init(completed(model, design)), design, law)

    def step(self, model: Model, state: MissingState, iteration: int) -> tuple[MissingState, Info]:
        inner, _ = self.engine.step(completed(model, state.design), state.inner, iteration)
        floor = state.objective + _objective(inner) - _objective(state.inner)
        new = self._refresh(model, inner, state.design, state.law)
        if new.objective < floor and len(state.design.s):
            new = self._learn(inner, state.design, state.law)  # stiff rows did not settle: their cells stay
        # the covariates' part may be many times as large as the engine's: both must come to rest
        own, before = _objective(new.inner), _objective(state.inner)
        total = abs(new.objective - state.objective) / (1.0 + abs(new.objective))
        return new, Info(new.objective, max(abs(own - before) / (1.0 + abs(own)), total))

    def _refresh(self, model: Model, inner: Any, design: Imputed, law: CovariateLaw) -> MissingState:
        """Missing cells given the coefficients and the covariates, then the covariates given the cells."""
        if not len(design.patterns.row):
            return MissingState(inner, design, law, _objective(inner))
        mean, root = self.engine.coefficients(inner)
        face = getattr(model.loss, self.engine.needs_loss[0])
        design = refreshed(face, model, inner.message, design, law, mean, root, self.rounds)
        return self._learn(self._seen(completed(model, design), inner, face), design, law)

    def _learn(self, inner: Any, design: Imputed, law: CovariateLaw) -> MissingState:
        """The covariates given the cells."""
        law, value = self.covariates.expect(design.covariates, design.scatter(), law.precision)
        value += 0.5 * (_ENTROPY * len(design.s) + design.log_volume())
        return MissingState(inner, design, law, _objective(inner) + value)

    def _seen(self, model: Model, inner: Any, face: Any) -> Any:
        """The engine's state on new rows, the coefficients' density unchanged."""
        if hasattr(self.engine, "moments"):
            return self.engine.moments(model, inner.q)
        mean, root = self.engine.coefficients(inner)
        f, v = model.blocks.moments(mean, root)
        message = face(model.y, model.c, f, v)
        name = "objective" if hasattr(inner, "objective") else "bound"
        value = _objective(inner) + float(message.bound.sum()) - float(inner.message.bound.sum())
        return inner._replace(f=f, v=v, message=message, **{name: value})


def _objective(inner: Any) -> float:
    return float(inner.objective if hasattr(inner, "objective") else inner.bound)


class _Rows(NamedTuple):
    """The incomplete rows in the coordinates ``x_M = m0 + F'z`` in which all that matters is diagonal.

    The predictor is ``f0 + g'z`` on average over the coefficients, and its second moment
    ``constant + 2 t'z + sum lam z^2``; g, t and lam have one number a missing cell.
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
    """The best normal densities of the missing cells for coefficients of this mean and covariance ``root root'``.

    Every row is a concave problem of its own whose solution has the form of ``_Rows.answer``, so two numbers a row are
    iterated: towards the message of the present density, less far where that would lower the row's objective.
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
        gain = float(np.maximum(other - value, 0.0).sum())
        k, b = np.where(better, new_k, k), np.where(better, new_b, b)
        found = type(found)(*(np.where(better, x, old) for x, old in zip(trial, found, strict=True)))
        value = np.where(better, other, value)
        rho = np.where(better, np.minimum(1.0, 1.5 * rho), 0.3 * rho)
        if gain <= 1e-10 * (1.0 + abs(float(value.sum()))):
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
