"""Inclusion probabilities by another way: the evidence of every model, by importance sampling around its mode."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, logsumexp
from scipy.stats import multivariate_t

INTERCEPT_SD = 1e4


def _normal(b, log_scale):
    return -0.5 * (b / np.exp(log_scale)) ** 2 - log_scale - 0.5 * np.log(2.0 * np.pi)


def _laplace(b, log_scale):
    return -np.abs(b) / np.exp(log_scale) - log_scale - np.log(2.0)


SLABS = {"normal": _normal, "laplace": _laplace}


def _log_target(theta, X, y, c, slab, scale):
    """Log of exp(-2 sum c max(1 - y f, 0)) times the prior at rows ``theta`` = (intercept, slopes[, log scale])."""
    slopes = theta[:, 1 : 1 + X.shape[1]]
    f = theta[:, :1] + slopes @ X.T
    value = -2.0 * np.maximum(1.0 - y * f, 0.0) @ c + _normal(theta[:, 0], np.log(INTERCEPT_SD))
    log_scale = theta[:, -1] if scale is None else np.full(len(theta), np.log(scale))
    if X.shape[1]:
        value = value + SLABS[slab](slopes, log_scale[:, None]).sum(axis=1)
    if scale is None:  # half-Cauchy(1), in log scale
        value = value + np.log(2.0 / np.pi) + log_scale - np.log1p(np.exp(2.0 * log_scale))
    return value


def log_evidence(X, y, c, slab, scale, draws, rng):
    """Log of the integral, its standard error, over intercept, slopes and, where ``scale`` is None, the scale."""
    d = 1 + X.shape[1] + (scale is None)
    start = np.zeros(d)
    f = lambda theta: -_log_target(theta[None], X, y, c, slab, scale)[0]  # noqa: E731
    mode = minimize(f, minimize(f, start, method="Nelder-Mead").x, method="Powell").x
    # the spread by two rounds of importance sampling, which need no derivatives of a function with kinks
    spread = 0.04 * np.eye(d)
    for size in (draws // 4, draws // 2, draws):
        proposal = multivariate_t(mode, spread, df=5, seed=rng)
        theta = proposal.rvs(size).reshape(size, d)
        log_w = _log_target(theta, X, y, c, slab, scale) - proposal.logpdf(theta)
        w = np.exp(log_w - logsumexp(log_w))
        mode = w @ theta
        spread = (theta - mode).T @ ((theta - mode) * w[:, None]) * 1.2 + 1e-8 * np.eye(d)
    error = np.sqrt(max(float(w @ w) - 1.0 / size, 0.0))
    return float(logsumexp(log_w)) - np.log(size), error


def model_evidences(X, y, c, slab, scale=None, draws=8000, seed=0):
    """The 2^p models, their log evidences and the standard errors of these."""
    rng = np.random.default_rng(seed)
    models = np.array(list(product((False, True), repeat=X.shape[1])))
    found = [log_evidence(X[:, gamma], y, c, slab, scale if gamma.any() else 1.0, draws, rng) for gamma in models]
    return models, *np.array(found).T


def inclusion(models, log_evidence, error, prior):
    """Inclusion probabilities and their standard errors; ``prior`` is a probability, or None for a uniform one."""
    size, p = models.sum(axis=1), models.shape[1]
    log_prior = betaln(1 + size, 1 + p - size) if prior is None else size * np.log(prior / (1.0 - prior))
    weight = np.exp(log_evidence + log_prior - logsumexp(log_evidence + log_prior))
    value = weight @ models
    return value, np.sqrt(((weight[:, None] * (models - value) * error[:, None]) ** 2).sum(axis=0))
