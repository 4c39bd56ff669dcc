"""Random effects eliminated group by group: no matrix with a row for every group and a column for every group.

With the largest term's block ``D_g = sum w z z' + P``, ``B_g = sum w z x'`` and ``T_g = D_g^-1 B_g``, the coefficients
of the core have the precision ``S = X'WX + D - sum_g B_g'T_g``, and given them ``u_g`` is normal with mean
``D_g^-1 r_g - T_g beta`` and covariance ``D_g^-1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.precision import Coupled, Coupling
from softmargin.core.space import Root
from softmargin.designs.grouped import GroupedGram
from softmargin.solvers._group_factors import factor, lower, upper
from softmargin.solvers.full import Full
from softmargin.solvers.gaussian import Gaussian

__all__ = ["ArrowGaussian", "ArrowRoot", "Arrowhead"]

_LARGEST_CORE = 12_000  # a core is a dense matrix: this one has a gigabyte
_ROUNDING = 1e-15  # of a diagonal, for each column
_CHUNK = 4096  # rows of T whose product with a root is held at a time


def _block_diagonal(blocks: Array) -> Any:
    m = len(blocks)
    return sp.bsr_matrix((blocks, np.arange(m), np.arange(m + 1))).tocsr()


@dataclass(frozen=True, eq=False)
class ArrowRoot(Root):
    """An arrowhead covariance, with the pieces that the variance of a row needs."""

    inverse: Array  # L_g^-1
    T: Array  # columns of X
    side: Any  # the same for the columns of the smaller terms, sparse; None without them
    core: Any  # R with S^-1 = R R', or an arrowhead again
    centred: Any  # the Gaussian itself, around zero

    def core_image(self, X: Array, side: Any) -> tuple[Array, Any]:
        """Rows F in a dense and a sparse part, ``F F'`` the covariance of [X | side] times the core's coefficients."""
        p = X.shape[1]
        if isinstance(self.core, np.ndarray):
            return X @ self.core[:p] if side is None else X @ self.core[:p] + side @ self.core[p:], None
        outer: ArrowRoot = self.core
        return (X - side @ outer.T.reshape(-1, p)) @ outer.core, side @ outer.centred.whitening.T

    def core_quad(self, X: Array, side: Any) -> Array:
        """Variances of the rows [X | side] times the core's coefficients."""
        return _row_squares(*self.core_image(X, side))

    @property
    def shape(self) -> tuple[int, int]:
        size = len(self.centred.mean)
        return size, size

    def squares(self) -> Array:
        """Marginal variances."""
        return np.asarray(self.centred.var[: self.shape[0]])

    def quadratic(self, x: Array) -> float:
        """``x' C x`` of the covariance C."""
        return float(x @ self.centred.solve(x))

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, p) of N(0, C)."""
        return np.array([self.centred.draw(rng) for _ in range(n)]).reshape(n, self.shape[0])


@dataclass(frozen=True)
class Arrowhead(Full):
    """The space of all coefficients of a grouped design.

    The largest term is eliminated, and the only other one too where the first is nested in it. Otherwise the smaller
    ones stay in the core, whose Schur complement is dense: two crossed factors with many thousands of groups each are
    beyond it. ``coupling`` names the terms with a full prior precision.
    """

    coupling: Coupling | None = None

    @property
    def exchanges(self) -> bool:
        return False

    def gaussian(self, A: GroupedGram, linear: Array, precision: Array, rank_two: Array | None = None) -> ArrowGaussian:
        return ArrowGaussian.from_gram(A, linear, precision, self.coupling)

    def spread(self, design: Any, w: Array, linear: Array, precision: Array) -> Any:
        return self.wide(design, w, linear, precision)

    def wide(
        self, design: Any, w: Array, linear: Array, precision: Array, rank_two: Array | None = None
    ) -> ArrowGaussian:
        """More coefficients than rows is nothing special here."""
        return ArrowGaussian.from_gram(design.gram(w, np.zeros(len(w)))[0], linear, precision, self.coupling)


def _core_place(term: Coupled, main: slice) -> slice:
    """Where a term that is not eliminated stands in the core."""
    before = 0 if term.start < main.start else main.stop - main.start
    return slice(term.place.start - before, term.place.stop - before)


def _row_squares(dense: Array, sparse: Any) -> Array:
    v = np.einsum("ij,ij->i", dense, dense)
    return v if sparse is None else v + np.asarray(sparse.multiply(sparse).sum(axis=1)).ravel()


def _summed(dense: Array, sparse: Any, width: int) -> Array:
    """Sum over groups of ``F_g F_g'`` for rows F of several groups, in a dense and a sparse part."""
    blocks = dense.reshape(-1, width, dense.shape[1])
    total = np.asarray(np.einsum("gap,gbp->ab", blocks, blocks))
    if sparse is not None:
        rows = [sparse[a::width] for a in range(width)]
        total += np.array([[one.multiply(other).sum() for other in rows] for one in rows])
    return total


