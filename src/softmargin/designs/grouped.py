"""Random effects beside other columns: integer codes and a few numbers per row in the place of indicator matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.rows.compiled import njit

__all__ = ["GroupTerm", "Grouped", "GroupedGram"]

Index = np.ndarray[Any, np.dtype[np.intp]]
_CHUNK = 4096  # rows whose plain copy is held at a time


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(codes: Any, z: Any, u: Any, lo: int, out: Any) -> None:
    """Add ``z_i' u_g(i)`` of the rows from ``lo`` on."""
    s = z.shape[1]
    for i in range(len(out)):
        g = codes[lo + i]
        if g >= 0:
            for a in range(s):
                out[i] += z[lo + i, a] * u[g * s + a]


@njit(cache=True, nogil=True, error_model="numpy")
def _scatter(codes: Any, z: Any, b: Any, lo: int, out: Any) -> None:
    """Add ``z_i b_i`` of the rows from ``lo`` on to their groups."""
    s = z.shape[1]
    for i in range(len(b)):
        g = codes[lo + i]
        if g >= 0:
            for a in range(s):
                out[g * s + a] += z[lo + i, a] * b[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _group_sums(codes: Any, z: Any, X: Any, w: Any, lo: int, cross: Any, block: Any) -> None:
    """Add ``w z x'`` and ``w z z'`` of the rows from ``lo`` on to their groups."""
    s, p = z.shape[1], X.shape[1]
    for i in range(len(w)):
        g = codes[lo + i]
        if g < 0:
            continue
        for a in range(s):
            wz = w[i] * z[lo + i, a]
            for b in range(s):
                block[g, a, b] += wz * z[lo + i, b]
            row = cross[g, a]
            for j in range(p):
                row[j] += wz * X[i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _residuals(codes: Any, z: Any, T: Any, inverse: Any, lo: int, X: Any, v: Any) -> None:
    """Take ``T_g' z_i`` off the rows X, and write ``|L_g^-1 z_i|^2``, ``inverse`` holding the L_g^-1."""
    s, p = z.shape[1], X.shape[1]
    for i in range(len(v)):
        g = codes[lo + i]
        v[i] = 0.0
        if g < 0:
            continue
        for a in range(s):
            own = 0.0
            for b in range(a + 1):
                own += inverse[g, a, b] * z[lo + i, b]
            v[i] += own * own
            for j in range(p):
                X[i, j] -= z[lo + i, a] * T[g, a, j]


@dataclass(frozen=True, eq=False)
class GroupTerm:
    """One grouping factor: row i has the numbers ``columns[i]`` in the columns of its group ``codes[i]``.

    ``columns`` is a column of ones for a random intercept; further columns are random slopes. Rows with code -1 belong
    to no group and have zeros everywhere.
    """

    codes: Index
    groups: int
    columns: Array

    def __post_init__(self) -> None:
        if self.columns.ndim != 2 or len(self.columns) != len(self.codes):
            raise ValueError(
                f"a group term needs one row of columns for every code; got {self.columns.shape} for "
                f"{len(self.codes)} codes."
            )
        if len(self.codes) and not (self.codes.min() >= -1 and self.codes.max() < self.groups):
            raise ValueError(f"group codes must lie between -1 and {self.groups - 1}.")

    @classmethod
    def intercept(cls, codes: Any, groups: int | None = None) -> GroupTerm:
        """A random intercept."""
        codes = np.ascontiguousarray(codes, dtype=np.intp)
        return cls(codes, int(codes.max()) + 1 if groups is None else groups, np.ones((len(codes), 1)))

    @property
    def width(self) -> int:
        """Numbers a group."""
        return self.columns.shape[1]

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.groups * self.width

    def sparse(self) -> Any:
        """The indicator columns in compressed rows: as many numbers as ``columns`` has."""
        n, s = self.columns.shape
        seen = self.codes >= 0
        place = np.where(seen, self.codes, 0)[:, None] * s + np.arange(s)
        data = np.where(seen[:, None], self.columns, 0.0)
        return sp.csr_matrix((data.ravel(), place.ravel(), np.arange(0, n * s + 1, s)), shape=(n, self.size))


def _empty_sums(term: GroupTerm, p: int) -> tuple[Array, Array]:
    return np.zeros((term.groups, term.width, p)), np.zeros((term.groups, term.width, term.width))


@dataclass(frozen=True, eq=False)
class GroupedGram:
    """``C'WC`` in pieces. The core is [X | the smaller terms]; the term ``main`` is to be eliminated from it.

    Where the largest term is nested in the only other one, eliminating it leaves that one block diagonal, and the core
    comes in pieces too.
    """

    core: Any  # an array, or pieces
    cross: Array  # groups x width x columns of X
    side: Any  # sparse: the main term's columns against those of the smaller terms; None without them
    block: Array  # groups x width x width
    main: slice  # where the main term's coefficients stand


@dataclass(frozen=True, eq=False)
class Grouped(Design):
    """Columns ``[X | Z_1 | Z_2 | ...]``, group by group within a term."""

    base: Design
    terms: tuple[GroupTerm, ...]
    whole: bool = field(
        default=True, init=False
    )  # sums over rows have one number per group: not to be made cell by cell

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a grouped design needs at least one group term; use the base design without it.")

    @property
    def intercept(self) -> bool:
        return self.base.intercept

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.base.shape[0], self.starts[-1]

    @cached_property
    def starts(self) -> list[int]:
        """Where each term's coefficients begin, and the number of all."""
        return [int(k) for k in np.cumsum([self.base.shape[1], *(term.size for term in self.terms)])]

    def place(self, term: int) -> slice:
        """Where a term's coefficients stand."""
        return slice(self.starts[term], self.starts[term + 1])

    @cached_property
    def largest(self) -> int:
        """The term that a solver eliminates."""
        return int(np.argmax([term.size for term in self.terms]))

    @property
    def main(self) -> GroupTerm:
        """The largest term."""
        return self.terms[self.largest]

    @cached_property
    def side(self) -> Any:
        """The columns of the other terms, sparse; None without them."""
        others = [term.sparse() for k, term in enumerate(self.terms) if k != self.largest]
        return sp.hstack(others, format="csr") if others else None

    @cached_property
    def nested(self) -> bool:
        """Whether there is one other term, and every group of the largest one lies within one group of it."""
        if len(self.terms) != 2:
            return False
        outer = self.terms[1 - self.largest]
        seen = (self.main.codes >= 0) & (outer.codes >= 0)
        pairs = np.unique(self.main.codes[seen] * outer.groups + outer.codes[seen])
        return len(pairs) == len(np.unique(pairs // outer.groups))

    @cached_property
    def _main_rows(self) -> Any:
        return self.main.sparse()

    def _range(self, lo: int, hi: int | None) -> tuple[int, int]:
        return lo, self.base.shape[0] if hi is None else hi

    def matvec(self, beta: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        f = self.base.matvec(beta[: self.starts[0]], lo, hi)
        for k, term in enumerate(self.terms):
            _gather(term.codes, term.columns, beta[self.place(k)], lo, f)
        return f

    def rmatvec(self, b: Array, lo: int = 0, hi: int | None = None) -> Array:
        lo, hi = self._range(lo, hi)
        out = np.zeros(self.shape[1])
        out[: self.starts[0]] = self.base.rmatvec(b, lo, hi)
        for k, term in enumerate(self.terms):
            _scatter(term.codes, term.columns, b, lo, out[self.place(k)])
        return out

    def gram(self, w: Array, b: Array, lo: int = 0, hi: int | None = None) -> tuple[GroupedGram, Array]:
        """``C'WC`` in pieces, and ``C'b``."""
        lo, hi = self._range(lo, hi)
        p, extra = self.starts[0], 0 if self.side is None else self.side.shape[1]
        apart = [self.main, self.terms[1 - self.largest]] if self.nested else [self.main]
        sums = [_empty_sums(term, p) for term in apart]
        square, below, root = np.zeros((p, p)), np.zeros((extra, p)), np.sqrt(w)
        for start in range(lo, hi, _CHUNK):
            stop = min(start + _CHUNK, hi)
            at = slice(start - lo, stop - lo)
            X = self.base.rows(np.arange(start, stop))
            for term, (cross, block) in zip(apart, sums, strict=True):
                _group_sums(term.codes, term.columns, X, w[at], start, cross, block)
            if extra and not self.nested:
                below += self.side[start:stop].T @ (X * w[at, None])
            X *= root[at, None]
            square += X.T @ X
        core: Any = square
        between = None
        if extra:
            weighted = sp.diags(w) @ self.side[lo:hi]
            between = (self._main_rows[lo:hi].T @ weighted).tocsr()
            between.eliminate_zeros()
            if self.nested:
                cross, block = sums[1]
                core = GroupedGram(square, cross, None, block, slice(p, p + extra))
            else:
                core = np.block([[square, below.T], [below, (self.side[lo:hi].T @ weighted).toarray()]])
        cross, block = sums[0]
        return GroupedGram(core, cross, between, block, self.place(self.largest)), self.rmatvec(b, lo, hi)

    def row_quad(self, root: Any, lo: int = 0, hi: int | None = None) -> Array:
        """``v_i = |L_g^-1 z_i|^2 + |R'(x_i - T_g'z_i)|^2`` from the pieces of an arrowhead covariance."""
        lo, hi = self._range(lo, hi)
        if isinstance(root, np.ndarray):
            return self._plain_quad(root, lo, hi)
        v, term = np.empty(hi - lo), self.main
        for start in range(lo, hi, _CHUNK):
            stop = min(start + _CHUNK, hi)
            X, part = self.base.rows(np.arange(start, stop)), v[start - lo : stop - lo]
            _residuals(term.codes, term.columns, root.T, root.inverse, start, X, part)
            side = None
            if root.side is not None:
                side = self.side[start:stop] - self._main_rows[start:stop] @ root.side
            part += root.core_quad(X, side)
        return v

    def _plain_quad(self, root: Array, lo: int, hi: int) -> Array:
        """The same from a plain root."""
        v = np.empty(hi - lo)
        for start in range(lo, hi, _CHUNK):
            stop = min(start + _CHUNK, hi)
            image = self.base.rows(np.arange(start, stop)) @ root[: self.starts[0]]
            image += self._group_rows[start:stop] @ root[self.starts[0] :]
            v[start - lo : stop - lo] = np.einsum("ij,ij->i", image, image)
        return v

    @cached_property
    def _group_rows(self) -> Any:
        return sp.hstack([term.sparse() for term in self.terms], format="csr")

    def matmat(self, coefficients: Array, lo: int = 0, hi: int | None = None) -> Array:
        """Products with several columns of coefficients, the intercept's left out."""
        lo, hi = self._range(lo, hi)
        own = self.starts[0] - int(self.intercept)
        product = self.base.matmat(np.ascontiguousarray(coefficients[:own]), lo, hi)
        return np.asarray(product + self._group_rows[lo:hi] @ coefficients[own:])

    def rows(self, index: Any) -> Array:
        """The given rows as a plain dense array."""
        index = np.asarray(index)
        parts = [term.sparse()[index].toarray() for term in self.terms]
        return np.concatenate([self.base.rows(index), *parts], axis=1)
