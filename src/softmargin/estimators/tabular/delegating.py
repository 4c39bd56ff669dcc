"""A model of data frames around an estimator: it makes the columns, and all else is the estimator's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

__all__ = ["Delegating"]


def _of_rows(name: str) -> Any:
    """A method of the estimator, for rows of a data frame; it is there where the estimator has it."""

    def method(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, name)(self._columns_of(X), *args, **options)

    method.__name__, method.__qualname__ = name, f"Delegating.{name}"
    method.__doc__ = f"``{name}`` of the estimator, for rows of a data frame; the response need not be in it."
    has: Callable[[Any], bool] = lambda self: hasattr(self.estimator, name)  # noqa: E731
    return available_if(has)(method)


class Delegating(BaseEstimator, ABC):
    """An estimator for rows of data frames, whose ``estimator_`` is fitted to the columns that it makes of them."""

    estimator: Any
    estimator_: Any

    @abstractmethod
    def _columns_of(self, X: Any) -> Any:
        """The columns that the estimator sees."""

    @abstractmethod
    def _response_of(self, X: Any, y: Any) -> Any:
        """The response: y, or where it is None what the frame has of it."""

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags, tags.target_tags = inner.regressor_tags, inner.target_tags
        tags.target_tags.required = False
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    def to_arviz(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """The estimator's ``to_arviz``; X, where it is needed, are the rows of the fit as a data frame."""
        check_is_fitted(self)
        if X is None:
            return self.estimator_.to_arviz(**options)
        return self.estimator_.to_arviz(self._columns_of(X), np.asarray(self._response_of(X, y)), **options)

    def __getattr__(self, name: str) -> Any:
        # what takes no rows is the fitted estimator's own
        if name.startswith("_") or "estimator_" not in self.__dict__:
            unfitted = "" if name.startswith("_") else "; fit it first"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{unfitted}")
        return getattr(self.estimator_, name)

    def _names(self) -> list[str]:
        names: list[str] = self.estimator_._names()
        return names

    predict = _of_rows("predict")
    predict_proba = _of_rows("predict_proba")
    predict_interval = _of_rows("predict_interval")
    decision_function = _of_rows("decision_function")
    sample = _of_rows("sample")
    transform = _of_rows("transform")
