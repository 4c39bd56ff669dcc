"""Coefficients with intervals, reliability, predictions with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import fitted, has_probabilities
from softmargin.plots.style import (
    BLUE,
    INK,
    RED,
    SERIES,
    check_fitted,
    directions,
    effect,
    finish,
    need_matplotlib,
    new_axes,
    spreads,
)

__all__ = ["calibration", "coefficients", "demo_figure", "probabilities"]

_COPIES = 200  # simulated data sets behind the band of a reliability diagram


def coefficients(model: Any, ax: Any = None, top: int = 20, *, level: float = 0.95) -> Any:
    """Draw the ``top`` coefficients that are farthest from zero, with their intervals.

    Coefficients are drawn for a change of one standard deviation of their column, so that they compare (in the units of
    the columns where the model did not standardize). "Farthest" is by ``|mean| / sd``, or by ``|mean|`` where there
    is no sd. Filled markers: the interval leaves zero out.

    Parameters
    ----------
    model : BayesianSVC
        A fitted model.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.
    top : int
        How many to draw.
    level : float
        Probability of the intervals.

    Returns
    -------
    matplotlib axes
    """
    negative, positive = directions("plots.coefficients", model)
    table = model.summary(level)
    names = [str(name) for name in table.index if name != "Intercept"]
    table = table[table.index != "Intercept"]
    ax = new_axes("plots.coefficients", ax, (6.0, 0.9 + 0.26 * min(top, len(names))))
    unit = spreads(model)
    mean = table["mean"].to_numpy() * unit
    spread = "sd" in table
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.abs(table["mean"] / table["sd"]).fillna(0.0).to_numpy() if spread else np.abs(mean)
    chosen = np.argsort(-distance, kind="stable")[:top]
    chosen = chosen[np.argsort(mean[chosen], kind="stable")]
    place = np.arange(len(chosen))
    colour = np.where(mean[chosen] > 0, RED, BLUE)
    away = np.ones(len(chosen), dtype=bool)
    if spread:
        lower, upper = (table[end].to_numpy()[chosen] * unit[chosen] for end in ("lower", "upper"))
        away = (lower > 0) | (upper < 0)
        ax.hlines(place, lower, upper, colors=colour, lw=2.2, alpha=0.55, capstyle="round", zorder=2)
    face = [shade if filled else "white" for shade, filled in zip(colour, away, strict=True)]
    ax.scatter(mean[chosen], place, s=30, c=face, edgecolors=colour, linewidths=1.4, zorder=3)
    ax.axvline(0.0, color=INK, lw=0.8, zorder=1)
    ax.set_yticks(place, [names[j] for j in chosen])
    ax.set_ylim(-0.7, len(chosen) - 0.3)
    ax.tick_params(axis="y", length=0)
    finish(ax, f"{effect(model)}\n← {negative}      {positive} →", "")
    ax.grid(visible=False, axis="y")
    return ax


def calibration(models: Mapping[str, Any], X: Any, y: Any, ax: Any = None) -> Any:
    """Draw a reliability diagram: how often the second class occurs where it is given probability p.

    The curve is the increasing function of p that fits the outcomes best, so there are no bins to choose; its points
    are the levels of that function, larger where they hold more rows. The band is where 90 % of such curves lie if the
    first model is right about every row.

    Parameters
    ----------
    models : dict
        From a name to a fitted classifier or to an array with the probability of the second class.
    X : array, sparse matrix, data frame or None
        Predictors; None where only probabilities are given.
    y : array
        What came out: two labels.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for probabilistic classifiers, PNAS 118.
    """
    if not isinstance(models, Mapping):
        raise ValueError(f"models must be a dict from a name to a model; got {type(models).__name__}.")
    classes = np.unique(np.asarray(y))
    if len(classes) != 2:
        raise ValueError(f"calibration needs two classes in y; got {len(classes)}.")
    occurred = (np.asarray(y) == classes[1]).astype(float)
    ax = new_axes("plots.calibration", ax, (4.4, 4.2))
    ax.plot([0, 1], [0, 1], color=INK, lw=0.8, zorder=1)
    for number, (name, model) in enumerate(models.items()):
        p = _second_class(model, X, len(occurred))
        colour, marker, line = SERIES[number % len(SERIES)]
        if number == 0:
            grid, low, high = _band(p)
            ax.fill_between(grid, low, high, color=colour, alpha=0.16, lw=0, zorder=1)
        where, share, n = _reliability(p, occurred)
        ax.plot(where, share, color=colour, ls=line, lw=1.5, zorder=3)
        size = 18.0 + 110.0 * n / len(occurred)
        ax.scatter(where, share, s=size, c=colour, marker=marker, edgecolors="white", linewidths=0.7, zorder=4)
        ax.plot([], [], color=colour, ls=line, lw=1.5, marker=marker, ms=6, mec="white", label=name)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    finish(ax, f"predicted probability of {classes[1]}", f"share of {classes[1]}")
    ax.legend(frameon=False, fontsize=8.5, loc="upper left", borderaxespad=0.2, handlelength=2.4)
    return ax


def _reliability(p: Array, occurred: Array) -> tuple[Array, Array, Array]:
    """Levels of the isotonic regression of outcomes on p: mean p, share of occurrences, number of rows."""
    from sklearn.isotonic import isotonic_regression

    values, group, size = np.unique(p, return_inverse=True, return_counts=True)  # equal p must stay together
    level = isotonic_regression(np.bincount(group, occurred) / size, sample_weight=size)
    _, block = np.unique(level, return_inverse=True)
    n: Array = np.bincount(block, size).astype(float)
    return np.bincount(block, values * size) / n, np.bincount(block, level * size) / n, n


def _band(p: Array) -> tuple[Array, Array, Array]:
    """Pointwise 5 % and 95 % of reliability curves of outcomes simulated from p itself."""
    rng = np.random.default_rng(0)
    grid = np.linspace(0.0, 1.0, 101)
    curves = [np.interp(grid, *_reliability(p, (rng.random(len(p)) < p).astype(float))[:2]) for _ in range(_COPIES)]
    low, high = np.quantile(curves, (0.05, 0.95), axis=0)
    return grid, low, high


def _second_class(model: Any, X: Any, n: int) -> Array:
    try:
        p = model.predict_proba(X) if has_probabilities(model) else np.asarray(model, dtype=float)
    except TypeError:
        raise ValueError(
            "plots.calibration needs fitted classifiers, or arrays with the probability of the second class; got "
            f"{type(model).__name__}."
        ) from None
    if has_probabilities(model) and p.shape[1] == 2:
        p = p[:, 1]
    if p.shape != (n,) or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(
            f"probabilities of the second of two classes must be {n} numbers between 0 and 1, one per row of y; got "
            f"shape {p.shape}."
        )
    return p


def probabilities(model: Any, X: Any, y: Any, ax: Any = None) -> Any:
    """Draw the probability of the second class against f, each row with its 95 % interval of f.

    Parameters
    ----------
    model : BayesianSVC or BayesianKernelClassifier
        A fitted model of two classes with a posterior (not ``inference="map"``).
    X, y : data of shape (n, p), array of shape (n,)
        Rows to draw, best not those of the fit, and their labels.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes
    """
    check_fitted("plots.probabilities", model)
    if fitted(model, "classes_") is None:
        raise ValueError("plots.probabilities draws a classifier, and this is a regression; fit BayesianSVC.")
    f, sd = model.decision_function(X, return_std=True)
    p, y = model.predict_proba(X)[:, 1], np.asarray(y)
    ax = new_axes("plots.probabilities", ax, (5.0, 4.0))
    ax.set_xscale("asinh", linear_width=1.0)  # rows far from the boundary do not squeeze those near it
    reach = float((np.abs(f) + 1.96 * sd).max())
    ax.axhline(0.5, color=INK, lw=0.8, zorder=1)
    for label, colour, marker in zip(model.classes_, (BLUE, RED), ("o", "^"), strict=True):
        rows = y == label
        ax.hlines(p[rows], (f - 1.96 * sd)[rows], (f + 1.96 * sd)[rows], colors=colour, lw=1.0, alpha=0.25, zorder=2)
        style = {"c": colour, "marker": marker, "edgecolors": "white", "linewidths": 0.5}
        ax.scatter(f[rows], p[rows], s=26, label=str(label), zorder=3, **style)
    ticks = [t for t in (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100) if abs(t) <= reach]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_xticks([], minor=True)
    ax.set(xlim=(-reach, reach), ylim=(-0.04, 1.04))
    finish(ax, "f, with its 95 % interval", f"predicted probability of {model.classes_[1]}")
    ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(0.0, 0.8), handletextpad=0.2)
    return ax


def demo_figure(model: Any, others: Mapping[str, Any], X: Any, y: Any, *, top: int = 15) -> Any:
    """Draw coefficients, reliability and probabilities side by side.

    Parameters
    ----------
    model : BayesianSVC
        A fitted model with a posterior.
    others : dict
        Classifiers or probabilities to compare the reliability with, by name.
    X, y : data of shape (n, p), array of shape (n,)
        Rows that were not used in the fit, and their labels.
    top : int
        How many coefficients to draw.

    Returns
    -------
    matplotlib figure
        Not attached to a window: ``figure.savefig(path)`` writes it.
    """
    need_matplotlib("plots.demo_figure")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(12.6, 4.5), layout=ConstrainedLayoutEngine(wspace=0.05))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
    coefficients(model, left, top)
    calibration({"softmargin": model, **others}, X, y, middle)
    middle.set(aspect="auto")
    probabilities(model, X, y, right)
    titles = ("Which columns matter, and how surely", "Are the probabilities right?", "How sure is each prediction?")
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=11, loc="left", color=INK, pad=10)
    return figure
