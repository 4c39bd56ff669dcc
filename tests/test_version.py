"""The version is that of the installation, wherever the source files are."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import softmargin

SOURCE = Path(softmargin.__file__).parents[1]


def version_seen(path, installed):
    """``__version__`` in a new process whose path has the source files, the given metadata, and nothing else."""
    if installed:
        (path / f"softmargin-{installed}.dist-info").mkdir()
        (path / f"softmargin-{installed}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: softmargin\nVersion: {installed}\n"
        )
    code = f"import sys; sys.path[:0] = {[str(path), str(SOURCE)]!r}; import softmargin; print(softmargin.__version__)"
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_version_is_that_of_the_metadata(tmp_path):
    assert version_seen(tmp_path, "3.2.1.dev4") == "3.2.1.dev4"


def test_source_files_that_were_never_installed_say_that_their_version_is_unknown(tmp_path):
    assert version_seen(tmp_path, None) == "0+unknown"


def test_this_process_has_the_version_of_its_installation():
    if softmargin.__version__ == "0+unknown":
        pytest.skip("not installed")
    assert softmargin.__version__ == version("softmargin")
