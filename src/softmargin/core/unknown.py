"""What is not known beside the coefficients, and how engines meet it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from softmargin.core.array import Array
from softmargin.core.capabilities import Part
from softmargin.core.loss import Loss, Message, Rows
from softmargin.core.model import Model

__all__ = ["Seen", "Unknown", "implied"]


class Seen(NamedTuple):
    """What an approximation of the coefficients tells an unknown."""

    mean: Array  # of the coefficients
    root: Any  # of their covariance
    rows: Any  # handle of a RowState: moments of the predictors and messages, with the rows
    face: str  # of the loss that the messages come from: "expect" or "gaussian"
    mode: bool  # whether a point is wanted in place of a density

    @property
    def message(self) -> Rows:
        """Row messages, fetched from the rows."""
        message: Rows = self.rows.fetch().message
        return message

    def of(self, loss: Loss) -> Callable[..., Message]:
        """The face of a loss, this or another, that the messages come from."""
        return loss.gaussian if self.face == "gaussian" else loss.expect


class Unknown(Part, ABC):
    """Whatever is not known beside the coefficients: a noise level, missing entries.

    Its state is a small immutable record; ``apply`` says which model it implies. Nothing else in the library knows that
    the unknown exists.
    """

    changes_rows: bool = False  # whether another state means other columns, and not just other weights or another loss

    @abstractmethod
    def start(self, model: Model) -> Any:
        """A state to begin with."""

    @abstractmethod
    def apply(self, model: Model, state: Any) -> Model:
        """The model that a state implies."""

    @abstractmethod
    def expect(self, model: Model, state: Any, seen: Seen, *, careful: bool = False) -> tuple[Any, float]:
        """Its best density (or point) given the coefficients' moments, and its part of the objective.

        ``model`` has the other unknowns applied. ``careful`` asks for a smaller change, after one that did not pay.
        """

    @abstractmethod
    def draw(self, random: Any, model: Model, state: Any, chain: Any) -> tuple[Any, Any]:
        """A draw given the rest of a chain, or an update of both that leaves their joint density invariant.

        ``random.at(purpose, cell)`` is the generator of this chain and iteration; ``model`` has the other unknowns
        applied; ``chain`` has ``beta`` and ``f``, and row latents integrated out.
        """

    def drawn(self, state: Any) -> Any:
        """A chain's state to begin with, near a state of a variational fit: the same, unless it says otherwise."""
        return state

    def log_normalizer(self, model: Model, state: Any) -> float:
        """What the state takes off the log likelihood beside the weights and the loss that it implies."""
        return 0.0

    def noted(self, state: Any) -> dict[str, float]:
        """Numbers of a state, drawn or not, that are worth recording."""
        return {}

    def collector(self) -> Any:
        """An object with ``add(state)`` that sums up drawn states, or None."""
        return None


def implied(model: Model, states: tuple[Any, ...], *, without: int | None = None) -> Model:
    """The model that the states of all unknowns imply, all of them known; ``without`` leaves one of them out."""
    now = model.with_unknowns(())
    for place, (unknown, state) in enumerate(zip(model.unknowns, states, strict=True)):
        if place != without:
            now = unknown.apply(now, state)
    return now
