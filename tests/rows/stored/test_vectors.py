"""Vectors over rows that are kept beside rows in files."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from softmargin.rows.stored import vectors
from softmargin.rows.stored.vectors import Collector, new_vector, vector_of


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize("home", [0, 10**6])
@pytest.mark.parametrize("x", [np.arange(100.0), np.arange(100, dtype=np.int8), np.broadcast_to(2.5, 100)])
def test_a_vector_is_read_as_it_was_given(monkeypatch, home, x):
    monkeypatch.setattr(vectors, "_HOME", max(home, 64))
    found = vector_of(x)
    assert np.array_equal(found.whole(), x) and np.array_equal(found.read(20, 50), x[20:50])
    assert np.array_equal(found.pick(np.array([3, 1])), x[[3, 1]])
    assert found.read(0, 5).dtype == found.whole().dtype == np.float64 and found.read(0, 5).flags.c_contiguous


def test_a_vector_in_a_scratch_file_does_not_take_the_changes_of_those_who_fetch_it(monkeypatch):
    monkeypatch.setattr(vectors, "_HOME", 64)
    found = vector_of(np.arange(100.0))
    found.whole()[:] = 0.0
    assert np.array_equal(found.whole(), np.arange(100.0))


@pytest.mark.parametrize("home", [64, 10**6])
def test_what_a_visit_passes_on_is_not_written_again_unless_it_changes(monkeypatch, home):
    monkeypatch.setattr(vectors, "_HOME", home)
    given, new = vector_of(np.arange(30.0)), np.arange(30.0) ** 2
    found = Collector(30)
    for lo in (0, 10):
        part, own = given.read(lo, lo + 10), new[lo : lo + 10]
        found.take(lo, Pair(part, own), {id(part): given})
    assert found.fields[0] is given
    part = given.read(20, 30)
    found.take(20, Pair(-part, new[20:]), {id(part): given})
    kept = found.kept().fetch()
    assert np.array_equal(kept.a, np.where(np.arange(30) < 20, np.arange(30.0), -np.arange(30.0)))
    assert np.array_equal(kept.b, new) and np.array_equal(given.whole(), np.arange(30.0))


def test_a_vector_that_is_named_twice_is_written_once():
    found = Collector(20)
    for lo in (0, 10):
        part = np.arange(lo, lo + 10.0)
        found.take(lo, Pair(part, part), {})
    assert found.fields[0] is found.fields[1]
    assert np.array_equal(found.kept().of(5, 15).b, np.arange(5.0, 15.0))
    assert np.array_equal(new_vector(3).whole().shape, (3,))
