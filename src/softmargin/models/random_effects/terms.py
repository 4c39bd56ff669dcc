"""Group labels and smooth columns of a data set, turned into the terms of a model and back into tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.validation import dimensions_of, is_frame
from softmargin.designs.grouped import GroupTerm
from softmargin.designs.splines import FEWEST, Spline, middle_share
from softmargin.designs.standardize import Columns
from softmargin.exceptions import DataWarning, warn_user
from softmargin.models.random_effects.effect import RandomEffect, Smooth
from softmargin.models.random_effects.labels import combined, flat, levels_of, positions
from softmargin.priors.composed.terms import TermPrior
from softmargin.priors.scales import ScalePrior

__all__ = ["GROUPS", "Coded", "Labelled", "coded", "effects_of", "separated", "warn_of_groups"]

_SKEWED = 0.02  # share of the range that half of a column's values take, below which a curve does poorly
GROUPS = "groups"  # what the factor given as ``groups=`` is called


class Labelled(NamedTuple):
    """Predictors with the groups of their rows, a column of labels for each grouping column."""

    X: Any
    labels: dict[Any, Any]
    names: tuple[Any, ...] = ()  # how effects call the predictors: names of a frame, positions in an array

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.X.shape
        return int(rows), int(columns)

    def at(self, rows: Any) -> Labelled:
        """Some of the rows."""
        return Labelled(self.X[rows], {key: column[rows] for key, column in self.labels.items()}, self.names)


def effects_of(wanted: Any, groups: bool) -> tuple[Any, ...]:
    """The effects that ``random_effects`` and ``groups`` stand for."""
    if wanted is None:
        wanted = ()
    if isinstance(wanted, (str, Integral, RandomEffect, Smooth)):
        wanted = (wanted,)
    if not isinstance(wanted, (list, tuple, np.ndarray, pd.Index)) or dimensions_of(wanted) != 1:
        raise ValueError(
            "random_effects must be the name or position of a grouping column, a RandomEffect, a Smooth or a list of "
            f"these; got {wanted!r}."
        )
    effects = [one if isinstance(one, (RandomEffect, Smooth)) else RandomEffect(one) for one in wanted]
    if groups and not any(isinstance(one, RandomEffect) and one.group == (GROUPS,) for one in effects):
        effects.insert(0, RandomEffect(GROUPS))
    names = [effect.name for effect in effects]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"random_effects names {twice[0]!r} more than once; put its slopes into one RandomEffect.")
    return tuple(effects)


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def _keys(effects: Sequence[Any]) -> list[Any]:
    found = [key for effect in effects if isinstance(effect, RandomEffect) for key in effect.group]
    return list(dict.fromkeys(found))


def separated(X: Any, effects: Sequence[Any], groups: Any) -> Labelled:
    """X without its grouping columns, and those columns by name; ``groups`` is one that came on its own.

    Where columns of an array are taken out, the others are named by the positions that they had.
    """
    keys = _keys(effects)
    if groups is not None and GROUPS not in keys:
        raise ValueError("groups were not part of the fit; leave them out, or fit with groups.")
    if not effects:
        return Labelled(X, {})
    plain: Any = X if is_frame(X) else X.tocsr() if _is_sparse(X) else np.asarray(X)
    called = list(plain.columns) if is_frame(plain) else list(range((*plain.shape, 0)[1]))
    labels: dict[Any, Any] = {}
    for key in keys:
        if key == GROUPS and groups is not None:
            labels[key] = flat(groups, (*plain.shape, 0)[0])
        elif key in called:
            if called.count(key) > 1:
                raise ValueError(f"X has several columns {key!r}; give each a name of its own.")
            column = plain[key] if is_frame(plain) else _column(plain, key)
            labels[key] = np.asarray(column, dtype=object)
        elif key != GROUPS:  # new rows without groups are all from groups not seen before
            raise ValueError(_lacking(key, called, frame=is_frame(X)))
    inside = [key for key in labels if not (key == GROUPS and groups is not None)]
    left = [name for name in called if name not in inside]
    if not inside:
        return Labelled(X, labels, tuple(left))
    if is_frame(plain) and not all(isinstance(name, int) for name in left):
        return Labelled(plain[left], labels, tuple(left))
    return Labelled(_numbered(plain, left), labels, tuple(left))


def warn_of_groups(keys: Sequence[Any], rows: Labelled) -> None:
    """Say that new rows came without the groups that a fit had."""
    if GROUPS in keys and GROUPS not in rows.labels:
        warn_user(
            f"the model was fitted with groups and none came with these {rows.shape[0]} row(s), which are taken for "
            "rows of groups not seen before; pass groups=, or fit with a column of X that random_effects names.",
            DataWarning,
        )


def _numbered(X: Any, left: list[int]) -> Any:
    """These columns of an array, or of a frame with numbers for names, under names that tell their numbers."""
    names = [f"x{number}" for number in left]
    if is_frame(X):
        return X[left].set_axis(names, axis=1)
    if _is_sparse(X):
        sparse: Any = pd.DataFrame.sparse
        return pd.DataFrame(sparse.from_spmatrix(X[:, left], columns=names))
    return pd.DataFrame(X[:, left], columns=names)


def _lacking(key: Any, called: list[Any], frame: bool) -> str:
    there = f"{called[:20]}" if frame else f"0 to {len(called) - 1}" if called else "none"
    advice = "add it to X, or fit with one of these"
    if not frame and isinstance(key, str):
        advice = "pass a data frame, or give its position"
    elif frame and isinstance(key, int):
        advice = "give its name"
    return f"the grouping column {key!r} of random_effects is not among the columns of X ({there}); {advice}."


def _column(X: Any, place: int) -> Any:
    return X[:, [place]].toarray().ravel() if _is_sparse(X) else np.asarray(X)[:, place]


def _place(key: Any, names: tuple[Any, ...], effect: str) -> int:
    """Position of a column among the predictors."""
    if key in names:
        return names.index(key)
    raise ValueError(f"the column {key!r} of {effect} is not among the predictors {list(names)}; name one of these.")


def _complete(column: Any, key: Any, effect: str) -> Array:
    x = np.asarray(column, dtype=float)
    if np.isnan(x).any():
        raise ValueError(f"the column {key!r} of {effect} has missing values; impute them, or drop the term.")
    return x


@dataclass(frozen=True, eq=False)
class _Groups:
    """A grouping factor as the training rows have it."""

    effect: RandomEffect
    levels: Any  # pd.Index of the labels, tuples for several columns
    slopes: tuple[Any, ...]  # those that vary in the rows
    places: tuple[int, ...]  # of the slope columns among the predictors
    shift: Array
    scale: Array

    @property
    def name(self) -> str:
        return self.effect.name

    @property
    def effects(self) -> tuple[str, ...]:
        """What differs between groups."""
        slopes = tuple(str(key) for key in self.slopes)
        return ("Intercept", *slopes) if self.effect.intercept else slopes

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the standard deviations, none of them that of the predictors' scale."""
        level = "scale (groups)" if self.name == "scale" else self.name
        return tuple(level if one == "Intercept" else f"{self.name}[{one}]" for one in self.effects)

    @property
    def prior(self) -> TermPrior:
        if self.idle:
            return TermPrior(self.labels, len(self.levels), 1.0)
        full = self.effect.covariance == "full" and self.effect.scale == "learn"
        hyperprior = self.effect.hyperprior
        if len(self.labels) == 1 and not isinstance(hyperprior, ScalePrior):
            hyperprior = None  # that of a covariance, of which one standard deviation is left
        return TermPrior(self.labels, len(self.levels), self.effect.scale, hyperprior, full)

    @property
    def idle(self) -> bool:
        """Whether nothing differs between groups: the slopes do not vary, and there is no intercept."""
        return not self.effect.intercept and not self.scale.any()

    def names(self, rows: Labelled) -> pd.Series:
        """The groups of the rows."""
        return combined(rows.labels, self.effect.group, rows.shape[0])

    def columns(self, rows: Labelled) -> Array:
        """Numbers of the rows in the columns of their group, slopes standardized."""
        parts = [np.ones(rows.shape[0])] if self.effect.intercept else []
        for key, place, shift, scale in zip(self.slopes, self.places, self.shift, self.scale, strict=True):
            parts.append((_complete(_column(rows.X, place), key, f"the random effect {self.name!r}") - shift) * scale)
        return np.ascontiguousarray(np.column_stack(parts))

    def term(self, rows: Labelled) -> GroupTerm:
        codes = positions(self.names(rows), self.levels, self.name)
        return GroupTerm(codes, len(self.levels), self.columns(rows))

    def turn(self) -> Array:
        """The matrix from a group's coefficients to those in the user's units."""
        lead = int(self.effect.intercept)
        turn = np.diag(np.concatenate((np.ones(lead), self.scale)))
        if lead:
            turn[0, 1:] = -self.shift * self.scale
        return turn


