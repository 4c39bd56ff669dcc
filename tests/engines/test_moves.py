"""Every move of the shared list leaves the posterior invariant; moves that do not are seen."""

from dataclasses import dataclass

import pytest
from move_list import LASSO, MOVES, linear

from softmargin.checks import check_move
from softmargin.core.move import Move
from softmargin.engines.sampling.moves.axes import AxisMoves
from softmargin.engines.sampling.moves.coefficients import Coefficients
from softmargin.engines.sampling.moves.scale import ScaleMove


@pytest.mark.parametrize("name", MOVES)
def test_a_move_leaves_the_posterior_invariant(name):
    move, model, propose, *observe = MOVES[name]()
    assert isinstance(move, Move)
    check_move(move, model, propose=propose, observe=next(iter(observe), None))


@pytest.mark.parametrize("name", MOVES)
def test_a_move_says_how_it_is_invariant(name):
    assert "Invariance:" in type(MOVES[name]()[0]).__doc__


@dataclass(frozen=True)
class TooLong(ScaleMove):
    """Coefficients that grow every time."""

    def __call__(self, random, model, chain):
        new = super().__call__(random, model, chain)
        return new._replace(beta=1.3 * new.beta, rows=model.placed(1.3 * new.f))


@dataclass(frozen=True)
class Silent(AxisMoves):
    """Leaves local variables that belong to the old coefficients, and does not say so."""

    stale = frozenset({"loglik"})


@dataclass(frozen=True)
class OldPredictors(Coefficients):
    """Forgets that the predictors have changed."""

    def __call__(self, random, model, chain):
        return super().__call__(random, model, chain)._replace(rows=chain.rows)


@pytest.mark.parametrize(
    ("move", "what"),
    [(TooLong(), "coefficients"), (Silent(), "local variables"), (OldPredictors(), "predictors are not")],
    ids=["too long", "silent", "old predictors"],
)
def test_wrong_moves_are_seen(move, what):
    with pytest.raises(AssertionError, match=what):
        check_move(move, linear(LASSO))
