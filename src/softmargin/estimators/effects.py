"""Group labels and smooth columns of a data set, turned into the terms of a model and back into tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from softmargin.designs.base import Array
from softmargin.designs.grouped import GroupTerm
from softmargin.designs.splines import Spline
from softmargin.designs.standardize import Columns
from softmargin.effects import RandomEffect, Smooth
from softmargin.priors.terms import TermPrior

__all__ = ["GROUPS", "Coded", "Labelled", "coded", "effects_of", "separated"]

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
    if isinstance(wanted, (str, int, RandomEffect, Smooth)):
        wanted = (wanted,)
    effects = [one if isinstance(one, (RandomEffect, Smooth)) else RandomEffect(one) for one in wanted]
    if groups and not any(isinstance(one, RandomEffect) and one.group == (GROUPS,) for one in effects):
        effects.insert(0, RandomEffect(GROUPS))
    names = [effect.name for effect in effects]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"random_effects names {twice[0]!r} more than once; put its slopes into one RandomEffect.")
    return tuple(effects)


def _keys(effects: Sequence[Any]) -> list[Any]:
    found = [key for effect in effects if isinstance(effect, RandomEffect) for key in effect.group]
    return list(dict.fromkeys(found))


def separated(X: Any, effects: Sequence[Any], groups: Any) -> Labelled:
    """X without its grouping columns, and those columns by name; ``groups`` is one that came on its own."""
    labels: dict[Any, Any] = {}
    if groups is not None and GROUPS not in _keys(effects):
        raise ValueError("groups were not part of the fit; leave them out, or fit with groups.")
    for key in _keys(effects):
        if key == GROUPS and groups is not None:
            labels[key] = _flat(groups, len(X) if hasattr(X, "columns") else np.shape(X)[0])
        elif hasattr(X, "columns") and key in list(X.columns):
            labels[key] = np.asarray(X[key], dtype=object)
        elif not hasattr(X, "columns") and isinstance(key, (int, np.integer)) and 0 <= key < np.shape(X)[1]:
            labels[key] = np.asarray(_column(X, int(key)), dtype=object)
        elif key == GROUPS and groups is None:
            continue  # new rows without groups: all of them from groups not seen before
        else:
            known = list(X.columns) if hasattr(X, "columns") else f"0 to {np.shape(X)[1] - 1}"
            raise ValueError(f"the grouping column {key!r} of random_effects is not in X; X has the columns {known}.")
    if not effects:
        return Labelled(X, labels)
    inside = [key for key in labels if not (key == GROUPS and groups is not None)]
    if hasattr(X, "columns"):
        left = [name for name in X.columns if name not in inside]
        return Labelled(X[left] if inside else X, labels, tuple(left))
    plain: Any = X if hasattr(X, "tocsr") else np.asarray(X)
    left = [j for j in range(plain.shape[1] if plain.ndim == 2 else 0) if j not in inside]
    return Labelled(plain[:, left] if inside else X, labels, tuple(left))


def _flat(groups: Any, rows: int) -> Any:
    groups = np.asarray(groups, dtype=object)
    if groups.shape != (rows,):
        raise ValueError(f"groups must have one label for each of the {rows} rows; got shape {groups.shape}.")
    return groups


def _combined(labels: dict[Any, Any], keys: tuple[Any, ...], rows: int) -> pd.Series:
    """The label of every row, a tuple where there are several columns, missing where any part of it is."""
    if any(key not in labels for key in keys):
        return pd.Series([None] * rows, dtype=object)
    if len(keys) == 1:
        return pd.Series(labels[keys[0]], dtype=object)
    parts = pd.DataFrame({str(k): labels[key] for k, key in enumerate(keys)}, dtype=object)
    joined = pd.Series(list(parts.itertuples(index=False, name=None)), dtype=object)
    return joined.where(~parts.isna().any(axis=1), None)


def _column(X: Any, place: int) -> Any:
    return X[:, [place]].toarray().ravel() if hasattr(X, "tocsr") else np.asarray(X)[:, place]


def _place(key: Any, names: tuple[Any, ...], effect: str) -> int:
    """Position of a column among the predictors."""
    if key in names:
        return names.index(key)
    raise ValueError(f"the column {key!r} of {effect} is not among the predictors {list(names)}.")


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
    places: tuple[int, ...]  # of the slope columns among the predictors
    shift: Array
    scale: Array

    @property
    def name(self) -> str:
        return self.effect.name

    @property
    def effects(self) -> tuple[str, ...]:
        """What differs between groups."""
        slopes = tuple(str(key) for key in self.effect.slopes)
        return ("Intercept", *slopes) if self.effect.intercept else slopes

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the standard deviations."""
        return tuple(self.name if one == "Intercept" else f"{self.name}[{one}]" for one in self.effects)

    @property
    def prior(self) -> TermPrior:
        full = self.effect.covariance == "full" and self.effect.scale == "learn"
        return TermPrior(self.labels, len(self.levels), self.effect.scale, self.effect.hyperprior, full)

    def names(self, rows: Labelled) -> pd.Series:
        """The groups of the rows."""
        return _combined(rows.labels, self.effect.group, rows.shape[0])

    def columns(self, rows: Labelled) -> Array:
        """Numbers of the rows in the columns of their group, slopes standardized."""
        parts = [np.ones(rows.shape[0])] if self.effect.intercept else []
        for key, place, shift, scale in zip(self.effect.slopes, self.places, self.shift, self.scale, strict=True):
            parts.append((_complete(_column(rows.X, place), key, f"the random effect {self.name!r}") - shift) * scale)
        return np.ascontiguousarray(np.column_stack(parts))

    def term(self, rows: Labelled) -> GroupTerm:
        codes = self.levels.get_indexer(self.names(rows))  # -1 for groups that are not known
        return GroupTerm(np.ascontiguousarray(codes, dtype=np.intp), len(self.levels), self.columns(rows))

    def turn(self) -> Array:
        """The matrix from a group's coefficients to those in the user's units."""
        lead = int(self.effect.intercept)
        turn = np.diag(np.concatenate((np.ones(lead), self.scale)))
        if lead:
            turn[0, 1:] = -self.shift * self.scale
        return turn


