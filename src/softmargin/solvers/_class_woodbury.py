"""The Gaussian of class coefficients that sum to zero where there are more columns than rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.classes import ClassDesign, helmert
from softmargin.solvers.gaussian import Gaussian

__all__ = ["ClassWoodbury"]


@dataclass(frozen=True, eq=False)
class ClassWoodbury:
    """Mean, solves and draws of the constrained Gaussian through a matrix of the size of the pairs.

    Given ``sum_r beta_rj = 0`` the prior covariance of a variable's coefficients with precision D is
    ``V = D^-1 - D^-1 11' D^-1 / (1'D^-1 1)``. With the pairs' design Z over the slopes and ``S = W^(1/2)`` the
    posterior covariance is ``V - V Z' S (I + S Z V Z' S)^-1 S Z V``. The nearly flat intercepts are kept apart and
    eliminated by their Schur complement.
    """

    design: ClassDesign
    s: Array
    V: Array  # k x k x q, zero for the intercepts
    small: Gaussian
    lead: Array  # columns of the intercept contrasts, kq x (k - 1) or kq x 0
    cross: Array  # slopes' answer to each of them
    corner: Array  # inverse Schur complement
    precision: Array
    rank_two: Array  # 2 x k x q
    mean: Array

    @classmethod
    def from_rows(
        cls, design: ClassDesign, w: Array, linear: Array, precision: Array, rank_two: Array | None = None
    ) -> ClassWoodbury:
        """Log density ``-beta'(X'WX + D)beta/2 + linear'beta`` on the space, corrected by ``rank_two``."""
        k, q, free = design.k, design.base.shape[1], int(design.base.intercept)
        D, given = precision.reshape(k, q), np.zeros((2, k, q)) if rank_two is None else rank_two.reshape(2, k, q)
        V = _constrained(1.0 / D, given)
        V[:, :, :free] = 0.0
        s = np.sqrt(w)
        B = _outer(design, V) * s
        B *= s[:, None]
        B.flat[:: len(s) + 1] += 1.0
        small = Gaussian.from_precision(B, np.zeros(len(s)))
        contrasts = np.zeros((k, q, (k - 1) * free))
        if free:
            contrasts[:, 0] = helmert(k).T
        lead = contrasts.reshape(k * q, -1)
        answers = np.zeros_like(lead)
        inner = np.zeros((lead.shape[1], lead.shape[1]))
        ahead = [s * design.matvec(column) for column in lead.T]
        for t, column in enumerate(ahead):
            solved = small.solve(column)
            answers[:, t] = _spread(V, design.rmatvec(s * solved))
            inner[:, t] = [float(other @ solved) for other in ahead]
        inner += lead.T @ (precision[:, None] * lead)
        partial = cls(design, s, V, small, lead, answers, np.asarray(np.linalg.inv(inner)), precision, given, linear)
        return replace(partial, mean=partial.solve(linear))

    def _slopes(self, rhs: Array) -> Array:
        start = _spread(self.V, rhs)
        f = self.small.solve(self.s * self.design.matvec(start)) * self.s
        return start - _spread(self.V, self.design.rmatvec(f))

    def _once(self, rhs: Array) -> Array:
        first = self.corner @ (self.lead.T @ rhs - self.cross.T @ rhs)
        return self._slopes(rhs) + self.lead @ first - self.cross @ first

    def solve(self, rhs: Array) -> Array:
        """``T (T'AT)^-1 T' rhs``, with two steps of iterative refinement: precisions may differ by many orders."""
        x = self._once(rhs)
        k, (u, v) = self.design.k, self.rank_two
        for _ in range(2):
            product = self.design.rmatvec(self.s * (self.s * self.design.matvec(x))) + self.precision * x
            blocks = x.reshape(k, -1)
            product -= (u * (u * blocks).sum(axis=0) - v * (v * blocks).sum(axis=0)).ravel()
            x = x + self._once(rhs - product)
        return x

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw: the mean plus a solve with a right side of covariance A (without corrections)."""
        noise = self.design.rmatvec(self.s * rng.standard_normal(len(self.s)))
        noise += np.sqrt(self.precision) * rng.standard_normal(len(self.precision))
        return self.mean + self.solve(noise)


def _constrained(variance: Array, rank_two: Array) -> Array:
    """Covariances k x k x q of every variable: precision ``1/variance - u u' + v v'``, sums zero."""
    k = len(variance)
    V = -variance[:, None, :] * variance[None, :, :] / variance.sum(axis=0)
    # the diagonal from the sum of the others: a difference would cancel where one variance is much the largest
    V[np.arange(k), np.arange(k)] = variance * ((1.0 - np.eye(k)) @ variance) / variance.sum(axis=0)
    for part, sign in ((rank_two[1], 1.0), (rank_two[0], -1.0)):  # Sherman and Morrison, what is added first
        if part.any():
            answer = np.einsum("rsj,sj->rj", V, part)
            V -= sign * answer[:, None, :] * answer[None, :, :] / (1.0 + sign * np.einsum("rj,rj->j", part, answer))
    return V


def _spread(V: Array, rhs: Array) -> Array:
    """V times a vector."""
    return np.asarray(np.einsum("rsj,sj->rj", V, rhs.reshape(len(V), -1))).ravel()


def _outer(design: ClassDesign, V: Array) -> Array:
    """``Z V Z'`` over the slopes of all pairs, from one product of base rows for each pair of classes."""
    k, base, free = design.k, design.base, int(design.base.intercept)
    out = np.empty((len(design.index), len(design.index)))
    for r in range(k):
        rows = slice(design.start[r], design.start[r + 1])
        for t in range(r + 1):
            columns, weight = slice(design.start[t], design.start[t + 1]), V[r, t, free:]
            block = np.zeros((base.shape[0], base.shape[0]))
            for side in (1.0, -1.0):
                part = np.maximum(side * weight, 0.0)
                if part.any():
                    block += side * base.scaled(np.sqrt(part)).outer()
            block = block[np.ix_(design.index[rows], design.index[columns])]
            block *= np.outer(design.grow[rows], design.grow[columns])
            out[rows, columns], out[columns, rows] = block, block.T
    return out
