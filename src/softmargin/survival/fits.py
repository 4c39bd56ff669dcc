"""Time limits, checkpoints and warm starts of every estimator: its parameters for them, and the watch over a fit."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from softmargin.exceptions import CheckpointWarning, SavedFileError, warn_user
from softmargin.survival.checkpoints import Checkpoints
from softmargin.survival.watch import Memory, TimeLimit, Watch, watched

__all__ = ["Surviving", "parameters_of"]

# parameters that say how a fit is looked after, and how many threads it has: none changes what it does
_CARE = {"max_time", "checkpoint", "checkpoint_every", "resume", "warm_start", "verbose", "n_jobs"}
_LENGTHS = {"draws", "warmup", "thin", "max_iter", "tol"}  # which a fit that goes on may have others of
_LABELS = {"column names": "feature_names_in_", "class labels": "classes_"}
_FITS = "the number of fits before"  # that the chains of this one go on from
_CHUNK = 1 << 24  # bytes that are hashed at once


class Surviving:
    """Base of all estimators."""

    max_time: float | None
    checkpoint: Any
    checkpoint_every: float
    resume: bool
    warm_start: bool
    random_state: Any

    def _check_survival(self) -> None:
        """Refuse limits and folders that cannot be."""
        for name, value in (("max_time", self.max_time), ("checkpoint_every", self.checkpoint_every)):
            given = isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0.0
            if not (given or (name == "max_time" and value is None)):
                raise ValueError(f"{name} must be a positive number of seconds; got {value!r}.")
        if not isinstance(self.checkpoint, str | os.PathLike | None) or self.checkpoint == "":
            raise ValueError(f"checkpoint must be the path of a folder; got {self.checkpoint!r}.")
        if self.resume and self.checkpoint is None:
            raise ValueError("resume=True goes on from a checkpoint: give its folder, checkpoint='folder'.")

    @contextmanager
    def _surviving(self, streams: Any, *data: Any) -> Iterator[Any]:
        """Look after the fit of these data; gives the random streams, or those of the fit that goes on."""
        limit = None if self.max_time is None else TimeLimit(float(self.max_time))
        files, memory, before = None, None, None
        if self.checkpoint is not None or self.warm_start:
            known = vars(self)
            about: dict[str, Any] = {"estimator": type(self).__name__, "data": _fingerprint(data)} | parameters_of(self)
            about |= {name: _fingerprint(known.get(attribute)) for name, attribute in _LABELS.items()}
            about[_FITS] = 0
            if self.warm_start:
                before = self._going_on(about)
                if before is not None:
                    streams, about[_FITS] = before.about["streams"], before.about["fits"] + 1
                memory = Memory({"streams": streams, "fits": about[_FITS], "of": _lasting(about)})
            if self.checkpoint is not None:
                files, streams = _opened(self.checkpoint, float(self.checkpoint_every), self.resume, about, streams)
        with watched(Watch(limit, files, memory, before)):
            try:
                yield streams
            except KeyboardInterrupt as error:
                if limit is None or not limit.over:
                    raise
                raise TimeoutError(
                    f"max_time={limit.seconds:g} seconds were over before there was anything to keep ({error}): raise "
                    "max_time, or take fewer rows first."
                ) from error
        self._memory = memory

    def _going_on(self, about: dict[str, Any]) -> Memory | None:
        """What the fit before has left, if it was of the same data and parameters."""
        before: Memory | None = vars(self).get("_memory")
        if before is None:
            return None
        mine, theirs = _lasting(about), before.about["of"]
        other = [name for name in mine if mine[name] != theirs.get(name)]
        if not other:
            return before
        warn_user(f"warm_start=True starts anew: since the fit before {_listed(other)} changed.", CheckpointWarning)
        return None


def _lasting(about: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if name not in _LENGTHS | {_FITS}}


def _listed(names: list[str]) -> str:
    return ", ".join("the data" if name == "data" else name for name in names)


def _opened(folder: Any, every: float, resume: bool, about: dict[str, Any], streams: Any) -> tuple[Checkpoints, Any]:
    """The files of a fit that begins or goes on, and its random streams."""
    try:
        files = Checkpoints(folder, every)
    except OSError as error:
        raise ValueError(f"checkpoint={str(folder)!r} cannot be used as a folder ({error.strerror}).") from error
    found = files.about() if resume else None
    if found is None:
        files.begin(about | {"streams": list(streams.key)})
        return files, streams
    key = found.pop("streams")
    other = [name for name in about if about[name] != found.get(name)]
    if other == [_FITS] and about[_FITS] == found[_FITS] + 1:  # of the fit that this one goes on from
        files.begin(about | {"streams": list(streams.key)})
        return files, streams
    if other:
        raise SavedFileError(
            f"{str(folder)!r} has the checkpoint of another fit ({_listed(other)} differ): give the data and "
            "parameters of that fit, another folder, or resume=False to start anew."
        )
    return files, replace(streams, key=tuple(key))


def parameters_of(estimator: Any) -> dict[str, str]:
    """The parameters that make a fit what it is, as texts."""
    given = estimator.get_params(deep=False)
    return {name: _text(name, value) for name, value in sorted(given.items()) if name not in _CARE}


def _text(name: str, value: Any) -> str:
    if value is None or type(value) in (str, bool, int, float):
        return repr(value)
    if name == "random_state" and not isinstance(value, int | np.integer | None):
        return type(value).__name__  # it has moved on since; the streams are written
    if isinstance(value, np.ndarray | pd.DataFrame | pd.Series):
        return _fingerprint(value)
    value = value.item() if isinstance(value, np.generic) else value
    with np.printoptions(threshold=sys.maxsize, precision=17):  # arrays in full
        text = repr(value)
    plain = re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # where it is in memory says nothing
    if plain == text:
        return plain
    try:
        return plain + _fingerprint(vars(value))  # it does not say what it is: what it has does
    except TypeError:  # it has no attributes
        return plain


def _fingerprint(thing: Any) -> str:
    """A number that other data do not have."""
    digest = hashlib.sha256()
    _feed(digest, thing)
    return digest.hexdigest()


def _feed(digest: Any, thing: Any) -> None:
    digest.update(type(thing).__name__.encode())
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype.str}{thing.shape}".encode())
        whole = np.atleast_1d(thing)
        chunk = max(1, _CHUNK // max(1, whole[:1].nbytes))
        for lo in range(0, len(whole), chunk):
            digest.update(np.ascontiguousarray(whole[lo : lo + chunk]))
    elif sp.issparse(thing):
        rows: Any = thing
        for part in (rows.shape, rows.data, rows.indices, rows.indptr):
            _feed(digest, part)
    elif isinstance(thing, pd.DataFrame | pd.Series):
        _feed(digest, pd.util.hash_pandas_object(thing).to_numpy())
        if isinstance(thing, pd.DataFrame):
            _feed(digest, [str(name) for name in thing.columns])
    elif isinstance(thing, dict):
        _feed(digest, list(thing.items()))
    elif isinstance(thing, tuple | list):
        for part in thing:
            _feed(digest, part)
    elif isinstance(thing, np.ndarray):
        _feed(digest, thing.tolist())
    elif isinstance(thing, np.generic):
        _feed(digest, thing.item())
    elif isinstance(thing, str | int | float | None):
        digest.update(repr(thing).encode())
