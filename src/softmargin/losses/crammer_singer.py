"""The hinge of Crammer and Singer: ``l = -2 max_r (1 - [r = y] + f_r - f_y)`` over the scores f of k classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Loss

__all__ = ["CrammerSinger"]


@dataclass(frozen=True)
class CrammerSinger(Loss):
    """Only the worst rival class counts; the scores of a row come as one line of n x k numbers.

    Given the scores of the other classes, the loss is an ordinary hinge in the score of any one of them, which is how
    it is sampled. Jointly it is not Gaussian given one latent a row.

    References
    ----------
    Crammer and Singer (2001), On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2.
    """

    def loglik(self, label: Any, c: Array, f: Array) -> Array:
        """``c l`` of every row."""
        own = f[np.arange(len(f)), label]
        rival = np.where(np.arange(f.shape[1]) == label[:, None], -np.inf, f).max(axis=1)
        return np.asarray(-2.0 * c * np.maximum(1.0 + rival - own, 0.0))

    def hinge(self, label: Any, f: Array, r: int) -> tuple[Array, Array]:
        """Signs y and offsets o with ``l = constant - 2 max(1 - y (f_r - o), 0)`` as a function of f_r alone.

        For rows of the class, o is the largest of the other scores. For other rows the hinge begins where f_r overtakes
        what they already cost: ``o = f_y + max(0, max over s other than r and y of 1 + f_s - f_y)``.
        """
        at, inside = np.arange(len(f)), label == r
        other = f.copy()
        other[:, r] = -np.inf
        own = f[at, label]
        rest = other.copy()
        rest[at, label] = -np.inf
        cost = np.maximum(1.0 + rest.max(axis=1) - own, 0.0)
        offset = np.where(inside, other.max(axis=1), own + cost)
        return np.where(inside, 1.0, -1.0), offset
