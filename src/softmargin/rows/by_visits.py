"""Products over all rows by visits, for engines that have vectors over rows home."""

from __future__ import annotations

from typing import Any

from softmargin.core import visits
from softmargin.core.array import Array

__all__ = ["ByVisits"]


class ByVisits:
    """What follows from the verbs ``sum``, ``keep``, ``fetch`` and ``place``."""

    stays = False

    sum: Any
    keep: Any
    fetch: Any
    place: Any

    def matvec(self, beta: Array) -> Array:
        """Linear predictor ``f = X beta``."""
        f: Array = self.fetch(self.keep(visits.predictors, beta)[0]).f
        return f

    def rmatvec(self, b: Array) -> Array:
        """``X' b``."""
        total: Array = self.sum(visits.transposed, None, self.place(visits.One(b)))[0]
        return total

    def gram(self, w: Array, b: Array) -> tuple[Array, Array]:
        """``X' diag(w) X`` and ``X' b`` in one pass over the rows."""
        A, c = self.sum(visits.gram, None, self.place(visits.Messages(w, b)))
        return A, c

    def row_quad(self, root: Any) -> Array:
        """Variance of every linear predictor, ``|root' x_i|^2`` with covariance ``root root'``."""
        v: Array = self.fetch(self.keep(visits.variances, root)[0])[0]
        return v

    def moments(self, mean: Array, root: Any) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor, with coefficients of this mean and covariance ``root root'``."""
        f, v = self.fetch(self.keep(visits.moments, (mean, root))[0])
        return f, v
