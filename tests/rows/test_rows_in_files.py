"""Rows in files: who reads them, and how often."""

import numpy as np
import pytest

from softmargin.core import visits
from softmargin.designs.standardize import as_given, standardize
from softmargin.designs.stored import Stored
from softmargin.rows import on_disk
from softmargin.rows.in_memory import Blocks
from softmargin.rows.on_disk import InFiles
from softmargin.rows.stored.files import FileRows


class Counted(FileRows):
    count = 0

    def read(self, lo, hi):
        self.count += hi - lo
        return super().read(lo, hi)


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.setattr(on_disk, "_CELLS", 2)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(21_000, 4))
    np.save(tmp_path / "X.npy", X)
    return X, np.sign(rng.normal(size=21_000)), rng.uniform(size=21_000), Counted.of_npy(tmp_path / "X.npy")


def weights(block, small):
    return (block.sums(block.weight),)


def test_a_pass_reads_every_row_once_and_one_without_columns_reads_none(problem):
    X, y, weight, source = problem
    rows = InFiles(Stored.of(source, as_given(4)), y, weight)
    total = rows.sum(weights)[0]
    assert source.count == 0 and total[0] == pytest.approx(weight.sum())
    kept, _ = rows.keep(visits.predictors, np.ones(4))
    assert source.count == 21_000
    np.testing.assert_allclose(rows.fetch(kept).f, X.sum(axis=1), atol=1e-12)


@pytest.mark.parametrize("workers", [1, 3])
def test_sums_vectors_and_picked_rows_are_those_of_rows_in_memory(problem, workers):
    X, y, weight, source = problem
    columns = standardize(X, weight)
    home = Blocks(Stored.of(source, columns).run(0, 21_000), y, weight)
    there = InFiles(Stored.of(source, columns), y, weight, workers=workers)
    beta, w = np.arange(5.0), weight + 1.0
    assert np.array_equal(home.matvec(beta), there.matvec(beta))
    assert np.array_equal(home.rmatvec(w), there.rmatvec(w))
    for a, b in zip(
        (*home.gram(w, y), home.row_quad(np.eye(5))), (*there.gram(w, y), there.row_quad(np.eye(5))), strict=True
    ):
        assert np.array_equal(a, b)
    index = np.array([3, 20_000, 77])
    assert np.array_equal(home.pick(index).matvec(beta), there.pick(index).matvec(beta))
    assert np.array_equal(there.reweighted(2.0).pick(index).weight, 2.0 * weight[index])
    there.close()


def test_products_of_the_design_alone_are_those_of_visits(problem):
    X, y, weight, source = problem
    design = Stored.of(source, standardize(X, weight))
    there = InFiles(design, y, weight)
    assert np.array_equal(design.matvec(np.arange(5.0)), there.matvec(np.arange(5.0)))
    assert np.array_equal(design.rmatvec(y), there.rmatvec(y))
    assert np.array_equal(design.gram(weight, y)[0], there.gram(weight, y)[0])
    assert np.array_equal(design.moments(np.ones(5), np.eye(5))[1], there.row_quad(np.eye(5)))
    assert np.array_equal(design.rows(np.array([4, 2])), design.pick(np.array([4, 2])).rows(slice(None)))
