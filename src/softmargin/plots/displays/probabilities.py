"""Are the probabilities right, and how sure is each prediction?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softmargin.core.array import Array
from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.curves import class_band, reliability
from softmargin.plots.numbers.outcomes import decisions
from softmargin.plots.numbers.subject import labels_of, machine_of
from softmargin.plots.style import INK, SERIES, colour_of, finish, plain

__all__ = ["CalibrationDisplay", "ProbabilitiesDisplay"]

_CLASSES = 6  # curves of single classes


@dataclass(eq=False)
class CalibrationDisplay(Display):
    """A reliability diagram: how often a class occurs where it is given probability p.

    Attributes
    ----------
    curves : dict
        From a name to its ``Reliability``: levels ``where``, ``share`` and ``n`` of the increasing function of p that
        fits the outcomes best.
    band : tuple of arrays
        Probabilities, and the 5 % and 95 % points of the first curve if every probability is right.
    label : str
        What the probabilities are of.
    ax_, figure_
        Where it was drawn.

    References
    ----------
    Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for probabilistic classifiers, PNAS 118.
    """

    curves: dict[str, Any]
    band: tuple[Array, Array, Array]
    label: str

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, y: Any = None, *, ax: Any = None) -> Self:
        """Draw a classifier's probabilities against what came out.

        Parameters
        ----------
        model : BayesianSVC, BayesianKernelClassifier or Formula
            A fitted classifier. With more than two classes the first curve, which has the band, is that of all classes
            together, and single classes have curves of their own.
        X, y : data of shape (n, p), array of shape (n,), optional
            Rows and their classes; the training rows, each left out, by default.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        found = decisions(cls.__name__, model, X, y)
        q, truth = found.natural, found.y[:, None] == np.arange(found.k)
        if found.k == 2:
            curve = reliability(q[:, 1], truth[:, 1].astype(float), found.times)
            shade = class_band(q, found.times, pooled=False)
            return cls({found.source: curve}, shade, found.labels[1]).plot(ax)
        pooled = reliability(q.ravel(), truth.ravel().astype(float), np.repeat(found.times, found.k))
        curves = {"all classes": pooled}
        for r in np.argsort(-truth.sum(axis=0), kind="stable")[:_CLASSES]:
            curves[found.labels[r]] = reliability(q[:, r], truth[:, r].astype(float), found.times)
        return cls(curves, class_band(q, found.times), "the class").plot(ax)

    @classmethod
    def from_predictions(cls, y: Any, probabilities: Mapping[str, Array], *, label: str = "", ax: Any = None) -> Self:
        """Draw given probabilities of the second of two classes, by name; the band is that of the first."""
        classes = np.unique(np.asarray(y))
        if len(classes) != 2:
            raise ValueError(f"calibration needs two classes in y; got {len(classes)}.")
        occurred = (np.asarray(y) == classes[1]).astype(float)
        curves = {}
        for name, p in probabilities.items():
            if p.shape != occurred.shape or not ((p >= 0) & (p <= 1)).all():
                raise ValueError(
                    f"probabilities of the second of two classes must be {len(occurred)} numbers between 0 and 1, one "
                    f"per row of y; got shape {p.shape}."
                )
            curves[name] = reliability(p, occurred)
        first = next(iter(probabilities.values()))
        shade = class_band(np.column_stack((1.0 - first, first)), pooled=False)
        return cls(curves, shade, label or str(classes[1])).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = self._on(ax, (4.4, 4.2))
        ax.plot([0, 1], [0, 1], color=INK, lw=0.8, zorder=1)
        for number, (name, curve) in enumerate(self.curves.items()):
            colour, marker, line = SERIES[number % len(SERIES)]
            if number == 0:
                ax.fill_between(*self.band, color=colour, alpha=0.16, lw=0, zorder=1)
            ax.plot(curve.where, curve.share, color=colour, ls=line, lw=1.5, zorder=3)
            size = 18.0 + 110.0 * curve.n / curve.n.sum()
            style = {"c": colour, "marker": marker, "edgecolors": "white", "linewidths": 0.7}
            ax.scatter(curve.where, curve.share, s=size, zorder=4, **style)
            ax.plot([], [], color=colour, ls=line, lw=1.5, marker=marker, ms=6, mec="white", label=plain(name))
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        finish(ax, f"predicted probability of {self.label}", f"share of {self.label}")
        ax.legend(frameon=False, fontsize=8.5, loc="upper left", borderaxespad=0.2, handlelength=2.4)
        return self


