"""What must not change Hamiltonian chains, and the parts they are made of."""

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, simulated

from softmargin.core.loop import run
from softmargin.core.visits import Moments
from softmargin.engines.sampling.hmc import hmc as module
from softmargin.engines.sampling.hmc.hmc import diagnostics, hmc
from softmargin.engines.sampling.hmc.rows import Copied, Direct, rows_for, two_lines
from softmargin.losses import Hinge
from softmargin.priors import Horseshoe, Lasso, Ridge
from softmargin.rows import in_memory


def states(model, engine, sweeps):
    state = run(engine, model, max_iter=sweeps).state
    state = [engine.complete(model, chain, k, sweeps) for k, chain in enumerate(state)]
    return [(chain.beta, chain.prior.values["scale"], chain.mean, chain.loglik, chain.f) for chain in state]


def assert_bitwise(left, right):
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("prior", [Ridge(), Horseshoe()])
def test_blocks_and_workers_change_nothing(monkeypatch, copied, prior):
    monkeypatch.setattr(in_memory, "HOME", 1 << 24 if copied else 0)
    X, y = simulated(5_000, 4, seed=6)
    plain = build(X, y, prior=prior, seed=7)
    engine = hmc(plain, 6)
    expected = states(plain, engine, 4)
    for n_blocks, workers in ((3, 1), (None, 2)):
        model = build(X, y, prior=prior, seed=7, n_blocks=n_blocks, workers=workers)
        try:
            assert_bitwise(states(model, engine, 4), expected)
        finally:
            model.blocks.close()


@pytest.mark.parametrize("prior", [Lasso(), Horseshoe(scale=0.5)])
def test_chains_alone_and_together(prior):
    """Chain k does not know how many others there are."""
    X, y = simulated(60, 3, seed=6)
    model = build(X, y, prior=prior, seed=7)
    together = states(model, hmc(model, 6), 40)
    assert_bitwise(states(model, hmc(model, 5), 40), together[:5])
    assert_bitwise(states(model, hmc(model, 1), 40), together[:1])
    assert all(np.abs(together[i][0] - together[j][0]).max() > 1e-3 for i in range(6) for j in range(i))


def test_interrupted_and_continued():
    X, y = simulated(60, 3, seed=6)
    model = build(X, y, prior=Lasso(), seed=7)
    engine = hmc(model, 2)
    stopped = run(engine, model, max_iter=70, callback=lambda iteration, info: iteration == 45)
    assert stopped.interrupted and stopped.n_iter == 45
    state = stopped.state
    for iteration in range(45, 70):
        state, _ = engine.step(model, state, iteration)
    whole = run(engine, model, max_iter=70).state
    np.testing.assert_array_equal([chain.beta for chain in state], [chain.beta for chain in whole])
    assert [chain.prior.values for chain in state] == [chain.prior.values for chain in whole]
    one, two = (engine.complete(model, chains[1], 1, 70).prior.precision for chains in (state, whole))
    np.testing.assert_array_equal(one, two)


def test_design_and_copy_lead_to_the_same_place(monkeypatch):
    """Sparse or dense, copied in single precision or multiplied in place: the same path up to rounding."""
    X, y = simulated(300, 5, seed=2)
    X[np.abs(X) < 0.8] = 0.0
    found = {}
    for copy in (1 << 24, 0):
        for name, columns in (("dense", X), ("sparse", sp.csr_matrix(X))):
            monkeypatch.setattr(in_memory, "HOME", copy)
            model = build(columns, y, prior=Lasso(), standardized=True, seed=4)
            state = run(hmc(model, 3), model, max_iter=3).state
            assert isinstance(state[0].own["hmc"].plan.rows, Copied if copy else Direct)
            beta = np.array([chain.beta for chain in state])
            direct = model.loss.loglik(*tiled(model, beta)).reshape(3, -1).sum(1)
            np.testing.assert_allclose([chain.loglik for chain in state], direct)
            found[name, copy] = beta
    for beta in found.values():
        np.testing.assert_allclose(beta, found["dense", 0], atol=1e-3)


def moments(model, variance):
    """A handle of predictors with given variances."""
    return model.blocks.place(Moments(np.zeros(model.n), variance))


def tiled(model, draws):
    """Arguments of a loss for all chains at once."""
    f = np.stack([model.blocks.matvec(beta) for beta in draws])
    return np.tile(model.y, len(f)), np.tile(model.c, len(f)), f.ravel()


def test_weights_are_repeated_rows():
    """The same path up to rounding, step by step."""
    X, y = simulated(50, 3, seed=9)
    times = np.random.default_rng(1).integers(1, 4, 50)
    weighted = build(X, y, c=times.astype(float), prior=Ridge(), seed=3)
    repeated = build(np.repeat(X, times, axis=0), np.repeat(y, times), prior=Ridge(), seed=3)
    one, two = ([chain.beta for chain in run(hmc(m), m, max_iter=3).state] for m in (weighted, repeated))
    np.testing.assert_allclose(two, one, atol=1e-3)


