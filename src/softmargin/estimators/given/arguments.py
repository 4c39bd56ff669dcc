"""What a fit is given."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Given"]


class Given(NamedTuple):
    """The arguments of a fit: arrays, or an ``Elsewhere`` as X with vectors beside it."""

    X: Any
    y: Any
    sample_weight: Any
    groups: Any
