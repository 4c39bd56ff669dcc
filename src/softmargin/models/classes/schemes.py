"""Two classes as they are, and more of them by pairs or as one model."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.classes import pair_weights
from softmargin.designs.standardize import Columns
from softmargin.models.classes.crammer_singer import fit_crammer_singer
from softmargin.models.classes.pairwise import Pairwise, fit_pairwise, more_pairs
from softmargin.models.classes.sum_to_zero import cost_table, fit_sum_to_zero
from softmargin.models.random_effects.terms import coded
from softmargin.models.stream import more_of_two_classes
from softmargin.models.two_class import Recipe, fit_two_classes
from softmargin.refusals import refused
from softmargin.rows.elsewhere import Elsewhere

__all__ = ["SCHEMES", "fit_classes", "more_of_classes"]

_PLUS, _MINUS = np.int8(1), np.int8(-1)  # rows that are elsewhere may be very many
SCHEMES = ("pairwise", "sum-to-zero", "crammer-singer")


def fit_classes(
    recipe: Recipe,
    X: Any,
    index: Any,
    count: Array,
    weight: Array,
    columns: Columns,
    k: int,
    *,
    scheme: str,
    costs: Any,
    standardized: bool,
    **task: Any,
) -> Any:
    """Fit the k classes in ``index``; ``scheme`` says what more than two become."""
    if k > 2 and recipe.prior.centred:
        raise ValueError(refused("means of classes", classes=k))
    if k > 2 and scheme != "pairwise":
        return _joint(recipe, X, index, count, weight, columns, k, scheme, costs, task)
    if k > 2:
        if costs is not None:
            raise ValueError("costs of many classes need one model of all of them: set multi_class='sum-to-zero'.")
        if recipe.effects:
            coded(recipe.effects, X, columns)  # what all rows lack is an error, what those of a pair lack is not
        task |= {"intercept": columns.intercept, "standardized": standardized}
        return fit_pairwise(recipe, X, index, count, weight, k, **task)
    weight = _with_costs(index, weight, costs, k)
    sign = np.where(index == 1, 1.0, -1.0) if not isinstance(X, Elsewhere) else np.where(index == 1, _PLUS, _MINUS)
    return fit_two_classes(recipe, X, sign, count, weight, columns, **task)


def _with_costs(index: Any, weight: Array, costs: Any, k: int) -> Array:
    """The cost of an error of either class is a weight of its rows."""
    return weight if costs is None else pair_weights(index, weight, cost_table(costs, k), k).sum(axis=0)


def more_of_classes(
    recipe: Recipe, before: Any, X: Any, index: Any, count: Array, weight: Array, *, costs: Any, **task: Any
) -> Any:
    """The classes after more rows, ``before`` being what all earlier ones have left."""
    if isinstance(before, Pairwise):
        return more_pairs(recipe, before, X, index, count, weight, **task)
    weight = _with_costs(index, weight, costs, 2)
    return more_of_two_classes(recipe, before, X, np.where(index == 1, 1.0, -1.0), count, weight, **task)


def _joint(
    recipe: Recipe,
    X: Any,
    index: Any,
    count: Array,
    weight: Array,
    columns: Columns,
    k: int,
    scheme: str,
    costs: Any,
    task: dict[str, Any],
) -> Any:
    """One model of all classes."""
    if isinstance(X, Elsewhere):
        raise ValueError(refused("scores elsewhere", kind=X.kind))
    name = {"scheme": f"multi_class={scheme!r}"}
    if recipe.effects and scheme != "sum-to-zero":
        raise ValueError(refused("scores of groups", **name))
    if recipe.incomplete and scheme != "sum-to-zero":
        raise ValueError(refused("scores of incomplete rows", **name))
    if recipe.inference == "svi" and scheme != "sum-to-zero":
        raise ValueError(refused("scores by batches", **name))
    if not recipe.loss.margin_slope:
        raise ValueError(refused("other losses of classes", **name))
    if scheme == "sum-to-zero":
        return fit_sum_to_zero(recipe, X, index, count, weight, columns, costs, k, **task)
    if costs is not None:
        raise ValueError(refused("scores with costs", **name))
    return fit_crammer_singer(recipe, X, index, count, weight, columns, k, **task)