# --- parts ----------------------------------------------------------------------------------------------------


def test_two_lines_of_the_hinge():
    X, y = simulated(20, 2, seed=1)
    c = np.linspace(0.0, 3.0, 20)
    model = build(X, y, c=c)
    lines = two_lines(model)
    np.testing.assert_allclose(lines.kink[1:], y[1:], atol=1e-12)
    for f in (-3.0, -1.0, 0.2, 1.0, 4.0):
        f = np.full(20, f)
        slope = np.where(f < lines.kink, lines.left, lines.left + lines.jump)
        np.testing.assert_allclose(lines.top + slope * (f - lines.kink), Hinge().loglik(y, c, f), atol=1e-11)


@pytest.mark.parametrize(("n", "d"), [(40, 3), (500, 1100)])  # one product a block, and several
@pytest.mark.parametrize("copied", [True, False])
def test_pull_is_a_mean_score(monkeypatch, copied, n, d):
    """The smoothed score is the difference quotient of the log pseudo-likelihood over twice the width, row by row."""
    monkeypatch.setattr(in_memory, "HOME", 1 << 24 if copied else 0)
    X, y = simulated(n, d, seed=1)
    c = np.random.default_rng(0).uniform(0.2, 2.0, n)
    model, kappa = build(X, y, c=c), 0.7
    variance = np.random.default_rng(1).uniform(0.1, 2.0, n)
    beta = np.random.default_rng(2).standard_normal((5, d + 1)) * (3.0 / d) ** 0.5
    point = rows_for(model, moments(model, variance), certain=False).point(np.zeros((5, d + 1)), beta, kappa)
    Z, width = np.column_stack((np.ones(n), X)), kappa * np.sqrt(variance)
    for k in range(5):
        f = Z @ beta[k]
        ends = [-2.0 * c * np.maximum(1.0 - y * (f + sign * width), 0.0) for sign in (-1.0, 1.0)]
        score = (ends[1] - ends[0]) / (2.0 * width)
        rounding = 1e-6 * float(np.abs(Z).max() * np.abs(score).sum())
        np.testing.assert_allclose(point.pull[k], Z.T @ score, rtol=1e-5, atol=min(rounding, 1e-3))
        assert point.loglik[k] == pytest.approx(-2.0 * (c * np.maximum(1.0 - y * f, 0.0)).sum())


def test_rows_that_are_certain_enter_as_a_constant(monkeypatch):
    """The same score wherever they are on the side that was expected, and the exact density everywhere."""
    X, y = simulated(300, 3, seed=1)
    model, kappa = build(X, y), 0.5
    beta = np.array([0.2, 1.5, -0.5, 0.8])
    f, variance = model.blocks.matvec(beta), np.full(300, 0.04)
    here = beta + 0.05 * np.random.default_rng(2).standard_normal((5, 4))
    at = model.blocks.place(Moments(f, variance))
    some, all_rows = rows_for(model, at), rows_for(model, at, certain=False)
    assert some.moving < 0.7 * all_rows.moving
    few, full = (rows.point(np.zeros((5, 4)), here, kappa) for rows in (some, all_rows))
    np.testing.assert_allclose(few.pull, full.pull, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(few.loglik, full.loglik)
    far, everywhere = (rows.point(np.zeros((1, 4)), -beta[None], kappa) for rows in (some, all_rows))
    assert np.abs(far.pull - everywhere.pull).max() > 1.0
    np.testing.assert_allclose(far.loglik, everywhere.loglik)


@pytest.mark.parametrize("prior", [Ridge(), Lasso(scale=0.5)])
@pytest.mark.parametrize("copied", [True, False])
def test_transitions_ahead_or_one_by_one(monkeypatch, prior, copied):
    monkeypatch.setattr(in_memory, "HOME", 1 << 24 if copied else 0)
    X, y = simulated(60, 3, seed=6)
    model = build(X, y, prior=prior, seed=7)
    engine = hmc(model, 5)
    together = states(model, engine, 40)
    monkeypatch.setattr(module, "_SMALL", 0.0)
    assert_bitwise(states(model, engine, 40), together)
    tally = run(engine, model, max_iter=40).state[0].own["hmc"].tally
    monkeypatch.undo()
    assert tally.moves == 40
    np.testing.assert_allclose(run(engine, model, max_iter=40).state[0].own["hmc"].tally.longest, tally.longest)


def test_stuck_chains_are_seen(monkeypatch):
    monkeypatch.setattr(module, "_STUCK", 25)
    X, y = simulated(60, 3, seed=6)
    model = build(X, y, seed=7)
    engine = hmc(model, 3)
    state = engine.init(model)
    state[0].own["hmc"].noise.uniform[:, 1] = 2.0  # chain 1 is refused everything
    for iteration in range(32):
        state, _ = engine.step(model, state, iteration)
    found = diagnostics(state)
    assert found["stuck"].tolist() == [False, True, False]
    assert found["longest_rejection"][1] == 32
    assert found["acceptance"].shape == (3,) and found["steps"] >= 1