@dataclass(frozen=True, eq=False)
class _Curve:
    """A smooth function; its spline coefficients are one group. Without a spline it is a straight line."""

    effect: Smooth
    place: int
    spline: Spline | None

    levels = None
    effects = ("spline",)

    def names(self, rows: Labelled) -> pd.Series:
        """There is one curve for all rows."""
        return pd.Series([self.name] * rows.shape[0])

    @property
    def name(self) -> str:
        return self.effect.name

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def prior(self) -> TermPrior:
        if self.spline is None:
            return TermPrior(self.labels, 1, 1.0)
        size = self.spline.turn.shape[1]
        return TermPrior(self.labels, size, self.effect.scale, self.effect.hyperprior)

    def term(self, rows: Labelled) -> GroupTerm:
        x = _complete(_column(rows.X, self.place), self.effect.column, f"the smooth {self.name!r}")
        columns = np.zeros((len(x), 1)) if self.spline is None else self.spline.columns(x)
        return GroupTerm(np.zeros(len(x), dtype=np.intp), 1, np.ascontiguousarray(columns))

    def turn(self) -> Array:
        return np.eye(1) if self.spline is not None else np.zeros((1, 1))


Coded = _Groups | _Curve


def coded(effects: Sequence[Any], rows: Labelled, columns: Columns, *, part: bool = False) -> tuple[Coded, ...]:
    """The effects with the groups, columns and knots that the training rows give them.

    Where the rows are a ``part`` of the data, slopes of columns that are constant there, and curves of columns with too
    few values, are left out.
    """
    return tuple(
        _curve(effect, rows, part) if isinstance(effect, Smooth) else _groups(effect, rows, columns, part)
        for effect in effects
    )


