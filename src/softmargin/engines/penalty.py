"""The convex penalty of a prior at a fixed scale."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array

__all__ = ["Penalty"]

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Penalty(NamedTuple):
    """``sum_j precision_j beta_j^2 / 2 + rate_j |beta_j|``."""

    precision: Array
    rate: Array

    @property
    def sharp(self) -> Flags:
        """Coefficients with an absolute value in their penalty."""
        return self.rate > 0.0

    def value(self, beta: Array) -> float:
        """The penalty of given coefficients."""
        return 0.5 * float(self.precision @ (beta * beta)) + float(self.rate @ np.abs(beta))

    def conjugate(self, v: Array) -> tuple[float, float]:
        """Largest s <= 1 with a finite conjugate at ``s v``, and the conjugate there."""
        size, hard = np.abs(v), self.precision <= 0.0
        over = hard & (size > self.rate)
        shrink = float((self.rate[over] / size[over]).min()) if over.any() else 1.0
        excess = np.maximum(shrink * size - self.rate, 0.0)[~hard]
        return shrink, 0.5 * float((excess * excess) @ (1.0 / self.precision[~hard]))
