"""A prior in parts: any prior on the fixed effects, and normal terms with their own standard deviations behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.precision import Coupled, Coupling
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState
from softmargin.priors.composed._correlated import BoundCovariance
from softmargin.priors.composed.covariances import HalfTCovariance
from softmargin.priors.ridge import Ridge
from softmargin.priors.scales import InverseGamma

__all__ = ["BoundTerms", "Part", "TermPrior", "Terms"]

_NOWHERE = slice(0, 0)


@dataclass(frozen=True)
class TermPrior:
    """Normal coefficients of one term: ``groups`` groups with one number for each label, group by group.

    Parameters
    ----------
    labels : tuple of str
        Names of the columns of a group; the learned standard deviations are reported under them.
    groups : int
        Number of groups. A smooth term has one label and as many groups as basis functions.
    scale : float or "learn"
        Standard deviation of every column.
    hyperprior : HalfT, HalfCauchy, InverseGamma, HalfTCovariance, InverseWishart or None
        Prior of each learned standard deviation, or of the covariance. None is half-t.
    full : bool
        Whether the columns of a group are correlated.
    """

    labels: tuple[str, ...]
    groups: int
    scale: float | str = "learn"
    hyperprior: Any = None
    full: bool = False

    def __post_init__(self) -> None:
        if self.groups < 1 or not self.labels:
            raise ValueError("a term needs at least one group and one label.")
        if self.full and self.scale != "learn":
            raise ValueError("a term with a full covariance learns it; use full=False with a fixed scale.")

    @property
    def width(self) -> int:
        """Numbers a group."""
        return len(self.labels)

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.groups * self.width

    @property
    def coupled(self) -> bool:
        """Whether its prior precision is not diagonal."""
        return self.full and self.width > 1


@dataclass(frozen=True)
class Terms(Prior):
    """A prior on the first coefficients and one ``TermPrior`` after another on those behind them."""

    fixed: Prior
    terms: tuple[TermPrior, ...]

    def __post_init__(self) -> None:
        labels = [label for term in self.terms for label in term.labels]
        if len({"scale", *labels}) <= len(labels):
            raise ValueError(f"the labels of the terms must differ from each other and from 'scale'; got {labels}.")

    def bind(self, free: Flags, rows: int | None = None, *, classes: int = 1) -> BoundTerms:
        """Attach the prior to coefficients; the terms take the last ones.

        With several ``classes`` the coefficients are that many blocks which sum to zero, the terms take the last ones
        of every block, and the classes share each standard deviation.
        """
        block = len(free) // classes
        first = block - sum(term.size for term in self.terms)
        if first < 0:
            raise ValueError(f"the terms have {block - first} coefficients, but there are only {block}.")
        if classes > 1:
            return self._of_classes(free, rows, classes, first)
        start, coupled = first, []
        for term in self.terms:
            if term.coupled:
                coupled.append(Coupled(start, term.groups, term.width))
            start += term.size
        coupling = Coupling(len(free), tuple(coupled)) if coupled else None
        extras = iter([] if coupling is None else coupling.extras())
        parts = [Part((), slice(0, first), _NOWHERE, self.fixed.bind(free[:first], rows), not free[:first].all())]
        start = first
        for term in self.terms:
            parts.extend(_parts(term, start, extras))
            start += term.size
        return BoundTerms(tuple(parts), len(free), coupling)

    def _of_classes(self, free: Flags, rows: int | None, classes: int, start: int) -> BoundTerms:
        """The parts over all blocks of class coefficients."""
        if any(term.coupled for term in self.terms):
            raise ValueError("terms of several classes have uncorrelated columns; use full=False.")
        number = np.arange(len(free)).reshape(classes, -1)
        where = number[:, :start].ravel()
        parts = [Part((), where, _NOWHERE, self.fixed.bind(free[where], rows, classes=classes), not free[where].all())]
        for term in self.terms:
            for part in _parts(term, start, iter(())):
                bound = replace(part.prior, free=np.zeros(term.groups * classes, dtype=bool), classes=classes)
                parts.append(replace(part, where=number[:, part.where].ravel(), prior=bound))
            start += term.size
        return BoundTerms(tuple(parts), len(free), None, classes)


def _parts(term: TermPrior, start: int, extras: Any) -> Iterable[Part]:
    """One part for each learned number: a column of a term, or a term with a full covariance."""
    stop = start + term.size
    if term.coupled:
        hyperprior = HalfTCovariance() if term.hyperprior is None else term.hyperprior
        yield Part(term.labels, slice(start, stop), next(extras), BoundCovariance(term.labels, term.groups, hyperprior))
        return
    for a, label in enumerate(term.labels):
        bound = Ridge(term.scale, term.hyperprior).bind(np.zeros(term.groups, dtype=bool))
        if not isinstance(term.hyperprior, InverseGamma) and term.scale == "learn":
            bound = replace(bound, mode_prior=None)  # the joint mode of many effects and their variance is at zero
        yield Part((label,), slice(start + a, stop, term.width), _NOWHERE, bound)


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the coefficients with a prior of their own; the part of the fixed effects has no labels."""

    labels: tuple[str, ...]
    where: Any  # a slice, or with several classes an index over their blocks
    extra: slice  # their entries above the diagonal, in the coupling's writing
    prior: Any
    shrunk: bool = True  # whether any of them is

    @property
    def size(self) -> int:
        """Number of coefficients."""
        if isinstance(self.where, slice):
            return len(range(self.where.start, self.where.stop, self.where.step or 1))
        return len(self.where)

    def taken(self, row: Array) -> Array:
        """The part's numbers in a row that may have such entries at its end."""
        if self.extra.stop == 0:
            return row[self.where]
        return np.concatenate((row[self.where], row[self.extra]))

    def put(self, row: Array, own: Array) -> None:
        """Write the part's numbers into such a row; numbers of variables are those of each of their classes."""
        size = len(own) - (self.extra.stop - self.extra.start)
        per_class = own[:size] if size == self.size else np.resize(own[:size], self.size)
        row[self.where], row[self.extra] = per_class, own[size:]

    def state(self, state: PriorState) -> PriorState:
        """The part's own state."""
        values = {"scale": state.values[self.labels[0]]} if len(self.labels) == 1 else state.values
        return PriorState(self.taken(state.precision), values)

    def named(self, values: dict[str, float]) -> dict[str, float]:
        """The part's values under names that no other part has."""
        return {self.labels[0]: values["scale"]} if len(self.labels) == 1 else values

    def settled(self, message: PriorMessage) -> Part:
        """The part with its scale or covariance fixed where a variational fit has it."""
        if len(self.labels) == 1:
            return replace(self, prior=self.prior.at_scale(message.values[self.labels[0]]))
        return replace(self, prior=self.prior.settled(self.taken(message.precision)))

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        """``t -> log density of log(scale) + t`` of the part, or None where its scale is fixed."""
        stretch: Callable[[float], float] | None = self.prior.stretch(self.state(state))
        return stretch

    def stretched(self, state: PriorState, t: float) -> PriorState:
        """The whole prior's state with this part's scale multiplied by e^t."""
        own, precision = self.prior.stretched(self.state(state), t), state.precision.copy()
        self.put(precision, own.precision)
        return PriorState(precision, state.values | self.named(own.values))


