"""The spread that a learned covariance of group effects adds: fits at fixed covariances around the best one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.engines.vi.scale_mixture import Mixture, mixed

__all__ = ["CovarianceMixture", "mix_over_covariance"]

_STEP = 0.25  # of the differences, in logarithms
_LONGEST = 1.0  # step towards the best covariance
_WIDEST = 1.0  # standard deviation in any direction: beyond, the quadratic says nothing


class CovarianceMixture(NamedTuple):
    """Draws (n, s, s) of the covariance, and the fits at points that stand for them."""

    draws: Array
    mixture: Mixture


def _to_logs(S: Array) -> Array:
    """Cholesky factor as one row: logarithms of the diagonal, then what is below it, row by row in their units."""
    L = np.linalg.cholesky(S)
    size = L.diagonal()
    below = np.tril_indices(len(L), -1)
    return np.concatenate((np.log(size), L[below] / size[below[0]]))


def _from_logs(x: Array, s: int) -> Array:
    """The inverse of ``_to_logs``."""
    size, below = np.exp(x[:s]), np.tril_indices(s, -1)
    L = np.diag(size)
    L[below] = x[s:] * size[below[0]]
    return np.asarray(L @ L.T)


def _log_volume(x: Array, s: int) -> float:
    """Logarithm of the change of volume from ``_to_logs`` to the entries of the covariance, up to a constant.

    From L to S it is ``2^s prod L_kk^(s - k)`` with k from 0; from logarithms to L every entry of row k gives ``L_kk``.
    """
    return float(sum((s - k + 1 + k) * x[k] for k in range(s)))


def mix_over_covariance(model: Model, fit: VIState, part: Any, rng: np.random.Generator, n: int) -> CovarianceMixture:
    """A normal density of the covariance's logarithms from second differences of the bound times its prior.

    ``part`` is the part of the prior whose covariance it is. The fits behind the mixture stand at the points
    ``centre +- sqrt(d) column`` of a root of the density, which have its mean and covariance.
    """
    prior: Any = model.prior
    s = len(part.labels)
    engine = GaussianVI()

    def at(x: Array) -> tuple[float, VIState]:
        S = _from_logs(x, s)
        fixed = prior.with_part(part, replace(part, prior=part.prior.at_covariance(S)))
        bound = model.with_prior(fixed)
        state = run(engine, bound, max_iter=3, state=engine.restart(bound, fit), inner=True).state
        return state.bound + part.prior.hyperprior.log_density(S) + _log_volume(x, s), state

    x = _to_logs(np.linalg.inv(part.prior.precision_matrix(part.taken(fit.prior.precision))))
    for _ in range(3):
        gradient, hessian = _differences(lambda point: at(point)[0], x)
        values, vectors = np.linalg.eigh(-hessian)
        values = np.maximum(values, _WIDEST**-2)
        step = vectors @ ((vectors.T @ gradient) / values)
        x = x + step * min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 0.1:
            break
    root = vectors / np.sqrt(values)
    d = len(x)
    states = [at(x + sign * math.sqrt(d) * column)[1] for column in root.T for sign in (-1.0, 1.0)]
    weights = np.full(2 * d, 0.5 / d)
    draws = np.array([_from_logs(x + root @ rng.standard_normal(d), s) for _ in range(n)])
    return CovarianceMixture(draws, mixed(weights, states, np.ones(2 * d)))


def _differences(target: Callable[[Array], float], x: Array) -> tuple[Array, Array]:
    """Gradient and Hessian by central differences."""
    d, e = len(x), _STEP * np.eye(len(x))
    centre = target(x)
    up, down = (np.array([target(x + sign * e[k]) for k in range(d)]) for sign in (1.0, -1.0))
    hessian = np.diag((up + down - 2.0 * centre) / _STEP**2)
    for a in range(d):
        for b in range(a):
            both = target(x + e[a] + e[b])
            hessian[a, b] = hessian[b, a] = (both - up[a] - up[b] + centre) / _STEP**2
    return (up - down) / (2.0 * _STEP), hessian
