"""The mode of a linear support vector machine by Clarabel, stated so that its answer can be trusted."""

import clarabel
import numpy as np
import scipy.sparse as sp

from softmargin.priors import Ridge


def columns_of(X, weight, standardized):
    """The columns that the prior is about, with their means and spreads."""
    if not standardized:
        return X, np.zeros(X.shape[1]), np.ones(X.shape[1])
    mean = weight @ X / weight.sum()
    spread = np.sqrt(weight @ (X - mean) ** 2 / weight.sum())
    return (X - mean) / spread, mean, spread


def objective(Z, y, c, start, beta, prior):
    """``2 c'max(1 - y f, 0)`` and the penalties of slopes and intercept, without the library."""
    size = 0.5 * float(beta @ beta) / prior.scale**2 if isinstance(prior, Ridge) else np.abs(beta).sum() / prior.scale
    return (
        2.0 * float(c @ np.maximum(1.0 - y * (start + Z @ beta), 0.0))
        + size
        + 0.5 * (start / prior.intercept_scale) ** 2
    )


def clarabel_optimum(Z, y, c, prior):
    """The lowest objective that Clarabel finds, the coefficients stated in several units and bases.

    Ridge problems are also stated in the singular vectors of the rows, where every direction has a unit of its own.
    """
    n, p = Z.shape
    ridge, s, s0 = isinstance(prior, Ridge), prior.scale, prior.intercept_scale
    bases = [(np.eye(p), Z)]
    if ridge:
        left, size, right = np.linalg.svd(Z, full_matrices=False)
        bases.append((right.T, left * size))
    best = np.inf
    for basis, rows in bases:
        largest, q = np.maximum(np.abs(rows).max(axis=0), 1e-300), rows.shape[1]
        for unit, unit0 in ((np.full(q, s), s0), (np.minimum(s, 1.0 / largest), min(s0, 1.0))):
            K = y[:, None] * np.column_stack((np.full(n, unit0), rows * unit))
            if ridge:
                square = np.concatenate(([unit0 / s0], unit / s, np.zeros(n))) ** 2
                linear, hinge = np.concatenate((np.zeros(1 + q), 2.0 * c)), sp.hstack((-K, -sp.identity(n)))
            else:  # positive and negative parts
                square = np.concatenate(([(unit0 / s0) ** 2], np.zeros(2 * q + n)))
                linear = np.concatenate(([0.0], np.tile(unit / s, 2), 2.0 * c))
                hinge = sp.hstack((-K, K[:, 1:], -sp.identity(n)))
            bound = n if ridge else 2 * q + n
            positive = sp.hstack((sp.csr_matrix((bound, hinge.shape[1] - bound)), -sp.identity(bound)))
            settings = clarabel.DefaultSettings()
            settings.verbose, settings.max_threads, settings.max_iter = False, 1, 500
            settings.tol_gap_abs, settings.tol_gap_rel, settings.tol_feas = 1e-14, 1e-12, 1e-12
            right_side = np.concatenate((-np.ones(n), np.zeros(bound)))
            parts = sp.diags(square).tocsc(), linear, sp.vstack((hinge, positive)).tocsc(), right_side
            x = np.array(clarabel.DefaultSolver(*parts, [clarabel.NonnegativeConeT(n + bound)], settings).solve().x)
            z = x[1 : 1 + q] if ridge else x[1 : 1 + q] - x[1 + q : 1 + 2 * q]
            value = objective(Z, y, c, x[0] * unit0, basis @ (z * unit), prior)
            best = min(best, value) if np.isfinite(value) else best
    return best
