"""Expansions on all rows: the generalised kernel model and the two support vector machines against quadrature.

Failure rates: every comparison is a z score with a fixed seed and the limit 4; there are about 40 of them.
"""

import numpy as np
import pytest
from jump_problems import evidence, problem, z_score
from scipy.special import expit, log_ndtr, ndtr, ndtri
from scipy.stats import invgamma
from scipy.stats import t as student
from scipy.stats.qmc import Sobol
from stages import in_stages

from softmargin import BayesianKernelClassifier
from softmargin.engines.kernel.data import Spectrum
from softmargin.engines.kernel.jump import fit_active
from softmargin.engines.kernel.machines import MachinePrior
from softmargin.losses import Hinge, Logit, Probit
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Streams

LIMIT = 4.0


def normalised(f):
    return expit(2 * (np.maximum(1 + f, 0) - np.maximum(1 - f, 0)))


LOSSES = {"probit": (Probit(), ndtr), "logit": (Logit(), expit), "hinge": (Hinge(), normalised)}


def drawn(K, y, weight=None, **options):
    settings = {"basis": "full", "sweeps": 2000, "warmup": 300, "thin": 1, "chains": 2, "streams": Streams((5, 6))}
    return fit_active(K, y, weight, **(settings | options))


@pytest.mark.parametrize(
    ("likelihood", "fixed"), in_stages([("probit", True), ("probit", False), ("logit", False), ("hinge", False)])
)
def test_all_rows_active_equals_quadrature(likelihood, fixed):
    """Equal weights, which have a path of their own, and others."""
    _, y, K, new = problem(4, seed=1)
    loss, link = LOSSES[likelihood]
    prior = GPrior(0.4, 0.8) if fixed else GPrior((6.0, 3.0), (5.0, 4.0))
    weight = np.array([2.0, 1.0, 1.0, 3.0]) if fixed else np.ones(4)
    L, parts = evidence(loss, link, K, y, weight, new, [0, 1, 2, 3], prior, 15)
    draws = drawn(K, y, weight, likelihood=likelihood, prior=prior)
    p = draws.link(draws.predictor(new).ravel(), 0.0, 1.0).reshape(*draws.intercept.shape, 2)
    z = [z_score(p[..., i], parts[i] / L) for i in range(2)]
    z += [z_score(np.log(draws.values[name]), parts[i] / L) for name, i in (("g", -2), ("eta", -1))]
    assert np.abs(z).max() < LIMIT, z
    np.testing.assert_allclose(draws.probability(new), p.mean((0, 1)), atol=1e-12)
    np.testing.assert_array_equal(draws.active_probability(), 1.0)


@pytest.mark.filterwarnings("ignore:the chains disagree")
def test_the_estimator_draws_the_probit_on_all_rows_likewise():
    """Its predictions are averages over the draws."""
    X, y, K, new = problem(4, seed=1)
    L, parts = evidence(Probit(), ndtr, K, y, np.ones(4), new, [0, 1, 2, 3], GPrior(), 15)
    model = BayesianKernelClassifier(
        "rbf", 1.5, "probit", "full", "gibbs", standardize=False, draws=3000, warmup=300, chains=2, random_state=0,
        engine_options={"prior": GPrior()},
    ).fit(X, y)  # fmt: skip
    draws = model.posterior_
    p = ndtr(draws.predictor(new)).reshape(*draws.intercept.shape, 2)
    z = [z_score(p[..., i], parts[i] / L) for i in range(2)] + [z_score(np.log(draws.values["g"]), parts[-2] / L)]
    assert np.abs(z).max() < LIMIT, z
    at = np.array([[0.3, -0.2], [-1.0, 0.8]])
    np.testing.assert_allclose(model.predict_proba(at)[:, 1], p.mean((0, 1)), atol=1e-12)
    assert not hasattr(model, "active_")
    with pytest.raises(ValueError, match="unknown engine_options"):
        model.set_params(engine_options={"moves": 3}).fit(X, y)


def test_spectrum_of_a_singular_kernel():
    _, _, K, _ = problem(6, seed=2)
    K = K[np.ix_([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2])]
    spectrum = Spectrum.of(K)
    assert spectrum.values.shape == (3,)
    np.testing.assert_allclose(spectrum.X @ spectrum.X.T, K, atol=1e-12)
    np.testing.assert_allclose(K @ spectrum.dual, spectrum.X, atol=1e-12)
    np.testing.assert_allclose(spectrum.sums, spectrum.X.sum(axis=0))


def noisy_likelihood(t, s):
    """``E exp(-2 max(1 - z, 0))``, z ~ N(t, s^2), in its two closed pieces."""
    return np.exp(log_ndtr((t - 1) / s)) + np.exp(2 * (t - 1) + 2 * s * s + log_ndtr((1 - t - 2 * s * s) / s))


def complete_likelihood(t, s):
    """``E p(z)`` by the trapezoidal rule; p has kinks, so many nodes."""
    nodes = np.linspace(-8, 8, 161)
    mass = np.exp(-0.5 * nodes**2)
    total = np.zeros_like(t)
    for node, each in zip(nodes, mass / mass.sum(), strict=True):
        total += each * normalised(t + s * node)
    return total


@pytest.mark.parametrize(
    ("likelihood", "evaluate"),
    in_stages([("noisy-hinge", noisy_likelihood), ("complete-hinge", complete_likelihood)]),
)
def test_machines_equal_quadrature(likelihood, evaluate):
    """Quasi Monte Carlo over intercept, t distributed coefficients and noise, z integrated out."""
    _, y, K, new = problem(3, seed=3)
    prior = MachinePrior((3.0, 2.0), (4.0, 2.0), 0.5)
    weight = np.array([1.0, 2.0, 1.0])
    u = Sobol(5, rng=np.random.default_rng(0)).random_base2(14)
    s = np.sqrt(invgamma(4.0, scale=2.0).ppf(u[:, 0]))
    level = s * ndtri(u[:, 1]) / np.sqrt(0.5)
    # beta | s2 = sqrt(s2/lam) N(0, 1), lam ~ Gamma(3, rate 2): sqrt(s2 2/3) times t on 6 degrees of freedom
    beta = (s * np.sqrt(2.0 / 3.0))[:, None] * student(6).ppf(u[:, 2:])
    f, at = level[:, None] + beta @ K, level[:, None] + beta @ new.T
    L = np.prod([evaluate(y[i] * f[:, i], s) ** weight[i] for i in range(3)], axis=0)
    draws = drawn(K, y, weight, likelihood=likelihood, machine_prior=prior, sweeps=3000)
    shape, sampled = draws.intercept.shape, draws.predictor(new)
    z = [z_score(np.log(draws.values["noise"]), L @ np.log(s) / L.sum())]
    z += [z_score(sampled[:, i].reshape(shape), L @ at[:, i] / L.sum()) for i in range(2)]
    z += [z_score((sampled[:, i] > 0.5).reshape(shape), L @ (at[:, i] > 0.5) / L.sum()) for i in range(2)]
    z.append(z_score(draws.intercept > 0, L @ (level > 0) / L.sum()))
    assert np.abs(z).max() < LIMIT, z
    answers = [L @ complete_likelihood(at[:, i], s) / L.sum() for i in range(2)]
    np.testing.assert_allclose(draws.probability(new), answers, atol=0.015)
