"""Missing entries of rows with a score for each of several classes.

A row has a message from each of its pairs (row, class), so the density of its missing entries has a covariance of its
own: every incomplete row is a pattern of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.unknown import Seen
from softmargin.designs.classes import ClassDesign, CompletedClasses
from softmargin.designs.dense import Dense
from softmargin.designs.imputed import Imputed, predicted
from softmargin.designs.missing_patterns import Patterns, to_cells, to_coordinates, whiten
from softmargin.rows.compiled import njit
from softmargin.rows.streams import Purpose
from softmargin.solvers.sum_to_zero import FormedSumToZero
from softmargin.unknowns.covariates import CovariateLaw
from softmargin.unknowns.missing import Missing, MissingDraw, MissingState, first_guess

__all__ = ["ClassMissing"]

_FLOOR = 1e-14  # least variance of a predictor: messages stay finite where the coefficients are known and zero


@njit(cache=True, nogil=True, error_model="numpy")
def _answer(cell: Any, block: Any, g: Any, t: Any, L: Any, w: Any, b: Any, z: Any, C: Any) -> None:
    """Mean of z under row messages (w, b), and the inverse C of the Cholesky factor of its precision.

    Row i has the precision ``I + sum_r w_ir L_ir`` and the linear term ``sum_r b_ir g_ir - w_ir t_ir``.
    """
    k = w.shape[1]
    for i in range(len(w)):
        m = cell[i + 1] - cell[i]
        P, h = np.eye(m), np.zeros(m)
        for a in range(m):
            for r in range(k):
                h[a] += b[i, r] * g[cell[i] + a, r] - w[i, r] * t[cell[i] + a, r]
                for c in range(m):
                    P[a, c] += w[i, r] * L[block[i] + a * m + c, r]
        for a in range(m):  # Cholesky factor, in the lower triangle
            for c in range(a + 1):
                total = P[a, c]
                for l in range(c):
                    total -= P[a, l] * P[c, l]
                P[a, c] = np.sqrt(max(total, 1e-300)) if a == c else total / P[c, c]
        T = C[block[i] : block[i + 1]].reshape((m, m))
        for c in range(m):  # its inverse, column by column
            for a in range(m):
                T[a, c] = 0.0
            T[c, c] = 1.0 / P[c, c]
            for a in range(c + 1, m):
                total = 0.0
                for l in range(c, a):
                    total -= P[a, l] * T[l, c]
                T[a, c] = total / P[a, a]
        for a in range(m):
            z[cell[i] + a] = 0.0
        for l in range(m):
            total = 0.0
            for c in range(l + 1):
                total += T[l, c] * h[c]
            for a in range(l + 1):
                z[cell[i] + a] += T[l, a] * total


@njit(cache=True, nogil=True, error_model="numpy")
def _predict(
    cell: Any, block: Any, f0: Any, v0: Any, g: Any, t: Any, L: Any, z: Any, C: Any, f: Any, v: Any, part: Any
) -> None:
    """Mean and variance of the predictors, and minus the divergence of z from the covariates' law."""
    k = f0.shape[1]
    for i in range(len(f0)):
        m = cell[i + 1] - cell[i]
        T = C[block[i] : block[i + 1]].reshape((m, m))
        S = T.T @ T
        part[i] = 0.5 * m
        for a in range(m):
            part[i] += np.log(T[a, a]) - 0.5 * (S[a, a] + z[cell[i] + a] ** 2)
        for r in range(k):
            ahead, side, square, trace = 0.0, 0.0, 0.0, 0.0
            for a in range(m):
                za = z[cell[i] + a]
                ahead += g[cell[i] + a, r] * za
                side += (t[cell[i] + a, r] - f0[i, r] * g[cell[i] + a, r]) * za
                for c in range(m):
                    square += L[block[i] + a * m + c, r] * za * z[cell[i] + c]
                    trace += L[block[i] + a * m + c, r] * S[a, c]
            f[i, r] = f0[i, r] + ahead
            v[i, r] = max(v0[i, r] + 2.0 * side + square - ahead * ahead, 0.0) + trace + _FLOOR


@njit(cache=True, nogil=True, error_model="numpy")
def _forms(columns: Any, start: Any, block: Any, F: Any, moment: Any, L: Any) -> None:
    """``F moment_r F'`` over the missing columns of every row and class."""
    for i in range(len(start) - 1):
        M = columns[start[i] : start[i + 1]]
        m = len(M)
        T = F[block[i] : block[i + 1]].reshape((m, m))
        sub = np.empty((m, m))
        for r in range(len(moment)):
            for a in range(m):
                for c in range(m):
                    sub[a, c] = moment[r, M[a], M[c]]
            whole = T @ sub @ T.T
            for a in range(m):
                for c in range(m):
                    L[block[i] + a * m + c, r] = whole[a, c]


