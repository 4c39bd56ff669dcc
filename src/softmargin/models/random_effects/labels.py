"""Labels of groups: what they are in the training rows, and which of them new rows have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from softmargin.designs.grouped import Index
from softmargin.exceptions import DataWarning, warn_user

__all__ = ["combined", "flat", "levels_of", "positions", "table_index"]


def flat(groups: Any, rows: int) -> Any:
    """Labels that came on their own, one per row."""
    groups = np.asarray(groups, dtype=object)
    if groups.shape != (rows,):
        raise ValueError(
            f"groups must be one label for each of the {rows} rows; got shape {groups.shape}: give a column of labels."
        )
    return groups


def combined(labels: dict[Any, Any], keys: tuple[Any, ...], rows: int) -> pd.Series:
    """The label of every row, a tuple where there are several columns, missing where any part of it is."""
    if any(key not in labels for key in keys):
        return pd.Series([None] * rows, dtype=object)
    if len(keys) == 1:
        return pd.Series(labels[keys[0]], dtype=object)
    parts = pd.DataFrame({str(k): labels[key] for k, key in enumerate(keys)}, dtype=object)
    joined = pd.Series(list(parts.itertuples(index=False, name=None)), dtype=object)
    return joined.where(~parts.isna().any(axis=1), None)


def levels_of(labels: pd.Series, name: str) -> pd.Index:
    """The different labels of the training rows, in order where they have one."""
    missing = int(labels.isna().sum())
    if missing:
        raise ValueError(f"the groups {name!r} are missing in {missing} row(s); drop these rows, or give them a group.")
    try:
        unique = list(pd.unique(labels))
    except TypeError:
        raise ValueError(
            f"the groups {name!r} hold {type(labels[0]).__name__}s; make numbers or text of them."
        ) from None
    with suppress(TypeError):  # labels of several kinds have no order
        unique = sorted(unique)
    return pd.Index(unique, tupleize_cols=False, dtype=object)


def positions(labels: pd.Series, levels: pd.Index, name: str) -> Index:
    """Positions of the rows' labels among the known ones, -1 for groups that are not known.

    A label that is not known and looks like a known one, but for its type, is refused: text "7" is no number 7.
    """
    codes = levels.get_indexer(pd.Index(labels, tupleize_cols=False, dtype=object))
    new = pd.unique(labels[(codes < 0) & labels.notna().to_numpy()])
    if len(new):
        _check_kinds(new, levels, name, alone=not (codes >= 0).any())
    return np.ascontiguousarray(codes, dtype=np.intp)


def _check_kinds(new: Iterable[Any], levels: pd.Index, name: str, alone: bool) -> None:
    kinds = {_kind(label): label for label in levels}
    other = [label for label in new if _kind(label) not in kinds]
    if not other:
        return
    known = {_text(label): label for label in levels}
    for label in other:
        if _text(label) in known:
            raise ValueError(
                f"the groups {name!r} have the label {label!r} where the fit had {known[_text(label)]!r}; give labels "
                "of the same type as in the fit."
            )
    if alone:
        warn_user(
            f"all groups {name!r} are new, and their labels are of another type ({other[0]!r}) than in the fit "
            f"({levels[0]!r}); check that they mean the same.",
            DataWarning,
        )


def _kind(label: Any) -> Any:
    """What may be equal: numbers of all types are."""
    if isinstance(label, tuple):
        return tuple(_kind(part) for part in label)
    return "number" if isinstance(label, (Number, np.bool_)) else str if isinstance(label, str) else type(label)


def _text(label: Any) -> Any:
    """How a label reads; 7, 7.0, "7" and "07" read alike."""
    if isinstance(label, tuple):
        return tuple(_text(part) for part in label)
    if not isinstance(label, (bool, np.bool_)):
        with suppress(TypeError, ValueError):
            return float(label)
    return str(label)


def table_index(levels: pd.Index, keys: Sequence[Any], effects: Sequence[str]) -> pd.Index:
    """Rows of a table of effects: a level for every grouping column, and one for several effects of a group."""
    names = [str(key) for key in keys]
    if len(names) == 1 and len(effects) == 1:
        return pd.Index(list(levels), name=names[0], tupleize_cols=False)
    labels = [label if len(names) > 1 else (label,) for label in levels]
    if len(effects) == 1:
        return pd.MultiIndex.from_tuples(labels, names=names)
    rows = [(*label, effect) for label in labels for effect in effects]
    return pd.MultiIndex.from_tuples(rows, names=[*names, "effect"])
