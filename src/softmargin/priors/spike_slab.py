"""Spike and slab: every coefficient is exactly zero or normal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorState
from softmargin.priors._point_mass import check_point_mass, kept_inclusion, probabilities
from softmargin.priors.ridge import BoundRidge
from softmargin.priors.scales import FixedScale, HalfT, InverseGamma, ScalePrior
from softmargin.refusals import refused

__all__ = ["BoundSpikeSlab", "SpikeSlab"]

_EXCLUDED = 1e20  # precision reported for a coefficient that is out: finite, so that a Gram with it factors


@dataclass(frozen=True)
class SpikeSlab(Prior):
    """Point mass at zero with probability 1 - inclusion, normal slab otherwise.

    ``gamma_j ~ Bernoulli(inclusion), beta_j = 0`` where ``gamma_j = 0``, ``beta_j ~ N(0, scale^2)`` where it is 1.

    Parameters
    ----------
    inclusion : float, sequence of float or "learn", default="learn"
        Prior probability that a column is in, or one for every column of X; "learn" gives it a beta prior.
    scale : float or "learn"
        Standard deviation of the slab (of standardized columns when the estimator standardizes).
    expected_size : float or None
        Prior expectation of the number of columns that are in, in place of ``inclusion``: their ratio to the
        columns that can be out.
    always_include : sequence of str or int, or array of bool
        Columns that are always in.
    hyperprior : HalfT, HalfCauchy, InverseGamma or None
        Prior of a learned scale; None is half-t with 10 degrees of freedom.
    inclusion_prior : (float, float) or None
        The two parameters of the beta prior of a learned inclusion probability. None is (1, p) with p columns that can
        be out: about one column is expected, with a long tail, and false-discovery lists keep their promise.
    intercept_scale : float
        Standard deviation of the intercept, which is always in.

    Examples
    --------
    >>> from softmargin.priors.spike_slab import SpikeSlab
    >>> SpikeSlab(0.1, scale=1.0).scale
    1.0

    References
    ----------
    Polson and Scott (2011), section 3.3; George and McCulloch (1997), Approaches for Bayesian variable selection.
    """

    inclusion: float | Sequence[float] | str = "learn"
    scale: float | str = "learn"
    _: KW_ONLY
    expected_size: float | None = None
    always_include: Sequence[Any] = ()
    hyperprior: HalfT | InverseGamma | None = None
    inclusion_prior: tuple[float, float] | None = None
    intercept_scale: float = 1e4

    selects = True
    point_masses = "normal"

    def __post_init__(self) -> None:
        check_point_mass(self, "learn")
        pair = self.inclusion_prior
        if pair is not None and not (
            isinstance(pair, Sequence) and len(pair) == 2 and all(0 < value < math.inf for value in pair)
        ):
            raise ValueError(f"SpikeSlab inclusion_prior must be two positive numbers; got {pair!r}.")

    @property
    def learned(self) -> bool:
        """Whether the scale is learned."""
        return isinstance(self.scale, str)

    def bind(
        self, free: Flags, rows: int | None = None, always: Flags | None = None, *, classes: int = 1
    ) -> BoundSpikeSlab:
        """Attach the prior to coefficients.

        Parameters
        ----------
        free : array of bool
            Marks the intercept.
        rows : int or None
            Number of rows of the data.
        always : array of bool or None
            Marks the coefficients that are always in, as long as ``free``; None takes ``always_include``, where it
            holds integers, as positions among the coefficients that are not free.
        classes : int
            With several, ``free`` and ``always`` are about variables, which are in or out for all classes.
        """
        always = self._always(free) if always is None else np.asarray(always, dtype=bool)
        if len(always) != len(free):
            raise ValueError(f"always has {len(always)} entries for {len(free)} coefficients.")
        always = always | free
        selectable = int((~always).sum())
        pi: Any = None if isinstance(self.inclusion, str) else probabilities(self, free)
        if self.expected_size is not None:
            if self.expected_size >= selectable:
                raise ValueError(
                    f"SpikeSlab expected_size must be below the number of columns that can be out, {selectable}; got "
                    f"{self.expected_size!r}."
                )
            pi = self.expected_size / selectable
        scale_prior: Any = FixedScale(float(self.scale)) if not isinstance(self.scale, str) else self.hyperprior
        scale_prior = HalfT(1.0) if scale_prior is None else scale_prior
        a, b = (1.0, float(max(selectable, 1))) if self.inclusion_prior is None else self.inclusion_prior
        return BoundSpikeSlab(free, always, self.intercept_scale**-2, scale_prior, pi, a, b, rows, classes)

    def of_columns(self, columns: Any) -> SpikeSlab:
        """The same prior of the columns that are kept, where it has a number for every column."""
        kept: SpikeSlab = kept_inclusion(self, columns)
        return kept

    def _always(self, free: Flags) -> Flags:
        """``always_include`` as a mask over the coefficients, where it does not need column names."""
        mask = np.zeros(len(free), dtype=bool)
        if not len(self.always_include):
            return mask
        slopes = np.flatnonzero(~free)
        index = np.asarray(self.always_include)
        if index.dtype.kind not in "iub" or (index.dtype.kind != "b" and not np.isin(index, range(len(slopes))).all()):
            raise ValueError(
                f"always_include must be positions among {len(slopes)} columns, or a mask given to bind; got "
                f"{self.always_include!r}."
            )
        if index.dtype.kind == "b" and len(index) != len(slopes):
            raise ValueError(f"always_include is a mask of {len(index)} entries for {len(slopes)} columns.")
        mask[slopes[index]] = True
        return mask


@dataclass(frozen=True, eq=False)
class BoundSpikeSlab(PriorBase):
    """A spike-and-slab prior on given coefficients.

    ``always`` marks what cannot be out, the free coefficients among it; ``pi`` is None where it is learned, with
    the Beta(a, b) prior.
    """

    free: Flags
    always: Flags
    flat: float | Array  # precision of the free coefficients, or of each of them
    scale_prior: ScalePrior
    pi: float | Array | None  # one for all, or one per coefficient
    a: float = 1.0
    b: float = 1.0
    rows: int | None = None
    classes: int = 1

    has_mode = False
    point_masses = "normal"
    only_draws = refused("spike-and-slab without draws")

    @cached_property
    def selectable(self) -> int:
        """Number of coefficients that can be out."""
        return int((~self.always).sum())

    def slab_precision(self, scale: float) -> Array:
        """Precision of every coefficient if it is in."""
        precision = np.full(len(self.free), scale**-2)
        precision[self.free] = self.flat
        return precision

    def state(self, scale: float, pi: Any, gamma: Flags) -> PriorState:
        """The record of a chain; a coefficient that is out has a precision that holds it at zero."""
        precision = np.where(gamma, self.slab_precision(scale), _EXCLUDED)
        values = {"scale": scale, "size": float((gamma & ~self.free).sum())}
        if self.pi is None:
            values["inclusion"] = pi
        return PriorState(precision, values)

    def start(self) -> PriorState:
        """Every coefficient in, scale and inclusion where they are fixed or at central values."""
        scale = self.scale_prior.first
        pi = self.a / (self.a + self.b) if self.pi is None else self.pi
        return self.state(scale, pi, np.ones(len(self.free), dtype=bool))

    def inclusion_of(self, state: PriorState) -> Any:
        """The inclusion probability that a state carries, or that of every coefficient."""
        return state.values["inclusion"] if self.pi is None else self.pi

    def log_odds(self, pi: Any) -> Array:
        """Log odds of every coefficient being in."""
        return np.broadcast_to(np.log(pi) - np.log1p(-pi), len(self.free)).copy()

    def draw_inclusion(self, rng: np.random.Generator, gamma: Flags) -> Any:
        """The inclusion probability given which coefficients are in."""
        if self.pi is not None:
            return self.pi
        size = int((gamma & ~self.always).sum())
        # both tails in logarithms would be needed only below 1e-300
        return min(max(float(rng.beta(self.a + size, self.b + self.selectable - size)), 1e-300), 1.0 - 1e-16)

    def draw_scale(self, rng: np.random.Generator, scale: float, beta: Array, gamma: Flags) -> float:
        """The slab's scale given the coefficients that are in."""
        if not self.scale_prior.learned:
            return scale
        slab = beta[gamma & ~self.free]
        return float(self.scale_prior.draw(rng, float(slab @ slab), len(slab), scale**-2)) ** -0.5

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Scale and inclusion probability given the coefficients; those at zero are out."""
        gamma = (beta != 0.0) | self.always
        scale = self.draw_scale(rng, state.values["scale"], beta, gamma)
        return self.state(scale, self.draw_inclusion(rng, gamma), gamma)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        """``t -> log density of log(scale) + t``, or None where no scale is learned."""
        if not self.scale_prior.learned:
            return None
        here = math.log(state.values["scale"])
        return lambda t: self.scale_prior.log_density(here + t)

    def stretched(self, state: PriorState, t: float) -> PriorState:
        """The state with the learned scale multiplied by e^t."""
        slab = ~self.free & (state.precision < _EXCLUDED)
        precision = np.where(slab, state.precision * math.exp(-2.0 * t), state.precision)
        return PriorState(precision, state.values | {"scale": state.values["scale"] * math.exp(t)})

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        """``t -> log p(e^t beta)``; a coordinate at zero takes back the factor e^t that a move of all would count."""
        half = 0.5 * float(self.slab_precision(state.values["scale"]) @ (beta * beta))
        out = int(np.count_nonzero((beta == 0.0) & ~self.free))
        return lambda t: -half * math.exp(2.0 * t) - out * t

    def at_scale(self, scale: float) -> BoundSpikeSlab:
        """The same prior with its scale fixed."""
        return replace(self, scale_prior=FixedScale(scale))

    def beside(self, precision: Array) -> BoundSpikeSlab:
        """The same with more coefficients behind it that are always in, normal with the given precisions."""
        more = np.ones(len(precision), dtype=bool)
        flat = np.concatenate((np.full(int(self.free.sum()), self.flat), precision))
        free, always = np.concatenate((self.free, more)), np.concatenate((self.always, more))
        pi = np.concatenate((self.pi, np.full(len(precision), 0.5))) if isinstance(self.pi, np.ndarray) else self.pi
        return replace(self, free=free, always=always, flat=flat, pi=pi)

    def among(self, where: Any, precision: Array) -> BoundSpikeSlab:
        """The same on the coefficients ``where`` among others that are always in, normal with the given precisions."""
        free, always = np.ones((2, len(precision)), dtype=bool)
        free[where], always[where] = self.free, self.always
        flat = precision.copy()
        flat[where[self.free]] = self.flat
        pi = self.pi
        if isinstance(pi, np.ndarray):
            pi = np.full(len(precision), 0.5)
            pi[where] = self.pi
        return replace(self, free=free, always=always, flat=flat[free], pi=pi)

    def slab(self) -> BoundRidge:
        """The normal prior that is left when every coefficient is in."""
        return BoundRidge(self.free, float(np.max(self.flat)), self.scale_prior, None, self.rows)
