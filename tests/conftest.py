"""Fixtures that several test files share, and the long runs left out unless -m names them."""

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


@pytest.fixture(scope="session")
def dask_client():
    """A connection to two Dask workers with one thread each, in processes of their own."""
    distributed = pytest.importorskip("distributed")
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


def pytest_collection_modifyitems(config, items):
    """Leave tests marked ``soak`` out of every run whose -m does not speak of them."""
    if "soak" in config.option.markexpr:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
    items[:] = [item for item in items if not item.get_closest_marker("soak")]
