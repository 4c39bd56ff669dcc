"""Coefficients with intervals, and inclusion probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.coefficients import Coefficients, Inclusions, coefficients, inclusions
from softmargin.plots.numbers.subject import linear_of
from softmargin.plots.style import BLUE, GREY, INK, PALE, RED, colour_of, effect, ends_of, finish, plain

__all__ = ["CoefficientsDisplay", "InclusionDisplay"]

_BESIDE = 6  # outputs that have markers beside each other; more become a field of colours


@dataclass(eq=False)
class CoefficientsDisplay(Display):
    """Coefficients with their intervals.

    They are drawn for a change of one standard deviation of their column, so that they compare (in the units of the
    columns where the model did not standardize). Filled markers: the interval leaves zero out. With more than two
    classes there is a marker per pair or class, or a field of colours where there are more than six.

    Attributes
    ----------
    coefficients : Coefficients
        ``names``, ``outputs`` (pairs or classes of more than two), ``mean``, ``lower`` and ``upper``, each of shape
        (columns, outputs), for one standard deviation of the column.
    unit : str
        What they are.
    ends : tuple of str
        What negative and positive ones speak for.
    ax_, figure_
        Where it was drawn.
    """

    coefficients: Coefficients
    unit: str
    ends: tuple[str, str]
    top: int = 20

    @classmethod
    def from_estimator(cls, model: Any, *, top: int = 20, level: float = 0.95, ax: Any = None) -> Self:
        """Draw the ``top`` coefficients of a fitted model that are farthest from zero.

        "Farthest" is by ``|mean| / sd``, or by ``|mean|`` where there is no sd.

        Parameters
        ----------
        model : BayesianSVC, BayesianSVR or Formula
            A fitted model of any number of classes.
        top : int
            How many columns to draw.
        level : float
            Probability of the intervals.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        machine = linear_of(cls.__name__, model)
        return cls(coefficients(cls.__name__, model, level), effect(machine), ends_of(machine), top).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        found = self.coefficients
        chosen = found.farthest(self.top)
        lead = found.distance[chosen].argmax(axis=1)
        chosen = chosen[np.argsort(found.mean[chosen, lead], kind="stable")]
        many = len(found.outputs)
        if many > _BESIDE:
            return self._field(ax, chosen)
        ax = self._on(ax, (6.0, 0.9 + (0.2 + 0.06 * many) * max(len(chosen), 1)))
        for r in range(many):
            place = np.arange(len(chosen)) + (0.0 if many == 1 else 0.35 - 0.7 * r / (many - 1))
            self._markers(ax, chosen, place, r)
        ax.axvline(0.0, color=INK, lw=0.8, zorder=1)
        ax.set_yticks(np.arange(len(chosen)), [plain(found.names[j]) for j in chosen])
        ax.set_ylim(-0.7, len(chosen) - 0.3)
        ax.tick_params(axis="y", length=0)
        finish(ax, f"{self.unit}\n← {self.ends[0]}      {self.ends[1]} →", "")
        ax.grid(visible=False, axis="y")
        if many > 1:
            ax.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=min(many, 3))
        return self

    def _markers(self, ax: Any, chosen: Any, place: Any, r: int) -> None:
        found, many = self.coefficients, len(self.coefficients.outputs)
        mean = found.mean[chosen, r]
        colour = np.where(mean > 0, RED, BLUE) if many == 1 else np.full(len(chosen), colour_of(r))
        if found.lower is not None and found.upper is not None:
            lower, upper = found.lower[chosen, r], found.upper[chosen, r]
            ax.hlines(place, lower, upper, colors=colour, lw=2.2, alpha=0.55, capstyle="round", zorder=2)
        away = found.away[chosen, r] if found.lower is not None else np.ones(len(chosen), dtype=bool)
        face = [shade if filled else "white" for shade, filled in zip(colour, away, strict=True)]
        size, name = (30, None) if many == 1 else (18, found.outputs[r])
        ax.scatter(mean, place, s=size, c=face, edgecolors=colour, linewidths=1.4, zorder=3)
        if name is not None:
            ax.scatter([], [], s=30, c=colour_of(r), label=plain(name))

    def _field(self, ax: Any, chosen: Any) -> Self:
        """Colours by coefficient, a dot where the interval leaves zero out."""
        found = self.coefficients
        ax = self._on(ax, (2.0 + 0.3 * len(found.outputs), 1.4 + 0.26 * len(chosen)))
        values = found.mean[chosen]
        reach = float(np.abs(values).max(initial=1e-12))
        field = ax.pcolormesh(values, cmap="RdBu_r", vmin=-reach, vmax=reach)
        row, column = np.nonzero(found.away[chosen])
        ax.scatter(column + 0.5, row + 0.5, s=4, c=INK)
        ax.set_yticks(np.arange(len(chosen)) + 0.5, [plain(found.names[j]) for j in chosen])
        ax.set_xticks(np.arange(len(found.outputs)) + 0.5, list(map(plain, found.outputs)), rotation=90)
        bar = self.figure_.colorbar(field, ax=ax)
        bar.set_label(plain(f"{self.unit}\n{self.ends[0]} — {self.ends[1]}"), fontsize=8.5)
        return self


