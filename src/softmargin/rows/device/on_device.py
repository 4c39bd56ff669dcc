"""Rows on a device: one block that holds all of them, and the four verbs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.block import CELL
from softmargin.rows.by_visits import ByVisits
from softmargin.rows.device.libraries import Library
from softmargin.rows.device.numbers import numbers_at
from softmargin.rows.in_memory import Blocks, Cell

__all__ = ["DeviceBlock", "OnDevice"]


class DeviceBlock:
    """All rows of a device, as a visit sees them; every sum is a tuple of what comes home, a Gram matrix stays."""

    entries_missing = False

    def __init__(self, library: Library, design: Any, y: Any, weight: Any, residual: Any) -> None:
        self.library, self.design, self.y, self.weight, self.residual = library, design, y, weight, residual
        self.size = design.shape[0]
        self.numbers = range(-(-self.size // CELL))

    def full(self, value: float) -> Any:
        """A vector over the rows of one number."""
        return self.library.xp.full(self.size, float(value))

    def matvec(self, beta: Array) -> Any:
        """``X beta``."""
        return self.design.matvec(beta)

    def matvecs(self, betas: Array) -> Any:
        """``X beta`` of several vectors of coefficients, which are the rows of a matrix."""
        return self.design.matvecs(betas)

    def rmatvecs(self, rows: Any) -> tuple[Array]:
        """``X' b`` of several vectors b, which are the rows of a matrix."""
        return (self.design.rmatvecs(rows),)

    def row_quad(self, root: Any) -> Any:
        """Variance of every linear predictor."""
        return self.design.row_quad(root)

    def moments(self, mean: Array, root: Any) -> tuple[Any, Any]:
        """Mean and variance of every predictor."""
        return self.design.moments(mean, root)

    def spread(self, draws: Array) -> tuple[Any, Any]:
        """Mean and variance of every linear predictor over draws of the coefficients, one per row of a matrix."""
        mean = draws.mean(axis=0)
        return self.design.moments(mean, (draws - mean).T / max(len(draws) - 1, 1) ** 0.5)

    def excess(self, mean: Array) -> Any:
        """Variance of every predictor at known coefficients."""
        return self.residual

    def sums(self, *terms: Any) -> tuple[Array]:
        """Sums over the rows of vectors, and of the products of two where a term is a pair."""
        found = [each[0] @ each[1] if isinstance(each, tuple) else each.sum() for each in terms]
        return (np.array(self.library.home(self.library.xp.stack(found))),)

    def totals(self, vectors: Any) -> tuple[Array]:
        """Sums of several vectors over the rows."""
        return self.sums(*vectors)

    def products(self, vectors: Any) -> tuple[Array]:
        """Matrix of the inner products of vectors."""
        return (np.array(self.library.home(vectors @ vectors.T)),)

    def rmatvec(self, b: Any) -> tuple[Array]:
        """``X' b``."""
        return (self.design.rmatvec(b),)

    def gram(self, w: Any, b: Any) -> tuple[Any, Array]:
        """``X' diag(w) X``, which stays on the device, and ``X' b``; without b, zero in place of the latter."""
        return self.design.gram(w, b)

    def added(self, product: Callable[..., Any], *vectors: Any) -> tuple[Any, ...]:
        """The sum of a product over all rows, which a design on a device makes at once."""
        value = product(*vectors, 0, self.size)
        return value if isinstance(value, tuple) else (value,)

    def normals(self, numbers: Any) -> Any:
        """A standard normal number per row, every cell from its own stream."""
        return numbers_at(self.library, numbers, 0, self.size).standard_normal(self.size)

    def drawn(self, latents: Any, f: Any) -> tuple[Any, Any]:
        """Messages of latents drawn given the predictors, every cell from its own stream."""
        numbers = numbers_at(self.library, latents, 0, self.size)
        w, b = latents.loss.draw(numbers, self.y, self.weight, f)
        return w, b


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """A record of vectors on a device; a field is None where there is no such vector."""

    library: Library
    vectors: Any

    def fetch(self) -> Any:
        """The vectors, home."""
        return type(self.vectors)(*(None if each is None else self.library.home(each) for each in self.vectors))


