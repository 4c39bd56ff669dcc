"""Input checks that say in one sentence what was given, what is needed and what to do."""

from __future__ import annotations

from collections import Counter
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets

from softmargin.core.array import Array, by_label

__all__ = [
    "IMPUTE",
    "binary_labels",
    "check_choice",
    "check_finite",
    "check_mask",
    "check_names",
    "check_numeric",
    "check_observed",
    "check_rate",
    "class_labels",
    "costs_by_label",
    "dimensions_of",
    "fitted",
    "has_probabilities",
    "is_frame",
    "is_polars",
    "known_labels",
    "labels_given",
    "nullable_kind",
    "plain_list",
    "row_weights",
    "summed",
]

_WHOLE = 2.0**53  # whole numbers below are told apart
IMPUTE = "impute or drop these values first, for example with sklearn.impute.SimpleImputer in a pipeline"
_INFINITE = "look for a logarithm of zero or a division by zero, and replace these values by numbers or drop their rows"
_TIMES = {  # kinds of values that NumPy would silently read as numbers of nanoseconds
    "M": "dates; make numbers of them first, for example days since the first one, or the month and the weekday",
    "m": "durations; make numbers of them first, for example by their dt.total_seconds()",
}


def is_frame(X: Any) -> bool:
    """Whether X has columns with names, as data frames of all libraries have."""
    return hasattr(X, "columns")


def dimensions_of(given: Any) -> int:
    """Number of dimensions of an array; a list has one."""
    return int(getattr(given, "ndim", 1))


def plain_list(given: Any) -> Any:
    """Lists in place of arrays and series; anything else as it is."""
    return given.tolist() if hasattr(given, "tolist") else given


def fitted(estimator: Any, name: str) -> Any:
    """An attribute that a fit leaves behind, or None where this one did not: names of columns, classes, inclusion."""
    return getattr(estimator, name, None)


def is_polars(data: Any) -> bool:
    """Whether data are a frame of polars."""
    return hasattr(data, "get_columns")


def nullable_kind(column: Any) -> Any:
    """The plain kind of number of a nullable column of pandas; None for any other."""
    return getattr(getattr(column, "dtype", None), "numpy_dtype", None)


def has_probabilities(model: Any) -> bool:
    """Whether a model, of this library or another, predicts probabilities."""
    return hasattr(model, "predict_proba")


def check_choice(name: str, value: Any, known: tuple[str, ...] | list[str]) -> None:
    """Refuse a word that is not on the list."""
    if isinstance(value, type):
        raise ValueError(f"{name}={value.__name__} is a class; give an object of it, {value.__name__}().")
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(map(repr, known))}.")


def check_rate(rate: Any, *, auto: bool = True) -> None:
    """Refuse a learning rate that is no positive number."""
    number = isinstance(rate, Real) and not isinstance(rate, bool | np.bool_) and 0.0 < float(rate) < np.inf
    if not (number or (auto and isinstance(rate, str) and rate == "auto")):
        or_auto = " or 'auto'" if auto else ""
        raise ValueError(f"learning_rate must be a positive number{or_auto}; got {rate!r}.")


def check_names(X: Any, *, intercept: bool = False) -> None:
    """Refuse a name that several columns of a frame have, and that of the model's own intercept."""
    names = Counter(name for name in getattr(X, "columns", ()) if isinstance(name, str))
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise ValueError(f"X has several columns {twice[0]!r}; give each a name of its own.")
    if intercept and "Intercept" in names:
        raise ValueError(
            "X has a column named 'Intercept', which is the name of the model's own intercept; drop the column, rename "
            "it, or set fit_intercept=False."
        )


def check_mask(X: Any) -> None:
    """Refuse masks, which conversions would drop without a word."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array, whose mask would be lost; fill it first, with X.astype(float).filled(np.nan) where "
            "missing entries are taken."
        )


def check_numeric(X: Any) -> None:
    """Refuse columns of data frames that hold no numbers, naming them, columns of dates, and masks."""
    check_mask(X)
    if not hasattr(X, "dtypes") or not hasattr(X, "columns"):
        if isinstance(X, np.ndarray) and X.dtype.kind in _TIMES:
            raise ValueError(f"X holds {_TIMES[X.dtype.kind]}.")
        return
    bad = []
    for place, name in enumerate(X.columns):
        column = X.iloc[:, place] if hasattr(X, "iloc") else X[name]
        kind = _kind(column)
        if kind in _TIMES:
            raise ValueError(f"column {name} of X holds {_TIMES[kind]}.")
        if kind in "OUST":
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                bad.append(str(name))
    if bad:
        raise ValueError(
            f"column{'s' if len(bad) > 1 else ''} {', '.join(bad[:5])}{' and more' if len(bad) > 5 else ''} of X "
            "cannot be read as numbers; encode them first, for example with sklearn.preprocessing.OneHotEncoder."
        )


def _kind(column: Any) -> str:
    """What kind of values a column holds, by NumPy's letter; objects unless it says otherwise."""
    kind: str = getattr(column.dtype, "kind", "O")
    if kind == "O" and not isinstance(column.dtype, np.dtype):  # of another library: as its values are
        kind = np.asarray(column).dtype.kind
    return kind


