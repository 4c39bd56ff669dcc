"""Public sets of two classes, with the splits on which the default choices were developed and are shown.

Raetsch's given splits where there are any, else five stratified random splits. Sets of many rows are cut to sizes at
which choices matter; rare classes are made by leaving rows of one class out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from benchmarks import common

Rows = tuple[np.ndarray, np.ndarray]


def _frame(name: str, target: str, drop: tuple[str, ...] = ()) -> Rows:
    import pandas as pd

    frame = pd.read_csv(common._file(f"{name}.csv.gz")).drop(columns=list(drop))
    y = frame.pop(target).to_numpy()
    return pd.get_dummies(frame, drop_first=True).to_numpy(float), y


def _array(name: str) -> Rows:
    found = common.arrays(name)
    return np.asarray(found["X"], dtype=float), found["y"]


def _letters(positive: str) -> Rows:
    X, y = _frame("letter", "lettr")
    return X, np.isin(y, list(positive)).astype(int)


def _usps(positive: Callable[[np.ndarray], np.ndarray]) -> Rows:
    X, y = _array("usps")
    return X / 1000.0 - 1.0, positive(y).astype(int)


def _adult(rare: float | None = None) -> Rows:
    X, y = common.a9a()
    keep = np.flatnonzero(np.asarray((X != 0).sum(axis=0)).ravel() > 50)
    return thinned(X[:20000][:, keep].toarray(), (y[:20000] > 0).astype(int), rare)


def thinned(X: np.ndarray, y: np.ndarray, share: float | None) -> Rows:
    """Rows with so few of the second class that they are a given share."""
    if share is None:
        return X, y
    positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y != 1)
    few = max(8, round(share / (1.0 - share) * len(negative)))
    rng = np.random.default_rng(0)
    keep = np.sort(np.concatenate((negative, rng.choice(positive, min(few, len(positive)), replace=False))))
    return X[keep], y[keep]


def _cut(rows: Rows, train: int, most: int, test: int = 4000) -> Iterator[common.Split]:
    X, y = rows
    for seed in range(most):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        parts = [order[y[order] == label] for label in np.unique(y)]
        shares = [len(part) / len(y) for part in parts]
        first = np.concatenate(
            [part[: max(2, round(share * train))] for part, share in zip(parts, shares, strict=True)]
        )
        rest = np.concatenate([part[max(2, round(share * train)) :] for part, share in zip(parts, shares, strict=True)])
        rest = rng.permutation(rest)[:test]
        yield X[first], X[rest], y[first], y[rest]


def _binary(load: Callable[..., Any], positive: Callable[[np.ndarray], np.ndarray], keep: Any = None) -> Rows:
    X, y = load(return_X_y=True)
    if keep is not None:
        X, y = X[keep(y)], y[keep(y)]
    return X, positive(y).astype(int)


SETS: dict[str, Callable[[int], Iterator[common.Split]]] = {
    **{name: (lambda most, name=name: common.raetsch(name, most)) for name in common.RAETSCH},
    "thyroid": lambda most: _cut(common.table("thyroid"), 140, most),
    "spam, 600 rows": lambda most: _cut(common.table("spam"), 600, most),
    "spam, 8 %": lambda most: _cut(thinned(*common.table("spam"), 0.08), 800, most),
    "toenail": lambda most: _cut(_frame("toenail", "y", ("patient",)), 600, most),
    "toenail, 150 rows": lambda most: _cut(_frame("toenail", "y", ("patient",)), 150, most),
    "acath, complete columns": lambda most: _cut(_frame("acath", "sigdz", ("choleste", "tvdlm")), 500, most),
    "adult, 1000 rows": lambda most: _cut(_adult(), 1000, most),
    "adult, 8 %": lambda most: _cut(_adult(0.08), 1500, most),
    "letters A B": lambda most: _cut(_letters("A"), 400, most),
    "letters, vowels": lambda most: _cut(_letters("AEIOU"), 1000, most),
    "letters A-M": lambda most: _cut(_letters("ABCDEFGHIJKLM"), 1000, most),
    "usps, odd": lambda most: _cut(_usps(lambda y: y % 2), 500, most, 3000),
    "usps, 8": lambda most: _cut(_usps(lambda y: y == 8), 600, most, 3000),
    "digits, odd": lambda most: _cut(_binary(load_digits, lambda y: y % 2), 300, most),
    "digits, 8": lambda most: _cut(_binary(load_digits, lambda y: y == 8), 500, most),
    "wisconsin": lambda most: _cut(_binary(load_breast_cancer, lambda y: y == 0), 300, most),
    "wisconsin, 60 rows": lambda most: _cut(_binary(load_breast_cancer, lambda y: y == 0), 60, most),
    "wine, second": lambda most: _cut(_binary(load_wine, lambda y: y == 1), 100, most),
    "iris, last two": lambda most: _cut(_binary(load_iris, lambda y: y == 2, lambda y: y > 0), 60, most),
    "heart, 20 %": lambda most: _cut(thinned(*common.table("heart"), 0.2), 120, most),
    "breast_cancer, 60 rows": lambda most: _cut(common.table("breast_cancer"), 60, most),
    "bci": lambda most: _cut(_array("ssl_bci"), 300, most),
    "g241c": lambda most: _cut(_array("ssl_g241c"), 500, most),
    "digit1": lambda most: _cut(_array("ssl_digit1"), 300, most),
    "coil2": lambda most: _cut(_array("ssl_coil2"), 500, most),
    "ssl usps": lambda most: _cut(_array("ssl_usps"), 500, most),
}
