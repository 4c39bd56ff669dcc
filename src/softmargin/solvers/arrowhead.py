"""Random effects eliminated group by group: no matrix with a row for every group and a column for every group.

With the largest term's block ``D_g = sum w z z' + P``, ``B_g = sum w z x'`` and ``T_g = D_g^-1 B_g``, the coefficients
of the core have the precision ``S = X'WX + D - sum_g B_g'T_g``, and given them ``u_g`` is normal with mean
``D_g^-1 r_g - T_g beta`` and covariance ``D_g^-1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from softmargin.designs.base import Array
from softmargin.designs.coupling import Coupled, Coupling
from softmargin.designs.grouped import GroupedGram
from softmargin.solvers.gaussian import Gaussian
from softmargin.solvers.space import Full

__all__ = ["ArrowGaussian", "ArrowRoot", "Arrowhead"]

_LARGEST_CORE = 12_000  # a core is a dense matrix: this one has a gigabyte
_SLAB = 4096  # rows of T whose product with a root is held at a time


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(block: Any, inverse: Any) -> float:
    """Write L^-1 of every block ``L L'`` and return the sum of log |block|; nan where one is not positive."""
    m, s = block.shape[0], block.shape[1]
    L = np.zeros((s, s))
    total = 0.0
    for g in range(m):
        for a in range(s):
            for b in range(a + 1):
                value = block[g, a, b]
                for k in range(b):
                    value -= L[a, k] * L[b, k]
                if a == b:
                    if not value > 0.0:
                        return np.nan
                    L[a, a] = np.sqrt(value)
                    total += np.log(value)
                else:
                    L[a, b] = value / L[b, b]
        for b in range(s):
            inverse[g, b, b] = 1.0 / L[b, b]
            for a in range(b + 1, s):
                value = 0.0
                for k in range(b, a):
                    value -= L[a, k] * inverse[g, k, b]
                inverse[g, a, b] = value / L[a, a]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _lower(inverse: Any, B: Any, out: Any) -> None:
    """Write ``L_g^-1 B_g`` of every group."""
    m, s, p = B.shape
    for g in range(m):
        for a in range(s):
            for j in range(p):
                out[g, a, j] = 0.0
            for b in range(a + 1):
                for j in range(p):
                    out[g, a, j] += inverse[g, a, b] * B[g, b, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _upper(inverse: Any, V: Any, out: Any) -> None:
    """Write ``L_g^-T V_g`` of every group."""
    m, s, p = V.shape
    for g in range(m):
        for a in range(s):
            for j in range(p):
                out[g, a, j] = 0.0
            for b in range(a, s):
                for j in range(p):
                    out[g, a, j] += inverse[g, b, a] * V[g, b, j]


class ArrowRoot(NamedTuple):
    """The pieces of an arrowhead covariance that the variance of a row needs."""

    inverse: Array  # L_g^-1
    T: Array  # columns of X
    side: Any  # the same for the columns of the smaller terms, sparse; None without them
    core: Array  # R with S^-1 = R R'


@dataclass(frozen=True)
class Arrowhead(Full):
    """The space of all coefficients of a grouped design.

    The largest term is eliminated; the smaller ones stay in the core, whose Schur complement is dense. Two crossed
    factors with many thousands of groups each are beyond it. ``coupling`` names the terms with a full prior precision.
    """

    coupling: Coupling | None = None

    @property
    def exchanges(self) -> bool:
        return False

    def gaussian(self, A: GroupedGram, linear: Array, precision: Array, dent: Array | None = None) -> ArrowGaussian:
        return ArrowGaussian.from_gram(A, linear, precision, self.coupling)

    def wide(self, design: Any, w: Array, linear: Array, precision: Array, dent: Array | None = None) -> ArrowGaussian:
        """More coefficients than rows is nothing special here."""
        return ArrowGaussian.from_gram(design.gram(w, np.zeros(len(w)))[0], linear, precision, self.coupling)


def _core_place(term: Coupled, main: slice) -> slice:
    """Where a term that is not eliminated stands in the core."""
    before = 0 if term.start < main.start else main.stop - main.start
    return slice(term.place.start - before, term.place.stop - before)


def _summed(root: Array, width: int) -> Array:
    """Sum over groups of ``R_g R_g'`` for rows R of several groups."""
    blocks = root.reshape(-1, width, root.shape[1])
    return np.asarray(np.einsum("gap,gbp->ab", blocks, blocks))


def _couple(A: GroupedGram, precision: Array, coupling: Coupling) -> None:
    """Add the entries of the prior precision off its diagonal."""
    for term, at in zip(coupling.terms, coupling.extras(), strict=True):
        rows, columns = term.pairs
        if term.start == A.main.start:
            A.block[:, rows, columns] += precision[at]
            A.block[:, columns, rows] += precision[at]
        else:
            first = np.arange(term.groups)[:, None] * term.width + _core_place(term, A.main).start
            A.core[first + rows, first + columns] += precision[at]
            A.core[first + columns, first + rows] += precision[at]


@dataclass(frozen=True, eq=False)
class ArrowGaussian:
    """N(mean, A^-1) from a precision whose largest part is block diagonal."""

    inner: Gaussian  # of the core
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
        size, (m, s, p) = len(A.core), A.cross.shape
        if size > _LARGEST_CORE:
            raise ValueError(
                f"the smaller group terms and the other columns are {size} together and more than {_LARGEST_CORE}: "
                "leave out the second largest grouping factor."
            )
        block, core = A.block, A.core
        block[:, np.arange(s), np.arange(s)] += precision[A.main].reshape(m, s)
        core.flat[:: size + 1] += np.delete(precision[: len(linear)], A.main)
        if coupling is not None:
            _couple(A, precision, coupling)
        inverse = np.zeros_like(block)
        log_blocks = _factor(block, inverse)
        if not math.isfinite(log_blocks):
            raise np.linalg.LinAlgError("the precision matrix of a group is not positive definite")
        V = np.empty_like(A.cross)
        _lower(inverse, A.cross, V)
        flat = V.reshape(m * s, p)
        core[:p, :p] -= flat.T @ flat
        T_side = None
        if A.side is not None:
            L = sp.bsr_matrix((inverse, np.arange(m), np.arange(m + 1))).tocsr()
            V_side = L @ A.side
            between = V_side.T @ flat
            core[p:, :p] -= between
            core[:p, p:] -= between.T
            core[p:, p:] -= (V_side.T @ V_side).toarray()
            T_side = (L.T @ V_side).tocsr()
        T = A.cross
        _upper(inverse, V, T)
        inner = Gaussian.from_precision(core, np.zeros(size))
        partial = cls(inner, inverse, T, T_side, log_blocks, A.main, linear, coupling)
        return partial.with_mean(partial.solve(linear))

    def _groups(self, linear: Array) -> Array:
        """``D_g^-1 r_g`` of every group, in one row."""
        right = linear.reshape(*self.inverse.shape[:2], 1)
        low, up = np.empty_like(right), np.empty_like(right)
        _lower(self.inverse, right, low)
        _upper(self.inverse, low, up)
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
        centred = replace(self.inner, mean=np.zeros(len(self.inner.unit)))
        core = centred.draw(rng)
        z = rng.standard_normal(self.T.shape[0] * self.T.shape[1]).reshape(*self.T.shape[:2], 1)
        noise = np.empty_like(z)
        _upper(self.inverse, z, noise)
        return self.mean + self._joined(core, noise.ravel())

    @cached_property
    def root(self) -> ArrowRoot:
        """The pieces from which a grouped design computes the variances of its rows."""
        return ArrowRoot(self.inverse, self.T, self.side, self.inner.root)

    @cached_property
    def var(self) -> Array:
        """Marginal variances; behind them, where a term is coupled, its covariances as the coupling writes them."""
        m, s, p = self.T.shape
        own = np.einsum("gba,gba->ga", self.inverse, self.inverse).ravel()
        total = np.einsum("gca,gcb->ab", self.inverse, self.inverse)  # of the groups' covariances
        R, flat, many = self.inner.root, self.T.reshape(m * s, p), max(_SLAB // s, 1) * s
        for start in range(0, m * s, many):
            at = slice(start, start + many)
            product = flat[at] @ R[:p]
            if self.side is not None:
                product += self.side[at] @ R[p:]
            own[at] += np.einsum("ij,ij->i", product, product)
            if self.coupling is not None:
                total += _summed(product, s)
        core, start = self.inner.var, self.main.start
        parts = [core[:start], own, core[start:]]
        for term in () if self.coupling is None else self.coupling.terms:
            if term.start != self.main.start:
                total_here = _summed(R[_core_place(term, self.main)], term.width)
            else:
                total_here = total
            parts.append(2.0 * total_here[term.pairs])
        return np.concatenate(parts)

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
