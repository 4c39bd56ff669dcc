"""The order in which rows are dealt to folds."""

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.loo.folds import row_order
from softmargin.models.build import kept_columns


@pytest.mark.parametrize("kind", ["normal", "two values", "indicators"])
def test_rows_are_dealt_alike_whatever_their_order_and_units(kind):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 60))
    if kind == "two values":  # as many of either: lengths and third powers of standardized columns say nothing
        X = (np.median(X, axis=0) < X).astype(float)
    if kind == "indicators":
        X = np.eye(4)[np.argsort(np.argsort(X[:, :15], axis=0), axis=0) // 10].reshape(40, -1)
    label, count = (rng.random(40) < 0.4).astype(int), rng.integers(1, 4, 40).astype(float)

    def ranks(X, label, count):
        return row_order(X, kept_columns(X, count, intercept=True, standardized=True), label, count)

    first = ranks(X, label, count)
    assert len(np.unique(first)) > 30
    factor, order, turned = np.exp(rng.normal(size=60)) * rng.choice([-1.0, 1.0], 60), *map(rng.permutation, (40, 60))
    other = (X * factor + rng.normal(size=60))[order][:, turned]
    np.testing.assert_array_equal(ranks(other, 1 - label[order], count[order]), first[order])
    times = np.repeat(np.arange(40), count.astype(int))
    np.testing.assert_array_equal(ranks(X[times], label[times], np.ones(len(times))), first[times])
    sparse = row_order(sp.csr_matrix(X), None, label, count)
    np.testing.assert_array_equal(sparse, row_order(X, None, label, count))
