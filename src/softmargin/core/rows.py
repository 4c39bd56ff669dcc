"""What engines ask of the rows and of the random numbers, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from softmargin.core.array import Array

__all__ = ["Block", "Kept", "Rows", "Streams", "Visit"]

Visit = Callable[..., Any]  # a module-level function of a block, a small record, and what was kept


@runtime_checkable
class Kept(Protocol):
    """Vectors that a visit left with the rows: an immutable record, of which an engine's state holds this handle."""

    def fetch(self) -> Any:
        """The vectors, home."""


class Block(Protocol):
    """A run of cells, as a visit sees it.

    Sums come back as partial sums of a fixed tree over cells, and vectors are made cell by cell, so that nothing
    depends on which cells share a block.
    """

    @property
    def y(self) -> Array:
        """Responses."""

    @property
    def weight(self) -> Array:
        """Pseudo-likelihood weight ``c`` per row."""

    @property
    def residual(self) -> Array | float:
        """Variance of every predictor that no coefficient carries, as inducing points leave it."""

    @property
    def size(self) -> int:
        """Number of rows."""

    @property
    def numbers(self) -> range:
        """Numbers of the cells, which are part of the address of random numbers."""

    @property
    def entries_missing(self) -> bool:
        """Whether missing entries give predictors a variance that depends on the coefficients."""

    def full(self, value: float) -> Array:
        """A vector over the rows of one number."""

    def matvec(self, beta: Array) -> Array:
        """``X beta``."""

    def matvecs(self, betas: Array) -> Array:
        """``X beta`` of several vectors of coefficients, which are the rows of a matrix."""

    def row_quad(self, root: Any) -> Array:
        """Variance of every linear predictor under coefficients of covariance ``root root'``."""

    def moments(self, mean: Array, root: Any) -> tuple[Array, Array]:
        """Mean and variance of every predictor."""

    def spread(self, draws: Array) -> tuple[Array, Array]:
        """Mean and variance of every linear predictor over draws of the coefficients, one per row of a matrix."""

    def excess(self, mean: Array) -> Array | float:
        """Variance of every predictor at known coefficients."""

    def normals(self, numbers: Any) -> Array:
        """A standard normal number per row; ``numbers.at(cell)`` is the generator of a cell."""

    def drawn(self, latents: Any, f: Array) -> tuple[Array, Array]:
        """Messages of latents of ``latents.loss`` drawn given the predictors, each cell from ``latents.at(cell)``."""

    def sums(self, *terms: Any) -> Any:
        """Sum of a vector over rows, or of the products of a pair of vectors, for each term: one vector of numbers."""

    def totals(self, vectors: Any) -> Any:
        """Sums of several vectors over rows, which are the rows of a matrix or the items of a list: one vector."""

    def products(self, vectors: Array) -> Any:
        """Matrix of the inner products of vectors over rows, which are the rows of a matrix."""

    def rmatvec(self, b: Array) -> Any:
        """``X' b``."""

    def rmatvecs(self, rows: Array) -> Any:
        """``X' b`` of several vectors b, which are the rows of a matrix."""

    def gram(self, w: Array, b: Array | None) -> Any:
        """``X' diag(w) X`` and ``X' b``."""

    def excess_slope(self, w: Array, mean: Array) -> Any:
        """Half the derivative of ``w'excess(mean)`` in the mean."""

    def added(self, product: Callable[..., Any], *vectors: Array) -> Any:
        """The sum over cells of ``product(*parts, lo, hi)``, each with its part of the vectors and its rows."""


class Rows(Protocol):
    """Responses, weights and columns of all rows, cut into cells of a fixed size.

    Cells are the unit of randomness and of summation: no result depends on how they are grouped or where they are.
    Four verbs reach the rows: ``sum``, ``keep``, ``fetch`` and ``pick``. The vectors and products below them are for
    engines that have all rows home.
    """

    def sum(self, visit: Visit, small: Any = None, *kept: Any) -> tuple[Any, ...]:
        """One pass: what ``visit(block, small, *kept)`` adds up, over all blocks in a fixed tree order.

        The visit returns a tuple of sums that the block made; ``kept`` are handles, of which it sees the block's part.
        It runs under the caller's rules for floating-point errors (``numpy.errstate``).
        """

    def keep(self, visit: Visit, small: Any = None, *kept: Any) -> tuple[Any, tuple[Any, ...]]:
        """One pass that leaves vectors with the rows: their handle, and sums made on the way.

        The visit returns a named tuple of vectors over the block's rows and a tuple of sums.
        """

    def fetch(self, kept: Any) -> Any:
        """Bring the vectors that were kept home."""

    def pick(self, index: Any) -> Rows:
        """Some rows, home."""

    def place(self, vectors: Any) -> Any:
        """Leave a named tuple of vectors with the rows: the reverse of ``fetch``."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of coefficients."""

    @property
    def stays(self) -> bool:
        """Whether engines work where the rows are however few they are, as on a device."""

    @property
    def has_residual(self) -> bool:
        """Whether predictors have a variance that no coefficient carries."""

    def reweighted(self, factor: float) -> Rows:
        """The same rows with all weights multiplied by one number."""

    def single(self) -> Rows | None:
        """The same rows with Gram matrices in single precision; None where the design cannot."""

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
    def residual(self) -> Array | float:
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

    def redesigned(self, design: Any) -> Rows:
        """The same responses with other columns."""

    def weighted(self, weight: Array) -> Rows:
        """The same rows with other weights."""

    def with_residual(self, residual: Array) -> Rows:
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
