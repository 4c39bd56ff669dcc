"""Warnings of our own; a run that did not converge has scikit-learn's ``ConvergenceWarning``."""

from __future__ import annotations

__all__ = ["ModelWarning"]


class ModelWarning(UserWarning):
    """The fit says next to nothing, or another model would clearly say more."""
