"""Which model a picture is of: the estimator inside, its columns, classes and outputs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.estimators.formula.formula import Formula
from softmargin.estimators.kernel_machine import KernelMachine
from softmargin.estimators.linear import LinearMachine
from softmargin.estimators.tabular.tabular import Tabular

__all__ = [
    "classes_of",
    "columns_of",
    "labels_of",
    "linear_of",
    "machine_of",
    "names_of",
    "outputs_of",
    "per_output",
    "response_of",
    "spreads",
]


def machine_of(what: str, model: Any) -> Any:
    """The fitted estimator that a model is, or has inside; anything else is refused."""
    if not isinstance(model, (LinearMachine, KernelMachine, Formula, Tabular)):
        raise ValueError(f"{what} draws a fitted model, as in BayesianSVC().fit(X, y); got {type(model).__name__}.")
    check_is_fitted(model)
    return model.estimator_ if isinstance(model, (Formula, Tabular)) else model


def linear_of(what: str, model: Any) -> Any:
    """The same, where it has coefficients of columns."""
    machine = machine_of(what, model)
    if not isinstance(machine, LinearMachine):
        raise ValueError(
            f"{what} draws coefficients of columns, and {type(machine).__name__} has none; fit BayesianSVC or "
            "BayesianSVR."
        )
    return machine


def classes_of(machine: Any) -> Any:
    """The class labels, or None for a regression."""
    return fitted(machine, "classes_")


def labels_of(what: str, machine: Any) -> list[str]:
    """The class labels as text; a regression is refused."""
    if classes_of(machine) is None:
        raise ValueError(f"{what} draws a classifier, and this is a regression; fit BayesianSVC.")
    return [str(label) for label in machine.classes_]


def names_of(machine: Any) -> list[str]:
    """Names of the columns of a fitted estimator."""
    if isinstance(machine, LinearMachine):
        return [str(name) for name in machine._names()]
    names = fitted(machine, "feature_names_in_")
    return [str(name) for name in ([f"x{j}" for j in range(machine.n_features_in_)] if names is None else names)]


def outputs_of(machine: Any) -> list[str]:
    """What there is a coefficient per column for: nothing to be told apart, pairs of classes, or classes."""
    classes = classes_of(machine)
    if classes is None or len(classes) == 2:
        return [""]
    if len(machine._fitted.parts) > 1:
        return [f"{a} | {b}" for a, b in combinations(classes.tolist(), 2)]
    return [str(label) for label in classes]


def per_output(machine: Any, values: Any) -> list[Any]:
    """What a fitted attribute has per pair of classes, as a list; one entry where there is one model."""
    return list(values) if len(machine._fitted.parts) > 1 else [values]


def spreads(machine: Any) -> Array:
    """Standard deviations (columns, outputs) as the models took them; 1 where they did not standardize.

    Zero for columns without spread, whose coefficients are zero anyway.
    """
    found = []
    for posterior in per_output(machine, machine.posterior_):
        columns = posterior.columns
        unit = np.zeros(columns.n_features)
        unit[columns.keep] = 1.0 / columns.scale
        found.append(unit)
    return np.column_stack(found * (1 if len(found) > 1 else len(outputs_of(machine))))


def columns_of(model: Any, X: Any) -> Any:
    """Rows as the estimator inside a model takes them."""
    if isinstance(model, Formula):
        return model.formula_.frame(X)
    return model.encoded(X) if isinstance(model, Tabular) else X


def response_of(model: Any, X: Any, y: Any) -> Any:
    """The responses of rows: as given, or the column that a formula or a table names; None where there is none."""
    if isinstance(model, Formula):
        return np.asarray(model.formula_.response(X, y))
    if y is None and isinstance(model, Tabular) and model.target in X.columns:
        return np.asarray(X[model.target])
    return None if y is None else np.asarray(y)
