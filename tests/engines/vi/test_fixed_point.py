"""EM and mean field: ascent, the same optimum as independent methods, and the printed bound."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from engine_problems import (
    ScaleFactor,
    build,
    copies,
    expected,
    hinge_loglik,
    log_integral,
    log_scale_density,
    normal_logpdf,
    real_data,
    ridge_objective,
    rows_of,
    separable,
    simulated,
    unseen_constant,
)
from numpy.polynomial.hermite_e import hermegauss
from stages import in_stages

from softmargin.core.loop import run
from softmargin.engines.mode.newton import Newton
from softmargin.engines.vi._squarem import parabola
from softmargin.engines.vi.fixed_point import EM, MeanField, series_of
from softmargin.losses import Logit
from softmargin.priors import HalfCauchy, InverseGamma, Ridge

PRIORS = {
    "fixed": Ridge(scale=0.8),
    "inverse gamma": Ridge(hyperprior=InverseGamma(2.0, 1.0)),
    "half-Cauchy": Ridge(hyperprior=HalfCauchy(0.6)),
}


def data(name):
    made = {"simulated": lambda: simulated(200, 6), "copies": copies, "separable": separable}
    return made[name]() if name in made else real_data(name)


def never_falls(trace):
    trace = np.array(trace)
    return (np.diff(trace) >= -1e-11 * np.abs(trace[1:])).all()


# --- EM -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("prior", ["fixed", "inverse gamma"])
@pytest.mark.parametrize("name", ["simulated", "copies", "separable", "heart", "titanic", "spam"])
def test_em_is_monotone(name, prior, accelerate):
    X, y = data(name)
    model = build(X, y, standardized=True, prior=PRIORS[prior])
    engine = EM(accelerate=accelerate)
    first = engine.init(model).objective
    outcome = run(engine, model, max_iter=100 if name == "spam" else 300, tol=1e-13)
    assert never_falls([first, *outcome.trace])
    assert outcome.trace[-1] > first


@pytest.mark.parametrize("prior", ["fixed", "inverse gamma"])
@pytest.mark.parametrize("name", ["simulated", "copies", "heart", "titanic", "spam"])
def test_em_reaches_the_mode(name, prior):
    X, y = data(name)
    model = build(X, y, standardized=True, prior=PRIORS[prior])
    best = run(Newton(), model, max_iter=100, tol=1e-9).state
    outcome = run(EM(), model, max_iter=200, tol=1e-12)
    assert -1e-9 * abs(best.objective) <= best.objective - outcome.trace[-1] <= 1e-6 * abs(best.objective)
    # the trace is the log joint density itself, up to the smoothing
    precision = model.prior.mode(outcome.state.q.mean).precision
    true = -ridge_objective(model, outcome.state.q.mean, precision)
    true_best = -ridge_objective(model, best.point.beta, best.prior.precision)
    if prior == "fixed":
        assert true == pytest.approx(true_best, rel=1e-6)
        constant = 0.5 * np.log(precision).sum() - 0.5 * model.size * math.log(2 * math.pi)
        assert outcome.trace[-1] == pytest.approx(true + constant, abs=1e-7 * len(y) + 1e-9)


@pytest.mark.parametrize("engine", [EM(), EM(accelerate=False), MeanField(), MeanField(accelerate=False)])
def test_weights_equal_copies(engine):
    """A weight of k is k copies, at every step of the way."""
    X, y = copies()
    distinct, count = np.unique(np.column_stack((X, y)), axis=0, return_counts=True)
    options = {"prior": PRIORS["inverse gamma"]}
    long = run(engine, build(X, y, **options), max_iter=8, tol=-1.0)
    short = run(engine, build(distinct[:, :3], distinct[:, 3], c=count.astype(float), **options), max_iter=8, tol=-1.0)
    np.testing.assert_allclose(short.trace, long.trace, rtol=1e-9)
    np.testing.assert_allclose(short.state.q.mean, long.state.q.mean, atol=1e-6)


def hard_rows():
    """Rows that end exactly on the margin, copies of them, and copies with the opposite label."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [2.0, 2.0], [0.0, 0.0], [1.0, -1.0]])
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    X, y = np.concatenate((X, X, X[:5], X[:2])), np.concatenate((y, y, y[:5], -y[:2]))
    return X, y


