"""The cache of compiled functions: no state of its files and no lack of a folder may break a fit."""

import gc
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import softmargin
from softmargin.rows import compiled

PACKAGE = Path(softmargin.__file__).parent
SOURCE = """
from softmargin.rows.compiled import njit

@njit(cache=True, nogil=True)
def twice(x):
    return {factor} * x
"""


def load(path):
    """The function ``twice`` of a file, as a process that imports it for the first time has it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.twice


def hits(function):
    return sum(function.stats.cache_hits.values())


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE.format(factor=2.0))
    assert load(path)(4.0) == 8.0
    return path


def files(source, ending):
    found = sorted(source.parent.rglob(f"*.{ending}"))
    assert found
    return found


def test_machine_code_is_found_again(source):
    again = load(source)
    assert again(4.0) == 8.0 and hits(again) == 1


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda _: b"?" * 64,
    ],
    ids=["empty", "half", "last byte lost", "other bytes"],
)
def test_damaged_cache_files_are_written_anew(source, ending, damage):
    (path,) = files(source, ending)
    path.write_bytes(damage(path.read_bytes()))
    mended = load(source)
    assert mended(4.0) == 8.0 and hits(mended) == 0
    after = load(source)
    assert after(4.0) == 8.0 and hits(after) == 1


def test_one_changed_bit_of_machine_code_is_noticed(source):
    (path,) = files(source, "nbc")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    mended = load(source)
    assert mended(4.0) == 8.0 and hits(mended) == 0


def test_a_process_killed_between_index_and_data_leaves_no_older_code_behind(source, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    source.write_text(SOURCE.format(factor=3.0))
    with monkeypatch.context() as patch:
        patch.setattr(compiled._Files, "_save_data", killed)
        with pytest.raises(Killed):
            load(source)(4.0)
    after = load(source)  # the index of the new source names the data file of the old one
    assert after(4.0) == 12.0 and hits(after) == 0


def test_a_disk_that_takes_no_more_costs_a_warning_and_nothing_else(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiled._Files, "_save_data", full)
    monkeypatch.setattr(compiled, "_warned", False)
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE.format(factor=2.0))
    with pytest.warns(RuntimeWarning, match=r"No space left.*NUMBA_CACHE_DIR"):
        assert load(path)(4.0) == 8.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(path)(4) == 8.0


def _nowhere_to_write(tmp_path):
    """A copy of the package and an environment in which numba's own folders cannot be made, whoever asks.

    Permissions do not bind the superuser, so the folders are out of reach in another way: ``__pycache__`` of every
    folder is a file, and the home and the cache folder of the user lie below a file.
    """
    copy = tmp_path / "site" / "softmargin"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    below = str(tmp_path / "file" / "none")
    return os.environ | {
        "PYTHONPATH": str(copy.parent),
        "HOME": below,
        "XDG_CACHE_HOME": below,
        "NUMBA_CACHE_DIR": below,
        "TMPDIR": str(tmp_path / "temporary"),
    }


def _run(code, environment):
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


USE = """
from softmargin import BayesianSVC
from softmargin.rows.arithmetic import mills
mills(1.0)
print(sum(mills.stats.cache_hits.values()))
"""


def test_without_a_writable_package_or_home_the_cache_is_in_the_temporary_folder(tmp_path):
    environment = _nowhere_to_write(tmp_path)
    for found in ("0", "1"):
        done = _run(USE, environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [found]
    (folder,) = (tmp_path / "temporary").glob("softmargin-cache-*")
    assert folder.stat().st_mode & 0o077 == 0


def test_a_temporary_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / f"softmargin-cache-{compiled._user()}"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(compiled._Located, "_locator_classes", [compiled._TemporaryFolder])
    monkeypatch.setattr(compiled, "_warned", False)
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE.format(factor=2.0))
    with pytest.warns(RuntimeWarning, match=r"every process compiles them again.*NUMBA_CACHE_DIR"):
        assert load(path)(4.0) == 8.0
    assert not list(folder.iterdir())


def test_every_compiled_function_of_the_package_goes_through_the_one_decorator():
    others = [path for path in PACKAGE.rglob("*.py") if path.name != "compiled.py"]
    assert not [
        path.name for path in others if "from numba import njit" in path.read_text() or "numba.njit" in path.read_text()
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "times"), [(Terminal, 1), (io.StringIO, 0)], ids=["terminal", "file"])
def test_compiling_is_announced_once_and_on_a_terminal_alone(monkeypatch, stream, times):
    monkeypatch.setattr(sys, "stderr", stream())
    watched = compiled._Notice(patience=0.15).around(time.sleep)
    for seconds in (0.1, 0.1, 0.2):  # the second goes on after the patience is spent
        watched(seconds)
    assert sys.stderr.getvalue().count("compiling (once)…") == times


def test_what_compiles_quickly_is_not_announced(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert compiled._Notice(patience=60.0).around(lambda x: 2 * x)(4) == 8
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_rests_while_compiling_and_is_then_as_before(on):
    def fails(_):
        assert not gc.isenabled()
        raise RuntimeError

    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        assert compiled._uncollected(lambda x: gc.isenabled())(1) is False
        with pytest.raises(RuntimeError):
            compiled._uncollected(fails)(1)
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()


def test_every_compiled_function_is_watched(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(compiled, "_notice", compiled._Notice(patience=0.0))
    path = tmp_path / "doubling.py"
    path.write_text(SOURCE.format(factor=2.0))
    assert load(path)(4.0) == 8.0
    assert sys.stderr.getvalue() == "softmargin: compiling (once)…\n"


NESTED = """
from softmargin.rows.compiled import njit

