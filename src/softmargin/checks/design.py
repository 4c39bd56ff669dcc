"""Do designs and solvers keep the promises that the engines rely on?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import null_space

from softmargin.checks._compare import close
from softmargin.core.array import Array
from softmargin.core.space import Space
from softmargin.designs import Dense, Design, Sparse
from softmargin.solvers import Solver
from softmargin.solvers.full import Full

__all__ = ["check_design", "check_solver"]


def check_design(design: Design, space: Space | None = None) -> None:
    """Check every product that a design offers against the plain array of its rows, whole and by ranges of rows.

    Where entries are not known, rows are their means, and what the Gram matrix and the variances have beside those of
    the means is the derivative of ``excess`` and ``excess`` itself.

    Parameters
    ----------
    design : Design
        The design; its rows are copied once.
    space : Space or None
        Where the coefficients lie. It reads a Gram matrix with a structure of its own, which is compared by the
        Gaussian that it makes; without it the Gram matrix is a plain one.

    Examples
    --------
    >>> import numpy as np
    >>> from softmargin.checks import check_design
    >>> from softmargin.designs import Dense
    >>> check_design(Dense.plain(np.arange(12.0).reshape(4, 3), intercept=True))
    """
    (n, q), lead, rng = design.shape, int(design.intercept), np.random.default_rng(0)
    X = design.rows(np.arange(n))
    close(design, "rows has the shape of the design", X.shape, (n, q), 0.0)
    close(design, "the intercept is a column of ones in front", X[:, :lead], np.ones((n, lead)), 0.0)
    w, b, beta, root = rng.exponential(size=n), rng.normal(size=n), rng.normal(size=q), rng.normal(size=(q, 3))
    S, both = X[:, lead:], np.stack((w, b), axis=1)
    extra = _spread(design, w)  # of the Gram matrix, where entries are not known

    def same(what: str, got: Any, left: Array, right: Array) -> None:
        size = np.abs(left) @ np.abs(right)  # what rounding errors are proportional to
        close(design, what, got, left @ right, 1e-9 * (size + np.max(size)))

    ranges = ((0, None), (0, n // 3), (n // 3, n - 1), (n - 1, n)) if n > 3 and not design.whole else ((0, None),)
    for lo, hi in ranges:
        part, slopes, at = X[lo:hi], S[lo:hi], slice(lo, hi)
        where = f"over rows {lo} to {n if hi is None else hi}"
        same(f"matvec {where}", design.matvec(beta, lo, hi), part, beta)
        same(f"rmatvec {where}", design.rmatvec(b[at], lo, hi), part.T, b[at])
        gram, linear = design.gram(w[at], b[at], lo, hi)
        if space is None and extra is None:
            same(f"the matrix of gram {where}", gram, part.T * w[at], part)
        elif hi is None:
            A = (X.T * w) @ X + (0.0 if extra is None else extra)
            _check_gaussian(design, space or Full(), gram, A, linear)
        same(f"the vector of gram {where}", linear, part.T, b[at])
        same(f"matmat {where}", design.matmat(root[lead:], lo, hi), slopes, root[lead:])
        if space is None:  # a structured covariance has a root of its own
            _check_lengths(design, part, beta, root, lo, hi, where)
        if design.offers("norms"):
            squares = np.sum(slopes**2, axis=1)
            close(design, f"norms {where}", design.norms(lo, hi), squares, 1e-9 * (squares + squares.max()))
    if design.offers("outer"):
        same("outer", design.outer(), S, S.T)
    if design.offers("rmatmat"):
        same("rmatmat", design.rmatmat(both), S.T, both)
    close(design, "rows are those asked for", design.rows(np.arange(n)[::-2]), X[::-2], 0.0)


def _check_lengths(design: Design, part: Array, beta: Array, root: Array, lo: int, hi: int | None, where: str) -> None:
    """Variances of the predictors of some rows; entries that are not known add their own for each column of a root."""
    lengths, size = np.sum((part @ root) ** 2, axis=1), np.sum((np.abs(part) @ np.abs(root)) ** 2, axis=1)
    if design.offers("excess"):
        lengths = lengths + np.sum([design.excess(column, lo, hi) for column in root.T], axis=0)
    close(design, f"row_quad {where}", design.row_quad(root, lo, hi), lengths, 1e-9 * (size + lengths))
    if design.offers("moments"):
        f, v = design.moments(beta, root, lo, hi)
        near = 1e-9 * (np.abs(part) @ np.abs(beta) + 1.0)
        close(design, f"the means of moments {where}", f, part @ beta, near)
        close(design, f"the variances of moments {where}", v, lengths, 1e-9 * size)


def _spread(design: Design, w: Array) -> Array | None:
    """``sum_i w_i C_i`` with ``excess(beta)_i = beta' C_i beta``, from values of ``excess``; None without any."""
    if not design.offers("excess"):
        return None
    unit = np.eye(design.shape[1])
    own = np.array([w @ design.excess(column) for column in unit])
    pairs = [[w @ design.excess(one + other) for other in unit] for one in unit]
    return np.asarray(0.5 * (np.array(pairs) - own[:, None] - own[None, :]))


