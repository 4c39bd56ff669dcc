"""The columns as the selection moves see them: scaled by the slopes of their rows' hinges."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.engines.selection._line_compiled import _FAST
from softmargin.rows.compiled import njit

__all__ = ["Columns", "columns_of", "curvature", "energies", "with_columns"]

_MOST = 4e8  # numbers in the dense copy of the columns
_BANDWIDTH = 0.25  # of the kernel estimate of the curvature, in units of the margin or of the loss
_FARTHEST = 40.0  # bandwidths beyond which the density is nothing, and its exponent may be too large a number


class Columns(NamedTuple):
    """Columns times the signed slope of their row's hinge, one column per row: ``Z_ji = 2 c_i y_i x_ij``.

    A loss of several hinges has its rows several times, all first ones before all second ones; y is the sign of each.
    The last four fields say what they were made of.
    """

    Z: Array  # (p, n)
    slope: Array  # 2 c, times where the hinge starts
    signed: Array  # 2 c y
    inverse: Array  # 1/(2 c y), zero where c is
    design: Any
    loss: Any
    y: Array
    c: Array

    def lowered(self, f: Array) -> Array:
        """What linear predictors take off ``slope``."""
        lowered: Array = (self.signed.reshape(-1, len(f)) * f).ravel()
        return lowered

    def serve(self, model: Model) -> bool:
        """Whether design, loss, labels and weights are still those of the model."""
        same = model.blocks.design is self.design and model.loss == self.loss
        return same and np.array_equal(model.c, self.c) and np.array_equal(model.y, self.y)


def columns_of(model: Model) -> Columns:
    """The scaled columns of a model."""
    design, y, c, loss = model.blocks.design, model.y, model.c, model.loss
    n, p = design.shape
    start, sign, _ = loss.pieces(y, c)
    if sign.size * p > _MOST:
        raise ValueError(f"the spike-and-slab sampler copies the columns, and {n} x {p} are too many for that.")
    signed = 2.0 * c * sign
    inverse = np.divide(1.0, signed, out=np.zeros_like(signed), where=signed != 0.0)
    Z = np.empty((p, len(sign), n))
    np.multiply(design.rows(np.arange(n)).T[:, None], signed, out=Z)
    scaled = (Z.reshape(p, -1), (2.0 * c * start).ravel(), signed.ravel(), inverse.ravel())
    return Columns(*scaled, design, loss, y.copy(), c.copy())


def with_columns(model: Model, chain: Chain) -> tuple[Columns, Chain]:
    """The columns that a chain keeps, made anew where the model has changed since."""
    kept: Columns | None = chain.own.get("columns")
    if kept is not None and kept.serve(model):
        return kept, chain
    columns = columns_of(model)
    return columns, chain.keeping(columns=columns)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def energies(Z: Any, K: Any, out: Any) -> None:
    """``sum_i K_i Z_ji^2`` of every column."""
    for j in range(len(Z)):
        row, total = Z[j], 0.0
        for i in range(len(K)):
            total += K[i] * row[i] * row[i]
        out[j] = total


def curvature(model: Model, f: Array) -> Array:
    """Kernel estimate of the curvature of the rows' hinges at linear predictors f."""
    start, sign, width = model.loss.pieces(model.y, model.c)
    bandwidth = _BANDWIDTH * width
    u = np.clip((start - sign * f) / bandwidth, -_FARTHEST, _FARTHEST)
    density: Array = 2.0 * model.c * np.exp(-0.5 * u * u) / (bandwidth * math.sqrt(2.0 * math.pi))
    return density.ravel()
