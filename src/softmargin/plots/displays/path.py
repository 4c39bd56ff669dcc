"""Coefficients along a path of scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softmargin.core.array import Array
from softmargin.estimators.path import Path
from softmargin.plots.displays.base import Display
from softmargin.plots.style import BLUE, GREY, INK, RED, bend, finish, frame, name_ends, need_matplotlib

__all__ = ["PathDisplay"]


@dataclass(eq=False)
class PathDisplay(Display):
    """Coefficients against the prior scale, and the number of non-zero ones in a panel below.

    Coefficients are for one standard deviation of their column, on an axis that is linear near zero and logarithmic
    far from it. Those that are named have the colour of their sign; the others are grey.

    Attributes
    ----------
    path : Path
        What ``softmargin.path`` returned.
    ax_ : array of axes
    figure_
        Where it was drawn.

    References
    ----------
    Polson and Scott (2011), figure 1.
    """

    path: Path
    top: int = 10
    mark: float | None = None

    @classmethod
    def from_path(cls, path: Any, *, top: int = 10, mark: float | None = None, ax: Any = None) -> Self:
        """Draw a path; the ``top`` largest coefficients at its end are named.

        Parameters
        ----------
        path : Path
            What ``softmargin.path`` returns.
        top : int
            How many to name.
        mark : float, optional
            A scale to mark, such as one that was learned.
        ax : matplotlib axes or two of them, optional
            Where to draw the coefficients, and with a second one the number of non-zero ones; new ones by default.
        """
        if not isinstance(path, Path):
            raise ValueError(f"{cls.__name__} draws what softmargin.path returns; got {type(path).__name__}.")
        return cls(path, top, mark).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        need_matplotlib(self._name)
        if ax is None:
            from matplotlib import pyplot

            ratios = {"height_ratios": (3.2, 1.0)}
            ax = pyplot.subplots(2, 1, figsize=(6.2, 4.8), sharex=True, gridspec_kw=ratios, layout="constrained")[1]
        axes, path = np.atleast_1d(ax).ravel(), self.path
        order = np.argsort(path.scales)
        scales, size = np.asarray(path.scales)[order], np.asarray(path.size)[order]
        names = [str(name) for name in path.feature_names]
        _lines(axes[0], scales, np.asarray(path.standardized)[order], names, self.top)
        for panel in axes[1:2]:
            panel.step(scales, size, where="mid", color=INK, lw=1.3)
            panel.set_ylim(0, 1.08 * max(int(size.max()), 1))
            finish(panel, "", "non-zero")
        for each in axes:
            frame(each)
            if self.mark is not None:
                each.axvline(self.mark, color=INK, lw=0.9, ls="--", zorder=1)
        axes[-1].set_xlabel("prior scale", fontsize=9.5)
        self.ax_, self.figure_ = axes, axes[0].figure
        return self


def _lines(ax: Any, scales: Array, coefficients: Array, names: list[str], top: int) -> None:
    """The lines of a path: the ``top`` largest at its end in colour and named, the others grey."""
    end = coefficients[-1]
    chosen = np.argsort(-np.abs(end), kind="stable")[:top]
    chosen = chosen[end[chosen] != 0.0]
    ax.set_xscale("log")
    bend(ax, "y", end[chosen])
    ax.plot(scales, np.delete(coefficients, chosen, axis=1), color=GREY, lw=0.8, alpha=0.55, zorder=2)
    for j in chosen:
        ax.plot(scales, coefficients[:, j], color=RED if end[j] > 0 else BLUE, lw=1.4, zorder=3)
    ax.axhline(0.0, color=INK, lw=0.8, zorder=1)
    ax.set_xlim(scales[0], scales[-1])
    name_ends(ax, end[chosen], [names[j] for j in chosen])
    finish(ax, "", "coefficient for one sd of the column")
