"""Horseshoe prior: ``beta_j ~ N(0, nu^2 lam_j^2)`` with half-Cauchy local scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import exp1, gammaln

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState, dimensions
from softmargin.priors.scales import FixedScale, HalfCauchy, HalfT, InverseGamma, ScalePrior, check_scale
from softmargin.rows.variates import reciprocal_horseshoe, slice_step

__all__ = ["Horseshoe"]

_LOG_2PI = math.log(2.0 * math.pi)
_SMALLEST = 1e-290


@dataclass(frozen=True)
class Horseshoe(Prior):
    """Horseshoe prior: heavy tails, an infinite spike at zero, one global scale.

    Its density has no mode other than zero, so it serves posteriors ("vb", "meanfield", "gibbs") and not "map".

    Parameters
    ----------
    scale : float or "learn"
        Global scale.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned global scale; None is half-Cauchy(1).
    intercept_scale : float
        Standard deviation of the intercept.
    """

    scale: float | str = "learn"
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4

    def __post_init__(self) -> None:
        check_scale("Horseshoe", self.scale, self.intercept_scale)

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundHorseshoe:
        """Attach the prior to coefficients.

        ``free`` marks the intercept, and with several ``classes`` the coefficients are that many blocks which sum to
        zero; the log density then lacks a constant that nothing learned depends on.
        """
        prior: Any = HalfCauchy(1.0) if self.hyperprior is None else self.hyperprior
        if not isinstance(self.scale, str):
            prior = FixedScale(float(self.scale))
        return BoundHorseshoe(free, self.intercept_scale**-2, prior, classes)


@dataclass(frozen=True, eq=False)
class BoundHorseshoe(PriorBase):
    """A horseshoe prior on given coefficients."""

    free: Flags
    flat: float
    scale_prior: ScalePrior
    classes: int = 1

    has_mode = False

    @cached_property
    def _shrunk(self) -> Any:
        return np.flatnonzero(~self.free)

    @cached_property
    def _lost(self) -> int:
        """How many more coefficients are shrunk than dimensions."""
        return len(self._shrunk) - dimensions(~self.free, self.classes)

    def _precision(self, shrunk: Array) -> Array:
        precision = np.full(len(self.free), self.flat)
        precision[self._shrunk] = np.minimum(shrunk, 1e16)
        return precision

    def start(self) -> PriorState:
        scale = self.scale_prior.first
        return PriorState(self._precision(np.full(len(self._shrunk), scale**-2)), {"scale": scale})

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        """Local and global scales averaged over their optimal independent densities.

        For a given E tau each local precision has the closed form of a half-Cauchy with one coefficient; the two
        are alternated, which raises the bound, until it stands still.
        """
        moment = mean * mean + var
        m, r = np.maximum(moment[self._shrunk], _SMALLEST), len(self._shrunk) - self._lost
        tau, bound = self.scale_prior.expect(float(m.sum()), r) if r else (1.0, 0.0)
        local = np.ones(len(m))
        for _ in range(200):
            local, log_local = _local(0.5 * tau * m)
            new, bound = self.scale_prior.expect(float(local @ m), r) if r else (1.0, 0.0)
            # each local part carries -E tau E x m/2, which the global part has already
            bound += float(log_local.sum() + 0.5 * tau * (local @ m))
            done = abs(new - tau) <= 1e-13 * tau
            tau = new
            if done:
                break
        n_free = dimensions(self.free, self.classes)
        bound += 0.5 * n_free * math.log(self.flat) - 0.5 * self.flat * float(moment[self.free].sum())
        message = self._precision(tau * local)
        return PriorMessage(message, bound - 0.5 * (r + n_free) * _LOG_2PI, {"scale": tau**-0.5})

    gaussian = expect  # given the local scales the log density is quadratic

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Global scale with the local ones integrated out, then the local ones: a block draw."""
        square = np.maximum(beta[self._shrunk] ** 2, _SMALLEST)
        scale = state.values["scale"]
        if self.scale_prior.learned:

            def log_posterior(l: float) -> float:
                if abs(l) >= 300.0:
                    return -math.inf
                return self.scale_prior.log_density(l) + _log_density(square, l) + self._lost * l

            width = 2.0 / math.sqrt(len(square) + 1.0)
            scale = math.exp(slice_step(rng, log_posterior, math.log(scale), width=width))
        local = reciprocal_horseshoe(rng, 0.5 * square / scale**2)
        return PriorState(self._precision(local / scale**2), {"scale": scale})

    def logpdf(self, state: PriorState, beta: Array) -> float:
        n_free = dimensions(self.free, self.classes)
        own = self._lost * math.log(state.values["scale"]) + self.along(state, beta)(0.0)
        return 0.5 * n_free * (math.log(self.flat) - _LOG_2PI) + own

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        square, l = np.maximum(beta[self._shrunk] ** 2, _SMALLEST), math.log(state.values["scale"])
        half, r = 0.5 * self.flat * float((beta[self.free] ** 2).sum()), len(self._shrunk)
        # scaling the coefficients by e^t is scaling nu by e^-t, up to r t
        return lambda t: _log_density(square, l - t) - r * t - half * math.exp(2.0 * t)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        if not self.scale_prior.learned or not len(self._shrunk):
            return None
        here = math.log(state.values["scale"])
        return lambda t: self.scale_prior.log_density(here + t)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        precision = np.where(self.free, state.precision, state.precision * math.exp(-2.0 * t))
        return PriorState(precision, {"scale": state.values["scale"] * math.exp(t)})

    def at_scale(self, scale: float) -> BoundHorseshoe:
        return replace(self, scale_prior=FixedScale(scale))


def _log_density(square: Array, log_scale: float) -> float:
    """Sum of log horseshoe densities: ``(2 pi^3)^(-1/2) / nu e^z E_1(z)`` with ``z = beta^2/(2 nu^2)``."""
    z = 0.5 * square * math.exp(-2.0 * log_scale)
    large = z > 50.0
    inner = np.log(exp1(np.where(large, 1.0, z))) + np.where(large, 1.0, z)
    # e^z E_1(z) = 1/(z + 1/(1 + 1/(z + 2/(1 + 2/z)))) to rounding for large z
    zl = np.where(large, z, 60.0)
    fraction = 1.0 / (zl + 1.0 / (1.0 + 1.0 / (zl + 2.0 / (1.0 + 2.0 / (zl + 3.0 / (1.0 + 3.0 / zl))))))
    total = np.where(large, np.log(fraction), inner).sum()
    return float(total) - len(square) * (log_scale + 0.5 * math.log(2.0 * math.pi**3))


def _local(e: Array) -> tuple[Array, Array]:
    """Half-Cauchy(1) local precision of one coefficient with energy ``e``: E x, and its bound with -e E x inside."""
    b = e  # 1 + e - shape with shape 1
    root = np.sqrt(b * b + 4.0 * e)
    x = 2.0 / (b + root)
    inverse_t = 1.0 / (x + 1.0)
    bound = -math.log(math.pi) - np.log(inverse_t + e) + float(gammaln(1.0)) - np.log(x + 1.0) + x * inverse_t
    return x, bound
