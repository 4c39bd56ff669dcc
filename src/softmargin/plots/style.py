"""What the pictures share: colours, axes, units."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.plots.numbers.subject import classes_of

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


def plain(text: Any) -> str:
    """A text as it is written: dollars, which would begin a formula, are escaped."""
    return re.sub(r"(?<!\\)\$", r"\\$", str(text))


def finish(ax: Any, x: str, y: str) -> None:
    """Grid and labels."""
    ax.grid(color=GREY, alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(plain(x), fontsize=9.5)
    ax.set_ylabel(plain(y), fontsize=9.5)


def effect(machine: Any) -> str:
    """What a coefficient for one standard deviation of its column is."""
    return f"change of f for one {'sd' if machine.standardize else 'unit'} of the column"


def ends_of(machine: Any) -> tuple[str, str]:
    """What negative and positive coefficients speak for: two classes, less and more of a number, or of a class."""
    classes = classes_of(machine)
    if classes is None:
        return "less", "more"
    if len(classes) == 2:
        return str(classes[0]), str(classes[1])
    pairs = len(machine._fitted.parts) > 1
    return ("first of the pair", "second of the pair") if pairs else ("against the class", "for the class")


def colour_of(number: int) -> str:
    """The colour of one of several outputs."""
    return (BLUE, RED, *(colour for colour, _, _ in SERIES))[number % 6]


def bend(ax: Any, letters: str, values: Array) -> None:
    """Make axes linear up to the middle size and logarithmic beyond, so that a wild value does not squeeze the rest."""
    sizes = np.abs(values[values != 0.0])
    width = float(np.median(sizes)) if len(sizes) else 1.0
    steps = [digit * 10.0**power for power in range(-12, 13) for digit in (1, 3)]
    steps = [step for step in steps if 0.7 * width < step <= (sizes.max() if len(sizes) else 1.0)]
    steps = steps[:: 1 + len(steps) // 6]
    ticks = [*(-step for step in reversed(steps)), 0.0, *steps]
    for letter in letters:
        scale, axis = (ax.set_xscale, ax.xaxis) if letter == "x" else (ax.set_yscale, ax.yaxis)
        scale("asinh", linear_width=width)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)


def in_frame(ax: Any, x: Array, y: Array) -> Array:
    """Places of points as shares of the axes' width and height."""
    shares: Array = ax.transAxes.inverted().transform(ax.transData.transform(np.column_stack((x, y))))
    return shares


def position(feature: Any, names: list[str]) -> int:
    """Position of a column given by name or position."""
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, (int, np.integer)) and -len(names) <= feature < len(names):
        return int(feature) % len(names)
    raise ValueError(f"features must be names or positions of the {len(names)} columns of the model; got {feature!r}.")


def same_columns(names: list[str], others: list[str]) -> None:
    """Refuse to compare models of different columns."""
    if len(names) != len(others):
        raise ValueError(f"the two models must have the same columns; they have {len(names)} and {len(others)}.")
    for name, other in zip(names, others, strict=True):
        if name != other:
            raise ValueError(f"the two models must have the same columns; one has {name!r} and the other {other!r}.")


def name_ends(ax: Any, heights: Array, names: list[str]) -> None:
    """Write names beside the right end of lines, moved apart where they would overlap."""
    order = np.argsort(heights)
    here = in_frame(ax, np.full(len(heights), ax.get_xlim()[1]), heights)[order, 1]
    place, gap = here.copy(), 0.055
    for _ in range(200):  # push overlapping neighbours apart until none is left
        push = 0.5 * np.maximum(gap - np.diff(place), 0.0)
        if not (push > 1e-3 * gap).any():
            break
        place[:-1] -= push
        place[1:] += push
    for at, start, j in zip(place, here, order, strict=True):
        ax.annotate(
            plain(names[j]), (1.0, start), xytext=(1.03, at), xycoords="axes fraction", textcoords="axes fraction",
            fontsize=8.5, va="center", color=RED if heights[j] > 0 else BLUE,
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5, "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip
