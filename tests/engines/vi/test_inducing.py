"""Inference with inducing points against the exact kernel, quadrature, an optimiser and repeated rows."""

import math

import numpy as np
import pytest
from engine_problems import real_data
from scipy import optimize

from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.designs import Dense
from softmargin.designs.kernel.inducing import Inducing, InducingMap, inducing_map
from softmargin.designs.kernel.kernels import resolve
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.inducing import InducingModel, best_scale, fit_inducing
from softmargin.engines.vi.length import learn_length, length_slope
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.loo.stochastic_cavity import loose_cavity
from softmargin.losses import Hinge, Logit, Probit
from softmargin.priors import HalfCauchy, InverseGamma, Ridge
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

LOSSES = {"hinge": Hinge(), "logit": Logit(), "probit": Probit()}
LEARNED = {
    "half-t": Ridge(),
    "half-Cauchy": Ridge(hyperprior=HalfCauchy(2.0)),
    "IG": Ridge(hyperprior=InverseGamma(2.0, 1.0)),
}


def curved(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 - 0.8
    return X, np.where(f + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def model_of(design, y, *, c=0.5, loss=None, prior=None, kind=InducingModel):
    free = np.zeros(design.shape[1], dtype=bool)
    free[0] = True
    prior = Ridge(scale=1.5) if prior is None else prior
    weight = np.broadcast_to(np.asarray(c, dtype=float), y.shape).copy()
    return kind(
        Blocks(design, y, weight), loss or Hinge(), prior.bind(free), free, Streams.from_random_state(0), Full()
    )


def some_points(X, size=8, length=2.0):
    return inducing_map(resolve("rbf", length, X), X, size, np.random.default_rng(1))


# --- all rows as points ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("engine", [GaussianVI(), MeanField()], ids=["gaussian", "mean field"])
def test_all_rows_as_points_are_the_exact_kernel_machine(loss, engine):
    X, y = curved()
    kernel = resolve("rbf", 2.0, X)
    values, vectors = np.linalg.eigh(kernel.matrix(X))
    exact = Dense.plain(np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0))), intercept=True)
    wanted = run(engine, model_of(exact, y, loss=loss, kind=Model), max_iter=500, tol=1e-13)
    model, got = fit_inducing(model_of(InducingMap.of(kernel, X).design(X), y, loss=loss), engine=engine, tol=1e-13)
    np.testing.assert_allclose(got.state.f, wanted.state.f, atol=1e-6)
    np.testing.assert_allclose(got.state.v, wanted.state.v, atol=1e-6)
    np.testing.assert_allclose(got.trace[-1], wanted.trace[-1], rtol=1e-7)
    assert model.prior.start().values["scale"] == 1.5


@pytest.mark.parametrize("prior", LEARNED.values(), ids=LEARNED)
def test_the_learned_scale_is_that_of_the_exact_kernel_machine(prior):
    X, y = curved()
    kernel = resolve("rbf", 2.0, X)
    values, vectors = np.linalg.eigh(kernel.matrix(X))
    exact = Dense.plain(np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0))), intercept=True)
    wanted = run(GaussianVI(), model_of(exact, y, prior=prior, kind=Model), max_iter=500, tol=1e-15).state
    got = fit_inducing(model_of(InducingMap.of(kernel, X).design(X), y, prior=prior), tol=1e-15)[1]
    assert got.state.prior.values["scale"] == pytest.approx(wanted.prior.values["scale"], rel=1e-6)
    np.testing.assert_allclose(got.state.f, wanted.f, atol=1e-6)
    np.testing.assert_allclose(got.state.v, wanted.v, rtol=1e-6)


# --- the bound ------------------------------------------------------------------------------------------------


def direct_bound(model, rest, scale, mean, covariance):
    """E log p - E log q with the loss averaged by quadrature over beta and e together."""
    rows = model.blocks.design.rows(np.arange(len(model.y)))
    spread = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows) + scale**2 * rest)
    z = np.linspace(-9.0, 9.0, 40_001)
    mass = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    loss = 0.0
    for y, c, f, s in zip(model.y, model.c, rows @ mean, spread, strict=True):
        loss -= 2.0 * c * float(mass @ np.maximum(1.0 - y * (f + s * z), 0.0))
    sd = np.where(model.free, 1e4, scale)
    prior = -0.5 * ((mean**2 + covariance.diagonal()) / sd**2).sum() - np.log(sd).sum()
    return loss + prior + 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * len(mean)


def small_model():
    X, y = curved(n=15, seed=3)
    return model_of(some_points(X, size=2, length=3.0).design(X), y, c=np.linspace(0.3, 1.5, 15))


def test_the_bound_is_the_expected_log_ratio():
    model, outcome = fit_inducing(small_model(), tol=1e-12)
    q, rest = outcome.state.q, model.blocks.design.rest
    assert rest.max() > 0.1
    wanted = direct_bound(model, rest, 1.5, q.mean, q.root @ q.root.T)
    assert outcome.state.bound == pytest.approx(wanted, abs=1e-6)
    other = direct_bound(model, 0.0 * rest, 1.5, q.mean, q.root @ q.root.T)
    assert abs(outcome.state.bound - other) > 0.01  # what the points leave matters


def test_every_state_has_the_moments_of_its_coefficients():
    model = small_model()
    model = model.with_prior(model.prior)
    state = GaussianVI().init(model)
    for iteration in range(3):
        v = model.blocks.row_quad(state.q.root) + 1.5**2 * model.blocks.design.rest
        np.testing.assert_allclose(state.v, v, rtol=1e-10)
        fresh = model.loss.gaussian(model.y, model.c, model.blocks.matvec(state.q.mean), v)
        assert state.bound == pytest.approx(fresh.bound.sum() + state.prior.bound + state.q.entropy, abs=1e-10)
        state, _ = GaussianVI().step(model, state, iteration)


def test_an_optimiser_finds_no_higher_bound():
    model, outcome = fit_inducing(small_model(), tol=1e-12)
    loss, rest = model.loss, model.blocks.design.rest
    rows = model.blocks.design.rows(np.arange(len(model.y)))
    sd = np.where(model.free, 1e4, 1.5)
    lower = np.tril_indices(3)

    def negative(x):
        L = np.zeros((3, 3))
        L[lower] = x[3:]
        v = ((rows @ L) ** 2).sum(axis=1) + 1.5**2 * rest
        fit = loss.gaussian(model.y, model.c, rows @ x[:3], v).bound.sum()
        prior = -0.5 * ((x[:3] ** 2 + (L**2).sum(axis=1)) / sd**2).sum() - np.log(sd).sum()
        return -(fit + prior + np.log(np.abs(L.diagonal())).sum() + 1.5)

    found = optimize.minimize(negative, np.concatenate((np.zeros(3), np.eye(3)[lower])), method="BFGS")
    assert outcome.state.bound == pytest.approx(-found.fun, abs=1e-6)
    np.testing.assert_allclose(outcome.state.q.mean, found.x[:3], atol=1e-3)


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField()], ids=["gaussian", "mean field"])
def test_the_bound_rises_with_steps_and_with_points(engine):
    X, y = curved(n=400)
    kernel = resolve("rbf", 1.5, X)
    last = -math.inf
    for size in (3, 10, 40):
        outcome = fit_inducing(model_of(InducingMap.of(kernel, X[:size]).design(X), y), engine=engine)[1]
        assert np.diff(outcome.trace).min(initial=0.0) > -1e-9 * abs(outcome.trace[-1])
        assert outcome.trace[-1] > last
        last = outcome.trace[-1]


# --- the scale ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", LEARNED.values(), ids=LEARNED)
def test_the_best_scale_without_a_rest_is_the_mean_field_one(prior):
    free = np.array([True] + 7 * [False])
    bound = prior.bind(free)
    for square in (1e-3, 4.0, 900.0):
        var = np.where(free, 5.0, square / 7.0)
        wanted = bound.expect(np.zeros(8), var).values["scale"]
        assert best_scale(bound, square, 7, 0.0, 1.0) == pytest.approx(wanted, rel=1e-6)


def test_the_best_scale_with_a_rest_is_the_highest_of_a_grid():
    bound = Ridge().bind(np.array([True] + 7 * [False]))
    log_scale = np.linspace(-6.0, 4.0, 200_001)
    # half-t with 10 degrees of freedom, density of log nu
    hyper = log_scale - 5.5 * np.log1p(np.exp(2.0 * log_scale) / 10.0)
    for pressure in (0.1, 3.0, 400.0):
        value = (
            hyper - 7.0 * log_scale - 0.5 * 4.0 * np.exp(-2.0 * log_scale) - 0.5 * pressure * np.exp(2.0 * log_scale)
        )
        assert best_scale(bound, 4.0, 7, pressure, 30.0) == pytest.approx(math.exp(log_scale[value.argmax()]), rel=1e-4)


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField()], ids=["gaussian", "mean field"])
def test_the_learned_scale_has_the_highest_bound(engine):
    X, y = curved(n=300)
    model = model_of(some_points(X).design(X), y, prior=Ridge())
    outcome = fit_inducing(model, engine=engine, tol=1e-10)[1]
    scale = outcome.state.prior.values["scale"]
    values = []
    for step in (-0.02, 0.0, 0.02):
        at = model.with_prior(model.prior.at_scale(scale * math.exp(step)))
        values.append(
            run(engine, at, max_iter=200, tol=1e-13).trace[-1]
            + model.prior.scale_prior.log_density(math.log(scale) + step)
        )
    assert outcome.trace[-1] == pytest.approx(values[1], abs=1e-6)
    assert values[1] > max(values[0], values[2])
    slope = (values[2] - values[0]) / 0.04
    bend = (values[0] + values[2] - 2.0 * values[1]) / 0.02**2
    assert abs(slope / bend) < 1e-3


def test_the_mixture_over_the_scale_scales_what_is_left():
    X, y = curved(n=100)
    model = model_of(some_points(X, size=4).design(X), y, prior=Ridge())
    mixture = mix_over_scale(model, fit_inducing(model)[1].state, steps=20)
    rest = model.blocks.design.rest
    log_weight = []
    for scale, state in zip(mixture.scales, mixture.states, strict=True):
        q = state.q
        np.testing.assert_allclose(state.v, model.blocks.row_quad(q.root) + scale**2 * rest, rtol=1e-9)
        alone = fit_inducing(model_of(model.blocks.design, y, prior=Ridge(scale=float(scale))), tol=1e-12)[1]
        assert state.bound == pytest.approx(alone.state.bound, abs=1e-4)
        log_weight.append(alone.state.bound + model.prior.scale_prior.log_density(math.log(scale)))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    np.testing.assert_allclose(mixture.weights, weight / weight.sum(), atol=1e-4)


# --- rows, length ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_weights_are_repeated_rows(loss):
    X, y = curved(n=60)
    count = np.arange(60) % 3 + 1
    features = some_points(X)
    weighted = fit_inducing(model_of(features.design(X), y, c=0.4 * count, loss=loss, prior=Ridge()), tol=1e-12)[1]
    again = np.repeat(np.arange(60), count)
    repeated = fit_inducing(model_of(features.design(X[again]), y[again], c=0.4, loss=loss, prior=Ridge()), tol=1e-12)[
        1
    ]
    np.testing.assert_allclose(weighted.state.f[again], repeated.state.f, atol=1e-5)
    assert weighted.trace[-1] == pytest.approx(repeated.trace[-1], rel=1e-8)


def test_predictors_without_their_rows_are_those_of_fits_without_them():
    X, y = curved(n=150)
    design = some_points(X, size=6).design(X)
    assert design.rest.max() > 0.3
    model, outcome = fit_inducing(model_of(design, y, c=0.25), tol=1e-12)
    state = outcome.state
    still = model.blocks.residual
    f, v, share = loose_cavity(state.f, state.v - still, still, state.message, np.ones(150))
    assert 0.0 < share < 0.5
    for i in np.argsort(-np.abs(f - state.f))[:5]:  # rows that matter most
        c = np.where(np.arange(150) == i, 1e-12, 0.25)
        without = fit_inducing(model_of(design, y, c=c), tol=1e-12)[1].state
        assert abs(f[i] - without.f[i]) < 0.2 * abs(state.f[i] - without.f[i])
        assert v[i] == pytest.approx(without.v[i], rel=0.05)


def fixed_bound(features, X, y, q, prior, loss):
    """The bound over rows at fixed coefficients, as a function of the map."""
    phi, rest = features.features(X)
    rows = np.column_stack((np.ones(len(X)), phi))
    v = ((rows @ q.root) ** 2).sum(axis=1) + prior.values["scale"] ** 2 * rest
    return loss.gaussian(y, np.full(len(y), 0.5), rows @ q.mean, v).bound.sum()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slope_in_log_length_by_differences(loss):
    X, y = curved()
    features = some_points(X)
    state = fit_inducing(model_of(features.design(X), y, loss=loss, prior=Ridge()), tol=1e-12)[1].state
    got = length_slope(features, X, state.message, state.q, state.prior)
    step = 1e-4
    up, down = (features.at_length(2.0 * math.exp(sign * step)) for sign in (1.0, -1.0))
    parts = (X, y, state.q, state.prior, loss)
    assert got == pytest.approx((fixed_bound(up, *parts) - fixed_bound(down, *parts)) / (2.0 * step), rel=1e-5)
    # at the best coefficients it is also the slope of the bound at its best
    step = 1e-2
    best = [
        fit_inducing(model_of(features.at_length(2.0 * math.exp(s)).design(X), y, loss=loss, prior=Ridge()), tol=1e-12)[
            1
        ]
        for s in (step, -step)
    ]
    assert got == pytest.approx((best[0].trace[-1] - best[1].trace[-1]) / (2.0 * step), rel=2e-3)


@pytest.mark.parametrize("start", [0.3, 6.0])
def test_the_learned_length_has_the_highest_bound(start):
    X, y = curved(n=400)
    features = some_points(X, size=15, length=start)
    found = learn_length(model_of(Inducing(features, X), y, prior=Ridge())).kernel.length
    bounds = [
        fit_inducing(model_of(features.at_length(found * math.exp(step)).design(X), y, prior=Ridge()))[1].trace[-1]
        for step in (-0.1, 0.0, 0.1)
    ]
    assert bounds[1] > max(bounds[0], bounds[2])


def test_a_hundred_points_do_on_banana():
    X, y = real_data("banana")
    kernel = resolve("rbf", 1.2, X)
    bounds = [
        fit_inducing(
            model_of(inducing_map(kernel, X, size, np.random.default_rng(0)).design(X), y, c=0.25, prior=Ridge())
        )[1]
        for size in (100, 200)
    ]
    assert bounds[0].trace[-1] == pytest.approx(bounds[1].trace[-1], rel=2e-3)
    assert np.mean(y * bounds[1].state.f < 0.0) < 0.1
