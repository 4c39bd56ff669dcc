"""The one decorator of compiled functions, with a cache on disk that neither a crash nor a read-only disk breaks.

A cache file that is missing, cut off, damaged or written for something else is a miss: the function is compiled again
and the file written anew. A function that another compiled function calls is translated only; it is optimised and
becomes machine code as a part of those that Python calls.
"""

from __future__ import annotations

import gc
import hashlib
import io
import os
import pickle
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, UserWideCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
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
    options = {**options, "no_cfunc_wrapper": True}
    decorate = numba.njit(**options)

    def compiled(function: Callable[..., _Result]) -> Callable[..., _Result]:
        dispatcher: Any = decorate(function)
        if not hasattr(dispatcher, "py_func"):  # with NUMBA_DISABLE_JIT it is the function itself
            return dispatcher
        _link_into_callers(dispatcher, options)
        dispatcher.compile = _notice.around(_uncollected(dispatcher.compile))
        if cache:
            try:
                dispatcher._cache = _Cache(function, key)
            except (OSError, RuntimeError) as error:
                _warn_once(error)
        return dispatcher

    return compiled


def _uncollected(compile: Callable[..., Any]) -> Callable[..., Any]:
    """The function ``compile`` with the garbage collector at rest.

    Compiling makes many small objects that live until its end; to look through them again and again takes an eighth of
    the time.
    """

    @wraps(compile)
    def uncollected(*given: Any) -> Any:
        if not gc.isenabled():
            return compile(*given)
        gc.disable()
        try:
            return compile(*given)
        finally:
            gc.enable()

    return uncollected


class _Notice:
    """Says once per process that functions are being compiled, as soon as that has taken ``patience`` seconds in all.

    It is said on the error stream, and only where that is a terminal.
    """

    def __init__(self, patience: float = 1.0) -> None:
        self._left, self._busy, self._said = patience, False, False

    def around(self, compile: Callable[..., Any]) -> Callable[..., Any]:
        """The function ``compile``, watched."""

        @wraps(compile)
        def watched(*given: Any) -> Any:
            if self._busy or self._said or sys.stderr is None or not sys.stderr.isatty():
                return compile(*given)
            self._busy, start, timer = True, time.perf_counter(), threading.Timer(max(self._left, 0.0), self._say)
            timer.daemon = True
            timer.start()
            try:
                return compile(*given)
            finally:
                timer.cancel()
                self._busy, self._left = False, self._left - (time.perf_counter() - start)

        return watched

    def _say(self) -> None:
        self._said = True
        sys.stderr.write("softmargin: compiling (once)…\n")
        sys.stderr.flush()


_notice = _Notice()


def _link_into_callers(dispatcher: Any, options: dict[str, Any]) -> None:
    """Give compiled callers a translation of a function, without machine code and entry points of its own.

    It is made once for whole numbers, not once more for every constant with which the function is called. Where Python
    has called the function with such arguments before, callers get what was compiled then.
    """
    options = {**options, "no_cpython_wrapper": True, "pipeline_class": _Translation}
    inner: Any = numba.njit(**options)(dispatcher.py_func)

    def template(arguments: Any, named: Any) -> Any:
        plain = tuple(map(unliteral, arguments))
        given = dispatcher if plain in dispatcher.overloads and not named else inner
        return type(given).get_call_template(given, plain, {name: unliteral(kind) for name, kind in named.items()})

    def overload(signature: Any) -> Any:
        given = inner if tuple(signature) in inner.overloads else dispatcher
        return type(given).get_overload(given, signature)

    dispatcher.get_call_template, dispatcher.get_overload = template, overload


class _Linked(JITCodeLibrary):
    """What a function was translated to, for linking into others, which turn it into machine code."""

    @property
    def codegen(self) -> _Linked:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: an environment belongs to machine code."""

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def _optimize_final_module(self) -> None:
        """Nothing: whoever links this optimises all that it links, and would do so again at every level of calls."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _Translation(Compiler):
    """Numba's compiler, stopped before machine code."""

    def __init__(self, typing: Any, target: Any, library: Any, *given: Any) -> None:
        super().__init__(typing, target, _Linked(target.codegen(), "linked"), *given)


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
    """An index and data files; each begins with a checksum, and says of which source and, data, of which signature.

    The index is written before the data: a process killed in between leaves a name that refers to an older file, and
    two processes at once can give one name to two signatures. What another version wrote is not unpickled.
    """

    def _load_index(self) -> Any:
        return self._read(self._index_path) or {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, overloads)

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: str) -> Any:
        """What a file holds; None where there is none, or it is damaged or was written for something else."""
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        digest, body = content[:_LENGTH], io.BytesIO(content[_LENGTH:])
        if digest != _DIGEST(body.getvalue()).digest() or pickle.load(body) != (self._version, self._source_stamp):
            return None
        return pickle.load(body)

    def _write(self, path: str, data: Any) -> None:
        body = pickle.dumps((self._version, self._source_stamp)) + self._dump(data)
        with self._open_for_write(path) as file:
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
        except (AttributeError, ImportError):  # it names what another version of a library does not have
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
