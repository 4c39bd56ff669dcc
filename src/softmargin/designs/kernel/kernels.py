"""Kernels: from a name, an object or a function to matrices, with a length that can be changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel as KernelObject
from sklearn.metrics.pairwise import (
    PAIRWISE_KERNEL_FUNCTIONS,
    euclidean_distances,
    manhattan_distances,
    pairwise_kernels,
)

from softmargin.core.array import Array

__all__ = ["Kernel", "check_eigenvalues", "check_kernel", "check_symmetric", "mean_distance", "resolve"]

_ROWS = 1000  # rows whose distances are averaged
_CHUNK = 256  # rows of a square block from which a function's diagonal is read
_ASYMMETRY = 1e-8  # relative to the largest entry
_NEGATIVE = 1e-8  # relative to the largest eigenvalue
_POWER = {"rbf": 2.0, "laplacian": 1.0}  # named kernels with gamma = length^-power


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel function k(x, z), with the length that its distances are divided by where it has one.

    ``"rbf"`` is ``exp(-|x - z|^2 / length^2)``, without a factor 2: that of Zhang, Dai and Jordan (2011), whose length
    is the mean distance of the training rows; scikit-learn's ``gamma`` is ``1 / length^2``. ``"laplacian"`` is
    ``exp(-|x - z|_1 / length)``.
    """

    form: Any  # a name, an object with ``diag``, or a function of two matrices
    length: float | None
    origin: Array | None = None  # subtracted from both arguments where only differences count: fewer digits cancel

    @property
    def precomputed(self) -> bool:
        """Whether the rows given are rows of the kernel matrix already."""
        return isinstance(self.form, str) and self.form == "precomputed"

    def matrix(self, X: Any, Z: Any = None) -> Array:
        """Matrix of k between the rows of X and those of Z, or of X itself."""
        if self.precomputed:
            return np.asarray(X, dtype=np.float64)
        if Z is not None and not Z.shape[0]:  # nothing to compare with
            return np.zeros((X.shape[0], 0))
        if not isinstance(self.form, str):
            # objects know that X is met by itself, and add what only its own rows have, as white noise
            alone = Z is None and isinstance(self.form, KernelObject)
            K = self.form(X) if alone else self.form(X, X if Z is None else Z)
        else:
            X, Z = self._moved(X), None if Z is None else self._moved(Z)
            options = {} if self.length is None else {"gamma": self.length ** -_POWER[self.form]}
            K = pairwise_kernels(X, Z, metric=self.form, **options)
        K = np.ascontiguousarray(K, dtype=np.float64)
        wanted = (X.shape[0], X.shape[0] if Z is None else Z.shape[0])
        if K.shape != wanted:
            raise ValueError(
                f"the kernel must return a matrix of shape {wanted} for these rows; it returned {K.shape}."
            )
        return K

    def diagonal(self, X: Any) -> Array:
        """k(x, x) of every row."""
        if self.precomputed:
            return np.diagonal(np.asarray(X, dtype=np.float64)).copy()
        if isinstance(self.form, str) and self.form in _POWER:
            return np.ones(X.shape[0])
        if isinstance(self.form, KernelObject):
            return np.asarray(self.form.diag(X), dtype=np.float64)
        parts = [np.diagonal(self.matrix(X[lo : lo + _CHUNK])) for lo in range(0, X.shape[0], _CHUNK)]
        return np.concatenate(parts)

    def with_length(self, length: float) -> Kernel:
        """The same kernel with another length."""
        if self.length is None:
            raise ValueError(f"kernel {self.form!r} has no length to change; use kernel='rbf', or fix length_scale.")
        if isinstance(self.form, str):
            return replace(self, length=float(length))
        from sklearn.base import clone

        return replace(self, form=clone(self.form).set_params(length_scale=float(length)), length=float(length))

    def by_length(self, X: Any, Z: Any = None) -> Callable[[float, Any], Array]:
        """The matrix of k between the rows of X and some rows of Z, or of X, as a function of the length and of these.

        The distances of named kernels are computed once.
        """
        if not isinstance(self.form, str):
            return lambda length, at: self.with_length(length).matrix(X, (X if Z is None else Z)[at])
        moved, other, power = self._moved(X), None if Z is None else self._moved(Z), _POWER[self.form]
        distance = (
            manhattan_distances(moved, other) if power == 1.0 else euclidean_distances(moved, other, squared=True)
        )
        return lambda length, at: np.exp(distance[:, at] * -(length**-power))

    def _moved(self, X: Any) -> Any:
        return X if self.origin is None or sp.issparse(X) else X - self.origin


