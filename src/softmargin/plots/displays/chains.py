"""Draws one after the other, and whether two runs agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.chains import Chain, chains_of, coefficient_draws
from softmargin.plots.numbers.subject import linear_of, machine_of, names_of, outputs_of, per_output, spreads
from softmargin.plots.style import (
    BLUE,
    GREY,
    INK,
    RED,
    SERIES,
    bend,
    effect,
    finish,
    in_frame,
    plain,
    position,
    same_columns,
)

__all__ = ["AgreementDisplay", "TracesDisplay"]

_STEPS = 1500  # points of a trace; more would not be seen
_SHOWN = 3  # chains that are drawn where none are asked for
_NAMED = 6  # outlying points of an agreement picture that get their name
_APART = 0.04  # differences below this share of the axis need no name
_INCLUSION = "inclusion probability"


@dataclass(eq=False)
class TracesDisplay(Display):
    """Draws of chosen numbers, one panel each and the chains side by side.

    Attributes
    ----------
    chains : list of Chain
        ``name`` and ``draws`` of shape (chains, draws) of each.
    modes : list of float
        Lines to compare with, one per panel, or none.
    ax_ : array of axes
    figure_
        Where it was drawn.

    References
    ----------
    Polson and Scott (2011), figure 4.
    """

    chains: list[Chain]
    modes: list[float] = field(default_factory=list)

    @classmethod
    def from_estimator(
        cls, model: Any, features: Sequence[Any] | None = None, *, mode: Any = None, ax: Any = None
    ) -> Self:
        """Draw the chains of a model that was fitted with draws.

        Parameters
        ----------
        model : BayesianSVC, BayesianSVR, kernel model or Formula
            A model fitted with ``inference="gibbs"`` or ``"hmc"``. Of a linear model the coefficients are drawn, of a
            kernel model its intercept, lengths and scales.
        features : sequence of str or int, optional
            Names or positions of columns, or names of the numbers; the three farthest from zero by ``|mean| / sd`` by
            default.
        mode : BayesianSVC or BayesianSVR, optional
            A model of the same columns and classes, such as a mode, whose coefficients are drawn as lines.
        ax : matplotlib axes or sequence of them, optional
            One per panel; new ones by default.
        """
        found = chains_of(cls.__name__, model)
        if features is None:
            chosen = sorted(found, key=lambda chain: -chain.distance)[:_SHOWN]
        else:
            names = names_of(machine_of(cls.__name__, model))
            chosen = [chain for feature in features for chain in _asked(feature, found, names)]
        modes = [] if mode is None else _modes(cls.__name__, model, mode, chosen)
        return cls(chosen, modes).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        axes = self._panels(ax, len(self.chains), (6.4, 0.2 + 1.5), sharex=True)
        for number, (each, chain) in enumerate(zip(axes, self.chains, strict=True)):
            _trace(each, chain.draws, chain.name)
            if self.modes:
                each.axhline(self.modes[number], color=RED, lw=1.3, ls="--", zorder=4, label="mode")
        if self.modes:
            place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "borderaxespad": 0.1}
            axes[0].legend(frameon=False, fontsize=8.5, **place)
        count = len(self.chains[0].draws)
        finish(axes[-1], f"draw, {count} chain{'s side by side' if count > 1 else ''}", axes[-1].get_ylabel())
        return self


def _asked(feature: Any, found: list[Chain], names: list[str]) -> list[Chain]:
    """The chains that a name or a position of a column means."""
    exact = [chain for chain in found if chain.name == feature]
    if exact:
        return exact
    if found[0].column < 0:
        known = ", ".join(repr(chain.name) for chain in found)
        raise ValueError(f"features must be names of what was drawn, {known}; got {feature!r}.")
    return [chain for chain in found if chain.column == position(feature, names)]


def _modes(what: str, model: Any, mode: Any, chosen: list[Chain]) -> list[float]:
    machine, other = linear_of(what, model), linear_of(what, mode)
    same_columns(names_of(machine), names_of(other))
    if outputs_of(machine) != outputs_of(other):
        raise ValueError(f"the two models must have the same classes; they have {_count(machine)} and {_count(other)}.")
    unit = spreads(machine)
    return [float(other.coef_[chain.output, chain.column] * unit[chain.column, chain.output]) for chain in chosen]


def _count(machine: Any) -> str:
    rows = len(outputs_of(machine))
    return f"{rows} coefficient{'s' * (rows > 1)} per column"


def _trace(ax: Any, draws: Array, name: str) -> None:
    """Chains (chains, draws) one after the other, zero marked."""
    chains, length = draws.shape
    step = max(1, chains * length // _STEPS)
    for k in range(chains):
        at = k * length + np.arange(0, length, step)
        ax.plot(at, draws[k, ::step], color=SERIES[k % len(SERIES)][0], lw=0.7, zorder=3, rasterized=True)
        if k:
            ax.axvline(k * length, color=GREY, lw=0.8, zorder=2)
    ax.axhline(0.0, color=INK, lw=0.8, zorder=1)
    ax.set_xlim(0, chains * length)
    finish(ax, "", name)


@dataclass(eq=False)
class AgreementDisplay(Display):
    """What one fit found against what another found, column by column, with the largest difference written.

    Compared are inclusion probabilities where both have them, and coefficients for one standard deviation of the
    column otherwise. One model alone is compared with itself: each chain against the mean of all.

    Attributes
    ----------
    names : list of str
        Columns, with the pair or class of more than two.
    across : array of shape (m,)
        What the first fit found, or the mean of all chains.
    rows : array of shape (fits, m)
        What the second fit, or each chain, found.
    difference : array of shape (m,)
        How far they are apart.
    ax_, figure_
        Where it was drawn.

    References
    ----------
    Polson and Scott (2011), figure 2.
    """

    names: list[str]
    across: Array
    rows: Array
    difference: Array
    labels: tuple[str, str]
    bent: bool
    own: bool

    @classmethod
    def from_estimator(cls, first: Any, second: Any = None, *, ax: Any = None) -> Self:
        """Compare two fits, or the chains of one.

        Parameters
        ----------
        first, second : BayesianSVC, BayesianSVR or Formula
            Fitted models of the same columns and classes; without ``second``, a model with several chains. Compared
            are inclusion probabilities where both have them, and coefficients otherwise.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        """
        machine = linear_of(cls.__name__, first)
        if second is None:
            rows, what, names = _by_chain(cls.__name__, machine)
            labels = (f"{what}, mean of {len(rows)} chains", f"{what}, each chain")
            return cls(
                names, rows.mean(axis=0), rows, np.ptp(rows, axis=0), labels, what != _INCLUSION, True
            ).plot(ax)  # fmt: skip
        other = linear_of(cls.__name__, second)
        same_columns(names_of(machine), names_of(other))
        if outputs_of(machine) != outputs_of(other):
            raise ValueError(
                f"the two models must have the same classes; they have {_count(machine)} and {_count(other)}."
            )
        both = all(fitted(each, "inclusion_") is not None for each in (machine, other))
        what = _INCLUSION if both else effect(machine)
        unit = spreads(machine)
        pair = [_inclusions(each) if both else each.coef_.T * unit for each in (machine, other)]
        names, across, row = _named(machine, pair[0]), pair[0].ravel(), pair[1].ravel()
        labels = (f"{what}, first fit", f"{what}, second fit")
        return cls(names, across, row[None], np.abs(row - across), labels, not both, False).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = self._on(ax, (4.4, 4.4))
        across, rows = self.across, self.rows
        if self.bent:
            bend(ax, "xy", np.concatenate((across, rows.ravel())))
        low, high = min(across.min(), rows.min()), max(across.max(), rows.max())
        room = 0.04 * (high - low if high > low else 1.0)
        ends = (low - room, high + room)
        ax.plot(ends, ends, color=INK, lw=0.8, zorder=1)
        if len(rows) > 1:
            ax.vlines(across, rows.min(axis=0), rows.max(axis=0), colors=GREY, lw=0.9, zorder=2)
        for k, row in enumerate(rows):
            colour, marker, _ = SERIES[k % len(SERIES)] if self.own else (BLUE, "o", "-")
            ax.scatter(across, row, s=24, c=colour, marker=marker, edgecolors="white", linewidths=0.5, zorder=3)
        ax.set(xlim=ends, ylim=ends, box_aspect=1)
        self._name_outliers(ax)
        worst = int(np.argmax(self.difference))
        title = f"largest difference {self.difference[worst]:.2g} ({self.names[worst]})"
        ax.set_title(plain(title), fontsize=9, loc="left", color=INK)
        finish(ax, *self.labels)
        return self

    def _name_outliers(self, ax: Any) -> None:
        """Write the names of the columns that differ most, where there is room for them."""
        across, rows = self.across, self.rows
        peak = rows[np.argmax(np.abs(rows - across), axis=0), np.arange(len(across))]
        place = in_frame(ax, across, peak)
        written: list[int] = []
        for j in np.argsort(-self.difference, kind="stable")[:_NAMED]:
            level = abs(place[j, 1] - in_frame(ax, across[j : j + 1], across[j : j + 1])[0, 1])
            crowded = any((np.abs(place[j] - place[k]) < (0.2, 0.05)).all() for k in written)
            if level < _APART or crowded:
                continue
            written.append(int(j))
            right = place[j, 0] < 0.75
            ax.annotate(
                plain(self.names[j]), (across[j], peak[j]), xytext=(5 if right else -5, -3), textcoords="offset points",
                fontsize=8, ha="left" if right else "right", color=INK, zorder=4,
            )  # fmt: skip


def _named(machine: Any, values: Array) -> list[str]:
    """Names of the entries of an array (columns, outputs)."""
    outputs = outputs_of(machine) if values.shape[1] > 1 else [""]
    return [f"{name}, {output}" if output else name for name in names_of(machine) for output in outputs]


def _inclusions(machine: Any) -> Array:
    return np.column_stack(per_output(machine, machine.inclusion_))


def _by_chain(what: str, machine: Any) -> tuple[Array, str, list[str]]:
    """Inclusion probabilities or coefficients (chains, entries) of the chains of one model."""
    if fitted(machine, "inclusion_") is not None:
        each, told = np.stack(per_output(machine, machine.chain_inclusion_), axis=-1), _INCLUSION
    elif all(posterior.chain_shape is not None for posterior in per_output(machine, machine.posterior_)):
        each, told = coefficient_draws(what, machine).mean(axis=1), effect(machine)
    else:
        each, told = np.zeros((0, 1, 1)), ""
    if len(each) < 2:
        raise ValueError(f"{what} of one model needs chains; fit with inference='gibbs', or give two models.")
    return each.reshape(len(each), -1), told, _named(machine, each[0])
