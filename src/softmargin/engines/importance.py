"""Leave-one-out moments from draws, by importance weights."""

from __future__ import annotations

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.model import Model
from softmargin.execution.blocks import Cell

__all__ = ["importance_cavity"]

_MOST = 1000  # draws used: the error of the weights is smaller than what calibration can see
_ROWS = 64  # rows at a time: rows x draws stays in the cache


def importance_cavity(model: Model, draws: Array, part: Array) -> tuple[Array, Array, float]:
    """Mean and variance of every predictor without the part ``part`` of its own row, and the largest k v.

    Draw s gets the weight ``exp(-part l_i(f_s))`` for row i, truncated at sqrt(S) times their mean
    (Ionides, 2008). The share ``k v`` that a row supplies itself is ``1 - v / v_out``.
    """
    kept = draws[:: max(1, len(draws) // _MOST)]
    design, y, c = model.blocks.design, model.y, model.c
    lead = int(design.intercept)
    slopes, start = np.ascontiguousarray(kept[:, lead:].T), kept[:, :lead].sum(axis=1)

    def slab(lo: int, hi: int) -> tuple[Array, Array, Array]:
        at = slice(lo, hi)
        f = design.matmat(slopes, lo, hi) + start
        rows, columns = f.shape
        loglik = model.loss.loglik(np.repeat(y[at], columns), np.repeat(c[at], columns), f.ravel())
        log_weight = -part[at][:, None] * loglik.reshape(rows, columns)
        log_weight -= log_weight.max(axis=1, keepdims=True)
        weight = np.exp(log_weight, out=log_weight)
        np.minimum(weight, np.sqrt(columns) * weight.mean(axis=1, keepdims=True), out=weight)
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.einsum("ij,ij->i", weight, f)
        f -= mean[:, None]
        return mean, np.einsum("ij,ij,ij->i", weight, f, f), f.var(axis=1)

    def collect(cell: Cell) -> list[tuple[Array, Array, Array]]:
        return [slab(lo, min(lo + _ROWS, cell.hi)) for lo in range(cell.lo, cell.hi, _ROWS)]

    slabs = [part_of for cell in model.blocks.map(collect) for part_of in cell]
    mean, variance, plain = (np.concatenate(column) for column in zip(*slabs, strict=True))
    share = 1.0 - plain / np.maximum(variance, 1e-300)
    return mean, variance, float(np.clip(share, 0.0, 1.0).max())
