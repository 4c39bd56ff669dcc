"""Group lasso: density proportional to ``exp(-|beta_g|/nu)`` in the lengths of groups of coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln

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
    """Laplace prior on the length of groups of coefficients: a group is in or out as a whole.

    With several classes in one model a group is a variable's coefficients over the classes. Otherwise ``groups`` lists
    columns that belong together, such as the indicators of one label, and every other column is a group of its own. For
    a group of m dimensions ``beta_g | omega_g ~ N(0, scale^2 omega_g)`` with ``omega_g ~ Gamma((m + 1)/2, 1/2)``, so
    that the density is proportional to ``exp(-|beta_g|/scale)``. Groups of one coefficient are the lasso.

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
    groups : list of lists of column names or positions, or None
        Columns that are in or out together; for two classes, pairs of classes, and regression.

    Examples
    --------
    >>> from softmargin.priors.group_lasso import GroupLasso
    >>> GroupLasso(scale=0.5).scale
    0.5
    >>> GroupLasso(groups=[[0, 1, 2], [3, 4]]).groups
    [[0, 1, 2], [3, 4]]

    References
    ----------
    Yuan and Lin (2006), Model selection and estimation in regression with grouped variables, JRSS B 68.
    """

    scale: float | str = "learn"
    hyperprior: HalfT | InverseGamma | None = None
    intercept_scale: float = 1e4
    groups: Sequence[Sequence[Any]] | None = None

    selects = True  # modes have exact zeros

    def __post_init__(self) -> None:
        check_scale("GroupLasso", self.scale, self.intercept_scale)
        given: Any = () if self.groups is None else self.groups
        if isinstance(given, str) or any(isinstance(each, str) or not isinstance(each, Sequence) for each in given):
            raise ValueError(
                f"GroupLasso groups must list lists of columns, as in [['a', 'b'], ['c']]; got {self.groups!r}."
            )

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundGroupLasso | BoundBridge:
        """Attach the prior to coefficients: ``classes`` blocks of them that sum to zero, ``free`` the intercepts.

        ``rows`` counts the rows of the data, pairs of an observation and a class where there are several classes.
        """
        if self.groups is None and classes == 1:
            return Lasso(self.scale, self.hyperprior, self.intercept_scale).bind(free, rows)
        if self.groups is not None:
            if classes > 1:
                raise ValueError(refused("groups of classes"))
            return self._of(free, rows, self._members(int((~free).sum()), None))
        variables = len(free) // classes
        member = np.where(free, -1, np.tile(np.cumsum(~free[:variables]) - 1, classes))
        return self._made(free, rows, member, np.full(int((~free[:variables]).sum()), classes - 1), classes)

    def of_columns(self, free: Flags, rows: int | None, columns: Any, names: Any) -> BoundGroupLasso | BoundBridge:
        """Attach the prior to the columns that are kept, groups by their names or positions in X."""
        if self.groups is None:
            return self.bind(free, rows)
        return self._of(free, rows, self._members(columns.n_features, names)[columns.keep])

    def _of(self, free: Flags, rows: int | None, of_column: Any) -> BoundGroupLasso:
        _, number = np.unique(of_column, return_inverse=True)  # groups that are left, from zero on
        member = np.full(len(free), -1)
        member[~free] = number
        return self._made(free, rows, member, np.bincount(number), 1)

    def _made(self, free: Flags, rows: int | None, member: Any, dims: Any, classes: int) -> BoundGroupLasso:
        lasso = Lasso(self.scale, self.hyperprior, self.intercept_scale).bind(free, rows)
        return BoundGroupLasso(free, lasso.flat, lasso.scale_prior, lasso.mode_prior, member, dims, classes, rows)

    def _members(self, count: int, names: Any) -> Any:
        """The number of every column's group."""
        called = None if names is None else [str(name) for name in names]
        member = np.arange(count)
        taken = np.zeros(count, dtype=bool)
        for number, group in enumerate(self.groups or ()):
            for column in group:
                if isinstance(column, str) and called is not None and column in called:
                    at = called.index(column)
                elif isinstance(column, int | np.integer) and -count <= column < count:
                    at = int(column) % count
                else:
                    raise ValueError(
                        f"GroupLasso groups must name columns of X, or positions among its {count} columns; got "
                        f"{column!r}."
                    )
                if taken[at]:
                    raise ValueError(f"GroupLasso groups have the column {column!r} twice; a column is in one group.")
                taken[at], member[at] = True, count + number
        return member


@dataclass(frozen=True, eq=False)
class BoundGroupLasso(PriorBase):
    """A group-lasso prior on given coefficients; ``member`` is the group of each, -1 where it is free.

    ``dims`` counts the dimensions of every group: class coefficients that sum to zero have one less than classes.
    """

    free: Flags
    flat: float
    scale_prior: ScalePrior
    mode_prior: ScalePrior | None
    member: Any
    dims: Any
    classes: int = 1
    rows: int | None = None

    @cached_property
    def _shrunk(self) -> Any:
        """Coefficients that are shrunk."""
        return np.flatnonzero(~self.free)

    @cached_property
    def _size(self) -> int:
        """Dimensions that are shrunk."""
        return int(self.dims.sum())

    @cached_property
    def _log_constant(self) -> float:
        """Normalisers without the scale: the integrals of ``exp(-|x|)`` over the groups' dimensions, and free ones."""
        m = self.dims.astype(float)
        integrals = math.log(2.0) + 0.5 * m * math.log(math.pi) - gammaln(0.5 * m) + gammaln(m)
        n_free = dimensions(self.free, self.classes)
        return -float(integrals.sum()) + 0.5 * n_free * (math.log(self.flat) - _LOG_2PI)

    def _lengths(self, moment: Array) -> Array:
        """Root of the summed squares of every group."""
        squares = np.bincount(self.member[self._shrunk], moment[self._shrunk], minlength=len(self.dims))
        return np.maximum(np.sqrt(squares), _SMALLEST)

    def _precision(self, local: Array) -> Array:
        if not len(self.dims):
            return np.full(len(self.free), self.flat)
        return np.where(self.free, self.flat, np.minimum(local, _LARGEST)[self.member])

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
        return PriorState(self._precision(np.full(len(self.dims), scale**-2)), {"scale": scale})

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
        if not self.scale_prior.learned or not len(self.dims):
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

    def penalty(self, scale: float) -> tuple[Array, Array, int] | None:
        """Quadratic precision, rate of every variable's length, and the number of classes it is taken over.

        None for groups of columns, whose lengths are not over blocks.
        """
        if self.classes == 1:
            return None
        rate = np.where(self.free.reshape(self.classes, -1)[0], 0.0, 1.0 / scale)
        return np.where(self.free, self.flat, 0.0), rate, self.classes