def _curve(effect: Smooth, rows: Labelled, part: bool) -> _Curve:
    what = f"the smooth {effect.name!r}"
    place = _place(effect.column, rows.names, what)
    x = _complete(_column(rows.X, place), effect.column, what)
    if len(np.unique(x)) < FEWEST:
        if not part:
            raise ValueError(
                f"{what} needs at least {FEWEST} distinct values; the column {effect.column!r} has "
                f"{len(np.unique(x))}: leave the term out, and make labels or indicators of the column."
            )
        return _Curve(effect, place, None)
    spline = Spline.of(x, effect.knots)
    if not part and middle_share(x) < _SKEWED:
        warn_user(
            f"{what} can hardly bend where most values are: half of the values of {effect.column!r} take "
            f"{100.0 * middle_share(x):.1g} % of their range; use its logarithm, or its ranks.",
            DataWarning,
        )
    return _Curve(effect, place, spline)


def _groups(effect: RandomEffect, rows: Labelled, columns: Columns, part: bool) -> _Groups:
    levels = levels_of(combined(rows.labels, effect.group, rows.shape[0]), effect.name)
    if "Intercept" in effect.slopes:
        raise ValueError(f"a slope of {effect.name!r} is called 'Intercept', as a group's level is; rename it.")
    places = [_place(key, rows.names, f"the random effect {effect.name!r}") for key in effect.slopes]
    varying = [k for k, place in enumerate(places) if place in columns.keep]
    if len(varying) < len(places) and not part:
        key = next(key for k, key in enumerate(effect.slopes) if k not in varying)
        raise ValueError(f"the column {key!r} is constant; leave it out of the slopes of {effect.name!r}.")
    if not varying and not effect.intercept:  # an effect of nothing holds the place
        return _Groups(effect, levels, effect.slopes[:1], tuple(places[:1]), np.zeros(1), np.zeros(1))
    at = [int(np.flatnonzero(columns.keep == places[k])[0]) for k in varying]
    slopes, found = (tuple(all_[k] for k in varying) for all_ in (effect.slopes, places))
    return _Groups(effect, levels, slopes, found, columns.shift[at], columns.scale[at])