class OnDevice(ByVisits):
    """The rows of a problem on a device.

    Parameters
    ----------
    library : Library
        The arrays of the device.
    design : Design
        Its columns.
    y, weight : array of shape (n,), or None
        Response and pseudo-likelihood weight of each row, on the device or not.
    """

    workers = 1
    stays = True

    def __init__(self, library: Library, design: Any, y: Any, weight: Any) -> None:
        self.library, self.design, self.shape = library, design, design.shape
        y, weight = (library.vector(np.zeros(0) if each is None else each) for each in (y, weight))
        self._block = DeviceBlock(library, design, y, weight, 0.0)

    def _twin(self, **changes: Any) -> OnDevice:
        """The same rows with something else in them."""
        twin = copy.copy(self)
        for cached in ("y", "weight"):
            twin.__dict__.pop(cached, None)
        old = self._block
        parts = {"design": old.design, "y": old.y, "weight": old.weight, "residual": old.residual} | changes
        twin._block = DeviceBlock(self.library, **parts)
        twin.design, twin.shape = parts["design"], parts["design"].shape
        return twin

    def sum(self, visit: Any, small: Any = None, *kept: Any) -> tuple[Any, ...]:
        """One pass over the rows that adds something up."""
        return _flat(visit(self._block, small, *(each.vectors for each in kept)))

    def keep(self, visit: Any, small: Any = None, *kept: Any) -> tuple[Kept, tuple[Any, ...]]:
        """One pass over the rows that leaves vectors with them, and may add something up."""
        vectors, sums = visit(self._block, small, *(each.vectors for each in kept))
        return Kept(self.library, vectors), _flat(sums)

    def fetch(self, kept: Kept) -> Any:
        """Bring the vectors that were kept home."""
        return kept.fetch()

    def place(self, vectors: Any) -> Kept:
        """Leave a record of vectors with the rows."""
        sent = (None if each is None else self.library.vector(each) for each in vectors)
        return Kept(self.library, type(vectors)(*sent))

    def pick(self, index: Any) -> Blocks:
        """Some rows, home."""
        return Blocks(self.design.pick(index), self.y[index], self.weight[index])

    @cached_property
    def y(self) -> Array:
        """Responses, home."""
        return np.array(self.library.home(self._block.y))

    @cached_property
    def weight(self) -> Array:
        """Weights, home."""
        return np.array(self.library.home(self._block.weight))

    @property
    def residual(self) -> Any:
        """Variance of every predictor that no coefficient carries."""
        return self._block.residual

    has_residual = False

    def reweighted(self, factor: float) -> OnDevice:
        """The same rows with all weights multiplied by one number."""
        return self._twin(weight=factor * self._block.weight)

    def weighted(self, weight: Any) -> OnDevice:
        """The same rows with other weights."""
        return self._twin(weight=self.library.vector(weight))

    def redesigned(self, design: Any) -> OnDevice:
        """The same responses with other columns."""
        return self._twin(design=design)

    def single(self) -> None:
        """Gram matrices in single precision save no time on a device that has as many units for double precision."""
        return

    def serial(self) -> OnDevice:
        """The rows as they are: a device has no threads to share."""
        return self

    def close(self) -> None:
        """There are no threads to give back."""

    @property
    def cells(self) -> Sequence[Cell]:
        """Number, first and last row of each cell."""
        n = self.shape[0]
        return [Cell(k, lo, min(lo + CELL, n)) for k, lo in enumerate(range(0, n, CELL))]

    def map(self, fn: Callable[[Cell], Any]) -> list[Any]:
        """Apply ``fn`` to every cell; the answers come in the order of the cells."""
        return [fn(cell) for cell in self.cells]

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to every item."""
        return [fn(item) for item in items]

    def excess(self, mean: Array) -> Any:
        """Variance of every predictor at known coefficients."""
        return self._block.residual


def _flat(sums: Any) -> tuple[Any, ...]:
    """All sums of a visit, under the caller's rules: a device says nothing of numbers that are none."""
    found = tuple(value for each in sums for value in each)
    rules = np.geterr()
    if "raise" in (rules["over"], rules["invalid"]):
        for each in found:
            if isinstance(each, np.ndarray) and not np.isfinite(each).all():
                raise FloatingPointError("a sum over the rows is not finite")
    return found
