"""Decisions: how far rows are from the boundary, and which classes are confused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import costs_by_label, fitted
from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.outcomes import Decisions, decisions
from softmargin.plots.numbers.subject import machine_of
from softmargin.plots.style import BLUE, INK, RED, colour_of, finish, plain

__all__ = ["ConfusionDisplay", "MarginsDisplay"]


@dataclass(eq=False)
class MarginsDisplay(Display):
    """How far rows are from the boundary, towards their own class.

    Attributes
    ----------
    decisions : Decisions
        ``labels``, classes ``y``, ``margin`` and ``source`` of the rows. The margin is f towards the true class; with
        more than two classes, the log odds of the true class against the strongest other one.
    ax_, figure_
        Where it was drawn.
    """

    decisions: Decisions

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, y: Any = None, *, ax: Any = None) -> Self:
        """Draw the margins of rows; below zero the decision is wrong, and below one a row is a support row.

        Parameters
        ----------
        model : BayesianSVC, BayesianKernelClassifier or Formula
            A fitted classifier.
        X, y : data of shape (n, p), array of shape (n,), optional
            Rows and their classes; the training rows, each left out, by default.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        return cls(decisions(cls.__name__, model, X, y)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        found = self.decisions
        ax = self._on(ax, (5.4, 3.4))
        low, high = np.quantile(found.margin, (0.005, 0.995))
        edges = np.linspace(min(low, 0.0), max(high, 1.0), 31)
        inside = np.clip(found.margin, edges[0], edges[-1])
        classes = range(found.k)
        ax.hist(
            [inside[found.y == r] for r in classes], edges, weights=[found.times[found.y == r] for r in classes],
            stacked=True, color=[colour_of(r) for r in classes], label=[plain(label) for label in found.labels],
            alpha=0.85, zorder=2,
        )  # fmt: skip
        for mark in (0.0, 1.0) if found.k == 2 else (0.0,):
            ax.axvline(mark, color=INK, lw=0.9, ls="--", zorder=3)
        what = "margin: f towards the true class" if found.k == 2 else "log odds of the true class against the next"
        finish(ax, what, f"rows ({found.source})")
        ax.legend(frameon=False, fontsize=8.5)
        return self


@dataclass(eq=False)
class ConfusionDisplay(Display):
    """Counts of true and decided classes.

    Attributes
    ----------
    labels : list of str
        Class labels.
    counts : array of shape (k, k)
        Rows of each true class (first axis) by decision (second axis).
    costs : array of shape (k, k), or None
        What decisions cost.
    cost : float or None
        What all of them cost.
    ax_, figure_
        Where it was drawn.
    """

    labels: list[str]
    counts: Array
    costs: Array | None = None

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, y: Any = None, *, costs: Any = None, ax: Any = None) -> Self:
        """Draw the confusion matrix of a classifier.

        Parameters
        ----------
        model : BayesianSVC, BayesianKernelClassifier or Formula
            A fitted classifier. Its decisions are for the more probable class, which has the costs of the fit in it.
        X, y : data of shape (n, p), array of shape (n,), optional
            Rows and their classes; the training rows, each left out, by default.
        costs : array or DataFrame of shape (k, k), optional
            Costs of decisions that the fit does not know: decisions are then those of least expected cost.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        found, machine = decisions(cls.__name__, model, X, y), machine_of(cls.__name__, model)
        known = costs_by_label(fitted(machine, "costs"), machine.classes_)
        if costs is None:
            table = None if known is None else np.asarray(known, dtype=float)
            return cls(found.labels, found.confusion(), table).plot(ax)
        table = np.asarray(costs_by_label(costs, machine.classes_), dtype=float)
        if table.shape != (found.k, found.k):
            raise ValueError(f"costs must have one row and one column per class, {found.k} of each; got {table.shape}.")
        decided = (found.natural @ table).argmin(axis=1)
        counts = np.zeros((found.k, found.k))
        np.add.at(counts, (found.y, decided), found.times)
        return cls(found.labels, counts, table).plot(ax)

    @property
    def cost(self) -> float | None:
        """What all decisions cost."""
        return None if self.costs is None else float((self.counts * self.costs).sum())

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        k = len(self.labels)
        ax = self._on(ax, (1.8 + 0.62 * max(k, 3), 1.6 + 0.55 * max(k, 3)))
        share = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1e-300)
        from matplotlib.colors import to_rgba

        shade = np.empty((k, k, 4))
        for j in range(k):
            for r in range(k):
                shade[j, r] = to_rgba(BLUE if j == r else RED, 0.06 + 0.55 * float(share[j, r]))
        ax.imshow(shade, aspect="auto")
        if k <= 12:
            for j, r in np.ndindex(k, k):
                ax.text(r, j, f"{self.counts[j, r]:g}", ha="center", va="center", fontsize=9, color=INK)
        names = list(map(plain, self.labels))
        ax.set_xticks(range(k), names, rotation=90 if max(map(len, self.labels)) > 8 or k > 6 else 0)
        ax.set_yticks(range(k), names)
        ax.tick_params(length=0)
        ax.set_xlabel("decided", fontsize=9.5)
        ax.set_ylabel("true", fontsize=9.5)
        wrong = float(self.counts.sum() - np.trace(self.counts))
        cost = "" if self.cost is None else f", cost {self.cost:.4g}"
        ax.set_title(f"{wrong:g} of {self.counts.sum():g} wrong{cost}", fontsize=9, loc="left", color=INK)
        return self
