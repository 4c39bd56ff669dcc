"""The shared lists that parametrised tests run over: a new part is tested by adding it to its list."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin.core.model import Model
from softmargin.designs import Dense, Sparse, design_for, standardize
from softmargin.designs.classes import ClassDesign
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.imputed import given_observed
from softmargin.designs.stored import Stored
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
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
from softmargin.priors import (
    Bridge,
    GroupLasso,
    HalfCauchy,
    HalfT,
    Horseshoe,
    InverseGamma,
    LaplaceZero,
    Lasso,
    Ridge,
    SpikeSlab,
    TermPrior,
    Terms,
)
from softmargin.rows.in_memory import Blocks
from softmargin.rows.stored.tables import spooled
from softmargin.rows.streams import Streams
from softmargin.solvers import Cholesky, ConjugateGradients, Dual
from softmargin.solvers.arrowhead import Arrowhead
from softmargin.solvers.full import Full
from softmargin.solvers.sum_to_zero import SumToZero
from softmargin.unknowns.missing import Missing
from softmargin.unknowns.noise import Noise
from softmargin.unknowns.term_scales import TermScales


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
    "group-lasso-of-columns": GroupLasso(0.7, groups=[[0, 1]]),
    "bridge-inverse-gamma": Bridge(alpha=1.5, hyperprior=InverseGamma(2.0, 1.0)),
    "spike-slab": SpikeSlab(),
    "spike-slab-fixed": SpikeSlab(inclusion=0.2, scale=1.5),
    "laplace-zero": LaplaceZero(),
    "laplace-zero-learned": LaplaceZero(inclusion="learn", scale=0.5),
}

ENGINES = {"vb": GaussianVI(), "meanfield": MeanField(), "em": EM()}
INFERENCES = ("map", "vb", "meanfield", "gibbs", "hmc", "svi")
SOLVERS = {"cholesky": Cholesky(), "dual": Dual(), "conjugate-gradients": ConjugateGradients()}


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


def stored(X, intercept=True):
    """Standardized columns of rows in a file."""
    return Stored.of(spooled(iter((X[:10], X[10:]))), standardize(X, np.ones(len(X)), intercept=intercept))


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
    "stored": lambda: stored(dense_columns()),
    "stored-no-intercept": lambda: stored(dense_columns(), intercept=False),
    "stored-far-from-zero": lambda: stored(dense_columns() + 1e6),
    "sparse": lambda: Sparse(sparse_columns(), np.zeros(6), np.ones(6), False),
    "sparse-intercept": lambda: Sparse(sparse_columns(), np.zeros(6), np.ones(6), True),
    "sparse-standardized": lambda: standardized(sparse_columns()),
    "sparse-no-intercept": lambda: standardized(sparse_columns(), intercept=False),
    "sparse-far-from-zero": lambda: standardized(sp.csr_matrix(sparse_columns().toarray() + 30.0)),
    "implicit": lambda: standardized(sparse_columns()).implicit(),
    "completed": lambda: given_observed(dense_with_holes(), np.zeros(4), precision_of(4), intercept=True),
    "grouped": lambda: Grouped(standardized(dense_columns()), (GROUPS, GroupTerm.intercept(np.arange(23) % 2))),
    "grouped-nested": lambda: Grouped(standardized(dense_columns()), (GROUPS,)),
    "classes": lambda: ClassDesign.of(standardized(dense_columns(n=9)), np.arange(27).reshape(3, 9) % 4),
}
GROUPS = GroupTerm(np.arange(23) % 5, 5, np.column_stack((np.ones(23), np.linspace(-1.0, 1.0, 23))))
SPACES = {  # of the designs whose Gram matrix has a structure of its own
    "implicit": lambda design: ConjugateGradients().coordinates(design).space,
    "grouped": lambda design: Arrowhead(),
    "grouped-nested": lambda design: Arrowhead(),
    "classes": SumToZero.of,
}


def precision_of(d):
    """A precision matrix with neighbours that go together."""
    return np.eye(d) + 0.4 * (np.eye(d, k=1) + np.eye(d, k=-1))


def dense_with_holes(n=23):
    """Standardized columns, an entry in five missing."""
    rng = np.random.default_rng(9)
    return np.where(rng.random((n, 4)) < 0.2, np.nan, rng.normal(size=(n, 4)))


def model_of(X, y, loss, prior, *, intercept=True, known=0, **more):
    """A plain model of dense rows."""
    design = Dense.plain(np.ascontiguousarray(X, dtype=float), intercept=intercept)
    free = np.zeros(design.shape[1], dtype=bool)
    free[: int(intercept)] = True
    blocks = Blocks(design, np.asarray(y, dtype=float), np.ones(len(y)))
    streams = Streams.from_random_state(0)
    return Model(blocks, loss, prior.bind(free, **more), free, streams, Full(), known=known)


class UnknownCase(NamedTuple):
    """An unknown, a model without it, and whether its densities are of no restricted family."""

    unknown: Any
    model: Any
    exact: bool


def _response(n=23):
    return dense_columns(n)[:, 0] * 30.0 + np.random.default_rng(3).normal(size=n)


def _terms(prior):
    """Columns of five groups behind two others."""
    rng, groups = np.random.default_rng(5), np.eye(5)[np.arange(40) % 5]
    X, y = np.column_stack((rng.normal(size=(40, 2)), groups)), rng.choice([-1.0, 1.0], 40)
    model = model_of(X, y, Logit(), Terms(prior, (TermPrior(("sd(g)",), 5),)), known=5)
    return UnknownCase(TermScales(), model, exact=False)


def _regression(unknown, loss, *, exact=True):
    return UnknownCase(unknown, model_of(dense_columns(), _response(), loss, Ridge(scale=1.0)), exact)


def _holes():
    model = model_of(dense_with_holes(), np.sign(_response()), Hinge(), Ridge(scale=1.0))
    return UnknownCase(Missing(), model, exact=False)


UNKNOWNS = {
    "noise-squared": lambda: _regression(Noise(HalfT(1.0)), Squared()),
    "noise-epsilon": lambda: _regression(Noise(HalfT(1.0)), EpsilonInsensitive(0.2)),
    "noise-given": lambda: _regression(Noise(HalfT(1.0), level=0.7), Check(0.8)),
    "noise-band": lambda: _regression(Noise(HalfT(1.0), width_prior=HalfT(1.0)), EpsilonInsensitive(0.2), exact=False),
    "missing": _holes,
    "term-scales": lambda: _terms(Ridge(scale=1.0)),
    "term-scales-beside-point-masses": lambda: _terms(SpikeSlab()),
}
