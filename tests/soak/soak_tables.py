"""Random tables: columns, labels, responses, weights and groups as awkward as data are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp


class Table(NamedTuple):
    """Rows to fit and new rows to predict, with what is known of the former."""

    X: Any
    y: Any
    weight: Any
    new: Any
    about: str


def chance(rng, probability):
    """True with this probability."""
    return bool(rng.random() < probability)


def pick(rng, **shares):
    """One of the names, in proportion to their shares."""
    names = list(shares)
    total = np.array([shares[name] for name in names], dtype=float)
    return names[int(rng.choice(len(names), p=total / total.sum()))]


def decades(rng, low, high):
    """A number whose logarithm is uniform."""
    return float(10.0 ** rng.uniform(low, high))


def sizes(rng, most_rows=1000, most_columns=60):
    """Numbers of rows and columns: from two rows upward, more columns than rows in a part of the problems."""
    n = int(decades(rng, np.log10(2) if chance(rng, 0.4) else 1.3, np.log10(most_rows)))
    p = int(decades(rng, 0, np.log10(most_columns)))
    if chance(rng, 0.15):
        n, p = min(n, 40), int(rng.integers(n, 3 * n + 20)) if n < 60 else p
    return max(n, 2), max(p, 1)


def _column(rng, kind, n):
    """One column of a kind."""
    x = rng.normal(size=n)
    if kind == "scaled":
        return x * decades(rng, -8, 8)
    if kind == "shifted":
        return x + rng.choice([-1.0, 1.0]) * decades(rng, 0, 8)
    if kind == "heavy":
        return rng.standard_cauchy(n)
    if kind == "whole":
        return rng.poisson(2.0, n).astype(float)
    if kind == "flag":
        return (rng.random(n) < rng.uniform(0.02, 0.5)).astype(float)
    if kind == "outlier":
        x[rng.integers(n)] = decades(rng, 2, 8)
    if kind == "constant":
        return np.full(n, rng.choice([-1.0, 1.0]) * decades(rng, -3, 6))
    if kind == "zero":
        return np.zeros(n)
    return x


_KINDS = {
    "normal": 1.0,
    "scaled": 0.35,
    "shifted": 0.15,
    "heavy": 0.15,
    "whole": 0.2,
    "flag": 0.25,
    "outlier": 0.1,
    "constant": 0.05,
    "zero": 0.05,
}


def columns(rng, n, p):
    """A matrix of columns of all kinds, or of plain ones, and what it has."""
    if chance(rng, 0.3):
        return rng.normal(size=(n, p)), "plain"
    kinds = [pick(rng, **_KINDS) for _ in range(p)]
    X = np.column_stack([_column(rng, kind, n) for kind in kinds])
    about = ",".join(sorted(set(kinds)))
    if p > 1 and chance(rng, 0.2):
        first, second = rng.choice(p, 2, replace=False)
        X[:, second] = X[:, first] * rng.choice([1.0, -2.0])
        about += ",duplicate"
    return X, about


def _predictor(rng, X):
    """A linear predictor of the standardized columns with unit variance, or none."""
    if chance(rng, 0.15):
        return np.zeros(len(X))
    size = np.abs(X).max(axis=0, initial=1e-300)
    scaled = X / np.where(size > 0, size, 1.0)
    centred = scaled - scaled.mean(axis=0)
    spread = centred.std(axis=0)
    f = (centred / np.where(spread > 0, spread, 1.0)) @ rng.normal(size=X.shape[1])
    return f / max(float(f.std()), 1e-12)


def labels(rng, X, k):
    """Labels of k classes, each with a row: separable, noisy, unrelated, or with rare classes."""
    n = len(X)
    k = min(k, n)
    f = _predictor(rng, X) + rng.choice([0.0, 0.5, 2.0]) * rng.normal(size=n)
    if chance(rng, 0.25):  # rare ones
        cuts = np.sort(rng.choice([0.01, 0.03, 0.5, 0.97, 0.99], k - 1, replace=k > 6))
    else:
        cuts = np.arange(1, k) / k
    order = np.argsort(np.argsort(f + 1e-9 * rng.normal(size=n)))
    index = np.searchsorted(cuts * n, order, side="right").clip(max=k - 1)
    for each, row in enumerate(rng.choice(n, k, replace=False)):
        if not (index == each).any():
            index[row] = each
    for each in range(k):  # rows that made up for a class may have been another's last
        if not (index == each).any():
            index[np.flatnonzero(index == np.bincount(index, minlength=k).argmax())[0]] = each
    names = rng.choice(["whole", "text", "other"])
    called = {"whole": np.arange(k), "text": np.array([f"c{j}" for j in range(k)]), "other": 10 * np.arange(k) - 7}
    return called[str(names)][index]


def responses(rng, X):
    """Numbers to regress on the columns, of any unit, with noise of any tail."""
    n = len(X)
    noise = {"normal": rng.normal(size=n), "t": rng.standard_t(2, n), "none": np.zeros(n)}
    y = _predictor(rng, X) + rng.choice([0.1, 1.0]) * noise[pick(rng, normal=2, t=1, none=0.5)]
    if chance(rng, 0.1):
        y = np.round(y)
    if chance(rng, 0.05):
        y = np.zeros(n)
    return y * decades(rng, -6, 6) + (decades(rng, 0, 6) if chance(rng, 0.3) else 0.0)


_WEIGHTS = {"counts": 1.0, "zeros": 1.0, "one": 0.7}
_FRACTIONS = {"uniform": 1.0, "decades": 1.0, "large": 0.5, "small": 0.5}


def weights(rng, y, *, classes=True, whole=False):
    """Row weights from 0 to 1e9, or none, and what they are; a weight above zero stays in every class."""
    n = len(y)
    kind = pick(rng, none=2.5, **_WEIGHTS if whole else _WEIGHTS | _FRACTIONS)
    if kind == "none":
        return None, kind
    weight = {
        "uniform": rng.uniform(0.0, 3.0, n),
        "counts": rng.integers(1, 6, n).astype(float),
        "zeros": rng.integers(0, 3, n).astype(float),
        "decades": 10.0 ** rng.uniform(-9, 9, n),
        "one": np.where(np.arange(n) == rng.integers(n), 1e9, 1.0),
        "large": np.full(n, decades(rng, 3, 9)),
        "small": np.full(n, decades(rng, -9, -3)),
    }[kind]
    for label in np.unique(y) if classes else [None]:
        own = y == label if classes else np.ones(n, dtype=bool)
        if not (weight[own] > 0).any():
            weight[np.flatnonzero(own)[0]] = 1.0
    if not classes and np.count_nonzero(weight) < 2:
        weight[:2] = 1.0
    return weight, kind


def with_missing(rng, X):
    """A copy of X with up to 95 % of its entries missing, one observed in every column, and the share."""
    share = float(rng.choice([0.02, 0.2, 0.5, 0.8, 0.95]))
    holes = rng.random(X.shape) < share
    holes[rng.integers(len(X), size=X.shape[1]), np.arange(X.shape[1])] = False
    return np.where(holes, np.nan, X), share


def grouped(rng, X, extra):
    """X as a frame with ``extra`` grouping columns, new rows with groups not seen before among them."""
    frame = pd.DataFrame(X, columns=[f"v{j}" for j in range(X.shape[1])])
    for number in range(extra):
        groups = int(decades(rng, 0.3, 1.5))
        frame[f"g{number}"] = [f"a{code}" for code in rng.integers(groups, size=len(X))]
    return frame


def as_given(rng, *tables):
    """Matrices as arrays, as frames, or with the order of Fortran."""
    form = pick(rng, array=3, frame=1, fortran=0.5)
    if form == "frame":
        return [pd.DataFrame(X, columns=[f"v{j}" for j in range(X.shape[1])]) for X in tables]
    return [np.asfortranarray(X) if form == "fortran" else X for X in tables]


def sparse(rng, X):
    """X with most entries zero, as a sparse matrix of some format, one entry in every row and column kept."""
    keep = rng.random(X.shape) < rng.uniform(0.05, 0.5)
    keep[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = True
    keep[rng.integers(len(X), size=X.shape[1]), np.arange(X.shape[1])] = True
    return getattr(sp, f"{pick(rng, csr=3, csc=1, coo=0.5)}_array")(np.where(keep, X, 0.0))