@pytest.mark.parametrize("engine", [EM(accelerate=False), EM(), MeanField(accelerate=False), MeanField()])
@pytest.mark.parametrize("prior", in_stages(["inverse gamma", "fixed"]))
@pytest.mark.parametrize("intercept", in_stages([True, False]))
def test_thousands_of_iterations_on_hard_rows(engine, prior, intercept):
    """No overflow and no undefined value when rows sit on the margin for thousands of iterations."""
    X, y = hard_rows()
    model = build(X, y, intercept=intercept, prior=PRIORS[prior])
    iterations = 800 if engine.accelerate else 5000
    outcome = run(engine, model, max_iter=iterations, tol=-1.0)
    assert outcome.n_iter == iterations
    assert np.isfinite(outcome.trace).all()
    assert np.isfinite(outcome.state.q.mean).all()
    assert never_falls(outcome.trace)
    if isinstance(engine, EM):
        u = 1.0 - model.y * (rows_of(model) @ outcome.state.q.mean)
        assert (np.abs(u) < 1e-6).sum() >= 3  # they are on the margin indeed
        best = run(Newton(), model, max_iter=50, tol=1e-9).state.objective
        assert outcome.trace[-1] == pytest.approx(best, rel=1e-6)


def test_a_row_of_zeros_changes_nothing():
    """Without an intercept such a row has predictor 0 for certain; the others are accelerated as before."""
    X, y = simulated(60, 4, seed=2)
    alone = run(MeanField(), build(X, y, intercept=False), max_iter=200, tol=1e-12)
    X, y = np.concatenate((X, np.zeros((1, 4)))), np.append(y, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        padded = run(MeanField(), build(X, y, intercept=False), max_iter=200, tol=1e-12)
    np.testing.assert_allclose(padded.state.q.mean, alone.state.q.mean, atol=1e-5)
    assert padded.trace[-1] == pytest.approx(alone.trace[-1] - 2.0, abs=1e-8)
    assert padded.n_iter <= alone.n_iter + 5


@pytest.mark.parametrize("name", ["simulated", "copies", "heart"])
def test_ecme_by_em_is_stationary(name):
    """The scale is the conditional mode given the coefficients, and these are the mode given the scale."""
    X, y = data(name)
    a, b = 2.0, 1.0
    model = build(X, y, standardized=True, prior=Ridge(hyperprior=InverseGamma(a, b)))
    state = run(EM(), model, max_iter=500, tol=1e-14).state
    scale, beta = state.prior.values["scale"], state.q.mean
    shrunk = beta[~model.free]
    assert scale**-2 == pytest.approx((a + 0.5 * len(shrunk) - 1.0) / (b + 0.5 * shrunk @ shrunk), rel=1e-12)
    fixed = model.with_prior(model.prior.at_scale(scale))
    precision = fixed.prior.start().precision
    best = run(Newton(), fixed, max_iter=5).state.point
    assert ridge_objective(model, beta, precision) == pytest.approx(best.certificate.objective, rel=1e-6)

    def profile(log_scale):
        at = model.with_prior(model.prior.at_scale(math.exp(log_scale)))
        tau, r = math.exp(-2.0 * log_scale), len(shrunk)
        point = run(Newton(), at, max_iter=5).state.point
        return -point.certificate.objective + (0.5 * r + a - 1.0) * math.log(tau) - b * tau

    here, h = math.log(scale), 1e-2
    up, middle, down = profile(here + h), profile(here), profile(here - h)
    assert middle > max(up, down)
    assert abs(up - down) < 0.05 * (2.0 * middle - up - down)


# --- mean field against Luts and Ormerod ----------------------------------------------------------------------


def algorithm_1(X, y, alpha, iterations=20_000):
    """Fixed prior precision ``4 alpha I``; returns the mean, the covariance and the printed bound of each cycle."""
    n, p = X.shape
    w, bounds, mu = np.full(n, 2.0**-0.5), [], np.zeros(p)
    for _ in range(iterations):
        P = X.T @ (w[:, None] * X) + 4.0 * alpha * np.eye(p)
        Sigma = np.linalg.inv(P)
        last, mu = mu, Sigma @ X.T @ ((1.0 + w) * y)
        m = y * (X @ mu)
        chi = (1.0 - m) ** 2 + np.einsum("ij,jk,ik->i", X, Sigma, X)
        w = chi**-0.5
        log_det = np.linalg.slogdet(P)[1]
        bounds.append(
            (m - 1.0 - np.sqrt(chi)).sum()
            + 0.5 * p
            + 0.5 * p * math.log(4.0 * alpha)
            - 0.5 * log_det
            - 2.0 * alpha * (mu @ mu + np.trace(Sigma))
        )
        if np.abs(mu - last).max() < 1e-13:
            break
    return mu, Sigma, np.array(bounds)


def algorithm_2(X, Z, y, sb2, A, B, iterations=20_000):
    """One variance component: coefficients of Z share a variance with prior IG(A, B); X has prior variance sb2."""
    C, n, p, m = np.column_stack((X, Z)), len(y), X.shape[1], Z.shape[1]
    w, precision, bounds, mu = np.ones(n), 1.0, [], np.zeros(p + m)
    for _ in range(iterations):
        P = C.T @ (w[:, None] * C) + np.diag(np.concatenate((np.full(p, 1.0 / sb2), np.full(m, precision))))
        Sigma = np.linalg.inv(P)
        last, mu = mu, Sigma @ C.T @ ((1.0 + w) * y)
        margin = y * (C @ mu)
        chi = (1.0 - margin) ** 2 + np.einsum("ij,jk,ik->i", C, Sigma, C)
        w = chi**-0.5
        E = mu[p:] @ mu[p:] + np.trace(Sigma[p:, p:])
        Bq, Aq = B + 0.5 * E, A + 0.5 * m
        precision = Aq / Bq
        bounds.append(
            (margin - 1.0 - np.sqrt(chi)).sum()
            + 0.5 * (p + m)
            - 0.5 * np.linalg.slogdet(P)[1]
            - 0.5 * p * math.log(sb2)
            - (mu[:p] @ mu[:p] + np.trace(Sigma[:p, :p])) / (2.0 * sb2)
            + A * math.log(B)
            - math.lgamma(A)
            - Aq * math.log(Bq)
            + math.lgamma(Aq)
        )
        if np.abs(mu - last).max() < 1e-13:
            break
    return mu, Sigma, precision, np.array(bounds)


def covariance(q):
    return q.root @ q.root.T


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("alpha", [0.05, 0.25, 2.0])
def test_algorithm_1(alpha, accelerate):
    """The penalty alpha |beta|^2 of a hinge sum is a prior precision of 4 alpha."""
    X, y = simulated(60, 4, seed=2)
    mu, Sigma, bounds = algorithm_1(X, y, alpha)
    model = build(X, y, intercept=False, prior=Ridge(scale=(4.0 * alpha) ** -0.5))
    state = run(MeanField(accelerate=accelerate), model, max_iter=100 if accelerate else 600, tol=-1.0).state
    np.testing.assert_allclose(state.q.mean, mu, atol=1e-8)
    np.testing.assert_allclose(covariance(state.q), Sigma, atol=1e-8)
    assert state.objective == pytest.approx(bounds[-1], abs=1e-8)
    assert (np.diff(bounds) > -1e-12).all()


def test_algorithm_1_cycle_by_cycle():
    """The bound equals the printed one after every plain cycle, not only at the end."""
    X, y = simulated(60, 4, seed=2)
    alpha = 0.25
    model = build(X, y, intercept=False, prior=Ridge(scale=1.0))
    engine = MeanField(accelerate=False)
    trace = [engine.init(model).objective, *run(engine, model, max_iter=9).trace]
    _, _, bounds = algorithm_1(X, y, alpha, iterations=10)
    np.testing.assert_allclose(trace, bounds, rtol=1e-12)


@pytest.mark.parametrize("name", ["simulated", "heart"])
def test_algorithm_2(name):
    X, y = data(name)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    A = B = 0.01
    mu, Sigma, precision, bounds = algorithm_2(np.ones((len(y), 1)), X, y, 1e8, A, B)
    model = build(X, y, prior=Ridge(hyperprior=InverseGamma(A, B), intercept_scale=1e4))
    state = run(MeanField(), model, max_iter=200, tol=-1.0).state
    np.testing.assert_allclose(state.q.mean, mu, atol=1e-8)
    np.testing.assert_allclose(covariance(state.q), Sigma, atol=1e-8)
    assert state.prior.values["scale"] ** -2 == pytest.approx(precision, rel=1e-8)
    assert state.objective == pytest.approx(bounds[-1], abs=1e-8)


# --- the bound ------------------------------------------------------------------------------------------------


def row_bound(y, c, x, mean, var):
    """E [log p(y, latent | f) - log q(latent)] of one row, f ~ N(x mean, x^2 var), by quadrature over both."""
    node, weight = hermegauss(40)
    u = 1.0 - y * x * (mean + math.sqrt(var) * node)
    weight = weight / weight.sum()
    second = (1.0 - y * x * mean) ** 2 + x * x * var  # E u^2

    def log_q(latent):  # GIG(1/2, c^2, E u^2)
        return (
            math.log(c)
            - 0.5 * np.log(2 * math.pi * latent)
            + c * math.sqrt(second)
            - (second / latent + c * c * latent) / 2.0
        )

    def function(latent):
        log_p = math.log(c) - 0.5 * np.log(2 * math.pi * latent) - (u[:, None] + c * latent) ** 2 / (2 * latent)
        return weight @ log_p - log_q(latent)

    assert expected(lambda latent: 1.0 + 0.0 * latent, log_q) == pytest.approx(1.0, abs=1e-10)
    return expected(function, log_q)


def small_problem():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(6)
    return x[:, None], np.where(rng.random(6) < 0.7, np.sign(x), -np.sign(x)), rng.uniform(0.3, 2.0, 6)


def hyperprior_of(prior):
    return None if prior.scale != "learn" else prior.hyperprior


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("iterations", [1, 3, 500])
def test_bound_equals_quadrature(prior, iterations):
    """E log p - E log q over coefficient, latents and variance, term by term on grids."""
    X, y, c = small_problem()
    model = build(X, y, c=c, intercept=False, prior=PRIORS[prior])
    state = run(MeanField(accelerate=False), model, max_iter=iterations, tol=1e-15).state
    mean, var = float(state.q.mean[0]), float(state.q.var[0])
    rows = sum(row_bound(y[i], c[i], X[i, 0], mean, var) for i in range(6))
    entropy = 0.5 * math.log(2 * math.pi * math.e * var)
    if prior == "fixed":
        sd = PRIORS[prior].scale
        beta = -0.5 * (mean**2 + var) / sd**2 - math.log(sd) - 0.5 * math.log(2 * math.pi)
    else:
        factor = ScaleFactor(hyperprior_of(PRIORS[prior]), mean**2 + var, 1)
        beta = factor.bound()
        assert state.prior.values["scale"] ** -2 == pytest.approx(factor.precision, rel=1e-10)
    assert state.objective == pytest.approx(rows + beta + entropy, abs=1e-8)


def log_evidence(X, y, c, prior):
    """Log marginal likelihood of one coefficient without intercept, by the trapezium rule."""
    beta = np.linspace(-12.0, 12.0, 6001)
    loglik = hinge_loglik(beta[:, None] * X[:, 0], y, c)
    hyperprior = hyperprior_of(prior)
    if hyperprior is None:
        return log_integral(loglik + normal_logpdf(beta, prior.scale), beta)
    t = np.linspace(-7.0, 7.0, 1401)
    joint = loglik[:, None] + normal_logpdf(beta[:, None], np.exp(t)) + log_scale_density(hyperprior, t)
    return log_integral(joint, beta, t)


@pytest.mark.parametrize("prior", PRIORS)
def test_bound_is_below_the_evidence(prior):
    X, y, c = small_problem()
    model = build(X, y, c=c, intercept=False, prior=PRIORS[prior])
    bound = run(MeanField(), model, max_iter=500, tol=1e-14).trace[-1]
    evidence = log_evidence(X, y, c, PRIORS[prior])
    assert evidence - 1.0 < bound < evidence


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", ["simulated", "copies", "separable", "heart", "titanic", "spam"])
def test_mean_field_never_falls(name, prior, accelerate):
    X, y = data(name)
    model = build(X, y, standardized=True, prior=PRIORS[prior])
    engine = MeanField(accelerate=accelerate)
    outcome = run(engine, model, max_iter=40 if name == "spam" else 200, tol=1e-13)
    assert never_falls([engine.init(model).objective, *outcome.trace])


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("intercept", [False, True])
def test_more_columns_than_rows(prior, intercept):
    """Directions that no row sees keep the prior: the same predictors, and a bound that differs by a constant."""
    X, y = simulated(20, 50, seed=6)
    options = {"c": 0.5, "intercept": intercept, "prior": PRIORS[prior]}
    primal = run(MeanField(), build(X, y, **options), max_iter=300, tol=-1.0).state
    dual = run(MeanField(), build(X, y, dual=True, **options), max_iter=300, tol=-1.0).state
    np.testing.assert_allclose(dual.f, primal.f, atol=1e-8)
    np.testing.assert_allclose(dual.v, primal.v, rtol=1e-8)
    assert dual.prior.values["scale"] == pytest.approx(primal.prior.values["scale"], rel=1e-8)
    constant = unseen_constant(hyperprior_of(PRIORS[prior]), 50, 20)
    assert primal.objective - dual.objective == pytest.approx(constant, abs=1e-8)


@pytest.mark.parametrize("engine", [EM(), MeanField()])
def test_a_leap_out_of_all_bounds_is_not_taken(engine):
    model = replace(build(*simulated(30, 2)), loss=Logit())
    state = engine.init(model)
    one = engine._map(model, state)
    two = engine._map(model, one)
    way = parabola(model, state, one, two)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (1e2, 1e10, 1e100, 1e200):
            leap = engine._leap(model, way, two, length)
            assert leap is None or leap.objective < two.objective


def test_gains_of_a_series():
    assert series_of(8.0, 2.0) == pytest.approx(8.0 + 2.0 + 0.5 + 0.125 + 0.03125, rel=1e-2)
    assert series_of(3.0, 0.0) == 3.0
    assert series_of(1.0, 1.0) == series_of(1.0, -0.1) == series_of(0.0, 0.0) == math.inf


@pytest.mark.parametrize("name", ["simulated", "heart"])
@pytest.mark.parametrize("enough", [1e-4, 1e-6, 1e-8])
def test_where_the_series_of_gains_is_small_nothing_is_left(name, enough):
    X, y = data(name)
    model = build((X - X.mean(axis=0)) / X.std(axis=0), y, prior=Ridge())
    least = run(MeanField(), model, max_iter=500, tol=-1.0).state.objective
    outcome = run(MeanField(enough=enough), model, max_iter=500, tol=enough)
    assert outcome.converged
    assert 0.0 <= least - outcome.state.objective + 1e-11 <= 2.0 * enough * (1.0 + abs(least))
    assert outcome.change <= enough
