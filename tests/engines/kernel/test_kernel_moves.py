"""Single moves of kernel expansions: wrong ones are seen, wrong orders are refused, and factors follow the chain."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from kernel_moves import KERNEL_MOVES, LENGTH, NOISY, PRIOR, N, active, data, machine, seen, seen_machine

from softmargin.checks import check_move
from softmargin.core.move import check_order
from softmargin.engines.kernel.active_chain import ActiveChain, factor
from softmargin.engines.kernel.active_set import Jumps
from softmargin.engines.kernel.coefficients import BasisCoefficients, LawOfCoefficients
from softmargin.engines.kernel.latents import CollapsedLatents, CopyLatents, RowLatents
from softmargin.engines.kernel.length import LengthMove
from softmargin.engines.kernel.machines import (
    LocalPrecisions,
    MachineCoefficients,
    MachineLaw,
    NoiseLevel,
    NoisyLatents,
)
from softmargin.engines.kernel.precisions import Precisions, Stretch
from softmargin.losses import Hinge, Logit, NoisyHinge, Probit
from softmargin.rows.streams import Address

TWICE = 6000  # chains: what must be seen is seen by twice as many as must not be seen


@dataclass(frozen=True)
class OtherOdds(Jumps):
    """Jumps under another prior of the active set."""

    def __call__(self, random, model, chain):
        return super().__call__(random, replace(model, prior=replace(PRIOR, inclusion=(5.0, 1.0))), chain)


@dataclass(frozen=True)
class SilentJumps(Jumps):
    """Leaves coefficients that belong to the old active set, and does not say so."""

    stale = frozenset({"loglik"})


@dataclass(frozen=True)
class SilentLatents(CollapsedLatents):
    """Leaves coefficients that belong to the old latents, and does not say so."""

    stale = frozenset({"loglik"})


@dataclass(frozen=True)
class OldLaw(BasisCoefficients):
    """Coefficients from their law at other precisions."""

    def __call__(self, random, model, chain):
        law = chain.law._replace(L=2.0 * chain.law.L, z=0.5 * chain.law.z)
        return super().__call__(random, model, chain._replace(law=law))


@dataclass(frozen=True)
class LengthWithoutPrior(LengthMove):
    """A random walk that forgets the prior of the length."""

    def __call__(self, random, model, chain):
        flat = replace(self, scale=replace(self.scale, spread=1e6))
        return LengthMove(flat.scale)(random, model, chain)


@dataclass(frozen=True)
class OneTooMany(Precisions):
    """g as if there were one coefficient more."""

    def __call__(self, random, model, chain):
        new = super().__call__(random, model, chain)
        alpha = chain.x[1:]
        return new._replace(g=PRIOR.draw_g(random.rng, float(alpha @ alpha), len(alpha) + 1))


@dataclass(frozen=True)
class FixedPrecision(Stretch):
    """Coefficients that are stretched without their precision."""

    def __call__(self, random, model, chain):
        return super().__call__(random, model, chain)._replace(g=chain.g)


@dataclass(frozen=True)
class NoiseOfTheCoefficients(NoiseLevel):
    """Noise from the residuals at the mean of the coefficients, as if nothing were integrated out."""

    def __call__(self, random, model, chain):
        X = model.copies.X
        z = chain.z - X @ np.linalg.solve(chain.L.T, chain.fitted)
        return super().__call__(random, model, chain._replace(z=z, fitted=0.0 * chain.fitted))._replace(z=chain.z)


@dataclass(frozen=True)
class OtherUnits(LocalPrecisions):
    """Precisions that are not in units of the noise."""

    def __call__(self, random, model, chain):
        return super().__call__(random, model, chain._replace(noise=2.0 * chain.noise))._replace(noise=chain.noise)


WRONG = [
    (OtherOdds(N, 3), Logit(), "indicators"),
    (SilentJumps(N, 3), Hinge(), "coefficients|predictors"),
    (SilentLatents(), Probit(), "latents"),
    (OldLaw(), Hinge(), "coefficients|predictors"),
    (LengthWithoutPrior(LENGTH), Probit(), "unknowns"),
    (OneTooMany(), Logit(), "scale"),
    (FixedPrecision(), Hinge(), "scale"),
]


@pytest.mark.parametrize(("move", "loss", "what"), WRONG, ids=[type(each[0]).__name__ for each in WRONG])
def test_wrong_moves_are_seen(move, loss, what):
    model, length = data(loss), LENGTH if isinstance(move, LengthMove) else None
    with pytest.raises(AssertionError, match=what):
        check_move(move, model, propose=active(model, length), observe=seen, draws=TWICE)


@pytest.mark.parametrize(("move", "what"), [(NoiseOfTheCoefficients(), "scale"), (OtherUnits(), "local variables")])
def test_wrong_moves_of_a_machine_are_seen(move, what):
    model = data(NoisyHinge(), NOISY)
    with pytest.raises(AssertionError, match=what):
        check_move(move, model, propose=machine(model), observe=seen_machine, draws=TWICE)


def test_the_order_printed_in_the_paper_is_refused():
    """Latents, precisions, coefficients, active set: the precisions read coefficients that are integrated out."""
    latents, law = (CopyLatents(), LawOfCoefficients(), CollapsedLatents()), LawOfCoefficients()
    with pytest.raises(ValueError, match=r"Precisions reads the coefficients.*CollapsedLatents"):
        check_order((*latents, Precisions(), law, BasisCoefficients(), Jumps(N, 1)))
    assert "beta" not in check_order((*latents, Jumps(N, 1), BasisCoefficients(), Precisions(), Stretch()))


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ((RowLatents(), Jumps(N, 1), BasisCoefficients()), "Jumps reads the normal law"),
        ((LawOfCoefficients(), BasisCoefficients(), Stretch()), "LawOfCoefficients reads the row latents"),
        ((RowLatents(), LawOfCoefficients(), Jumps(N, 1)), "RowLatents reads the linear predictors"),
        ((NoisyLatents(), MachineLaw(), NoiseLevel(), LocalPrecisions()), "LocalPrecisions reads the coefficients"),
        ((NoisyLatents(), MachineCoefficients()), "MachineCoefficients reads the normal law"),
    ],
)
def test_orders_that_read_something_stale_are_refused(moves, message):
    with pytest.raises(ValueError, match=message):
        check_order(moves)


@pytest.mark.parametrize("name", KERNEL_MOVES)
def test_basis_law_and_predictors_follow_the_chain(name):
    """What is not stale is what it would be from scratch."""
    move, model, propose, _ = KERNEL_MOVES[name]()
    rng = np.random.default_rng(1)
    for iteration in range(1, 31):
        chain = move(Address(model.streams, 0, iteration, rng), model, propose(rng)[0])
        if not isinstance(chain, ActiveChain):
            continue
        G, R = factor(chain.K, chain.active)
        np.testing.assert_allclose(chain.G, G, atol=1e-9)
        np.testing.assert_allclose(chain.R, R, atol=1e-9)
        if "law" not in move.stale:
            np.testing.assert_allclose(chain.law.gram, (G * chain.w) @ G.T, atol=1e-9)
            np.testing.assert_allclose(np.tril(chain.law.L) @ chain.law.z, G @ chain.b, atol=1e-9)
            assert (chain.law.eta, chain.law.g) == (chain.eta, chain.g)
        if "f" not in move.stale:
            np.testing.assert_allclose(chain.f, chain.x @ G, atol=1e-9)
        if "loglik" in move.renews:
            assert chain.loglik == pytest.approx(float(model.loss.loglik(model.y, model.c, chain.f).sum()))
