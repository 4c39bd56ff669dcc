"""The space of all values of the coefficients, and the Gaussian they have there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.space import Normal, Space
from softmargin.rows.totals import runs, totals_of
from softmargin.solvers.gaussian import LAPACK, Gaussian
from softmargin.solvers.low_rank import WideNormal
from softmargin.solvers.woodbury import WoodburyGaussian

__all__ = ["Full"]


@dataclass(frozen=True)
class Full(Space):
    """Every value of the coefficients.

    ``algebra`` makes the factors: that of a device where Gram matrices are there. ``rounding`` is that of bounds.
    """

    algebra: Any = field(default=LAPACK, kw_only=True)
    rounding: float = field(default=Space.rounding, kw_only=True)

    @property
    def exchanges(self) -> bool:
        return True

    def dimension(self, coordinates: int) -> int:
        return coordinates

    @classmethod
    def of(cls, design: Design) -> Full:
        """The space of the coefficients of a design, with factors where its Gram matrices are."""
        return Full() if design.algebra is None else Full(algebra=design.algebra, rounding=design.rounding)

    def on(self, design: Any) -> Full:
        """The same with other rows."""
        return Full.of(design)

    def gaussian(self, A: Any, linear: Array, precision: Array, rank_two: Array | None = None) -> Normal:
        return Gaussian.from_precision(self.algebra.shifted(A, precision), linear, self.algebra)

    def at_home(self) -> Full:
        return self if self.algebra is LAPACK else Full()

    def home(self, A: Any) -> Any:
        return self.algebra.home(A)

    def row_root(self, q: Any) -> Any:
        return q.root if self.algebra is LAPACK else q.row_root

    def spread(self, design: Design, w: Array, linear: Array, precision: Array) -> WideNormal:
        """The Gaussian of many more coefficients than rows, with its variances."""
        return WideNormal.from_rows(design, w, linear, precision)

    def wide(self, design: Design, w: Array, linear: Array, precision: Array, rank_two: Array | None = None) -> Any:
        return WoodburyGaussian.from_rows(design, w, linear, precision)

    def dual_feasible(self, g: Array, y: Array, target: Array) -> Array:
        """The heavier class is shrunk."""
        wanted = float(target.sum())  # what sum y g is at the optimum
        sides = totals_of(len(y), lambda at: [(g[at], y[at] > 0), (g[at], y[at] < 0)])
        positive, negative = sides.tolist()
        up, down = 1.0, 1.0
        if positive - negative > wanted and positive > 0.0:
            up = max((negative + wanted) / positive, 0.0)
        elif negative > 0.0:
            down = max((positive - wanted) / negative, 0.0)
        else:
            return g
        out = np.empty(len(g))
        for at in runs(len(g)):
            out[at] = g[at] * np.where(y[at] > 0, up, np.where(y[at] < 0, down, 1.0))
        return out

    def dual_representative(self, score: Array, precision: Array, corner: Any) -> Array:
        return score

    def restored(self, beta: Array, active: Any) -> Array:
        return beta

    def ties(self, active: Any) -> Array:
        return np.zeros((0, int(active.sum())))
