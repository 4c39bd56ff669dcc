"""The next block is read while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["read_ahead"]

T = TypeVar("T")


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each fetched on a thread while the one before is in use; at most two are held."""
    end: Any = object()
    with ThreadPoolExecutor(1, "softmargin-reader") as pool:
        waiting = pool.submit(next, items, end)
        while (found := waiting.result()) is not end:
            waiting = pool.submit(next, items, end)
            yield found
            del found
