"""The shared lists that parametrised tests run over: a new part is tested by adding it to its list."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.designs import Dense, Sparse, design_for, standardize
from softmargin.losses import (
    Check,
    CompleteHinge,
    EpsilonInsensitive,
    Hinge,
    Logit,
    NoisyHinge,
    Probit,
    Squared,
    SquaredHinge,
)
from softmargin.priors import Bridge, GroupLasso, HalfCauchy, Horseshoe, InverseGamma, Lasso, Ridge
from softmargin.solvers import Cholesky, Dual


class LossCase(NamedTuple):
    """A loss and the responses to test it at."""

    loss: Any
    responses: tuple[float, ...]


def each(parts):
    """The parts of a list as parameters of a test, with their names."""
    return [pytest.param(part, id=name) for name, part in parts.items()]


LOSSES = {
    "hinge": LossCase(Hinge(), (-1.0, 1.0)),
    "squared-hinge": LossCase(SquaredHinge(), (-1.0, 1.0)),
    "logit": LossCase(Logit(), (-1.0, 1.0)),
    "squared": LossCase(Squared(), (-3.0, 0.2)),
    "epsilon": LossCase(EpsilonInsensitive(0.1), (-3.0, 0.2)),
    "epsilon-zero": LossCase(EpsilonInsensitive(0.0), (0.2,)),
    "epsilon-wide": LossCase(EpsilonInsensitive(2.0), (0.2,)),
    "check": LossCase(Check(0.8), (-3.0, 0.2)),
    "probit": LossCase(Probit(), (-1.0, 1.0)),
    "noisy-hinge": LossCase(NoisyHinge(), (-1.0, 1.0)),
    "noisy-hinge-0.3": LossCase(NoisyHinge(0.3), (-1.0, 1.0)),
    "noisy-hinge-2": LossCase(NoisyHinge(2.0), (-1.0, 1.0)),
    "complete-hinge": LossCase(CompleteHinge(), (-1.0, 1.0)),
    "complete-hinge-0.3": LossCase(CompleteHinge(0.3), (-1.0, 1.0)),
    "complete-hinge-2": LossCase(CompleteHinge(2.0), (-1.0, 1.0)),
}

PRIORS = {
    "ridge": Ridge(),
    "ridge-fixed": Ridge(scale=0.5),
    "ridge-half-cauchy": Ridge(hyperprior=HalfCauchy(3.0)),
    "ridge-inverse-gamma": Ridge(hyperprior=InverseGamma(2.0, 1.0)),
    "ridge-vague": Ridge(hyperprior=InverseGamma(0.01, 0.01), intercept_scale=10.0),
    "lasso": Lasso(),
    "lasso-fixed": Lasso(scale=0.5),
    "bridge": Bridge(),
    "horseshoe": Horseshoe(),
    "group-lasso": GroupLasso(),
    "bridge-inverse-gamma": Bridge(alpha=1.5, hyperprior=InverseGamma(2.0, 1.0)),
}

SOLVERS = {"cholesky": Cholesky(), "dual": Dual()}


def dense_columns(n=23, p=4):
    """Columns of unlike units and centres."""
    rng = np.random.default_rng(7)
    return rng.normal(size=(n, p)) * np.geomspace(0.01, 50.0, p) + np.linspace(-3.0, 3.0, p)


def sparse_columns(n=23, p=6):
    """Mostly zeros, with one row of zeros and one full column."""
    rng = np.random.default_rng(8)
    X = np.where(rng.random((n, p)) < 0.3, rng.normal(size=(n, p)), 0.0)
    X[5], X[:, 2] = 0.0, rng.normal(size=n)
    return sp.csr_matrix(X)


def standardized(X, *, intercept=True, active=True):
    """The design that an estimator makes from X."""
    return design_for(X, standardize(X, np.linspace(0.5, 2.0, X.shape[0]), intercept=intercept, power=float(active)))


DESIGNS = {
    "dense": lambda: Dense.plain(dense_columns()),
    "dense-intercept": lambda: Dense.plain(dense_columns(), intercept=True),
    "dense-fortran": lambda: Dense.plain(np.asfortranarray(dense_columns()), intercept=True),
    "dense-one-row": lambda: Dense.plain(dense_columns(n=1), intercept=True),
    "dense-standardized": lambda: standardized(dense_columns()),
    "dense-standardized-fortran": lambda: standardized(np.asfortranarray(dense_columns())),
    "dense-no-intercept": lambda: standardized(dense_columns(), intercept=False),
    "dense-as-given": lambda: standardized(dense_columns(), active=False),
    "dense-far-from-zero": lambda: standardized(dense_columns() + 1e6),
    "dense-many-slabs": lambda: standardized(dense_columns(n=400, p=400)),
    "dense-constant-column": lambda: standardized(np.insert(dense_columns(), 1, 3.0, axis=1)),
    "sparse": lambda: Sparse(sparse_columns(), np.zeros(6), np.ones(6), False),
    "sparse-intercept": lambda: Sparse(sparse_columns(), np.zeros(6), np.ones(6), True),
    "sparse-standardized": lambda: standardized(sparse_columns()),
    "sparse-no-intercept": lambda: standardized(sparse_columns(), intercept=False),
    "sparse-far-from-zero": lambda: standardized(sp.csr_matrix(sparse_columns().toarray() + 30.0)),
}
