"""Stochastic variational inference against fits of all rows, repeated rows, and its own memory."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, real_data, separable, simulated

from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.designs.kernel.inducing import Inducing, inducing_map
from softmargin.designs.kernel.kernels import resolve
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.inducing import InducingModel, fit_inducing
from softmargin.engines.vi.stochastic import SVI, Sums, SVIState, posterior_of
from softmargin.engines.vi.stochastic_fit import fit_svi, full_bound
from softmargin.loo.stochastic_cavity import held_out
from softmargin.losses import Hinge, Logit, Probit
from softmargin.priors import Lasso, Ridge, SpikeSlab
from softmargin.rows.in_memory import Blocks
from softmargin.rows.permutation import shuffled
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

LOSSES = {"hinge": Hinge(), "logit": Logit(), "probit": Probit()}


def curved(n, seed=0, p=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    f = 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 - 1.0 + X[:, 1] * X[:, 2]
    return X, np.where(f + 0.7 * rng.logistic(size=n) > 0.0, 1.0, -1.0)


def kernel_model(X, y, *, c=0.25, loss=None, prior=None, size=30, length=2.5, seed=0, held=False):
    features = inducing_map(resolve("rbf", length, np.asarray(X[:50])), X, size, np.random.default_rng(1))
    design = features.design(X) if held else Inducing(features, X)
    free = np.zeros(design.shape[1], dtype=bool)
    free[0] = True
    weight = np.broadcast_to(np.asarray(c, dtype=float), y.shape).copy()
    prior = Ridge() if prior is None else prior
    blocks, streams = Blocks(design, y, weight), Streams.from_random_state(seed)
    return InducingModel(blocks, loss or Hinge(), prior.bind(free), free, streams, Full())


def as_state(model, outcome):
    """The state of a fit of all rows."""
    state, n, rest = outcome.state, len(model.y), model.blocks.design.rest
    A, c = model.blocks.gram(state.message.w, state.message.b)
    sums = Sums(A / n, c / n, float(state.message.w @ rest) / n)
    return SVIState(sums, state.q, state.prior, float(n), float(n), 4.0, state.data / n)


# --- the order of the rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1000, 4097])
def test_shuffled_is_a_permutation(n):
    orders = [shuffled(np.arange(n), n, np.random.default_rng(seed)) for seed in range(2)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
    second_half = shuffled(np.arange(n // 2, n), n, np.random.default_rng(0))
    np.testing.assert_array_equal(second_half, orders[0][n // 2 :])
    if n >= 1000:
        assert (orders[0] == orders[1]).mean() < 0.01
        # neighbours end up apart and a stretch is a fair sample
        assert abs(np.corrcoef(orders[0][:-1], orders[0][1:])[0, 1]) < 4.0 / math.sqrt(n)
        assert abs(orders[0][: n // 4].mean() / n - 0.5) < 4.0 * math.sqrt(1.0 / 12.0 / (n // 4))


# --- the fixed point ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("mean_field", [False, True])
def test_the_fit_of_all_rows_is_a_fixed_point(loss, mean_field):
    X, y = curved(300)
    model = kernel_model(X, y, loss=loss, held=True)
    outcome = fit_inducing(model, engine=MeanField() if mean_field else GaussianVI(), tol=1e-14)[1]
    state = as_state(model, outcome)
    new, info = SVI(batch=300, mean_field=mean_field).step(model, state, 0)
    np.testing.assert_allclose(new.q.mean, state.q.mean, atol=2e-5)
    np.testing.assert_allclose(new.q.root, state.q.root, atol=2e-5)
    assert new.prior.values["scale"] == pytest.approx(state.prior.values["scale"], rel=1e-5)
    assert info.objective == pytest.approx(outcome.trace[-1], rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_steps_on_all_rows_come_to_the_fit_of_all_rows(loss):
    X, y = curved(300)
    model = kernel_model(X, y, loss=loss, held=True, prior=Ridge(scale=2.0))
    wanted = fit_inducing(model, tol=1e-13)[1]
    state = as_state(model, wanted)
    start = state._replace(sums=Sums(0.2 * state.sums.A, -state.sums.c, state.sums.rest), batches=0.5)
    q, prior = posterior_of(model, start.sums, 300.0, state.q, state.prior)
    outcome = run(SVI(batch=300, decay=0.6), model, max_iter=150, state=start._replace(q=q, prior=prior))
    np.testing.assert_allclose(outcome.state.q.mean, wanted.state.q.mean, atol=1e-4)
    assert outcome.trace[-1] == pytest.approx(wanted.trace[-1], rel=1e-5)


def test_a_step_is_a_natural_gradient_step():
    X, y = curved(80)
    model = kernel_model(X, y, held=True, prior=Ridge(scale=2.0), size=4)
    design, loss = model.blocks.design, model.loss
    state = SVI(batch=80, first=40).init(model)
    state = state._replace(rows=80.0)
    q, prior = posterior_of(model, state.sums, 80.0, state.q, state.prior)
    state = state._replace(q=q, prior=prior, batches=7.0)
    new, _ = SVI(batch=80, decay=1.0).step(model, state, 0)
    # gradient of the bound in the mean parameters (m, S + m m'), by differences in m and S
    D = prior.precision
    rows = design.rows(np.arange(80))

    def bound(mean, covariance):
        v = np.einsum("ij,jk,ik->i", rows, covariance, rows) + 4.0 * design.rest
        fit = loss.gaussian(model.y, model.c, rows @ mean, v).bound.sum()
        return fit - 0.5 * D @ (mean**2 + covariance.diagonal()) + 0.5 * np.linalg.slogdet(covariance)[1]

    mean, covariance, step = q.mean, q.root @ q.root.T, 1e-6
    in_mean = [
        (bound(mean + step * e, covariance) - bound(mean - step * e, covariance)) / (2 * step) for e in np.eye(5)
    ]
    in_covariance = np.empty((5, 5))
    for i in range(5):
        for j in range(5):
            change = np.zeros((5, 5))
            change[i, j] += 0.5 * step
            change[j, i] += 0.5 * step
            in_covariance[i, j] = (bound(mean, covariance + change) - bound(mean, covariance - change)) / (2 * step)
    precision = np.linalg.inv(covariance)
    wanted_precision = precision - 2.0 / 8.0 * in_covariance
    wanted_linear = precision @ mean + (np.array(in_mean) - 2.0 * in_covariance @ mean) / 8.0
    got_precision = np.linalg.inv(new.q.root @ new.q.root.T)
    np.testing.assert_allclose(got_precision, wanted_precision, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got_precision @ new.q.mean, wanted_linear, rtol=1e-4, atol=1e-4)


# --- as good as all rows at once ------------------------------------------------------------------------------


# the mean-field map of the probit, whose latent is the predictor with noise, is slow whatever the batches
@pytest.mark.parametrize(
    ("loss", "mean_field"), [(Hinge(), False), (Logit(), False), (Probit(), False), (Hinge(), True), (Logit(), True)]
)
def test_batches_reach_the_bound_of_all_rows(loss, mean_field):
    X, y = curved(4000)
    model = kernel_model(X, y, loss=loss, held=True)
    full = fit_inducing(model, engine=MeanField() if mean_field else GaussianVI())[1]
    engine = SVI(batch=200, first=400, mean_field=mean_field)
    fit = fit_svi(model, engine, epochs=5)
    bound = full_bound(fit, engine)
    assert full.trace[-1] * 1.002 < bound < full.trace[-1] + 1e-3
    assert len(fit.outcome.trace) == fit.outcome.n_iter == 100
    assert fit.state.rows == 4000.0


def test_batches_reach_the_bound_on_banana():
    X, y = real_data("banana")
    model = kernel_model(X, y, size=60, length=1.2, held=True)
    full = fit_inducing(model)[1].trace[-1]
    assert full * 1.005 < full_bound(fit_svi(model), SVI()) < full + 1e-3


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("prior", [Ridge(), Ridge(scale=0.7), Lasso()], ids=["learned", "fixed", "lasso"])
def test_linear_columns(sparse, prior):
    X, y = simulated(3000, 8, seed=2)
    X = sp.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0)) if sparse else X
    model = build(X, y, c=0.5, prior=prior, standardized=True)
    full = run(GaussianVI(), model, max_iter=300, tol=1e-9).state
    engine = SVI(batch=150, first=300)
    fit = fit_svi(model, engine, epochs=6)
    assert full.bound * 1.001 < full_bound(fit, engine) < full.bound + 1e-4
    sd = np.sqrt(full.q.var)
    assert np.abs((fit.state.q.mean - full.q.mean) / sd).max() < 0.25
    np.testing.assert_allclose(np.sqrt(fit.state.q.var), sd, rtol=0.05)


def test_weights_are_repeated_rows():
    X, y = curved(1500)
    count = np.arange(1500) % 3 + 1
    again = np.repeat(np.arange(1500), count)
    engine = SVI(batch=100, first=500)
    weighted = kernel_model(X, y, c=0.25 * count)
    repeated = Model(
        Blocks(Inducing(weighted.blocks.design.map, X[again]), y[again], np.full(len(again), 0.25)),
        weighted.loss,
        weighted.prior,
        weighted.free,
        weighted.streams,
        Full(),
    )
    one, other = (full_bound(fit_svi(model, engine, epochs=5), engine) for model in (weighted, repeated))
    assert one == pytest.approx(other, rel=1e-3)
    unweighted = fit_svi(kernel_model(X, y), engine, epochs=5)
    assert abs(one / full_bound(unweighted, engine) - 1.0) > 0.5  # a weight of 2 on average


def test_separable_rows():
    X, y = separable(n=2000)
    model = build(X, y, c=0.25, prior=Ridge())
    full = run(GaussianVI(), model, max_iter=300, tol=1e-9).state.bound
    engine = SVI(batch=100, first=300)
    assert full * 1.01 < full_bound(fit_svi(model, engine, epochs=8), engine) < full + 1e-4


def test_a_row_far_from_all_others_does_not_throw_the_rest_away():
    X, y = simulated(2000, 4, seed=5)
    plain = run(GaussianVI(), build(X, y, c=0.25, prior=Ridge()), max_iter=300).state
    far, label = np.vstack((X, np.full((1, 4), 1e4))), np.append(y, -np.sign(plain.q.mean[1:].sum()))
    fit = fit_svi(build(far, label, c=0.25, prior=Ridge()), SVI(batch=100, first=300), epochs=4)
    f = fit.model.blocks.matvec(fit.state.q.mean)[:-1]
    assert np.mean(y * f < 0.0) < np.mean(y * plain.f < 0.0) + 0.05


# --- seeds, more rows, memory ---------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers():
    X, y = curved(1000)
    engine = SVI(batch=100, first=200)
    one, same, other = (fit_svi(kernel_model(X, y, seed=seed), engine, epochs=2).state for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.q.mean, same.q.mean)
    assert one.bound == same.bound
    assert np.abs(one.q.mean - other.q.mean).max() > 1e-6


def test_rows_that_come_later():
    X, y = curved(6000)
    engine = SVI(batch=100, first=500)
    whole = kernel_model(X, y, prior=Ridge(scale=2.0))

    def part(lo, hi):
        blocks = Blocks(Inducing(whole.blocks.design.map, X[lo:hi]), y[lo:hi], whole.c[lo:hi])
        return Model(blocks, whole.loss, whole.prior, whole.free, whole.streams, Full())

    fit = fit_svi(part(0, 1000), engine, epochs=5)
    assert fit.state.rows == 1000.0
    early = full_bound(fit._replace(model=whole), engine)
    for lo in range(1000, 6000, 50):  # fewer rows than a batch
        fit = fit_svi(part(lo, lo + 50), engine, state=fit.state)
    assert fit.state.rows == 6000.0
    full = fit_inducing(whole)[1].trace[-1]
    late = full_bound(fit._replace(model=whole), engine)
    assert full * 1.005 < late < full
    assert early < full * 1.02


def test_a_run_can_be_gone_on_with():
    X, y = curved(1000)
    model, engine = kernel_model(X, y), SVI(batch=100, first=200)
    whole = run(engine, model, max_iter=15)
    first = run(engine, model, max_iter=6).state
    for iteration in range(6, 15):
        first, info = engine.step(model, first, iteration)
    np.testing.assert_array_equal(first.q.mean, whole.state.q.mean)
    assert info.objective == whole.trace[-1]


def test_memory_does_not_grow_with_the_rows(tmp_path):
    peaks = []
    for n in (6000, 48_000):
        X, y = curved(n)
        np.save(tmp_path / "X.npy", X)
        del X
        model = kernel_model(np.load(tmp_path / "X.npy", mmap_mode="r"), y, size=10)
        engine = SVI(batch=500, first=1000)
        tracemalloc.start()
        try:
            fit = fit_svi(model, engine, epochs=1)
            full_bound(fit, engine)
            held_out(fit, engine, np.broadcast_to(1.0, n), rows=2000)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000  # 42,000 more rows of one number each would be 336,000 bytes


# --- predictors without their rows ----------------------------------------------------------------------------


def test_held_out_predictors_are_those_of_fits_without_the_row():
    X, y = curved(150)
    model = kernel_model(X, y, prior=Ridge(scale=1.0), size=10, held=True)
    wanted = fit_inducing(model, tol=1e-12)[1]
    engine = SVI(batch=150)
    fit = fit_svi(model, engine, epochs=1)._replace(state=as_state(model, wanted))
    rows, f, v, share = held_out(fit, engine, np.ones(150))
    np.testing.assert_array_equal(rows, np.arange(150))
    assert 0.0 < share < 1.0
    worst = np.argsort(-np.abs(f - wanted.state.f))[:5]  # rows that matter most
    for i in worst:
        c = model.c.copy()
        c[i] = 1e-12
        without = fit_inducing(kernel_model(X, y, c=c, prior=Ridge(scale=1.0), size=10, held=True), tol=1e-12)[1].state
        assert abs(f[i] - without.f[i]) < 0.2 * abs(wanted.state.f[i] - without.f[i])
        assert v[i] == pytest.approx(without.v[i], rel=0.1)
    some, f_some, _, _ = held_out(fit, engine, np.ones(150), rows=20)
    assert len(some) == 20
    np.testing.assert_allclose(f_some, f[some], rtol=1e-10)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="batch and first must be at least 1"):
        SVI(batch=0)
    with pytest.raises(ValueError, match=r"decay must be above 0\.5"):
        SVI(decay=0.3)
    X, y = simulated(60, 3)
    model = build(X, y)
    selecting = SpikeSlab().bind(model.free)
    with pytest.raises(TypeError, match="choose another inference"):
        fit_svi(model.with_prior(selecting))
