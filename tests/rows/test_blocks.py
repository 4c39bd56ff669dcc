"""Cells and their sums: how rows are grouped or which thread works on them never changes a bit."""

import threading

import numpy as np
import pytest
from parts import dense_columns, sparse_columns, standardized
from threadpoolctl import threadpool_info

from softmargin.designs import Dense
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.summation import TreeSum

N = 19_000  # rows of the problem below: ten cells, the last one short


def values(n):
    """Numbers of very unlike size, so that the order of additions shows in the last bits."""
    rng = np.random.default_rng(0)
    return rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, size=n)


def tree_sum(x, cuts):
    """Runs of cells summed apart, then joined in order."""
    total = TreeSum()
    for lo, hi in zip([0, *cuts], [*cuts, len(x)], strict=True):
        run = TreeSum()
        for k in range(lo, hi):
            run.push(k, 0, (x[k], 2.0 * x[k]))
        for node in run.nodes:
            total.push(*node)
    return total.total()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13, 64, 100])
def test_any_grouping_gives_the_same_bits(n):
    x, rng = values(n), np.random.default_rng(1)
    whole = tree_sum(x, [])
    assert whole[0] == pytest.approx(x.sum(), rel=1e-9, abs=1e-9 * np.abs(x).sum())
    assert whole[1] == 2.0 * whole[0]
    for _ in range(30):
        cuts = np.sort(rng.choice(np.arange(n + 1), size=rng.integers(0, n + 1)))
        assert tree_sum(x, list(cuts)) == whole


def test_order_of_additions_would_show():
    """The numbers above tell a tree from a plain sum; otherwise the test before would prove nothing."""
    x = values(100)
    assert sum(x.tolist()) != tree_sum(x, [])[0]


def test_partial_sums_stay_few():
    tree = TreeSum()
    for k in range(1000):
        tree.push(k, 0, (1.0,))
        assert len(tree.nodes) <= 10
    assert tree.total() == (1000.0,)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 9)) * 10.0 ** rng.integers(-3, 3, size=(N, 1))
    return Dense.plain(X, intercept=True), rng.exponential(size=N) * 10.0 ** rng.integers(-6, 6, size=N)


def everything(design, w, **options):
    blocks = Blocks(design, w, w, **options)
    try:
        root = np.linspace(-1, 1, 50).reshape(10, 5)
        A, c = blocks.gram(w, np.sqrt(w))
        return A, c, blocks.matvec(np.arange(10.0)), blocks.rmatvec(w), blocks.row_quad(root)
    finally:
        blocks.close()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("n_blocks", [None, 1, 3, 7, 1000])
def test_blocks_and_workers_do_not_change_a_bit(problem, workers, n_blocks):
    with one_blas_thread():
        wanted = everything(*problem)
        got = everything(*problem, n_blocks=n_blocks, workers=workers)
    for a, b in zip(got, wanted, strict=True):
        assert np.array_equal(a, b)


def test_products(problem):
    design, w = problem
    X = design.rows(np.arange(N))
    A, c, f, t, v = everything(design, w)
    size = np.abs(X).max() ** 2 * w.max()
    np.testing.assert_allclose(A, (X.T * w) @ X, rtol=1e-9, atol=1e-12 * size)
    np.testing.assert_allclose(c, X.T @ np.sqrt(w), rtol=1e-9, atol=1e-12 * size)
    np.testing.assert_allclose(f, X @ np.arange(10.0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(t, X.T @ w, rtol=1e-9, atol=1e-12 * size)
    root = np.linspace(-1, 1, 50).reshape(10, 5)
    np.testing.assert_allclose(v, np.sum((X @ root) ** 2, axis=1), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2047, 2048, 2049, 10_000])
def test_cells_cover_every_row_once(n):
    blocks = Blocks(Dense.plain(np.ones((n, 2))), n_blocks=3)
    assert [cell.number for cell in blocks.cells] == list(range(len(blocks.cells)))
    assert [row for cell in blocks.cells for row in range(cell.lo, cell.hi)] == list(range(n))
    assert sum(blocks.map(lambda cell: cell.hi - cell.lo)) == n


def test_cells_do_not_depend_on_blocks_or_workers(problem):
    design = problem[0]
    assert Blocks(design).cells == Blocks(design, n_blocks=5).cells
    assert len(Blocks(design).cells) == 10


def test_serial_copy_runs_without_threads(problem):
    design, w = problem
    blocks = Blocks(design, w, w, workers=2)
    try:
        serial = blocks.serial()
        names = set(serial.map(lambda cell: threading.current_thread().name))
        assert names == {threading.current_thread().name}
        assert np.array_equal(serial.gram(w, w)[0], blocks.gram(w, w)[0])
        assert serial.serial() is serial
    finally:
        blocks.close()


@pytest.mark.parametrize("X", [dense_columns(), sparse_columns()])
def test_dense_and_sparse_designs(X):
    design = standardized(X)
    rows, beta = design.rows(np.arange(23)), np.linspace(-1, 1, design.shape[1])
    np.testing.assert_allclose(Blocks(design).matvec(beta), rows @ beta, atol=1e-10)


def test_one_blas_thread():
    with one_blas_thread():
        assert all(pool["num_threads"] == 1 for pool in threadpool_info() if pool["user_api"] == "blas")
