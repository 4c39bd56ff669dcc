"""Probit and logit through the engines: modes, variational bounds, and simulation-based calibration of the sampler."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from engine_problems import build, rows_of, simulated
from scipy import optimize, stats
from scipy.special import log_expit, log_ndtr

from softmargin.core.loop import run
from softmargin.core.model import require
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import CompleteHinge, Logit, NoisyHinge, Probit, Rows
from softmargin.priors import Ridge

LOG_LIKELIHOOD = {"probit": log_ndtr, "logit": log_expit}
LOSSES = {"probit": Probit(), "logit": Logit()}


def problem(name, *, n=60, p=3, seed=1, c=1.0, scale=1.5):
    X, y = simulated(n, p, seed)
    model = build(X, y, c=c, prior=Ridge(scale=scale, intercept_scale=3.0), seed=4)
    return replace(model, loss=LOSSES[name])


def objective(model, name, beta):
    """Minus log likelihood and log prior, without the library's losses."""
    fit = model.c @ LOG_LIKELIHOOD[name](model.y * (rows_of(model) @ beta))
    sd = np.array([3.0] + [1.5] * (model.size - 1))
    return -float(fit + stats.norm(scale=sd).logpdf(beta).sum())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_mode_by_em(name, weighted):
    """EM ends where a general optimiser does, to 1e-6, for any weights."""
    model = problem(name, c=np.linspace(0.2, 2.3, 60) if weighted else 1.0)
    outcome = run(EM(), model, max_iter=2000, tol=1e-15)
    assert np.diff(outcome.trace).min() > -1e-10
    best = optimize.minimize(
        lambda b: objective(model, name, b), np.zeros(model.size), method="BFGS", options={"gtol": 1e-9}
    )
    np.testing.assert_allclose(outcome.state.q.mean, best.x, atol=2e-6)
    assert outcome.state.objective == pytest.approx(-best.fun, abs=1e-8)