@dataclass(frozen=True, eq=False)
class BoundTerms(PriorBase):
    """The parts of a prior on given coefficients; what a prior can do, part by part."""

    each: tuple[Part, ...]
    size: int
    coupling: Coupling | None
    classes: int = 1

    @property
    def parts(self) -> tuple[Part, ...]:
        """The fixed effects, then the terms."""
        return self.each

    @cached_property
    def centre(self) -> Array | None:  # type: ignore[override]
        """What the coefficients of all parts are shrunk to, None where that is zero."""
        known = [(part.where, part.prior.centre) for part in self.parts if part.prior.centre is not None]
        centre = np.zeros(self.size)
        for where, own in known:
            centre[where] = own
        return centre if known else None

    @cached_property
    def _length(self) -> int:
        return self.size if self.coupling is None else self.coupling.length

    def _joined(self, messages: list[PriorMessage]) -> PriorMessage:
        precision, linear = np.empty(self._length), None
        values: dict[str, float] = {}
        for part, message in zip(self.parts, messages, strict=True):
            part.put(precision, message.precision)
            values |= part.named(message.values)
            if message.linear is not None:
                linear = np.zeros(self.size) if linear is None else linear
                linear[part.where] = message.linear
        return PriorMessage(precision, sum(m.bound for m in messages), values, linear, self.coupling)

    def _state(self, states: list[PriorState]) -> PriorState:
        joined = self._joined([PriorMessage(state.precision, 0.0, state.values) for state in states])
        return PriorState(joined.precision, joined.values)

    @property
    def point_masses(self) -> str:
        """Density of the fixed effects that are not zero, where they have point masses."""
        return str(self.parts[0].prior.point_masses)

    @property
    def has_mode(self) -> bool:
        """Whether all parts have one."""
        return all(part.prior.has_mode for part in self.parts)

    @property
    def only_draws(self) -> str:
        """Why there are only draws, where it is so."""
        return str(self.parts[0].prior.only_draws)

    def selecting(self, precision: Array) -> Any:
        """The prior of the part that selects on all coefficients, the others normal with the given precisions."""
        first = self.parts[0]
        if isinstance(first.where, slice) or self.classes > 1:
            return first.prior.beside(self.behind(precision))
        return first.prior.among(first.where, precision)

    def behind(self, precision: Array) -> Array:
        """The precisions of the terms' variables: those of one class, which all classes share."""
        return precision[self.parts[0].size // self.classes : self.size // self.classes]

    def with_fixed(self, prior: Any) -> BoundTerms:
        """The same terms beside fixed effects with another prior, or beside the parts that it has."""
        if prior.parts and not self.parts[0].prior.parts:
            return replace(self, each=(*prior.parts, *self.parts[1:]))
        return replace(self, each=(replace(self.parts[0], prior=prior), *self.parts[1:]))

    def start(self) -> PriorState:
        return self._state([part.prior.start() for part in self.parts])

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        return self._joined([part.prior.expect(mean[part.where], part.taken(var)) for part in self.parts])

    def gaussian(self, mean: Array, var: Array) -> PriorMessage:
        return self._joined([part.prior.gaussian(mean[part.where], part.taken(var)) for part in self.parts])

    def mode(self, beta: Array) -> PriorMessage:
        return self._joined([part.prior.mode(beta[part.where]) for part in self.parts])

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        return self._state([part.prior.draw(rng, part.state(state), beta[part.where]) for part in self.parts])

    def logpdf(self, state: PriorState, beta: Array) -> float:
        return float(sum(part.prior.logpdf(part.state(state), beta[part.where]) for part in self.parts))

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        rays = [part.prior.along(part.state(state), beta[part.where]) for part in self.parts]
        return lambda step: float(sum(ray(step) for ray in rays))

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        """All scales together; None unless every part that is shrunk learns its own."""
        found = [part.stretch(state) for part in self.parts if part.shrunk]
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return None
        return lambda t: float(sum(one(t) for one in known))

    def stretched(self, state: PriorState, t: float) -> PriorState:
        for part in self.parts:
            if part.stretch(state) is not None:
                state = part.stretched(state, t)
        return state

    def at_scale(self, scale: float) -> BoundTerms:
        """The scale of the fixed effects fixed; the terms keep learning theirs."""
        return self.with_part_at(self.parts[0], scale)

    def with_part_at(self, part: Part, scale: float) -> BoundTerms:
        """One part's scale fixed; the others keep learning theirs."""
        return self.with_part(part, replace(part, prior=part.prior.at_scale(scale)))

    def with_part(self, part: Part, other: Part) -> BoundTerms:
        """One part replaced."""
        return replace(self, each=tuple(other if one is part else one for one in self.parts))

    def settled(self, message: PriorMessage) -> BoundTerms:
        """The terms' standard deviations and covariances fixed where a variational fit has them.

        For the mode: the joint density of many effects and their variance is largest, uselessly, at zero.
        """
        return replace(self, each=(self.parts[0], *(part.settled(message) for part in self.parts[1:])))

    def penalty(self, scale: float) -> tuple[Any, ...] | None:
        first = self.parts[0].prior.penalty(scale)
        if first is None or len(first) > 2 or self.coupling is not None:
            return None
        precision, rate = self.start().precision.copy(), np.zeros(self.size)
        self.parts[0].put(precision, first[0])
        rate[self.parts[0].where] = first[1]
        return precision, rate