def resolve(kernel: Any, length_scale: float | str | None, X: Any, weight: Array | None = None) -> Kernel:
    """The kernel that a name, object or function stands for, with its length set from the rows X.

    Parameters
    ----------
    kernel : str, object or callable
        A name that scikit-learn's ``pairwise_kernels`` knows, "precomputed", an object of
        ``sklearn.gaussian_process.kernels``, or a function of two matrices that returns the matrix of k.
    length_scale : float, "mean-distance", "learn" or None
        Length of "rbf", "laplacian" and of objects with one ``length_scale``; "learn" starts from the mean distance,
        None leaves an object as it is. Other kernels have none, and it is ignored.
    X : array or sparse matrix
        Training rows.
    weight : array, optional
        How often each row counts.
    """
    if isinstance(length_scale, str):
        if length_scale not in ("mean-distance", "learn"):
            raise ValueError(f"length_scale must be a number, 'mean-distance', 'learn' or None; got {length_scale!r}.")
    elif length_scale is not None and not (isinstance(length_scale, Real) and 0.0 < length_scale < np.inf):
        raise ValueError(f"length_scale must be positive; got {length_scale!r}.")
    if isinstance(kernel, str):
        known = sorted({*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"})
        if kernel not in known:
            raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(known)}, an object or a function.")
        if kernel not in _POWER:
            return Kernel(kernel, None)
        origin = None if sp.issparse(X) or kernel != "rbf" else np.asarray(X).mean(axis=0)
        found = Kernel(kernel, 1.0, origin)
        return found.with_length(mean_distance(X, weight) if isinstance(length_scale, str | None) else length_scale)
    if not callable(kernel):
        raise ValueError(f"kernel must be a name, a kernel object or a function of two matrices; got {kernel!r}.")
    own = kernel.get_params().get("length_scale") if isinstance(kernel, (KernelObject, BaseEstimator)) else None
    if not isinstance(own, Real):
        return Kernel(kernel, None)
    found = Kernel(kernel, float(own))
    if length_scale is None:
        return found
    return found.with_length(mean_distance(X, weight) if isinstance(length_scale, str) else length_scale)


def mean_distance(X: Any, weight: Array | None = None) -> float:
    """Mean Euclidean distance over pairs of different rows, of at most ``_ROWS`` rows; 1 if all rows are the same.

    Rows that repeat another one, or weigh more, do not pull the length towards zero.
    """
    n = X.shape[0]
    if n > _ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(n, _ROWS, replace=False))
        X, weight = X[chosen], None if weight is None else weight[chosen]
        n = _ROWS
    if sp.issparse(X):
        square = euclidean_distances(X)
        distance = square[np.triu_indices(n, 1)]
        distance[distance < 1e-7 * max(float(square.max()), 1e-300)] = 0.0  # what cancellation leaves of zero
    else:
        distance = pdist(np.asarray(X, dtype=np.float64))
    pair = (distance > 0.0).astype(float)
    if weight is not None:
        first, second = np.triu_indices(n, 1)
        pair *= weight[first] * weight[second]
    total = float(pair.sum())
    return float(pair @ distance) / total if total > 0.0 else 1.0


def check_symmetric(K: Array) -> None:
    """Refuse a training kernel matrix that is not square, finite and symmetric."""
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"a training kernel matrix must be square; got shape {K.shape}.")
    if not np.isfinite(K).all():
        raise ValueError("the kernel matrix has NaN or infinite entries; check the rows or the kernel.")
    apart, size = float(np.abs(K - K.T).max(initial=0.0)), float(np.abs(K).max(initial=0.0))
    if apart > _ASYMMETRY * size:
        raise ValueError(f"the kernel matrix is not symmetric (entries differ by {apart:.2g}); use a symmetric kernel.")


def check_eigenvalues(values: Array) -> None:
    """Refuse eigenvalues that are negative beyond rounding."""
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    if low < -_NEGATIVE * len(values) * max(high, 1e-300):
        raise ValueError(
            f"the kernel matrix is not positive semi-definite (smallest eigenvalue {low:.2g}, largest {high:.2g}); "
            "use a kernel that is, such as 'rbf'."
        )


def check_kernel(K: Array) -> None:
    """Refuse a training kernel matrix that is not symmetric positive semi-definite."""
    check_symmetric(K)
    check_eigenvalues(np.asarray(np.linalg.eigvalsh(K), dtype=np.float64))
