"""The prior's own variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import MoveBase
from softmargin.rows.streams import Purpose

__all__ = ["PriorLocals", "PriorVariables"]


@dataclass(frozen=True)
class PriorVariables(MoveBase):
    """The scale given the coefficients, local variables integrated out; then the local variables given both.

    Invariance: one draw from the conditional of all prior variables given the coefficients, made as a marginal and a
    conditional draw.
    """

    reads = frozenset({"beta"})
    renews = frozenset({"scale", "local"})
    needs_prior = ("draw",)

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new variables of the prior."""
        return chain._replace(prior=model.prior.draw(random.at(Purpose.PRIOR), chain.prior, chain.beta))


@dataclass(frozen=True)
class PriorLocals(MoveBase):
    """The local variables alone, given the coefficients and the scale.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"beta", "scale"})
    renews = frozenset({"local"})
    needs_prior = ("draw", "at_scale")

    def __call__(self, random: Any, model: Model, chain: Chain) -> Chain:
        """The chain with new local variables."""
        given = model.prior.at_scale(chain.prior.values["scale"])
        drawn = given.draw(random.at(Purpose.PRIOR, cell=1), chain.prior, chain.beta)
        return chain._replace(prior=chain.prior._replace(precision=drawn.precision))
