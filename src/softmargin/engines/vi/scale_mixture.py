"""The spread that a learned scale adds to the coefficients: a mixture of Gaussian fits over a grid of scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.core.space import Root, row_quad
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.solvers.low_rank import noise, quadratic, squares

__all__ = ["MixedRoot", "Mixture", "mix_over_scale", "mixed"]

_NEGLIGIBLE = 4.5  # log weight below the largest at which the grid ends
_FAINT = 2.0  # log weight below the largest at which one step is enough
_REACH = 8  # grid points on either side at most


class Mixture(NamedTuple):
    """Moments of the coefficients and of the scale."""

    mean: Array
    root: Any  # as a Gaussian's
    scales: Array  # grid of scales
    weights: Array  # and their probabilities
    states: tuple[VIState, ...]  # the fits, one for each scale


@dataclass(frozen=True, eq=False)
class MixedRoot(Root):
    """The covariance of a mixture of Gaussians whose own roots are not plain arrays."""

    weights: Array
    roots: tuple[Any, ...]
    shifts: tuple[Array, ...]  # means less the mixture's mean

    @property
    def shape(self) -> tuple[int, int]:
        size = len(self.shifts[0])
        return size, size

    def _mixed(self, within: Callable[[Any], Any], between: Callable[[Array], Any]) -> Any:
        """Average over the fits of what each has of its own and what its mean adds."""
        parts = zip(self.weights, self.roots, self.shifts, strict=True)
        return sum(p * (within(root) + between(shift) ** 2) for p, root, shift in parts)

    def row_quad(self, design: Any, lo: int = 0, hi: int | None = None) -> Array:
        """Variances of the linear predictors of the rows lo..hi of a design."""
        own: Callable[[Any], Any] = lambda root: row_quad(design, root, lo, hi)  # noqa: E731
        return np.asarray(self._mixed(own, lambda shift: design.matvec(shift, lo, hi)))

    def squares(self) -> Array:
        """Marginal variances."""
        return np.asarray(self._mixed(squares, lambda shift: shift))

    def quadratic(self, x: Array) -> float:
        """``x' C x`` of the covariance C."""
        return float(self._mixed(lambda root: quadratic(root, x), lambda shift: float(shift @ x)))

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, p) from the mixture, less its mean."""
        counts = rng.multinomial(n, self.weights)
        parts = zip(counts, self.roots, self.shifts, strict=True)
        drawn = np.concatenate([shift + noise(root, rng, int(k)) for k, root, shift in parts if k])
        return np.asarray(rng.permutation(drawn))


def mix_over_scale(model: Model, fit: VIState, *, label: str = "scale", steps: int = 2) -> Mixture:
    """Refit at fixed scales around the learned one, weighted by their bound times the hyperprior.

    The grid is uniform in log precision with spacing ``max(0.5, sqrt(2/r))``, r the number of shrunk coefficients,
    and ends where the weights are negligible. Each fit starts from its neighbour and takes ``steps`` steps: two leave
    means within 0.02 and standard deviations within 2 % of what many steps give. Where a prior has parts, ``label``
    names the one whose scale it is; the other parts go on learning theirs, and the grid is as fine as r asks for.
    """
    prior: Any = model.prior
    start = prior.start()
    part = next((part for part in prior.parts if label in (*part.labels, "scale")), None)
    if part is None:
        r = max(model.dimension - model.free_dimension, 1)
        spacing, hyper = 0.5 * max(0.5, math.sqrt(2.0 / r)), prior.stretch(start)  # in log scale
    else:
        r = max(model.space.dimension(int((~model.free[part.where]).sum())), 1)
        spacing, hyper = 0.75 * math.sqrt(2.0 / r), part.stretch(start)
    if hyper is None or (part is not None and len(part.labels) > 1):  # several numbers, a covariance
        raise ValueError(f"{label!r} is not a learned scale of its own; mix over one that is.")
    centre, origin = math.log(fit.prior.values[label]), math.log(start.values[label])
    engine = GaussianVI()
    found: list[tuple[float, float, VIState]] = []

    def fit_at(position: float, neighbour: VIState, steps: int) -> tuple[float, float, VIState]:
        scale = math.exp(position)
        fixed = model.with_prior(prior.at_scale(scale) if part is None else prior.with_part_at(part, scale))
        state = engine.restart(fixed, neighbour)
        state = run(engine, fixed, max_iter=steps, state=state, inner=True).state
        return position, state.bound + hyper(position - origin), state

    found.append(fit_at(centre, fit, 1))  # it is there already
    for side in (-1.0, 1.0):
        neighbour = found[0][2]
        for k in range(1, _REACH + 1):
            faint = found[-1][1] < max(entry[1] for entry in found) - _FAINT
            found.append(fit_at(centre + side * k * spacing, neighbour, 1 if faint and k > 1 else steps))
            neighbour = found[-1][2]
            if found[-1][1] < max(entry[1] for entry in found) - _NEGLIGIBLE:
                break
    log_weight = np.array([entry[1] for entry in found])
    kept = np.flatnonzero(log_weight > log_weight.max() - _NEGLIGIBLE)
    weight = np.exp(log_weight[kept] - log_weight.max())
    weight /= weight.sum()
    return mixed(weight, [found[k][2] for k in kept], np.exp(np.array([found[k][0] for k in kept])))


def mixed(weight: Array, states: list[VIState], scales: Array) -> Mixture:
    """The mixture of fits with given weights."""
    mean = sum(p * state.q.mean for p, state in zip(weight, states, strict=True))
    return Mixture(np.asarray(mean), _root(weight, states, mean), scales, weight, tuple(states))


def _root(weight: Array, states: list[VIState], mean: Any) -> Any:
    """A root of the covariance within and between the fits."""
    if not isinstance(states[0].q.root, np.ndarray):
        return MixedRoot(weight, tuple(s.q.root for s in states), tuple(s.q.mean - mean for s in states))
    parts = [
        np.sqrt(p) * np.column_stack((state.q.root, state.q.mean - mean))
        for p, state in zip(weight, states, strict=True)
    ]
    return np.ascontiguousarray(np.asarray(np.linalg.qr(np.concatenate(parts, axis=1).T, mode="r")).T)
