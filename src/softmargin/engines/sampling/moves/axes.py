"""Slice updates of the coefficients along fixed axes, the row latents integrated out.

Along an axis the posterior of a loss of two straight lines is concave and cheap: one pass over the rows per value. In
the axes of the variational fit the posterior is close to a standard normal, so that one update along each of them
forgets most of where a chain was. Any axes would do: they are chosen before the first sweep and then never change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.core.move import Move, MoveBase
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.hmc.rows import two_lines
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.rows.compiled import njit
from softmargin.rows.in_memory import at_home
from softmargin.rows.variates import Uniforms, uniform

__all__ = ["Axes", "AxisMoves", "axes_for"]

_WIDTH = 2.5  # first interval of a slice, in sds of the fit
_BUDGET = 20  # intervals that a slice may step out
_FAST = {"reassoc", "contract", "nsz"}  # sums may be reordered, which lets them vectorise; NaN and inf keep their sense


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def _beyond(past: Any, m: Any, fall: Any, t: float) -> float:
    """``sum fall max(past + t m, 0)``."""
    total = 0.0
    for i in range(len(past)):
        x = past[i] + t * m[i]
        total += fall[i] * (x if x > 0.0 else 0.0)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _height(
    t: float, beta: Any, axis: Any, past: Any, m: Any, fall: Any, slope: float, quadratic: Any, linear: Any
) -> float:
    """Log posterior at ``beta + t axis``, up to a constant."""
    total = slope * t - _beyond(past, m, fall, t)
    for j in range(len(beta)):
        b = beta[j] + t * axis[j]
        total -= 0.5 * quadratic[j] * b * b + linear[j] * abs(b)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def scan(
    numbers: Any, beta: Any, past: Any, axes: Any, products: Any, fall: Any, slopes: Any, quadratic: Any, linear: Any
) -> None:
    """One slice update along every axis in turn; ``past`` are the predictors beyond their kinks. Both change in place.

    Stepping out and shrinkage as in ``slice_step``. Reference: Neal (2003), Slice sampling, sections 4.1-4.2.
    """
    here = _height(0.0, beta, axes[0], past, products[0], fall, slopes[0], quadratic, linear)
    for a in range(len(axes)):
        axis, m, slope = axes[a], products[a], slopes[a]
        level = here + np.log(1.0 - uniform(numbers))
        left = -_WIDTH * uniform(numbers)
        right = left + _WIDTH
        steps_left = int(_BUDGET * uniform(numbers))
        steps_right = _BUDGET - 1 - steps_left
        while steps_left > 0 and _height(left, beta, axis, past, m, fall, slope, quadratic, linear) > level:
            left -= _WIDTH
            steps_left -= 1
        while steps_right > 0 and _height(right, beta, axis, past, m, fall, slope, quadratic, linear) > level:
            right += _WIDTH
            steps_right -= 1
        while True:
            t = left + (right - left) * uniform(numbers)
            there = _height(t, beta, axis, past, m, fall, slope, quadratic, linear)
            if there > level:
                break
            if right - left < 1e-14:
                t, there = 0.0, here
                break
            if t < 0.0:
                left = t
            else:
                right = t
        here = there - slope * t  # heights on the next axis are counted from here
        for j in range(len(beta)):
            beta[j] += t * axis[j]
        for i in range(len(past)):
            past[i] += t * m[i]


def _equal(x: Array, y: Array) -> bool:
    """Whether two vectors are the same: in a third of the time of ``numpy.array_equal``."""
    return len(x) == len(y) and bool((x == y).all())


class Axes(NamedTuple):
    """Axes, what a unit along each does to the predictors, and the two lines of every row as they were."""

    model: Model
    axes: Array  # (axis, coefficient)
    products: Array  # (axis, row)
    y: Array
    kink: Array
    fall: Array
    slopes: Array

    def serve(self, model: Model) -> bool:
        """Whether they were made for these rows: labels, weights and cells may have changed since.

        The last axis has a part of every coefficient, so cells that changed show in its product.
        """
        mine = self.model
        if model.loss is not mine.loss or not _equal(model.y, self.y):
            return False
        if model.c is not mine.c and not _equal(model.c, mine.c):
            return False
        same = model.blocks is mine.blocks or model.blocks.design is mine.blocks.design
        return same or np.array_equal(model.blocks.matvec(self.axes[-1]), self.products[-1])

    def move(
        self, model: Model, rng: np.random.Generator, beta: Array, f: Array, prior: PriorState
    ) -> tuple[Array, Array]:
        """Coefficients and predictors after one update along each axis."""
        penalty: Any = model.prior.penalty(prior.values["scale"])
        centre = model.prior.centre
        beta, past = beta.copy() if centre is None else beta - centre, f - self.kink
        scan(Uniforms.of(rng), beta, past, self.axes, self.products, self.fall, self.slopes, *penalty)
        past += self.kink
        return beta if centre is None else beta + centre, past


def axes_for(model: Model) -> Axes | None:
    """The axes of the variational fit; None where rows or prior are of another form, or rows are too many."""
    home = at_home(model.blocks)
    if home is None:
        return None
    parts = model.prior.penalty(1.0) if set(model.prior.start().values) == {"scale"} else None
    n, p = model.blocks.shape
    if parts is None or len(parts) != 2 or p > n or model.dimension < model.size:
        return None
    if home.design.offers("excess") or not model.loss.offers("score"):
        return None  # cells that change from sweep to sweep, or a loss of another kind
    lines = two_lines(model)
    if lines is None:
        return None
    root = run(GaussianVI(), model, max_iter=100, tol=1e-4, inner=True).state.q.root
    if not isinstance(root, np.ndarray):
        return None
    axes = np.ascontiguousarray(root.T)
    products = np.stack([home.matvec(axis) for axis in axes])
    return Axes(model, axes, products, model.y.copy(), lines.kink, -lines.jump, products @ lines.left)


@dataclass(frozen=True)
class AxisMoves(MoveBase):
    """One slice update along each axis of the variational fit; where axes cannot be had, another move in its place.

    Invariance: every update is a slice update of the exact posterior on a line whose direction does not depend on where
    the chain stands, row latents and local variables integrated out.

    Parameters
    ----------
    otherwise : Move
        The move where there are no axes, or where the rows have changed since.
    """

    otherwise: Move = field(default_factory=ScaleMove)

    reads = frozenset({"beta", "f", "scale"})
    stale = frozenset({"local", "loglik"})
    needs_loss = ("loglik",)
    needs_prior = ("along", "logpdf")

    def prepare(self, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """The chains with the axes, which all of them share."""
        axes = axes_for(model)
        return chains if axes is None else tuple(chain.keeping(axes=axes) for chain in chains)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain after one update along each axis."""
        axes: Axes | None = chain.own.get("axes")
        if axes is None or not axes.serve(model):
            moved: Chain = self.otherwise(random, model, chain)
            return moved
        beta, f = axes.move(model, random.rng, chain.beta, chain.f, chain.prior)
        return chain._replace(beta=beta, rows=model.placed(f), mean=beta)
