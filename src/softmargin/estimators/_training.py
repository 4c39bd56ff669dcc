"""Training rows, checked: predictors, response, counts, groups, and entries that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import _check_sample_weight, _check_y, validate_data

from softmargin.core.array import Array
from softmargin.core.validation import (
    IMPUTE,
    check_finite,
    check_names,
    check_numeric,
    check_observed,
    fitted,
    is_frame,
    summed,
)
from softmargin.designs.standardize import Columns
from softmargin.estimators._indicators import Indicators
from softmargin.models.build import kept_columns
from softmargin.models.random_effects.terms import Labelled, effects_of, separated
from softmargin.refusals import refused
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.memory import check_room

__all__ = ["Training", "training_rows", "without_frame"]

_DENSE = (
    "a sparse matrix holds no missing values: give dense columns, X.toarray(), where they are part of the model, or "
    + IMPUTE
)
_MATRICES, _VECTORS = 3, 12  # of the size of the coefficients and of the rows that a fit has at once


class Training(NamedTuple):
    """What a fit needs to know of its rows; those that count zero times are left out."""

    X: Any  # with labels where there are groups
    y: Any
    counts: Array  # how often each row counts
    columns: Columns
    effects: tuple[Any, ...]
    incomplete: bool  # whether entries are missing and to be modelled
    used: Any  # which of the given rows these are
    indicators: Indicators | None  # where missing entries are marked instead


def without_frame(X: Any) -> Any:
    """X, as an array where it has no columns: scikit-learn does not take a data frame of none."""
    return X.to_numpy() if is_frame(X) and not X.shape[1] else X


def training_rows(
    machine: Any, X: Any, y: Any, sample_weight: Any, groups: Any, *, encode: Callable[[Any], Any], **checks: Any
) -> Training:
    """Check and separate the rows of a fit; ``encode`` makes the response numbers, ``checks`` go to scikit-learn."""
    if isinstance(X, Elsewhere):
        return _elsewhere(machine, X, y, sample_weight, groups, encode, **checks)
    effects = effects_of(machine.random_effects, groups is not None)
    check_names(X, intercept=machine.fit_intercept)
    X, labels, called = separated(X, effects, groups)
    check_numeric(X)
    _check_room(X)
    X, y = validate_data(
        machine,
        without_frame(X),
        y,
        accept_sparse="csr",
        dtype=np.float64,
        order="C",
        ensure_all_finite=False,
        ensure_min_samples=2,
        ensure_min_features=0 if effects else 1,
        skip_check_array=_plain(X, y),
        **checks,
    )
    X, names = summed(X), fitted(machine, "feature_names_in_")
    missing = check_finite(X, names, missing=True, way=_DENSE)  # of sparse rows alone are missing values refused
    y = encode(y)
    count: Array = np.ones(X.shape[0])
    if sample_weight is not None:
        count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    used, indicators = count > 0, None
    if not used.all():
        X, y, count = X[used], y[used], count[used]
        labels = {key: column[used] for key, column in labels.items()}
    incomplete = missing and bool(np.isnan(X).any())  # of the rows that count
    if incomplete:
        check_observed(np.isnan(X), machine._names())
    if incomplete and machine.missing == "indicator":
        indicators = Indicators.of(X, count)
        X, incomplete = indicators.apply(X), False
    how = {"intercept": machine.fit_intercept, "standardized": machine.standardize}
    columns = kept_columns(X, count, **how, complete=not incomplete)
    rows = Labelled(X, labels, called) if effects else X
    return Training(rows, y, count, columns, effects, incomplete, used, indicators)


def _plain(X: Any, y: Any) -> bool:
    """Whether scikit-learn's checks would change nothing; they take longer than the fit of a small problem."""
    if not (type(X) is np.ndarray and type(y) is np.ndarray) or X.ndim != 2 or y.shape != X.shape[:1]:
        return False
    known = y.dtype.kind in "biu" or (y.dtype == np.float64 and bool(np.isfinite(y).all()))
    return known and X.dtype == np.float64 and X.flags.c_contiguous and X.shape[0] >= 2 and X.shape[1] >= 1


def _check_room(X: Any) -> None:
    """Refuse a dense X that would not fit into memory as double numbers beside what a fit makes of it."""
    if not (isinstance(X, np.ndarray) or (is_frame(X) and len(X.shape) == 2)) or len(X.shape) != 2:
        return
    n, p = X.shape
    plain = isinstance(X, np.ndarray) and X.dtype == np.float64 and X.flags.c_contiguous
    size = min(n, p + 1)
    needed = 8.0 * (_MATRICES * size * size + _VECTORS * n + (0 if plain else n * p))
    check_room(
        needed, f"a fit of {n} rows and {p} columns in memory", "give X in a .npy or Parquet file, or fewer columns"
    )


def _elsewhere(
    machine: Any,
    X: Elsewhere,
    y: Any,
    sample_weight: Any,
    groups: Any,
    encode: Callable[[Any], Any],
    y_numeric: bool = False,
) -> Training:
    """The same of rows that stay where they are: their response and weights are at home."""
    if effects_of(machine.random_effects, groups is not None):
        raise ValueError(refused("effects elsewhere", kind=X.kind))
    n, p = X.shape
    needed = 8.0 * (_MATRICES * (p + 1) ** 2 + _VECTORS * n / 2)  # of the long vectors many are not at home
    check_room(needed, f"a fit of {n} rows and {p} columns", "give fewer columns, or a part of the rows")
    names = None if X.names is None else pd.DataFrame(columns=X.names)
    check_names(names, intercept=machine.fit_intercept)
    y = encode(_check_y(y, y_numeric=y_numeric, estimator=machine))
    if len(y) != n:
        raise ValueError(f"y has {len(y)} values and X has {n} rows; give one for each.")
    machine.n_features_in_ = p
    if names is not None:
        machine.feature_names_in_ = np.asarray(X.names, dtype=object)
    if y.dtype.kind in "iu":  # numbers of classes
        y = y.astype(np.min_scalar_type(int(y.max())))
    count: Array = np.broadcast_to(1.0, n)  # takes the room of one number
    if sample_weight is not None:
        count = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
    used = count > 0
    if not used.all():
        X, y, count = X.at(np.flatnonzero(used)), y[used], count[used]
    columns = kept_columns(X, count, intercept=machine.fit_intercept, standardized=machine.standardize)
    return Training(X, y, count, columns, (), False, used, None)
