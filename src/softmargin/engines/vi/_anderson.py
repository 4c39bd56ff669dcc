"""Anderson acceleration of a fixed-point map whose points are partly with the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array

__all__ = ["History", "steps_of", "weights_of"]


class History(NamedTuple):
    """What a map gave, and by how much that differed from the point it was applied to, oldest first.

    Every point is a long vector over the rows, of which ``rows`` has handles, and a short one. ``pending`` is the short
    part of a point that waits for its image.
    """

    rows: tuple[Any, ...] = ()
    images: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()
    pending: Array | None = None

    def entered(self, point: Array) -> History:
        """The history once the map is about to be applied to a point."""
        return self._replace(pending=point)

    def extended(self, rows: Any, image: Array, window: int) -> History:
        """The history with the image of the pending point."""
        if self.pending is None:
            return History()
        residuals = (*self.residuals, image - self.pending)
        return History((*self.rows, rows)[-window:], (*self.images, image)[-window:], residuals[-window:])


def steps_of(residuals: Array) -> Array:
    """Residuals as the steps from one to the next, and the last one."""
    out = residuals.copy()
    out[:-1] = residuals[1:] - residuals[:-1]
    return out


def weights_of(products: Array) -> Array | None:
    """Weights of the images whose sum is the next point, given inner products of the steps and the last residual.

    Least squares: the combination of residuals that is smallest. None where the last image is to be taken as it is.
    """
    normal, last = products[:-1, :-1], products[:-1, -1]
    ridge = 1e-10 * normal.trace()
    if not ridge > 0.0:
        return None
    gamma = np.linalg.solve(normal + ridge * np.eye(len(normal)), last)
    return np.diff(gamma, prepend=0.0, append=1.0)  # image - gamma @ (moves of the images), as a weighted sum of them
