"""The arrays that everything is computed with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Array", "Flags", "by_label", "elementwise"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
_RUN = 2**17  # rows at a time, whose copies are small


def elementwise(change: Callable[[Array], Array], x: Array) -> Array:
    """What a function of single numbers makes of a vector; of one number repeated, that takes no room, such a one."""
    repeated = x.strides == (0,) and len(x) > 0
    return np.broadcast_to(change(x[:1]), x.shape) if repeated else change(x)


def by_label(label: Any, count: Array, size: int = 0) -> Array:
    """Sum of the counts of the rows with each label 0, 1, ..., of ``size`` labels at least."""
    if 0 < len(label) <= _RUN:
        counted: Any = np.bincount(label, count, max(size, 1))
        return np.asarray(counted)
    total = np.zeros(max(size, 1 + int(label.max(initial=0))))
    for lo in range(0, len(label), _RUN):
        total += np.bincount(label[lo : lo + _RUN], count[lo : lo + _RUN], len(total))
    return total
