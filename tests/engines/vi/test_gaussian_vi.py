"""Gaussian variational inference against quadrature, an optimiser and the exact posterior; stress tests."""

import math

import numpy as np
import pytest
from engine_problems import (
    ScaleFactor,
    build,
    copies,
    grid_expectation,
    hinge_loglik,
    log_integral,
    log_scale_density,
    normal_logpdf,
    real_data,
    rows_of,
    separable,
    simulated,
    unseen_constant,
)
from scipy import optimize
from scipy.special import ndtr

from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.engines.vi import gaussian as gaussian_vi
from softmargin.engines.vi._anderson import History, steps_of, weights_of
from softmargin.engines.vi._gaussian_visits import Line
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.priors import HalfCauchy, InverseGamma, Ridge

PRIORS = {
    "fixed": Ridge(scale=0.8, intercept_scale=3.0),
    "inverse gamma": Ridge(hyperprior=InverseGamma(2.0, 1.0), intercept_scale=3.0),
    "half-Cauchy": Ridge(hyperprior=HalfCauchy(0.6), intercept_scale=3.0),
}


def hyperprior_of(prior):
    return None if prior.scale != "learn" else prior.hyperprior


def small_problem(n=8, p=2, seed=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = np.where(X[:, 0] + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return X, y, rng.uniform(0.3, 2.0, n)


def covariance(q):
    return np.column_stack([q.solve(unit) for unit in np.eye(len(q.mean))])


def fitted(model):
    """The optimum as far as the bound can tell: predictors are then good to about the root of the rounding error."""
    return run(GaussianVI(), model, max_iter=200, tol=-1.0).state


# --- the bound ------------------------------------------------------------------------------------------------


def expected_hinge(m, s):
    """E max(u, 0) for u ~ N(m, s^2) by Gauss-Legendre over the positive part."""
    node, weight = np.polynomial.legendre.leggauss(200)
    low, high = max(0.0, m - 12.0 * s), m + 12.0 * s
    if high <= 0.0:
        return 0.0
    u = 0.5 * (low + high) + 0.5 * (high - low) * node
    density = np.exp(-0.5 * ((u - m) / s) ** 2) / (s * math.sqrt(2.0 * math.pi))
    return 0.5 * (high - low) * float(weight @ (u * density))


def gaussian_part(mean, var, sd):
    """E log N(beta; 0, sd^2) summed over coefficients."""
    return float((-0.5 * (mean**2 + var) / sd**2 - math.log(sd) - 0.5 * math.log(2.0 * math.pi)).sum())


def quadrature_bound(model, prior, mean, Sigma):
    """E log p - E log q with every expectation by quadrature; the variance has its optimal density."""
    rows, free = rows_of(model), model.free
    m, s = 1.0 - model.y * (rows @ mean), np.sqrt(np.einsum("ij,jk,ik->i", rows, Sigma, rows))
    loss = -2.0 * sum(c * expected_hinge(a, b) for c, a, b in zip(model.c, m, s, strict=True))
    var = np.diag(Sigma)
    beta = gaussian_part(mean[free], var[free], prior.intercept_scale)
    hyperprior = hyperprior_of(prior)
    if hyperprior is None:
        beta += gaussian_part(mean[~free], var[~free], prior.scale)
    else:
        E = float((mean[~free] ** 2 + var[~free]).sum())
        beta += ScaleFactor(hyperprior, E, int((~free).sum())).bound()
    return loss + beta + 0.5 * np.linalg.slogdet(2.0 * math.pi * math.e * Sigma)[1]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("iterations", [1, 3, 30])
def test_bound_equals_quadrature(prior, intercept, iterations):
    X, y, c = small_problem()
    model = build(X, y, c=c, intercept=intercept, prior=PRIORS[prior])
    state = run(GaussianVI(), model, max_iter=iterations, tol=-1.0).state
    direct = quadrature_bound(model, PRIORS[prior], state.q.mean, covariance(state.q))
    assert state.bound == pytest.approx(direct, abs=1e-8)
    np.testing.assert_allclose(state.f, rows_of(model) @ state.q.mean, atol=1e-10)
    rows = rows_of(model)
    np.testing.assert_allclose(state.v, np.einsum("ij,jk,ik->i", rows, covariance(state.q), rows), rtol=1e-9)


# --- the optimum ----------------------------------------------------------------------------------------------


def closed_bound(model, prior, mean, Sigma):
    """The bound from closed forms of the expected hinge and of the variance's factor, coded apart from the library."""
    rows, free = rows_of(model), model.free
    m, s = 1.0 - model.y * (rows @ mean), np.sqrt(np.einsum("ij,jk,ik->i", rows, Sigma, rows))
    t = m / s
    loss = -2.0 * model.c @ (m * ndtr(t) + s * np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi))
    var = np.diag(Sigma)
    beta = gaussian_part(mean[free], var[free], prior.intercept_scale)
    hyperprior, E, r = hyperprior_of(prior), float((mean**2 + var)[~free].sum()), int((~free).sum())
    if hyperprior is None:
        beta += gaussian_part(mean[~free], var[~free], prior.scale)
    else:
        factor = ScaleFactor(hyperprior, E, r)
        beta += math.lgamma(factor.shape) - factor.shape * math.log(factor.rate) - 0.5 * r * math.log(2 * math.pi)
        if hasattr(hyperprior, "a"):
            beta += hyperprior.a * math.log(hyperprior.b) - math.lgamma(hyperprior.a)
        else:
            inverse_t = 1.0 / factor.rate_t
            beta += -math.log(math.pi * hyperprior.scale) - math.log(factor.rate_t) + factor.precision * inverse_t
    return loss + beta + 0.5 * np.linalg.slogdet(2.0 * math.pi * math.e * Sigma)[1]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("intercept", [False, True])
def test_no_perturbation_raises_the_bound(prior, intercept):
    """Random moves of the mean and of the covariance lower an independently coded bound, to second order."""
    X, y, c = small_problem(n=30, p=3, seed=5)
    model = build(X, y, c=c, intercept=intercept, prior=PRIORS[prior])
    state = fitted(model)
    mean, Sigma = state.q.mean, covariance(state.q)
    best = closed_bound(model, PRIORS[prior], mean, Sigma)
    assert state.bound == pytest.approx(best, abs=1e-9)
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(Sigma)
    lost = []
    for size in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(40):
            d = root @ rng.standard_normal(model.size)
            T = rng.standard_normal((model.size, model.size))
            M = root @ (np.eye(model.size) + size * (T + T.T))
            for moved in (
                closed_bound(model, PRIORS[prior], mean + size * d, Sigma),
                closed_bound(model, PRIORS[prior], mean, M @ M.T),
                closed_bound(model, PRIORS[prior], mean + size * d, M @ M.T),
            ):
                lost.append((best - moved) / size**2)
    assert min(lost) > 0.0
    # quadratic, not linear: a first-order loss would be unbounded here
    assert max(lost[:120]) < 1000.0 * model.size


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("seed", [4, 5, 6])
def test_optimum_equals_a_general_optimiser(prior, seed):
    """BFGS over mean and Cholesky factor from another start ends at the same Gaussian."""
    X, y, c = small_problem(n=15, seed=seed)
    model = build(X, y, c=c, prior=PRIORS[prior])
    state = fitted(model)
    lower = np.tril_indices(3)
    diagonal = lower[0] == lower[1]

    def unpack(x):
        L = np.zeros((3, 3))
        L[lower] = np.where(diagonal, np.exp(np.where(diagonal, x[3:], 0.0)), x[3:])
        return x[:3], L @ L.T

    start = np.concatenate((np.zeros(3), np.where(diagonal, -0.5, 0.0)))
    found = optimize.minimize(
        lambda x: -closed_bound(model, PRIORS[prior], *unpack(x)), start, method="BFGS", options={"gtol": 1e-7}
    )
    mean, Sigma = unpack(found.x)
    assert state.bound == pytest.approx(-found.fun, abs=1e-8)
    sd = np.sqrt(np.diag(Sigma))
    np.testing.assert_allclose(state.q.mean, mean, atol=2e-4 * sd.max())
    np.testing.assert_allclose(covariance(state.q), Sigma, atol=1e-3 * sd.max() ** 2)


@pytest.mark.parametrize("prior", PRIORS)
def test_bound_is_below_the_evidence(prior):
    """Below the log evidence, near it, and above the mean-field bound."""
    X, y, c = small_problem(p=1)
    prior = PRIORS[prior]
    model = build(X, y, c=c, intercept=False, prior=prior)
    beta = np.linspace(-15.0, 15.0, 6001)
    loglik = hinge_loglik(beta[:, None] * X[:, 0], y, c)
    if hyperprior_of(prior) is None:
        evidence = log_integral(loglik + normal_logpdf(beta, prior.scale), beta)
    else:
        t = np.linspace(-7.0, 7.0, 1401)
        joint = loglik[:, None] + normal_logpdf(beta[:, None], np.exp(t))
        evidence = log_integral(joint + log_scale_density(hyperprior_of(prior), t), beta, t)
    bound = fitted(model).bound
    mean_field = run(MeanField(), model, max_iter=300, tol=1e-14).trace[-1]
    assert mean_field + 0.05 < bound < evidence
    assert evidence - bound < (0.05 if hyperprior_of(prior) is None else 0.4)


def test_bound_is_below_the_evidence_with_intercept():
    X, y, c = small_problem(p=1)
    model = build(X, y, c=c, prior=PRIORS["fixed"])
    a, b = np.linspace(-12.0, 12.0, 1201), np.linspace(-6.0, 6.0, 1001)
    f = a[:, None, None] + b[:, None] * X[:, 0]
    joint = hinge_loglik(f, y, c) + normal_logpdf(a, 3.0)[:, None] + normal_logpdf(b, 0.8)
    evidence = log_integral(joint, a, b)
    assert evidence - 0.05 < fitted(model).bound < evidence


# --- the path -------------------------------------------------------------------------------------------------


def named(name):
    made = {"separable": separable, "ten rows": lambda: simulated(10, 3), "copies": copies}
    return made[name]() if name in made else real_data(name)


@pytest.mark.parametrize("prior", ["fixed", "half-Cauchy"])
@pytest.mark.parametrize(("rate", "limit"), [(0.25, 30), (0.5, 30), (1.0, 45)])
@pytest.mark.parametrize("name", ["separable", "ten rows", "copies", "heart", "titanic", "spam", "colon"])
def test_few_iterations_and_no_descent(name, rate, limit, prior):
    X, y = named(name)
    prior = Ridge(scale=1.0) if prior == "fixed" else Ridge()
    model = build(X, y, c=rate, standardized=True, dual=name == "colon", prior=prior)
    engine = GaussianVI()
    outcome = run(engine, model, max_iter=100, tol=1e-8)
    assert outcome.converged
    assert outcome.n_iter <= limit
    trace = np.array([engine.init(model).bound, *outcome.trace])
    assert (np.diff(trace) >= -1e-11 * np.abs(trace[1:])).all()
    # the stopping rule is honest: going on gains next to nothing
    longer = run(engine, model, max_iter=outcome.n_iter + 60, tol=1e-13)
    assert longer.trace[-1] - trace[-1] <= 1e-7 * (1.0 + abs(trace[-1]))


def random_problem(rng):
    """A family of awkward problems: any shape, rounded or repeated columns, separable or not, uneven weights."""
    n, p = int(np.exp(rng.uniform(math.log(5), math.log(501)))), int(np.exp(rng.uniform(0.0, math.log(101))))
    X = rng.standard_normal((n, p))
    if rng.random() < 0.3:
        X = np.round(X)
    if rng.random() < 0.3:
        X = np.column_stack((X, X[:, rng.integers(0, p, size=max(1, p // 3))]))
    if rng.random() < 0.2:
        X = X * 10.0 ** rng.uniform(-2, 2, X.shape[1])
    f = X @ rng.standard_normal(X.shape[1])
    noise = 0.0 if rng.random() < 0.4 else f.std() * rng.exponential(2.0)
    y = np.where(f + noise * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    c = 10.0 ** rng.uniform(-2, 2, n) if rng.random() < 0.5 else np.full(n, 10.0 ** rng.uniform(-2, 1))
    return X, y, c


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_stress(part):
    """A hundred random problems each: finite, never falling, converged within 100 iterations."""
    rng = np.random.default_rng(100 + part)
    failures = []
    for k in range(100):
        X, y, c = random_problem(rng)
        dual = X.shape[1] + 1 > len(y)
        standardized = bool(X.std(axis=0).all()) and rng.random() < 0.7
        model = build(X, y, c=c, standardized=standardized, dual=dual, prior=Ridge())
        engine = GaussianVI()
        outcome = run(engine, model, max_iter=100, tol=1e-8)
        trace = np.array([engine.init(model).bound, *outcome.trace])
        finite = np.isfinite(trace).all() and np.isfinite(outcome.state.q.mean).all()
        if not (finite and outcome.converged and (np.diff(trace) >= -2e-11 * np.abs(trace[1:])).all()):
            failures.append((k, X.shape, outcome.n_iter, float(np.diff(trace).min())))
    assert not failures


def edge_case(name):
    """Columns, labels and weights of a case that breaks careless algorithms."""
    rng = np.random.default_rng(9)
    X, y = simulated(40, 3, seed=9)
    c = np.ones(40)
    if name == "one class":
        y = np.ones(40)
    elif name in ("one row", "two rows"):
        n = 1 if name == "one row" else 2
        X, y, c = X[:n], y[:n], c[:n]
    elif name == "zero column":
        X[:, 1] = 0.0
    elif name == "huge column":
        X[:, 1] *= 1e6
    elif name == "tiny column":
        X[:, 1] *= 1e-6
    elif name == "uneven weights":
        c = 10.0 ** rng.uniform(-4, 4, 40)
    elif name == "large weights":
        c = np.full(40, 1e4)
    elif name == "small weights":
        c = np.full(40, 1e-4)
    elif name == "many copies":
        X, y, c = np.repeat(X, 200, axis=0), np.repeat(y, 200), np.repeat(c, 200)
    elif name == "outlier":
        X[0] = 1e4
    elif name == "one against many":
        X = rng.standard_normal((200, 3))
        y, c = np.where(np.arange(200) == 0, 1.0, -1.0), np.ones(200)
    elif name == "contradictory copies":
        X, y, c = np.concatenate((X, X)), np.concatenate((y, -y)), np.ones(80)
    return X, y, c


EDGE_CASES = (
    "one class", "one row", "two rows", "zero column", "huge column", "tiny column", "uneven weights", "large weights",
    "small weights", "many copies", "outlier", "one against many", "contradictory copies",
)  # fmt: skip


@pytest.mark.parametrize("prior", ["fixed", "half-Cauchy"])
@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_cases(name, prior):
    X, y, c = edge_case(name)
    engine, model = GaussianVI(), build(X, y, c=c, prior=PRIORS[prior])
    outcome = run(engine, model, max_iter=100, tol=1e-8)
    trace = np.array([engine.init(model).bound, *outcome.trace])
    assert np.isfinite(trace).all()
    assert np.isfinite(outcome.state.q.mean).all()
    assert (outcome.state.v > 0.0).all()
    assert outcome.converged
    assert (np.diff(trace) >= -2e-11 * np.abs(trace[1:])).all()


# --- invariance -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", PRIORS)
def test_weights_equal_repeated_rows(prior):
    X, y = simulated(40, 3, seed=7)
    count = np.random.default_rng(1).integers(1, 5, 40)
    long_model = build(np.repeat(X, count, axis=0), np.repeat(y, count), c=0.7, prior=PRIORS[prior])
    short_model = build(X, y, c=0.7 * count, prior=PRIORS[prior])
    traces = [run(GaussianVI(), model, max_iter=5, tol=-1.0).trace for model in (long_model, short_model)]
    np.testing.assert_allclose(*traces, rtol=1e-9)  # the same path, not only the same end
    long, short = fitted(long_model), fitted(short_model)
    assert short.bound == pytest.approx(long.bound, abs=1e-9)
    np.testing.assert_allclose(short.q.mean, long.q.mean, atol=1e-6)
    np.testing.assert_allclose(covariance(short.q), covariance(long.q), atol=1e-6)


def polished(model, prior, mean, Sigma):
    """Moments of the predictors after plain damped fixed-point steps, which are not limited by the bound's rounding."""
    rows, free = rows_of(model), model.free
    P = np.linalg.inv(Sigma)
    for _ in range(300):
        f, v = rows @ mean, np.einsum("ij,jk,ik->i", rows, np.linalg.inv(P), rows)
        s = np.sqrt(v)
        t = (1.0 - model.y * f) / s
        k = 2.0 * model.c * np.exp(-0.5 * t * t) / (math.sqrt(2.0 * math.pi) * s)
        D = np.full(model.size, prior.intercept_scale**-2.0)
        hyperprior, E = hyperprior_of(prior), float((mean**2 + np.diag(np.linalg.inv(P)))[~free].sum())
        fixed = hyperprior is None
        D[~free] = prior.scale**-2.0 if fixed else ScaleFactor(hyperprior, E, int((~free).sum())).precision
        P = 0.5 * P + 0.5 * (rows.T @ (k[:, None] * rows) + np.diag(D))
        mean = mean + 0.5 * np.linalg.solve(P, rows.T @ (2.0 * model.c * ndtr(t) * model.y) - D * mean)
    return f, v


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("intercept", [False, True])
def test_more_columns_than_rows(prior, intercept):
    """Predictors, their variances and differences of bounds do not depend on the coordinates."""
    X, y = simulated(20, 50, seed=6)
    bounds = []
    for c in (0.25, 1.0):
        options = {"c": c, "intercept": intercept, "prior": PRIORS[prior]}
        models = build(X, y, **options), build(X, y, dual=True, **options)
        assert models[1].size == 20 + intercept
        primal, dual = (fitted(model) for model in models)
        exact = [
            polished(model, PRIORS[prior], state.q.mean, covariance(state.q))
            for model, state in zip(models, (primal, dual), strict=True)
        ]
        largest = np.abs(primal.f).max()
        np.testing.assert_allclose(exact[1][0], exact[0][0], rtol=0, atol=1e-10 * largest)
        np.testing.assert_allclose(exact[1][1], exact[0][1], rtol=1e-10)
        for state in (primal, dual):
            np.testing.assert_allclose(state.f, exact[0][0], rtol=0, atol=1e-6 * largest)
            np.testing.assert_allclose(state.v, exact[0][1], rtol=1e-6)
        assert dual.prior.values["scale"] == pytest.approx(primal.prior.values["scale"], rel=1e-6)
        bounds.append((primal.bound, dual.bound))
    (primal_low, dual_low), (primal_high, dual_high) = bounds
    assert primal_high - primal_low == pytest.approx(dual_high - dual_low, rel=1e-10)
    # and the constant between them is known
    constant = unseen_constant(hyperprior_of(PRIORS[prior]), 50, 20)
    assert primal_low - dual_low == pytest.approx(constant, abs=1e-9)


# --- mixture over the scale -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hyperprior", [InverseGamma(3.0, 2.0), InverseGamma(2.0, 1.0), HalfCauchy(0.6)])
@pytest.mark.parametrize("c", [1e-6, 0.1, 0.25, 1.0])
def test_mixture_over_the_scale(hyperprior, c):
    """Moments of coefficient and scale against quadrature over both: the mixture supplies the spread of the scale."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal(12)
    y = np.where(rng.random(12) < 0.8, np.sign(x), -np.sign(x))
    model = build(x[:, None], y, c=c, intercept=False, prior=Ridge(hyperprior=hyperprior))
    state = run(GaussianVI(), model, max_iter=100, tol=1e-10).state
    mixture = mix_over_scale(model, state)
    assert mixture.weights.sum() == pytest.approx(1.0)
    middle = math.exp(mixture.weights @ np.log(mixture.scales))
    # beta = e^t z on a grid of (z, t)
    z, t = np.linspace(-9.0, 9.0, 1201), np.linspace(-6.0, 6.0, 801)
    beta = np.exp(t) * z[:, None]
    joint = hinge_loglik(beta[..., None] * x, y, c) + normal_logpdf(z, 1.0)[:, None] + log_scale_density(hyperprior, t)

    def mean_of(values):
        return grid_expectation(np.broadcast_to(values, beta.shape), joint, z, t)

    assert middle == pytest.approx(math.exp(mean_of(t)), rel=0.025)
    if c == 1e-6 and isinstance(hyperprior, HalfCauchy):
        return  # the coefficient has no variance
    mean = mean_of(beta)
    sd, plain = math.sqrt(mean_of(beta**2) - mean**2), math.sqrt(state.q.var[0])
    ours = float(np.sqrt((mixture.root**2).sum()))
    assert abs(mixture.mean[0] - mean) < 0.05 * sd
    assert ours == pytest.approx(sd, rel=0.05)
    assert abs(ours - sd) < abs(plain - sd)
    if isinstance(hyperprior, InverseGamma):  # the square has no mean under the half-Cauchy
        assert mixture.weights @ mixture.scales**2 == pytest.approx(mean_of(np.exp(2.0 * t)), rel=0.12)


def test_mixture_of_a_narrow_scale_is_the_fit():
    """Where the hyperprior all but fixes the scale, the mixture is the fit at that scale."""
    X, y = simulated(60, 4, seed=8)
    model = build(X, y, c=0.5, prior=Ridge(hyperprior=InverseGamma(1e5, 1e5 * 0.36)))
    state = run(GaussianVI(), model, max_iter=100, tol=1e-10).state
    mixture = mix_over_scale(model, state)
    fixed = fitted(build(X, y, c=0.5, prior=Ridge(scale=0.6)))
    np.testing.assert_allclose(mixture.mean, fixed.q.mean, atol=1e-3)
    np.testing.assert_allclose(mixture.root @ mixture.root.T, covariance(fixed.q), atol=1e-3)
    assert mixture.weights @ mixture.scales == pytest.approx(0.6, rel=1e-3)


# --- short ways that must not change the end --------------------------------------------------------------------


def test_rows_left_out_and_single_precision_do_not_move_the_optimum(monkeypatch):
    """The optimum of a problem large enough for both, against all rows in double precision."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 30))
    y = np.where(X[:, :5].sum(axis=1) * 2.0 + rng.logistic(size=4000) > 0.0, 1.0, -1.0)
    model = build(X, y)
    assert X.size >= gaussian_vi._LARGE
    short = run(GaussianVI(), model, max_iter=200, tol=1e-12)
    left_out = (short.state.ku * short.state.v <= gaussian_vi._NOTHING).mean()
    assert 0.1 < left_out < 0.9
    monkeypatch.setattr(gaussian_vi, "_NOTHING", -1.0)
    monkeypatch.setattr(gaussian_vi, "_LARGE", np.inf)
    long = run(GaussianVI(), model, max_iter=200, tol=1e-12)
    assert short.state.bound == pytest.approx(long.state.bound, rel=1e-10)
    np.testing.assert_allclose(short.state.q.mean, long.state.q.mean, atol=1e-6)
    np.testing.assert_allclose(short.state.q.var, long.state.q.var, rtol=1e-5)
    assert abs(short.n_iter - long.n_iter) <= 3


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_no_run_ends_with_single_precision(tol, monkeypatch):
    """Columns so nearly dependent that it shows; the first matrices are rough, the last one is not."""
    rng = np.random.default_rng(1)
    Z, E = rng.standard_normal((4000, 40)), rng.standard_normal((4000, 20))
    Z[:, 20:] = Z[:, :20] + 1e-2 * E
    y = np.where(E[:, :3].sum(axis=1) + 0.3 * rng.standard_normal(4000) > 0.0, 1.0, -1.0)
    kinds, conditional = [], Model.conditional

    def watched(*args, **options):
        q, rough = conditional(*args, **options)
        kinds.append(rough)
        return q, rough

    monkeypatch.setattr(Model, "conditional", watched)
    outcome = run(GaussianVI(), build(Z, y, prior=Ridge(scale=1e6)), max_iter=200, tol=tol)
    assert kinds[0] and kinds[1] and not kinds[-1]
    assert outcome.converged and not outcome.state.rough


def test_a_bound_is_that_of_its_own_approximation():
    """A covariance from single precision is not quite the best one, but the bound belongs to it."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((4000, 30))
    model = build(X, np.where(X[:, 0] + rng.standard_normal(4000) > 0.0, 1.0, -1.0))
    state, info = GaussianVI().step(model, GaussianVI().init(model), 0)
    assert state.rough and math.isinf(info.change)
    q = state.q
    f, v = model.blocks.matvec(q.mean), np.einsum("ij,ij->i", (Z := rows_of(model)) @ q.root, Z @ q.root)
    message, prior = model.loss.gaussian(model.y, model.c, f, v), model.prior.gaussian(q.mean, q.var)
    assert state.bound == pytest.approx(float(message.bound.sum()) + prior.bound + q.entropy, rel=1e-12)


def test_extrapolation_ends_a_linear_iteration_at_once():
    """A linear map of d dimensions is solved by d + 1 images, whatever the weights."""
    rng = np.random.default_rng(5)
    A, b = 0.5 * rng.standard_normal((3, 3)), rng.standard_normal(3)
    x, history = np.zeros(3), History()
    for _ in range(5):
        history = history.entered(x)
        history = history.extended(None, A @ x + b, 5)
        x = history.images[-1]
        if len(history.images) > 1:
            steps = steps_of(np.stack(history.residuals) * rng.uniform(0.5, 2.0, 3))
            x = weights_of(steps @ steps.T) @ np.stack(history.images)
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(3) - A, b), rtol=1e-6)


def test_variances_along_a_line_stay_positive_where_their_terms_cancel():
    """Missing entries make them quadratic; far out the rounding of the terms is larger than what they sum to."""
    rng = np.random.default_rng(0)
    v, far = rng.exponential(1.0, 200), 10.0 ** rng.uniform(0.0, 30.0, 200)
    wider = -2.0 * np.sqrt(v) * far, far * far  # (sqrt(v) - tau far)^2 touches zero
    for tau in (1e-25, 1e-10, 1.0, *(np.sqrt(v) / far)[:50]):
        assert (Line(v, *wider).variance(v, tau) > 0.0).all()
    near = Line(v, 0.3 * v, 0.2 * v).variance(v, 0.5)
    np.testing.assert_allclose(near, v * (1.0 + 0.15 + 0.05), rtol=1e-15)
