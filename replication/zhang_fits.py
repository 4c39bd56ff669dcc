"""Fits of the replication of Zhang, Dai, Wang and Jordan (2010) that are done, a line each in a file of the repository.

A run that was stopped goes on behind the last of them. A line holds what identifies its fit: a fit with other settings
is another one, and takes its place. What the library itself does is not in it: ``--again`` runs what is there anew.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import NamedTuple

import numpy as np

from benchmarks import common
from benchmarks.random_effects import cut_short
from replication.zhang_models import fitted, partition, rows_of, settings, warm_up

FILE = "zhang_fits.csv"


class Fit(NamedTuple):
    """What identifies a fit; a method without sweeps, or without active rows, has 0 of them."""

    set: str
    train: int
    test: int
    partition: int
    method: str
    sweeps: int
    most: int
    settings: str  # digest of the method's options

    @classmethod
    def of(cls, name: str, rows: tuple[int, int], seed: int, method: str, sweeps: int, most: int) -> Fit:
        """The fit of a method to a partition; what does not matter to the method is 0."""
        used = settings(name, method)
        return cls(name, *rows, seed, method, sweeps * used.sweeps, most * used.most, used.digest)


class Note(NamedTuple):
    """What came out of a fit: test error in per cent, CPU seconds, active rows (none: 0), when and where."""

    error: float
    seconds: float
    active: float  # mean over the draws
    largest: int  # of the draws
    date: str
    where: str


def run(fit: Fit) -> Note:
    """Fit and count the errors."""
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single chains and short ones are in the table
        warm_up()
        X, new, y, truth = partition(*rows_of(fit.set), fit.train, fit.test, fit.partition)
        model, seconds = common.cpu(lambda: fitted(fit.method, X, y, fit.most, fit.sweeps))
        error = 100.0 * float((model.predict(new) != truth).mean())
    active = getattr(model, "n_active_", np.zeros(1))
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return Note(
        round(error, 4), round(seconds, 3), round(float(active.mean()), 2), int(active.max()), date, common.where()
    )


@dataclass
class Notes:
    """The file of the fits that are done; without a path nothing is kept beyond the run."""

    path: Path | None = None
    again: bool = False  # whether fits of other runs are made anew
    jobs: int = 1  # fits at a time, a process each; none to leave out what is not noted
    known: dict[Fit, Note] = field(default_factory=dict)
    made: set[Fit] = field(default_factory=set)  # in this run
    missing: set[Fit] = field(default_factory=set)  # what was wanted and is not made

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.known = _read(self.path.read_text(encoding="utf-8"))

    def __contains__(self, fit: Fit) -> bool:
        return fit in self.made if self.again else fit in self.known

    def __getitem__(self, fit: Fit) -> Note:
        return self.known[fit]

    def add(self, fit: Fit, note: Note) -> None:
        """Note a fit in place of one with other settings, and write the file."""
        self.known = {each: old for each, old in self.known.items() if each[:-1] != fit[:-1]}
        self.known[fit] = note
        self.made.add(fit)
        self.missing.discard(fit)
        if self.path is not None:
            fresh = self.path.with_suffix(".new")
            fresh.write_text(_written(self.known), encoding="utf-8")
            os.replace(fresh, self.path)

    def complete(self, fits: Iterable[Fit]) -> None:
        """Make the fits that are not noted; an interrupt (Ctrl-C) ends them after those at work."""
        missing = [fit for fit in dict.fromkeys(fits) if fit not in self]
        self.missing.update(missing)
        if not (missing and self.jobs):
            return
        results = _together(missing, self.jobs) if self.jobs > 1 else ((fit, run(fit)) for fit in missing)
        for number in cut_short(len(missing)):
            fit, note = next(results)
            self.add(fit, note)
            print(
                f"{number + 1} of {len(missing)}: {fit.set} {fit.train}, partition {fit.partition}, {fit.method}: "
                f"{note.error:.2f} %, {note.seconds:.1f} s",
                flush=True,
            )
        results.close()

    def stamp(self, fits: Sequence[Fit]) -> str:
        """When and where the fits were made, as below every table."""
        notes = [self[fit] for fit in fits]
        dates = sorted({note.date for note in notes})
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        return f"{span}, {'; '.join(sorted({note.where for note in notes}))}."


def _together(fits: list[Fit], jobs: int) -> Iterator[tuple[Fit, Note]]:
    """Several fits at a time, in the order in which they end."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=signal, initargs=(SIGINT, SIG_IGN))
    try:
        waiting = {pool.submit(run, fit): fit for fit in fits}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)


# The file: places as comments, then a line per fit with the number of its place


def _written(known: dict[Fit, Note]) -> str:
    """The text of the file, sorted."""
    places = sorted({note.where for note in known.values()})
    text = StringIO("".join(f"# {number}: {place}\n" for number, place in enumerate(places)))
    text.seek(0, os.SEEK_END)
    table = csv.writer(text, lineterminator="\n")
    table.writerow((*Fit._fields, *Note._fields))
    for fit in sorted(known):
        table.writerow((*fit, *known[fit][:-1], places.index(known[fit].where)))
    return text.getvalue()


def _read(text: str) -> dict[Fit, Note]:
    """The fits of a file."""
    lines = text.splitlines()
    places = [line.split(": ", 1)[1] for line in lines if line.startswith("#")]
    known = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        fit = Fit(
            row["set"],
            *(int(row[name]) for name in ("train", "test", "partition")),
            row["method"],
            *(int(row[name]) for name in ("sweeps", "most")),
            row["settings"],
        )
        numbers = [float(row[name]) for name in ("error", "seconds", "active")]
        known[fit] = Note(*numbers, int(row["largest"]), row["date"], places[int(row["where"])])
    return known


@dataclass(frozen=True)
class Tally:
    """Test errors in per cent, CPU seconds and mean numbers of active rows of several methods, split by split."""

    errors: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    active: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, note: Note) -> None:
        """Count a fit of a method."""
        self.errors.setdefault(name, []).append(note.error)
        self.seconds.setdefault(name, []).append(note.seconds)
        self.active.setdefault(name, []).append(note.active)

    @property
    def splits(self) -> int:
        """Splits done."""
        return len(next(iter(self.errors.values())))

    def error(self, name: str) -> str:
        """Mean error and its standard deviation over splits."""
        found = self.errors[name]
        return f"{np.mean(found):.2f}" + (f" ({np.std(found, ddof=1):.2f})" if len(found) > 1 else "")

    def apart(self, first: str, other: str) -> float:
        """Mean difference of two errors."""
        return float(np.mean(self.errors[first]) - np.mean(self.errors[other]))

    @property
    def mean_active(self) -> float:
        """Mean number of active rows of FBGKM."""
        return float(np.mean(self.active["FBGKM"]))

    def time(self, name: str) -> float:
        """Mean CPU seconds."""
        return float(np.mean(self.seconds[name]))
