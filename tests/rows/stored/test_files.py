"""Rows of a file, by position and by number."""

import numpy as np
import pytest

from softmargin.rows.stored.files import FileRows, SomeRows


def matrix(n=10_000, p=3):
    return np.random.default_rng(0).normal(size=(n, p)).astype(np.float32)


@pytest.mark.parametrize(
    "index",
    [
        np.array([5, 9_999, 0, 5, 4_096, 4_095]),
        np.random.default_rng(1).permutation(10_000)[:3000],
        np.arange(0, 10_000, 40),
        slice(20, 9000, 7),
        np.arange(10_000) % 3 == 0,
        np.zeros(0, dtype=int),
    ],
    ids=["any order", "permutation", "far apart", "slice", "marks", "none"],
)
def test_rows_are_picked_as_from_an_array(tmp_path, index):
    X = matrix()
    np.save(tmp_path / "X.npy", X)
    assert np.array_equal(FileRows.of_npy(tmp_path / "X.npy").pick(index), X[index])


def test_some_rows_of_a_file_are_a_source_again(tmp_path):
    X, index = matrix(), np.arange(1, 10_000, 3)
    np.save(tmp_path / "X.npy", X)
    some = SomeRows(FileRows.of_npy(tmp_path / "X.npy"), index)
    assert some.shape == (3333, 3)
    assert np.array_equal(some.read(100, 3000), X[index][100:3000])
    assert np.array_equal(some.pick(np.array([7, 2])), X[index[[7, 2]]])


def test_a_run_of_a_map_is_found_in_its_file(tmp_path):
    X = matrix()
    whole = np.memmap(tmp_path / "X.dat", dtype=np.float32, mode="w+", shape=(10_100, 3), offset=77)
    whole[30:-70] = X
    assert np.array_equal(FileRows.of_map(whole[30:-70]).read(0, 10_000), X)
    again = np.memmap(tmp_path / "X.dat", dtype=np.float32, mode="c", shape=(10_100, 3), offset=77)
    again[40] = 0.0  # changes that are in no file
    assert FileRows.of_map(again) is None and FileRows.of_map(whole[:, :2]) is None


def test_a_file_that_is_cut_off_is_refused_where_it_ends(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, matrix())
    source = FileRows.of_npy(path)
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(ValueError, match="ends before row 10000: it has changed or is cut off"):
        source.read(9_990, 10_000)
    assert np.array_equal(source.read(0, 50), matrix()[:50])
