"""More columns than rows: work in the space the rows span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.solvers.coordinates import Coordinates, Solver

__all__ = ["Dual"]

_ROUNDING = 1e-12  # size of a direction, to the largest, that may be rounding of centred rows


@dataclass(frozen=True)
class Dual(Solver):
    """Rotate the coefficients once so that only the r <= n directions which the rows see remain.

    With ``X' = W F'``, W orthonormal with r columns, the linear predictor is ``F z`` for ``z = W' beta``. A prior that
    does not change under rotations keeps its form in z, and the directions outside W keep the prior exactly:
    marginalising them leaves every update of a shared scale the same with r in place of p. One sweep costs O(n r^2)
    and no matrix of size p x p is formed. The factors come from X itself: those of ``X X'`` would lose directions
    below the root of the rounding error, which matter under a wide prior.
    """

    needs_prior = ("isotropic",)

    def coordinates(self, design: Design) -> Coordinates:
        """Rows of ``F`` as a new dense design, and the basis ``W``."""
        lead, n = int(design.intercept), design.shape[0]
        span, factor = qr(design.rows(np.arange(n))[:, lead:].T, mode="economic", overwrite_a=True, check_finite=False)
        turn, factor, order = qr(factor, mode="economic", pivoting=True, check_finite=False)
        size = np.abs(factor.diagonal())
        rank = int((size > _ROUNDING * size[0]).sum())
        features = np.empty((n, rank))
        features[order] = factor[:rank].T
        basis = np.ascontiguousarray(span @ turn[:, :rank])
        return Coordinates(Dense.plain(features, intercept=bool(lead)), basis, lead)
