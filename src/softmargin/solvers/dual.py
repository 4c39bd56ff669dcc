"""More columns than rows: work in the space the rows span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from softmargin.designs.base import Design
from softmargin.designs.dense import Dense
from softmargin.solvers.coordinates import Coordinates

__all__ = ["Dual"]

_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Dual:
    """Rotate the coefficients once so that only the r <= n directions which the rows see remain.

    With ``X X' = F F'`` (pivoted Cholesky, r columns) the linear predictor is ``F z`` for ``z = W' beta``,
    ``W = X' F (F'F)^-1`` orthonormal. A prior that does not change under rotations keeps its form in z, and the
    directions outside W keep the prior exactly: marginalising them leaves every update of a shared scale the same
    with r in place of p. One sweep costs O(n r^2) and no matrix of size p x p is formed.
    """

    needs_prior = ("isotropic",)

    def coordinates(self, design: Design) -> Coordinates:
        """Rows of ``F`` as a new dense design, and the basis ``W``."""
        lead = int(design.intercept)
        product = design.outer()
        # pivots below this are rounding of the products, not directions
        factor, pivot, rank, _ = dpstrf(product, tol=_TOLERANCE * float(product.diagonal().max()), lower=1)
        order = pivot - 1
        lower = np.tril(factor)[:, :rank]
        features = np.empty_like(lower)
        features[order] = lower
        # X'F(F'F)^-1 = X_S' L_S^-T with S the pivot rows, whose factor L_S is triangular
        chosen = np.zeros((len(order), rank))
        chosen[order[:rank]] = np.eye(rank)
        basis = design.rmatmat(chosen)
        basis = solve_triangular(lower[:rank], basis.T, lower=True).T
        # nearly dependent rows cost orthogonality; one more Cholesky restores it
        again = np.linalg.cholesky(basis.T @ basis)
        basis = solve_triangular(again, basis.T, lower=True).T
        features = features @ again
        return Coordinates(Dense.plain(features, intercept=bool(lead)), basis, lead)
