"""Models of the same rows, compared by how they predict rows that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.estimators.assess.export import Exported
from softmargin.estimators.formula.formula import Formula
from softmargin.estimators.tabular.tabular import Tabular
from softmargin.inference.choices import mean_and_error

__all__ = ["compare"]

_SAME = "fit them to the same rows in the same order"


class _LeftOut(NamedTuple):
    """Log loss of every training row that is left out, what the rows are, and the largest share of a row."""

    loss: Array
    y: Any
    counts: Array
    place: Any
    classes: Any  # None for a regression
    max_kv: float


def compare(models: Mapping[str, Any]) -> pd.DataFrame:
    """Compare fitted models of the same rows by their leave-one-out log loss, the best first.

    The log loss of a row is minus the log of the probability (of a class) or density (of a number, in its units) that
    the model gives it when it is left out, in closed form and without refits. Differences are taken row by row, so that
    their standard errors are much smaller than those of the scores.

    Parameters
    ----------
    models : dict
        Fitted estimators by name; also formulas and pipelines that end in one.

    Returns
    -------
    DataFrame
        One row per model: ``log_loss`` with its standard error ``se``, its ``difference`` to the best model with the
        standard error ``se_difference``, the number of ``rows``, and ``max_kv``, the largest share of a predictor's
        precision that its own row supplies: above 0.7 a log loss is optimistic.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from softmargin import BayesianSVC, compare
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> models = {"all columns": BayesianSVC().fit(X, y), "one column": BayesianSVC().fit(X[:, :1], y)}
    >>> list(compare(models).index)
    ['all columns', 'one column']
    """
    if not isinstance(models, Mapping) or not models:
        raise ValueError(f"models must be a dict of fitted models by name, as in {{'a': model}}; got {models!r}.")
    names = list(models)
    found = [_left_out(str(name), model) for name, model in models.items()]
    for name, other in zip(names[1:], found[1:], strict=True):
        _check_same(names[0], found[0], name, other)
    known = np.all([np.isfinite(each.loss) for each in found], axis=0)
    if not known.any():
        raise ValueError("these models have no row in common that all of them predict without itself; fit them again.")
    losses, count = [each.loss[known] for each in found], found[0].counts[known]
    best = losses[int(np.argmin([mean_and_error(loss, count)[0] for loss in losses]))]
    table = [
        (*mean_and_error(loss, count), *mean_and_error(loss - best, count), int(known.sum()), each.max_kv)
        for loss, each in zip(losses, found, strict=True)
    ]
    columns = ["log_loss", "se", "difference", "se_difference", "rows", "max_kv"]
    return pd.DataFrame(table, index=pd.Index(names, name="model"), columns=columns).sort_values("log_loss")


def _left_out(name: str, model: Any) -> _LeftOut:
    """What a fitted model says of its rows."""
    while isinstance(model, Pipeline | Formula | Tabular):
        check_is_fitted(model)
        model = model[-1] if isinstance(model, Pipeline) else model.estimator_
    if not isinstance(model, Exported):
        raise ValueError(f"{name!r} is {model!r}, and compare takes fitted models of this package.")
    check_is_fitted(model)
    rows, seen = fitted(model, "_observed"), fitted(model, "_seen")
    if rows is None:
        raise ValueError(f"{name!r} comes from a file of a version that did not keep the responses; fit it again.")
    classes = fitted(model, "classes_")
    if classes is None:
        held = model._fitted.fit.held
        loss, max_kv = np.log(model._fitted.units.spread) - held.log_density, held.loo.max_kv
    else:
        p = model._fitted.loo_probability
        with np.errstate(divide="ignore"):
            loss = -np.log(np.maximum(p[np.arange(len(p)), rows.y], 1e-300))
        max_kv = model._fitted.loo.max_kv
    return _LeftOut(loss, rows.y, rows.counts, None if seen is None else seen.place, classes, float(max_kv))


def _check_same(first: str, one: _LeftOut, name: str, other: _LeftOut) -> None:
    """Refuse models of other rows or responses."""
    pair = f"{first!r} and {name!r}"
    if (one.classes is None) != (other.classes is None):
        raise ValueError(f"{pair} are a classifier and a regression, whose log losses do not compare.")
    if len(one.y) != len(other.y):
        raise ValueError(f"{pair} were fitted to {len(one.y)} and {len(other.y)} rows; {_SAME}.")
    if one.classes is not None and not np.array_equal(one.classes, other.classes):
        raise ValueError(
            f"{pair} have other classes, {one.classes.tolist()[:5]} and {other.classes.tolist()[:5]}; {_SAME}."
        )
    apart = np.flatnonzero(one.y != other.y)
    if len(apart):
        raise ValueError(
            f"{pair} were fitted to other responses: {len(apart)} of {len(one.y)} differ, the first in row {apart[0]}; "
            f"{_SAME}."
        )
    if not np.array_equal(one.counts, other.counts) or not _same_place(one.place, other.place):
        raise ValueError(f"the rows of {pair} count differently; fit them with the same sample_weight.")


def _same_place(one: Any, other: Any) -> bool:
    """Whether the same rows of the data had no weight; None where all of them had."""
    return one is other is None or (one is not None and other is not None and np.array_equal(one, other))
