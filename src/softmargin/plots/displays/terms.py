"""Effects of groups and smooth terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from softmargin.plots.displays.base import Display
from softmargin.plots.numbers.terms import GroupEffects, SmoothEffect, group_effects, smooth_effects
from softmargin.plots.style import BLUE, INK, RED, finish, plain

__all__ = ["RandomEffectsDisplay", "SmoothDisplay"]

_NAMED = 60  # groups that have their name written


@dataclass(eq=False)
class RandomEffectsDisplay(Display):
    """Effects of groups in the order of their means, with intervals: a caterpillar.

    Attributes
    ----------
    effects : list of GroupEffects
        One per factor, effect, and pair or class of more than two: ``title``, ``groups``, ``mean``, ``lower``,
        ``upper``.
    ax_ : array of axes
    figure_
        Where it was drawn.
    """

    effects: list[GroupEffects]
    top: int = 1000

    @classmethod
    def from_estimator(cls, model: Any, *, top: int = 1000, ax: Any = None) -> Self:
        """Draw the effects of groups of a fitted model, one panel each.

        Parameters
        ----------
        model : BayesianSVC, BayesianSVR or Formula
            A model fitted with ``random_effects`` or ``groups``.
        top : int
            How many groups to draw; where there are more, those at both ends.
        ax : matplotlib axes or sequence of them, optional
            One per panel; new ones by default.
        """
        return cls(group_effects(cls.__name__, model), top).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        most = max(min(len(panel.groups), self.top) for panel in self.effects)
        tall = min(0.9 + (0.2 if most <= _NAMED else 0.03) * most, 9.0)
        axes = self._panels(ax, len(self.effects), (4.4, tall), across=3)
        for each, panel in zip(axes, self.effects, strict=True):
            at = panel.ends(self.top)
            place, mean = np.arange(len(at)), panel.mean[at]
            colour = np.where(mean > 0, RED, BLUE)
            if panel.lower is not None and panel.upper is not None:
                each.hlines(place, panel.lower[at], panel.upper[at], colors=colour, lw=1.4, alpha=0.5, zorder=2)
            each.scatter(mean, place, s=12, c=colour, zorder=3)
            each.axvline(0.0, color=INK, lw=0.8, zorder=1)
            each.set_yticks(
                place if len(at) <= _NAMED else [], [plain(panel.groups[i]) for i in at] if len(at) <= _NAMED else []
            )
            each.set_ylim(-0.7, len(at) - 0.3)
            finish(each, "effect on f", "" if len(at) <= _NAMED else f"{len(at)} groups")
            each.set_title(plain(panel.title), fontsize=9.5, loc="left", color=INK)
            each.grid(visible=False, axis="y")
        return self


@dataclass(eq=False)
class SmoothDisplay(Display):
    """Smooth terms with their bands.

    Attributes
    ----------
    terms : list of SmoothEffect
        One per term, and pair or class of more than two: ``title``, ``column``, ``x``, ``mean``, ``lower``, ``upper``.
    ax_ : array of axes
    figure_
        Where it was drawn.
    """

    terms: list[SmoothEffect]

    @classmethod
    def from_estimator(cls, model: Any, *, level: float = 0.95, ax: Any = None) -> Self:
        """Draw the smooth terms of a fitted model, one panel each.

        Parameters
        ----------
        model : BayesianSVC, BayesianSVR or Formula
            A model fitted with ``Smooth("column")``, or ``s(column)`` in a formula.
        level : float
            Probability of the bands.
        ax : matplotlib axes or sequence of them, optional
            One per panel; new ones by default.
        """
        return cls(smooth_effects(cls.__name__, model, level)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        axes = self._panels(ax, len(self.terms), (4.4, 3.0), across=3)
        for each, term in zip(axes, self.terms, strict=True):
            if term.lower is not None and term.upper is not None:
                each.fill_between(term.x, term.lower, term.upper, color=BLUE, alpha=0.18, lw=0, zorder=1)
            each.plot(term.x, term.mean, color=BLUE, lw=1.8, zorder=3)
            each.axhline(0.0, color=INK, lw=0.8, zorder=2)
            finish(each, term.column, "change of f")
            each.set_title(plain(term.title), fontsize=9.5, loc="left", color=INK)
        return self