@dataclass(eq=False)
class InclusionDisplay(Display):
    """Inclusion probabilities, coloured by the sign of the coefficient.

    The colour is the probability of a positive coefficient given that the column is in; whiskers are the range over
    chains. Faint bars stay below the threshold.

    Attributes
    ----------
    inclusions : Inclusions
        ``names``, ``outputs``, and arrays (columns, outputs): ``value``, its range ``low`` to ``high`` over chains, and
        ``positive``, the probability of a positive coefficient given that the column is in.
    threshold : float
        Where the line is.
    ax_, figure_
        Where it was drawn.

    References
    ----------
    Polson and Scott (2011), figure 3.
    """

    inclusions: Inclusions
    ends: tuple[str, str]
    threshold: float = 0.5
    top: int = 30

    @classmethod
    def from_estimator(cls, model: Any, *, top: int = 30, threshold: float = 0.5, ax: Any = None) -> Self:
        """Draw the ``top`` largest inclusion probabilities of a model whose prior has point masses.

        Parameters
        ----------
        model : BayesianSVC, BayesianSVR or Formula
            A fitted model with ``inclusion_``; of pairs of classes, bars are the largest of a column's and dots all of
            them.
        top : int
            How many columns to draw.
        threshold : float
            Where the line is; 0.5 bounds the median model.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        found = inclusions(cls.__name__, model)
        return cls(found, ends_of(linear_of(cls.__name__, model)), threshold, top).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        found = self.inclusions
        chosen = found.largest(self.top)
        ax = self._on(ax, (5.4, 1.1 + 0.21 * len(chosen)))
        lead = found.value[chosen].argmax(axis=1)
        place, height = np.arange(len(chosen)), found.value[chosen, lead]
        self._bars(ax, place, height, found.positive[chosen, lead])
        low, high = found.low[chosen, lead], found.high[chosen, lead]
        if len(found.outputs) > 1:
            for r in range(len(found.outputs)):
                ax.scatter(found.value[chosen, r], place, s=9, c=INK, zorder=3)
        elif (high > low).any():
            ax.errorbar(
                height, place, xerr=np.maximum((height - low, high - height), 0.0), fmt="none", ecolor=INK,
                elinewidth=0.9, capsize=1.8, capthick=0.9, zorder=3,
            )  # fmt: skip
        ax.axvline(self.threshold, color=INK, lw=0.8, ls="--", zorder=1.5)
        ax.set_yticks(place, [plain(found.names[j]) for j in chosen])
        ax.set(xlim=(0.0, 1.02), ylim=(len(chosen) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0, labelsize=8.5)
        finish(ax, "posterior inclusion probability", "")
        ax.grid(visible=False, axis="y")
        return self

    def _bars(self, ax: Any, place: Any, height: Any, positive: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patches import Patch

        fill = LinearSegmentedColormap.from_list("sign", (BLUE, PALE, RED))(positive)
        fill[:, 3] = np.where(height > self.threshold, 0.9, 0.45)
        ax.barh(place, height, color=fill, edgecolor=GREY, linewidth=0.5, height=0.74, zorder=2)
        words = ((BLUE, f"towards {self.ends[0]}"), (PALE, "either"), (RED, f"towards {self.ends[1]}"))
        keys = [Patch(facecolor=shade, edgecolor=GREY, label=plain(text)) for shade, text in words]
        ax.legend(
            handles=keys, ncols=3, frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(-0.01, 1.0),
            borderaxespad=0.2, handlelength=1.0, handleheight=1.0, columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip
