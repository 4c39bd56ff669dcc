"""What the pictures share: colours, axes, units."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.designs.base import Array

# Okabe and Ito's palette: distinct for colour-blind readers and in grey
BLUE, RED, GREY, INK, PALE = "#0072B2", "#D55E00", "#8A8A8A", "#222222", "#E8E8E8"
SERIES = (("#009E73", "o", "-"), ("#E69F00", "s", "--"), ("#CC79A7", "D", "-."), ("#56B4E9", "^", ":"))


def need_matplotlib(what: str) -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{what} needs matplotlib: pip install 'softmargin[plot]'.") from error


def new_axes(what: str, ax: Any, size: tuple[float, float]) -> Any:
    """The axes given, or new ones, with the frame of the house."""
    need_matplotlib(what)
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
    frame(ax)
    return ax


def frame(ax: Any) -> None:
    """Left and bottom spine alone, in grey."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, length=3, color=GREY)


def finish(ax: Any, x: str, y: str) -> None:
    """Grid and labels."""
    ax.grid(color=GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(x, fontsize=9.5)
    ax.set_ylabel(y, fontsize=9.5)


def spreads(model: Any) -> Array:
    """Standard deviation of each column of a fitted model, as the model took it; 1 where it did not standardize.

    Zero for columns without spread, whose coefficients are zero anyway.
    """
    columns = model.posterior_.columns
    unit = np.zeros(columns.n_features)
    unit[columns.keep] = 1.0 / columns.scale
    return unit


def effect(model: Any) -> str:
    """What a coefficient times ``spreads`` is."""
    return f"change of f for one {'sd' if model.standardize else 'unit'} of the column"


def feature_names(model: Any) -> list[str]:
    """Names of the columns of a fitted model."""
    if hasattr(model, "_names"):
        return [str(name) for name in model._names()]
    return [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


def directions(what: str, model: Any) -> tuple[str, str]:
    """What a negative and a positive coefficient speak for: the two classes, or less and more of a number."""
    labels = [str(label) for label in getattr(model, "classes_", ("less", "more"))]
    if len(labels) != 2:
        raise ValueError(f"{what} draws a model of two classes, and this one has {len(labels)}; fit two of them.")
    return labels[0], labels[1]
