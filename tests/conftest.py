"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    """The folder of larger data sets that the environment variable SOFTMARGIN_DATA names."""
    folder = os.environ.get("SOFTMARGIN_DATA")
    if not folder:
        pytest.skip("SOFTMARGIN_DATA is not set")
    path = Path(folder)
    if not path.is_dir():
        pytest.skip(f"SOFTMARGIN_DATA names {folder}, which is not a folder")
    return path
