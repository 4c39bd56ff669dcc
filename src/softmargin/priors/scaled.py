"""Known numbers of every column beside what another prior says: factors of the scales, and means.

Scaled coefficients are ``beta_j = by_j gamma_j`` and centred ones ``beta_j = mean_j + delta_j``, with gamma and delta
from the other prior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState
from softmargin.refusals import refused

__all__ = ["BoundCentred", "BoundScaled", "Centred", "Scaled"]


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
class _Moved(PriorBase):
    """Another prior in coefficients that were moved: it can do what both can."""

    prior: Any

    def offers(self, *names: str) -> bool:
        """What both the prior and its move can do."""
        return super().offers(*names) and bool(self.prior.offers(*names))

    @property
    def has_mode(self) -> bool:
        return bool(self.prior.has_mode)

    @property
    def only_draws(self) -> str:
        return str(self.prior.only_draws)


@dataclass(frozen=True, eq=False)
class BoundScaled(_Moved):
    """Another prior in coefficients divided by their factors."""

    by: Array

    @cached_property
    def _logs(self) -> float:
        return float(np.log(self.by).sum())

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


@dataclass(frozen=True)
class Centred(Prior):
    """Means of the coefficients before the data, for example those of an earlier study.

    ``beta_j = mean_j + delta_j`` with delta ~ ``prior``, whose scale says how far the coefficients may be from their
    means. The intercept has no mean of its own.

    Parameters
    ----------
    prior : Ridge, Lasso, Bridge, Horseshoe, Scaled or your own
        Prior without point masses.
    mean : float, sequence of float or dict
        In units of ``coef_``, that is of the columns and of y as they are given, whatever ``standardize`` says: one
        number for all columns, one for every column, or a dict from names of columns, or their positions, to numbers,
        with zero for the others. Inside a dict of priors the columns are those of the key.

    Examples
    --------
    >>> from softmargin.priors import Centred, Ridge
    >>> Centred(Ridge(0.5), mean={"age": 0.03}).mean
    {'age': 0.03}
    """

    prior: Any
    mean: float | Sequence[float] | Mapping[Any, float]

    centred = True

    def __post_init__(self) -> None:
        given = list(self.mean.values()) if isinstance(self.mean, Mapping) else self.mean
        try:
            numbers = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if numbers.ndim > 1 or not np.isfinite(numbers).all():
            raise ValueError(
                "Centred mean must be a number, one for every column, or a dict from columns to numbers; got "
                f"{self.mean!r}."
            )
        if isinstance(self.prior, Prior) and self.prior.point_masses:
            raise ValueError(refused("means of point masses", prior=type(self.prior).__name__))
        if not isinstance(self.prior, Prior) or self.prior.centred:
            raise ValueError(f"Centred takes a prior object around zero, such as Ridge(); got {self.prior!r}.")

    @property
    def scale(self) -> Any:
        """That of the prior."""
        return self.prior.scale

    def in_units(self, spread: float) -> Centred:
        """The same of a response divided by ``spread``."""
        if isinstance(self.mean, Mapping):
            return replace(self, mean={key: value / spread for key, value in self.mean.items()})
        return replace(self, mean=(np.asarray(self.mean, dtype=float) / spread).tolist())

    def bind(self, free: Flags, rows: int | None = None) -> BoundCentred:  # type: ignore[override]
        """Attach the prior to the intercept and all columns, as they are."""
        centre = np.zeros(len(free))
        centre[~free] = self._means(int((~free).sum()), None)
        return BoundCentred(self.prior.bind(free, rows), centre)

    def around(self, bound: PriorBase, columns: Any, names: Any) -> BoundCentred:
        """What ``prior`` has made of the intercept and the columns ``columns.keep``, moved."""
        means = self._means(columns.n_features, names)[columns.keep] / columns.scale
        return BoundCentred(bound, np.concatenate((np.zeros(int(columns.intercept)), means)))

    def _means(self, count: int, names: Any) -> Array:
        """One mean for every one of the ``count`` columns."""
        if not isinstance(self.mean, Mapping):
            if np.ndim(self.mean) and np.size(self.mean) != count:
                raise ValueError(f"Centred has {np.size(self.mean)} means for {count} columns; give one for each.")
            return np.array(np.broadcast_to(np.asarray(self.mean, dtype=float), count))
        means, places = np.zeros(count), {} if names is None else {str(name): j for j, name in enumerate(names)}
        for key, value in self.mean.items():
            place = places.get(key) if isinstance(key, str) else key
            if not isinstance(place, (int, np.integer)) or not -count <= place < count:
                raise ValueError(
                    f"Centred has a mean of {key!r}, which is none of the {count} columns; use their names in a data "
                    "frame, or positions."
                )
            means[place] = value
        return means


@dataclass(frozen=True, eq=False)
class BoundCentred(_Moved):
    """Another prior in coefficients less their means."""

    centre: Array

    @property
    def scale_prior(self) -> Any:
        """That of the prior."""
        return self.prior.scale_prior

    def _message(self, found: PriorMessage) -> PriorMessage:
        linear = found.precision * self.centre
        return found._replace(linear=linear if found.linear is None else linear + found.linear)

    def start(self) -> PriorState:
        state: PriorState = self.prior.start()
        return state

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.prior.expect(mean - self.centre, var))

    def gaussian(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.prior.gaussian(mean - self.centre, var))

    def mode(self, beta: Array) -> PriorMessage:
        return self._message(self.prior.mode(beta - self.centre))

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        drawn: PriorState = self.prior.draw(rng, state, beta - self.centre)
        return drawn

    def logpdf(self, state: PriorState, beta: Array) -> float:
        return float(self.prior.logpdf(state, beta - self.centre))

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        density: Callable[[float], float] | None = self.prior.stretch(state)
        return density

    def stretched(self, state: PriorState, t: float) -> PriorState:
        moved: PriorState = self.prior.stretched(state, t)
        return moved

    def at_scale(self, scale: float) -> BoundCentred:
        return replace(self, prior=self.prior.at_scale(scale))

    def penalty(self, scale: float) -> tuple[Any, ...] | None:
        """That of the coefficients less their means."""
        found: tuple[Any, ...] | None = self.prior.penalty(scale)
        return found
