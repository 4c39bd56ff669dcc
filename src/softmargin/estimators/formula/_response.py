"""The response of a formula: its left side, or values that are given for it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.utils import column_or_1d

from softmargin.core.validation import labels_given
from softmargin.estimators.formula._parsed import call_of, callee_of, components_of, level_of, nodes_below
from softmargin.estimators.formula._rows import columns_of, frame_of, rows_of, said, values_of
from softmargin.estimators.formula._safe import BOXES, REMEMBERING, Functions

__all__ = ["Response", "response_later", "response_of"]


class Response(NamedTuple):
    """What is to be predicted, and whether its values are labels."""

    values: Any
    labels: bool


def response_of(terms: list[Any], data: Any, formula: str, y: Any) -> Response:
    """The response of every row: ``y`` where it is given, and otherwise what the left side makes of the data."""
    if len(terms) != 1 or len(components_of(terms[0])) != 1:
        _refuse_shape(formula)
    return _evaluated(terms[0], data, formula) if y is None else _given(terms[0], data, formula, y)


def response_later(term: Any, data: Any, formula: str, y: Any) -> Any:
    """The response of rows that come after the fit, by the transformations that it learned."""
    term = deepcopy(term)  # formulae writes into it
    (component,) = term.components
    if y is not None:
        return _given(term, data, formula, y).values
    if _unlearned(call_of(component)):
        raise ValueError(
            f"the response {term.name!r} of {formula!r} depends on the training rows, and the fit was given y instead; "
            "give y here too."
        )
    level = level_of(component)
    component.reference = None
    values = _evaluated(term, rows_of(data, columns_of(term), formula), formula).values
    return values if level is None else values.astype(str) == level  # which these rows may all lack


def _unlearned(part: Any) -> bool:
    """Whether a function that remembers the training rows has not seen them."""
    own = callee_of(part) in REMEMBERING and part.stateful_transform is None
    return own or any(map(_unlearned, nodes_below(part)))


def _refuse_shape(formula: str) -> None:
    raise ValueError(f"the response of {formula!r} must be one column, or one function of columns.")


def _evaluated(term: Any, rows: pd.DataFrame, formula: str) -> Response:
    """The left side of these rows; where the formula names a level, whether it is that one."""
    from formulae.environment import Environment

    (component,) = term.components
    for key in sorted(columns_of(component)):
        missing = int(rows[key].isna().sum())
        if missing:
            raise ValueError(f"the response {key!r} is missing in {missing} row(s); drop these rows.")
    try:
        term.set_type(rows, Environment([Functions()]))
        values = values_of(component, rows)
    except Exception as error:
        raise ValueError(f"the response of {formula!r} does not fit these data: {said(error)}.") from error
    if component.kind == "proportion":
        raise ValueError(f"the response of {formula!r} is a proportion; use one row for each trial, or sample_weight.")
    if np.shape(values) != (len(rows),):
        _refuse_shape(formula)
    response = pd.Series(np.asarray(values), index=rows.index)
    level = level_of(component)
    if level is None:
        return Response(response, component.kind == "categoric" or _labels(response))
    known = {str(value): value for value in pd.unique(response)}
    if level not in known:
        raise ValueError(f"the response {component.name!r} has no level {level!r}; it has {sorted(known)}.")
    return Response(response == known[level], True)


def _labels(values: Any) -> bool:
    return not is_numeric_dtype(values) or is_bool_dtype(values)


def _given(term: Any, data: Any, formula: str, y: Any) -> Response:
    """The values of the left side that came with the rows; of a function of a column not the column itself."""
    (component,) = term.components
    values = column_or_1d(labels_given(y if isinstance(y, (pd.Series, pd.DataFrame)) else np.asarray(y)))
    level = level_of(component)
    if level is not None and not is_bool_dtype(values):
        raise ValueError(
            f"the response of {formula!r} is whether {component.name!r} is {level!r}; give y as True and False, or "
            "leave it out."
        )
    call = call_of(component)
    boxed = call is not None and call.callee in BOXES
    if call is not None and not boxed:
        _check_changed(term, data, formula, values)
    return Response(values, boxed or _labels(values))


def _check_changed(term: Any, data: Any, formula: str, values: Any) -> None:
    """Refuse a column in place of a function of it."""
    keys, frame = columns_of(term), frame_of(data)
    raw = [key for key in sorted(keys) if key in frame.columns and _same(values, frame[key])]
    if not raw or not keys <= set(frame.columns):
        return
    wanted = _evaluated(term, rows_of(frame, keys, formula), formula)
    if not _same(values, wanted.values):
        raise ValueError(
            f"y holds the column {raw[0]!r} and the response of {formula!r} is {term.name!r}; give y as values of "
            "that, or leave it out."
        )


def _same(values: Any, others: Any) -> bool:
    one, other = np.asarray(values, dtype=object), np.asarray(others, dtype=object)
    return one.shape == other.shape and bool(np.all(one == other))
