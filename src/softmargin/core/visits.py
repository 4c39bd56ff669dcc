"""What engines do with the rows: visits that several of them make.

A visit is a module-level function of a block of rows, a small record, and what earlier visits left with the rows; it
can be sent to where the rows are. It returns sums over the block, or vectors to keep and sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Rows as Message

__all__ = [
    "Face",
    "Latents",
    "Marked",
    "Messages",
    "Moments",
    "One",
    "RowState",
    "drawn",
    "excess",
    "expected_bound",
    "gram",
    "gram_of",
    "heavier",
    "less",
    "likelihood",
    "likelihood_along",
    "messages",
    "messages_at",
    "moments",
    "predicted",
    "predictors",
    "smoothed",
    "standard",
    "started",
    "stretched",
    "transposed",
    "variances",
]


class One(NamedTuple):
    """One vector over the rows."""

    f: Array


class Marked(NamedTuple):
    """Which of the rows are marked: their marks are true, or not zero."""

    marks: Any


class Moments(NamedTuple):
    """Mean and variance of the linear predictors."""

    f: Array
    v: Array


class Messages(NamedTuple):
    """Row messages, of which one may be None where only the other is wanted."""

    w: Array | None
    b: Array | None


class RowState(NamedTuple):
    """Mean and variance of the linear predictors, and the row messages there."""

    f: Array
    v: Array
    w: Array
    b: Array

    @property
    def message(self) -> Message:
        return Message(self.w, self.b)


class Face(NamedTuple):
    """A loss and the name of the averages that are wanted of it: "gaussian" or "expect"."""

    loss: Any
    name: str

    def __call__(self, block: Any, f: Array, v: Array) -> Any:
        """The messages of a block's rows."""
        face = self.loss.gaussian if self.name == "gaussian" else self.loss.expect
        return face(block.y, block.weight, f, v)


class Latents(NamedTuple):
    """A loss, and the address of the random numbers that its row latents are drawn from, without the cell."""

    loss: Any
    streams: Any
    purpose: Any
    chain: int
    iteration: int

    def at(self, cell: int) -> np.random.Generator:
        """The generator of a cell."""
        found: np.random.Generator = self.streams.at(
            self.purpose, chain=self.chain, iteration=self.iteration, cell=cell
        )
        return found


def predictors(block: Any, beta: Array) -> Any:
    """Keep ``X beta``."""
    return One(block.matvec(beta)), ()


def variances(block: Any, root: Any) -> Any:
    """Keep the variances of the predictors under a root of the coefficients' covariance."""
    return One(block.row_quad(root)), ()


def moments(block: Any, small: tuple[Array, Any]) -> Any:
    """Keep mean and variance of the predictors."""
    return Moments(*block.moments(*small)), ()


def excess(block: Any, mean: Array) -> Any:
    """Keep the predictors' variance at known coefficients."""
    found = block.excess(mean)
    return One(block.full(found) if isinstance(found, float) else found), ()


def transposed(block: Any, small: None, kept: One) -> Any:
    """Sum ``X'b``."""
    return (block.rmatvec(kept.f),)


def gram(block: Any, small: None, kept: Any) -> Any:
    """Sum ``X' diag(w) X`` and ``X'b``."""
    return (block.gram(kept.w, kept.b),)


def gram_of(block: Any, small: tuple[Any, Any], *kept: Any) -> Any:
    """Sum ``X' diag(w) X`` and ``X'b`` of the messages that another visit would keep, given with its small record."""
    visit, given = small
    message, _ = visit(block, given, *kept)
    return (block.gram(message.w, message.b),)


def started(block: Any, numbers: Latents) -> Any:
    """Keep predictors from N(0, 1), every cell from its own stream."""
    return One(block.normals(numbers)), ()


def drawn(block: Any, latents: Latents, kept: One) -> Any:
    """Keep the messages of latents drawn given the predictors, every cell from its own stream."""
    return Messages(*block.drawn(latents, kept.f)), ()


def predicted(block: Any, small: tuple[Any, Array]) -> Any:
    """Keep ``X beta``; sum the log likelihood there."""
    loss, beta = small
    f = block.matvec(beta)
    return One(f), (block.sums(loss.loglik(block.y, block.weight, f)),)


def likelihood(block: Any, loss: Any, kept: One) -> Any:
    """Sum the log likelihood."""
    return (block.sums(loss.loglik(block.y, block.weight, kept.f)),)


def likelihood_along(block: Any, small: tuple[Any, list[float]], along: One, *fixed: One) -> Any:
    """Sum the log likelihood at each of some multiples of predictors, to which others may be added."""
    loss, factors = small
    return (block.totals(loss.loglik_along(block.y, block.weight, factors, along.f, *[each.f for each in fixed])),)


def stretched(block: Any, factor: float, along: One, *fixed: One) -> Any:
    """Keep a multiple of predictors, to which others may be added."""
    f = factor * along.f
    return One(f + fixed[0].f if fixed else f), ()


def less(block: Any, small: None, whole: One, part: One) -> Any:
    """Keep the difference of two vectors."""
    return One(whole.f - part.f), ()


def heavier(block: Any, limit: float) -> Any:
    """Count the rows whose weight is above a limit."""
    return (block.sums((block.weight > limit).astype(float)),)


def messages(block: Any, face: Face, kept: Any) -> Any:
    """Keep the messages at the moments f, v that were kept; sum their part of the bound."""
    message = face(block, kept.f, kept.v)
    return RowState(kept.f, kept.v, message.w, message.b), (block.sums(message.bound),)


def messages_at(block: Any, small: tuple[Face, Array, Any]) -> Any:
    """Keep the moments under coefficients of a mean and a root, and the messages there; sum the bound."""
    face, mean, root = small
    f, v = block.moments(mean, root)
    message = face(block, f, v)
    return RowState(f, v, message.w, message.b), (block.sums(message.bound),)


def standard(block: Any, small: tuple[Face, float]) -> Any:
    """Keep the messages at predictors of mean zero and a given variance."""
    face, square = small
    message = face(block, block.full(0.0), block.full(square))
    return Messages(message.w, message.b), ()


def smoothed(block: Any, small: tuple[Face, Array, float]) -> Any:
    """Keep predictors at given coefficients with a given variance, and the messages there; sum the bound."""
    face, beta, square = small
    f, v = block.matvec(beta), block.full(square) + block.excess(beta)
    message = face(block, f, v)
    return RowState(f, v, message.w, message.b), (block.sums(message.bound),)


def expected_bound(block: Any, face: Face, kept: Any) -> Any:
    """Sum the rows' part of the bound at the moments that were kept."""
    return (block.sums(face(block, kept.f, kept.v).bound),)
