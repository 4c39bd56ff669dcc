"""What an estimator is given that is no array: a list of kinds, each of which knows its own."""

from __future__ import annotations

from typing import Any, Protocol

from softmargin.estimators.given.arguments import Given
from softmargin.estimators.given.dask import DaskCollections
from softmargin.estimators.given.devices import Devices
from softmargin.estimators.given.files import Files

__all__ = ["Kind", "new_rows", "taken"]


class Kind(Protocol):
    """A kind of X: each function answers None where X is not of this kind."""

    def taken(self, given: Given) -> Given | None:
        """The arguments of a fit, with names of columns replaced by the columns."""

    def new_rows(self, X: Any, names: list[str] | None) -> Any:
        """Rows to predict as a ``Streamed`` or an array; ``names`` are those of the columns of the fit."""


_KINDS: tuple[Kind, ...] = (DaskCollections(), Devices(), Files())


def taken(X: Any, y: Any, sample_weight: Any, groups: Any) -> Given:
    """The arguments of a fit, recognised."""
    given = Given(X, y, sample_weight, groups)
    for kind in _KINDS:
        found = kind.taken(given)
        if found is not None:
            return found
    return given


def new_rows(X: Any, names: list[str] | None) -> Any:
    """Rows to predict, recognised."""
    for kind in _KINDS:
        found = kind.new_rows(X, names)
        if found is not None:
            return found
    return X
