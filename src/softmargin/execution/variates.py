"""One-dimensional random variates that several parts need."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["slice_step"]


def slice_step(
    rng: np.random.Generator,
    log_density: Callable[[float], float],
    start: float,
    *,
    width: float,
    max_steps: int = 50,
) -> float:
    """One slice-sampling update by stepping out and shrinkage; leaves ``log_density`` invariant.

    Reference: Neal (2003), Slice sampling, Annals of Statistics 31, sections 4.1-4.2.
    """
    level = log_density(start) + math.log(1.0 - rng.random())
    left = start - width * rng.random()
    right = left + width
    # the budget of steps is split at random between the two sides, which keeps the update reversible
    steps_left = int(max_steps * rng.random())
    steps_right = max_steps - 1 - steps_left
    while steps_left > 0 and log_density(left) > level:
        left -= width
        steps_left -= 1
    while steps_right > 0 and log_density(right) > level:
        right += width
        steps_right -= 1
    while True:
        point = left + (right - left) * rng.random()
        if log_density(point) > level or abs(right - left) < 1e-14 * (1.0 + abs(start)):
            return point
        if point < start:
            left = point
        else:
            right = point
