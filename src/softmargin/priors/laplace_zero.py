"""Laplace-zero prior: every coefficient is zero with some probability, and Laplace otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import betaln, digamma

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorState
from softmargin.priors._point_mass import check_point_mass, kept_inclusion, probabilities
from softmargin.priors.scales import FixedScale, HalfT, InverseGamma, ScalePrior
from softmargin.refusals import refused
from softmargin.rows.variates import slice_step, tilted_stable

__all__ = ["BoundLaplaceZero", "LaplaceZero"]

_SMALLEST = 1e-150  # |coefficient| below this has no logarithm worth taking
_LARGEST = 1e16  # cap on a local precision
_OUT = 1e30  # precision of a coefficient that is left out: a draw given the others is zero to rounding
_INCLUSION = 0.01


@dataclass(frozen=True)
class LaplaceZero(Prior):
    """Coefficients ``u = g v`` with ``g ~ Bernoulli(inclusion)`` and v Laplace, density ``exp(-|v|/scale)/(2 scale)``.

    Parameters
    ----------
    inclusion : float in (0, 1), sequence of float or "learn"
        Prior probability that a coefficient is not zero, or one for every column of X; "learn" has a uniform prior on
        it.
    scale : float or "learn"
        Scale of the coefficients that are not zero.
    expected_size : float or None
        Prior mean of the number of columns chosen, in place of ``inclusion``.
    always_include : sequence
        Columns that are never left out; their coefficients are Laplace.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned scale: None is half-t with 10 degrees of freedom; ``InverseGamma`` refers to ``scale^2``.
    intercept_scale : float
        Standard deviation of the intercept.

    References
    ----------
    Luts and Ormerod (2014), section 3.2; Wand and Ormerod (2011).

    Examples
    --------
    >>> from softmargin.priors.laplace_zero import LaplaceZero
    >>> LaplaceZero(inclusion=0.1, scale=1.0).inclusion
    0.1
    """

    inclusion: float | Sequence[float] | str = _INCLUSION
    scale: float | str = "learn"
    _: KW_ONLY
    expected_size: float | None = None
    always_include: Sequence[Any] = ()
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4

    selects = True
    point_masses = "Laplace"

    def __post_init__(self) -> None:
        check_point_mass(self, _INCLUSION)

    def bind(
        self, free: Flags, rows: int | None = None, always: Flags | None = None, *, classes: int = 1
    ) -> BoundLaplaceZero:
        """Attach the prior to coefficients.

        Parameters
        ----------
        free : array of bool
            Marks the intercept: not shrunk, never left out.
        rows : int or None
            Number of rows; not used.
        always : array of bool or None
            Marks what ``always_include`` names; None reads it as positions among the coefficients that are not free.
        """
        if classes > 1:
            raise ValueError(refused("Laplace-zero of classes"))
        if always is None:
            always = np.zeros(len(free), dtype=bool)
            columns = np.flatnonzero(~free)
            for place in self.always_include:
                if not isinstance(place, (int, np.integer)) or not -len(columns) <= place < len(columns):
                    raise ValueError(f"always_include has no column {place!r} among {len(columns)} columns.")
                always[columns[place]] = True
        m = int((~free & ~always).sum())
        inclusion: Any = None if isinstance(self.inclusion, str) else probabilities(self, free)
        if self.expected_size is not None and m:
            if self.expected_size >= m:
                raise ValueError(
                    f"expected_size must be below the {m} columns that may be left out; got {self.expected_size!r}."
                )
            inclusion = self.expected_size / m
        hyperprior: Any = HalfT(1.0) if self.hyperprior is None else self.hyperprior
        scale = hyperprior if isinstance(self.scale, str) else FixedScale(float(self.scale))
        return BoundLaplaceZero(free, always & ~free, self.intercept_scale**-2, scale, inclusion)

    def of_columns(self, columns: Any) -> LaplaceZero:
        """The same prior of the columns that are kept, where it has a number for every column."""
        kept: LaplaceZero = kept_inclusion(self, columns)
        return kept


@dataclass(frozen=True, eq=False)
class BoundLaplaceZero(PriorBase):
    """A Laplace-zero prior on given coefficients; a coefficient that is exactly zero is left out."""

    free: Flags
    always: Flags
    flat: float | Array  # precision of the free coefficients, or of each of them
    scale_prior: ScalePrior
    inclusion: float | Array | None  # one for all, or one per coefficient; None: learned, uniform

    has_mode = False
    point_masses = "Laplace"

    @cached_property
    def shrunk(self) -> Any:
        """Places of the coefficients with a Laplace part."""
        return np.flatnonzero(~self.free)

    @cached_property
    def candidates(self) -> Any:
        """Places of the coefficients that may be left out."""
        return np.flatnonzero(~self.free & ~self.always)

    @cached_property
    def prior_log_odds(self) -> Array:
        """Log odds of every coefficient's inclusion probability, zero where it is learned."""
        pi = np.broadcast_to(0.5 if self.inclusion is None else self.inclusion, len(self.free))
        return np.asarray(np.log(pi) - np.log1p(-pi))

    def expect_inclusion(self, included: Array) -> tuple[Array, float]:
        """``E logit(inclusion)`` of all coefficients, and the bound's part of indicators and inclusion.

        ``included`` are the ``E g`` of the m candidates, whose entropy is not counted. The optimal density of a learned
        probability is Beta(1 + size, 1 + m - size) with their sum as the size.
        """
        m, size, odds = len(self.candidates), float(included.sum()), self.prior_log_odds
        if self.inclusion is None:
            learned = np.full(len(odds), digamma(1.0 + size) - digamma(1.0 + m - size))
            return learned, float(betaln(1.0 + size, 1.0 + m - size))
        own = odds[self.candidates]
        return odds, float(own @ included - np.logaddexp(0.0, own).sum())

    def values(self, scale: float, size: float, inclusion: float) -> dict[str, float]:
        """What is worth recording."""
        return {"scale": scale, "size": size} | ({"inclusion": inclusion} if self.inclusion is None else {})

    def _with_free(self, precision: Array) -> Array:
        precision[self.free] = self.flat
        return precision

    def beside(self, precision: Array) -> BoundLaplaceZero:
        """The same with more coefficients behind it that are always in, normal with the given precisions."""
        flat = np.concatenate((np.broadcast_to(self.flat, int(self.free.sum())), precision))
        more, inclusion = np.ones(len(precision), dtype=bool), self.inclusion
        if isinstance(inclusion, np.ndarray):
            inclusion = np.concatenate((inclusion, np.full(len(precision), 0.5)))
        free, always = np.concatenate((self.free, more)), np.concatenate((self.always, ~more))
        return replace(self, free=free, always=always, flat=flat, inclusion=inclusion)

    def among(self, where: Any, precision: Array) -> BoundLaplaceZero:
        """The same on the coefficients ``where`` among others that are always in, normal with the given precisions."""
        free, always = np.ones(len(precision), dtype=bool), np.zeros(len(precision), dtype=bool)
        free[where], always[where] = self.free, self.always
        flat = precision.copy()
        flat[where[self.free]] = self.flat
        inclusion = self.inclusion
        if isinstance(inclusion, np.ndarray):
            inclusion = np.full(len(precision), 0.5)
            inclusion[where] = self.inclusion
        return replace(self, free=free, always=always, flat=flat[free], inclusion=inclusion)

    def start(self) -> PriorState:
        """Every coefficient in, local precisions at one."""
        scale = self.scale_prior.first
        precision = self._with_free(np.full(len(self.free), scale**-2))
        return PriorState(precision, self.values(scale, float(len(self.shrunk)), 0.5))

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Scale given the coefficients with the local precisions integrated out, then those, then the inclusion."""
        inside = self.shrunk[beta[self.shrunk] != 0.0]
        size, scale = np.maximum(np.abs(beta[inside]), _SMALLEST), state.values["scale"]
        if self.scale_prior.learned:
            total, count = float(size.sum()), len(inside)

            def log_posterior(l: float) -> float:
                if abs(l) > 300.0:
                    return -math.inf
                return self.scale_prior.log_density(l) - count * l - total * math.exp(-l)

            scale = math.exp(slice_step(rng, log_posterior, math.log(scale), width=2.0 / math.sqrt(count + 1.0)))
        precision = self._with_free(np.full(len(self.free), _OUT))
        precision[inside] = np.minimum(tilted_stable(rng, size / scale, 1.0) / scale**2, _LARGEST)
        inclusion = 0.5
        if self.inclusion is None:
            chosen = int(np.count_nonzero(beta[self.candidates]))
            inclusion = float(rng.beta(1.0 + chosen, 1.0 + len(self.candidates) - chosen))
        return PriorState(precision, self.values(scale, float(len(inside)), inclusion))

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        """``t -> log p(e^t beta)``; a coordinate at zero takes back the factor e^t that a move of all would count."""
        inside = beta[self.shrunk]
        rate = float(np.abs(inside).sum()) / state.values["scale"]
        half, out = 0.5 * float((self.flat * beta[self.free] ** 2).sum()), int((inside == 0.0).sum())
        return lambda t: -rate * math.exp(t) - half * math.exp(2.0 * t) - out * t

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        """``t -> log density of log(scale) + t``, or None where no scale is learned."""
        if not self.scale_prior.learned or not len(self.shrunk):
            return None
        here = math.log(state.values["scale"])
        return lambda t: self.scale_prior.log_density(here + t)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        """The state with the learned scale multiplied by e^t."""
        grow = math.exp(t)
        inside = ~self.free & (state.precision < _OUT)
        precision = np.where(inside, state.precision / grow**2, state.precision)
        return PriorState(precision, state.values | {"scale": state.values["scale"] * grow})

    def at_scale(self, scale: float) -> BoundLaplaceZero:
        """The same prior with its scale fixed."""
        return replace(self, scale_prior=FixedScale(scale))
