"""Curves of probabilities: how often what was predicted occurs, and how well rows are ranked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.isotonic import isotonic_regression
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

from softmargin.core.array import Array

__all__ = ["Ranking", "Reliability", "band", "class_band", "precision_recall", "reliability", "roc", "thinned"]

_COPIES = 200  # simulated data sets behind the band of a reliability diagram
_MOST = 200  # points of a curve; more would not be seen


class Reliability(NamedTuple):
    """Levels of the isotonic regression of outcomes on probabilities: mean p, share of occurrences, rows."""

    where: Array
    share: Array
    n: Array


def reliability(p: Array, occurred: Array, count: Array | None = None) -> Reliability:
    """The increasing function of p that fits the outcomes best."""
    values, group = np.unique(p, return_inverse=True)  # equal p must stay together
    size = np.bincount(group, count)
    hits = np.bincount(group, occurred if count is None else occurred * count)
    level = isotonic_regression(hits / size, sample_weight=size)
    _, block = np.unique(level, return_inverse=True)
    n: Array = np.bincount(block, size).astype(float)
    return Reliability(np.bincount(block, values * size) / n, np.bincount(block, level * size) / n, n)


def band(p: Array, count: Array | None = None) -> tuple[Array, Array, Array]:
    """Pointwise 5 % and 95 % of reliability curves of outcomes simulated from p itself."""
    return class_band(np.column_stack((1.0 - p, p)), count, pooled=False)


def class_band(p: Array, count: Array | None = None, *, pooled: bool = True) -> tuple[Array, Array, Array]:
    """The same of simulated classes, all of them together where they are ``pooled``, else of the last one."""
    rng, grid = np.random.default_rng(0), np.linspace(0.0, 1.0, 101)
    below, curves = p.cumsum(axis=1), []
    k = p.shape[1]
    flat = p.ravel() if pooled else p[:, -1]
    times = None if count is None else np.repeat(count, k) if pooled else count
    for _ in range(_COPIES):
        label = (rng.random((len(p), 1)) > below[:, :-1]).sum(axis=1)
        occurred = (label[:, None] == np.arange(k)).ravel() if pooled else label == k - 1
        found = reliability(flat, occurred.astype(float), times)
        curves.append(np.interp(grid, found.where, found.share))
    low, high = np.quantile(curves, (0.05, 0.95), axis=0)
    return grid, low, high


class Ranking(NamedTuple):
    """A curve from left to right, and the area below it."""

    x: Array
    y: Array
    area: float


def thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """So few of the points of a curve that it still looks the same: evenly along its length."""
    if len(x) <= _MOST:
        return x, y
    length = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))))
    at = np.unique(np.searchsorted(length, np.linspace(0.0, length[-1], _MOST)).clip(max=len(x) - 1))
    return x[at], y[at]


def roc(p: Array, occurred: Array, count: Array | None = None) -> Ranking:
    """Share of occurrences found against the share of false alarms."""
    false, true, _ = roc_curve(occurred, p, sample_weight=count)
    return Ranking(*thinned(false, true), float(auc(false, true)))


def precision_recall(p: Array, occurred: Array, count: Array | None = None) -> Ranking:
    """Share of alarms that are right against the share of occurrences found; its area is the average precision."""
    precision, recall, _ = precision_recall_curve(occurred, p, sample_weight=count)
    area = float(average_precision_score(occurred, p, sample_weight=count))
    return Ranking(*thinned(recall[::-1], precision[::-1]), area)