@dataclass(eq=False)
class ProbabilitiesDisplay(Display):
    """The probability of a class against f, each row with its 95 % interval of f; of many classes, sorted rows.

    Attributes
    ----------
    labels : list of str
        Class labels.
    truth : array
        Number of the class of each row.
    probability : array of shape (n,)
        Of the second class of two; of many, that of the true class.
    f, sd : arrays of shape (n,), or None
        Posterior mean and standard deviation of f (two classes).
    ax_, figure_
        Where it was drawn.
    """

    labels: list[str]
    truth: Any
    probability: Array
    f: Array | None = None
    sd: Array | None = None

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, y: Any = None, *, ax: Any = None) -> Self:
        """Draw the predictions of rows, best not those of the fit.

        Parameters
        ----------
        model : BayesianSVC, BayesianKernelClassifier or Formula
            A fitted classifier; intervals need a posterior (not ``inference="map"``).
        X, y : data of shape (n, p), array of shape (n,), optional
            Rows and their classes; the training rows, each left out, by default, which have no intervals.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        labels = labels_of(cls.__name__, machine_of(cls.__name__, model))
        found = decisions(cls.__name__, model, X, y)
        if len(labels) > 2:
            return cls(labels, found.y, found.own).plot(ax)
        if X is None:
            f = np.where(found.y == 1, found.margin, -found.margin)
            return cls(labels, found.y, found.p[:, 1], f, np.zeros_like(f)).plot(ax)
        f, sd = model.decision_function(X, return_std=True)
        return cls(labels, found.y, found.p[:, 1], np.asarray(f), np.asarray(sd)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = self._on(ax, (5.0, 4.0))
        if self.f is None or self.sd is None:
            return self._sorted(ax)
        f, sd, p = self.f, self.sd, self.probability
        ax.set_xscale("asinh", linear_width=1.0)  # rows far from the boundary do not squeeze those near it
        reach = float((np.abs(f) + 1.96 * sd).max())
        ax.axhline(0.5, color=INK, lw=0.8, zorder=1)
        for number, (label, marker) in enumerate(zip(self.labels, ("o", "^"), strict=True)):
            rows, colour = self.truth == number, colour_of(number)
            low, high = (f - 1.96 * sd)[rows], (f + 1.96 * sd)[rows]
            ax.hlines(p[rows], low, high, colors=colour, lw=1.0, alpha=0.25, zorder=2)
            style = {"c": colour, "marker": marker, "edgecolors": "white", "linewidths": 0.5}
            ax.scatter(f[rows], p[rows], s=26, label=plain(label), zorder=3, **style)
        ticks = [t for t in (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100) if abs(t) <= reach]
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_xticks([], minor=True)
        ax.set(xlim=(-reach, reach), ylim=(-0.04, 1.04))
        finish(ax, "f, with its 95 % interval", f"predicted probability of {self.labels[1]}")
        ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(0.0, 0.8), handletextpad=0.2)
        return self

    def _sorted(self, ax: Any) -> Self:
        """Rows of each class from the least to the most sure."""
        ax.axhline(0.5, color=INK, lw=0.8, zorder=1)
        for number, label in enumerate(self.labels):
            own = np.sort(self.probability[self.truth == number])
            share = (np.arange(len(own)) + 0.5) / max(len(own), 1)
            ax.plot(share, own, color=colour_of(number), marker="o", ms=3, lw=1.2, label=plain(label))
        ax.set(xlim=(0.0, 1.0), ylim=(-0.04, 1.04))
        finish(ax, "share of the rows of the class", "predicted probability of the true class")
        ax.legend(frameon=False, fontsize=8.5, loc="lower right")
        return self
