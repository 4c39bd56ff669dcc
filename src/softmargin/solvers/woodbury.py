"""The Gaussian of more coefficients than rows under any diagonal prior precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.solvers.gaussian import Gaussian

__all__ = ["WoodburyGaussian"]


@dataclass(frozen=True, eq=False)
class WoodburyGaussian:
    """N(mean, A^-1) with ``A = X'WX + D`` through the n x n matrix ``B = I + S K S``.

    ``K = X D^-1 X'`` over the slopes and ``S = W^(1/2)``: then ``A^-1 = D^-1 - D^-1 X' S B^-1 S X D^-1``, stable for
    weights near zero and near infinity alike. A nearly flat intercept would spoil K, so it is kept apart and
    eliminated by its Schur complement. No matrix of size p x p is formed.
    """

    design: Design
    s: Array
    variance: Array  # 1/D of the slopes
    small: Gaussian  # B, as the precision of a Gaussian: its factorisation and solves
    corner: float  # Schur complement of the intercept
    cross: Array  # A_slopes^-1 times the coupling of slopes and intercept
    precision: Array
    mean: Array

    @classmethod
    def from_rows(cls, design: Design, w: Array, linear: Array, precision: Array) -> WoodburyGaussian:
        """The Gaussian with log density ``-beta'(X'WX + D)beta/2 + linear'beta``."""
        lead = int(design.intercept)
        variance, s = 1.0 / precision[lead:], np.sqrt(w)
        B = design.scaled(np.sqrt(variance)).outer() * s
        B *= s[:, None]
        B.flat[:: len(s) + 1] += 1.0
        small = Gaussian.from_precision(B, np.zeros(len(s)))
        cross, corner = np.zeros(len(variance)), 1.0
        if lead:  # s'B^-1 s rather than a difference of large sums
            inner = small.solve(s)
            cross = variance * design.rmatvec(s * inner)[1:]
            corner = float(s @ inner) + float(precision[0])
        partial = cls(design, s, variance, small, corner, cross, precision, linear)
        return replace(partial, mean=partial.solve(linear))

    def _slopes(self, rhs: Array) -> Array:
        """``(X_1'WX_1 + D_1)^-1 rhs`` over the slopes."""
        lead = int(self.design.intercept)
        start = rhs * self.variance
        f = self.design.matvec(np.concatenate((np.zeros(lead), start))) * self.s
        f = self.small.solve(f) * self.s
        return start - self.variance * self.design.rmatvec(f)[lead:]

    def solve(self, rhs: Array) -> Array:
        """``A^-1 rhs``, with two steps of iterative refinement: precisions may differ by many orders."""
        x = self._once(rhs)
        for _ in range(2):
            product = self.design.rmatvec(self.s * (self.s * self.design.matvec(x))) + self.precision * x
            x = x + self._once(rhs - product)
        return x

    def _once(self, rhs: Array) -> Array:
        if not self.design.intercept:
            return self._slopes(rhs)
        slopes = self._slopes(rhs[1:])
        first = (rhs[0] - float(self.cross @ rhs[1:])) / self.corner
        return np.concatenate(([first], slopes - first * self.cross))

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw: the mean plus a solve with a right side of covariance A."""
        noise = self.design.rmatvec(self.s * rng.standard_normal(len(self.s)))
        noise += np.sqrt(self.precision) * rng.standard_normal(len(self.precision))
        return self.mean + self.solve(noise)
