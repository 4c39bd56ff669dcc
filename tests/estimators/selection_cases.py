"""Estimators with priors that select, and data to fit them to."""

from __future__ import annotations

import numpy as np

from softmargin import BayesianSVC
from softmargin.priors import LaplaceZero, SpikeSlab

KINDS = {
    "spike-slab gibbs": (SpikeSlab(0.3), "gibbs"),
    "laplace-zero vb": (LaplaceZero(0.3), "vb"),
    "laplace-zero meanfield": (LaplaceZero(0.3), "meanfield"),
    "laplace-zero gibbs": (LaplaceZero(0.3), "gibbs"),
}
CHAINS = [kind for kind in KINDS if "gibbs" in kind]
APPROXIMATE = [kind for kind in KINDS if "gibbs" not in kind]
SHORT = {"draws": 3, "warmup": 2}  # few enough sweeps for rounding not to have grown


def make(kind, **parameters):
    prior, inference = KINDS[kind]
    settings = {"draws": 150, "warmup": 100, "chains": 2, "random_state": 0, "learning_rate": 0.5}
    return BayesianSVC(**{"prior": prior, "inference": inference} | settings | parameters)


def truth(n=100, p=5, seed=0):
    """The first two of p columns matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=n) > 0, 1, 0)