@njit(cache=True, nogil=True, error_model="numpy")
def _shrunk(block: Any, cell: Any, C: Any, F: Any, out: Any) -> None:
    """``C F`` of every row."""
    for i in range(len(cell) - 1):
        m = cell[i + 1] - cell[i]
        product = C[block[i] : block[i + 1]].reshape((m, m)) @ F[block[i] : block[i + 1]].reshape((m, m))
        out[block[i] : block[i + 1]] = product.ravel()


class _Rows(NamedTuple):
    """The incomplete rows in the coordinates ``x_M = m0 + F'z``, z standard normal beforehand.

    A score is ``f0 + g'z`` on average over the coefficients, and its second moment
    ``constant + 2 t'z + z'L z``; columns are the classes.
    """

    patterns: Patterns
    f0: Array
    v0: Array
    g: Array
    t: Array
    L: Array

    def answer(self, w: Array, b: Array) -> tuple[Array, Array]:
        """Mean of z under the messages (w, b), and C with covariance ``C'C``."""
        z, C = np.empty(self.patterns.cell[-1]), np.empty(self.patterns.block[-1])
        _answer(self.patterns.cell, self.patterns.block, self.g, self.t, self.L, w, b, z, C)
        return z, C

    def predictors(self, z: Array, C: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of the predictors, and minus the divergence of z from the covariates' law."""
        f, v, part = np.empty_like(self.f0), np.empty_like(self.f0), np.empty(len(self.f0))
        _predict(self.patterns.cell, self.patterns.block, *self[1:], z, C, f, v, part)
        return f, v, part


class ClassMissing(Missing):
    """The missing entries of the rows of a model of several classes, with a normal model of the covariates."""

    def start(self, model: Model) -> MissingState:
        rows = self._rows(model)
        return MissingState(*first_guess(rows, model.known, self.covariates, self.times(rows.shape[0]), alone=True))

    def _rows(self, model: Model) -> Any:
        return _design(model).base

    def _on(self, model: Model, rows: Dense) -> Model:
        design: Any = replace(_design(model), base=rows)
        return replace(model, blocks=model.blocks.redesigned(design))

    def _completed(self, model: Model, rows: Imputed) -> Model:
        if not len(rows.patterns.row):
            return self._on(model, rows.dense)
        base: Any = rows
        design: Any = CompletedClasses.over(base, _design(model))
        return replace(model, blocks=model.blocks.redesigned(design), space=FormedSumToZero.of(design))

    def _refreshed(self, model: Model, state: MissingState, seen: Seen) -> Imputed:
        """Every row is a concave problem of its own; its messages are iterated as those of one output are."""
        design, law = state
        patterns, own = design.patterns, _design(model)
        rows, F, log_det, X = _coordinates(design, law, seen.mean, seen.root, own.k)
        face = seen.of(model.loss)
        grow, pairs = own.grow, (model.y, model.c, own.grow, seen.message.w * own.grow**2, seen.message.b * own.grow)
        y, c, grow, w, b = (_table(own, patterns, values) for values in pairs)  # messages about the scores themselves
        times = self.times(own.base.shape[0])[patterns.row, None]
        c, w, b = c / times, w / times, b / times

        def look(w: Array, b: Array) -> tuple[Array, Array, Array]:
            f, v, part = rows.predictors(*rows.answer(w, b))
            found = face(y.ravel(), c.ravel(), (grow * f).ravel(), (grow**2 * v).ravel())
            new_w, new_b, bound = (np.where(c > 0.0, x.reshape(c.shape), 0.0) for x in found)
            return grow**2 * new_w, grow * new_b, bound.sum(axis=1) + part

        to_w, to_b, value = look(w, b)
        rho = np.ones(len(c))
        for _ in range(self.rounds):
            new_w, new_b = w + rho[:, None] * (to_w - w), b + rho[:, None] * (to_b - b)
            other_w, other_b, other = look(new_w, new_b)
            better = other >= value
            gain = float(np.maximum(other - value, 0.0).sum())
            w, b = (np.where(better[:, None], new, old) for new, old in ((new_w, w), (new_b, b)))
            to_w, to_b = (np.where(better[:, None], new, old) for new, old in ((other_w, to_w), (other_b, to_b)))
            value = np.where(better, other, value)
            rho = np.where(better, np.minimum(1.0, 1.5 * rho), 0.3 * rho)
            if gain <= 1e-10 * (1.0 + abs(float(value.sum()))):
                break
        z, C = rows.answer(w, b)
        X[patterns.of_cells()] += to_cells(patterns, F, z)
        factor, diagonal = np.empty_like(F), _diagonals(patterns)
        _shrunk(patterns.block, patterns.cell, C, F, factor)
        log_det = log_det + np.add.reduceat(np.log(C[diagonal]), patterns.cell[:-1])
        return Imputed(
            Dense.plain(X, intercept=design.intercept), patterns, factor, np.ones_like(z), log_det, design.known
        )

    def _entries(self, random: Any, model: Model, state: MissingDraw, chain: Any) -> Array:
        """Given fresh latents z has the precision ``I + sum_r w_r g_r g_r'``."""
        patterns, own = state.patterns, _design(model)
        F, _ = whiten(patterns, state.law.precision)
        X = predicted(state.X, patterns, F, state.law.mean, state.law.precision)
        w, b, e = _random(random, model, self.times(own.base.shape[0]), patterns, chain.f)
        lead, beta = int(own.base.intercept), chain.beta.reshape(own.k, -1)
        f0 = X[patterns.row] @ beta[:, lead:].T + beta[:, :lead].sum(axis=1)
        each = [to_coordinates(patterns, F, np.broadcast_to(one, (len(f0), len(one)))) for one in beta[:, lead:]]
        g = np.ascontiguousarray(np.column_stack(each))
        t = g * np.repeat(f0, np.diff(patterns.cell), axis=0)
        L = np.empty((patterns.block[-1], own.k))
        _outer(patterns.cell, patterns.block, g, L)
        z, C = _Rows(patterns, f0, f0, g, t, L).answer(w, b)
        # C'e has the covariance of z
        X[patterns.of_cells()] += to_cells(patterns, F, z + to_cells(patterns, C, e))
        return X


@njit(cache=True, nogil=True, error_model="numpy")
def _outer(cell: Any, block: Any, g: Any, L: Any) -> None:
    """``g_r g_r'`` of every row and class."""
    for i in range(len(cell) - 1):
        m = cell[i + 1] - cell[i]
        for a in range(m):
            for c in range(m):
                for r in range(g.shape[1]):
                    L[block[i] + a * m + c, r] = g[cell[i] + a, r] * g[cell[i] + c, r]


def _design(model: Model) -> ClassDesign:
    design: Any = model.blocks.design
    return design


def _table(design: ClassDesign, patterns: Patterns, values: Array) -> Array:
    """Values of pairs as (incomplete row, class), zero where there is no pair."""
    out = np.zeros((design.base.shape[0], design.k))
    out[design.index, design.pair_class] = values
    return np.ascontiguousarray(out[patterns.row])


def _diagonals(patterns: Patterns) -> Any:
    """Where the diagonals of the rows' factors lie."""
    sizes = np.diff(patterns.cell)
    place = np.arange(patterns.cell[-1]) - np.repeat(patterns.cell[:-1], sizes)
    return np.repeat(patterns.block[:-1], sizes) + place * (np.repeat(sizes, sizes) + 1)


def _coordinates(
    design: Imputed, law: CovariateLaw, mean: Array, root: Array, k: int
) -> tuple[_Rows, Array, Array, Array]:
    """The incomplete rows ready for their messages, their factors, and the rows completed without messages."""
    patterns, lead = design.patterns, int(design.intercept)
    beta, roots = mean.reshape(k, -1), root.reshape(k, -1, root.shape[1])
    moment = roots @ roots.transpose(0, 2, 1) + beta[:, :, None] * beta[:, None, :]
    F, log_det = whiten(patterns, law.precision)
    X = predicted(design.dense.X, patterns, F, law.mean, law.precision)
    C = np.concatenate((np.ones((len(patterns.row), lead)), X[patterns.row]), axis=1)
    L = np.empty((patterns.block[-1], k))
    _forms(patterns.columns, patterns.start, patterns.block, F, np.ascontiguousarray(moment[:, lead:, lead:]), L)
    slopes = [to_coordinates(patterns, F, np.broadcast_to(one[lead:], (len(C), len(one) - lead))) for one in beta]
    across = [to_coordinates(patterns, F, np.ascontiguousarray((C @ one)[:, lead:])) for one in moment]
    v0 = np.stack([((C @ one) ** 2).sum(axis=1) for one in roots], axis=1)
    g, t = np.column_stack(slopes), np.column_stack(across)
    return _Rows(patterns, np.ascontiguousarray(C @ beta.T), v0, g, t, L), F, log_det, X


def _random(random: Any, model: Model, times: Array, patterns: Patterns, f: Array) -> tuple[Array, Array, Array]:
    """Messages about the incomplete rows' scores at latents drawn given f, and a normal number per entry."""
    own = _design(model)
    w, b = np.zeros((2, len(own.index)))
    wanted = np.zeros(own.base.shape[0], dtype=bool)
    wanted[patterns.row] = True
    for cell in model.blocks.cells:
        at = cell.lo + np.flatnonzero(wanted[own.index[cell.lo : cell.hi]])
        rng = random.at(Purpose.MISSING, cell=cell.number)
        w[at], b[at] = model.loss.draw(rng, model.y[at], model.c[at] / times[own.index[at]], f[at])
    e = random.at(Purpose.MISSING, cell=len(model.blocks.cells)).standard_normal(int(patterns.cell[-1]))
    return _table(own, patterns, w * own.grow**2), _table(own, patterns, b * own.grow), e
