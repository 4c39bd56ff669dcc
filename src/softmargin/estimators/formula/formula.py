"""Models written as formulas: ``Formula("infected ~ visit * treatment + (1 | patient)", BayesianSVC())``."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from softmargin.estimators.formula._response import Response
from softmargin.estimators.formula._rows import rows_of
from softmargin.estimators.formula._terms import Terms, learned
from softmargin.estimators.formula._text import shortened
from softmargin.estimators.fresh import fresh
from softmargin.estimators.linear import LinearMachine
from softmargin.estimators.svc import BayesianSVC
from softmargin.estimators.tabular.delegating import Delegating

__all__ = ["Formula", "fit"]

_SAID = {"random_effects": (None, "(1 | g)"), "fit_intercept": (True, "0 +")}  # defaults, and what to write instead


class Formula(Delegating):
    """A model that is written as a formula, for rows of data frames.

    Cross-validation, searches and pipelines take it as any other estimator: the columns of the right side are made anew
    in every fit, and the response is never among them.

    Parameters
    ----------
    formula : str
        A response and its predictors, as in ``"y ~ x * treatment + s(age) + (x | patient)"``. ``y["yes"]`` makes that
        level the positive class; ``0 +`` leaves the intercept out.
    estimator : BayesianSVC or BayesianSVR
        The model; its ``random_effects`` and ``fit_intercept`` are what the formula says.

    Attributes
    ----------
    estimator_ : BayesianSVC or BayesianSVR
        The fitted estimator. All that it has is an attribute or method of the ``Formula`` too.
    formula_ : Terms
        The formula with the levels and transformations of the training rows; ``formula_.frame(data)`` has the columns
        that it makes.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.model_selection import cross_val_score
    >>> from softmargin import BayesianSVC, Formula
    >>> data = pd.DataFrame({"sick": [False, True] * 20, "dose": range(40), "sex": list("fm") * 10 + list("mf") * 10})
    >>> model = Formula("sick ~ dose + sex", BayesianSVC(prior="lasso"))
    >>> cross_val_score(model, data, data["sick"], cv=4).shape
    (4,)
    """

    formula_: Terms

    def __init__(self, formula: str, estimator: Any):
        self.formula = formula
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Formula:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame
            Rows, of pandas or polars, with the columns that the formula names.
        y : array of shape (n,), optional
            Values of the left side of the formula; without it they are taken from X.
        sample_weight : array of shape (n,) or str, optional
            Counts of the rows, or the column of X that holds them.
        """
        with fresh(self):
            return self._fit(*learned(self.formula, X, y), X, sample_weight)

    def _fit(self, made: Terms, response: Response, data: Any, sample_weight: Any) -> Formula:
        self.estimator_ = _prepared(self.estimator, made, response)
        weight = _weight(sample_weight, data, made)
        self.estimator_.fit(made.frame(data), np.asarray(response.values), sample_weight=weight)
        self.formula_ = made
        return self

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The estimator's ``score``: the share of rows whose class is predicted, or the r2 of a regression.

        Parameters
        ----------
        X : DataFrame
            Rows with the columns that the formula names.
        y : array of shape (n,), optional
            Values of the left side of the formula; without it they are taken from X.
        sample_weight : array of shape (n,) or str, optional
            Counts of the rows, or the column of X that holds them.
        """
        check_is_fitted(self)
        weight, response = _weight(sample_weight, X, self.formula_), np.asarray(self._response_of(X, y))
        return float(self.estimator_.score(self._columns_of(X), response, sample_weight=weight))

    def _columns_of(self, X: Any) -> Any:
        return self.formula_.frame(X)

    def _response_of(self, X: Any, y: Any) -> Any:
        return self.formula_.response(X, y)


def _weight(sample_weight: Any, data: Any, made: Terms) -> Any:
    """Counts of the rows, from the column that a text names."""
    if not isinstance(sample_weight, str):
        return sample_weight
    return rows_of(data, [sample_weight], shortened(made.text))[sample_weight]


def _prepared(estimator: Any, made: Terms, response: Response) -> Any:
    """A copy of the estimator with the intercept and the effects of the formula."""
    if not isinstance(estimator, LinearMachine):
        raise ValueError(f"estimator must be a BayesianSVC or a BayesianSVR, as in BayesianSVC(); got {estimator!r}.")
    kind, known = type(estimator).__name__, estimator.get_params(deep=False)
    for name, (default, _) in _SAID.items():
        if known.get(name, default) is not default:
            _refuse_option(name)
    if not isinstance(estimator, BayesianSVC) and response.labels:
        raise ValueError(f"{kind} needs numbers, and the response of {shortened(made.text)!r} has none.")
    effects = {"random_effects": list(made.effects)} if made.effects else {}
    return clone(estimator).set_params(fit_intercept=made.intercept, **effects)


def _refuse_option(name: str) -> None:
    raise ValueError(f"{name} is what the formula says; leave it out and write {_SAID[name][1]!r} in the formula.")


def fit(
    formula: str,
    data: Any,
    *,
    prior: Any = "ridge",
    inference: str = "vb",
    estimator: Any = None,
    sample_weight: Any = None,
    **options: Any,
) -> Formula:
    """Fit the model that a formula describes.

    Parameters
    ----------
    formula : str
        A response and its predictors, as in ``"y ~ x * treatment + s(age) + (x | patient)"``. ``y["yes"]`` makes that
        level the positive class; ``0 +`` leaves the intercept out.
    data : DataFrame
        One row per observation, of pandas or polars.
    prior, inference, **options
        Parameters of the estimator.
    estimator : class, optional
        ``BayesianSVC`` (for a response with labels, or with two values, it need not be given) or ``BayesianSVR``.
    sample_weight : array of shape (n,) or str, optional
        Counts of the rows, or the column of the data that holds them.

    Returns
    -------
    Formula
        The fitted model, with all that the estimator has. Its methods take data frames with the columns that the
        formula names.

    Examples
    --------
    >>> import pandas as pd
    >>> import softmargin
    >>> data = pd.DataFrame({"sick": [False, True] * 20, "dose": range(40), "sex": list("fm") * 10 + list("mf") * 10})
    >>> model = softmargin.fit("sick ~ dose + sex", data)
    >>> list(model.summary().index)
    ['Intercept', 'dose', 'sex[m]']
    """
    for name in _SAID:
        if name in options:
            _refuse_option(name)
    made, response = learned(formula, data)
    if estimator is None:
        _check_classes(made, response)
        estimator = BayesianSVC
    if not (isinstance(estimator, type) and issubclass(estimator, LinearMachine)):
        raise ValueError(f"estimator must be the class BayesianSVC or BayesianSVR; got {estimator!r}.")
    model = Formula(formula, estimator(prior=prior, inference=inference, **options))
    return model._fit(made, response, data, sample_weight)


def _check_classes(made: Terms, response: Response) -> None:
    """Refuse a response that could mean a quantity as well as classes."""
    values = response.values.nunique()
    if not response.labels and values > 2:
        raise ValueError(
            f"the response of {shortened(made.text)!r} has {values} different numbers; say with "
            "estimator=BayesianSVR that it is a quantity, or with estimator=BayesianSVC that these are classes."
        )
