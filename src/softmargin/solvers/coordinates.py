"""How the coordinates an engine works in relate to the coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.capabilities import Part
from softmargin.core.design import Design
from softmargin.core.space import Space
from softmargin.designs.dense import Dense
from softmargin.solvers.full import Full

__all__ = ["Coordinates", "Solver"]


class Coordinates(NamedTuple):
    """A design in working coordinates z, with coefficients ``beta = basis z + remainder``.

    ``basis`` is None for the coefficients themselves. Otherwise its columns are orthonormal and the remainder is
    the part of the coefficients that no row sees: it keeps its prior, independent of z given the prior scale.
    ``lead`` leading coordinates (the intercept) are shared by both.
    """

    design: Design
    basis: Array | None
    lead: int
    space: Space = Full()  # where the coordinates lie, and how their Gaussian is held

    def mean(self, z: Array) -> Array:
        """Coefficients (..., q) of coordinates (..., r); the remainder has mean zero."""
        if self.basis is None:
            return z
        return np.concatenate((z[..., : self.lead], z[..., self.lead :] @ self.basis.T), axis=-1)

    def lift_root(self, root: Array) -> Array:
        """Root of the covariance of the coefficients from one of the coordinates, without the remainder."""
        if self.basis is None:
            return root
        return np.concatenate((root[: self.lead], self.basis @ root[self.lead :]))

    def features(self, design: Design, lo: int = 0, hi: int | None = None) -> tuple[Design, Array]:
        """Rows of another design in working coordinates, and their squared length outside the basis."""
        if self.basis is None:
            raise ValueError("the coordinates are the coefficients themselves: use the design as it is")
        seen = design.matmat(self.basis, lo, hi)
        outside = design.norms(lo, hi) - np.einsum("ij,ij->i", seen, seen)
        return Dense.plain(seen, intercept=bool(self.lead)), np.maximum(outside, 0.0)

    def unseen(self) -> Array | None:
        """Share of the prior variance that each coefficient keeps, or None where rows see everything."""
        if self.basis is None:
            return None
        share = 1.0 - np.einsum("ij,ij->i", self.basis, self.basis)
        return np.concatenate((np.zeros(self.lead), np.clip(share, 0.0, 1.0)))


class Solver(Part, ABC):
    """Chooses the coordinates in which the Gaussian of the coefficients is held."""

    needs_prior: tuple[str, ...] = ()  # what it asks of the prior, see ``core.capabilities.require``
    needs_design: tuple[str, ...] = ()  # and of the design

    @abstractmethod
    def coordinates(self, design: Design) -> Coordinates:
        """The design in the coordinates that an engine works in, and how they relate to the coefficients."""
