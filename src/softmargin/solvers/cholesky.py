"""Work in the coefficients themselves."""

from __future__ import annotations

from dataclasses import dataclass

from softmargin.core.design import Design
from softmargin.solvers.coordinates import Coordinates, Solver
from softmargin.solvers.full import Full

__all__ = ["Cholesky"]


@dataclass(frozen=True)
class Cholesky(Solver):
    """Factor ``X'WX + D`` of size q = number of coefficients; the choice for q up to about n."""

    def coordinates(self, design: Design) -> Coordinates:
        """The coefficients as they are."""
        return Coordinates(design, None, int(design.intercept), Full.of(design))
