"""The part of the prior that all chains share: given its scale, or with a learned scale integrated out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.special import ndtr

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.prior import PriorState

__all__ = ["SharedPrior", "integrable", "shared_prior"]

_BELOW, _ABOVE = 16.0, 32.0  # reach of the table around the fitted log energy; beyond it the prior is cut off
_DEGREE = 240
_STEP = 0.02
_NUDGE = 1e-3


class SharedPrior(NamedTuple):
    """Log prior ``evidence(e)`` in the energy ``e = sum quadratic delta^2/2 + linear |delta|``, delta = beta - centre.

    A scale nu multiplies the energy by ``rho = nu^-power``; fixed, the evidence is ``-rho e``. Integrated out, it is a
    table over log e with its slopes. ``size`` counts dimensions over the power: the density has a factor rho^size.
    """

    quadratic: Array
    linear: Array
    table: Array  # (node, 2), or one node with the fixed rho
    grid: Array  # first log energy and the distance of nodes
    centre: Array
    size: float = 0.0
    power: float = 2.0

    @property
    def form(self) -> tuple[Array, Array, Array, Array, Array]:
        """What the kernels take."""
        return self.quadratic, self.linear, self.table, self.grid, self.centre

    def _energy(self, beta: Array) -> float:
        delta = beta - self.centre
        return float(0.5 * (self.quadratic @ (delta * delta)) + self.linear @ np.abs(delta))

    def widened(self, root: Array, mean: Array, var: Array) -> Array:
        """A root of the covariance with the length of the coefficients freer, as the spread of the scale lets it be.

        Integrating rho out takes ``Var(rho) v v'`` off the precision, v the gradient of the energy; at most so much
        that the variance along v grows fourfold.
        """
        if len(self.table) == 1:
            return root
        mean = mean - self.centre
        moment = mean * mean + var
        x = math.log(float(0.5 * (self.quadratic @ moment) + self.linear @ np.sqrt(moment)))
        i = int((x - self.grid[0]) / self.grid[1])
        slope, bend = self.table[i, 1], (self.table[i + 1, 1] - self.table[i - 1, 1]) / (2.0 * self.grid[1])
        v = self.quadratic * mean + self.linear * (2.0 * ndtr(mean / np.sqrt(var)) - 1.0)
        u = v @ root
        size = float(u @ u)
        loss = min((bend - slope) * math.exp(-2.0 * x) * size, 0.75)
        grow = ((1.0 - max(loss, 0.0)) ** -0.5 - 1.0) / max(size, 1e-300)
        widened: Array = root + grow * np.outer(root @ u, u)
        return widened

    def draw_scale(self, rng: np.random.Generator, hyperprior: Any, beta: Array) -> float:
        """An exact draw of the scale given the coefficients.

        Without its hyperprior rho is a gamma variable. The log density h of l = log nu is concave, so its tangent at a
        point is above it: the tangent changes the shape of the gamma variable, the rest is rejection. Where the
        hyperprior says more than the coefficients do, that would be refused too often.
        """
        e, m, kappa = self._energy(beta), self.size, self.power

        def h(l: float) -> float:
            return float(hyperprior.log_density_power(l, kappa))

        l0 = math.log(e / m) / kappa
        top, left, right = h(l0), h(l0 - _NUDGE), h(l0 + _NUDGE)
        slope, bend = (right - left) / (2.0 * _NUDGE), (right - 2.0 * top + left) / _NUDGE**2
        shape = m - slope / kappa
        if shape < 0.5 * m or -bend > 0.5 * kappa * kappa * m:
            evidence = float(hyperprior.expect_power(e, m, kappa)[1])
            return math.exp(_log_concave(rng, lambda l: h(l) - kappa * m * l - e * math.exp(-kappa * l) - evidence, l0))
        while True:
            l = -math.log(max(rng.standard_gamma(shape) / e, 1e-300)) / kappa
            if math.log(1.0 - rng.random()) <= h(l) - top - slope * (l - l0):
                return math.exp(l)


def _log_concave(rng: np.random.Generator, log_density: Callable[[float], float], start: float) -> float:
    """A draw from a normalised log-concave density, by rejection from a flat top with exponential tails.

    With M its largest value, ``M min(1, exp(1 - M |x - mode|))`` is above the density everywhere.
    Reference: Devroye (1986), Non-uniform random variate generation, section VII.2.
    """
    mode = _mode(log_density, start)
    top = log_density(mode)
    while True:
        x, log_height = rng.random(), 0.0
        if rng.random() < 0.5:
            log_height = -rng.standard_exponential()
            x = 1.0 - log_height
        point = mode + (x if rng.random() < 0.5 else -x) * math.exp(-top)
        if math.log(1.0 - rng.random()) + log_height + top <= log_density(point):
            return point


def _mode(log_density: Callable[[float], float], x: float) -> float:
    """Where a concave function is largest, by Newton steps on differences, none longer than one."""
    for _ in range(100):
        left, here, right = log_density(x - _NUDGE), log_density(x), log_density(x + _NUDGE)
        bend = min((right - 2.0 * here + left) / _NUDGE**2, -1e-6)
        move = min(max((left - right) / (2.0 * _NUDGE * bend), -1.0), 1.0)
        x += move
        if abs(move) < 1e-7:
            break
    return x


def integrable(model: Model) -> bool:
    """Whether the log prior is one of the forms whose scale can be integrated out."""
    parts = model.prior.penalty(1.0) if set(model.prior.start().values) == {"scale"} else None
    return parts is not None and len(parts) <= 2


def shared_prior(model: Model, prior: PriorState, mean: Array, var: Array) -> tuple[SharedPrior, Array] | None:
    """The shared part and the precision of what has no scale, or None where the prior is not of this form."""
    if not integrable(model):
        return None
    parts: Any = model.prior.penalty(1.0)
    precision, linear = parts
    quadratic = np.where(model.free, 0.0, precision)
    flat = np.where(model.free, precision, 0.0)
    power = 2.0 if quadratic.any() else 1.0
    centre = np.zeros(model.size) if model.prior.centre is None else model.prior.centre
    if model.prior.stretch(prior) is None:
        table, grid = np.array([[prior.values["scale"] ** -power, 0.0]]), np.zeros(2)
        return SharedPrior(quadratic, linear, table, grid, centre, power=power), flat
    size = (model.dimension - model.free_dimension) / power
    moment = (mean - centre) ** 2 + var
    e = max(float(0.5 * (quadratic @ moment) + linear @ np.sqrt(moment)), 1e-100)
    hyperprior: Any = model.prior.scale_prior  # type: ignore[attr-defined]
    low, high = math.log(e) - _BELOW, math.log(e) + _ABOVE

    def evidence(x: Array) -> Array:
        return np.array([hyperprior.expect_power(math.exp(value), size, power)[1] for value in x])

    smooth = Chebyshev.interpolate(evidence, _DEGREE, domain=[low, high])
    nodes = np.arange(low, high, _STEP)
    table = np.column_stack((smooth(nodes), smooth.deriv()(nodes)))
    return SharedPrior(quadratic, linear, table, np.array([low, _STEP]), centre, size, power), flat
