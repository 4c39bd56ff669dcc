"""Multicategory problems: data, models in class coordinates, and a convex solver to compare with."""

import numpy as np
import scipy.sparse as sp

from softmargin.core.model import Model
from softmargin.designs import Dense
from softmargin.designs.classes import Pairs
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers import Dual
from softmargin.solvers.sum_to_zero import SumToZero


def simulated_classes(n, p, k, seed=0, *, signal=1.5):
    """Gaussian columns and overlapping classes, all present."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    scores = X @ (signal * rng.standard_normal((p, k))) + rng.gumbel(size=(n, k))
    label = scores.argmax(axis=1)
    label[:k] = np.arange(k)
    return X, label


def build_classes(
    X, label, *, k=None, prior=None, c=1.0, costs=None, intercept=True, dual=False, seed=0, workers=1, rows=None,
    own=0.0,
):  # fmt: skip
    """A model of pair rows with observation weights ``c``, coefficients k blocks that sum to zero."""
    label = np.asarray(label)
    k = int(label.max()) + 1 if k is None else k
    base = Dense.plain(np.ascontiguousarray(X, dtype=float), intercept=intercept)
    base = Dual().coordinates(base).design if dual else base
    pairs = Pairs.of(label, np.broadcast_to(np.asarray(c, dtype=float), label.shape), costs, k, own)
    design = pairs.design(base)
    prior = (Ridge(scale=1.0) if prior is None else prior).bind(design.free, rows, classes=k)
    blocks = Blocks(design, pairs.in_order(pairs.sign), pairs.in_order(pairs.weight), workers=workers)
    return Model(blocks, Hinge(), prior, design.free, Streams.from_random_state(seed), SumToZero.of(design))


def class_objective(X, label, beta, penalty, *, c=1.0, costs=None, intercept=True, own=0.0):
    """``2 sum_i c_i [sum_{r != y_i} L max(f_r + 1/(k-1), 0) + own max(1 - f_{y_i}, 0)] + penalty``."""
    n, k = len(label), len(beta)
    rows = np.column_stack((np.ones(n), X)) if intercept else X
    f = rows @ beta.T
    table = np.ones((k, k)) if costs is None else np.array(costs, dtype=float)
    loss = table[label] * np.maximum(f + 1.0 / (k - 1), 0.0)
    loss[np.arange(n), label] = own * np.maximum(1.0 - f[np.arange(n), label], 0.0)
    return 2.0 * float((loss.sum(axis=1) * c).sum()) + penalty(beta[:, int(intercept) :])


def convex_classes(
    X, label, *, ridge=0.0, lasso=0.0, group=0.0, c=1.0, costs=None, intercept=True, flat=1e-8, tied=True, own=0.0
):
    """The class coefficients (k x q) that minimise the objective, by Clarabel; ``tied`` imposes the sum to zero.

    The penalty is ``ridge |b|^2/2 + lasso |b|_1 + group sum_j |b_j|`` over slopes, ``flat`` squares on the intercepts.
    """
    import clarabel

    n, k, lead = len(label), int(label.max()) + 1, int(intercept)
    rows = np.column_stack((np.ones(n), X)) if intercept else X
    q = rows.shape[1]
    table = np.ones((k, k)) if costs is None else np.array(costs, dtype=float)
    table = table * (1.0 - np.eye(k))
    mine = np.eye(k)[label].ravel()  # pairs (i, r) with the row's own class
    weight = (np.broadcast_to(np.asarray(c, dtype=float), (n,))[:, None] * (table + own * np.eye(k))[label]).ravel()
    p = q - lead
    n_abs, n_length = (k * p if lasso else 0), (p if group else 0)
    size = k * q + n * k + n_abs + n_length
    square = np.concatenate((np.tile(np.r_[np.full(lead, flat), np.full(p, ridge)], k), np.zeros(size - k * q)))
    linear = np.concatenate((np.zeros(k * q), 2.0 * weight, np.full(n_abs, lasso), np.full(n_length, group)))

    def block(*parts):
        """Rows of the constraint matrix from (first column, matrix) pairs."""
        height = parts[0][1].shape[0]
        out = sp.lil_matrix((height, size))
        for first, matrix in parts:
            out[:, first : first + matrix.shape[1]] = matrix
        return out.tocsr()

    pairs = sp.kron(sp.csr_matrix(rows), sp.identity(k))  # row (i, r), column (variable, r)
    order = np.arange(k * q).reshape(k, q).T.ravel()  # of columns (variable, r) among (r, variable)
    scores = sp.csr_matrix(pairs)[:, np.argsort(order)]
    slack = -sp.identity(n * k)
    A = [block((0, sp.diags(1.0 - 2.0 * mine) @ scores), (k * q, slack)), block((k * q, slack))]
    right = [np.where(mine > 0.0, -1.0, -1.0 / (k - 1)), np.zeros(n * k)]
    cones = [clarabel.NonnegativeConeT(2 * n * k)]
    slopes = [r * q + lead + j for r in range(k) for j in range(p)]
    pick = sp.identity(k * q, format="csr")[slopes]
    if lasso:
        one = -sp.identity(n_abs)
        A += [block((0, pick), (k * q + n * k, one)), block((0, -pick), (k * q + n * k, one))]
        right.append(np.zeros(2 * n_abs))
        cones.append(clarabel.NonnegativeConeT(2 * n_abs))
    if group:
        for j in range(p):
            cone = sp.lil_matrix((k + 1, size))
            cone[0, size - n_length + j] = -1.0
            for r in range(k):
                cone[1 + r, r * q + lead + j] = -1.0
            A.append(cone.tocsr())
            right.append(np.zeros(k + 1))
            cones.append(clarabel.SecondOrderConeT(k + 1))
    if tied:
        A.append(block((0, sp.hstack([sp.identity(q)] * k))))
        right.append(np.zeros(q))
        cones.append(clarabel.ZeroConeT(q))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.max_iter = False, 1, 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(
        sp.diags(square).tocsc(), linear, sp.vstack(A).tocsc(), np.concatenate(right), cones, settings
    )
    return np.array(solver.solve().x)[: k * q].reshape(k, q)


def convex_scores(X, label, c, precision):
    """The minimum by Clarabel, over k free blocks: that they sum to zero is for the optimum to show."""
    import clarabel

    (n, q), k = X.shape, int(label.max()) + 1
    size = k * q + n
    G, right = np.zeros((n * k, size)), np.zeros(n * k)
    for i in range(n):
        for r in range(k):
            at = i * k + r
            G[at, k * q + i] = -1.0
            if r != label[i]:
                G[at, r * q : (r + 1) * q] = X[i]
                G[at, label[i] * q : (label[i] + 1) * q] = -X[i]
                right[at] = -1.0
    P = sp.diags(np.concatenate((np.tile(precision, k), np.zeros(n)))).tocsc()
    linear = np.concatenate((np.zeros(k * q), 2.0 * c))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(n * k)]
    solved = clarabel.DefaultSolver(P, linear, sp.csc_matrix(G), right, cones, settings).solve()
    return solved.obj_val, np.array(solved.x)[: k * q].reshape(k, q)
