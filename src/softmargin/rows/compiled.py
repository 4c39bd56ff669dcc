"""The one decorator of compiled functions, with a cache on disk that neither a crash nor a read-only disk breaks.

A cache file that is missing, cut off, damaged or written for something else is a miss: the function is compiled again
and the file written anew.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, UserWideCacheLocator
from numba.core.types import unliteral

from softmargin import __version__

__all__ = ["njit"]

_DIGEST = hashlib.sha256
_LENGTH = _DIGEST().digest_size
_Result = TypeVar("_Result")


def njit(
    *, cache: bool = False, key: tuple[str, ...] = (), **options: Any
) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """``numba.njit`` with the options given; with ``cache=True``, machine code is kept from one process to the next.

    ``key`` says what else the machine code depends on than the file of the function.
    """
    decorate = numba.njit(**options)

    def compiled(function: Callable[..., _Result]) -> Callable[..., _Result]:
        dispatcher: Any = decorate(function)
        if not hasattr(dispatcher, "py_func"):  # with NUMBA_DISABLE_JIT it is the function itself
            return dispatcher
        _take_constants_as_numbers(dispatcher)
        if cache:
            try:
                dispatcher._cache = _Cache(function, key)
            except (OSError, RuntimeError) as error:
                _warn_once(error)
        return dispatcher

    return compiled


def _take_constants_as_numbers(dispatcher: Any) -> None:
    """Compile a function once for whole numbers, not once more for every constant with which it is called."""
    resolve = dispatcher.get_call_template

    def template(arguments: Any, named: Any) -> Any:
        return resolve(tuple(map(unliteral, arguments)), {name: unliteral(kind) for name, kind in named.items()})

    dispatcher.get_call_template = template


class _TemporaryFolder(UserWideCacheLocator):
    """Below the folder of temporary files, for installations where neither package nor home can be written.

    Cache files run as code: the folder must be this user's own, and no other user may write to it.
    """

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._folder = Path(tempfile.gettempdir(), f"softmargin-cache-{_user()}")
        self._cache_path = str(self._folder / self.get_suitable_cache_subpath(py_file))

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        status = self._folder.lstat()
        others = os.name == "posix" and (status.st_uid != _user() or status.st_mode & 0o022)
        if others or not stat.S_ISDIR(status.st_mode):
            raise PermissionError(f"{self._folder} belongs to another user, or others can write to it.")
        super().ensure_cache_path()


class _Located(CompileResultCacheImpl):
    """Where numba would write, and the temporary folder where it could not."""

    _locator_classes = [*CompileResultCacheImpl._locator_classes, _TemporaryFolder]  # noqa: RUF012


class _Files(IndexDataCacheFile):
    """An index and data files; each data file has its checksum, and says of which source and signature it is.

    The index is written before the data: a process killed in between leaves a name that refers to an older file, and
    two processes at once can give one name to two signatures.
    """

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # whatever unpickling a damaged file raises
            return {}

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._version, self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None or found[:3] != (self._version, self._source_stamp, key):
            return None
        return found[3]

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        digest, body = content[:_LENGTH], content[_LENGTH:]
        return pickle.loads(body) if digest == _DIGEST(body).digest() else None

    def _save_data(self, name: str, data: Any) -> None:
        body = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(_DIGEST(body).digest() + body)


class _Cache(FunctionCache):
    """Numba's cache of one function, in which what cannot be read is a miss and what cannot be written is not kept."""

    _impl_class = _Located

    def __init__(self, py_func: Any, key: tuple[str, ...] = ()) -> None:
        super().__init__(py_func)
        # the source of a caller does not change with that of what it calls; the version does
        stamp = __version__, self._impl.locator.get_source_stamp(), *key
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever numba raises at code that it cannot use
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_once(error)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


_warned = False


def _warn_once(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"compiled functions cannot be kept on disk ({error}), so every process compiles them again, which takes "
            "seconds; let the environment variable NUMBA_CACHE_DIR name a folder that can be written.",
            RuntimeWarning,
            stacklevel=3,
        )