def check_finite(X: Any, names: Any, *, missing: bool = False, way: str = IMPUTE) -> bool:
    """Refuse infinite values, and missing ones unless ``missing``, naming the columns; ``way`` is what to do then.

    The answer is whether some are missing.
    """
    sparse: bool = sp.issparse(X)
    values = X.data if sparse else X
    if np.isfinite(values.sum()):  # one pass without a copy; most data end here
        return False
    absent = bool(missing and not sparse and np.isnan(X).any())
    if absent:
        X = values = np.where(np.isnan(X), 0.0, X)
    if np.isfinite(values).all():
        return absent
    if sparse:
        bad = X.copy()
        bad.data = (~np.isfinite(X.data)).astype(float)
        bad.eliminate_zeros()
        columns = np.unique(bad.indices)
    else:
        columns = np.flatnonzero(~np.isfinite(X).all(axis=0))
    shown = [str(names[j]) if names is not None else str(j) for j in columns[:5]]
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    kind, then = ("NaN", way) if np.isnan(values).any() else ("infinity", _INFINITE)
    raise ValueError(
        f"Input X contains {kind} in column{'s' if len(columns) > 1 else ''} {', '.join(shown)}{more}; {then}."
    )


def summed(X: Any) -> Any:
    """Rows as they are; of sparse ones, entries of the same cell added up."""
    sparse: bool = sp.issparse(X)
    if not sparse or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def check_observed(missing: Any, names: list[str]) -> None:
    """Refuse a column without any observed value."""
    empty = np.flatnonzero(missing.all(axis=0))
    if len(empty):
        raise ValueError(f"column {names[empty[0]]} of X has no observed value; drop it.")


def labels_given(y: Any) -> Any:
    """Labels as they were given, nullable booleans and numbers as plain ones; refused where some are missing."""
    if y is None:
        return y
    if type(y) is np.ndarray and y.dtype.kind in "biuf":
        absent = int(np.count_nonzero(y != y))  # NaN alone is no number that equals itself
    else:
        absent = int(np.count_nonzero(pd.isna(y if hasattr(y, "dtype") else np.asarray(y, dtype=object))))
    if absent:
        raise ValueError(f"Input y contains NaN: the label of {absent} row{'s' * (absent > 1)} is missing; drop these.")
    plain = nullable_kind(y)
    return y if plain is None else np.asarray(y, dtype=plain)


def class_labels(y: Any) -> tuple[Any, Any]:
    """The classes in order, and y as positions in them."""
    second = _second_number(y)
    if second is not None:  # nothing to sort
        return np.array([y.min(), y.max()], dtype=y.dtype), second.astype(np.intp)
    check_classification_targets(y)
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"BayesianSVC needs at least two classes in y; got 1 class ({classes.tolist()[0]!r}): add rows of another "
            "class."
        )
    return classes, index


def costs_by_label(costs: Any, classes: Any) -> Any:
    """Costs in the order of the classes; a table without labels is in that order."""
    if not hasattr(costs, "columns"):
        return costs
    wanted, places = classes.tolist(), []
    for side, labels in (("index", getattr(costs, "index", ())), ("columns", costs.columns)):
        if len(labels) != len(wanted) or set(labels) != set(wanted):
            raise ValueError(
                f"costs must have the classes {wanted} as its index and as its columns; its {side} has {list(labels)}: "
                "rename these, or pass a plain array in the order of the classes."
            )
        places.append([list(labels).index(label) for label in wanted])
    return costs.to_numpy()[np.ix_(*places)]


def _second_number(y: Any) -> Any:
    """Which labels are the larger one of two different whole numbers; None where they are something else."""
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype.kind not in "biuf" or not len(y):
        return None
    low, high = float(y.min()), float(y.max())
    if not (-_WHOLE < low < high < _WHOLE and low.is_integer() and high.is_integer()):
        return None
    second = y == high
    return second if bool((second | (y == low)).all()) else None


def binary_labels(y: Any) -> tuple[Any, Any]:
    """The two classes in order, and y as 0 and 1."""
    classes, index = class_labels(y)
    if len(classes) > 2:
        raise ValueError(f"this needs two classes in y; got {len(classes)}: {classes.tolist()[:5]}.")
    return classes, index


def known_labels(y: Any, classes: Any) -> Any:
    """Numbers of the classes that labels of the fit name."""
    y = np.asarray(y)
    index = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    new = np.unique(y[classes[index] != y])
    if len(new):
        raise ValueError(f"y has labels {new.tolist()[:5]} that the fit did not have; it had {classes.tolist()[:5]}.")
    return index


def row_weights(sample_weight: Array, index: Any, classes: Any, class_weight: Any) -> Array:
    """Sample weight times class weight of every row; 'balanced' counts rows by their sample weight."""
    total = by_label(index, sample_weight, len(classes))
    for label, own in zip(classes.tolist(), total, strict=True):
        if not own > 0:
            left = "only one class is left" if len(classes) == 2 else "it cannot be learned"
            raise ValueError(
                f"all rows of class {label!r} have zero sample_weight, so {left}: give some of them a positive weight."
            )
    if class_weight is None:
        return sample_weight
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}.")
        by_class = total.sum() / (len(classes) * total)
    else:
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise ValueError(f"class_weight names classes {unknown} that are not in y; y has {classes.tolist()}.")
        by_class = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
        if not ((by_class > 0) & np.isfinite(by_class)).all():
            raise ValueError(f"class_weight must be positive and finite; got {class_weight}.")
    weight: Array = sample_weight * by_class[index]
    return weight