def _couple(A: GroupedGram, precision: Array, coupling: Coupling) -> None:
    """Add the entries of the prior precision off its diagonal."""
    for term, at in zip(coupling.terms, coupling.extras(), strict=True):
        rows, columns = term.pairs
        if term.start == A.main.start or isinstance(A.core, GroupedGram):
            block = A.block if term.start == A.main.start else A.core.block
            block[:, rows, columns] += precision[at]
            block[:, columns, rows] += precision[at]
        else:
            first = np.arange(term.groups)[:, None] * term.width + _core_place(term, A.main).start
            A.core[first + rows, first + columns] += precision[at]
            A.core[first + columns, first + rows] += precision[at]


def _dense_core(core: Array, precision: Array, V: Array, V_side: Any) -> Gaussian:
    """The core's Gaussian, around zero, once the groups are eliminated."""
    size, p = len(core), V.shape[1]
    if size > _LARGEST_CORE:
        raise ValueError(
            f"the smaller group terms and the other columns are {size} together and more than {_LARGEST_CORE}: "
            "leave out the second largest grouping factor."
        )
    core.flat[:: size + 1] += precision
    least = _ROUNDING * size * core.diagonal()
    core[:p, :p] -= V.T @ V
    if V_side is not None:
        between = V_side.T @ V
        core[p:, :p] -= between
        core[:p, p:] -= between.T
        core[p:, p:] -= (V_side.T @ V_side).toarray()
    # what groups take off heavy rows may be all but everything: rounding must not leave less than nothing
    core.flat[:: size + 1] = np.maximum(core.diagonal(), np.maximum(least, precision))
    return Gaussian.from_precision(core, np.zeros(size))


def _nested_core(core: GroupedGram, precision: Array, V: Array, V_side: Any) -> ArrowGaussian:
    """The same where the other term stays block diagonal: every eliminated group touches one of its groups."""
    m, s, p = core.cross.shape
    lost = (V_side.T @ V_side).tobsr((s, s))
    lost.sort_indices()
    core.core[...] -= V.T @ V
    core.cross[...] -= (V_side.T @ V).reshape(m, s, p)
    core.block[lost.indices] -= lost.data  # at most one block a row, on the diagonal
    return ArrowGaussian.from_gram(core, np.zeros(p + m * s), precision)


