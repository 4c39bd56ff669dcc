"""How much memory a process can still have."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available", "check_room"]

_MEMORY = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")  # of a container

_LITTLE = 16e6  # bytes that any machine has: asking the system takes longer than making them


def available() -> float:
    """Bytes that are free for this process, or could be: infinite where the system does not tell."""
    return min(_of_machine(), _of_container())


def _of_machine() -> float:
    try:
        lines = _MEMORY.read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return float(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        )  # all there is, where the rest is unknown
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _of_container() -> float:
    try:
        return float(int(_LIMIT.read_text()) - int(_USED.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit, which reads "max"
        return float("inf")


def check_room(needed: float, what: str, way: str) -> None:
    """Refuse what would need more bytes than there are; ``way`` is what to do instead."""
    if needed < _LITTLE:
        return
    free = available()
    if needed > free:
        raise MemoryError(
            f"{what} needs about {needed / 1e9:.3g} GB of memory, and {free / 1e9:.3g} GB are free; {way}."
        )
