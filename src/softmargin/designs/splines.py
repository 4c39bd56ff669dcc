"""Smooth functions of one column as a random effect: O'Sullivan splines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import BSpline

from softmargin.core.array import Array

__all__ = ["FEWEST", "Spline", "middle_share"]

FEWEST = 4  # distinct values that a curve needs
_LEAST = 1e-13  # of the roughness of the roughest direction: below it, bent directions and straight lines look alike


def middle_share(x: Array) -> float:
    """The share of the range that the middle half of the distinct values takes."""
    distinct = np.unique(x)
    low, high = np.quantile(distinct, (0.25, 0.75))
    return float((high - low) / (distinct[-1] - distinct[0]))


@dataclass(frozen=True, eq=False)
class Spline:
    """Columns ``z(x)`` of a smooth ``b x + z(x)'u`` with ``u ~ N(0, sd^2 I)``; x itself is a column of its own.

    Cubic B-splines between the smallest and the largest x, turned so that ``|u|^2`` is proportional to the integral of
    the squared second derivative. The columns have mean zero over the rows given and their rows mean square length
    one, so sd is the size of what is not linear, in the units of the predictor. Beyond the end points the columns go
    on as straight lines. Reference: Wand and Ormerod (2008), On semiparametric regression with O'Sullivan penalized
    splines, section 4.
    """

    knots: Array  # with the end points four times each
    turn: Array  # from B-splines to columns
    centre: Array

    @classmethod
    def of(cls, x: Any, inner_knots: int = 20) -> Spline:
        """The basis with its inner knots at quantiles of the distinct values of x."""
        x = np.asarray(x, dtype=float)
        distinct = np.unique(x)
        if not np.isfinite(distinct).all() or len(distinct) < FEWEST:
            raise ValueError(f"a smooth term needs at least {FEWEST} distinct finite values; got {len(distinct)}.")
        count = min(inner_knots, len(distinct) - 2)
        inner = np.quantile(distinct, np.arange(1, count + 1) / (count + 1.0))
        knots = np.concatenate((np.repeat(distinct[0], 4), inner, np.repeat(distinct[-1], 4)))
        values, directions = np.linalg.eigh(_roughness(knots))
        if not values[2] > _LEAST * values[-1]:
            raise ValueError(
                f"a smooth term needs values that are spread more evenly: half of them take {middle_share(x):.1g} of "
                "their range; use their logarithm, or their ranks."
            )
        turn = directions[:, 2:] / np.sqrt(values[2:])  # constants and straight lines are not rough
        raw = cls(knots, turn, np.zeros(turn.shape[1])).columns(x)
        centre = raw.mean(axis=0)
        size = np.sqrt(((raw - centre) ** 2).sum(axis=1).mean())
        return cls(knots, turn / size, centre / size)

    def columns(self, x: Any) -> Array:
        """The rows ``z(x)``."""
        x = np.asarray(x, dtype=float)
        basis = BSpline(self.knots, np.asfortranarray(self.turn), 3)
        inside = np.clip(x, self.knots[0], self.knots[-1])
        columns: Array = basis(inside) + basis.derivative()(inside) * (x - inside)[:, None]
        return columns - self.centre


def _roughness(knots: Array) -> Array:
    """Integrals of products of second derivatives of the B-splines: Simpson's rule on each interval is exact."""
    ends = np.unique(knots)
    second = BSpline(knots, np.eye(len(knots) - 4), 3).derivative(2)
    middle, length = 0.5 * (ends[:-1] + ends[1:]), np.diff(ends)
    # a jump of the third derivative at a knot does not matter: the second is continuous
    left, centre, right = second(ends[:-1]), second(middle), second(ends[1:])
    parts = [(left, length / 6.0), (centre, 4.0 * length / 6.0), (right, length / 6.0)]
    return np.asarray(sum((B * weight[:, None]).T @ B for B, weight in parts))