@dataclass(frozen=True, eq=False)
class ArrowGaussian:
    """N(mean, A^-1) from a precision whose largest part is block diagonal."""

    inner: Any  # the Gaussian of the core: a plain one, or an arrowhead again
    inverse: Array  # L_g^-1, groups x width x width
    T: Array  # groups x width x columns of X
    side: Any  # T for the columns of the smaller terms, sparse; None without them
    log_blocks: float  # sum of log |D_g|
    main: slice
    mean: Array
    coupling: Coupling | None = None

    @classmethod
    def from_gram(
        cls, A: GroupedGram, linear: Array, precision: Array, coupling: Coupling | None = None
    ) -> ArrowGaussian:
        """The Gaussian with log density ``-beta'(A + D)beta/2 + linear'beta``; the pieces of A are used up."""
        m, s, p = A.cross.shape
        block, own = A.block, np.delete(precision[: len(linear)], A.main)
        block[:, np.arange(s), np.arange(s)] += precision[A.main].reshape(m, s)
        if coupling is not None:
            _couple(A, precision, coupling)
        inverse = np.zeros_like(block)
        log_blocks = factor(block, inverse)
        if not math.isfinite(log_blocks):
            raise np.linalg.LinAlgError("the precision matrix of a group is not positive definite")
        V = np.empty_like(A.cross)
        lower(inverse, A.cross, V)
        flat, T_side, V_side = V.reshape(m * s, p), None, None
        if A.side is not None:
            L = _block_diagonal(inverse)
            V_side = L @ A.side
            T_side = (L.T @ V_side).tocsr()
        eliminated = _nested_core if isinstance(A.core, GroupedGram) else _dense_core
        inner: Any = eliminated(A.core, own, flat, V_side)
        T = A.cross
        upper(inverse, V, T)
        partial = cls(inner, inverse, T, T_side, log_blocks, A.main, linear, coupling)
        return partial.with_mean(partial.solve(linear))

    def _groups(self, linear: Array) -> Array:
        """``D_g^-1 r_g`` of every group, in one row."""
        right = linear.reshape(*self.inverse.shape[:2], 1)
        low, up = np.empty_like(right), np.empty_like(right)
        lower(self.inverse, right, low)
        upper(self.inverse, low, up)
        return up.ravel()

    def _joined(self, core: Array, groups: Array) -> Array:
        """All coefficients from those of the core and the groups' own part, which is still free of the core."""
        p = self.T.shape[2]
        groups = groups - self.T.reshape(-1, p) @ core[:p]
        if self.side is not None:
            groups = groups - self.side @ core[p:]
        start = self.main.start
        return np.concatenate((core[:start], groups, core[start:]))

    def _core_part(self, linear: Array) -> Array:
        """The core's linear term once the groups are eliminated."""
        p, own = self.T.shape[2], linear[self.main]
        out = np.delete(linear, self.main)
        out[:p] -= self.T.reshape(-1, p).T @ own
        if self.side is not None:
            out[p:] -= self.side.T @ own
        return out

    def solve(self, rhs: Array) -> Array:
        """``A^-1 rhs``."""
        return self._joined(self.inner.solve(self._core_part(rhs)), self._groups(rhs[self.main]))

    def draw(self, rng: np.random.Generator) -> Array:
        """One draw: the core, then the groups given it."""
        core = self.inner.draw(rng)
        z = rng.standard_normal(self.T.shape[0] * self.T.shape[1]).reshape(*self.T.shape[:2], 1)
        noise = np.empty_like(z)
        upper(self.inverse, z, noise)
        return self.mean + self._joined(core, noise.ravel())

    @cached_property
    def whitening(self) -> Any:
        """All L_g^-1 as one sparse matrix."""
        return _block_diagonal(self.inverse)

    @cached_property
    def root(self) -> ArrowRoot:
        """The pieces from which a grouped design computes the variances of its rows."""
        centred = replace(self, mean=np.zeros_like(self.mean))
        return ArrowRoot(self.inverse, self.T, self.side, self.inner.root, centred)

    @cached_property
    def var(self) -> Array:
        """Marginal variances; behind them, where a term is coupled, its covariances as the coupling writes them."""
        own = np.einsum("gba,gba->ga", self.inverse, self.inverse).ravel()
        for at, image in self._images():
            own[at] += _row_squares(*image)
        core, start = self.inner.var, self.main.start
        parts = [core[:start], own, core[start:]]
        for term in () if self.coupling is None else self.coupling.terms:
            here = self._main_total() if term.start == self.main.start else self._core_total(term)
            parts.append(2.0 * here[term.pairs])
        return np.concatenate(parts)

    def _images(self) -> Iterator[tuple[slice, tuple[Array, Any]]]:
        """Some groups at a time: rows whose products are what the core adds to the covariances of the groups."""
        m, s, p = self.T.shape
        flat, many = self.T.reshape(m * s, p), max(_CHUNK // s, 1) * s
        for start in range(0, m * s, many):
            at = slice(start, start + many)
            yield at, self.root.core_image(flat[at], None if self.side is None else self.side[at])

    def _main_total(self) -> Array:
        """Sum over groups of the covariances of the eliminated term."""
        total = np.asarray(np.einsum("gca,gcb->ab", self.inverse, self.inverse))
        return total + sum(_summed(*image, self.T.shape[1]) for _, image in self._images())

    def _core_total(self, term: Coupled) -> Array:
        """Sum over groups of the covariances of a term that was not eliminated first."""
        if isinstance(self.inner, ArrowGaussian):
            return self.inner._main_total()
        return _summed(self.inner.root[_core_place(term, self.main)], None, term.width)

    @property
    def logdet(self) -> float:
        """Log determinant of the precision."""
        return self.inner.logdet + self.log_blocks

    @property
    def entropy(self) -> float:
        """Differential entropy."""
        return 0.5 * (len(self.mean) * (1.0 + math.log(2.0 * math.pi)) - self.logdet)

    def with_mean(self, mean: Array) -> ArrowGaussian:
        """The same covariance around another mean."""
        copy = replace(self, mean=mean)
        copy.__dict__.update({name: self.__dict__[name] for name in ("root", "var") if name in self.__dict__})
        return copy

    def dilated(self, t: float) -> ArrowGaussian:
        """Mean times e^t and covariance times e^2t."""
        grow = math.exp(t)
        copy = replace(
            self,
            inner=self.inner.dilated(t),
            inverse=self.inverse * grow,
            log_blocks=self.log_blocks - 2.0 * t * self.inverse.shape[0] * self.inverse.shape[1],
            mean=self.mean * grow,
        )
        if "var" in self.__dict__:
            copy.__dict__["var"] = self.var * grow**2
        return copy
