"""The mode along a grid of prior scales."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_X_y

from softmargin.core.array import Array
from softmargin.core.loop import Progress, run
from softmargin.core.model import Model, require
from softmargin.core.validation import (
    binary_labels,
    check_finite,
    check_names,
    check_numeric,
    check_rate,
    is_frame,
    row_weights,
)
from softmargin.engines.mode.path import ModePath
from softmargin.losses.hinge import Hinge
from softmargin.models.build import kept_columns, prepare, prior_of
from softmargin.refusals import refused
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["Path", "path"]

_POINTS, _SPAN = 50, 1e3  # the default grid


@dataclass(frozen=True, eq=False)
class Path:
    """Modes at given scales: ``coef`` on the user's scale, ``standardized`` per sd of the column.

    ``size`` counts slopes that are not zero, ``objective`` is the minimised one and ``gap`` its certified relative
    error.
    """

    scales: Array
    coef: Array
    intercept: Array
    standardized: Array
    size: Any
    objective: Array
    gap: Array
    feature_names: list[str]

    def to_frame(self) -> pd.DataFrame:
        """One row per scale: intercept, slopes, size, objective and gap."""
        frame = pd.DataFrame(self.coef, index=pd.Index(self.scales, name="scale"), columns=self.feature_names)
        frame.insert(0, "Intercept", self.intercept)
        return frame.assign(size=self.size, objective=self.objective, gap=self.gap)


def path(
    X: Any,
    y: Any,
    scales: Any = None,
    *,
    prior: Any = "lasso",
    learning_rate: float = 1.0,
    sample_weight: Any = None,
    class_weight: Any = None,
    fit_intercept: bool = True,
    standardize: bool = True,
    verbose: int = 0,
) -> Path:
    """Posterior modes along a grid of prior scales, each started from the one before.

    Parameters
    ----------
    X : array, sparse matrix or data frame of shape (n, p)
        Predictors.
    y : array of shape (n,)
        Two labels of any type.
    scales : array, optional
        Prior scales. Default: 50 values over three decades, from one at which every slope of the lasso is zero.
    prior : {"lasso", "ridge"} or prior object, default="lasso"
        A prior whose mode is a convex problem; its own scale is replaced by those of the grid.
    learning_rate : float, default=1.0
        The power of the likelihood, not a step size.
    sample_weight : array of shape (n,), optional
    class_weight : dict, "balanced" or None, default=None
    fit_intercept : bool, default=True
    standardize : bool, default=True
    verbose : int, default=0
        These five are as in ``BayesianSVC``.

    Returns
    -------
    Path

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> import softmargin
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> fits = softmargin.path(X, y, [0.003, 0.1])
    >>> fits.size.tolist()[0] < fits.size.tolist()[1]
    True
    """
    if isinstance(X, BaseEstimator):
        raise ValueError("path takes rows and classes, path(X, y), and fits them itself; leave the estimator out.")
    check_names(X, intercept=fit_intercept)
    check_numeric(X)
    names = _names(X)
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, order="C", ensure_all_finite=False)
    check_finite(X, names)
    check_rate(learning_rate, auto=False)
    classes, index = binary_labels(y)
    count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weight = row_weights(count, index, classes, class_weight)
    sign = np.where(index == 1, 1.0, -1.0)
    used = count > 0
    if not used.all():
        X, sign, count, weight = X[used], sign[used], count[used], weight[used]
    columns = kept_columns(X, count, intercept=fit_intercept, standardized=standardize)
    with one_blas_thread():
        streams = Streams.from_random_state(0)  # nothing is drawn
        problem = prepare(
            X, sign, count, learning_rate * weight, columns, prior=prior_of(prior), loss=Hinge(), streams=streams
        )
        model = problem.model
        if model.prior.centre is not None:
            raise ValueError(refused("means along a path", what="path"))
        grid = _grid(model, scales)
        order = np.argsort(grid, kind="stable")
        engine = ModePath(grid[order])
        require(engine, loss=model.loss, prior=model.prior)
        outcome = run(engine, model, max_iter=len(grid), progress=Progress("path", len(grid), verbose))
    if outcome.interrupted:
        warnings.warn(
            f"the path was stopped after {outcome.n_iter} of {len(grid)} scales; these are kept.",
            ConvergenceWarning,
            stacklevel=2,
        )
        order = order[: outcome.n_iter]
    back = np.argsort(order, kind="stable")
    grid, points = grid[np.sort(order)], [outcome.state[k] for k in back]
    beta = problem.coordinates.mean(np.array([point.beta for point in points]))
    coef, intercept = columns.to_user(beta)
    spread = kept_columns(X, count, intercept=fit_intercept, standardized=True)
    standardized = np.zeros_like(coef)
    standardized[:, spread.keep] = coef[:, spread.keep] / spread.scale
    return Path(
        grid,
        coef,
        np.asarray(intercept),
        standardized,
        np.count_nonzero(coef, axis=1),
        np.array([point.certificate.objective for point in points]),
        np.array([point.certificate.gap for point in points]),
        [f"x{j}" for j in range(columns.n_features)] if names is None else [str(name) for name in names],
    )


def _names(X: Any) -> Any:
    """Column names of a data frame, or None."""
    columns = list(X.columns) if is_frame(X) else []
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def _grid(model: Model, scales: Any) -> Array:
    if scales is None:
        # with these multipliers zero slopes are optimal up to this rate of |beta|
        c, up = model.c, model.y > 0
        light = min(c[up].sum(), c[~up].sum())
        g = 2.0 * c * (np.where(up, light / c[up].sum(), light / c[~up].sum()) if model.free.any() else 1.0)
        top = float(np.abs(model.blocks.rmatvec(model.y * g))[~model.free].max(initial=0.0))
        return np.asarray(np.geomspace(1.0, _SPAN, _POINTS) / max(top, 1e-300))
    if isinstance(scales, str):
        raise ValueError(f"scales must be a list of positive numbers; got {scales!r}: a prior goes by name, prior=....")
    grid = np.asarray(scales, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not (np.isfinite(grid) & (grid > 0)).all():
        raise ValueError("scales must be a list of positive numbers.")
    return grid
