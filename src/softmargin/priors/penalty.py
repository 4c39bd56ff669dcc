"""The convex penalty of a prior at a fixed scale."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array

__all__ = ["Penalty"]

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Penalty(NamedTuple):
    """``sum_j precision_j |beta_j|^2 / 2 + rate_j |beta_j|``.

    With several ``blocks`` the coefficients are that many blocks and ``|beta_j|`` is the length over the blocks; rates
    then have one entry per variable, and the precision is the same in every block.
    """

    precision: Array
    rate: Array
    blocks: int = 1

    @property
    def sharp(self) -> Flags:
        """Entries of ``rate`` that are not zero."""
        return self.rate > 0.0

    @property
    def corner(self) -> Flags:
        """Coefficients with an absolute value of their own."""
        return self.sharp if self.blocks == 1 else np.zeros(len(self.precision), dtype=bool)

    def _sizes(self, beta: Array) -> Array:
        if self.blocks == 1:
            return np.abs(beta)
        return np.sqrt((beta.reshape(self.blocks, -1) ** 2).sum(axis=0))

    def value(self, beta: Array) -> float:
        """The penalty of given coefficients."""
        return 0.5 * float(self.precision @ (beta * beta)) + float(self.rate @ self._sizes(beta))

    def tangent(self, beta: Array, active: Flags) -> tuple[Array, Array]:
        """Slope of the lengths at ``beta``, and their curvature over the active coefficients; it has no radial part."""
        b, size = beta.reshape(self.blocks, -1), np.maximum(self._sizes(beta), 1e-300)
        where = active.reshape(self.blocks, -1)
        place = np.cumsum(where.ravel()).reshape(where.shape) - 1  # of each active coefficient among the active ones
        bent = np.flatnonzero(self.sharp & where[0])
        unit, index = b / size, place[:, bent]
        bend = np.zeros((int(active.sum()), int(active.sum())))
        turn = np.eye(self.blocks)[:, :, None] - unit[:, None, bent] * unit[None, :, bent]
        bend[index[:, None, :], index[None, :, :]] = turn * (self.rate / size)[bent]
        return np.asarray(self.rate * unit).ravel(), bend

    def conjugate(self, v: Array) -> tuple[float, float]:
        """Largest s <= 1 with a finite conjugate at ``s v``, and the conjugate there."""
        size, precision = self._sizes(v), self.precision[: len(self.rate)]
        hard = precision <= 0.0
        over = hard & (size > self.rate)
        shrink = float((self.rate[over] / size[over]).min()) if over.any() else 1.0
        excess = np.maximum(shrink * size - self.rate, 0.0)[~hard]
        return shrink, 0.5 * float((excess * excess) @ (1.0 / precision[~hard]))