def _check_gaussian(design: Design, space: Space, gram: Any, A: Array, linear: Array) -> None:
    """The Gaussian that a space makes of a Gram matrix, against a dense solve where the space's equations hold."""
    q = len(linear)
    precision = np.linspace(0.5, 2.0, q) if space.uneven else np.concatenate(([0.05], np.full(q - 1, 1.7)))
    ties = space.ties(np.ones(q, dtype=bool))
    T = null_space(ties) if len(ties) else np.eye(q)
    covariance = T @ np.linalg.inv(T.T @ (A + np.diag(precision)) @ T) @ T.T
    found = space.gaussian(gram, linear, precision)
    near = space.accuracy * (1.0 + np.abs(covariance @ linear).max())
    close(design, "the mean by the matrix of gram", found.mean, covariance @ linear, near)
    close(design, "a solve by the matrix of gram", found.solve(linear), covariance @ linear, near)
    wanted = np.linalg.slogdet(T.T @ (A + np.diag(precision)) @ T)[1]
    close(design, "log determinant by the matrix of gram", found.logdet, wanted, space.accuracy * (1.0 + abs(wanted)))


def check_solver(solver: Solver) -> None:
    """Check a solver's coordinates and the Gaussian they give against a dense solve in the coefficients.

    Covers more rows than columns and fewer, with and without intercept, repeated rows and sparse columns: mean and
    covariance of the coefficients, ``log |A|`` and predictive variances, directions that no row sees included. Designs
    that do not offer what the solver needs are left out, and a solver whose space has no plain covariance is checked by
    its mean, its solves and its determinant.

    Parameters
    ----------
    solver : Solver
        The solver to check, under a normal prior with one precision for all slopes.

    Examples
    --------
    >>> from softmargin.checks import check_solver
    >>> from softmargin.solvers import Dual
    >>> check_solver(Dual())
    """
    rng = np.random.default_rng(0)
    for n, p, intercept in ((30, 5, False), (30, 5, True), (8, 20, False), (8, 20, True)):
        X = rng.normal(size=(n, p))
        thin = sp.csr_matrix(np.where(rng.random((n, p)) < 0.4, X, 0.0))
        designs: tuple[Design, ...] = (
            Dense.plain(X, intercept=intercept),
            Dense.plain(np.vstack((X[::2], X[::2])), intercept=intercept),
            Dense(X, X.mean(axis=0), 1.0 / X.std(axis=0), intercept),
            Sparse(thin, np.full(p, 0.1), np.full(p, 1.7), intercept),
        )
        for design in designs:
            if design.offers(*solver.needs_design):
                _check_coordinates(solver, design, rng)


def _check_coordinates(solver: Solver, design: Design, rng: np.random.Generator) -> None:
    """One design: random row messages, one precision tau for the slopes, another for the intercept."""
    tau, lead, (n, q), coordinates = 1.7, int(design.intercept), design.shape, solver.coordinates(design)
    X, basis, features, outside = design.rows(np.arange(n)), coordinates.basis, coordinates.design, np.zeros((q, q))
    r, space = features.shape[1], coordinates.space
    z, w, b = rng.normal(size=r), rng.exponential(size=n), rng.normal(size=n)
    close(solver, "the predictor in working coordinates is X beta", features.matvec(z), X @ coordinates.mean(z))
    if basis is not None:
        close(solver, "the basis is orthonormal", basis.T @ basis, np.eye(r - lead))
    prior = np.concatenate((np.full(lead, 0.05), np.full(q - lead, tau)))
    A, (gram, linear) = (X.T * w) @ X + np.diag(prior), features.gram(w, b)
    covariance = np.linalg.inv(A)
    found = space.gaussian(gram, linear, prior[:r])
    near = space.accuracy * (1.0 + np.abs(covariance @ X.T @ b).max())
    close(solver, "the mean of the coefficients is right", coordinates.mean(found.mean), covariance @ X.T @ b, near)
    log_det = np.linalg.slogdet(A)[1]
    found_log_det = found.logdet + (q - r) * math.log(tau)
    close(solver, "log |A| is right", found_log_det, log_det, space.accuracy * (1.0 + abs(log_det)))
    if not isinstance(found.root, np.ndarray):
        close(solver, "a solve is right", found.solve(prior), covariance @ prior, near)
        return
    root = coordinates.lift_root(found.root)
    new = Dense.plain(rng.normal(size=(3, q - lead)), intercept=design.intercept)
    rows, variance = new.rows(np.arange(3)), new.row_quad(root)
    if basis is not None:
        outside[lead:, lead:] = np.eye(q - lead) - basis @ basis.T
        close(solver, "unseen is the share outside the basis", coordinates.unseen(), outside.diagonal())
        seen, beyond = coordinates.features(new)
        variance = seen.row_quad(found.root) + beyond / tau
    close(solver, "the covariance of the coefficients is right", root @ root.T + outside / tau, covariance)
    close(solver, "predictive variance is right", variance, np.einsum("ij,jk,ik->i", rows, covariance, rows))
