"""Runs of a fit in a folder, one file for each; a file is replaced whole or not at all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import softmargin
from softmargin.exceptions import CheckpointWarning, SavedFileError, warn_user
from softmargin.storage import container
from softmargin.storage.records import Table, decoded, encoded
from softmargin.survival.watch import Saved

__all__ = ["Checkpoints"]

_VERSION = 1  # of what these files hold
_ENDING = ".checkpoint"  # no saved model has it
_FIT = "fit"  # the file that says which fit the others are of
_ADVICE = "delete it to make that part of the fit again, or fit with resume=False"


class Checkpoints:
    """The files of one fit.

    Parameters
    ----------
    folder : str or path
        Where they are; made where it is not there.
    every : float
        Seconds between two states of a run.
    """

    def __init__(self, folder: Any, every: float):
        self.folder, self.every = Path(folder), every
        self._warned = False
        self._last: float | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in self.folder.glob(f".*{_ENDING}.*.part"):  # of a process that was killed while it wrote
            part.unlink(missing_ok=True)

    def begin(self, about: dict[str, Any]) -> None:
        """Start anew: leave no file of another fit."""
        for pattern in (_FIT, "run*"):
            for path in self.folder.glob(f"{pattern}{_ENDING}"):
                path.unlink()
        self._write(_FIT, about, Table())

    def about(self) -> Any:
        """What the fit whose files are there has said of itself; None where there is none."""
        return self._read(_FIT, Table())

    def read(self, name: str, table: Table) -> Saved | None:
        """The run of that name, if it was written."""
        found = self._read(name, table)
        if not isinstance(found, list) or len(found) != len(Saved._fields):
            self._refuse(found is None, name, "holds no run")
            return None
        return Saved(*found)

    def write(self, name: str, saved: Saved, table: Table) -> None:
        """Write a run; where that fails, say so once and go on: what was written before is still there."""
        self._write(name, list(saved), table)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _write(self, name: str, thing: Any, table: Table) -> None:
        records, arrays = encoded(thing, table)
        text = json.dumps(records, allow_nan=False, separators=(",", ":")).encode()
        sections = [container.Section("records", text)]
        sections += [container.Section(f"array {number}", array.data) for number, array in enumerate(arrays)]
        about = {"kind": "checkpoint", "version": _VERSION, "written_by": f"softmargin {softmargin.__version__}"}
        try:
            container.write(self._path(name), about, sections)
        except OSError as error:
            self._warn(error)
        else:
            self._last = time.monotonic()

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        last = "none was written before"
        if self._last is not None:
            last = f"the last one, written {time.monotonic() - self._last:.0f} seconds ago, is intact"
        warn_user(
            f"a checkpoint could not be written to {str(self.folder)!r} ({error.strerror or error}); the fit goes on, "
            f"and {last}.",
            CheckpointWarning,
        )

    def _refuse(self, right: bool, name: str, what: str) -> None:
        container.check(right, self._path(name), what, _ADVICE)

    def _read(self, name: str, table: Table) -> Any:
        path = self._path(name)
        if not path.exists():
            return None
        try:
            about, sections = container.read(path)
        except SavedFileError as error:
            raise SavedFileError(f"{str(error).rpartition(';')[0]}; {_ADVICE}.") from None
        self._refuse(about.get("kind") == "checkpoint" and about.get("version") == _VERSION, name, "is no checkpoint")
        writer, here = about.get("written_by"), f"softmargin {softmargin.__version__}"
        self._refuse(writer == here, name, f"was written by {writer}, and this is {here}")
        named = ["records", *(f"array {number}" for number in range(len(sections) - 1))]
        self._refuse([section.name for section in sections] == named, name, "has other sections than a checkpoint")
        records = container.parsed(sections[0].data, path, "records")
        arrays, size = [section.data for section in sections[1:]], sum(len(section.data) for section in sections)
        try:
            return decoded(records, arrays, size, table)
        except ValueError as error:
            raise SavedFileError(f"{str(path)!r} holds a state of another form ({error}); {_ADVICE}.") from error
