"""Where the coefficients may lie, and the Gaussian they have there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from softmargin.designs.base import Array, Design
from softmargin.solvers.gaussian import Gaussian, Normal
from softmargin.solvers.wide import WideNormal
from softmargin.solvers.woodbury import WoodburyGaussian

__all__ = ["Full", "Space"]


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


@dataclass(frozen=True)
class Full:
    """Every value of the coefficients."""

    @property
    def exchanges(self) -> bool:
        return True

    def dimension(self, coordinates: int) -> int:
        return coordinates

    def on(self, design: Any) -> Full:
        """The same with other rows."""
        return self

    def gaussian(self, A: Any, linear: Array, precision: Array, dent: Array | None = None) -> Normal:
        A.flat[:: len(precision) + 1] += precision
        return Gaussian.from_precision(A, linear)

    def spread(self, design: Design, w: Array, linear: Array, precision: Array) -> WideNormal:
        """The Gaussian of many more coefficients than rows, with its variances."""
        return WideNormal.from_rows(design, w, linear, precision)

    def wide(self, design: Design, w: Array, linear: Array, precision: Array, dent: Array | None = None) -> Any:
        return WoodburyGaussian.from_rows(design, w, linear, precision)

    def balanced(self, g: Array, y: Array, target: Array) -> Array:
        """The heavier class is shrunk."""
        wanted = float(target.sum())  # what sum y g is at the optimum
        positive, negative = float(g[y > 0].sum()), float(g[y < 0].sum())
        if positive - negative > wanted and positive > 0.0:
            return np.where(y > 0, g * max((negative + wanted) / positive, 0.0), g)
        if negative > 0.0:
            return np.where(y < 0, g * max((positive - wanted) / negative, 0.0), g)
        return g

    def eased(self, score: Array, precision: Array, corner: Any) -> Array:
        return score

    def restored(self, beta: Array, active: Any) -> Array:
        return beta

    def ties(self, active: Any) -> Array:
        return np.zeros((0, int(active.sum())))
