"""Reversible jumps between active sets against enumeration of all of them.

Failure rates: every comparison is a z score with a fixed seed and the limit 4; there are about 100 of them, so that a
correct sampler and fresh seeds would exceed it in 0.6 % of runs.
"""

import numpy as np
import pytest
from jump_problems import evidence, inclusion_series, log_prior, problem, rbf, sets, z_score
from scipy.special import expit, ndtr
from stages import in_stages

from softmargin.engines.kernel.data import LengthScale
from softmargin.engines.kernel.jump import fit_active
from softmargin.losses import Hinge, Logit, Probit
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Streams

LIMIT = 4.0
FIXED = GPrior(0.3, 0.8)
LOSSES = {
    "probit": (Probit(), ndtr),
    "logit": (Logit(), expit),
    "hinge": (Hinge(), lambda f: expit(2 * (np.maximum(1 + f, 0) - np.maximum(1 - f, 0)))),
}


def drawn(K, y, weight=None, **options):
    settings = {"sweeps": 2500, "warmup": 300, "thin": 1, "chains": 2, "moves": 4, "streams": Streams((3, 4))}
    return fit_active(K, y, weight, **(settings | options))


def enumerated(likelihood, K, y, new, prior, k_max=None, weight=None, power=13):
    """Active sets with their posterior probabilities, and posterior means of P(y* = 1), log g and log eta."""
    loss, link = LOSSES[likelihood]
    weight, every = np.ones(len(y)) if weight is None else weight, list(sets(len(y), k_max))
    parts = [evidence(loss, link, K, y, weight, new, active, prior, power) for active in every]
    mass = np.exp([log_prior(len(active), len(y), prior.inclusion) for active in every])
    marginal = mass * [part[0] for part in parts]
    return every, marginal / marginal.sum(), mass @ [part[1] for part in parts] / marginal.sum(), marginal.sum()


def compare(draws, new, truth):
    """Inclusion of every row, P(k), predictions and precisions in units of their errors."""
    every, p, answers, _ = truth
    z = [z_score(x, sum(p[t] for t, a in enumerate(every) if i in a)) for i, x in enumerate(inclusion_series(draws))]
    for k in range(max(map(len, every)) + 1):
        z.append(z_score(draws.n_active == k, sum(p[t] for t, a in enumerate(every) if len(a) == k)))
    for row, answer in zip(new, answers, strict=False):
        series = draws.link(draws.predictor(row[None]).ravel(), 0.0, 1.0).reshape(draws.intercept.shape)
        z.append(z_score(series, answer))
    z += [z_score(np.log(draws.values[name]), answers[i]) for name, i in (("g", -2), ("eta", -1))]
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.parametrize(("k_max", "informed"), in_stages([(2, True), (None, False), (1, False)]))
def test_probit_equals_enumeration(k_max, informed):
    _, y, K, new = problem(5, seed=1)
    prior = GPrior(0.3, 0.8, inclusion=(1.5, 2.5))
    truth = enumerated("probit", K, y, new, prior, k_max)
    draws = drawn(K, y, prior=prior, max_active=k_max, informed=informed)
    compare(draws, new, truth)


def test_drawn_precisions():
    _, y, K, new = problem(4, seed=4)
    prior = GPrior((6.0, 3.0), (5.0, 4.0))
    draws = drawn(K, y, prior=prior, sweeps=2500, rao_blackwell=True)
    truth = enumerated("probit", K, y, new, prior, power=14)
    compare(draws, new, truth)
    smooth, plain = draws.probability(new, rao_blackwell=True), draws.probability(new)
    np.testing.assert_allclose(smooth, truth[2][:2], atol=0.015)
    np.testing.assert_allclose(plain, truth[2][:2], atol=0.015)
    for at in (False, True):
        mean, variance = draws.moments(new, rao_blackwell=at)
        np.testing.assert_allclose(mean, draws.predictor(new).mean(0), atol=0.05)
        np.testing.assert_allclose(variance, draws.predictor(new).var(0), rtol=0.1)


def test_eight_rows_with_at_most_three_active():
    _, y, K, new = problem(8, seed=3)
    prior = GPrior(0.2, 0.5)
    draws = drawn(K, y, prior=prior, max_active=3, rao_blackwell=True)
    compare(draws, new, enumerated("probit", K, y, new, prior, 3))
    for t in range(0, 500, 50):
        # the law of (intercept, coefficients) given latents: covariance (C'C + diag(eta, g K_aa))^-1, C = [1, K_a]
        active = draws.index[draws.offset[t] : draws.offset[t + 1]]
        C, precision = np.column_stack((np.ones(8), K[:, active])), np.zeros((len(active) + 1,) * 2)
        precision[0, 0] = 0.5
        precision[1:, 1:] = 0.2 * (K[np.ix_(active, active)] + 1e-8 * np.eye(len(active)))
        mean, root = draws.conditional[t]
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(C.T @ C + precision), rtol=1e-6, atol=1e-9)
        assert abs(draws.intercept.ravel()[t] - mean[0]) < 5 * np.linalg.norm(root[0])


@pytest.mark.parametrize("likelihood", in_stages(["hinge", "probit", "logit"]))
def test_weights_and_losses_equal_enumeration(likelihood):
    """Whole weights for the probit, whose rows are copies; any for the others."""
    _, y, K, new = problem(4, seed=5)
    weight = np.array([2.0, 1.0, 0.0, 3.0]) if likelihood == "probit" else np.array([1.0, 0.7, 1.6, 1.0])
    truth = enumerated(likelihood, K, y, new, FIXED, 3, weight)
    draws = drawn(K, y, weight, likelihood=likelihood, prior=FIXED, max_active=3, rao_blackwell=True)
    compare(draws, new, truth)
    np.testing.assert_allclose(draws.probability(new, rao_blackwell=True), truth[2][:2], atol=0.015)


@pytest.mark.soak
def test_length_scale_equals_a_grid():
    X, y, _, _ = problem(4, seed=6)
    prior, length = GPrior(0.1, 0.8), LengthScale(lambda l: rbf(X, X, l), 1.2)
    grid = np.log(1.2) + np.linspace(-2.2, 2.2, 31)
    kernels = [rbf(X, X, np.exp(l)) for l in grid]
    p = np.array([enumerated("probit", K, y, K[:1], prior, 2, power=10)[-1] for K in kernels])
    p *= np.exp([length.log_prior(np.exp(l)) for l in grid])
    p /= p.sum()
    draws = drawn(rbf(X, X, 1.2), y, prior=prior, length=length, max_active=2, rao_blackwell=True)
    series = np.log(draws.values["length"])
    assert abs(z_score(series, p @ grid)) < LIMIT
    assert abs(z_score(series**2, p @ grid**2)) < LIMIT
    new, t = X[:2] + 0.1, 7
    f = draws.intercept.ravel()[t] + rbf(new, X, draws.values["length"].ravel()[t]) @ draws.matrix[[t]].toarray()[0]
    np.testing.assert_allclose(draws.predictor(lambda l, at: rbf(new, X[at], l))[t], f, atol=1e-9)
    smooth = draws.probability(lambda l, at: rbf(new, X[at], l), rao_blackwell=True)
    np.testing.assert_allclose(draws.probability(lambda l, at: rbf(new, X[at], l)), smooth, atol=0.015)
    with pytest.raises(ValueError, match="length scale was drawn"):
        draws.predictor(rbf(new, X))