@dataclass(frozen=True, eq=False)
class _Curve:
    """A smooth function; its spline coefficients are one group."""

    effect: Smooth
    place: int
    spline: Spline

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
        size = self.spline.turn.shape[1]
        return TermPrior(self.labels, size, self.effect.scale, self.effect.hyperprior)

    def term(self, rows: Labelled) -> GroupTerm:
        x = _complete(_column(rows.X, self.place), self.effect.column, f"the smooth {self.name!r}")
        return GroupTerm(np.zeros(len(x), dtype=np.intp), 1, np.ascontiguousarray(self.spline.columns(x)))

    def turn(self) -> Array:
        return np.eye(1)


Coded = _Groups | _Curve


def coded(effects: Sequence[Any], rows: Labelled, columns: Columns) -> tuple[Coded, ...]:
    """The effects with the groups, columns and knots that the training rows give them."""
    return tuple(
        _curve(effect, rows) if isinstance(effect, Smooth) else _groups(effect, rows, columns) for effect in effects
    )


def _curve(effect: Smooth, rows: Labelled) -> _Curve:
    place = _place(effect.column, rows.names, f"the smooth {effect.name!r}")
    x = _complete(_column(rows.X, place), effect.column, f"the smooth {effect.name!r}")
    return _Curve(effect, place, Spline.of(x, effect.knots))


def _groups(effect: RandomEffect, rows: Labelled, columns: Columns) -> _Groups:
    labels = _combined(rows.labels, effect.group, rows.shape[0])
    missing = int(labels.isna().sum())
    if missing:
        raise ValueError(
            f"the groups {effect.name!r} are missing in {missing} row(s); drop these rows, or give them a group."
        )
    unique = list(pd.unique(labels))
    with suppress(TypeError):  # labels of several kinds have no order
        unique = sorted(unique)
    levels = pd.Index(unique, tupleize_cols=False, dtype=object)
    places, shift, scale = [], [], []
    for key in effect.slopes:
        place = _place(key, rows.names, f"the random effect {effect.name!r}")
        at = np.flatnonzero(columns.keep == place)
        if not len(at):
            raise ValueError(f"the column {key!r} is constant, so it cannot have a slope in {effect.name!r}.")
        places.append(place)
        shift.append(float(columns.shift[at[0]]))
        scale.append(float(columns.scale[at[0]]))
    return _Groups(effect, levels, tuple(places), np.array(shift), np.array(scale))
