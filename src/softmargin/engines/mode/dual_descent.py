"""The exact posterior mode of sparse rows under a normal prior: coordinate descent on the multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.mode._dual_descent_compiled import Rows, slopes, sweep, towards
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.engines.mode.duality_gap import certify
from softmargin.engines.mode.interior import exact_mode
from softmargin.engines.mode.newton import Newton
from softmargin.priors.penalty import Penalty

__all__ = ["Descent", "mode_engine"]

_ROUNDS = 100  # rounds of sweeps and joint moves at most
_FIRST, _SWEEPS = 30, 10  # sweeps of the first round and of others at most
_EASY, _MOST = 8, 200  # rounds after which each has ten sweeps more than the last, up to these, settled or not
_PATIENCE = 20  # rounds in which the gap must become half of what it was
_SETTLED = 0.002  # share of the multipliers inside their box that may still come or go in a sweep before all move
_CLEAR = 0.1  # what is left of the squared residual when it is clear that a multiplier would leave its box
_HALVES = 12  # how often a joint move is halved that does not pay
_SURE = 0.5  # share of the gap that a joint move leaves
_MARGIN = 1e-6  # distance from the margin within which a row of an earlier mode was on it
_SHORT = 1e-4  # rows on the margin that fall short of it by no more are close enough to be lifted
_SEED = 88172645463325252


@dataclass(frozen=True)
class Descent(Newton):
    """As ``Newton``, for designs that give their sparse entries, where no matrix of rows or columns can be held.

    The dual of ``2 c'max(1 - y f, 0) + tau |beta|^2 / 2`` is a quadratic in the multipliers g over the box [0, 2c].
    A sweep minimises it over one multiplier after the other, at the cost of the entries of the rows that move, and
    leaves out those that are settled at an end of their box (Hsieh et al., 2008, sections 3.1 and 3.2). What sweeps
    leave to the end, the multipliers inside the box, is then moved at once, by conjugate gradients on their equations.
    The free intercept is held near its last value by a quadratic that vanishes at the end (a proximal point), because a
    flat one would tie all multipliers together. The certificate is exact.
    """

    def at(self, model: Model, penalty: Penalty, near: Any = None) -> ActiveSet:
        rows = _rows_of(model, penalty)
        g, base = np.zeros(len(model.y)), 0.0
        if near is not None:  # the sides of the rows are known, the multipliers on the margin are not
            u = 1.0 - model.y * near.f
            alone = np.minimum(1.0 / rows.size, rows.top)  # what a row would have without the others
            g = np.where(u > _MARGIN, rows.top, np.where(u < -_MARGIN, 0.0, alone))
            base = float(near.beta[0]) if rows.rho else 0.0
        found = self._rounds(model, penalty, rows, g, base)
        if found.certificate.gap <= self.gap:
            return found
        # many rows in few directions: the interior point finds who is on the margin, the rounds their multipliers
        inner = exact_mode(model, penalty, self.gap)
        g = np.where(inner.margin, inner.g, np.where(inner.g > model.c, rows.top, 0.0))
        last = self._rounds(model, penalty, rows, g, float(inner.beta[0]) if rows.rho else 0.0)
        return min(found, inner, last, key=lambda point: point.certificate.gap)

    def _rounds(self, model: Model, penalty: Penalty, rows: Rows, g: Array, base: float) -> ActiveSet:
        """Sweeps and joint moves in turn; the first point with a small gap, or the best that they pass."""
        state, nearest = np.array([_SEED], dtype=np.uint64), (np.inf, g, base)
        halved = 0, np.inf  # the round at which the gap was last half of what it was
        for k in range(_ROUNDS):
            if k or not g.any():  # multipliers that are known move at once
                g, more = g.copy(), max(k - _EASY, 0)
                most = min(_SWEEPS * max(more, 1), _MOST) if k else _FIRST
                base = sweep(rows, g, base, most, -1.0 if more else _SETTLED, state)
            g, gap = self._moved(rows, g, base)
            if gap < nearest[0]:
                nearest = gap, g, base
            if gap < 0.5 * halved[1]:
                halved = k, gap
            elif k > halved[0] + _PATIENCE:
                break
            if gap <= self.gap:
                point = self._point(model, penalty, rows, g, base)
                if point.certificate.gap <= self.gap:
                    return point
        return self._point(model, penalty, rows, *nearest[1:])

    def _moved(self, rows: Rows, g: Array, base: float) -> tuple[Array, float]:
        """The multipliers inside the box, moved towards the solution of their equations; and the relative gap then.

        The change of the dual along the clipped path is a quadratic; a move that does not pay is halved.
        """
        slope, inside = slopes(rows, g, base), np.flatnonzero((g > 0.0) & (g < rows.top))
        d = np.zeros_like(g)
        d[inside] = towards(rows, inside, slope, g, _SURE * self.gap * _value(g, slope), _CLEAR)
        for _ in range(_HALVES if len(inside) else 0):
            ahead = np.clip(g + d, 0.0, rows.top)
            there = slopes(rows, ahead, base)
            if float((ahead - g) @ (slope + there)) < 0.0:
                return ahead, _gap(rows, ahead, there)
            d *= 0.5
        return g, _gap(rows, g, slope)

    def _point(self, model: Model, penalty: Penalty, rows: Rows, g: Array, base: float) -> ActiveSet:
        """Coefficients, predictors and certificate of the multipliers."""
        beta = model.blocks.rmatvec(model.y * g) / penalty.precision
        if rows.rho:
            beta[0] = rows.keep * base + rows.rho * float(rows.y @ g)
        f, margin = model.blocks.matvec(beta), (g > 0.0) & (g < rows.top)
        everything = np.ones(len(beta), dtype=bool)
        found = ActiveSet(beta, f, g, margin, everything, certify(model, beta, f, g, penalty))
        # where a tiny penalty is set against the rounding errors of many rows on the margin, they are lifted over it
        short = float((1.0 - model.y * f)[g < rows.top].max(initial=0.0))
        if found.certificate.gap <= self.gap or not 0.0 < short < _SHORT:
            return found
        beta, f = (1.0 + short) * beta, (1.0 + short) * f
        lifted = found._replace(beta=beta, f=f, certificate=certify(model, beta, f, g, penalty))
        return min(found, lifted, key=lambda point: point.certificate.gap)


def _value(g: Array, slope: Array) -> float:
    """The dual at multipliers with these slopes, where the intercept costs nothing."""
    return 0.5 * float(g @ (1.0 - slope))


def _gap(rows: Rows, g: Array, slope: Array) -> float:
    """The relative duality gap, ``sum max(u (2c - g), -u g)`` with ``u = 1 - y f``, as is or with rows lifted.

    It is that of the certificate but for the intercept, and comes with the slopes at no cost.
    """

    def of(u: Array) -> float:
        return float(np.maximum(u * (rows.top - g), -u * g).sum())

    gap, short = of(-slope), float((-slope)[g < rows.top].max(initial=0.0))
    if 0.0 < short < _SHORT:  # (1 + short) beta is off by a square more
        gap = min(gap, of(-slope - short * (1.0 + slope)) + 0.5 * short**2 * float(g @ (1.0 + slope)))
    return gap / max(_value(g, slope), 1e-300)


def mode_engine(model: Model) -> type[Newton]:
    """The engine that finds the mode of a model under a convex penalty."""
    return Descent if model.blocks.design.offers("entries") else Newton


def _rows_of(model: Model, penalty: Penalty) -> Rows:
    """The rows of a model in the metric of its penalty."""
    design: Any = model.blocks.design
    sd = float(penalty.precision[-1]) ** -0.5
    data, shift = design.entries(sd * model.y)
    size, along, square = sd * sd * design.norms(), np.zeros(len(model.y)), sd * sd * float(shift @ shift)
    if square > 0.0:
        beta = np.concatenate((np.zeros(int(design.intercept)), sd * sd * shift))
        along = model.y * (model.blocks.matvec(beta) + square)
    rho, keep = 0.0, 1.0
    if design.intercept:
        wide = max(float(np.median(size)), 4.0 / float(model.c.sum()))  # it must be able to cross the margin
        rho = 1.0 / (float(penalty.precision[0]) + 1.0 / wide)
        keep = rho / wide
    indices, indptr = (places.view(f"u{places.itemsize}") for places in (design.X.indices, design.X.indptr))
    top = model.loss.margin_slope * model.c
    return Rows(data, indices, indptr, model.y, along, square, top, size + rho, len(shift), rho, keep)
