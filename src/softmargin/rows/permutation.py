"""Rows in random order without storing the order."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["shuffled"]

_ROUNDS = 6


def shuffled(position: Any, n: int, rng: np.random.Generator) -> Any:
    """Where a random permutation of 0..n-1 sends the given positions.

    A Feistel network permutes a power of four that is at least n, and positions that it sends beyond n are sent on
    until they are not; the generator's first numbers are its keys. Memory and time go with the number of positions.
    """
    half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = rng.integers(0, 2**63, size=2 * _ROUNDS, dtype=np.uint64)
    out = np.asarray(position, dtype=np.uint64)
    beyond = np.ones(out.shape, dtype=bool)
    while beyond.any():
        left, right = out[beyond] >> half, out[beyond] & mask
        for k in range(_ROUNDS):
            mixed = (right + keys[2 * k]) * (keys[2 * k + 1] | np.uint64(1))  # wraps around
            left, right = right, left ^ ((mixed >> np.uint64(31)) & mask)
        out[beyond] = left << half | right
        beyond = out >= n
    return out.astype(np.int64)
