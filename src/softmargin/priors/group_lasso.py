"""Group lasso: density proportional to ``exp(-|beta_j|/nu)``, the length of a variable's coefficients over classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState, dimensions
from softmargin.priors.bridge import BoundBridge, Lasso
from softmargin.priors.scales import FixedScale, HalfT, InverseGamma, ScalePrior, check_scale
from softmargin.refusals import refused
from softmargin.rows.variates import tilted_stable

__all__ = ["BoundGroupLasso", "GroupLasso"]

_LOG_2PI = math.log(2.0 * math.pi)
_SMALLEST = 1e-150  # a length below this has no reciprocal worth taking
_LARGEST = 1e16  # cap on a local precision


@dataclass(frozen=True)
class GroupLasso(Prior):
    """Laplace prior on the length of each variable's coefficients over the classes: a variable is in or out for all.

    With m = k - 1 dimensions a variable, ``beta_j | omega_j ~ N(0, scale^2 omega_j)`` on the space of coefficients that
    sum to zero, ``omega_j ~ Gamma((m + 1)/2, 1/2)``. With one block of coefficients it is the lasso.

    Parameters
    ----------
    scale : float or "learn"
        Scale of the lengths.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned scale; None is half-t with 10 degrees of freedom, for the joint mode with the
        scale Gamma(2, 1) on ``1/scale``.
        ``InverseGamma(a, b)`` puts Gamma(a, rate b) on ``1/scale``.
    intercept_scale : float
        Standard deviation of the intercepts.

    Examples
    --------
    >>> from softmargin.priors.group_lasso import GroupLasso
    >>> GroupLasso(scale=0.5).scale
    0.5
    """

    scale: float | str = "learn"
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4

    selects = True  # modes have exact zeros

    def __post_init__(self) -> None:
        check_scale("GroupLasso", self.scale, self.intercept_scale)

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundGroupLasso | BoundBridge:
        """Attach the prior to coefficients: ``classes`` blocks of them that sum to zero, ``free`` the intercepts.

        ``rows`` counts the rows of the data, pairs of an observation and a class where there are several classes.
        """
        lasso = Lasso(self.scale, self.hyperprior, self.intercept_scale).bind(free, rows)
        if classes == 1:
            return lasso
        return BoundGroupLasso(free, lasso.flat, lasso.scale_prior, lasso.mode_prior, classes, rows)


@dataclass(frozen=True, eq=False)
class BoundGroupLasso(PriorBase):
    """A group-lasso prior on class coefficients that sum to zero."""

    free: Flags
    flat: float
    scale_prior: ScalePrior
    mode_prior: ScalePrior | None
    classes: int
    rows: int | None = None

    @cached_property
    def _shrunk(self) -> Any:
        """Variables that are shrunk, the same in every class."""
        return np.flatnonzero(~self.free.reshape(self.classes, -1)[0])

    @cached_property
    def _size(self) -> int:
        """Dimensions that are shrunk."""
        return len(self._shrunk) * (self.classes - 1)

    @cached_property
    def _log_constant(self) -> float:
        """Normalisers without the scale: the integral of ``exp(-|x|)`` over k - 1 dimensions, and the free part."""
        m = self.classes - 1
        integral = math.log(2.0) + 0.5 * m * math.log(math.pi) - math.lgamma(0.5 * m) + math.lgamma(m)
        n_free = dimensions(self.free, self.classes)
        return -len(self._shrunk) * integral + 0.5 * n_free * (math.log(self.flat) - _LOG_2PI)

    def _lengths(self, moment: Array) -> Array:
        """Root of the summed squares of every shrunk variable."""
        return np.maximum(np.sqrt(moment.reshape(self.classes, -1)[:, self._shrunk].sum(axis=0)), _SMALLEST)

    def _precision(self, local: Array) -> Array:
        precision = np.full((self.classes, len(self.free) // self.classes), self.flat)
        precision[:, self._shrunk] = np.minimum(local, _LARGEST)
        return precision.ravel()

    def _message(
        self, solve: Callable[[float, float, float], tuple[float, float]], size: int, moment: Array
    ) -> PriorMessage:
        """Precision ``rho/length`` with rho = 1/scale solved from the sum of lengths in ``size`` dimensions."""
        length = self._lengths(moment)
        rho, bound = solve(float(length.sum()), float(size), 1.0)
        bound += self._log_constant - 0.5 * self.flat * float(moment[self.free].sum())
        return PriorMessage(self._precision(rho / length), bound, {"scale": 1.0 / rho})

    def start(self) -> PriorState:
        scale = self.scale_prior.first
        return PriorState(self._precision(np.full(len(self._shrunk), scale**-2)), {"scale": scale})

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        """Mean field: the expected length replaced by its bound, the root of the expected square."""
        return self._message(self.scale_prior.expect_power, self._size, mean * mean + var)

    gaussian = expect  # the expected length has no closed form in the marginal variances

    def mode(self, beta: Array) -> PriorMessage:
        if self.mode_prior is None:
            raise ValueError(refused("no joint mode"))
        # n rows hold at most n coefficients away from zero; the others say nothing about the scale
        n_free = dimensions(self.free, self.classes)
        seen = self._size if self.rows is None else min(self._size, max(self.rows - n_free, 1))
        return self._message(self.mode_prior.mode_power, seen, beta * beta)

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Scale with the local scales integrated out, then the local scales: a block draw."""
        length, scale = self._lengths(beta * beta), state.values["scale"]
        if self.scale_prior.learned:
            scale = self.scale_prior.draw_power(rng, float(length.sum()), float(self._size), 1.0, scale)
        local = tilted_stable(rng, length / scale, 1.0)  # 1/omega, inverse Gaussian whatever the dimension
        return PriorState(self._precision(local / scale**2), {"scale": scale})

    def logpdf(self, state: PriorState, beta: Array) -> float:
        return self._log_constant - self._size * math.log(state.values["scale"]) + self.along(state, beta)(0.0)

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        energy = float(self._lengths(beta * beta).sum()) / state.values["scale"]
        half = 0.5 * self.flat * float((beta[self.free] ** 2).sum())
        return lambda t: -energy * math.exp(t) - half * math.exp(2.0 * t)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        if not self.scale_prior.learned or not len(self._shrunk):
            return None
        here = math.log(state.values["scale"])
        return lambda t: self.scale_prior.log_density_power(here + t, 1.0)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        grow = math.exp(t)
        precision = np.where(self.free, state.precision, state.precision / grow**2)
        return PriorState(precision, {"scale": state.values["scale"] * grow})

    def at_scale(self, scale: float) -> BoundGroupLasso:
        fixed = FixedScale(scale)
        return replace(self, scale_prior=fixed, mode_prior=fixed)

    def penalty(self, scale: float) -> tuple[Array, Array, int]:
        """Quadratic precision, rate of every variable's length, and the number of classes it is taken over."""
        rate = np.where(self.free.reshape(self.classes, -1)[0], 0.0, 1.0 / scale)
        return np.where(self.free, self.flat, 0.0), rate, self.classes
