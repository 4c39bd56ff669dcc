"""A model of the columns of a table: numbers as they are, labels as indicators of their levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

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
                f"{_MOST}; leave it out, or make it a grouping column."
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


def _of_rows(name: str) -> Any:
    """A method of the estimator, for rows of a table."""

    def method(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, name)(self.encoded(X), *args, **options)

    method.__name__, method.__qualname__ = name, f"Tabular.{name}"
    method.__doc__ = f"``{name}`` of the estimator, for rows of a data frame."
    has: Callable[[Any], bool] = lambda self: hasattr(self.estimator, name)  # noqa: E731
    return available_if(has)(method)


class Tabular(BaseEstimator):
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

    estimator_: Any
    columns_: tuple[Column, ...]

    def __init__(self, estimator: Any, target: str, groups: Any = ()):
        self.estimator = estimator
        self.target = target
        self.groups = groups

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags, tags.target_tags = inner.regressor_tags, inner.target_tags
        return tags

    def fit(self, X: pd.DataFrame, y: Any = None, sample_weight: Any = None) -> Tabular:
        """Fit the model to the rows of a frame; without ``y`` the response is its column ``target``."""
        y = X[self.target] if y is None else y
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
        groups = [X[name].astype(object).where(X[name].isna(), X[name].astype(str)) for name in self.groups]
        return pd.concat([pd.DataFrame(index=X.index), *parts, *groups], axis=1)

    def to_arviz(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """The estimator's ``to_arviz``; X, where it is needed, are the rows of the fit as a data frame."""
        check_is_fitted(self)
        if X is None:
            return self.estimator_.to_arviz(**options)
        y = X[self.target] if y is None else y
        return self.estimator_.to_arviz(self.encoded(X), np.asarray(y), **options)

    def __getattr__(self, name: str) -> Any:
        # what takes no rows is the fitted estimator's own
        if name.startswith("_") or "estimator_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.estimator_, name)

    predict = _of_rows("predict")
    predict_proba = _of_rows("predict_proba")
    predict_interval = _of_rows("predict_interval")
    decision_function = _of_rows("decision_function")
    sample = _of_rows("sample")
    score = _of_rows("score")
