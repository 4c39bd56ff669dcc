"""What the samplers of kernel expansions run on: the kernel matrix of the rows, and what is made of it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Loss
from softmargin.engines.kernel.draws import Index
from softmargin.rows.streams import Streams

__all__ = ["Copies", "KernelData", "LengthScale", "Spectrum"]

_RANK = 1e-10  # eigenvalues below this share of the largest are zero


class Spectrum(NamedTuple):
    """``K = X X'`` with orthogonal columns of squared lengths ``values``; ``beta = dual @ a`` has ``K beta = X a``."""

    X: Array
    values: Array
    dual: Array
    sums: Array  # of the columns of X

    @classmethod
    def of(cls, K: Array) -> Spectrum:
        """Leave out the directions in which a singular kernel matrix has no length."""
        values, U = np.linalg.eigh(K)
        seen = values > _RANK * values[-1]
        values, U = values[seen], U[:, seen]
        X = np.ascontiguousarray(U * np.sqrt(values))
        return cls(X, values, U / np.sqrt(values), X.sum(0))


class Copies(NamedTuple):
    """Design with a column of ones, its Gram matrix and labels, with as many copies of a row as it weighs."""

    X: Array
    gram: Array
    y: Array


@dataclass(frozen=True, eq=False)
class KernelData:
    """The kernel matrix of the rows, their labels in {-1, +1} and weights, loss, prior and the random streams."""

    K: Array
    y: Array
    c: Array
    loss: Loss
    prior: Any
    streams: Streams

    unknowns: ClassVar[tuple[Any, ...]] = ()

    @cached_property
    def row(self) -> Index:
        """The row of every copy, where a row of weight c is c copies."""
        return np.repeat(np.arange(len(self.y)), self.c.astype(np.int64))

    @cached_property
    def copies(self) -> Copies:
        """The rows, repeated."""
        X = np.column_stack((np.ones(len(self.row)), self.K[self.row]))
        return Copies(X, X.T @ X, self.y[self.row])

    @cached_property
    def spectrum(self) -> Spectrum:
        """Coordinates in which the prior of expansions on all rows is that of independent coefficients."""
        return Spectrum.of(self.K)

    def serial(self) -> KernelData:
        """The data as they are: a sweep uses no threads."""
        return self

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to one item after the other."""
        return [fn(item) for item in items]


@dataclass(frozen=True)
class LengthScale:
    """A length scale with prior ``log length ~ N(log middle, spread^2)``; ``kernel`` gives the matrix for a length.

    Chains begin at ``start``, or in the middle.
    """

    kernel: Callable[[float], Array]
    middle: float
    spread: float = 0.5
    start: float | None = None

    @property
    def first(self) -> float:
        """Where chains begin."""
        return self.middle if self.start is None else self.start

    def log_prior(self, length: float) -> float:
        """Log density of the logarithm of the length, up to a constant."""
        return -0.5 * (math.log(length / self.middle) / self.spread) ** 2
