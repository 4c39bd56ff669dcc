"""What an estimator is given that is no array: a list of kinds, each of which knows its own."""

from __future__ import annotations

from os import PathLike
from typing import Any, Protocol

import numpy as np
import pandas as pd

from softmargin.core.validation import is_frame
from softmargin.estimators.given.arguments import Given
from softmargin.estimators.given.dask import DaskCollections, computed
from softmargin.estimators.given.devices import Devices
from softmargin.estimators.given.files import Files
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.memory import check_room

__all__ = ["Kind", "at_home", "new_rows", "taken", "vector"]


class Kind(Protocol):
    """A kind of X: each function answers None where X is not of this kind."""

    def taken(self, given: Given) -> Given | None:
        """The arguments of a fit, with names of columns replaced by the columns."""

    def column(self, X: Any, name: Any) -> Any:
        """The column of X with this name, home; None also where X has no names."""

    def new_rows(self, X: Any, names: list[str] | None, groups: list[str]) -> Any:
        """Rows to predict as a ``Streamed`` or an array.

        ``names`` are those of the columns of the fit, ``groups`` those of the columns that say the groups of its rows.
        """


_KINDS: tuple[Kind, ...] = (DaskCollections(), Devices(), Files())


def taken(X: Any, y: Any, sample_weight: Any, groups: Any) -> Given:
    """The arguments of a fit, recognised."""
    given = Given(X, y, sample_weight, groups)
    if all(each is None or type(each) is np.ndarray for each in given):  # of no other kind
        return given
    for kind in _KINDS:
        found = kind.taken(given)
        if found is not None:
            return found
    return Given(X, *(vector(X, each) for each in given[1:]))


def at_home(X: Any, y: Any, sample_weight: Any, names: Any) -> Given:
    """The same with all rows in memory; of a table that is read, the columns of a fit where it has them all."""
    given = taken(X, y, sample_weight, None)
    rows = given.X
    if isinstance(rows, Elsewhere):
        n, p = rows.shape
        check_room(8.0 * n * p, f"{n} rows and {p} columns in memory", "give some of the rows at a time")
        values = rows[np.arange(n)]
        rows = values if rows.names is None else pd.DataFrame(values, columns=rows.names)
    if rows is not X and is_frame(rows) and names is not None and set(names) < set(rows.columns):
        rows = rows[list(names)]
    return given._replace(X=rows)


def vector(X: Any, given: Any) -> Any:
    """A vector beside X, home, where it is a name that column of X."""
    if not isinstance(given, str | PathLike):
        return computed(given)
    for kind in _KINDS:
        found = kind.column(X, given)
        if found is not None:
            return found
    raise ValueError(
        f"{given!r} names a column, and only X in Parquet files, Arrow datasets and Dask data frames is asked by name; "
        "give the values themselves, as X['name'], and leave that column out of X."
    )


def new_rows(X: Any, names: list[str] | None, groups: list[str]) -> Any:
    """Rows to predict, recognised."""
    for kind in _KINDS:
        found = kind.new_rows(X, names, groups)
        if found is not None:
            return found
    return X
