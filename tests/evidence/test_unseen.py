"""The rule by which tasks are drawn from packages that ship data."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.common import standard_error
from benchmarks.unseen.tasks import _task


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 3))
    label = np.where(x[:, 0] + rng.logistic(size=150) > 0, "yes", "no")
    kind = np.array(["a", "b", "c"])[rng.integers(0, 3, 150)]
    return pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "label": label, "copy": label == "yes", "kind": kind})


def test_the_response_is_the_first_suitable_column_whatever_the_order_of_columns(frame):
    one = _task("somewhere/some", frame, "two classes")
    other = _task("somewhere/some", frame[frame.columns[::-1]], "two classes")
    assert one.name == other.name
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.X, other.X)


def test_columns_that_give_the_response_away_are_left_out(frame):
    task = _task("somewhere/some", frame, "two classes")
    assert task.X.shape[1] == 4  # x, z, and two indicators of the kind: neither the label nor its copy
    assert all(abs(np.corrcoef(column, task.y)[0, 1]) < 0.9 for column in task.X.T)


@pytest.mark.parametrize(("kind", "values"), [("two classes", 2), ("many classes", 3)])
def test_classes_are_numbered_from_zero(frame, kind, values):
    assert set(_task("somewhere/some", frame, kind).y) == set(range(values))


def test_frames_without_a_suitable_column_give_no_task(frame):
    assert _task("somewhere/some", frame[["x", "z", "label"]], "many classes") is None
    assert _task("somewhere/some", frame.head(50), "two classes") is None


def test_standard_errors_of_overlapping_splits_are_larger_than_those_of_independent_ones():
    d = np.array([0.0, 1.0, 2.0, 3.0])
    assert standard_error(d, 70, 30) == pytest.approx(np.sqrt((1 / 4 + 30 / 70) * d.var(ddof=1)))
