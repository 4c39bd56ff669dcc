"""What an engine is given, and the check that the parts fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.loss import Loss
from softmargin.core.prior import BoundPrior
from softmargin.core.rows import Rows, Streams
from softmargin.core.space import Normal, RowBasis, Space

__all__ = ["Model", "require"]

_WIDE = 2  # coefficients per row from which the Gaussian is held by rows
_DENSE = 500  # coefficients up to which it is not: their matrix is small, and loses no digits to uneven precisions


@dataclass(frozen=True, eq=False)
class Model:
    """One composition: rows, a loss on them, a prior on the coefficients, random streams, the coefficients' space."""

    blocks: Rows
    loss: Loss
    prior: BoundPrior
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
    def size(self) -> int:
        """Number of coordinates."""
        return self.blocks.design.shape[1]

    @property
    def dimension(self) -> int:
        """Dimension of the space of coefficients: fewer than coordinates where equations tie them."""
        return self.space.dimension(self.size)

    @property
    def free_dimension(self) -> int:
        """How many of these dimensions are not shrunk."""
        return self.space.dimension(int(self.free.sum()))

    def with_weight(self, weight: Array) -> Model:
        """The same problem with other row weights."""
        return replace(self, blocks=self.blocks.weighted(weight))

    def with_prior(self, prior: BoundPrior) -> Model:
        """The same rows under another prior."""
        return replace(self, prior=prior)

    def gaussian(
        self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0, dent: Array | None = None
    ) -> Normal:
        """The coefficients given row messages and a prior precision, with linear term ``X'b + shift``.

        Where coefficients far outnumber rows, a space that can does without a matrix of their size.
        """
        spread = getattr(self.space, "spread", None)
        if spread is not None and self.dimension > max(_WIDE * len(w), _DENSE):
            wide: Normal = spread(self.blocks.design, w, self.blocks.rmatvec(b) + shift, precision)
            return wide
        A, linear = self.blocks.gram(w, b)
        return self.space.gaussian(A, linear + shift, precision, dent)

    def solver(
        self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0, dent: Array | None = None
    ) -> Any:
        """The same for those who need its mean, solves and draws alone.

        With more shrunk coefficients than rows it never forms a matrix of their size.
        """
        if self.dimension - self.free_dimension > len(w):
            return self.space.wide(self.blocks.design, w, self.blocks.rmatvec(b) + shift, precision, dent)
        return self.gaussian(w, b, precision, shift, dent)

    def direction(self, w: Array, b: Array, precision: Array, shift: Array | float = 0.0) -> Any:
        """The same in single precision, for early steps and ways to go; None where the design cannot."""
        single: Any = getattr(self.blocks.design, "single", None)
        if single is None or self.dimension > len(w):
            return None
        rough = replace(self, blocks=self.blocks.redesigned(single()))
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found = rough.gaussian(w, b, precision, shift)
        except np.linalg.LinAlgError:  # nearly dependent columns
            return None
        return found if np.isfinite(found.mean).all() else None  # no column was too large

    def with_unknowns(self, unknowns: tuple[Any, ...]) -> Model:
        """The same problem with other unknowns."""
        return replace(self, unknowns=unknowns)

    def serial(self) -> Model:
        """The same problem without threads, for use inside a thread."""
        return replace(self, blocks=self.blocks.serial())


def require(consumer: Any, *, loss: Any, prior: Any) -> None:
    """Check before the loop that the parts can do what an engine or solver declares that it needs.

    A consumer lists method or attribute names in ``needs_loss`` and ``needs_prior``.
    """
    for kind, part in (("loss", loss), ("prior", prior)):
        for name in getattr(consumer, f"needs_{kind}", ()):
            if not getattr(part, name, None):
                raise TypeError(
                    f"{type(consumer).__name__} needs a {kind} with '{name}', which {type(part).__name__} does not "
                    f"have; choose another inference or solver, or another {kind}."
                )