def gaussian_bound(model, name, mean, root):
    """E log likelihood + E log prior + entropy of N(mean, root root'), by Gauss-Hermite quadrature a row."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    X = rows_of(model)
    f, sd = X @ mean, np.linalg.norm(X @ root, axis=1)
    fit = LOG_LIKELIHOOD[name](model.y[:, None] * (f[:, None] + sd[:, None] * nodes)) @ weights / weights.sum()
    precision = np.array([3.0**-2] + [1.5**-2] * (model.size - 1))
    second = mean**2 + (root**2).sum(axis=1)
    prior = 0.5 * np.log(precision / (2.0 * math.pi)).sum() - 0.5 * float(precision @ second)
    entropy = 0.5 * model.size * math.log(2.0 * math.pi * math.e) + math.log(abs(np.linalg.det(root)))
    return float(model.c @ fit) + prior + entropy


@pytest.mark.parametrize("name", LOSSES)
def test_best_gaussian(name):
    """The variational fit beats what a general optimiser finds over means and triangular roots, at the same bound."""
    model = problem(name, n=25, p=1, c=np.linspace(0.2, 2.3, 25))
    state = run(GaussianVI(), model, max_iter=300, tol=1e-13).state
    assert state.bound == pytest.approx(gaussian_bound(model, name, state.q.mean, state.q.root), abs=1e-8)

    def loss(theta):
        root = np.array([[math.exp(theta[2]), 0.0], [theta[4], math.exp(theta[3])]])
        return -gaussian_bound(model, name, theta[:2], root)

    best = optimize.minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-7})
    root = np.array([[math.exp(best.x[2]), 0.0], [best.x[4], math.exp(best.x[3])]])
    np.testing.assert_allclose(state.q.mean, best.x[:2], atol=1e-5)
    np.testing.assert_allclose(state.q.root @ state.q.root.T, root @ root.T, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_mean_field_is_below_the_best_gaussian(name):
    model = problem(name)
    augmented = run(MeanField(), model, max_iter=2000, tol=1e-14)
    assert np.diff(augmented.trace).min() > -1e-10
    assert augmented.state.objective < run(GaussianVI(), model, max_iter=300, tol=1e-12).state.bound - 1e-3


@pytest.mark.parametrize("loss", [NoisyHinge(0.7), CompleteHinge(0.7)], ids=["noisy", "complete"])
def test_other_latent_normal_losses_run(loss):
    """EM reaches a stationary point of the log posterior; the complete hinge has no exact Gaussian average."""
    model = replace(problem("probit"), loss=loss)
    beta = run(EM(), model, max_iter=3000, tol=1e-15).state.q.mean
    precision = np.array([3.0**-2] + [1.5**-2] * 3)
    gradient = rows_of(model).T @ loss.score(model.y, model.c, rows_of(model) @ beta) - precision * beta
    assert np.abs(gradient).max() < 1e-5
    if isinstance(loss, NoisyHinge):
        assert np.diff(run(GaussianVI(), model, max_iter=100, tol=1e-10).trace).min() > -1e-9
    if isinstance(loss, CompleteHinge):
        with pytest.raises(TypeError, match="GaussianVI needs a loss with 'gaussian', which CompleteHinge does not"):
            require(GaussianVI(), loss=loss, prior=model.prior)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [NoisyHinge(0.7), CompleteHinge(0.7)], ids=["noisy", "complete"])
def test_other_latent_normal_losses_are_sampled(loss):
    """Mean and variance of one slope under whole weights against a grid, within 4 standard errors."""
    X, y = simulated(10, 1, seed=2)
    c = np.where(np.arange(10) % 2, 1.0, 2.0)
    model = replace(build(X, y, c=c, prior=Ridge(scale=1.5), intercept=False, seed=4), loss=loss)
    beta = np.linspace(-8.0, 8.0, 1601)
    density = np.array([loss.loglik(y, c, X[:, 0] * b).sum() for b in beta]) - 0.5 * (beta / 1.5) ** 2
    mass = np.exp(density - density.max())
    mean = float(mass @ beta / mass.sum())
    engine, drawn = gibbs(chains=1), np.empty(4000)
    chain = engine.init(model)[0]
    for iteration in range(-100, len(drawn)):
        chain = engine.sweep(model, chain, 0, iteration + 101)
        if iteration >= 0:
            drawn[iteration] = chain.beta[0]
    for sample, wanted in ((drawn, mean), ((drawn - mean) ** 2, float(mass @ (beta - mean) ** 2 / mass.sum()))):
        error = sample.reshape(40, -1).mean(axis=1).std(ddof=1) / math.sqrt(40)
        assert abs(sample.mean() - wanted) < 4.0 * error


# --- simulation-based calibration -----------------------------------------------------------------------------

DRAWS, THIN, WARMUP = 31, 2, 20
X_SMALL = np.random.default_rng(12).standard_normal((20, 1))


def ranks(loss, simulate, replications=200):
    """Rank of each true coefficient, and of the log likelihood, among thinned draws; data from the model itself."""
    rng, engine, out = np.random.default_rng(0), gibbs(chains=1), np.empty((replications, 3), dtype=int)
    prior = Ridge(scale=1.5, intercept_scale=1.0)
    for r in range(replications):
        beta = rng.standard_normal(2) * [1.0, 1.5]
        f = beta[0] + X_SMALL[:, 0] * beta[1]
        y = simulate(rng, f)
        model = replace(build(X_SMALL, y, prior=prior, seed=r), loss=loss)
        chain, drawn = engine.init(model)[0], np.empty((DRAWS, 3))
        for iteration in range(1, WARMUP + DRAWS * THIN + 1):
            chain = engine.sweep(model, chain, 0, iteration)
            if iteration > WARMUP and (iteration - WARMUP) % THIN == 0:
                drawn[(iteration - WARMUP) // THIN - 1] = *chain.beta, chain.loglik
        truth = np.array([*beta, loss.loglik(y, np.ones(len(f)), f).sum()])
        out[r] = (drawn < truth).sum(axis=0)
    return out


def p_values(found):
    """Chi-squared test of uniform ranks in eight bins."""
    counts = np.stack([np.bincount(column // 4, minlength=8) for column in found.T])
    return stats.chisquare(counts, axis=1).pvalue


def by_probit(rng, f):
    return np.where(f + rng.standard_normal(len(f)) > 0.0, 1.0, -1.0)


def by_logit(rng, f):
    return np.where(f + rng.logistic(size=len(f)) > 0.0, 1.0, -1.0)


@pytest.mark.soak
@pytest.mark.parametrize(("loss", "simulate"), [(Probit(), by_probit), (Logit(), by_logit)], ids=["probit", "logit"])
def test_simulation_based_calibration(loss, simulate):
    assert p_values(ranks(loss, simulate)).min() > 1e-3


@dataclass(frozen=True)
class FlatLatent(Probit):
    """The truncated normal forgets where its mean is."""

    def draw(self, rng, y, c, f):
        return super().draw(rng, y, c, 0.5 * f)


@dataclass(frozen=True)
class SmallLatent(Logit):
    """The latent is a quarter of what it should be."""

    def draw(self, rng, y, c, f):
        w, b = super().draw(rng, y, c, f)
        return Rows(0.25 * w, b)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "simulate"), [(FlatLatent(), by_probit), (SmallLatent(), by_logit)])
def test_calibration_sees_broken_latents(loss, simulate):
    assert p_values(ranks(loss, simulate, 100)).min() < 1e-6
