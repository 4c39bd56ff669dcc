"""The best normal densities of the missing entries of rows with one predictor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Imputed, predicted
from softmargin.designs.missing_patterns import Patterns, rotate, to_cells, to_coordinates, whiten
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["refreshed"]

_FLOOR = 1e-14  # least variance of a predictor: messages stay finite where the coefficients are known and zero


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
    face: Any,
    model: Model,
    times: Array,
    message: Any,
    design: Imputed,
    law: CovariateLaw,
    mean: Array,
    root: Array,
    rounds: int,
) -> Imputed:
    """The best normal densities of the missing entries for coefficients of this mean and covariance ``root root'``.

    ``times`` says how many rows each incomplete row is: all of them have the density that one has.
    Every row is a concave problem of its own whose solution has the form of ``_Rows.answer``: two numbers per row are
    iterated, towards the message of the present density, less far where that would lower the row's objective.
    """
    rows, F, log_det, X = _coordinates(design, law, mean, root)
    at = design.patterns.row
    y, c, k, b = model.y[at], model.c[at] / times, message.w[at] / times, message.b[at] / times

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
