"""Predictions over a plane or a line: boundaries with their uncertainty, and intervals of a regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.core.validation import is_frame
from softmargin.estimators.kernel_machine import KernelMachine
from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.outcomes import Responses, responses
from softmargin.plots.numbers.subject import labels_of, machine_of, response_of
from softmargin.plots.style import BLUE, INK, RED, colour_of, finish, plain, position

__all__ = ["BoundaryDisplay", "IntervalsDisplay"]

_GRID = 80  # points per side of the plane
_SURE = 1.645  # standard deviations of f beyond which its sign is 95 % sure


def _column(X: Any, place: int) -> Any:
    return np.asarray(X.iloc[:, place] if isinstance(X, pd.DataFrame) else np.asarray(X)[:, place])


def _plain(what: str, X: Any) -> Any:
    """Rows as a data frame of pandas or an array."""
    if sp.issparse(X):
        raise ValueError(
            f"{what} draws over columns of numbers, and got a sparse matrix; give X[:, columns].toarray()."
        )
    if isinstance(X, pd.DataFrame) or not is_frame(X):
        return X if isinstance(X, pd.DataFrame) else np.asarray(X)
    return pd.DataFrame({str(name): np.asarray(X[name]) for name in X.columns})


def _names(X: Any) -> list[str]:
    return [str(name) for name in X.columns] if isinstance(X, pd.DataFrame) else [f"x{j}" for j in range(X.shape[1])]


def _typical(X: Any, n: int) -> Any:
    """n copies of a typical row: medians of numbers, the most frequent label."""
    if not isinstance(X, pd.DataFrame):
        return np.tile(np.nanmedian(X, axis=0), (n, 1))
    row = {}
    for name in X.columns:
        column = X[name]
        number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        row[name] = [column.median() if number else column.mode().iloc[0]] * n
    return pd.DataFrame(row)


def _set(X: Any, place: int, values: Array) -> None:
    if isinstance(X, pd.DataFrame):
        X[X.columns[place]] = values
    else:
        X[:, place] = values


def _places(what: str, X: Any, columns: Any, count: int) -> list[int]:
    """Positions of the columns that are asked for, all of which hold numbers."""
    names = _names(X)
    if columns is None:
        numeric = [j for j in range(len(names)) if np.asarray(_column(X, j)).dtype.kind in "fiu"]
        if len(numeric) != count:
            raise ValueError(
                f"{what} draws over {count} column{'s' * (count > 1)}, and X has {len(numeric)} of numbers; name "
                f"{'them' if count > 1 else 'one'}, as in columns={names[:count]!r}."
            )
        return numeric
    asked = [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)
    if len(asked) != count:
        raise ValueError(f"{what} draws over {count} column{'s' * (count > 1)}; got {len(asked)}.")
    found = [position(column, names) for column in asked]
    for j in found:
        if np.asarray(_column(X, j)).dtype.kind not in "fiu":
            raise ValueError(f"{what} draws over columns of numbers, and {names[j]!r} holds labels.")
    return found


@dataclass(eq=False)
class BoundaryDisplay(Display):
    """Where classes are decided on over a plane of two columns, and how sure that is.

    Attributes
    ----------
    labels : list of str
        Class labels.
    xx, yy : arrays of shape (g, g)
        The plane.
    probability : array of shape (g, g, k)
        Class probabilities there.
    distance : array of shape (g, g), or None
        f in posterior standard deviations (two classes with a posterior): between the dashed lines, at -1.645 and
        1.645, the side of the boundary is less than 95 % sure.
    points : tuple
        Rows with the numbers of their classes, if given.
    ax_, figure_
        Where it was drawn.
    """

    labels: list[str]
    names: tuple[str, str]
    xx: Array
    yy: Array
    probability: Array
    distance: Array | None = None
    points: tuple[Array, Array, Any] | None = None

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, y: Any = None, *, columns: Any = None, grid: int = _GRID, ax: Any = None
    ) -> Self:
        """Draw the decision boundary of a classifier over two columns.

        Parameters
        ----------
        model : BayesianSVC, BayesianKernelClassifier or Formula
            A fitted classifier.
        X : array or data frame of shape (n, p)
            Rows: the plane is theirs, and columns that are not drawn have their medians.
        y : array of shape (n,), optional
            Classes of the rows, which are then drawn.
        columns : two names or positions, optional
            Which columns; needed where there are more than two.
        grid : int
            Points per side.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        machine = machine_of(cls.__name__, model)
        labels = labels_of(cls.__name__, machine)
        rows = _plain(cls.__name__, X)
        places = _places(cls.__name__, rows, columns, 2)
        sides = [_side(_column(rows, j).astype(float), grid) for j in places]
        xx, yy = np.meshgrid(*sides)
        plane = _typical(rows, xx.size)
        for j, values in zip(places, (xx, yy), strict=True):
            _set(plane, j, values.ravel())
        p = np.asarray(model.predict_proba(plane)).reshape(grid, grid, -1)
        distance = None
        if len(labels) == 2 and _has_spread(machine):
            f, sd = model.decision_function(plane, return_std=True)
            distance = (np.asarray(f) / np.maximum(np.asarray(sd), 1e-300)).reshape(grid, grid)
        points = None
        truth = response_of(model, X, y) if y is not None else None
        if truth is not None:
            number = np.array([machine.classes_.tolist().index(label) for label in truth.tolist()])
            points = (_column(rows, places[0]), _column(rows, places[1]), number)
        names = _names(rows)
        return cls(labels, (names[places[0]], names[places[1]]), xx, yy, p, distance, points).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        from matplotlib.colors import to_rgb

        ax = self._on(ax, (5.2, 4.4))
        shade = np.array([to_rgb(colour_of(r)) for r in range(len(self.labels))])
        top, sure = self.probability.argmax(axis=2), self.probability.max(axis=2)
        least = 1.0 / len(self.labels)
        strength = 0.5 * ((sure - least) / (1.0 - least))[..., None]
        picture = strength * shade[top] + (1.0 - strength)
        ends = (self.xx[0, 0], self.xx[0, -1], self.yy[0, 0], self.yy[-1, 0])
        ax.imshow(picture, extent=ends, origin="lower", aspect="auto", interpolation="bilinear", zorder=0)
        if self.distance is not None:
            self._lines(ax, self.distance, (-_SURE, _SURE), linewidths=0.9, linestyles="dashed", alpha=0.7, zorder=1)
        for r in range(1 if len(self.labels) == 2 else len(self.labels)):
            other = np.delete(self.probability, r, axis=2).max(axis=2)
            lead = self.probability[..., r] - other
            self._lines(ax, lead, (0.0,), linewidths=1.4, zorder=2)
        for r, label in enumerate(self.labels):
            where = ([], []) if self.points is None else tuple(part[self.points[2] == r] for part in self.points[:2])
            ax.scatter(*where, s=16, c=colour_of(r), edgecolors="white", linewidths=0.5, label=plain(label), zorder=3)
        finish(ax, *self.names)
        ax.grid(visible=False)
        ax.set(xlim=ends[:2], ylim=ends[2:])
        ax.legend(frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, handletextpad=0.2)
        return self

    def _lines(self, ax: Any, values: Array, levels: tuple[float, ...], **style: Any) -> None:
        """Where values are at the levels, those that are reached."""
        reached = [level for level in levels if values.min() < level < values.max()]
        if reached:
            ax.contour(self.xx, self.yy, values, levels=reached, colors=[INK], **style)


