"""Where the coefficients may lie, and what engines ask of their distribution there."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design

__all__ = ["Normal", "RowBasis", "Space"]


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


class Space(Protocol):
    """A linear space of coefficients; the engines work in the coefficients and never ask which space it is."""

    @property
    def exchanges(self) -> bool:
        """Whether equations with a dense row for every coefficient are affordable, as an active set needs them."""

    def dimension(self, coordinates: int) -> int:
        """Dimension of the space that this many coefficients fill."""

    def on(self, design: Any) -> Space:
        """The same space with other rows."""

    def gaussian(self, A: Any, linear: Array, precision: Array, dent: Array | None = None) -> Normal:
        """Log density ``-beta'(A + D - dents)beta/2 + linear'beta`` on the space, A as the design's ``gram`` gives it.

        ``dent`` is None or two rows u, v of one number a coefficient: every variable takes ``u u' - v v'`` off.
        """

    def wide(self, design: Any, w: Array, linear: Array, precision: Array, dent: Array | None = None) -> Any:
        """The same with ``A = X'WX`` for those who need mean, solves and draws, without a matrix of A's size."""

    def balanced(self, g: Array, y: Array, target: Array) -> Array:
        """Multipliers in their box, shrunk until the free columns have about the product ``target`` with them."""

    def eased(self, score: Array, precision: Array, corner: Any) -> Array:
        """The score up to what the space cannot see, chosen for a small conjugate of the penalty.

        ``corner`` marks coefficients with an absolute value of their own in it.
        """

    def restored(self, beta: Array, active: Any) -> Array:
        """The coefficients moved into the space, those that are not ``active`` kept."""

    def ties(self, active: Any) -> Array:
        """Rows C of the equations ``C beta = 0`` that tie the ``active`` coefficients, one column for each of them."""
