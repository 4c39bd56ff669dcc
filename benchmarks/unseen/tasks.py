"""Prediction tasks made of data frames by one rule, which looks at the data and at no method's results.

For each frame and each kind of task, the response is the first suitable column in the order of a hash. Predictors are
all others, without those that give the response away (each alone determines it, or is a monotone function of it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from benchmarks.unseen.frames import SEEN, frames, order

__all__ = ["COUNTS", "KINDS", "SPLITS", "Task", "tasks"]

COUNTS = {"two classes": 44, "many classes": 12, "regression": 12, "wide": 5}
KINDS = tuple(COUNTS)
SPLITS = {"two classes": 3, "many classes": 3, "regression": 3, "wide": 20}  # 60 training rows vary more than 1400 do
_ROWS = (100, 2000)  # fewer are left out, more are cut at random
_COLUMNS = (2, 100)  # after categories are made indicators
_LEVELS = 12  # of a category at most; columns of more levels are names
_MISSING = 0.2  # share of missing entries above which a column is left out; rows with any other are left out
_RARE = 30  # rows of the smaller of two classes at least; a third of that for each of many
_TELLS = 0.99  # area under the curve, or rank correlation, from which on a column gives the response away
_WIDE_ROWS = 60  # training rows of wide tasks that are made of others


class Task(NamedTuple):
    """Columns as numbers, a response, and how many rows train."""

    name: str
    kind: str
    X: Any
    y: Any
    train: int


def tasks(kind: str) -> list[Task]:
    """The tasks of one kind, the first of them in the order of the draw."""
    if kind == "wide":
        return list(_wide())[: COUNTS[kind]]
    found: list[Task] = []
    for name, frame in frames():
        if name in SEEN.get(kind, ()):
            continue
        task = _task(name, frame, kind)
        if task is not None:
            found.append(task)
        if len(found) == COUNTS[kind]:
            break
    return found


def _task(name: str, frame: pd.DataFrame, kind: str) -> Task | None:
    if len(frame) < _ROWS[0] or frame.shape[1] < 3:
        return None
    for column in sorted(map(str, frame.columns), key=lambda each: order(f"{name}/{each}")):
        clean = _clean(frame.rename(columns=str), column)
        if clean is None:
            continue
        y = _response(clean.pop(column), kind)
        if y is None:
            continue
        keep = np.arange(len(y))
        if len(y) > _ROWS[1]:
            keep = np.sort(np.random.default_rng(0).permutation(len(y))[: _ROWS[1]])
            y = y[keep]
            if kind != "regression" and np.bincount(y).min() < _least(kind):
                continue
        X = _columns(clean.iloc[keep], y, kind)
        if X is not None:
            return Task(f"{name}: {column}", kind, X, y, round(0.7 * len(y)))
    return None


def _clean(frame: pd.DataFrame, response: str) -> pd.DataFrame | None:
    """Rows without missing entries, columns with too many of them left out."""
    if frame.columns.duplicated().any():
        return None
    frame = frame[frame[response].notna()]
    keep = [name for name in frame if name == response or frame[name].isna().mean() <= _MISSING]
    frame = frame[keep].dropna()
    return frame if len(frame) >= _ROWS[0] else None


def _least(kind: str) -> int:
    return _RARE if kind == "two classes" else _RARE // 3


def _response(column: pd.Series, kind: str) -> np.ndarray | None:
    """The response as class numbers or numbers, or None where the column is not of this kind."""
    values, number = np.unique(column.astype(str) if _text(column) else column.to_numpy(float), return_inverse=True)
    if kind == "two classes":
        suited = len(values) == 2 and np.bincount(number).min() >= _least(kind)
        return number if suited else None
    if kind == "many classes":
        suited = _text(column) and 3 <= len(values) <= 10 and np.bincount(number).min() >= _least(kind)
        return number if suited else None
    return column.to_numpy(float) if not _text(column) and len(values) > 20 else None


def _text(column: pd.Series) -> bool:
    return not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _columns(frame: pd.DataFrame, y: np.ndarray, kind: str) -> np.ndarray | None:
    """Predictors as numbers: categories as indicators, without columns that are constant or give the response away."""
    parts: list[np.ndarray] = []
    for name in frame:
        column = frame[name]
        if _text(column):
            if not 2 <= column.nunique() <= _LEVELS or _tells_by_level(column.astype(str), y, kind):
                continue
            parts += list(pd.get_dummies(column.astype(str), drop_first=True).to_numpy(float).T)
        else:
            parts.append(column.to_numpy(float))
    kept = [x for x in parts if np.isfinite(x).all() and np.ptp(x) > 0 and not _tells(x, y, kind)]
    X = np.column_stack(kept) if kept else np.empty((len(y), 0))
    X = np.unique(X, axis=1) if X.shape[1] else X
    return X if _COLUMNS[0] <= X.shape[1] <= _COLUMNS[1] else None


def _tells(x: np.ndarray, y: np.ndarray, kind: str) -> bool:
    """Whether a number gives the response, or one class of it, away."""
    ranks = rankdata(x)
    if kind == "regression":
        return abs(float(np.corrcoef(ranks, rankdata(y))[0, 1])) > _TELLS
    for label in np.unique(y):
        inside = y == label
        m, k = int(inside.sum()), int((~inside).sum())
        area = (ranks[inside].sum() - m * (m + 1) / 2) / (m * k)
        if max(area, 1 - area) > _TELLS:
            return True
    return False


def _tells_by_level(column: pd.Series, y: np.ndarray, kind: str) -> bool:
    """Whether the level of a category determines the class."""
    if kind == "regression":
        return False
    table = pd.crosstab(column.to_numpy(), y).to_numpy()
    return bool(table.max(axis=1).sum() / table.sum() > _TELLS)


def _wide() -> Iterator[Task]:
    """Tasks of more columns than rows: all products of two columns of the tasks of two classes with the most of them.

    The packages ship two wide sets of genes, which were seen in other forms before; these are made, and said to be.
    """
    found = sorted(tasks("two classes"), key=lambda task: -task.X.shape[1])
    for task in found:
        if len(task.y) < 2 * _WIDE_ROWS:
            continue
        X = (task.X - task.X.mean(axis=0)) / task.X.std(axis=0)
        i, j = np.triu_indices(X.shape[1])
        X = np.column_stack((X, X[:, i] * X[:, j]))
        yield Task(f"{task.name}, products", "wide", X, task.y, _WIDE_ROWS)
