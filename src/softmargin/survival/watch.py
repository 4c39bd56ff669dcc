"""Who looks after the runs of a fit: how long they may take, and what is remembered of them.

The loop alone asks for the watch of the fit that it is part of. Engines, inferences and models in between neither know
it nor pass it on, so that a run deep inside a fit ends in time, and is found again, as the longest one is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.storage.records import Table, decoded, encoded

__all__ = ["Last", "Memory", "OutOfTime", "Place", "Saved", "TimeLimit", "Watch", "present", "watched"]

_SHORT = 100  # a run that takes less than this part of the time between two checkpoints is made again, not written


class OutOfTime(KeyboardInterrupt):
    """The time of a fit is over; it ends as Ctrl-C would end it."""


class TimeLimit:
    """Seconds that a fit may take; it speaks up once, so that what follows an interrupted run can still be made."""

    def __init__(self, seconds: float):
        self.seconds, self.over = seconds, False
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Interrupt the run that asks, where the time is over."""
        if not self.over and time.monotonic() >= self._end:
            self.over = True
            raise OutOfTime(f"max_time={self.seconds:g} seconds are over")


class Saved(NamedTuple):
    """A run as it was written down."""

    outcome: dict[str, Any]  # fields of the loop's outcome
    gathered: Any  # what else came of its steps: draws
    ended: bool  # whether there are no more steps to make


class Files(Protocol):
    """Where runs are written down."""

    @property
    def every(self) -> float:
        """Seconds between two states of a run."""

    def read(self, name: str, table: Table) -> Saved | None:
        """The run of that name, if it was written."""

    def write(self, name: str, saved: Saved, table: Table) -> None:
        """Write it, in place of an earlier state of it."""


class Last(NamedTuple):
    """Where a run of the fit before ended: its state as records, and the number of its last iteration.

    Records, because states refer to parts of their model, and the next fit has a model of its own.
    """

    records: Any
    arrays: list[Any]
    iteration: int

    @classmethod
    def of(cls, state: Any, iteration: int, table: Table) -> Last:
        """A state that the table takes apart."""
        records, arrays = encoded(state, table)
        return cls(records, [np.array(array) for array in arrays], iteration)

    def state(self, table: Table) -> Any:
        """The state on the model of the table."""
        data = [array.tobytes() for array in self.arrays]
        return decoded(self.records, data, sum(map(len, data)), table)


class Memory:
    """Last states of the runs that a fit was asked for, from which the next fit goes on."""

    def __init__(self, about: Any = None, runs: dict[str, Last] | None = None):
        self.about, self.runs = about, {} if runs is None else runs


class Place:
    """One run, and where it is written down; without files it is not."""

    def __init__(self, watch: Watch, name: str, files: Files | None):
        self._watch, self._name, self._files = watch, name, files
        self._table = Table()
        self._begun = time.monotonic()
        self._due = self._begun + (0.0 if files is None else files.every / _SHORT)
        self._written = False

    @property
    def writes(self) -> bool:
        """Whether states are written, so that those who can should say what a state is made of."""
        return self._files is not None

    def found(self, table: Table) -> Saved | None:
        """The run as it was written down before, if it was; ``table`` says what its records are made of."""
        self._table = table
        return None if self._files is None else self._files.read(self._name, table)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """While steps are made: what runs inside a step is part of it, and not written by itself."""
        before, self._watch.stepping = self._watch.stepping, True
        try:
            yield
        finally:
            self._watch.stepping = before

    def note(self, saved: Any) -> None:
        """After every step: write the state that ``saved()`` makes when it is time, and end where time is over."""
        if self._files is not None and time.monotonic() >= self._due:
            self._write(saved)
        if self._watch.limit is not None:
            self._watch.limit.check()

    def close(self, saved: Any) -> None:
        """After the last step, unless the run was over in no time."""
        if self._files is None:
            return
        if self._written or time.monotonic() >= self._begun + self._files.every / _SHORT:
            self._write(saved)

    def forsake(self) -> None:
        """Write no more runs of this fit: those that follow a run that was stopped are not those of a whole fit."""
        self._watch.forsaken = True

    def _write(self, saved: Any) -> None:
        assert self._files is not None
        self._files.write(self._name, saved(), self._table)
        self._written, self._due = True, time.monotonic() + self._files.every


class Watch:
    """The watch of one fit: of nothing, unless it is given a time limit, files or a memory.

    Runs are numbered in the order in which they begin, which is always the same: a fit that is made again meets the
    runs that it has made before under the same names.
    """

    def __init__(
        self,
        limit: TimeLimit | None = None,
        files: Files | None = None,
        memory: Memory | None = None,
        before: Memory | None = None,
        branch: str = "",
    ):
        self.limit, self._files, self._memory, self._before = limit, files, memory, before
        self._branch, self._runs, self._asked = branch, 0, 0
        self.stepping = self.forsaken = False

    def enter(self) -> Place:
        """The place of a run that begins."""
        if self._files is None or self.stepping or self.forsaken:
            return Place(self, "", None)
        self._runs += 1
        return Place(self, f"run{self._branch}-{self._runs}", self._files)

    def branch(self, number: int) -> Watch:
        """The watch of one of several problems, which may run at the same time."""
        name = f"{self._branch}-{number}x"
        return Watch(self.limit, self._files, self._memory, self._before, name)

    @property
    def remembers(self) -> bool:
        """Whether the next fit is to go on from this one."""
        return self._memory is not None

    def behind(self) -> int:
        """Iterations that the fit before has made of the run that the fit is asked for next."""
        last = self._last(f"{self._branch}-{self._asked + 1}")
        return 0 if last is None else last.iteration

    def go_on(self) -> tuple[str, Last | None]:
        """The name of a run that the fit was asked for, and where the fit before has ended it."""
        self._asked += 1
        name = f"{self._branch}-{self._asked}"
        return name, self._last(name)

    def _last(self, name: str) -> Last | None:
        return None if self._before is None else self._before.runs.get(name)

    def remember(self, name: str, last: Last) -> None:
        """Where such a run has ended."""
        if self._memory is not None:
            self._memory.runs[name] = last


_present: ContextVar[Watch] = ContextVar("watch")


def present() -> Watch:
    """The watch of the fit that is being made here."""
    found = _present.get(None)
    return Watch() if found is None else found


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Let a watch look after the runs made in the meantime."""
    token = _present.set(watch)
    try:
        yield
    finally:
        _present.reset(token)
