"""A model of the columns of a table: numbers as they are, labels as indicators of their levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from softmargin.estimators.tabular.delegating import Delegating
from softmargin.exceptions import DataWarning, warn_user

__all__ = ["Column", "Tabular"]

_MOST = 50  # levels of a column: more are groups or identifiers


class Column(NamedTuple):
    """A column of the training rows; one of labels has levels, the reference first, with their shares."""

    name: str
    levels: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def made(self) -> list[str]:
        """Names of the columns that the model sees."""
        return [f"{self.name}[{level}]" for level in self.levels[1:]] if self.levels else [self.name]

    @classmethod
    def of(cls, column: pd.Series) -> Column:
        """The column as the training rows have it."""
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            return cls(str(column.name))
        counts = column.dropna().astype(str).value_counts()
        if len(counts) > _MOST:
            raise ValueError(
                f"the column {column.name!r} has {len(counts)} different labels, and indicators are for at most "
                f"{_MOST}; leave it out (--drop), or make it a grouping column (--groups)."
            )
        if counts.empty:
            raise ValueError(f"the column {column.name!r} has no values; leave it out.")
        order = sorted(counts.index, key=lambda level: (-counts[level], level))
        return cls(str(column.name), tuple(order), tuple(float(counts[level] / counts.sum()) for level in order))

    def encoded(self, column: pd.Series) -> pd.DataFrame:
        """Numbers, or an indicator of every level but the reference; a level that is new gets the shares of all."""
        if not self.levels:
            try:
                return pd.DataFrame({self.name: pd.to_numeric(column).astype(float)})
            except (TypeError, ValueError):
                raise ValueError(
                    f"the column {self.name!r} held numbers in the fit, and has other values now."
                ) from None
        labels = column.astype(object).where(column.isna(), column.astype(str))
        new = ~labels.isin(self.levels) & column.notna()
        if new.any():
            shown = ", ".join(map(repr, sorted(set(labels[new]))[:5]))
            warn_user(
                f"the column {self.name!r} has labels in {int(new.sum())} row(s) that the fit has not seen ({shown}); "
                "their indicators are the shares of the training rows.",
                DataWarning,
            )
        made = {}
        for level, share, name in zip(self.levels[1:], self.shares[1:], self.made, strict=True):
            known = (labels == level).astype(float).where(column.notna())
            made[name] = known.where(~new, share)
        return pd.DataFrame(made, index=column.index)


class Tabular(Delegating):
    """A model of the columns of a data frame, some of which may hold labels.

    Columns of numbers go into the model as they are, columns of labels as indicators of every level but the most
    frequent one; those of ``groups`` become random effects. The levels are kept, so that later rows are encoded alike.

    Parameters
    ----------
    estimator : BayesianSVC or BayesianSVR
        The model.
    target : str
        The response: a column of the frame.
    groups : list of str
        Grouping columns.

    Attributes
    ----------
    estimator_ : BayesianSVC or BayesianSVR
        The fitted estimator. All that it has is an attribute or method of this one too.
    columns_ : tuple of Column
        The predictors with their levels.
    """

    columns_: tuple[Column, ...]

    def __init__(self, estimator: Any, target: str, groups: Any = ()):
        self.estimator = estimator
        self.target = target
        self.groups = groups

    def fit(self, X: pd.DataFrame, y: Any = None, sample_weight: Any = None) -> Tabular:
        """Fit the model to the rows of a frame; without ``y`` the response is its column ``target``."""
        y = self._response_of(X, y)
        kept = [name for name in X.columns if name != self.target and name not in self.groups]
        self.columns_ = tuple(Column.of(X[name]) for name in kept)
        effects = {"random_effects": list(self.groups)} if len(self.groups) else {}
        estimator = clone(self.estimator).set_params(**effects)
        self.estimator_ = estimator.fit(self.encoded(X), np.asarray(y), sample_weight=sample_weight)
        return self

    def encoded(self, X: pd.DataFrame) -> pd.DataFrame:
        """The columns that the estimator sees."""
        lacking = [name for name in (*(column.name for column in self.columns_), *self.groups) if name not in X.columns]
        if lacking:
            raise ValueError(f"the data have no column {', '.join(map(repr, lacking))}, which the model needs.")
        parts = [column.encoded(X[column.name]) for column in self.columns_]
        groups = [_written(X[name]) for name in self.groups]
        return pd.concat([pd.DataFrame(index=X.index), *parts, *groups], axis=1)

    def score(self, X: pd.DataFrame, y: Any = None, sample_weight: Any = None) -> float:
        """The estimator's ``score``; without ``y`` the response is the frame's column ``target``."""
        check_is_fitted(self)
        response = np.asarray(self._response_of(X, y))
        return float(self.estimator_.score(self.encoded(X), response, sample_weight=sample_weight))

    def _columns_of(self, X: Any) -> pd.DataFrame:
        return self.encoded(X)

    def _response_of(self, X: Any, y: Any) -> Any:
        return X[self.target] if y is None else y


def _written(column: pd.Series) -> pd.Series:
    """Labels of groups as texts; whole numbers as such, also where a missing one has made them fractions."""
    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1.0 == 0.0).all():
        column = column.astype("Int64")
    return column.astype(object).where(column.isna(), column.astype(str))
