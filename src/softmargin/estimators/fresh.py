"""A fit that fails leaves the estimator as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["fresh"]


@contextmanager
def fresh(estimator: Any) -> Iterator[None]:
    """Take the fitted attributes away for the length of a fit, and bring them back if it raises."""
    before = estimator.__dict__.copy()
    for name in [name for name in before if name.endswith("_") and not name.startswith("_")]:
        del estimator.__dict__[name]
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
