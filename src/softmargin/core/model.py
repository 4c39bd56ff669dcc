"""What an engine is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.capabilities import require
from softmargin.core.loss import Loss
from softmargin.core.prior import PriorBase
from softmargin.core.rows import Rows, Streams
from softmargin.core.space import Normal, RowBasis, Space
from softmargin.core.visits import One, gram, gram_of, predicted

__all__ = ["Model", "require"]

_WIDE = 2  # coefficients per row from which the Gaussian is held by rows
_DENSE = 500  # coefficients up to which it is not: their matrix is small, and loses no digits to uneven precisions


@dataclass(frozen=True, eq=False)
class Model:
    """One composition: rows, a loss on them, a prior on the coefficients, random streams, the coefficients' space."""

    blocks: Rows
    loss: Loss
    prior: PriorBase
    free: Flags
    streams: Streams
    space: Space
    span: RowBasis | None = None  # where the coordinates are those of the space of all rows
    unknowns: tuple[Any, ...] = ()  # what is not known beside the coefficients
    known: int = 0  # last columns that say which group a row is of: never missing, and no covariates

    @property
    def y(self) -> Array:
        return self.blocks.y

    @property
    def c(self) -> Array:
        return self.blocks.weight

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.blocks.shape[0]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.blocks.shape[1]

    @property
    def dimension(self) -> int:
        """Dimension of the space of coefficients: fewer than coordinates where equations tie them."""
        return self.space.dimension(self.size)

    @cached_property
    def free_dimension(self) -> int:
        """How many of these dimensions are not shrunk."""
        return self.space.dimension(int(np.count_nonzero(self.free)))

    @cached_property
    def more_coefficients(self) -> bool:
        """Whether there are more shrunk coefficients than rows."""
        return self.dimension - self.free_dimension > self.n

    def with_weight(self, weight: Array) -> Model:
        """The same problem with other row weights."""
        return replace(self, blocks=self.blocks.weighted(weight))

    def with_prior(self, prior: PriorBase) -> Model:
        """The same rows under another prior."""
        return replace(self, prior=prior)

    @cached_property
    def _by_rows(self) -> bool:
        """Whether the Gaussian is held by its rows: there are far more coefficients."""
        return self.dimension > max(_WIDE * self.n, _DENSE) and self.space.offers("spread")

    def conditional(self, messages: Any, precision: Array, *, rough: bool = False) -> tuple[Normal, bool]:
        """The coefficients given row messages that were kept, ``w`` and ``b`` or None, and a prior precision.

        Where a ``rough`` one will do, it comes from a Gram matrix in single precision if the design has one; whether it
        did is the second answer.
        """
        if self._by_rows:
            found = self.blocks.fetch(messages)
            return self.gaussian(found.w, np.zeros(self.n) if found.b is None else found.b, precision), False
        single = self.blocks.single() if rough and self.dimension <= self.n else None
        if single is not None:
            q = _in_single_precision(lambda: self._from_sums(single, messages, precision))
            if q is not None:
                return q, True
        return self._from_sums(self.blocks, messages, precision), False

    def _from_sums(self, rows: Rows, messages: Any, precision: Array) -> Normal:
        A, linear = rows.sum(gram, None, messages)
        return self.space.gaussian(A, linear + self.prior.shift(precision), precision)

    def gaussian(
        self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0, rank_two: Array | None = None
    ) -> Normal:
        """The coefficients given row messages and a prior precision, with linear term ``X'b + shift``.

        The prior's centre adds its own part to it.

        Where coefficients far outnumber rows, a space that can does without a matrix of their size.
        """
        shift = shift + self.prior.shift(precision)
        if self._by_rows:
            return self.space.spread(self.blocks.design, w, self.blocks.rmatvec(b) + shift, precision)
        A, linear = self.blocks.gram(w, b)
        return self.space.gaussian(A, linear + shift, precision, rank_two)

    def solver(
        self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0, rank_two: Array | None = None
    ) -> Any:
        """The same for those who need its mean, solves and draws alone.

        With more shrunk coefficients than rows it never forms a matrix of their size.
        """
        if self.more_coefficients:
            shift = shift + self.prior.shift(precision)
            return self.space.wide(self.blocks.design, w, self.blocks.rmatvec(b) + shift, precision, rank_two)
        return self.gaussian(w, b, precision, shift, rank_two)

    def solver_of(self, visit: Any, small: Any, kept: Any, precision: Array) -> Any:
        """The same given the messages that a visit makes: one pass, which leaves nothing with the rows."""
        if self.more_coefficients or self._by_rows:
            found = self.blocks.fetch(self.blocks.keep(visit, small, kept)[0])
            return self.solver(found.w, found.b, precision)
        A, linear = self.blocks.sum(gram_of, (visit, small), kept)
        return self.space.gaussian(A, linear + self.prior.shift(precision), precision)

    def predicted(self, beta: Array) -> tuple[Any, float]:
        """Linear predictors, left with the rows, and the log likelihood there."""
        rows, (loglik,) = self.blocks.keep(predicted, (self.loss, beta))
        return rows, float(loglik[0])

    def placed(self, f: Array) -> Any:
        """Linear predictors that are home, left with the rows."""
        return self.blocks.place(One(f))

    def direction(self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0) -> Any:
        """The same in single precision, for early steps and ways to go; None where the design cannot."""
        single = self.blocks.single()
        if single is None or self.dimension > self.n:
            return None
        rough = replace(self, blocks=single)
        return _in_single_precision(lambda: rough.gaussian(w, b, precision, shift))

    def with_unknowns(self, unknowns: tuple[Any, ...]) -> Model:
        """The same problem with other unknowns."""
        return replace(self, unknowns=unknowns)

    def serial(self) -> Model:
        """The same problem without threads, for use inside a thread."""
        return replace(self, blocks=self.blocks.serial())

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to every item, on the threads of the rows."""
        return self.blocks.parallel(fn, items)


def _in_single_precision(make: Callable[[], Normal]) -> Normal | None:
    """A Gaussian from a rounded matrix; None where columns are too large, or too nearly dependent."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = make()
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found.mean).all() else None
