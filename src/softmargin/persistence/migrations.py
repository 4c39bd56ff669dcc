"""Steps from the records of one version to those of the next, so that files of every earlier version load.

A step is a function that takes the records of a file as JSON has them and returns those of the next version; it may
change names of classes, names of fields and values. ``tests/persistence/files`` has files of every version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["STEPS", "VERSION", "migrated"]

VERSION = 1  # of the records that are written
STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # from this version to the next


def migrated(records: dict[str, Any], version: int) -> dict[str, Any]:
    """Records of a version as those of today."""
    for step in range(version, VERSION):
        records = STEPS[step](records)
    return records
