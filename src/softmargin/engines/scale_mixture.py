"""The spread that a learned scale adds to the coefficients: a mixture of Gaussian fits over a grid of scales."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.engines.gaussian_vi import GaussianVI, VIState
from softmargin.engines.loop import run
from softmargin.engines.model import Model

__all__ = ["Mixture", "mix_over_scale"]

_NEGLIGIBLE = 4.5  # log weight below the largest at which the grid ends
_FAINT = 2.0  # log weight below the largest at which one step is enough
_REACH = 8  # grid points on either side at most


class Mixture(NamedTuple):
    """Moments of the coefficients and of the scale."""

    mean: Array
    root: Array
    scales: Array  # grid of scales
    weights: Array  # and their probabilities
    states: tuple[VIState, ...]  # the fits, one for each scale


def mix_over_scale(model: Model, fit: VIState, *, steps: int = 2) -> Mixture:
    """Refit at fixed scales around the learned one, weighted by their bound times the hyperprior.

    The grid is uniform in log precision with spacing ``max(0.5, sqrt(2/r))``, r the number of shrunk coefficients,
    and ends where the weights are negligible. Each fit starts from its neighbour and takes ``steps`` steps: two leave
    means within 0.02 and standard deviations within 2 % of what many steps give.
    """
    r = max(model.dimension - model.free_dimension, 1)
    spacing = 0.5 * max(0.5, math.sqrt(2.0 / r))  # in log scale
    centre = math.log(fit.prior.values["scale"])
    hyper = model.prior.stretch(model.prior.start())
    assert hyper is not None
    origin = math.log(model.prior.start().values["scale"])
    engine = GaussianVI()
    found: list[tuple[float, float, VIState]] = []

    def fit_at(position: float, neighbour: VIState, steps: int) -> tuple[float, float, VIState]:
        fixed = model.with_prior(model.prior.at_scale(math.exp(position)))
        state = engine.restart(fixed, neighbour)
        state = run(engine, fixed, max_iter=steps, state=state, inner=True).state
        return position, state.bound + hyper(position - origin), state

    found.append(fit_at(centre, fit, steps))
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
    states = [found[k][2] for k in kept]
    log_scales = np.array([found[k][0] for k in kept])
    mean = sum(p * state.q.mean for p, state in zip(weight, states, strict=True))
    parts = [
        np.sqrt(p) * np.column_stack((state.q.root, state.q.mean - mean))
        for p, state in zip(weight, states, strict=True)
    ]
    root = np.asarray(np.linalg.qr(np.concatenate(parts, axis=1).T, mode="r")).T
    return Mixture(np.asarray(mean), np.ascontiguousarray(root), np.exp(log_scales), weight, tuple(states))
