"""Warnings of this package, by class, so that they can be filtered."""

from __future__ import annotations

__all__ = ["ModelWarning"]


class ModelWarning(UserWarning):
    """A fit that says next to nothing, or whose assumptions look wrong."""
