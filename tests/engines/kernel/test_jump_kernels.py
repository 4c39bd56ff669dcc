"""Factors that grow and shrink against factors from scratch, ratios against full marginal likelihoods."""

import numpy as np
import pytest
from jump_problems import problem
from scipy.stats import kstest, multivariate_normal, truncnorm

from softmargin.engines.kernel._jump_compiled import holmes_held, jumps, rates
from softmargin.engines.kernel._jump_factors import drop, extend, log_death, room_for
from softmargin.engines.kernel.active_chain import factor, jitter_of

ETA, G_ = 0.7, 0.4


def wide(K, w, b, index, room):
    """Arrays with room, filled from scratch."""
    k = len(index)
    G, R = factor(K, np.array(index, dtype=int))
    L = np.linalg.cholesky((G * w) @ G.T + np.diag(np.append(ETA, np.full(k, G_))))
    arrays = [np.zeros(room, int), np.zeros((room + 1, len(K))), *(np.zeros((m, m)) for m in (room, room + 1))]
    arrays.append(np.zeros(room + 1))
    arrays[0][:k], arrays[1][: k + 1], arrays[2][:k, :k], arrays[3][: k + 1, : k + 1] = index, G, R, L
    arrays[4][: k + 1] = np.linalg.solve(L, G @ b)
    return arrays


def log_evidence(K, w, b, index):
    """Log marginal density of the pseudo-responses b/w with noise variance 1/w, from the n x n covariance."""
    index = list(index)
    C = np.diag(1.0 / w) + 1.0 / ETA
    if index:
        inner = K[np.ix_(index, index)] + jitter_of(K) * np.eye(len(index))
        C = C + K[:, index] @ np.linalg.solve(G_ * inner, K[index])
    return multivariate_normal(np.zeros(len(K)), C).logpdf(b / w)


def messages(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, size=n) + 0.1, rng.normal(size=n)


def test_ratios_equal_full_evidence():
    """Births, deaths and swaps, as a birth then a death, at several sizes of the active set."""
    _, _, K, _ = problem(12, seed=1)
    w, b = messages(12)
    q, x = np.empty(20), np.empty(20)
    for index in ([], [3], [5, 2, 9], [0, 11, 4, 7, 1, 8]):
        k, arrays = len(index), wide(K, w, b, index, 12)
        here = log_evidence(K, w, b, index)
        birth = extend(room_for(12, 12), K, jitter_of(K), w, b, G_, 10, *arrays[1:], k)
        assert birth == pytest.approx(log_evidence(K, w, b, [*index, 10]) - here, abs=1e-9)
        for a in range(k):
            rest = index[:a] + index[a + 1 :]
            death = log_death(*arrays[2:], G_, k, a, q, x)
            assert death == pytest.approx(log_evidence(K, w, b, rest) - here, abs=1e-9)
            swap = birth + log_death(*arrays[2:], G_, k + 1, a, q, x)
            assert swap == pytest.approx(log_evidence(K, w, b, [*rest, 10]) - here, abs=1e-9)


def test_dropping_equals_refactoring():
    _, _, K, _ = problem(12, seed=2)
    w, b = messages(12)
    index = [5, 2, 9, 0, 7]
    for a in range(5):
        arrays = wide(K, w, b, index, 6)
        drop(*arrays, 5, a)
        again = wide(K, w, b, index[:a] + index[a + 1 :], 6)
        assert_same(arrays, again, 4, 1e-12)


def assert_same(arrays, again, k, tolerance):
    np.testing.assert_array_equal(arrays[0][:k], again[0][:k])
    np.testing.assert_allclose(arrays[1][: k + 1], again[1][: k + 1], atol=tolerance)
    for at, m in ((2, k), (3, k + 1)):
        np.testing.assert_allclose(np.tril(arrays[at][:m, :m]), np.tril(again[at][:m, :m]), atol=tolerance)
    np.testing.assert_allclose(arrays[4][: k + 1], again[4][: k + 1], atol=tolerance)


@pytest.mark.parametrize("informed", [False, True])
def test_factors_after_ten_thousand_moves(informed):
    _, _, K, _ = problem(40, seed=3, length=1.0)
    w, b = messages(40)
    arrays, counts = wide(K, w, b, [1, 2], 41), np.zeros((3, 2), int)
    rng = np.random.default_rng(0)
    k = jumps(rng, room_for(40, 41), K, jitter_of(K), w, b, G_, (1.0, 1.0), 40, 10000, informed, *arrays, 2, counts)
    assert (counts[:, 1] > 300).all()
    assert counts[:, 0].sum() == 10000
    assert len(set(arrays[0][:k])) == k
    assert_same(arrays, wide(K, w, b, arrays[0][:k], 41), k, 1e-10)


@pytest.mark.parametrize("duplicated", [True, False])
def test_duplicates_change_nothing(duplicated):
    """A copy of an active row adds nothing: ratio one; another row does."""
    X, _, _, _ = problem(6, seed=4)
    from jump_problems import rbf

    X[5] = X[2] if duplicated else X[2] + 1.0
    K = rbf(X, X)
    w, b = messages(6)
    arrays = wide(K, w, 3 * b, [2, 0], 4)
    ratio = extend(room_for(6, 4), K, jitter_of(K), w, 3 * b, G_, 5, *arrays[1:], 2)
    assert (abs(ratio) < 1e-5) == duplicated


def test_proposal_rates_at_the_boundaries():
    assert rates(0, 3) == (1.0, 0.0)
    assert rates(1, 3) == rates(2, 3) == (0.3, 0.3)
    assert rates(3, 3) == (0.0, 1.0)
    assert rates(1, 1) == (0.0, 1.0)


def test_latents_given_the_others():
    """The first latent of a pass has the conditional law of N(0, Q) cut to its side, far in the tail too."""
    _, _, K, _ = problem(4, seed=5)
    y = np.array([1.0, -1.0, 1.0, -1.0])
    G, _ = factor(K, np.array([0, 2]))
    L = np.linalg.cholesky(G @ G.T + np.diag([ETA, G_, G_]))
    V = np.ascontiguousarray(np.linalg.solve(L, G).T)
    P = np.eye(4) - V @ V.T  # inverse of the covariance of the latents
    for start in (np.array([1.0, -0.5, 0.3, -2.0]), np.array([1.0, -30.0, 0.3, -40.0])):
        mean = start[0] - (P @ start)[0] / P[0, 0]
        sd = P[0, 0] ** -0.5
        rng, first = np.random.default_rng(1), []
        for _ in range(2000):
            s, z = start.copy(), start @ V
            holmes_held(rng, y, np.arange(4), V, s, z)
            first.append(s[0])
            assert (s * y > 0).all()
            np.testing.assert_allclose(z, s @ V, atol=1e-10)
        assert kstest(first, truncnorm(-mean / sd, np.inf, mean, sd).cdf).pvalue > 1e-4
