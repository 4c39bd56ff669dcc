"""Two unknowns at once beside the coefficients: one objective, raised by every part."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from engine_problems import build, log_integral
from missing_problems import LEVEL, noisy_column, noisy_column_grid, with_holes
from parts import ENGINES

from softmargin.core.loop import Info, run
from softmargin.core.unknown import Unknown, implied
from softmargin.engines.alternate import Alternate
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import EpsilonInsensitive, Squared
from softmargin.priors import Ridge
from softmargin.unknowns.missing import Missing
from softmargin.unknowns.noise import Noise

LOSSES = {"squared": Squared(), "epsilon": EpsilonInsensitive(0.3)}


def responses(loss, prior=None, n=60):
    """Numbers that depend on columns with holes, and noise whose level and band are not known."""
    X = with_holes(n=n).blocks.design.X
    y = np.nan_to_num(X) @ [1.0, -0.6, 0.4] + 0.5 * np.random.default_rng(1).standard_normal(n)
    width = LEVEL if hasattr(loss, "width") else None
    unknowns = (Noise(LEVEL, width_prior=width), Missing())
    return replace(build(X, y, prior=prior or Ridge(), c=np.linspace(0.5, 1.5, n)), loss=loss, unknowns=unknowns)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ENGINES)
def test_objective_never_falls(name, loss):
    model = responses(LOSSES[loss])
    engine = Alternate(ENGINES[name], mode=name == "em")
    outcome = run(engine, model, max_iter=60, tol=1e-12)
    assert outcome.trace[0] >= engine.init(model).objective - 1e-9
    assert np.diff(outcome.trace).min() > -1e-9
    assert outcome.change < 1e-5


@pytest.mark.parametrize("name", ["vb", "meanfield"])
def test_parts_do_not_depend_on_their_order(name):
    """Noise first or entries first: one end, with the same noise and the same entries."""
    model = responses(Squared(), Ridge(scale=0.8))
    found = []
    for unknowns in (model.unknowns, model.unknowns[::-1]):
        state = run(Alternate(ENGINES[name]), model.with_unknowns(unknowns), max_iter=500, tol=1e-13).state
        noise, entries = state.unknowns if unknowns is model.unknowns else state.unknowns[::-1]
        found.append((state.objective, noise.weight, entries.cells().mean, state.inner.q.mean))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-7)
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("name", ["vb", "meanfield"])
def test_objective_lies_below_the_evidence(name):
    """Level, entries, covariates and slope integrated out by quadrature."""
    model = noisy_column()
    axes, log_p, _ = noisy_column_grid(model)
    state = run(Alternate(ENGINES[name]), model, max_iter=500, tol=1e-12).state
    assert 0.0 < log_integral(log_p, *axes) - state.objective < 2.0


def test_the_first_step_waits_for_no_part():
    """At the start every unknown moves: a part that is not known yet is not taken for a loss."""
    model = responses(Squared())
    state, entries = Alternate(GaussianVI()).init(model), Missing().start(model)
    assert not np.allclose(state.unknowns[1].design.dense.X, entries.design.dense.X)
    assert np.isfinite(state.parts).all()


def test_unknowns_are_what_they_say():
    model = responses(EpsilonInsensitive(0.3))
    states = tuple(unknown.start(model) for unknown in model.unknowns)
    assert all(isinstance(unknown, Unknown) for unknown in model.unknowns)
    known = implied(model, states)
    assert known.unknowns == () and not np.isnan(known.blocks.matvec(np.ones(4))).any()
    np.testing.assert_allclose(known.c, states[0].weight * model.c)
    np.testing.assert_array_equal(implied(model, states, without=0).c, model.c)


class At(NamedTuple):
    objective: float
    rows: None = None


@dataclass(frozen=True)
class Climbing:
    """An engine that gains what it is told to."""

    gains: tuple[float, ...]
    needs_loss = ("gaussian",)
    needs_prior = ()

    def init(self, model):
        return At(0.0)

    def step(self, model, state, iteration):
        return At(state.objective + self.gains[iteration]), Info(0.0, self.gains[iteration])

    def coefficients(self, state):
        return np.zeros(3), np.eye(3)

    def seen(self, model, state, *, rows):
        return state


@dataclass(frozen=True)
class Number:
    """A number of steps, which nothing depends on."""

    moves: bool
    changes_rows = False

    def start(self, model):
        return (0,)

    def apply(self, model, state):
        return model

    def expect(self, model, state, seen, *, careful=False):
        return ((state[0] + 1,) if self.moves else state), 0.0


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize(("moves", "steps"), [(True, 5), (False, 2)])
def test_one_short_step_is_not_the_end_while_unknowns_move(mode, moves, steps):
    model = build(np.eye(3), np.array([-1.0, 1.0, 1.0])).with_unknowns((Number(moves),))
    done = run(Alternate(Climbing((1.0, 1e-9, 0.5, 1e-9, 1e-9, 1.0)), mode=mode), model, max_iter=6, tol=1e-6)
    assert done.converged and done.n_iter == steps
