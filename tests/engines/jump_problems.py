"""Small kernel problems whose posteriors are enumerated: all active sets, each with an exact marginal likelihood."""

import itertools
import warnings

import numpy as np
from scipy.special import betaln, ndtri
from scipy.stats import gamma
from scipy.stats.qmc import Sobol

from softmargin.engines.kernel.active_chain import jitter_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz


def rbf(X, Z, length=1.5):
    return np.exp(-((X[:, None] - Z[None]) ** 2).sum(-1) / length**2)


def problem(n, seed=0, length=1.5):
    """Rows, labels and their kernel matrix, with two new rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[0], y[1] = 1.0, -1.0
    return X, y, rbf(X, X, length), rbf(np.array([[0.3, -0.2], [-1.0, 0.8]]), X, length)


def sets(n, k_max=None):
    """All active sets, as lists of rows."""
    for size in range((n if k_max is None else k_max) + 1):
        yield from (list(each) for each in itertools.combinations(range(n), size))


def log_prior(k, n, inclusion):
    return betaln(k + inclusion[0], n - k + inclusion[1]) - betaln(*inclusion)


def evidence(loss, link, K, y, weight, new, active, prior, power=14):
    """Averages over the prior of one active set, by quasi Monte Carlo: of the likelihood L, and of L times
    P(y* = 1) for every new row, log g and log eta."""
    k = len(active)
    u = Sobol(k + 3, rng=np.random.default_rng(k)).random_base2(power)
    normal = ndtri(u[:, 2:])
    eta, g = (
        gamma(pair[0] / 2, scale=2 / pair[1]).ppf(u[:, i]) if isinstance(pair, tuple) else np.full(len(u), pair)
        for i, pair in enumerate((prior.intercept, prior.shrinkage))
    )
    inner = K[np.ix_(active, active)] + jitter_of(K) * np.eye(k)
    beta = normal[:, 1:] @ np.linalg.inv(np.linalg.cholesky(inner)) / np.sqrt(g)[:, None]
    level = normal[:, :1] / np.sqrt(eta)[:, None]
    f, at = level + beta @ K[active], level + beta @ new[:, active].T
    one, L = np.ones(len(u)), np.ones(len(u))
    for i in range(len(y)):
        L = L * np.exp(loss.loglik(y[i] * one, weight[i] * one, f[:, i]))
    return L.mean(), np.array([*(L @ link(at) / len(u)), L @ np.log(g) / len(u), L @ np.log(eta) / len(u)])


def z_score(series, truth):
    """Distance of a chain's mean from the truth in standard errors; series (chains, draws)."""
    series = np.asarray(series, dtype=float)
    if np.ptp(series) == 0.0:
        return 0.0 if np.isclose(series.flat[0], truth, atol=1e-3) else np.inf
    return float((series.mean() - truth) / (series.std() / np.sqrt(float(arviz.ess(series, method="mean")))))


def inclusion_series(draws):
    """Indicators (rows, chains, draws)."""
    dense = draws.matrix.toarray() != 0.0
    return dense.T.reshape(draws.rows, *draws.intercept.shape)
