"""Dask arrays and data frames as an estimator is given them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.validation import check_numeric, is_frame
from softmargin.designs.dask import DaskMatrix, NewRows, counted, plain
from softmargin.estimators.given.arguments import Given

__all__ = ["DaskCollections", "computed"]

_HOME = 2**27  # bytes of X as double numbers up to which its rows are simply brought home


class _Chunks(NamedTuple):
    """Consecutive rows of a collection: delayed parts, columns, their names, and numbers of rows where known."""

    parts: Sequence[Any]
    p: int
    names: list[str] | None
    sizes: list[int] | None


class DaskCollections:
    """Recognises Dask arrays and data frames; few rows are brought home, where all features are."""

    def taken(self, given: Given) -> Given | None:
        """The arguments of a fit, with names of columns replaced by the columns, and vectors home."""
        X = given.X
        if not _is_collection(X):
            return None
        named = [each for each in given[1:] if isinstance(each, str)]
        vectors = [self.column(X, each) if isinstance(each, str) else computed(each) for each in given[1:]]
        X = X.drop(columns=named) if named else X
        chunks = _chunks(X)
        sizes = counted(chunks.parts) if chunks.sizes is None else chunks.sizes
        if 8 * sum(sizes) * chunks.p <= _HOME:
            return Given(_home(X.compute()), *vectors)
        _check_columns(X)
        return Given(DaskMatrix(chunks.parts, chunks.p, chunks.names, sizes), *vectors)

    def column(self, X: Any, name: Any) -> Any:
        """A column of a data frame by its name."""
        if not _is_collection(X):
            return None
        if not is_frame(X) or name not in X.columns:
            raise ValueError(f"X has no column {name!r}; give the name of one, or the values themselves.")
        return computed(X[name])

    def new_rows(self, X: Any, names: list[str] | None, groups: list[str]) -> Any:
        """Rows to predict; of a data frame, the columns of the fit where it has them all."""
        if not _is_collection(X):
            return None
        if is_frame(X) and names is not None and {*names, *groups} <= set(X.columns):
            _check_columns(X[names])
            if groups:
                return NewRows(X[[*names, *groups]].to_delayed(), X[[*names, *groups]]._meta_nonempty[:1], None, None)
            X = X[names]
        parts, p, own, sizes = _chunks(X)
        return NewRows(parts, np.zeros((1, p)), own, sizes)


def _is_collection(X: Any) -> bool:
    """Whether it is a Dask array or data frame; asked without Dask, which need not be installed."""
    return type(X).__module__.split(".")[0] == "dask"


def computed(vector: Any) -> Any:
    """What a Dask collection comes to; anything else as it is."""
    return vector.compute() if _is_collection(vector) else vector


def _check_columns(X: Any) -> None:
    """Refuse columns that hold no numbers by their type; objects and categories may hold some."""
    if not is_frame(X):
        return check_numeric(X._meta)
    row = X._meta_nonempty
    return check_numeric(row.loc[:, [str(kind) not in ("object", "category") for kind in row.dtypes]])


def _chunks(X: Any) -> _Chunks:
    if X.ndim != 2:
        raise ValueError(f"X must have rows and columns; got a Dask collection of {X.ndim} dimensions: use X[:, None].")
    check_numeric(X._meta)
    if is_frame(X):
        return _Chunks(X.to_delayed(), X.shape[1], list(X.columns), None)
    X = X.rechunk({1: -1})
    sizes = X.chunks[0]
    return _Chunks(X.to_delayed()[:, 0].tolist(), X.shape[1], None, None if np.isnan(sizes).any() else list(sizes))


def _home(X: Any) -> Any:
    """Computed rows; what a message brought may lie askew in memory, and products would be made in another order."""
    return np.require(plain(X), requirements=["A"]) if isinstance(X, np.ndarray) else X
