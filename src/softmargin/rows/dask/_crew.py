"""The workers that hold the rows: one run of cells each, rebuilt elsewhere when its worker is lost."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from softmargin.rows.dask._holder import Holder
from softmargin.rows.dask._making import Source, decoded, encoded

__all__ = ["Crew", "Entry", "Run", "time_limit"]

_TIMEOUT = 600.0  # seconds that a worker may take for its part of a pass
_LOOK = 1.0  # seconds after which it is asked whether a worker that has not answered is still there
_LOSSES = 4  # workers that a run may lose in one pass
_LONGEST, _LARGEST = 256, 256e6  # visits that a rebuilt run may have to make again, and the bytes of their letters


class Lost(Exception):
    """A worker is gone, and with it what it held."""


@dataclass(eq=False)
class Run:
    """Consecutive cells, the rows lo..hi, and who holds them; ``source`` makes the rows, and makes them again."""

    lo: int
    hi: int
    first: int
    source: Source
    address: str = ""
    future: Any = None
    actor: Any = None


@dataclass(eq=False)
class Entry:
    """How vectors that stay with the rows came there: by a visit to others, or from here.

    ``vectors`` are a record over all rows, in memory or in a file, of what was placed or has been copied since.
    """

    number: int
    letter: bytes | None = None
    parents: tuple[Entry, ...] = ()
    vectors: Any = None
    wanted: bool = True  # whether anybody still has its handle


@dataclass(eq=False)
class Crew:
    """The workers of one problem, and a log of what they were told that is still of use.

    Every worker has the rows of its run in one object, which dies with it. What rebuilds it elsewhere is the source of
    the rows and the log: entries whose handle is alive, and those that they were made from. Visits are pure functions,
    so that a rebuilt run has the same bits. A log that grows too long is cut: vectors are copied to a file here.
    """

    client: Any
    runs: list[Run]
    timeout: float = _TIMEOUT
    log: Any = field(default_factory=weakref.WeakValueDictionary)  # entries by number
    dead: deque[int] = field(default_factory=deque)  # numbers that may be forgotten
    numbers: Any = field(default_factory=count)
    passes: int = 0
    rebuilt: int = 0

    def start(self) -> None:
        """Send the rows out: every worker gets as large a part as it has threads."""
        addresses = list(self._alive())
        for k, run in enumerate(self.runs):
            self._begin(run, addresses[k % len(addresses)], run.source.made(self.client))
        with self.client.as_current():
            for run in self.runs:
                try:
                    self._begun(run)
                except Lost:
                    self._rebuild(run)

    def entry(self, **what: Any) -> Entry:
        """What is about to be left with the rows; the log is cut where it has grown too long."""
        letters = [each.letter for each in list(self.log.values()) if each.letter is not None]
        if len(letters) >= _LONGEST or sum(map(len, letters)) > _LARGEST:
            self._cut()
        return Entry(next(self.numbers), **what)

    def note(self, entry: Entry) -> None:
        """It is there: whoever loses it gets it again."""
        self.log[entry.number] = entry

    def visited(self, letter: bytes) -> list[Any]:
        """What the visit of an errand makes of every run."""
        self.passes += 1
        forgotten = self._forgotten()
        return self.asked(lambda run: run.actor.visited(letter, forgotten))

    def fetched(self, entry: Entry) -> list[Any]:
        """The parts of vectors, in the order of the runs."""
        forgotten = self._forgotten()
        return self.asked(lambda run: run.actor.fetched(entry.number, forgotten))

    def place(self, entry: Entry) -> None:
        """Send vectors out."""
        self.asked(lambda run: self._placed(run, entry))

    def picked(self, places: Any) -> list[Any]:
        """Some rows, given in order, of each run that has any of them."""
        cuts = np.searchsorted(places, [run.lo for run in self.runs] + [self.runs[-1].hi])
        own = {run.lo: places[a:b] - run.lo for run, a, b in zip(self.runs, cuts[:-1], cuts[1:], strict=True) if b > a}
        runs = [run for run in self.runs if run.lo in own] or self.runs[:1]
        return self.asked(lambda run: run.actor.picked(encoded(own.get(run.lo, places[:0]))), runs)

    def asked(self, call: Callable[[Run], Any], runs: Sequence[Run] | None = None) -> list[Any]:
        """The answers of runs, all by default; those that lose their worker are rebuilt, and asked again."""
        with self.client.as_current():
            return self._asked(call, self.runs if runs is None else runs)

    def _asked(self, call: Callable[[Run], Any], runs: Sequence[Run]) -> list[Any]:
        answers: dict[int, Any] = {}
        missing = list(runs)
        for _ in range(1 + _LOSSES):
            sent = [(run, _sent(call, run)) for run in missing]
            missing = []
            for run, future in sent:
                try:
                    answers[run.lo] = self._answer(run, future)
                except Lost:
                    missing.append(run)
            if not missing:
                return [answers[run.lo] for run in runs]
            for run in missing:
                self._rebuild(run)
        raise RuntimeError(_hopeless(missing[0]))

    def _forgotten(self) -> tuple[int, ...]:
        """Numbers that nobody has a handle of any more."""
        return tuple(self.dead.popleft() for _ in range(len(self.dead)))

    def _alive(self) -> dict[str, int]:
        """Threads of the workers that the scheduler knows; waits for one where there is none."""
        end = time.monotonic() + self.timeout
        while True:
            found: dict[str, int] = self.client.nthreads()
            if found:
                return found
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the Dask cluster has had no worker for {self.timeout:.0f} s: start some, or wait longer with "
                    "dask.config.set({'softmargin.timeout': seconds})."
                )
            time.sleep(0.1)

    def _begin(self, run: Run, address: str, rows: Any) -> None:
        """Have rows, which are on their way, held at an address."""
        threads = self._alive().get(address, 1)
        there: dict[str, Any] = {"workers": [address], "allow_other_workers": False}
        run.address, run.actor = address, None
        run.future = self.client.submit(Holder, rows, run.first, threads, actor=True, pure=False, **there)

    def _gone(self, run: Run) -> bool:
        """Whether a run's worker is lost."""
        return run.address not in self._alive()

    def _begun(self, run: Run) -> None:
        """Wait until the rows are there: as long as the worker lives, and somebody works on something."""
        from distributed import KilledWorker

        last = time.monotonic()
        while run.actor is None:
            try:
                run.actor = run.future.result(timeout=_LOOK)
            except TimeoutError:
                if self._gone(run):
                    raise Lost from None
                last = time.monotonic() if any(self.client.processing().values()) else last
                if time.monotonic() - last > self.timeout:
                    raise TimeoutError(
                        f"rows {run.lo}..{run.hi} of X have not been made, and for {self.timeout:.0f} s no Dask worker "
                        "has worked on anything: see what the cluster waits for."
                    ) from None
            except KilledWorker as error:
                if suspected := run.source.suspected(error.task):
                    self.client.retry(suspected)
                raise Lost from None
            except Exception as error:  # whatever making the user's rows may raise
                if self._gone(run):
                    raise Lost from None
                raise RuntimeError(f"rows {run.lo}..{run.hi} of X could not be made on a worker: {error}") from error

    def _answer(self, run: Run, future: Any) -> Any:
        if future is None:
            raise Lost
        end = time.monotonic() + self.timeout
        while True:
            try:
                content = future.result(timeout=_LOOK)
                break
            except TimeoutError:
                if self._gone(run) or run.future.status != "finished":  # a worker may come back, but without the rows
                    raise Lost from None
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"the Dask worker {run.address} has not answered for {self.timeout:.0f} s: see what it does, "
                        "or wait longer with dask.config.set({'softmargin.timeout': seconds})."
                    ) from None
            except OSError:  # errors of visits are answers: this one is of the way there
                raise Lost from None
        good, answer = decoded(content)
        if not good:
            raise answer
        return answer

    def _rebuild(self, run: Run) -> None:
        """The run on the worker with the fewest rows per thread, with all that visits left with it."""
        for _ in range(_LOSSES):
            alive = self._alive()
            load = dict.fromkeys(alive, 0.0)
            for other in self.runs:
                if other is not run and other.address in load:
                    load[other.address] += (other.hi - other.lo) / alive[other.address]
            try:
                self._begin(run, min(load, key=lambda address: load[address]), run.source.made_again(self.client))
                self._begun(run)
                self._replay(run)
                self.rebuilt += 1
                return
            except Lost:
                continue
        raise RuntimeError(_hopeless(run))

    def _replay(self, run: Run) -> None:
        """Make the vectors of the log again, in their order; what was only on the way there goes at once."""
        entries = sorted(self.log.values(), key=lambda entry: entry.number)
        last = {parent.number: entry.number for entry in entries for parent in entry.parents}
        unwanted: list[int] = []
        for entry in entries:
            if entry.letter is None:
                future = self._placed(run, entry)
            else:
                future = run.actor.visited(entry.letter, tuple(unwanted))
                unwanted = []
            self._answer(run, future)
            unwanted += [each.number for each in entries if not each.wanted and last.get(each.number) == entry.number]
        self.dead.extend(unwanted)

    def _placed(self, run: Run, entry: Entry) -> Any:
        part = type(entry.vectors)(
            *(None if each is None else np.asarray(each[run.lo : run.hi]) for each in entry.vectors)
        )
        return run.actor.placed(entry.number, encoded(part))

    def _cut(self) -> None:
        """Copy what is wanted to a file, and forget how it came about."""
        for entry in sorted(self.log.values(), key=lambda entry: entry.number):
            if entry.wanted and entry.vectors is None:
                entry.vectors = self._filed(entry)
        for entry in list(self.log.values()):
            if entry.vectors is not None:
                entry.letter, entry.parents = None, ()

    def _filed(self, entry: Entry) -> Any:
        """Vectors in a file that goes with them."""
        parts = self.fetched(entry)

        def column(k: int) -> Any:
            if parts[0][k] is None:
                return None
            values: Any = np.memmap(TemporaryFile(), dtype=np.float64, mode="w+", shape=(self.runs[-1].hi,))  # noqa: SIM115
            for run, part in zip(self.runs, parts, strict=True):
                values[run.lo : run.hi] = part[k]
            return values

        return type(parts[0])(*(column(k) for k in range(len(parts[0]))))


def time_limit() -> float:
    """Seconds that a worker may take for its part of a pass: softmargin.timeout of Dask's configuration."""
    from dask import config
    from dask.utils import parse_timedelta

    return float(parse_timedelta(config.get("softmargin.timeout", _TIMEOUT)))


def _sent(call: Callable[[Run], Any], run: Run) -> Any:
    """The future of a call; None where the worker is known to be gone."""
    try:
        return call(run)
    except RuntimeError:  # that is what an actor without its worker raises
        return None


def _hopeless(run: Run) -> str:
    return (
        f"rows {run.lo}..{run.hi} lost {_LOSSES} Dask workers in one pass, each of which had to hold "
        f"{run.hi - run.lo} rows: see why in the logs of the workers, give them more memory, or start more of them."
    )
