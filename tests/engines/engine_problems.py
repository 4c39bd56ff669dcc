"""Problems for the engines: data, models, and independent computations to compare with."""

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from softmargin.core.model import Model
from softmargin.designs import Dense, Sparse, design_for, standardize
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers import Cholesky, Dual
from softmargin.solvers.full import Full


def real_data(name):
    """Columns and -1/+1 labels of a named set from the folder in SOFTMARGIN_DATA; skip the test without it."""
    folder = os.environ.get("SOFTMARGIN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    if name == "a9a":
        X, y = load_svmlight_file(str(Path(folder) / "a9a.svm.gz"), n_features=123)
        X.sort_indices()
        return X, y
    if name == "colon":
        file = np.load(Path(folder) / "colon.npz")
        return file["X"].astype(float), file["y"].astype(float)
    frame = pd.read_csv(Path(folder) / f"{name}.csv.gz")
    return np.ascontiguousarray(frame.iloc[:, :-1].to_numpy(float)), frame.iloc[:, -1].to_numpy(float)


def simulated(n, p, seed=0, *, signal=1.0, offset=0.3):
    """Gaussian columns and overlapping classes, both present."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    f = offset + X @ (signal * rng.standard_normal(p) / math.sqrt(p))
    y = np.where(f + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def separable(n=80, p=5, seed=3):
    """Classes that the first column separates."""
    X = np.random.default_rng(seed).standard_normal((n, p))
    return X, np.where(X[:, 0] > 0.0, 1.0, -1.0)


def copies(seed=5):
    """Twelve distinct rows, each with many copies and with labels of both kinds: the shape of the titanic data."""
    rng = np.random.default_rng(seed)
    distinct = np.array([[a, b, c] for a in (-1.0, 0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0)])
    X = np.repeat(distinct, rng.integers(5, 60, size=12), axis=0)
    y = np.where(rng.random(len(X)) < 1.0 / (1.0 + np.exp(-X @ [1.0, -1.5, 0.8])), 1.0, -1.0)
    return X, y


def build(X, y, *, c=1.0, prior=None, intercept=True, standardized=False, dual=False, seed=0, n_blocks=None, workers=1):
    """A model of hinge rows with weights ``c``, the prior on all columns but the intercept."""
    prior = Ridge(scale=1.0) if prior is None else prior
    y = np.asarray(y, dtype=float)
    if standardized:
        design = design_for(X, standardize(X, np.ones(len(y)), intercept=intercept))
    elif sp.issparse(X):
        design = Sparse(X, np.zeros(X.shape[1]), np.ones(X.shape[1]), intercept)
    else:
        design = Dense.plain(np.ascontiguousarray(X, dtype=float), intercept=intercept)
    design = (Dual() if dual else Cholesky()).coordinates(design).design
    free = np.zeros(design.shape[1], dtype=bool)
    free[: int(intercept)] = True
    weight = np.broadcast_to(np.asarray(c, dtype=float), y.shape).copy()
    blocks = Blocks(design, y, weight, n_blocks=n_blocks, workers=workers)
    return Model(blocks, Hinge(), prior.bind(free), free, Streams.from_random_state(seed), Full())


def rows_of(model):
    """All rows of the design as a dense array."""
    return model.blocks.design.rows(np.arange(len(model.y)))


def penalty_of(model):
    """The penalty of a prior with a fixed scale."""
    return Penalty(*model.prior.penalty(model.prior.start().values["scale"]))


def ridge_objective(model, beta, precision):
    """``2 sum c max(1 - y f, 0) + beta'D beta/2``, without the library's loss."""
    u = 1.0 - model.y * (rows_of(model) @ beta)
    return 2.0 * float(model.c @ np.maximum(u, 0.0)) + 0.5 * float(precision @ beta**2)


def quadratic_programme(model, precision):
    """Minimise ``2 c'max(1 - y f, 0) + beta'D beta/2`` with Clarabel; return the coefficients.

    The programme is stated in the raw columns, ``f = a + X gamma`` with ``gamma = scale * beta`` and the equation
    ``a + shift'gamma = beta_0``, so that a sparse matrix stays sparse.
    """
    import clarabel

    design, y, c = model.blocks.design, model.y, model.c
    raw, slope, lead = sp.csr_matrix(design.X), 1.0 / design.scale, int(design.intercept)
    n, p = raw.shape
    # variables: a, gamma, beta_0 where there is an intercept, xi
    P = np.concatenate(([0.0], precision[lead:] * slope**2, precision[:lead], np.zeros(n)))
    q = np.concatenate((np.zeros(1 + p + lead), 2.0 * c))
    equation = sp.hstack((np.ones((1, 1)), design.shift[None, :], -np.ones((1, lead)), sp.csr_matrix((1, n))))
    hinge = sp.hstack((-y[:, None], -sp.diags(y) @ raw, sp.csr_matrix((n, lead)), -sp.identity(n)))
    positive = sp.hstack((sp.csr_matrix((n, 1 + p + lead)), -sp.identity(n)))
    A = sp.vstack((equation, hinge, positive)).tocsc()
    right = np.concatenate(([0.0], -np.ones(n), np.zeros(n)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.max_iter = False, 1, 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    x = np.array(clarabel.DefaultSolver(sp.diags(P).tocsc(), q, A, right, cones, settings).solve().x)
    return np.concatenate((x[1 + p : 1 + p + lead], x[1 : 1 + p] * slope))


# --- quadrature -----------------------------------------------------------------------------------------------


def hinge_loglik(f, y, c):
    """Sum over rows (last axis) of ``-2 c max(1 - y f, 0)``."""
    return -2.0 * (np.maximum(1.0 - y * f, 0.0) * c).sum(axis=-1)


def normal_logpdf(x, sd):
    return -0.5 * (x / sd) ** 2 - np.log(sd) - 0.5 * math.log(2.0 * math.pi)


def log_integral(log_density, *axes):
    """Logarithm of the integral over a grid, by the trapezium rule."""
    top = log_density.max()
    value = np.exp(log_density - top)
    for axis in reversed(axes):
        value = np.trapezoid(value, axis, axis=-1)
    return top + math.log(value)


def grid_expectation(values, log_density, *axes):
    """Mean of ``values`` under the density proportional to exp(log_density) on a grid."""
    weight = np.exp(log_density - log_density.max())
    numerator, denominator = values * weight, weight
    for axis in reversed(axes):
        numerator, denominator = np.trapezoid(numerator, axis, axis=-1), np.trapezoid(denominator, axis, axis=-1)
    return float(numerator / denominator)


def expected(function, log_density, low=-60.0, high=60.0, nodes=24001):
    """E function(x) over x > 0 with normalised log density, by the trapezium rule in log x."""
    t = np.linspace(low, high, nodes)
    x = np.exp(t)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weight = np.exp(log_density(x) + t)
        value = np.where(weight > 0.0, function(x), 0.0)
    return float(np.trapezoid(weight * value, t))


def inverse_gamma_logpdf(x, shape, rate):
    return shape * math.log(rate) - math.lgamma(shape) - (shape + 1.0) * np.log(x) - rate / x


class ScaleFactor:
    """The optimal mean-field density of a learned variance given E, the expected sum of r squares, and its bound.

    For the half-Cauchy the two inverse-gamma densities are found by plain alternation.
    """

    def __init__(self, hyperprior, E, r):
        self.hyperprior, self.E, self.r = hyperprior, E, r
        if hasattr(hyperprior, "a"):
            self.shape, self.rate = hyperprior.a + 0.5 * r, hyperprior.b + 0.5 * E
        else:
            self.shape, inverse_t = 0.5 * (r + 1), 1.0
            for _ in range(100_000):
                self.rate = inverse_t + 0.5 * E
                last, inverse_t = inverse_t, 1.0 / (self.shape / self.rate + hyperprior.scale**-2)
                if abs(inverse_t - last) < 1e-15 * last:
                    break
            self.rate_t = self.shape / self.rate + hyperprior.scale**-2
        self.precision = self.shape / self.rate

    def bound(self):
        """E log p(beta | variance) p(variance) - E log q(variance), by quadrature, without the entropy of beta."""

        def log_q(x):
            return inverse_gamma_logpdf(x, self.shape, self.rate)

        def conditional(x):
            return -0.5 * self.r * np.log(2.0 * math.pi * x) - 0.5 * self.E / x

        if hasattr(self.hyperprior, "a"):
            prior = self.hyperprior
            return expected(lambda x: conditional(x) + inverse_gamma_logpdf(x, prior.a, prior.b) - log_q(x), log_q)

        def log_q_t(t):
            return inverse_gamma_logpdf(t, 1.0, self.rate_t)

        # log IG(variance; 1/2, 1/t) is a sum of products of functions of one variable each
        mean_log_t, mean_inverse_t = expected(np.log, log_q_t), expected(lambda t: 1.0 / t, log_q_t)
        constant = -0.5 * mean_log_t - math.lgamma(0.5)
        first = expected(lambda x: conditional(x) + constant - 1.5 * np.log(x) - mean_inverse_t / x - log_q(x), log_q)
        rate = self.hyperprior.scale**-2
        return first + expected(lambda t: inverse_gamma_logpdf(t, 0.5, rate) - log_q_t(t), log_q_t)


def log_scale_density(hyperprior, log_scale):
    """Log density of log nu where nu^2 ~ IG(a, b) or nu ~ half-Cauchy(scale)."""
    nu = np.exp(log_scale)
    if hasattr(hyperprior, "a"):
        return inverse_gamma_logpdf(nu**2, hyperprior.a, hyperprior.b) + np.log(2.0 * nu**2)
    s = hyperprior.scale
    return math.log(2.0 / (math.pi * s)) - np.log1p((nu / s) ** 2) + log_scale


def unseen_constant(hyperprior, p, r):
    """What p - r coefficients that no row sees add to the bound: nothing at a fixed scale.

    At the optimum the rate of the variance's density is shape/precision, so the precision cancels.
    """
    if hyperprior is None:
        return 0.0

    def part(size):
        shape = hyperprior.a + 0.5 * size if hasattr(hyperprior, "a") else 0.5 * (size + 1)
        return math.lgamma(shape) - shape * math.log(shape)

    return part(p) - part(r) + 0.5 * (p - r)
