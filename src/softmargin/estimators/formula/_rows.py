"""The columns that the terms of a formula make of rows, in training and later."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype, is_string_dtype

from softmargin.core.array import Array
from softmargin.core.validation import is_polars, nullable_kind
from softmargin.estimators.formula._parsed import call_of, callee_of, components_of
from softmargin.estimators.formula._safe import BOXES
from softmargin.estimators.formula._text import shortened

__all__ = ["check_labels", "columns_of", "forget", "frame_of", "matrix", "rows_of", "said", "values_of"]


def said(error: Exception) -> str:
    """What an error of formulae says, as part of a sentence."""
    if isinstance(error, RecursionError):
        return "its parts are nested too deeply, or too many; make columns of them first"
    return shortened(str(error).strip()).rstrip(".") or type(error).__name__


def frame_of(data: Any) -> pd.DataFrame:
    """The data as a pandas frame; text and enumerations of polars become labels, its missing values missing ones."""
    if isinstance(data, pd.DataFrame):
        return data
    if not is_polars(data):
        raise ValueError(f"a formula takes its columns from a pandas or polars DataFrame; got {type(data).__name__}.")
    return pd.DataFrame({column.name: _pandas(column) for column in data.get_columns()})


def _pandas(column: Any) -> Any:
    """A column of polars."""
    values = column.to_numpy()
    ordered = column.dtype.categories if str(column.dtype).startswith("Enum") else None
    return values if ordered is None else pd.Categorical(values, list(ordered))


def rows_of(data: Any, columns: Iterable[Any], formula: str) -> pd.DataFrame:
    """The columns that a formula needs, as plain NumPy, text or categorical columns."""
    data = frame_of(data)
    lacking = sorted(str(key) for key in columns if key not in data.columns)
    if lacking:
        raise ValueError(
            f"the data have no column {', '.join(map(repr, lacking))}, which the formula {formula!r} needs; they have "
            f"{list(data.columns)[:30]}."
        )
    twice = [key for key in columns if list(data.columns).count(key) > 1]
    if twice:
        raise ValueError(f"the data have several columns {twice[0]!r}; give each a name of its own.")
    return pd.DataFrame({key: _plain(data[key]) for key in sorted(columns)}, index=data.index)


def columns_of(part: Any) -> set[Any]:
    """Columns of the data in a term or component: what formulae calls names, without constants and encodings."""
    return part.var_names - {"", "Treatment", "Sum"}


def _plain(column: Any) -> Any:
    """A column without pandas' own kinds of numbers, whose missing values are no NaN; categories keep their order."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_unused_categories().cat.as_ordered()  # formulae would sort them otherwise
    if is_numeric_dtype(column) and not isinstance(column.dtype, np.dtype):
        return column.astype(float if column.isna().any() else nullable_kind(column) or float)
    return column.infer_objects() if column.dtype == object else column


def check_labels(component: Any, rows: pd.DataFrame) -> None:
    """Refuse predictors that are neither numbers nor labels, and labels that are missing."""
    boxed = call_of(component) is not None and _unboxed(component.call)[1]
    for key in sorted(columns_of(component)):
        column = rows[key]
        if is_numeric_dtype(column) and not boxed:
            continue  # NaN is for the model
        missing = int(column.isna().sum())
        if missing:
            raise ValueError(
                f"the column {key!r} holds labels and is missing in {missing} row(s); drop these rows, or make "
                "'missing' a label of its own."
            )
        labels = isinstance(column.dtype, pd.CategoricalDtype) or is_string_dtype(column) or is_numeric_dtype(column)
        if not labels and call_of(component) is None:
            raise ValueError(f"the column {key!r} has {column.dtype}; make numbers or text of it first.")


def values_of(component: Any, rows: pd.DataFrame) -> Any:
    """The values of a component, before they are coded."""
    if call_of(component) is None:
        return rows[component.name]
    # formulae wants all levels that a box names in new rows too, so only its first argument is evaluated
    return _unboxed(component.call)[0].eval(rows, component.env)


def _unboxed(expression: Any) -> tuple[Any, bool]:
    """What boxes, and braces around them, hold, and whether there was a box."""
    boxed = False
    while callee_of(expression) in (*BOXES, "I"):
        boxed = boxed or expression.callee != "I"
        expression = expression.args[0]
    return expression, boxed


def matrix(term: Any, rows: pd.DataFrame) -> Array:
    """The columns of a term."""
    return reduce(_product, [_coded(component, rows) for component in term.components])


def _coded(component: Any, rows: pd.DataFrame) -> Array:
    """The columns of a component: numbers as they are, levels by their contrasts."""
    check_labels(component, rows)
    if component.kind == "numeric":
        try:
            made = np.asarray(values_of(component, rows), dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{component.name!r} was made of numbers in the training data; now it is not.") from None
        made = made[:, None] if made.ndim == 1 else made
        unknown = rows[sorted(columns_of(component))].isna().any(axis=1).to_numpy()
        return np.where(unknown[:, None], np.nan, made)  # a comparison with NaN would be False
    labels = np.asarray(values_of(component, rows), dtype=object)
    codes = pd.Index(component.levels, dtype=object).get_indexer(labels)
    if (codes < 0).any():
        new = sorted({str(label) for label in labels[codes < 0]})
        raise ValueError(
            f"{component.name!r} has the level(s) {new[:5]} that were not in the training data; it had "
            f"{[str(level) for level in component.levels][:10]}."
        )
    return np.asarray(component.contrast_matrix.matrix[codes], dtype=float)


def _product(a: Array, b: Array) -> Array:
    """Products of all pairs of columns; what is multiplied by zero is zero, known or not."""
    a, b = a[:, :, None], b[:, None, :]
    return np.where((a == 0) | (b == 0), 0.0, a * b).reshape(len(a), -1)


def forget(term: Any) -> None:
    """Drop the training rows that formulae keeps in its terms; levels and transformations stay."""
    term.data = None
    for component in components_of(term):
        component.value = component._intermediate_data = None