@njit(cache=True, nogil=True)
def once(x, extra):
    if extra < 0:
        raise ValueError("less than nothing")
    return x + extra

@njit(cache=True, nogil=True)
def twice(x):
    return once(x, 1) + once(x, 2) - 3.0
"""


def nested(path):
    path.write_text(NESTED)
    function = load(path)
    return function, function.py_func.__globals__["once"]


def test_a_function_that_compiled_code_calls_is_linked_into_it_and_has_no_machine_code_of_its_own(tmp_path):
    twice, once = nested(tmp_path / "nested.py")
    assert twice(4.0) == 8.0
    assert not once.overloads and len(files(tmp_path / "nested.py", "nbc")) == 1
    assert once(4.0, 1) == 5.0
    with pytest.raises(ValueError, match="less than nothing"):
        once(4.0, -1)
    again, _ = nested(tmp_path / "nested.py")
    assert again(4.0) == 8.0 and hits(again) == 1


def test_what_python_has_called_is_not_compiled_again_for_compiled_callers(tmp_path, monkeypatch):
    twice, once = nested(tmp_path / "nested.py")
    assert once(4.0, 1) == 5.0
    monkeypatch.setattr(compiled._Translation, "__init__", None)
    assert twice(4.0) == 8.0


def test_an_error_inside_a_linked_function_reaches_the_caller(tmp_path):
    path = tmp_path / "nested.py"
    path.write_text(NESTED.replace("once(x, 2)", "once(x, int(-x))"))
    with pytest.raises(ValueError, match="less than nothing"):
        load(path)(4.0)


def test_code_that_refers_to_what_a_library_no_longer_has_is_compiled_again(source, monkeypatch):
    def gone(*_):
        raise AttributeError("module 'numba' has no attribute 'gone'")

    monkeypatch.setattr(compiled._Located, "rebuild", gone)
    mended = load(source)
    assert mended(4.0) == 8.0 and hits(mended) == 0


def test_faults_of_the_cache_itself_are_not_taken_for_misses(source, monkeypatch):
    def wrong(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(compiled._Files, "_read", wrong)
    with pytest.raises(ZeroDivisionError):
        load(source)(4.0)
