"""The arrays that everything is computed with."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "Flags"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
