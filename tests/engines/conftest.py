"""Linear algebra on one thread, so that results do not depend on the machine's load."""

import pytest

from softmargin.rows.in_memory import one_blas_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield
