"""What engines ask of the rows and of the random numbers, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from softmargin.core.array import Array

__all__ = ["Rows", "Streams"]


class Rows(Protocol):
    """Responses, weights and columns of all rows, cut into cells of a fixed size.

    Cells are the unit of randomness and of summation: no result depends on how they are grouped or where they are.
    """

    @property
    def design(self) -> Any:
        """The columns."""

    @property
    def y(self) -> Array:
        """Responses."""

    @property
    def weight(self) -> Array:
        """Pseudo-likelihood weight ``c`` per row."""

    @property
    def still(self) -> Array | float:
        """Variance of every predictor that no coefficient carries."""

    @property
    def workers(self) -> int:
        """Number of threads."""

    @property
    def cells(self) -> Sequence[Any]:
        """Number, first and last row of each cell."""

    def map(self, fn: Callable[[Any], Any]) -> list[Any]:
        """Apply ``fn`` to every cell; the answers come in the order of the cells."""

    def reduce(self, fn: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Sum over cells of the tuples ``fn`` returns, in a fixed tree order."""

    def parallel(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Apply ``fn`` to every item, on the threads where there are any."""

    def matvec(self, beta: Array) -> Array:
        """Linear predictor ``f = X beta``."""

    def rmatvec(self, b: Array) -> Array:
        """``X' b``."""

    def gram(self, w: Array, b: Array) -> tuple[Array, Array]:
        """``X' diag(w) X`` and ``X' b`` in one pass over the rows."""

    def row_quad(self, root: Any) -> Array:
        """Variance of every linear predictor under coefficients of covariance ``root root'``."""

    def moments(self, mean: Array, root: Any) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor."""

    def excess(self, mean: Array) -> Array | float:
        """Variance of every predictor at known coefficients."""

    def drag(self, w: Array, mean: Array) -> Array | float:
        """Half the derivative of ``w'excess(mean)`` in the mean."""

    def redesigned(self, design: Any) -> Rows:
        """The same responses with other columns."""

    def weighted(self, weight: Array) -> Rows:
        """The same rows with other weights."""

    def loosened(self, still: Array) -> Rows:
        """The same rows with predictors of this variance at known coefficients."""

    def serial(self) -> Rows:
        """The same rows without threads, for use inside a thread."""

    def close(self) -> None:
        """Give the threads back."""


class Streams(Protocol):
    """Random numbers by address, so that no result depends on who draws when."""

    def at(self, purpose: Any, *, chain: int = 0, iteration: int = 0, cell: int = 0) -> np.random.Generator:
        """The generator of one address."""

    def child(self, number: int) -> Any:
        """Streams of their own for one of several problems."""
