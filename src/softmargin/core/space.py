"""Where the coefficients may lie, and what engines ask of their distribution there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.core.array import Array
from softmargin.core.capabilities import Part, optional
from softmargin.core.design import Design

__all__ = ["Normal", "Root", "RowBasis", "Space", "row_quad"]


class Normal(Protocol):
    """What engines ask of the distribution of the coefficients."""

    @property
    def mean(self) -> Array: ...

    @property
    def root(self) -> Any: ...

    @property
    def var(self) -> Array: ...

    @property
    def logdet(self) -> float: ...

    @property
    def entropy(self) -> float: ...

    def solve(self, rhs: Array) -> Array: ...

    def draw(self, rng: np.random.Generator) -> Array: ...

    def with_mean(self, mean: Array) -> Normal: ...

    def dilated(self, t: float) -> Normal: ...


class RowBasis(NamedTuple):
    """The columns as they were given, and the basis of the space of their rows that an engine works in."""

    given: Design
    basis: Array

    def lift(self, z: Array) -> Array:
        """Coefficients of the columns from coordinates in the basis, the intercept in front of both."""
        lead = int(self.given.intercept)
        return np.concatenate((z[:lead], self.basis @ z[lead:]))


class Root(Part, ABC):
    """A covariance C with a structure of its own; a plain one is an array R with ``C = R R'``."""

    notice: str = ""  # what the user should know of its accuracy

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of coefficients, twice."""

    @abstractmethod
    def squares(self) -> Array:
        """Marginal variances."""

    @abstractmethod
    def quadratic(self, x: Array) -> float:
        """``x' C x``."""

    @abstractmethod
    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, coefficients) of N(0, C)."""

    def row_quad(self, design: Design, lo: int = 0, hi: int | None = None) -> Array:
        """Variances of the linear predictors of the rows lo..hi: a design of the same structure knows them."""
        return design.row_quad(self, lo, hi)

    @optional
    def enlarged(self, factor: float) -> Root:
        """The root of the covariance times the square of a factor, where that is less than a factor around it."""


def row_quad(design: Design, root: Any, lo: int = 0, hi: int | None = None) -> Array:
    """Variances of the linear predictors of the rows lo..hi: a structured root knows them, the design for an array."""
    plain = type(root) is np.ndarray or not isinstance(root, Root)  # the former is far sooner asked
    return design.row_quad(root, lo, hi) if plain else root.row_quad(design, lo, hi)


class Space(Part, ABC):
    """A linear space of coefficients; the engines work in the coefficients and never ask which space it is."""

    accuracy: float = 1e-9  # of a mean, relative to its largest entry
    uneven: bool = True  # whether slopes may have precisions of their own
    rounding: float = 1e-11  # relative, of a bound at one of its Gaussians: no smaller fall is a fall

    @property
    @abstractmethod
    def exchanges(self) -> bool:
        """Whether equations with a dense row for every coefficient are affordable, as an active set needs them."""

    @abstractmethod
    def dimension(self, coordinates: int) -> int:
        """Dimension of the space that this many coefficients fill."""

    @abstractmethod
    def on(self, design: Any) -> Space:
        """The same space with other rows."""

    @abstractmethod
    def gaussian(self, A: Any, linear: Array, precision: Array, rank_two: Array | None = None) -> Normal:
        """Log density ``-beta'(A + D)beta/2 + linear'beta`` on the space, A as the design's ``gram`` gives it.

        ``rank_two`` is None or two rows u, v with one number per coefficient: a correction of rank two for each
        variable, whose coefficients have ``u u' - v v'`` taken off their block of the precision.
        """

    def home(self, A: Any) -> Any:
        """A Gram matrix as its design gives it, home."""
        return A

    def at_home(self) -> Space:
        """The same space for rows that are home."""
        return self

    def row_root(self, q: Normal) -> Any:
        """The root of a Gaussian's covariance as visits of the rows take it: where the rows are."""
        return q.root

    @abstractmethod
    def wide(self, design: Any, w: Array, linear: Array, precision: Array, rank_two: Array | None = None) -> Any:
        """The same with ``A = X'WX`` for those who need mean, solves and draws, without a matrix of A's size."""

    @abstractmethod
    def dual_feasible(self, g: Array, y: Array, target: Array) -> Array:
        """Dual variables in their box, shrunk until their product with the free columns is about ``target``."""

    @abstractmethod
    def dual_representative(self, score: Array, precision: Array, corner: Any) -> Array:
        """The score plus a vector orthogonal to the space, which changes nothing on it, with a small conjugate penalty.

        ``corner`` marks coefficients whose absolute value is in the penalty.
        """

    @abstractmethod
    def restored(self, beta: Array, active: Any) -> Array:
        """The coefficients moved into the space, those that are not ``active`` kept."""

    @abstractmethod
    def ties(self, active: Any) -> Array:
        """Rows C of the equations ``C beta = 0`` that tie the ``active`` coefficients, one column for each of them."""

    @optional
    def spread(self, design: Any, w: Array, linear: Array, precision: Array) -> Normal:
        """As ``gaussian`` with ``A = X'WX``, for many more coefficients than rows, without a matrix of A's size."""

    @optional
    def left_out(self, model: Any, point: Any, penalty: Any, part: Array) -> Array:
        """Predictors of a mode without the part ``part`` of each row, of a space that has no matrices for the rule."""
