"""What a fitted model remembers of its training rows: their responses, and how each of them counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array

__all__ = ["Observed"]


class Observed(NamedTuple):
    """Responses of the training rows that count, beside which left-out predictions are set."""

    y: Any  # numbers of the classes, or the numbers themselves
    times: Array | None  # how often each row counts; None where all count once
    weight: Array | None  # and what it weighs in the link, with costs and class weights

    @classmethod
    def of(cls, y: Any, count: Array, weight: Array) -> Observed:
        """From the rows of a fit; classes in as few bytes as they take."""
        if y.dtype.kind in "iu":
            y = y.astype(np.min_scalar_type(int(y.max(initial=0))))
        plain = bool((count == 1.0).all())
        same = bool((weight == weight[:1]).all())
        return cls(np.array(y), None if plain else np.array(count), None if same else np.array(weight))

    @property
    def counts(self) -> Array:
        """How often each row counts."""
        return np.ones(len(self.y)) if self.times is None else self.times

    @property
    def weights(self) -> Array:
        """What each row weighs in the link, up to a factor."""
        return np.ones(len(self.y)) if self.weight is None else self.weight
