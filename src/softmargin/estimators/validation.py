"""Input checks that say in one sentence what was given, what is needed and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets

from softmargin.designs.base import Array

__all__ = ["binary_labels", "check_choice", "check_finite", "check_numeric", "row_weights"]


def check_choice(name: str, value: Any, known: tuple[str, ...] | list[str]) -> None:
    """Refuse a word that is not on the list."""
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(map(repr, known))}.")


def check_numeric(X: Any) -> None:
    """Refuse data-frame columns that hold no numbers, naming them."""
    if not hasattr(X, "dtypes") or not hasattr(X, "columns"):
        return
    bad = []
    for name in X.columns:
        column = X[name]
        if getattr(column.dtype, "kind", "O") in "OUSTM":
            try:
                np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                bad.append(str(name))
    if bad:
        raise ValueError(
            f"column{'s' if len(bad) > 1 else ''} {', '.join(bad[:5])}{' and more' if len(bad) > 5 else ''} of X "
            "cannot be read as numbers; encode them first, for example with sklearn.preprocessing.OneHotEncoder."
        )


def check_finite(X: Any, names: Any) -> None:
    """Refuse missing and infinite values, naming the columns."""
    sparse: bool = sp.issparse(X)
    values = X.data if sparse else X
    if np.isfinite(values.sum()) or np.isfinite(values).all():
        return
    if sparse:
        bad = X.copy()
        bad.data = (~np.isfinite(X.data)).astype(float)
        bad.eliminate_zeros()
        columns = np.unique(bad.indices)
    else:
        columns = np.flatnonzero(~np.isfinite(X).all(axis=0))
    shown = [str(names[j]) if names is not None else str(j) for j in columns[:5]]
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    kind = "NaN" if np.isnan(values).any() else "infinity"
    raise ValueError(
        f"Input X contains {kind} in column{'s' if len(columns) > 1 else ''} {', '.join(shown)}{more}; "
        "impute or drop these values first, for example with sklearn.impute.SimpleImputer in a pipeline."
    )


def binary_labels(y: Any) -> tuple[Any, Array]:
    """The two classes in order, and y as -1/+1."""
    check_classification_targets(y)
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"BayesianSVC needs two classes in y; got 1 class ({classes.tolist()[0]!r}): add rows of the other class."
        )
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. BayesianSVC needs two classes in y; got {len(classes)} "
            "classes: use sklearn.multiclass.OneVsOneClassifier(BayesianSVC())."
        )
    return classes, np.where(index == 1, 1.0, -1.0)


def row_weights(sample_weight: Array, sign: Array, classes: Any, class_weight: Any) -> Array:
    """Sample weight times class weight of every row; 'balanced' counts rows by their sample weight."""
    for label, side in zip(classes.tolist(), (-1.0, 1.0), strict=True):
        if not sample_weight[sign == side].sum() > 0:
            raise ValueError(
                f"all rows of class {label!r} have zero sample_weight, so only one class is left: give some of them a "
                "positive weight."
            )
    if class_weight is None:
        return sample_weight
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}.")
        total = sample_weight.sum()
        by_class = [total / (2.0 * sample_weight[sign == side].sum()) for side in (-1.0, 1.0)]
    else:
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise ValueError(f"class_weight names classes {unknown} that are not in y; y has {classes.tolist()}.")
        by_class = [float(class_weight.get(label, 1.0)) for label in classes.tolist()]
        if not all(0 < value < np.inf for value in by_class):
            raise ValueError(f"class_weight must be positive and finite; got {class_weight}.")
    return sample_weight * np.where(sign > 0, by_class[1], by_class[0])
