"""The two stages of ./check run the tests that they name, and fail where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="./check is a shell script")
TESTS = "import pytest\n\n\ndef test_short(): pass\n\n\n@pytest.mark.soak\ndef test_long(): pass\n"


def commands_of(arguments, folder, pytest_code=0):
    """Exit code of ./check, and the commands that it gave to a python which only writes them down."""
    stub = folder / "python"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {folder}/said\nif [ "$2" = pytest ]; then exit {pytest_code}; fi\n')
    stub.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([ROOT / "check", *arguments], env=os.environ | {"PATH": path}, capture_output=True)
    return done.returncode, (folder / "said").read_text().splitlines()


def test_the_first_stage_leaves_out_the_long_runs_and_passes_arguments_on(tmp_path):
    code, said = commands_of(["-k", "hinge"], tmp_path)
    assert code == 0
    assert [line.split()[1] for line in said] == ["ruff", "ruff", "mypy", "mkdocs", "pytest"]
    assert said[-1] == "-m pytest -n 2 --dist worksteal -m not soak -k hinge"


def test_the_second_stage_is_the_long_runs_alone(tmp_path):
    assert commands_of(["--slow", "-k", "hinge"], tmp_path) == (0, ["-m pytest -n 2 --dist worksteal -m soak -k hinge"])


@pytest.mark.parametrize("arguments", [[], ["--slow"]], ids=["first", "second"])
@pytest.mark.parametrize("failure", [1, 5], ids=["failed", "no tests"])
def test_a_stage_fails_where_tests_fail_or_there_are_none(tmp_path, arguments, failure):
    assert commands_of(arguments, tmp_path, failure)[0] == failure


@pytest.mark.parametrize(
    ("arguments", "names"),
    [([], ["test_short"]), (["-m", "not slow"], ["test_short"]), (["-m", "soak"], ["test_long"])],
    ids=["plain", "another marker", "asked for"],
)
def test_pytest_runs_the_long_runs_only_where_they_are_asked_for(tmp_path, arguments, names):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "--collect-only"]
    said = subprocess.run([*command, *arguments, tmp_path], capture_output=True, text=True, cwd=tmp_path).stdout
    assert [line.split("::")[1] for line in said.splitlines() if "::" in line] == names
