"""Blocks of rows that a function of the user gives, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import check_names, check_numeric, is_frame

__all__ = ["FunctionBlock", "function_blocks"]

_GIVE = "give a matrix of numbers, a data frame, or a pair of either and its responses"


class FunctionBlock(NamedTuple):
    """Some rows, the labels of their columns where they are a data frame, and their responses where it gives these."""

    rows: Array
    labels: list[Any] | None
    y: Any

    @property
    def names(self) -> list[str] | None:
        """The names of the columns; None where some are numbers, which scikit-learn does not take for names."""
        named = self.labels is not None and all(isinstance(label, str) for label in self.labels)
        return self.labels if named else None


def function_blocks(make: Callable[[], Any], names: Sequence[str] | None = None) -> Iterator[FunctionBlock]:
    """The blocks that a function gives; columns of data frames go by their names.

    They are ``names`` where all these are there, and otherwise those of the first block.
    """
    first: FunctionBlock | None = None
    for number, given in enumerate(_made(make)):
        X, y = _pair(given, number)
        if is_frame(X) and names is not None and set(names) <= set(X.columns):
            X = X[list(names)]
        X = X if first is None else _like_the_first(X, first.labels, number)
        block = FunctionBlock(_numbers(X, number), list(X.columns) if is_frame(X) else None, y)
        first = first or block
        found, wanted = block.rows.shape[1], first.rows.shape[1]
        if found != wanted:
            raise ValueError(f"block {number} has {found} columns where the first has {wanted}; give all the same.")
        if y is not None and len(y) != len(X):
            raise ValueError(f"block {number} has {len(X)} rows and {len(y)} responses; give one for each.")
        if len(X):
            yield block


def _made(make: Callable[[], Any]) -> Iterator[Any]:
    """What the function gives; an error of its arithmetic is told from one of the fit."""
    try:
        found = make()
        if not isinstance(found, Iterable):
            raise ValueError(f"the function in place of X returned {_kind(found)}; let it return blocks of rows.")
        yield from found
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise RuntimeError(
            f"the function in place of X failed with {type(error).__name__}: {error}; mend it, and fit again."
        ) from error


def _kind(given: Any) -> str:
    return "None" if given is None else f"an object of type {type(given).__name__}"


def _pair(given: Any, number: int) -> tuple[Any, Any]:
    """Rows and responses; None in place of responses where there are rows alone."""
    X, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(X, tuple):
        raise ValueError(f"block {number} is a tuple of {len(X)} things; {_GIVE}.")
    if X is None:
        raise ValueError(f"block {number} is None; {_GIVE}.")
    return X, y


def _like_the_first(X: Any, first: list[Any] | None, number: int) -> Any:
    """The block with its columns in the order of the first, of which these are the labels."""
    if is_frame(X) != (first is not None):
        kinds = ("a data frame", "an array") if is_frame(X) else ("an array", "a data frame")
        raise ValueError(
            f"block {number} is {kinds[0]} where the first is {kinds[1]}; give all blocks as one of these."
        )
    if first is None:
        return X
    absent, more = (sorted(map(repr, each)) for each in (set(first) - set(X.columns), set(X.columns) - set(first)))
    if absent or more:
        what = f"lacks the column {absent[0]}" if absent else f"has a column {more[0]} more than the first"
        raise ValueError(f"block {number} {what}; give all blocks the same columns.")
    return X[first]


def _numbers(X: Any, number: int) -> Array:
    """The rows of a block."""
    check_names(X)
    check_numeric(X)
    try:
        rows = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"block {number} cannot be read as a matrix: {error}; {_GIVE}.") from error
    if is_frame(X) and rows.dtype.kind == "O":  # nullable columns
        rows = X.to_numpy(dtype=np.float64, na_value=np.nan)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(f"block {number} has the shape {rows.shape} and entries of type {rows.dtype}; {_GIVE}.")
    return rows
