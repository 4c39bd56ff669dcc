"""Grouped designs against the indicator matrices they stand for."""

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.designs import Dense, Sparse
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.rows.in_memory import Blocks

N = 300


def grouped(kind, seed=0, n=N):
    """Named designs: one intercept, slopes, two crossed terms, an inner term within an outer one."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    inner, other = rng.integers(-1, 24, n), rng.integers(0, 7, n)
    inner[:2] = 24, -1  # a group with one row, and a row without a group
    lines = np.column_stack((np.ones(n), X[:, 0]))
    terms = {
        "intercept": (GroupTerm.intercept(inner, 26),),  # the last group has no row
        "slopes": (GroupTerm(inner, 25, lines),),
        "crossed": (GroupTerm(other, 7, lines), GroupTerm(inner, 25, lines), GroupTerm.intercept(other % 3)),
        "nested": (GroupTerm.intercept(inner, 25), GroupTerm.intercept(np.maximum(inner, 0) // 5, 5)),
    }[kind]
    base = (
        Sparse(sp.csr_matrix(X), np.zeros(3), np.ones(3), True) if kind == "nested" else Dense.plain(X, intercept=True)
    )
    return Grouped(base, terms)


def indicators(design):
    """The matrix written out entry by entry."""
    n, rows = design.shape[0], [design.base.rows(np.arange(design.shape[0]))]
    for term in design.terms:
        Z = np.zeros((n, term.size))
        for i in range(n):
            for a in range(term.width):
                if term.codes[i] >= 0:
                    Z[i, term.codes[i] * term.width + a] = term.columns[i, a]
        rows.append(Z)
    return np.concatenate(rows, axis=1)


def whole(gram, size):
    """The full Gram matrix from its pieces."""
    m, s, p = gram.cross.shape
    core = np.delete(np.arange(size), gram.main)
    A = np.zeros((size, size))
    A[np.ix_(core, core)] = gram.core if isinstance(gram.core, np.ndarray) else whole(gram.core, len(core))
    main = np.arange(gram.main.start, gram.main.stop)
    A[np.ix_(main, core[:p])] = gram.cross.reshape(m * s, p)
    if gram.side is not None:
        A[np.ix_(main, core[p:])] = gram.side.toarray()
    A[np.ix_(core, main)] = A[np.ix_(main, core)].T
    for g in range(m):
        at = main[g * s : (g + 1) * s]
        A[np.ix_(at, at)] = gram.block[g]
    return A


@pytest.mark.parametrize("kind", ["intercept", "slopes", "crossed", "nested"])
@pytest.mark.parametrize(("lo", "hi"), [(0, None), (17, 201)])
def test_products(kind, lo, hi):
    design, rng = grouped(kind), np.random.default_rng(5)
    C = indicators(design)[lo:hi]
    beta, b, w = rng.standard_normal(C.shape[1]), rng.standard_normal(len(C)), rng.gamma(1.0, size=len(C))
    np.testing.assert_allclose(design.matvec(beta, lo, hi), C @ beta, atol=1e-12)
    np.testing.assert_allclose(design.rmatvec(b, lo, hi), C.T @ b, atol=1e-12)
    gram, linear = design.gram(w, b, lo, hi)
    np.testing.assert_allclose(whole(gram, design.shape[1]), (C * w[:, None]).T @ C, atol=1e-12)
    np.testing.assert_allclose(linear, C.T @ b, atol=1e-12)
    index = np.array([5, 0, 1, 5])
    np.testing.assert_array_equal(design.rows(index), indicators(design)[index])


def test_any_number_of_blocks_gives_the_same():
    design, rng = grouped("crossed", n=7000), np.random.default_rng(2)
    w, b, beta = rng.gamma(1.0, size=7000), rng.standard_normal(7000), rng.standard_normal(design.shape[1])
    one = Blocks(design)
    many = Blocks(design, n_blocks=3, workers=2)
    try:
        for left, right in zip(one.gram(w, b)[0].__dict__.values(), many.gram(w, b)[0].__dict__.values(), strict=True):
            if isinstance(left, np.ndarray):
                np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(one.rmatvec(b), many.rmatvec(b))
        np.testing.assert_array_equal(one.matvec(beta), many.matvec(beta))
    finally:
        many.close()


def test_bad_terms_are_refused():
    with pytest.raises(ValueError, match="between -1 and 1"):
        GroupTerm.intercept([0, 2, 1], 2)
    with pytest.raises(ValueError, match="one row of columns for every code"):
        GroupTerm(np.array([0, 1]), 2, np.ones((3, 1)))
    with pytest.raises(ValueError, match="at least one group term"):
        Grouped(Dense.plain(np.ones((3, 1))), ())
