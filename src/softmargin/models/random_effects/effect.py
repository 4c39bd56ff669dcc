"""Effects of groups and smooth functions, as a user asks for them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import KW_ONLY, dataclass
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from softmargin.core.validation import plain_list
from softmargin.priors.composed.covariances import CovariancePrior
from softmargin.priors.scales import ScalePrior

__all__ = ["RandomEffect", "Smooth"]

_COVARIANCES = ("full", "diagonal")


def _names(what: str, value: Any) -> tuple[Any, ...]:
    """Names or positions of columns, given as one or as several of them."""
    wanted = f"{what} must be names or positions of columns of X"
    if isinstance(value, np.ndarray) and (value.ndim > 1 or value.dtype.kind not in "iuUO"):
        raise ValueError(f"{wanted}; got an array of values.")
    value = plain_list(value)
    names = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for name in names:
        if name is None or isinstance(name, bool) or not isinstance(name, Hashable):
            raise ValueError(f"{wanted}; got {name!r}.")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"{wanted}, each of them once; got {twice[0]!r} more than once.")
    return tuple(int(name) if _is_whole(name) else name for name in names)


def _is_whole(number: Any) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _check_scale(what: str, scale: Any) -> None:
    number = isinstance(scale, Real) and not isinstance(scale, bool) and isfinite(scale) and float(scale) > 0
    if not number and not (isinstance(scale, str) and scale == "learn"):
        raise ValueError(f"{what} scale must be 'learn' or a positive number; got {scale!r}.")


def _check_hyperprior(what: str, hyperprior: Any, joint: bool) -> None:
    wanted, names = (
        (CovariancePrior, "HalfTCovariance or InverseWishart")
        if joint
        else (ScalePrior, "HalfT, HalfCauchy or InverseGamma")
    )
    if hyperprior is not None and not isinstance(hyperprior, wanted):
        kind = "a full covariance" if joint else "a standard deviation"
        raise ValueError(f"{what} hyperprior of {kind} must be {names}; got {hyperprior!r}.")


@dataclass(frozen=True)
class RandomEffect:
    """An effect of its own for every group: ``u_g ~ N(0, S)``, added to the predictor of the group's rows.

    Parameters
    ----------
    group : str or int, or several of them
        Column of X that holds the groups; of several columns every combination is a group, which is how a factor is
        nested in another one. The column is no predictor.
    slopes : sequence of str or int
        Columns of X whose coefficients differ between groups. They stay predictors too.
    covariance : {"full", "diagonal"}, default="full"
        Whether the intercept and slopes of a group are correlated.
    intercept : bool, default=True
        Whether groups differ in level.
    scale : float or "learn"
        Standard deviation between groups (for standardized slope columns when the estimator standardizes).
    hyperprior : HalfT, HalfCauchy, InverseGamma, HalfTCovariance, InverseWishart or None
        Prior of a learned standard deviation, or of a full covariance. None is half-t.

    Examples
    --------
    >>> from softmargin import RandomEffect
    >>> RandomEffect("patient", slopes=["visit"]).slopes
    ('visit',)
    """

    group: Any
    slopes: Any = ()
    covariance: str = "full"
    _: KW_ONLY
    intercept: bool = True
    scale: float | str = "learn"
    hyperprior: Any = None

    def __post_init__(self) -> None:
        for name, value in (("group", self.group), ("slopes", self.slopes)):
            object.__setattr__(self, name, _names(f"RandomEffect {name}", value))
        if not self.group:
            raise ValueError("RandomEffect needs the name of the column that holds the groups.")
        if not isinstance(self.covariance, str) or self.covariance not in _COVARIANCES:
            raise ValueError(f"RandomEffect covariance must be one of {_COVARIANCES}; got {self.covariance!r}.")
        if not self.slopes and not self.intercept:
            raise ValueError("RandomEffect needs slopes where it has no intercept.")
        _check_scale("RandomEffect", self.scale)
        several = len(self.slopes) + int(self.intercept) > 1
        joint = self.covariance == "full" and several and self.scale == "learn"
        _check_hyperprior("RandomEffect", self.hyperprior, joint)

    @property
    def name(self) -> str:
        """The group columns, joined."""
        return ":".join(str(key) for key in self.group)


@dataclass(frozen=True)
class Smooth:
    """A smooth function of one column: its straight line as usual, and a spline around it as a random effect.

    Parameters
    ----------
    column : str or int
        Column of X. It stays a predictor too.
    knots : int, default=20
        Inner knots of the cubic spline, at quantiles of the column.
    scale : float or "learn"
        Standard deviation of what is not linear, in the units of the predictor f.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned standard deviation. None is half-t.

    Examples
    --------
    >>> from softmargin import Smooth
    >>> Smooth("age", knots=10).name
    's(age)'
    """

    column: Any
    knots: int = 20
    _: KW_ONLY
    scale: float | str = "learn"
    hyperprior: Any = None

    def __post_init__(self) -> None:
        column = _names("Smooth column", self.column)
        if len(column) != 1:
            raise ValueError(f"Smooth takes one column; got {self.column!r}: add a Smooth for each.")
        object.__setattr__(self, "column", column[0])
        if not _is_whole(self.knots) or self.knots < 1:
            raise ValueError(f"Smooth knots must be a positive integer; got {self.knots!r}.")
        _check_scale("Smooth", self.scale)
        _check_hyperprior("Smooth", self.hyperprior, False)

    @property
    def group(self) -> tuple[Any, ...]:
        """Columns that hold groups: none."""
        return ()

    @property
    def name(self) -> str:
        """How the term is called in tables."""
        return f"s({self.column})"
