"""Tasks on threads that all end together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

__all__ = ["on_threads"]

T = TypeVar("T")


def on_threads(tasks: Sequence[Callable[[], T]], workers: int, stop: threading.Event) -> list[T]:
    """The results of the tasks, in order; tasks end early where ``stop`` is set.

    It is set by Ctrl-C and by the first error, which is raised when all threads have ended: a thread that went on would
    still run compiled code while the interpreter is taken down. They share the context
    of this one.
    """
    if workers == 1 or len(tasks) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(copy_context().run, task) for task in tasks]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.done() and future.exception() for future in futures):
                stop.set()
        except KeyboardInterrupt:  # tasks give back what they have
            stop.set()
    return [future.result() for future in futures]
