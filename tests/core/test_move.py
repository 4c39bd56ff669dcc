"""The order of moves: what one has integrated out, the next must not read."""

from dataclasses import dataclass

import numpy as np
import pytest

from softmargin.core.move import MoveBase, check_order
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.moves.coefficients import Coefficients, from_rows
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.prior_variables import PriorLocals, PriorVariables
from softmargin.engines.sampling.moves.scale import ScaleMove


@dataclass(frozen=True)
class ScaleAlone(MoveBase):
    """The scale given the coefficients, local variables integrated out and left as they were."""

    reads = frozenset({"beta"})
    renews = frozenset({"scale"})
    stale = frozenset({"local"})

    def __call__(self, random, model, chain):
        values = model.prior.draw(random.rng, chain.prior, chain.beta).values
        return chain._replace(prior=chain.prior._replace(values=values))


def test_the_printed_order_is_refused():
    """Local variables, then the scale without them, then coefficients given local variables that are stale."""
    with pytest.raises(ValueError, match=r"Coefficients reads the local variables.*ScaleAlone.*integrated out"):
        Chains((PriorLocals(), ScaleAlone(), Coefficients()), from_rows)


def test_the_right_order_is_taken():
    assert check_order((ScaleAlone(), PriorLocals(), Coefficients())) == frozenset()
    assert check_order((ScaleMove(), Interweave(), PriorVariables(), Coefficients())) == frozenset()


def test_sweeps_follow_each_other():
    """What the last move leaves stale, the first one of the next sweep must not read."""
    with pytest.raises(ValueError, match="Coefficients reads the local variables"):
        check_order((Coefficients(), PriorVariables(), ScaleMove()))
    assert check_order((PriorVariables(), Coefficients(), ScaleMove())) == {"local", "loglik"}


def test_words_that_no_chain_has_are_refused():
    @dataclass(frozen=True)
    class Other(MoveBase):
        reads = frozenset({"betta"})

    with pytest.raises(ValueError, match=r"Other names \['betta'\]; a chain has beta"):
        check_order((Other(),))


def test_a_stale_log_likelihood_is_made_anew():
    from engine_problems import build, simulated

    X, y = simulated(30, 2, seed=1)
    model = build(X, y, seed=2)
    engine = Chains((PriorVariables(), Coefficients(), ScaleMove()), from_rows, 2)
    state = engine.init(model)
    for iteration in range(3):
        state, info = engine.step(model, state, iteration)
    direct = [model.loss.loglik(model.y, model.c, model.blocks.matvec(chain.beta)).sum() for chain in state]
    np.testing.assert_allclose([chain.loglik for chain in state], direct, rtol=1e-12)
    assert info.objective == pytest.approx(np.mean(direct))
