"""A prior with a factor for every column: coefficients ``beta_j = by_j gamma_j`` with gamma from another prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState

__all__ = ["BoundScaled", "Scaled"]


@dataclass(frozen=True)
class Scaled(Prior):
    """Known factors of the scales of the columns, beside the scale that the prior has or learns.

    ``beta_j = by_j gamma_j`` with gamma ~ ``prior``: the fit is that of ``prior`` on the columns ``by_j x_j``.

    Parameters
    ----------
    prior : Ridge, Lasso, Bridge, Horseshoe or your own
        Prior without point masses.
    by : sequence of float
        A positive factor for every column of X; with ``Ridge(1.0)`` they are the standard deviations themselves.

    Examples
    --------
    >>> from softmargin.priors import Lasso, Scaled
    >>> Scaled(Lasso(), by=[1.0, 0.1, 0.1]).by
    [1.0, 0.1, 0.1]
    """

    prior: Any
    by: Sequence[float]

    def __post_init__(self) -> None:
        by = np.asarray(self.by, dtype=float)
        if by.ndim != 1 or not len(by) or not ((by > 0.0) & (by < np.inf)).all():
            raise ValueError(f"Scaled by must list a positive number for every column; got {self.by!r}.")
        if not isinstance(self.prior, Prior) or self.prior.point_masses:
            raise ValueError(
                f"Scaled takes a prior object that leaves no columns out, such as Ridge(); got {self.prior!r}."
            )

    @property
    def scale(self) -> Any:
        """That of the prior."""
        return self.prior.scale

    def bind(self, free: Flags, rows: int | None = None) -> BoundScaled:  # type: ignore[override]
        """Attach the prior to the intercept and all columns."""
        return self.of_columns(free, rows, np.arange(int((~free).sum())))

    def of_columns(self, free: Flags, rows: int | None, columns: Any, count: int | None = None) -> BoundScaled:
        """Attach the prior to some of the ``count`` columns, the intercept in front where it is free."""
        count = len(columns) if count is None else count
        if len(self.by) != count:
            raise ValueError(f"Scaled has {len(self.by)} factors for the {count} columns of X; give one for each.")
        by = np.ones(len(free))
        by[~free] = np.asarray(self.by, dtype=float)[columns]
        return BoundScaled(self.prior.bind(free, rows), by)


@dataclass(frozen=True, eq=False)
class BoundScaled(PriorBase):
    """Another prior in coefficients divided by their factors."""

    prior: Any
    by: Array

    @cached_property
    def _logs(self) -> float:
        return float(np.log(self.by).sum())

    def offers(self, *names: str) -> bool:
        """What both the prior and its rescaling can do."""
        return super().offers(*names) and bool(self.prior.offers(*names))

    @property
    def has_mode(self) -> bool:
        return bool(self.prior.has_mode)

    @property
    def only_draws(self) -> str:
        return str(self.prior.only_draws)

    def _message(self, found: PriorMessage) -> PriorMessage:
        linear = None if found.linear is None else found.linear / self.by
        return found._replace(precision=found.precision / self.by**2, bound=found.bound - self._logs, linear=linear)

    def _state(self, found: PriorState) -> PriorState:
        return PriorState(found.precision / self.by**2, found.values)

    def _inner(self, state: PriorState) -> PriorState:
        return PriorState(state.precision * self.by**2, state.values)

    def start(self) -> PriorState:
        return self._state(self.prior.start())

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.prior.expect(mean / self.by, var / self.by**2))

    def gaussian(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.prior.gaussian(mean / self.by, var / self.by**2))

    def mode(self, beta: Array) -> PriorMessage:
        return self._message(self.prior.mode(beta / self.by))

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        return self._state(self.prior.draw(rng, self._inner(state), beta / self.by))

    def logpdf(self, state: PriorState, beta: Array) -> float:
        return float(self.prior.logpdf(self._inner(state), beta / self.by)) - self._logs

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        ray: Callable[[float], float] = self.prior.along(self._inner(state), beta / self.by)
        return ray

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        density: Callable[[float], float] | None = self.prior.stretch(self._inner(state))
        return density

    def stretched(self, state: PriorState, t: float) -> PriorState:
        return self._state(self.prior.stretched(self._inner(state), t))

    def at_scale(self, scale: float) -> BoundScaled:
        return replace(self, prior=self.prior.at_scale(scale))

    def penalty(self, scale: float) -> tuple[Any, ...] | None:
        found = self.prior.penalty(scale)
        return None if found is None else (found[0] / self.by**2, found[1] / self.by)
