"""What every prior can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.capabilities import Parameters, Part, optional
from softmargin.core.precision import Coupling

__all__ = ["Prior", "PriorBase", "PriorMessage", "PriorState", "dimensions"]


def dimensions(flags: Flags, classes: int) -> int:
    """How many dimensions the flagged coefficients fill: k class blocks that sum to zero fill k - 1 of them."""
    count = int(flags.sum())
    return count if classes == 1 else count // classes * (classes - 1)


class PriorMessage(NamedTuple):
    """The Gaussian face of a prior: ``precision`` on its diagonal, its part of the bound, named point values.

    ``bound`` has derivative ``linear - precision * mean`` in the mean and ``-precision / 2`` in the variance;
    ``linear`` is None where it is zero, ``coupling`` where the precision is diagonal.
    """

    precision: Array
    bound: float
    values: dict[str, float]
    linear: Array | None = None
    coupling: Coupling | None = None

    def _times(self, x: Array) -> Array:
        return self.precision * x if self.coupling is None else self.coupling.times(self.precision, x)

    def pull(self, mean: Array) -> Array:
        """Derivative of the bound in the mean."""
        slope = -self._times(mean)
        return slope if self.linear is None else slope + self.linear

    def bend(self, x: Array) -> float:
        """The precision's quadratic form."""
        return float(x @ self._times(x))

    def logs(self) -> Array:
        """The precision in coordinates without constraints."""
        return np.log(self.precision) if self.coupling is None else self.coupling.logs(self.precision)

    def from_logs(self, x: Array) -> Array:
        """The precision with the given such coordinates."""
        return np.exp(x) if self.coupling is None else self.coupling.from_logs(x)


class PriorState(NamedTuple):
    """Where a chain stands in the prior's own variables: the precision they imply, and values worth recording."""

    precision: Array
    values: dict[str, float]


class PriorBase(Part):
    """A prior on a given list of coefficients, some of them free (not shrunk).

    To ``start`` is all that every inference asks for. "vb", "meanfield" and "svi" need ``expect``, "map" needs
    ``mode``, and "gibbs" ``draw`` and ``logpdf``; "hmc" needs all but ``mode``. A learned scale needs ``stretch``,
    ``stretched`` and ``at_scale`` besides. What it says of itself has an answer here that a plain prior gives, whose
    scale is given.
    """

    isotropic: bool = False  # whether rotations of the shrunk coefficients leave it unchanged
    classes: int = 1  # blocks of coefficients that sum to zero, where there are several
    centre: Array | None = None  # what they are shrunk to, None for zero; a penalty is of what they are less it

    def shift(self, precision: Array) -> Array | float:
        """What the centre adds to the linear term of coefficients with this prior precision."""
        centre = self.centre
        return 0.0 if centre is None else precision[: len(centre)] * centre

    @property
    def parts(self) -> tuple[Any, ...]:
        """Of a prior in parts: the fixed effects, then the terms behind them."""
        return ()

    @property
    def has_mode(self) -> bool:
        """Whether its density has a mode away from zero."""
        return True

    @property
    def point_masses(self) -> str:
        """Where coefficients can be exactly zero, the density of the others: "normal" or "Laplace"."""
        return ""

    @property
    def selects(self) -> bool:
        """Whether it says which coefficients are zero."""
        return bool(self.point_masses)

    @property
    def only_draws(self) -> str:
        """Where it has neither a mode nor a variational fit, a sentence that says so and the way out."""
        return ""

    @optional
    def start(self) -> PriorState:
        """A state to start a chain or an iteration from."""

    @optional
    def expect(self, mean: Array, var: Array) -> PriorMessage:
        """Prior variables averaged over their optimal densities, given the moments of the coefficients."""

    def gaussian(self, mean: Array, var: Array) -> PriorMessage:
        """Exact averages of the log prior under N(mean, var) where they are closed, as ``expect`` elsewhere."""
        return self.expect(mean, var)

    @optional
    def mode(self, beta: Array) -> PriorMessage:
        """Prior variables at their conditional mode; ``bound`` is the log joint density there."""

    @optional
    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        """Prior variables drawn given the coefficients."""

    @optional
    def logpdf(self, state: PriorState, beta: Array) -> float:
        """``log p(beta)`` given the scale, local variables integrated out."""

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        """``l -> log p(e^l beta)`` up to a constant: ``logpdf`` along a ray, prepared for many evaluations."""
        return lambda step: self.logpdf(state, math.exp(step) * beta)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        """``t -> log density of log(scale) + t``, or None where no scale is learned."""
        return None

    def stretched(self, state: PriorState, t: float) -> PriorState:
        """The state with the learned scale multiplied by e^t."""
        return state

    def at_scale(self, scale: float) -> PriorBase:
        """The same prior with its scale fixed."""
        return self

    def penalty(self, scale: float) -> tuple[Any, ...] | None:
        """Precision of beta^2/2 and rate of |beta| in the negative log density at this scale; None if it has others.

        A third entry, where there is one, counts the blocks over which ``|beta|`` is a length.
        """
        return None

    @optional
    def concave_penalty(self, beta: Array, scale: float) -> Array:
        """Of a penalty that is concave on either side of zero: its value, coefficient by coefficient."""

    @optional
    def tempered(self, scale: float, temperature: float) -> PriorBase:
        """The density at this scale raised to the power 1/temperature."""

    @optional
    def beside(self, precision: Array) -> PriorBase:
        """The same with more coefficients behind it that are always in, normal with the given precisions."""

    # of priors with point masses, for the samplers and the variational fit that move between sets of columns
    state: Callable[..., PriorState]
    slab_precision: Callable[..., Any]
    inclusion_of: Callable[..., Any]
    log_odds: Callable[..., Array]
    draw_inclusion: Callable[..., Any]
    draw_scale: Callable[..., float]
    expect_inclusion: Callable[..., tuple[Array, float]]


class Prior(Part, Parameters, ABC):
    """A prior as the user states it, with the answers that a plain one gives."""

    isotropic: bool = False  # whether rotations of the shrunk coefficients leave it unchanged
    selects: bool = False  # whether it says which coefficients are zero
    point_masses: str = ""  # where coefficients can be exactly zero, the density of the others: "normal" or "Laplace"
    always_include: Sequence[Any] = ()  # columns that are never left out, where others can be
    centred: bool = False  # whether it has means other than zero

    def in_units(self, spread: float) -> Prior:
        """The same prior of a response divided by ``spread``: means are in units of y, scales in its spreads."""
        return self

    @abstractmethod
    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> PriorBase:
        """Attach the prior to coefficients; ``free`` marks those that are not shrunk, ``rows`` counts the data.

        With several ``classes`` the coefficients are that many blocks which sum to zero. A prior with point masses
        takes ``always`` too, which marks the coefficients that are never left out.
        """
