"""What priors with a point mass at zero check alike."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from softmargin.core.array import Flags
from softmargin.priors.scales import ScalePrior

__all__ = ["check_point_mass", "kept_inclusion", "probabilities"]


def _positive(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def kept_inclusion(prior: Any, columns: Any) -> Any:
    """The prior of the columns that are kept, where it has an inclusion probability for every column of X."""
    if np.ndim(prior.inclusion) == 0:
        return prior
    given, name = np.asarray(prior.inclusion, dtype=float), type(prior).__name__
    if len(given) != columns.n_features:
        raise ValueError(
            f"{name} has {len(given)} inclusion probabilities for the {columns.n_features} columns of X; give one for "
            "each."
        )
    return replace(prior, inclusion=given[columns.keep])


def probabilities(prior: Any, free: Flags) -> Any:
    """One probability for all coefficients, or one for each of them; free ones are in whatever they have."""
    if np.ndim(prior.inclusion) == 0:
        return float(prior.inclusion)
    count, name = int((~free).sum()), type(prior).__name__
    if len(prior.inclusion) != count:
        raise ValueError(
            f"{name} has {len(prior.inclusion)} inclusion probabilities for {count} columns; give one for each."
        )
    pi = np.full(len(free), 0.5)
    pi[~free] = prior.inclusion
    return pi


def check_point_mass(prior: Any, usual: float | str) -> None:
    """Refuse a prior whose arguments cannot be; ``usual`` is the inclusion probability it has by default."""
    name, inclusion, size = type(prior).__name__, prior.inclusion, prior.expected_size
    learned = isinstance(inclusion, str) and inclusion == "learn"
    each = list(inclusion) if np.ndim(inclusion) == 1 else [inclusion]
    if not learned and not (each and all(_positive(value) and float(value) < 1 for value in each)):
        raise ValueError(
            f"{name} inclusion must be a number in (0, 1), one such number for every column, or 'learn'; got "
            f"{inclusion!r}."
        )
    if size is not None:
        if not _positive(size):
            raise ValueError(f"{name} expected_size must be a positive number or None; got {size!r}.")
        if np.ndim(inclusion) or inclusion != usual:
            raise ValueError(
                f"{name} takes inclusion or expected_size, not both; got inclusion={inclusion!r} and "
                f"expected_size={size!r}."
            )
    if not (isinstance(prior.scale, str) and prior.scale == "learn") and not _positive(prior.scale):
        raise ValueError(f"{name} scale must be a positive number or 'learn'; got {prior.scale!r}.")
    if isinstance(prior.always_include, str):
        raise ValueError(f"always_include must be a list of columns; write [{prior.always_include!r}].")
    if not isinstance(prior.always_include, Sized):
        raise ValueError(f"always_include must be a list of columns; got {prior.always_include!r}.")
    if prior.hyperprior is not None and not isinstance(prior.hyperprior, ScalePrior):
        raise ValueError(f"hyperprior must be HalfT, HalfCauchy, InverseGamma or None; got {prior.hyperprior!r}.")
    if not _positive(prior.intercept_scale):
        raise ValueError(f"intercept_scale must be a positive number; got {prior.intercept_scale!r}.")
