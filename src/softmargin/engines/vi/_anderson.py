"""Anderson acceleration of a fixed-point map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softmargin.core.array import Array

__all__ = ["History", "extrapolate"]


class History(NamedTuple):
    """What a map gave, and by how much that differed from the point it was applied to, oldest first.

    ``pending`` is a point that waits for its image.
    """

    images: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()
    pending: Array | None = None

    def entered(self, point: Array) -> History:
        """The history once the map is about to be applied to ``point``."""
        return self._replace(pending=point)


def extrapolate(history: History, image: Array, weight: Array, window: int) -> tuple[Array, History]:
    """The next point, given the image of the pending one; least squares in residuals times ``weight``."""
    if history.pending is None:
        return image, History()
    images = (*history.images, image)[-window:]
    history = History(images, (*history.residuals, image - history.pending)[-window:])
    if len(images) < 2:
        return image, history
    residuals = np.stack(history.residuals)
    residuals *= weight
    steps = residuals[1:] - residuals[:-1]
    normal = steps @ steps.T
    ridge = 1e-10 * normal.trace()
    if not ridge > 0.0:
        return image, history
    gamma = np.linalg.solve(normal + ridge * np.eye(len(normal)), steps @ residuals[-1])
    share = np.diff(gamma, prepend=0.0, append=1.0)  # image - gamma @ (moves of the images), as a weighted sum of them
    return share @ np.stack(images), history
