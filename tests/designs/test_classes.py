"""The design of pairs, and the Gaussian of coefficients that sum to zero, against dense algebra."""

import numpy as np
import pytest
from parts import dense_columns, each, sparse_columns, standardized

from softmargin.designs import Dense
from softmargin.designs.classes import ClassDesign, Pairs, helmert, pair_weights
from softmargin.rows.in_memory import Blocks
from softmargin.solvers._class_woodbury import ClassWoodbury
from softmargin.solvers.sum_to_zero import SumToZero

BASES = {
    "dense": lambda: standardized(dense_columns()),
    "dense-no-intercept": lambda: standardized(dense_columns(), intercept=False),
    "sparse": lambda: standardized(sparse_columns()),
    "wide": lambda: standardized(dense_columns(n=7, p=20)),
}


def pairs(base, k=4, seed=0, costs=None, own=0.0):
    """A design, and the same written out as a dense matrix."""
    n, q = base.shape
    rng = np.random.default_rng(seed)
    label = rng.integers(0, k, n)
    table = Pairs.of(label, rng.uniform(0.5, 2.0, n), costs, k, own)
    design = table.design(base)
    X, rows = base.rows(np.arange(n)), []
    for r in range(k):
        for i in range(n):
            if table.weight[r, i] > 0.0:
                row = np.zeros((k, q))
                row[r] = X[i] if r == label[i] else (k - 1) * X[i]
                rows.append(row.ravel())
    return design, np.array(rows)


