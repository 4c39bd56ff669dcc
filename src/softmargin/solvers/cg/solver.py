"""Coefficients and rows both too many for a matrix: a Gaussian by conjugate gradients, its spread by a sketch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.sparse import Implicit
from softmargin.refusals import refused
from softmargin.solvers.cg._root import CGRoot
from softmargin.solvers.cg._sketch import RowGaussian, Sketch
from softmargin.solvers.coordinates import Coordinates, Solver
from softmargin.solvers.full import Full
from softmargin.solvers.row_span import span_of

__all__ = ["CGNormal", "ConjugateGradients", "Iterative"]

TOLERANCE = 1e-4  # of a solve: its error in posterior standard deviations, rms over the directions that rows see
SHARP = 1e-7  # of a mean: a mode is climbed to by means, until its objective changes by rounding alone
_SIGNS = 64  # columns of random signs behind the distances of the span rule
_ROUGH = 5e-2  # tolerance of their solves
_HELD = 1e6  # weight of a row that is held on the margin, times its prior variance
_REFINED = 2  # steps of iterative refinement of a mean
_MOST = 5000  # iterations of a solve
_SEED = 7
_LOG_2PI_E = 1.0 + math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class ConjugateGradients(Solver):
    """Products with a sparse X alone: for rows and columns that are both too many for a dense matrix.

    Solves and draws are exact to ``TOLERANCE``. Variances of the training rows and the log determinant, which the
    variational engines need at every step, come from a sketch of the products of the rows and are approximate.
    """

    needs_prior = ("isotropic",)
    needs_design = ("implicit",)

    def coordinates(self, design: Design) -> Coordinates:
        """The coefficients as they are, on a design that keeps row weights in place of a Gram matrix."""
        if not design.offers("implicit"):
            raise ValueError(refused("products of dense columns"))
        implicit: Any = design.implicit()
        return Coordinates(implicit, None, int(design.intercept), Iterative(implicit))


@dataclass(frozen=True, eq=False)
class Iterative(Full):
    """Every value of the coefficients, none of them with a matrix of its own."""

    design: Implicit

    accuracy = 1e-5  # on the safe side of ``SHARP``
    uneven = False

    @property
    def exchanges(self) -> bool:
        return False

    @cached_property
    def sketch(self) -> Sketch:
        """The products of the rows, made once."""
        return Sketch.from_design(self.design)

    def on(self, design: Any) -> Iterative:
        """The same with other rows."""
        return Iterative(design)

    def apart(self) -> Iterative:
        """The same on a copy of the entries of X."""
        copy = Iterative(replace(self.design, X=self.design.X.copy()))
        if "sketch" in self.__dict__:
            copy.__dict__["sketch"] = self.sketch
        return copy

    def _rough_distances(self, margin: Any, excess: Array, precision: Array) -> Array:
        """Squared distances of rows with an excess from the span of those on the margin, by solves."""
        w = np.where(margin, _HELD * precision[-1] / np.maximum(self.design.norms(), 1e-300), 0.0)
        normal = CGNormal(self, w, np.zeros(len(precision)), precision)
        distance = np.zeros(len(w))
        if margin.any():
            distance[margin] = (1.0 / normal.slack()[margin] - 1.0) / w[margin]
        off = ~margin & (excess > 0.0)
        if off.any():
            distance[off] = normal.unweighted(off)[off]
        return distance

    def gaussian(self, A: Any, linear: Array, precision: Array, rank_two: Array | None = None) -> CGNormal:
        return CGNormal(self, A, linear, precision)

    def spread(self, design: Design, w: Array, linear: Array, precision: Array) -> Any:
        return CGNormal(self, w, linear, precision)

    def wide(self, design: Design, w: Array, linear: Array, precision: Array, rank_two: Array | None = None) -> Any:
        return CGNormal(self, w, linear, precision)

    def left_out(self, model: Any, point: Any, penalty: Any, part: Array) -> Array:
        """Predictors of a mode without the part ``part`` of each row, by the span rule.

        See ``engines.active_set.leave_one_out``. Where too many rows are on the margin for a matrix of their products,
        they are rows of a very large weight; the distances of the rule are then variances, and they matter to a few
        per cent: the sketch is corrected by solves.
        """
        precision = np.maximum(penalty.precision, 1e-4 * float(penalty.precision.max()))  # a flat intercept drowns all
        excess = np.maximum(point.g - (1.0 - part) * 2.0 * model.c, 0.0)
        margin = span_of(self.design, np.flatnonzero(point.margin), model.y, precision)
        if margin is not None:
            excess[point.margin] = margin.excess(point.g, model.c, part)
            distance = margin.distances(excess > 0.0)
        else:
            distance = self._rough_distances(point.margin, excess, precision)
        loo: Array = point.f - model.y * excess * distance
        if not point.margin.any():  # a step along the flat intercept ends where rows meet the margin
            loo = np.clip(loo, min(float(point.f.min()), -1.0), max(float(point.f.max()), 1.0))
        return loo


@dataclass(frozen=True, eq=False)
class CGNormal:
    """N(mean, A^-1) with ``A = X'WX + D``, D the same for all slopes.

    Over the slopes ``A^-1 = V - V X'S B^-1 S X V`` with ``S = W^(1/2)``, V the prior variance and ``B = I + S K S``,
    ``K = V X X'``. Conjugate gradients solve with B, preconditioned by its sketch, which is never far from it: rows of
    a huge weight are as easy as others. The intercept is eliminated by its Schur complement.
    """

    space: Iterative
    w: Array
    linear: Array
    precision: Array
    centre: Array | None = None
    grow: float = 1.0

    @property
    def design(self) -> Implicit:
        return self.space.design

    @property
    def lead(self) -> int:
        return int(self.design.intercept)

    @property
    def prior_variance(self) -> float:
        """Prior variance of a slope."""
        return 1.0 / float(self.precision[-1])

    @cached_property
    def rows(self) -> RowGaussian:
        """The predictors as the sketch has them: the preconditioner, and the spread that engines work with."""
        flat = float(self.precision[0]) if self.lead else None
        return self.space.sketch.given(self.w, self.prior_variance, flat)

    @cached_property
    def s(self) -> Array:
        return np.sqrt(self.w)

    def _times(self, x: Array) -> Array:
        """``B x``."""
        s = self.s[:, None]
        product: Array = s * self.design.matmat(self.prior_variance * self.design.rmatmat(s * x))
        return product + x

    def relaxed(self, rhs: Array, tolerance: float = TOLERANCE) -> Array:
        """``B^-1 rhs`` for columns (n, k).

        With the residual r and its preconditioned form z, the error of the coefficients that follow from the solution
        has squared length about ``(r - z)'r`` in the metric of A, which counts in posterior standard deviations.
        """
        seen = max(float(self.w @ self.rows.variance), 1.0)
        x, r = np.zeros_like(rhs), rhs.copy()
        z = self.rows.relax(r)
        p, rz = z.copy(), np.einsum("ij,ij->j", r, z)
        for _ in range(_MOST):
            ahead = self._times(p)
            step = rz / np.maximum(np.einsum("ij,ij->j", p, ahead), 1e-300)
            x += step * p
            r -= step * ahead
            z = self.rows.relax(r)
            error = np.einsum("ij,ij->j", r - z, r)
            if error.max(initial=0.0) <= tolerance**2 * seen:
                return x
            new = np.einsum("ij,ij->j", r, z)
            p = z + (new / np.maximum(rz, 1e-300)) * p
            rz = new
        raise np.linalg.LinAlgError(
            f"conjugate gradients did not converge in {_MOST} iterations; use solver='dual' or 'cholesky', or a "
            "smaller scale of the prior."
        )

    def _answer(self, x: Array) -> Array:
        """``V X' S x``: coefficients (slopes, k) of rows (n, k)."""
        return self.prior_variance * self.design.rmatmat(self.s[:, None] * x)

    @cached_property
    def _border(self) -> tuple[Array, float]:
        """What the slopes answer to a unit of the intercept, and the precision that is left to it."""
        if not self.lead:
            return np.zeros(len(self.precision)), 1.0
        x = self.relaxed(self.s[:, None])
        return self._answer(x)[:, 0], float(self.s @ x[:, 0]) + float(self.precision[0])

    @property
    def cross(self) -> Array:
        """What the slopes answer to a unit of the intercept."""
        return self._border[0]

    @property
    def corner(self) -> float:
        """Precision of the intercept with the slopes integrated out."""
        return self._border[1]

    def solve(self, rhs: Array) -> Array:
        """Covariance times ``rhs``, refined: rows of a huge weight cost digits."""
        x = self._once(rhs, TOLERANCE)
        for _ in range(_REFINED):
            product = self.design.rmatvec(self.w * self.design.matvec(x)) + self.precision * x
            x = x + self._once(rhs - product, SHARP)
        return self.grow**2 * x

    def _once(self, rhs: Array, tolerance: float) -> Array:
        start = self.prior_variance * rhs[self.lead :, None]
        x = self.relaxed(self.s[:, None] * self.design.matmat(start), tolerance)
        slopes = (start - self._answer(x))[:, 0]
        if not self.lead:
            return slopes
        first = (rhs[0] - float(self.cross @ rhs[1:])) / self.corner
        return np.concatenate(([first], slopes - first * self.cross))

    @cached_property
    def mean(self) -> Array:
        """The mean, solved for when it is asked for."""
        return self.solve(self.linear) if self.centre is None else self.centre

    def coupled(self, rng: np.random.Generator, k: int) -> tuple[Array, Array]:
        """Draws (slopes, k) of the slopes around their mean given the intercept, and what was taken off the prior's.

        A draw u of the prior and a draw e of row noise give ``u - V X'S B^-1 (S X u + e)``; the two parts that are
        returned are independent of each other, and their variances add up to the prior's.
        """
        n, q = self.design.shape
        u = math.sqrt(self.prior_variance) * rng.standard_normal((q - self.lead, k))
        taken = self._answer(self.relaxed(self.s[:, None] * self.design.matmat(u) + rng.standard_normal((n, k))))
        return u - taken, taken

    def noise(self, rng: np.random.Generator, k: int) -> Array:
        """Draws (k, coefficients) around the mean."""
        slopes = self.coupled(rng, k)[0].T
        if not self.lead:
            return self.grow * slopes
        first = rng.standard_normal(k) / math.sqrt(self.corner)
        return self.grow * np.column_stack((first, slopes - first[:, None] * self.cross))

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw, its mean no sharper than its noise."""
        centre = self.grow**2 * self._once(self.linear, TOLERANCE) if self.centre is None else self.centre
        return centre + self.noise(rng, 1)[0]

    def _signs(self, where: Any) -> Array:
        """Fixed random signs (n, k) in the rows ``where``, zero elsewhere."""
        signs = np.random.Generator(np.random.Philox(_SEED)).integers(0, 2, (len(self.w), _SIGNS))
        return np.where(np.asarray(where)[:, None], 2.0 * signs - 1.0, 0.0)

    def slack(self) -> Array:
        """``1 - w v`` of every row with its variance v: the diagonal of ``B^-1``, less the intercept's part.

        The sketch has most of it; random signs, which estimate a diagonal without bias, see only what it leaves.
        """
        rows, z = self.rows, self._signs(self.w > 0.0)
        known = 1.0 - self.w * rows.slope_variance
        found = known + (z * (self.relaxed(z, _ROUGH) - rows.relax(z))).mean(axis=1)
        found = np.clip(found, 0.3 * known, 3.0 * known)
        if self.lead:
            found = np.maximum(found - self.relaxed(self.s[:, None])[:, 0] ** 2 / self.corner, 0.1 * found)
        return found

    def unweighted(self, where: Any) -> Array:
        """Variance of the predictors of rows ``where`` of weight zero, the sketch corrected in the same way."""
        rows, z = self.rows, self._signs(where)
        s, known = self.s[:, None], rows.slope_variance

        def products(x: Array) -> Array:
            return self.design.matmat(self.prior_variance * self.design.rmatmat(x))

        image, rough = products(z), rows.products(z)
        image = image - products(s * self.relaxed(s * image, _ROUGH))
        rough = rough - rows.products(s * rows.relax(s * rough))
        found = np.clip(known + (z * (image - rough)).mean(axis=1), 0.3 * known, 3.0 * known)
        if self.lead:
            found = found + self.design.matvec(np.concatenate(([1.0], -self.cross))) ** 2 / self.corner
        return np.asarray(found)

    @cached_property
    def root(self) -> CGRoot:
        """The covariance."""
        return CGRoot(self)

    @cached_property
    def var(self) -> Array:
        """Marginal variances by the sketch: their sum is right, and all slopes have the same."""
        rows = self.rows
        size = len(self.precision)
        var = np.full(size, (size - float(self.w @ rows.variance)) / float(self.precision[-1]))
        if self.lead:
            var[0] = 1.0 / rows.corner
            var[1:] -= float(self.precision[0]) / rows.corner / float(self.precision[-1])
        var[self.lead :] /= max(size - self.lead, 1)
        return self.grow**2 * var

    @property
    def logdet(self) -> float:
        """Log determinant of the precision, by the sketch."""
        slopes = len(self.precision) - self.lead
        value = self.rows.logdet - slopes * math.log(self.prior_variance)
        return value - 2.0 * len(self.precision) * math.log(self.grow)

    @property
    def entropy(self) -> float:
        """Differential entropy."""
        return 0.5 * (len(self.precision) * _LOG_2PI_E - self.logdet)

    def with_mean(self, mean: Array) -> CGNormal:
        """The same covariance around another mean."""
        return self._copy(mean, 1.0)

    def dilated(self, t: float) -> CGNormal:
        """Mean times e^t and covariance times e^2t."""
        return self._copy(self.mean * math.exp(t), math.exp(t))

    def _copy(self, mean: Array, factor: float) -> CGNormal:
        copy = replace(self, centre=mean, grow=self.grow * factor)
        for name in ("rows", "s", "_border"):  # none of them depends on the mean or the factor
            if name in self.__dict__:
                copy.__dict__[name] = self.__dict__[name]
        return copy
