"""The arrays that everything is computed with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Array", "Flags", "elementwise"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def elementwise(change: Callable[[Array], Array], x: Array) -> Array:
    """What a function of single numbers makes of a vector; of one number repeated, that takes no room, such a one."""
    repeated = x.strides == (0,) and len(x) > 0
    return np.broadcast_to(change(x[:1]), x.shape) if repeated else change(x)