@pytest.mark.parametrize("make", each(BASES))
@pytest.mark.parametrize("own", [0.0, 3.0])
def test_products_equal_the_dense_matrix(make, own):
    costs = np.ones((4, 4))
    costs[1, 2] = costs[3, 0] = 0.0
    design, Z = pairs(make(), costs=costs, own=own)
    (N, K), rng = Z.shape, np.random.default_rng(1)
    assert design.shape == (N, K)
    beta, root, w, b = rng.normal(size=K), rng.normal(size=(K, 5)), rng.exponential(size=N), rng.normal(size=N)
    tall = rng.normal(size=(K, K))  # more columns than a class has coefficients
    for lo, hi in ((0, None), (0, N // 3), (N // 3, N - 1), (N - 1, N)):
        at = slice(lo, hi)
        np.testing.assert_allclose(design.matvec(beta, lo, hi), Z[at] @ beta, atol=1e-10)
        np.testing.assert_allclose(design.rmatvec(b[at], lo, hi), Z[at].T @ b[at], atol=1e-10)
        for factor in (root, tall):
            wanted = ((Z[at] @ factor) ** 2).sum(axis=1)
            np.testing.assert_allclose(design.row_quad(factor, lo, hi), wanted, rtol=1e-9)
        A, c = design.gram(w[at], b[at], lo, hi)
        np.testing.assert_allclose(c, Z[at].T @ b[at], atol=1e-10)
        full, q = (Z[at].T * w[at]) @ Z[at], K // 4
        for r in range(4):
            block = slice(r * q, (r + 1) * q)
            np.testing.assert_allclose(A[r], full[block, block], atol=1e-9)
            full[block, block] = 0.0
        assert not full.any()
    np.testing.assert_allclose(design.rows(np.arange(N)[::-2]), Z[::-2], atol=1e-12)
    assert design.rows(np.arange(0)).shape == (0, K)


def test_pairs_in_class_major_order():
    base = Dense.plain(np.arange(6.0).reshape(3, 2))
    label = np.array([0, 2, 1])
    weight = pair_weights(label, np.array([1.0, 2.0, 4.0]), None, 3)
    design = ClassDesign.of(base, weight)
    np.testing.assert_array_equal(design.index, [1, 2, 0, 1, 0, 2])
    np.testing.assert_array_equal(design.pair_class, [0, 0, 1, 1, 2, 2])
    np.testing.assert_allclose(weight[weight > 0.0], [1.0, 2.0, 0.5, 1.0, 0.5, 2.0])


def test_pair_rows_are_the_multicategory_loss():
    """``2 c L max(f_r + 1/(k-1), 0)`` equals the binary hinge of the pair."""
    from softmargin.losses import Hinge

    rng = np.random.default_rng(2)
    label, c, costs = rng.integers(0, 3, 12), rng.uniform(0.5, 2.0, 12), rng.uniform(0.2, 3.0, (3, 3))
    base = Dense.plain(rng.normal(size=(12, 2)), intercept=True)
    weight = pair_weights(label, c, costs, 3)
    design = ClassDesign.of(base, weight)
    B = rng.normal(size=(3, 3))
    loglik = Hinge().loglik(-np.ones(len(design.index)), weight[weight > 0.0], design.matvec(B.ravel())).sum()
    f, total = base.rows(np.arange(12)) @ B.T, 0.0
    for i in range(12):
        for r in range(3):
            if r != label[i]:
                total += 2.0 * c[i] * costs[label[i], r] * max(f[i, r] + 0.5, 0.0)
    assert loglik == pytest.approx(-total, rel=1e-12)


@pytest.mark.parametrize("costs", [np.ones((2, 3)), np.full((3, 3), -1.0), np.full((3, 3), np.nan)])
def test_bad_costs_are_refused(costs):
    with pytest.raises(ValueError, match="cost matrix"):
        pair_weights(np.array([0, 1, 2]), np.ones(3), costs, 3)


# --- the Gaussian ---------------------------------------------------------------------------------------------


def dense_gaussian(Z, k, w, linear, precision, rank_two):
    """Mean, covariance and log determinant by the definition, in the contrast coordinates."""
    q = Z.shape[1] // k
    T = np.kron(helmert(k).T, np.eye(q))
    A = (Z.T * w) @ Z + np.diag(precision)
    for j in range(q):
        for part, sign in zip(rank_two, (-1.0, 1.0), strict=True):
            u = np.zeros(k * q)
            u[j::q] = part[j::q]
            A += sign * np.outer(u, u)
    inner = T.T @ A @ T
    covariance = T @ np.linalg.solve(inner, T.T)
    return covariance @ linear, covariance, np.linalg.slogdet(inner)[1]


@pytest.mark.parametrize("make", each(BASES))
@pytest.mark.parametrize("corrected", [False, True])
def test_gaussian_equals_the_definition(make, corrected):
    design, Z = pairs(make(), k=3)
    (N, K), rng = Z.shape, np.random.default_rng(3)
    w, b, precision = rng.exponential(size=N), rng.normal(size=N), rng.uniform(0.5, 3.0, K)
    rank_two = np.sqrt(precision) * rng.uniform(-0.5, 0.5, (2, K)) * ~design.free * corrected
    mean, covariance, logdet = dense_gaussian(Z, 3, w, Z.T @ b, precision, rank_two)
    space, blocks = SumToZero.of(design), Blocks(design)
    A, linear = blocks.gram(w, b)
    given = rank_two if corrected else None
    q = space.gaussian(A, linear, precision, given)
    wide = ClassWoodbury.from_rows(design, w, linear, precision, given)
    rhs = rng.normal(size=K)
    for found in (q, wide):
        np.testing.assert_allclose(found.mean, mean, atol=1e-9)
        np.testing.assert_allclose(found.solve(rhs), covariance @ rhs, atol=1e-9)
        np.testing.assert_allclose(found.mean.reshape(3, -1).sum(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(q.root @ q.root.T, covariance, atol=1e-9)
    np.testing.assert_allclose(q.var, covariance.diagonal(), rtol=1e-9)
    assert q.logdet == pytest.approx(logdet, rel=1e-10)
    size = space.dimension(K)
    assert q.entropy == pytest.approx(0.5 * (size * (1.0 + np.log(2.0 * np.pi)) - logdet), rel=1e-10)
    assert size == K // 3 * 2


def test_moved_gaussians_keep_their_covariance():
    design, Z = pairs(BASES["dense"](), k=3)
    w = np.random.default_rng(4).exponential(size=len(Z))
    space = SumToZero.of(design)
    q = space.gaussian(*design.gram(w, w), np.ones(Z.shape[1]))
    root, var = q.root, q.var
    other = q.with_mean(2.0 * q.mean)
    np.testing.assert_allclose(other.mean, 2.0 * q.mean)
    np.testing.assert_allclose(other.root @ other.root.T, root @ root.T)
    wider = other.dilated(0.3)
    np.testing.assert_allclose(wider.mean, np.exp(0.3) * other.mean)
    np.testing.assert_allclose(wider.var, np.exp(0.6) * var)
    np.testing.assert_allclose(wider.root @ wider.root.T, np.exp(0.6) * root @ root.T)
    assert wider.entropy == pytest.approx(q.entropy + 0.3 * space.dimension(Z.shape[1]))


def test_draws_have_the_covariance():
    design, Z = pairs(standardized(dense_columns(n=8, p=2)), k=3)
    rng = np.random.default_rng(5)
    w, precision = rng.exponential(size=len(Z)), rng.uniform(0.5, 3.0, Z.shape[1])
    mean, covariance, _ = dense_gaussian(Z, 3, w, Z.T @ w, precision, np.zeros((2, Z.shape[1])))
    plain = SumToZero.of(design).gaussian(*design.gram(w, w), precision)
    for found in (plain, ClassWoodbury.from_rows(design, w, Z.T @ w, precision)):
        draws = np.array([found.draw(rng) for _ in range(4000)]) - mean
        sd = np.sqrt(covariance.diagonal())
        assert np.abs(draws.mean(axis=0) / sd).max() < 4.5 / np.sqrt(4000)
        error = (draws.T @ draws / 4000 - covariance) / np.outer(sd, sd)
        assert np.abs(error).max() < 4.5 * np.sqrt(2.0 / 4000)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_contrast_is_orthonormal(k):
    A = helmert(k)
    np.testing.assert_allclose(A @ A.T, np.eye(k - 1), atol=1e-14)
    np.testing.assert_allclose(A.sum(axis=1), 0.0, atol=1e-14)
