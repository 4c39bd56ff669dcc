"""Probabilities of several classes from joint leave-one-out scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from softmargin.core.array import Array
from softmargin.designs.classes import helmert
from softmargin.loo.folds import folds

__all__ = ["ClassLeaveOneOut", "ClassLink", "fit_class_link", "joint_cavity", "matrix_cavity"]

_KAPPA = math.pi / 8.0
_LARGEST = 0.999
_FREEDOMS = (0.03, 0.1, 0.2, 0.4, 1.0, 3.0)  # prior standard deviations of E and the offsets that are tried
# Size of a typical row's logits from which a steeper slope is unlikely, and the standard deviation of its logarithm
# above it. Where lam u is far above one a slope is without bound, and a free matrix makes rows of little variance far
# too sure. Of sizes 1 to 4 and deviations 1/4 to 1 the best on 76 problems with 3 to 26 classes.
_STEEP, _STEEPER = math.log(4.0), 0.25
_FOLDS = 5
_NUMBERS = 2**18  # entries of covariance matrices, at most, in the rows that folds are made of
_FEWEST = 1000  # such rows at least
_FLATTERS = 0.7  # largest share from which scores that leave rows out are too good to judge a link by
_EXACT: Any = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-16, "gtol": 1e-8, "maxcor": 40}
_ROUGH: Any = {"maxiter": 60, "ftol": 1e-5, "gtol": 1e-2, "maxcor": 20}  # of fits that are only compared
_TURNED = 0.4  # a direction may be turned round by this share of the largest slope


@dataclass(frozen=True, eq=False)
class ClassLink:
    """``P = softmax(A'(t M z + o))`` of the contrast scores ``z = A f``, ``t = (1 + lam (pi/8) u)^(-1/2)``.

    A is the Helmert contrast and ``u = 2 tr(M Cov(z) M') / (k - 1)`` the mean variance of a difference of two logits.
    The matrix M is free, because linear scores that sum to zero mask a class that lies between others. With two classes
    it is the binary link with slope ``2 M``.
    """

    M: Array
    offset: Array
    lam: float

    def logits(self, f: Array, V: Array) -> Array:
        """Logits that sum to zero, of scores with means f (n x k) and covariances V (n x k x k)."""
        A = helmert(f.shape[1])
        h: Array = f @ A.T @ self.M.T @ A
        return h / np.sqrt(1.0 + self.lam * _KAPPA * _spread(self.M, _contrasts(A, V)))[:, None] + self.offset @ A

    def probability(self, f: Array, V: Array) -> Array:
        """Probabilities n x k."""
        return np.asarray(softmax(self.logits(f, V), axis=1))


class ClassLeaveOneOut(NamedTuple):
    """How well each observation is predicted without itself: mean log loss, error rate, and the largest share."""

    score: float
    error: float
    max_kv: float
    link: ClassLink

    @property
    def objective(self) -> float:
        """What fits are compared by."""
        return self.score

    @property
    def bend(self) -> None:
        """There is no curve in a link of several scores."""
        return None


def _contrasts(A: Array, V: Array) -> Array:
    """Covariances of the contrast scores."""
    return np.asarray(np.einsum("sr,irt,ut->isu", A, V, A, optimize=True))


def _spread(M: Array, V: Array) -> Array:
    """Mean variance of a difference of two logits, for every row."""
    return np.asarray(V.reshape(len(V), -1) @ (M.T @ M).ravel()) * (2.0 / len(M))


def joint_cavity(
    f: Array, V: Array, curvature: Array, slope: Array, part: Array, *, largest: float = _LARGEST
) -> tuple[Array, Array, float]:
    """Moments of the k scores of every observation without the part ``part`` of its own pairs, and the largest share.

    An observation's pairs contribute ``-sum_r curvature_r f_r^2/2 + (slope_r + curvature_r f_r) f_r`` to the log
    density, slope their derivative at the mean f. Without them ``V_- = (I - V Lam)^-1 V`` and ``f_- = f - V_- slope``,
    in a form that needs no inverse of the singular V. The share is the largest eigenvalue of ``Lam^(1/2) V Lam^(1/2)``.
    """
    root = np.sqrt(part[:, None] * curvature)
    return _without(f, V, root[:, :, None] * np.eye(f.shape[1]), part[:, None] * slope, largest)


def matrix_cavity(
    f: Array, V: Array, curvature: Array, slope: Array, part: Array, *, largest: float = _LARGEST
) -> tuple[Array, Array, float]:
    """The same where the scores of an observation share one loss: its curvature is a k x k matrix."""
    values, vectors = np.linalg.eigh(part[:, None, None] * curvature)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return _without(f, V, root, part[:, None] * slope, largest)


def _without(f: Array, V: Array, root: Array, slope: Array, largest: float) -> tuple[Array, Array, float]:
    """Moments without a message of precision ``root root'`` and derivative ``slope``."""
    across = V @ root
    values, vectors = np.linalg.eigh(root.transpose(0, 2, 1) @ across)
    turned = across @ vectors
    V_out = V + np.einsum("irt,it,ist->irs", turned, 1.0 / (1.0 - np.minimum(values, largest)), turned)
    f_out = f - np.einsum("irs,is->ir", V_out, slope)
    return f_out, V_out, float(values.max(initial=0.0))


def fit_class_link(
    label: Any, f: Array, V: Array, weight: Array, max_kv: float, *, count: Any = None, smooth: bool = False
) -> ClassLeaveOneOut:
    """Maximum likelihood of ``M = a I`` and lam, then penalised of ``M = a I + s E``, the offsets and lam.

    The entries of E and the offsets are N(0, freedom^2) with the freedom that folds of the scores prefer, and log lam
    is N(0, 1); s is a or, where that is more, the reciprocal size of the scores. Slopes that make typical logits larger
    than 4 have a normal tail in log a. No part depends on the contrast, so
    that the order of the classes does not matter. ``count`` says how many observations a row is. ``smooth`` takes
    targets (N_j + 1)/(N_j + k) and 1/(N_j + k) in place of 1 and 0, which bound the confidence where no variance does.
    """
    n, k = f.shape
    A = helmert(k)
    problem = _Problem(f @ A.T, _contrasts(A, V), _targets(label, weight, k, smooth), weight, A)
    x = np.zeros(problem.size)
    x[0] = 0.3
    ends = np.array([0, problem.size - 1])
    x[ends] = _minimised(problem, x, ends)
    worth = len(x) - 1.0 if max_kv > _FLATTERS else 0.0  # one unit of log likelihood per parameter that moves
    x = _freed(problem, x, label, np.ones(n) if count is None else count, worth)
    link = problem.link(x)
    logits = link.logits(f, V)
    loss, total = -log_softmax(logits, axis=1)[np.arange(n), label], float(weight.sum())
    error = float(weight @ (logits.argmax(axis=1) != label)) / total
    return ClassLeaveOneOut(float(weight @ loss) / total, error, max_kv, link)


def _freed(problem: _Problem, x: Array, label: Any, count: Array, worth: float) -> Array:
    """The link with a free matrix where that pays and does not turn the scores round; else as it was given.

    Without signal, scores that leave a row out point away from its class, and a free matrix would learn just that. So
    the matrix must keep the direction of the scores, all but little; where it does not, it is shrunk more. Where folds
    cannot be believed it must also gain more than ``worth`` in log likelihood.
    """
    moving = np.arange(1, problem.size)  # all but log a
    best = int(np.argmin(_left_out(problem, x, label, count)))  # 0 is the plain link
    most = problem.value(x)[0] - worth
    for freedom in _FREEDOMS[:best][::-1]:
        free, found = replace(problem, freedom=freedom), x.copy()
        found[moving] = _minimised(free, x, moving)
        M = free.link(found).M
        slopes = np.linalg.eigvalsh(0.5 * (M + M.T))
        kept = slopes[-1] > 0.0 and slopes[0] > -_TURNED * slopes[-1]
        if kept and (worth == 0.0 or free.value(found)[0] < most):
            return found
    return x


def _left_out(problem: _Problem, x: Array, label: Any, count: Array) -> Array:
    """Log loss of folds under links without them: of the plain link, then of those with more and more freedom."""
    moving, ends = np.arange(1, problem.size), np.array([0, problem.size - 1])
    own = (problem.z @ problem.A)[np.arange(len(label)), label]
    some = _some(label, own, max(_FEWEST, _NUMBERS // len(problem.A) ** 2))
    several = np.bincount(label, count)[label[some]] >= 2.0
    inside, alone = some[several], some[~several]  # the row of a class that has no other is never left out
    loss = np.zeros(1 + len(_FREEDOMS))
    for train, test in folds(label[inside], own[inside], count[inside], _FOLDS):
        rows = np.concatenate((inside[train.rows], alone))
        part = problem.of_rows(rows, np.concatenate((train.share, np.ones(len(alone)))))
        held, at = problem.of_rows(inside[test.rows], test.share), x.copy()
        at[ends] = _minimised(part, x, ends, _ROUGH)
        loss[0] += held.loss(part.link(at))
        for number, freedom in enumerate(_FREEDOMS, start=1):  # each from the one before
            free = replace(part, freedom=freedom)
            at[moving] = _minimised(free, at, moving, _ROUGH)
            loss[number] += held.loss(free.link(at))
    return loss


def _some(label: Any, own: Array, most: int) -> Array:
    """About ``most`` rows: of every class every so many by its own score, but as many as folds need.

    How free E should be depends on its size, not on the number of rows.
    """
    every, rows = len(label) // most + 1, []
    for r in np.unique(label):
        mine = np.flatnonzero(label == r)
        mine = mine[np.argsort(own[mine], kind="stable")]
        rows.append(mine[:: max(1, min(every, len(mine) // (4 * _FOLDS)))])
    return np.sort(np.concatenate(rows))


def _minimised(problem: _Problem, x: Array, moving: Any, options: Any = _EXACT) -> Array:
    """The best values of the entries that are ``moving``, log a and log lam inside a box."""

    def value(part: Array) -> tuple[float, Array]:
        at = x.copy()
        at[moving] = part
        total, gradient = problem.value(at)
        return total, gradient[moving]

    box = {0: (-6.0, 6.0), problem.size - 1: (-5.0, 5.0)}
    bounds = [box.get(int(j), (None, None)) for j in moving]
    start: Any = x[moving]
    return np.asarray(minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def _targets(label: Any, weight: Array, k: int, smooth: bool) -> Array:
    target = np.eye(k)
    if smooth:
        count = np.bincount(label, weight, k)[:, None]
        target = (count * target + 1.0) / (count + k)
    return np.asarray(target[label])


@dataclass(frozen=True, eq=False)
class _Problem:
    """Penalised negative log likelihood in (log a, E, offsets, log lam)."""

    z: Array
    V: Array
    target: Array
    weight: Array
    A: Array
    freedom: float = _FREEDOMS[0]

    @cached_property
    def unit(self) -> float:
        """Reciprocal size of the contrast scores."""
        size = float(self.weight @ (self.z * self.z).sum(axis=1)) / (float(self.weight.sum()) * len(self.A))
        return 1.0 / min(max(math.sqrt(size), 1e-100), 1e100)

    def matrix(self, log_a: float, E: Array) -> Array:
        """M of a slope and deviations from it."""
        a = math.exp(log_a)
        return np.asarray(a * np.eye(len(E)) + max(a, self.unit) * E)

    @property
    def size(self) -> int:
        m = len(self.A)
        return 2 + m * m + m

    def split(self, x: Array) -> tuple[float, Array, Array, float]:
        m = len(self.A)
        return float(x[0]), x[1 : 1 + m * m].reshape(m, m), x[1 + m * m : -1], float(x[-1])

    def link(self, x: Array) -> ClassLink:
        """The link at a point."""
        log_a, E, offset, log_lam = self.split(x)
        return ClassLink(self.matrix(log_a, E), offset, math.exp(log_lam))

    def of_rows(self, rows: Any, share: Any) -> _Problem:
        """The problem of some rows, and of a share of what they weigh."""
        z, V, target, weight = (part[rows] for part in (self.z, self.V, self.target, self.weight))
        return replace(self, z=z, V=V, target=target, weight=weight * share)

    def loss(self, link: ClassLink) -> float:
        """Log loss of the rows under a link."""
        t = 1.0 / np.sqrt(1.0 + link.lam * _KAPPA * _spread(link.M, self.V))
        logits = ((self.z @ link.M.T) * t[:, None] + link.offset) @ self.A
        return -float(self.weight @ (self.target * log_softmax(logits, axis=1)).sum(axis=1))

    def value(self, x: Array) -> tuple[float, Array]:
        """Value and gradient."""
        log_a, E, offset, log_lam = self.split(x)
        m, lam = len(self.A), math.exp(log_lam)
        a, M = math.exp(log_a), self.matrix(log_a, E)
        h = self.z @ M.T @ self.A
        u = _spread(M, self.V)
        t = 1.0 / np.sqrt(1.0 + lam * _KAPPA * u)
        eta = h * t[:, None] + offset @ self.A
        log_p = log_softmax(eta, axis=1)
        value = -float(self.weight @ (self.target * log_p).sum(axis=1))
        steep = max(log_a - math.log(self.unit) - _STEEP, 0.0) / _STEEPER
        value += 0.5 * ((float((E * E).sum()) + float(offset @ offset)) / self.freedom**2 + log_lam**2 + steep**2)
        residual = (np.exp(log_p) - self.target) * self.weight[:, None]
        along = (residual * h).sum(axis=1)  # derivative in t
        inner = (residual * t[:, None]) @ self.A.T  # derivative in M z
        pull = -0.5 * lam * _KAPPA * along * t**3  # derivative in u
        dM = inner.T @ self.z + (4.0 / m) * M @ (pull @ self.V.reshape(len(pull), -1)).reshape(m, m)
        gradient = np.concatenate(
            (
                [a * float(dM.trace() + ((dM * E).sum() if a > self.unit else 0.0)) + steep / _STEEPER],
                (max(a, self.unit) * dM + E / self.freedom**2).ravel(),
                residual.sum(axis=0) @ self.A.T + offset / self.freedom**2,
                [float(pull @ u) + log_lam],
            )
        )
        return value, gradient
