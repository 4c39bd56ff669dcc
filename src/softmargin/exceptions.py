"""Warnings and errors of our own; a run that did not converge has scikit-learn's ``ConvergenceWarning``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = ["CheckpointWarning", "DataWarning", "ModelWarning", "SavedFileError", "warn_user"]

_OWN = (str(Path(__file__).parent), str(Path("sklearn", "callback")))  # files whose lines are not the user's


class DataWarning(UserWarning):
    """Rows or columns are probably not what was meant: constant columns, groups left out, labels of another type."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or a fit that was to go on had to start anew."""


class ModelWarning(UserWarning):
    """The fit says next to nothing, another model would clearly say more, or reported spreads are rough."""


class SavedFileError(ValueError):
    """A file that ``load`` or ``resume=True`` refuses, or an object that cannot be written to one."""


def warn_user(message: str, category: type[Warning]) -> None:
    """A warning that points to the line by which the package was entered."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and any(own in frame.f_code.co_filename for own in _OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