def _has_spread(machine: Any) -> bool:
    """Whether f has a posterior, not a mode alone."""
    part = machine._fitted.parts[0]
    return bool(part.has_spread if isinstance(machine, KernelMachine) else part.posterior.has_spread)


def _side(values: Array, grid: int) -> Array:
    values = values[np.isfinite(values)]
    room = 0.06 * (float(np.ptp(values)) or 1.0)
    return np.linspace(values.min() - room, values.max() + room, grid)


@dataclass(eq=False)
class IntervalsDisplay(Display):
    """Predictive intervals of a regression, with the responses that came out.

    Attributes
    ----------
    responses : Responses
        ``y``, predictions ``f``, ``lower``, ``upper``, ``level``, and the share ``covered``.
    x : array of shape (n,), or None
        Values of the column that they are drawn over; without one, rows in the order of their prediction.
    ax_, figure_
        Where it was drawn.
    """

    responses: Responses
    x: Array | None = None
    column: str = ""

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any = None, y: Any = None, *, column: Any = None, level: float = 0.95, ax: Any = None
    ) -> Self:
        """Draw predictive intervals of rows.

        Parameters
        ----------
        model : BayesianSVR, BayesianKernelRegressor or Formula
            A fitted regression.
        X, y : data of shape (n, p), array of shape (n,), optional
            Rows and their responses; the training rows, each left out, by default.
        column : str or int, optional
            Column of X to draw over; the only one where there is one, else rows are in the order of their prediction.
        level : float
            Probability of the intervals.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        found = responses(cls.__name__, model, X, y, level)
        if X is None:
            if column is not None:
                raise ValueError(f"{cls.__name__} needs rows to draw over the column {column!r}; give X.")
            return cls(found).plot(ax)
        rows = _plain(cls.__name__, X)
        if column is None and (rows.shape[1] != 1 or _column(rows, 0).dtype.kind not in "fiu"):
            return cls(found).plot(ax)
        place = _places(cls.__name__, rows, 0 if column is None else column, 1)[0]
        return cls(found, _column(rows, place).astype(float), _names(rows)[place]).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        found = self.responses
        ax = self._on(ax, (6.0, 3.8))
        order = np.argsort(found.f if self.x is None else self.x, kind="stable")
        x = np.arange(len(order), dtype=float) if self.x is None else self.x[order]
        f, lower, upper, y = (part[order] for part in (found.f, found.lower, found.upper, found.y))
        ax.fill_between(
            x, lower, upper, color=BLUE, alpha=0.16, lw=0, zorder=1, label=f"{100 * found.level:g} % interval"
        )
        ax.plot(x, f, color=BLUE, lw=1.6, zorder=2, label="prediction")
        inside = (y >= lower) & (y <= upper)
        ax.scatter(x[inside], y[inside], s=12, c=INK, alpha=0.7, linewidths=0, zorder=3)
        ax.scatter(x[~inside], y[~inside], s=16, c=RED, linewidths=0, zorder=3)
        finish(ax, self.column or "rows in the order of their prediction", f"response ({found.source})")
        if np.isfinite(y).all():
            ax.set_title(f"{100 * found.covered:.3g} % inside", fontsize=9, loc="left", color=INK)
        ax.legend(frameon=False, fontsize=8.5)
        return self
