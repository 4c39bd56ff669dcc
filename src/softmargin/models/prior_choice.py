"""Which variables matter: the selecting side of an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.designs.standardize import Columns
from softmargin.exceptions import ModelWarning
from softmargin.priors import Bridge, GroupLasso, Horseshoe, LaplaceZero, Lasso, Prior, Ridge, SpikeSlab

__all__ = ["PRIORS", "Selection", "always_mask", "chosen"]

PRIORS: dict[str, Any] = {
    "ridge": Ridge,
    "lasso": Lasso,
    "bridge": Bridge,
    "horseshoe": Horseshoe,
    "group-lasso": GroupLasso,
    "spike-slab": SpikeSlab,
    "laplace-zero": LaplaceZero,
}


def chosen(inclusion: Array, threshold: float, false_discovery: float | None) -> Any:
    """Columns chosen by their inclusion probabilities.

    Those above ``threshold`` (0.5 is the median model); or, with ``false_discovery``, the longest list of the most
    probable ones whose expected share of wrong inclusions, the mean of ``1 - inclusion``, is at most that.
    """
    if false_discovery is None:
        return inclusion > threshold
    if not 0 < false_discovery < 1:
        raise ValueError(f"false_discovery must be between 0 and 1; got {false_discovery!r}.")
    order = np.argsort(-inclusion, kind="stable")
    share = np.cumsum(1.0 - inclusion[order]) / np.arange(1, len(order) + 1)
    mask = np.zeros(len(order), dtype=bool)
    mask[order[: int((share <= false_discovery).sum())]] = True
    return mask


def always_mask(always_include: Any, columns: Columns, names: Any) -> Any:
    """Mask over the model's coefficients of the columns a prior must include, given by name or position."""
    wanted = np.zeros(columns.n_features, dtype=bool)
    mask = np.asarray(always_include)
    if mask.dtype == bool and len(mask):
        if len(mask) != columns.n_features:
            raise ValueError(f"always_include is a mask of {len(mask)} for the {columns.n_features} columns of X.")
        wanted, always_include = mask.copy(), ()
    for column in always_include:
        if isinstance(column, str):
            if names is None or column not in names:
                raise ValueError(f"always_include names column {column!r}, which X does not have.")
            wanted |= np.asarray(names) == column
        elif isinstance(column, (int, np.integer)) and -columns.n_features <= column < columns.n_features:
            wanted[column] = True
        else:
            raise ValueError(
                f"always_include must list names or positions of the {columns.n_features} columns of X; got {column!r}."
            )
    return np.concatenate((np.zeros(int(columns.intercept), dtype=bool), wanted[columns.keep]))


def _selects(estimator: Any) -> bool:
    """Whether the estimator's prior can leave columns out."""
    return _leaves_out(estimator.prior)


def _leaves_out(prior: Any) -> bool:
    """Whether a prior, or one of several by column, can leave columns out."""
    if isinstance(prior, str):
        return prior in PRIORS and bool(PRIORS[prior]().selects)
    if isinstance(prior, Mapping):
        return any(_leaves_out(each) for each in prior.values())
    return isinstance(prior, Prior) and prior.selects


class Selection(SelectorMixin):
    """Feature selection by a fitted model; ``transform`` exists where the prior can leave columns out."""

    def get_support(
        self, indices: bool = False, *, threshold: float = 0.5, false_discovery: float | None = None
    ) -> Any:
        """Columns that the model includes.

        Without inclusion probabilities these are the columns whose coefficient is not zero. With many classes a
        column counts by the pair that wants it most.

        A false-discovery list of the hinge needs some signal: inside its margin the hinge has no curvature, so that
        without any signal evidence for a column that is noise grows with the rows. Where left-out rows are predicted
        less than 2 % better than by the class frequencies the list is empty, with a warning.

        Parameters
        ----------
        indices : bool
            Positions instead of a mask.
        threshold : float
            Least inclusion probability; 0.5 gives the median model.
        false_discovery : float or None
            Instead: the longest list whose expected share of wrong inclusions is at most this.

        Returns
        -------
        array
            A mask of the columns, or their positions.
        """
        check_is_fitted(self)
        inclusion = fitted(self, "inclusion_")
        if inclusion is not None:
            mask = chosen(np.max(np.atleast_2d(inclusion), axis=0), threshold, false_discovery)
            if false_discovery is not None and mask.any() and self._says_nothing():
                mask = np.zeros_like(mask)
                warnings.warn(
                    "this fit predicts left-out rows hardly better than the class frequencies, and there the hinge "
                    "counts noise as signal: the list is empty; use likelihood='logit' for a list of weak effects.",
                    ModelWarning,
                    stacklevel=2,
                )
        else:
            mask = (self.coef_ != 0.0).any(axis=0)
        return np.flatnonzero(mask) if indices else mask

    def _says_nothing(self) -> bool:
        """Whether a list of this fit's columns could be noise alone."""
        return False

    def _get_support_mask(self) -> Any:
        return self.get_support()


# set after the class is made, because scikit-learn wraps the methods that a class body defines
for _method in (SelectorMixin.transform, SelectorMixin.fit_transform, SelectorMixin.inverse_transform):
    setattr(Selection, _method.__name__, available_if(_selects)(_method))
