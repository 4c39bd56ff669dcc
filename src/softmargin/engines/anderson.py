"""Anderson acceleration of a fixed-point map."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from softmargin.designs.base import Array

__all__ = ["History", "extrapolate"]


class History(NamedTuple):
    """Points the map was applied to, and what it gave, oldest first; ``pending`` waits for its image."""

    points: tuple[Array, ...] = ()
    images: tuple[Array, ...] = ()
    pending: Array | None = None

    def entered(self, point: Array) -> History:
        """The history once the map is about to be applied to ``point``."""
        return self._replace(pending=point)


def extrapolate(history: History, image: Array, weight: Array, window: int) -> tuple[Array, History]:
    """The next point, given the image of the pending one; least squares in residuals times ``weight``."""
    if history.pending is None:
        return image, History()
    points = (*history.points, history.pending)[-window:]
    images = (*history.images, image)[-window:]
    history = History(points, images)
    if len(points) < 2:
        return image, history
    residuals = [weight * (g - x) for x, g in zip(points, images, strict=True)]
    steps = np.stack([b - a for a, b in pairwise(residuals)])
    normal = steps @ steps.T
    ridge = 1e-10 * normal.trace()
    if not ridge > 0.0:
        return image, history
    gamma = np.linalg.solve(normal + ridge * np.eye(len(normal)), steps @ residuals[-1])
    moves = np.stack([b - a for a, b in pairwise(images)])
    return image - gamma @ moves, history
