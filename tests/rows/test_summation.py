"""Sums of cells: one order, whatever stands beside them."""

import numpy as np
import pytest

from softmargin.rows.block import CELL, Block
from softmargin.rows.summation import TreeSum, cell_sums, cell_totals


def uneven(*shape):
    """Numbers of very unlike size, so that the order of additions shows in the last bits."""
    rng = np.random.default_rng(0)
    return rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8, size=shape)


@pytest.mark.parametrize("first", [0, 1, 5, 16])
@pytest.mark.parametrize("cells", [1, 2, 4, 5, 8, 13, 16, 31])
def test_cells_added_level_by_level_are_the_nodes_of_cells_added_one_by_one(first, cells):
    values, wanted = uneven(cells, 3), TreeSum()
    for k, value in enumerate(values):
        wanted.push(first + k, 0, (value,))
    found = TreeSum.of_cells(first, values)
    assert [node[:2] for node in found.nodes] == [node[:2] for node in wanted.nodes]
    for own, other in zip(found.nodes, wanted.nodes, strict=True):
        np.testing.assert_array_equal(own[2][0], other[2][0])


def test_the_sum_of_a_cell_does_not_depend_on_its_neighbours():
    x, y = uneven(2, 5 * CELL - 100)
    starts = np.minimum(CELL * np.arange(6), len(x))
    together = cell_sums((x, (x, y)), starts)
    for k in range(5):
        at = slice(starts[k], starts[k + 1])
        alone = cell_sums((x[at], (x[at], y[at])), np.array([0, starts[k + 1] - starts[k]]))
        np.testing.assert_array_equal(alone[0], together[k])
    np.testing.assert_allclose(together.sum(axis=0), (x.sum(), x @ y), rtol=1e-9, atol=1e-9 * np.abs(x).sum())


def test_sums_of_several_vectors_are_those_of_each():
    vectors = uneven(6, 3 * CELL - 700)
    starts = np.minimum(CELL * np.arange(4), vectors.shape[1])
    np.testing.assert_array_equal(cell_totals(vectors, starts), cell_sums(tuple(vectors), starts))


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_inner_products_of_vectors_do_not_depend_on_the_block(cut):
    vectors = uneven(3, 5 * CELL - 100)
    nothing = np.zeros(0)

    def tree(first, lo, hi):
        return Block(None, nothing, nothing, 0.0, first, lo, hi).products(np.ascontiguousarray(vectors[:, lo:hi]))

    whole, joined = tree(0, 0, vectors.shape[1]), TreeSum()
    for part in (tree(0, 0, cut * CELL), tree(cut, cut * CELL, vectors.shape[1])):
        for node in part.nodes:
            joined.push(*node)
    np.testing.assert_array_equal(joined.total()[0], whole.total()[0])
    np.testing.assert_allclose(whole.total()[0], vectors @ vectors.T, rtol=1e-10)
