"""Comparisons that end in one sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.core.array import Array

__all__ = ["agree", "close", "holds", "mean_is"]

_Z_LIMIT = 5.0  # standard errors: a sound sampler fails one statistic in two million seeds


def holds(part: Any, what: str, condition: Any) -> None:
    if not np.all(condition):
        raise AssertionError(f"{type(part).__name__}: {what}.")


def close(part: Any, what: str, got: Any, wanted: Any, tolerance: Any = None) -> None:
    """Demand ``|got - wanted| <= tolerance``, by default 1e-9 of the largest; not-a-number never passes."""
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    tolerance = 1e-9 * (1.0 + np.abs(wanted).max()) if tolerance is None else tolerance
    holds(part, f"{what}: the shape is {got.shape}, wanted {wanted.shape}", got.shape == wanted.shape)
    excess = np.abs(got - wanted) - tolerance
    if not np.all(excess <= 0.0):
        k = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
        holds(part, f"{what}: got {got.flat[k]:.10g}, wanted {wanted.flat[k]:.10g} (entry {k})", False)


def agree(part: Any, what: str, got: Any, wanted: Any) -> None:
    """Equality up to the error of a finite difference."""
    close(part, what, got, wanted, 1e-5 * np.abs(wanted) + 1e-8)


def mean_is(part: Any, what: str, sample: Array, wanted: float) -> None:
    """Demand a sample mean within the declared number of standard errors."""
    limit = _Z_LIMIT * float(sample.std()) / math.sqrt(len(sample))
    close(part, what, sample.mean(), wanted, limit + 1e-9 * (1.0 + abs(wanted)))
