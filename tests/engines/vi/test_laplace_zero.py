"""Mean field under the Laplace-zero prior against brute force over all indicators and a plain transcription."""

import itertools
import math

import numpy as np
import pytest
from engine_problems import ScaleFactor, build, expected, rows_of, separable, simulated
from scipy import stats
from scipy.special import expit, gammaln

from softmargin.core.loop import run
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB, coefficients
from softmargin.priors import HalfCauchy, InverseGamma
from softmargin.priors.laplace_zero import LaplaceZero

PRIORS = {
    "fixed": LaplaceZero(0.2, scale=0.7, intercept_scale=2.0),
    "inverse gamma": LaplaceZero(0.2, hyperprior=InverseGamma(0.5, 0.3), intercept_scale=2.0),
    "half-Cauchy": LaplaceZero(0.3, hyperprior=HalfCauchy(0.8), intercept_scale=2.0),
    "learned inclusion": LaplaceZero("learn", hyperprior=HalfCauchy(0.8), intercept_scale=2.0),
    "one always in": LaplaceZero(0.2, hyperprior=InverseGamma(0.5, 0.3), always_include=[1], intercept_scale=2.0),
}
PLAIN = LaplaceZeroVB(starts=("all",), trial=1, passes=0, accelerate=False)


def tiny(prior, *, intercept=True, columns=3, seed=1):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((6, columns)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    X[:, 0] += 0.7 * y
    return build(X, y, c=rng.uniform(0.4, 1.6, 6), prior=prior, intercept=intercept)


# --- the bound ------------------------------------------------------------------------------------------------


def direct_bound(model, state):
    """E[log p - log q]: indicators by enumeration, latents and scales by quadrature, in the notation of the paper."""
    X, y, c, prior = rows_of(model), model.y, model.c, model.prior
    covariance, mean = state.q.root @ state.q.root.T, state.q.mean
    Omega = covariance + np.outer(mean, mean)
    free, shrunk, candidates = np.flatnonzero(prior.free), prior.shrunk, prior.candidates
    margin, square, indicators = np.zeros(len(y)), np.zeros(len(y)), 0.0
    for choice in itertools.product((0.0, 1.0), repeat=len(candidates)):
        g = np.ones(model.size)
        g[candidates] = choice
        p = math.prod(p if inside else 1.0 - p for p, inside in zip(state.inclusion[candidates], choice, strict=True))
        if p == 0.0:
            continue
        f = X @ (g * mean)
        margin += p * y * f
        square += p * (1.0 - 2.0 * y * f + np.einsum("ij,jk,ik->i", X * g, Omega, X * g))
        indicators -= p * math.log(p)
    size = state.inclusion[candidates].sum()
    if prior.inclusion is None:
        law = stats.beta(1.0 + size, 1.0 + len(candidates) - size)
        logit = np.linspace(-34.0, 34.0, 20_001)
        x = expit(logit)
        weight = law.pdf(x) * x * (1.0 - x)
        value = size * np.log(x) + (len(candidates) - size) * np.log1p(-x) - law.logpdf(x)
        indicators += np.trapezoid(weight * value, logit)
    else:
        indicators += size * math.log(prior.inclusion) + (len(candidates) - size) * math.log1p(-prior.inclusion)
    rows = 0.0
    for i in range(len(y)):
        root = c[i] * math.sqrt(square[i])

        def log_q(a, root=root):  # generalised inverse Gaussian (1/2, 1, root^2)
            return -0.5 * np.log(2.0 * math.pi * a) - 0.5 * (np.sqrt(a) - root / np.sqrt(a)) ** 2

        def log_p(a, i=i, root=root):
            return -c[i] * (1.0 - margin[i]) - 0.5 * a - 0.5 * root**2 / a - 0.5 * np.log(2.0 * math.pi * a)

        rows += expected(lambda a, p=log_p, q=log_q: p(a) - q(a), log_q)
    local, total = state.prior.precision[shrunk] / state.tau, 0.0
    for mu in local:
        law = stats.invgauss(mu, scale=1.0)  # mean mu, shape 1

        def log_b(b):  # b^(1/2) from the density of v, and b ~ IG(1, 1/2)
            return 0.5 * np.log(b) - math.log(2.0) - 2.0 * np.log(b) - 0.5 / b

        total += expected(lambda b, law=law, log_b=log_b: log_b(b) - law.logpdf(b), law.logpdf)
    E = float(local @ Omega.diagonal()[shrunk])
    if prior.scale_prior.learned:
        scale = ScaleFactor(prior.scale_prior, E, len(shrunk)).bound()
    else:
        tau = prior.scale_prior.scale**-2
        scale = 0.5 * len(shrunk) * math.log(tau / (2.0 * math.pi)) - 0.5 * tau * E
    intercept = 0.5 * np.sum(np.log(prior.flat / (2.0 * math.pi)) - prior.flat * Omega.diagonal()[free])
    entropy = 0.5 * np.linalg.slogdet(2.0 * math.pi * math.e * covariance)[1]
    return rows + total + scale + intercept + entropy + indicators


@pytest.mark.parametrize("cycles", [1, 4, 300])
@pytest.mark.parametrize("prior", PRIORS)
def test_bound_equals_brute_force(prior, cycles):
    """After one cycle, after four, and converged, to 1e-8."""
    model = tiny(PRIORS[prior])
    state = PLAIN.init(model)
    for t in range(cycles - 1):
        state, _ = PLAIN.step(model, state, t)
    assert state.objective == pytest.approx(direct_bound(model, state), abs=1e-8)


def test_bound_without_intercept():
    model = tiny(PRIORS["inverse gamma"], intercept=False, columns=2)
    state = run(LaplaceZeroVB(), model, max_iter=5).state
    assert state.objective == pytest.approx(direct_bound(model, state), abs=1e-8)


@pytest.mark.parametrize("engine", [PLAIN, LaplaceZeroVB()], ids=["plain", "default"])
@pytest.mark.parametrize("prior", PRIORS)
def test_bound_never_falls(prior, engine):
    X, y = simulated(150, 8, seed=3, signal=1.5)
    outcome = run(engine, build(X, y, c=0.7, prior=PRIORS[prior]), max_iter=200, tol=1e-13)
    trace = np.array(outcome.trace)
    assert np.diff(trace).min() > -1e-9 * (1.0 + abs(trace[-1]))


# --- a plain transcription ------------------------------------------------------------------------------------


def algorithm_three(C, y, rho, a, b, sb2, cycles):
    """Algorithm 3 as printed, with one column for the intercept, started with every indicator at one."""
    n, q = C.shape
    m = q - 1
    w, ms, mb, mg = np.ones(n), 1.0, np.ones(m), np.ones(q)
    for _ in range(cycles):
        W = np.diag(w)
        Omega_g = np.diag(mg * (1.0 - mg)) + np.outer(mg, mg)
        Sigma = np.linalg.inv((C.T @ W @ C) * Omega_g + np.diag(np.concatenate(([1.0 / sb2], ms * mb))))
        mu = Sigma @ (mg * (C.T @ ((1.0 + w) * y)))
        Omega = Sigma + np.outer(mu, mu)
        for k in range(1, q):
            mb[k - 1] = (ms * Omega[k, k]) ** -0.5
            z, others = C[:, k], np.delete(np.arange(q), k)
            eta = math.log(rho / (1.0 - rho)) - 0.5 * (z @ W @ z) * Omega[k, k] + z @ y * mu[k]
            eta += z @ W @ (y * mu[k] - C[:, others] @ (mg[others] * Omega[others, k]))
            mg[k] = expit(eta)
        Omega_g = np.diag(mg * (1.0 - mg)) + np.outer(mg, mg)
        chi = 1.0 - 2.0 * y * (C @ (mg * mu)) + np.einsum("ij,jk,ik->i", C, Omega_g * Omega, C)
        w = chi**-0.5
        rate = b + 0.5 * mb @ Omega.diagonal()[1:]
        ms = (a + 0.5 * m) / rate
        g = mg[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.where(g > 0, g * np.log(g / rho), 0.0)
            divergence += np.where(g < 1, (1.0 - g) * np.log((1.0 - g) / (1.0 - rho)), 0.0)
        # the printed bound, with K_1/2 in closed form
        log_bessel = 0.5 * np.log(0.5 * math.pi / np.sqrt(chi)) - np.sqrt(chi)
        bound = (n - m) * math.log(2.0) - n + 0.5 * q - 0.5 * (n - m) * math.log(2.0 * math.pi)
        bound += y @ C @ (mg * mu) + 0.25 * np.log(chi).sum() + log_bessel.sum()
        bound += (
            0.5 * np.linalg.slogdet(Sigma)[1] - 0.5 * math.log(sb2) - 0.5 * Omega[0, 0] / sb2 - 0.5 * (1 / mb).sum()
        )
        bound += a * math.log(b) - gammaln(a) - (a + 0.5 * m) * math.log(rate) + gammaln(a + 0.5 * m)
        bound -= divergence.sum()
        # n log 2 cancels against log K: sum_i log{(2 pi)^(-1/2) chi^(1/4) 2 K_1/2} = -sum sqrt(chi)
    return mu, Sigma, mg, ms, bound


@pytest.mark.parametrize("seed", [12, 13, 15])
def test_same_fixed_point_as_the_printed_algorithm(seed):
    X, y = simulated(60, 5, seed=seed, signal=1.2)
    C = np.column_stack((np.ones(60), X))
    mu, Sigma, mg, ms, bound = algorithm_three(C, y, 0.1, 0.5, 0.3, 100.0, 1500)
    assert mg[1:].max() > 0.5 > mg[1:].min()  # a problem with something to choose
    prior = LaplaceZero(0.1, hyperprior=InverseGamma(0.5, 0.3), intercept_scale=10.0)
    model = build(X, y, prior=prior)
    for engine in (PLAIN, LaplaceZeroVB(starts=("all",), passes=0)):
        outcome = run(engine, model, max_iter=500, tol=1e-16)
        state = outcome.state
        for _ in range(500):  # the bound is flat at its top: settle the arguments
            state = PLAIN.step(model, state, 0)[0]
        assert state.objective == pytest.approx(bound, abs=1e-8)
        np.testing.assert_allclose(state.q.mean, mu, atol=1e-8)
        np.testing.assert_allclose(state.q.root @ state.q.root.T, Sigma, atol=1e-8)
        np.testing.assert_allclose(state.inclusion, mg, atol=1e-8)
        assert state.tau == pytest.approx(ms, rel=1e-8)


def test_weights_are_repeated_rows():
    X, y = simulated(40, 4, seed=2)
    times = np.random.default_rng(0).integers(1, 4, 40)
    weighted = run(LaplaceZeroVB(), build(X, y, c=times, prior=PRIORS["half-Cauchy"]), max_iter=400, tol=1e-14)
    repeated = build(np.repeat(X, times, axis=0), np.repeat(y, times), prior=PRIORS["half-Cauchy"])
    again = run(LaplaceZeroVB(), repeated, max_iter=400, tol=1e-14)
    assert weighted.trace[-1] == pytest.approx(again.trace[-1], rel=1e-10)
    np.testing.assert_allclose(weighted.state.inclusion, again.state.inclusion, atol=1e-6)
    np.testing.assert_allclose(weighted.state.q.mean, again.state.q.mean, atol=1e-5)


def test_coefficients():
    """Moments of u = g v by enumeration."""
    model = tiny(PRIORS["half-Cauchy"])
    state = run(PLAIN, model, max_iter=3).state
    assert np.any((state.inclusion > 0.01) & (state.inclusion < 0.99))
    first, second = np.zeros(4), np.zeros((4, 4))
    Omega = state.q.root @ state.q.root.T + np.outer(state.q.mean, state.q.mean)
    for choice in itertools.product((0.0, 1.0), repeat=3):
        g = np.array((1.0, *choice))
        p = np.prod(np.where(g == 1.0, state.inclusion, 1.0 - state.inclusion))
        first += p * g * state.q.mean
        second += p * np.outer(g, g) * Omega
    mean, root = coefficients(state)
    np.testing.assert_allclose(mean, first, atol=1e-13)
    np.testing.assert_allclose(root @ root.T, second - np.outer(first, first), atol=1e-13)
    np.testing.assert_allclose(state.f, rows_of(model) @ first, atol=1e-13)
    assert set(state.prior.values) == {"scale", "size"}
    assert state.prior.values["size"] == pytest.approx(state.inclusion[1:].sum())


# --- starts ---------------------------------------------------------------------------------------------------


def correlated(n=80, seed=0):
    """Two correlated predictors that matter together, and one that does not."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3))
    X = np.column_stack((z[:, 0], 0.9 * z[:, 0] + math.sqrt(1.0 - 0.81) * z[:, 1], z[:, 2]))
    y = np.where(2.0 * X[:, 0] - 2.0 * X[:, 1] + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return X, y


def test_the_best_start_is_kept():
    """Each predictor alone says little: from single columns the bound stops far below the one from all."""
    X, y = correlated()
    model = build(X, y, prior=LaplaceZero(0.05, hyperprior=HalfCauchy(1.0)))
    ends = {}
    for start in ("all", "screened", "annealed"):
        state = run(LaplaceZeroVB(starts=(start,), passes=0), model, max_iter=500, tol=1e-12).state
        ends[start] = state.objective
    low = PLAIN.init(model)
    g = np.array([1.0, 0.0, 0.0, 0.0])
    low = run(PLAIN, model, max_iter=500, tol=1e-12, state=low._replace(inclusion=g)).state
    assert max(ends.values()) > low.objective + 5.0
    best = run(LaplaceZeroVB(), model, max_iter=500, tol=1e-12)
    assert best.state.objective >= max(ends.values()) - 1e-6
    np.testing.assert_array_equal(best.state.inclusion[1:] > 0.5, [True, True, False])


def test_refinement_leaves_a_poor_optimum():
    """Columns are tried on their other side, alone: one that was left out by a bad start comes back."""
    X, y = simulated(200, 6, seed=4, signal=2.0)
    model = build(X, y, prior=LaplaceZero(0.1))
    engine = LaplaceZeroVB()
    best = run(engine, model, max_iter=300, tol=1e-12).state
    strongest = 1 + int(np.argmax(np.abs(best.q.mean[1:]) * best.inclusion[1:]))
    g = best.inclusion.copy()
    g[strongest] = 0.0
    poor = run(PLAIN, model, max_iter=300, tol=1e-12, state=best._replace(inclusion=g)).state
    assert poor.objective < best.objective - 1.0
    assert poor.inclusion[strongest] < 1e-3
    assert engine._refine(model, poor).objective > best.objective - 1e-3


def test_unknown_start():
    with pytest.raises(ValueError, match="starts must be some of"):
        LaplaceZeroVB(starts=("cold",))


def test_saturated_indicators_stay_finite():
    X, y = separable(80, 5)
    for prior in (LaplaceZero(1e-8), LaplaceZero(1.0 - 1e-8), LaplaceZero("learn")):
        outcome = run(LaplaceZeroVB(), build(1e3 * X, y, prior=prior), max_iter=100, tol=1e-9)
        mean, root = coefficients(outcome.state)
        assert np.isfinite(mean).all() and np.isfinite(root).all() and np.isfinite(outcome.trace).all()


def test_one_class_and_no_columns_to_choose():
    X, _ = simulated(12, 2, seed=0)
    one = run(LaplaceZeroVB(), build(X, np.ones(12), prior=LaplaceZero(0.5)), max_iter=50)
    assert np.isfinite(one.trace).all()
    every = run(LaplaceZeroVB(), build(X, np.sign(X[:, 0]), prior=LaplaceZero(always_include=[0, 1])), max_iter=50)
    np.testing.assert_array_equal(every.state.inclusion, 1.0)
    assert np.diff(every.trace).min() > -1e-9
