"""Variational fits and modes with random effects: bounds, dense twins, partitions."""

import math
from dataclasses import replace

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import ScaleFactor
from grouped_problems import KINDS, grouped_model, written_out
from scipy.stats import norm

from softmargin.core.loop import run
from softmargin.designs import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.engines.mode.newton import Newton
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.priors import HalfCauchy, InverseGamma, Lasso, Ridge
from softmargin.rows.in_memory import Blocks

UNCOUPLED = [kind for kind in KINDS if kind != "full"]


def covariance_of(model, state, row_precision, prior_precision):
    """The dense covariance that a Gaussian with these precisions has."""
    C, size = model.blocks.design.rows(np.arange(len(model.y))), model.size
    A = (C * row_precision[:, None]).T @ C
    coupling = model.prior.coupling
    if coupling is None:
        A += np.diag(prior_precision)
    else:
        A += np.array([coupling.times(prior_precision, e) for e in np.eye(size)])
    return np.linalg.inv(A), C


def expected_hinge(f, v, y, c):
    """E of -2 c max(1 - y f, 0) under N(f, v): Gauss-Legendre from the kink on, where the integrand is smooth."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    margin, sd = 1.0 - y * f, np.sqrt(v)
    low = np.maximum(-margin / sd, -12.0)
    high = np.maximum(low, 0.0) + 12.0
    z = low[:, None] + (high - low)[:, None] * (0.5 * (nodes + 1.0))
    integrand = (margin[:, None] + sd[:, None] * z) * norm.pdf(z)
    return -2.0 * c * 0.5 * (high - low) * (integrand @ weights)


def part_bounds(model, mean, var, hyperprior, intercept_sd):
    """E log p(beta, variances) - E log q(variances), part by part, by quadrature over the variances."""
    total = float(norm.logpdf(0.0, 0.0, intercept_sd)) - 0.5 * float(mean[0] ** 2 + var[0]) / intercept_sd**2
    for part in model.prior.parts:
        squares = mean[part.where] ** 2 + var[part.where]
        squares = squares[1:] if not part.labels else squares  # the intercept is not shrunk
        total += ScaleFactor(hyperprior, float(squares.sum()), len(squares)).bound()
    return total


@pytest.mark.parametrize("hyperprior", [InverseGamma(2.0, 0.7), HalfCauchy(0.8)])
@pytest.mark.parametrize("kind", ["intercept", "crossed", "smooth"])
def test_variational_bound_computed_directly(kind, hyperprior):
    """E log pseudo-likelihood, E log prior and the entropies, all from the dense covariance."""
    model = grouped_model(kind, n=60, hyperprior=hyperprior, fixed=Ridge(hyperprior=hyperprior, intercept_scale=3.0))
    for engine in (GaussianVI(), MeanField(accelerate=False)):
        state = run(engine, model, max_iter=3).state
        if isinstance(engine, GaussianVI):
            used, D = state.ku, state.Du
            claimed = state.bound
        else:  # the messages before the last map built this Gaussian
            before = run(engine, model, max_iter=2).state
            used, D = before.message.w, before.prior.precision
            claimed = state.objective
        S, C = covariance_of(model, state, used, D)
        mean, v = state.q.mean, np.einsum("ij,jk,ik->i", C, S, C)
        f, y, c = C @ mean, model.y, model.c
        if isinstance(engine, GaussianVI):
            rows = expected_hinge(f, v, y, c)
        else:
            # -c(1 - y f) - (c/2)(chi^-1/2 E(1 - y f)^2 + chi^1/2) at its best chi
            u2 = (1.0 - y * f) ** 2 + v
            rows = -c * (1.0 - y * f) - c * np.sqrt(u2)
        entropy = 0.5 * (len(mean) * (1.0 + math.log(2.0 * math.pi)) + np.linalg.slogdet(S)[1])
        direct = float(rows.sum()) + part_bounds(model, mean, S.diagonal(), hyperprior, 3.0) + entropy
        assert claimed == pytest.approx(direct, abs=1e-8 * (1.0 + abs(direct)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", [GaussianVI(), MeanField(), MeanField(accelerate=False)])
def test_bounds_never_decrease(kind, engine):
    outcome = run(engine, grouped_model(kind), max_iter=150, tol=1e-9)
    assert outcome.converged or not getattr(engine, "accelerate", True)
    trace = np.array(outcome.trace)
    assert (np.diff(trace) >= -1e-10 * np.abs(trace[1:])).all()
    assert outcome.state.prior.values["g"] > 0.05


@pytest.mark.parametrize("kind", UNCOUPLED)
@pytest.mark.parametrize("engine", [GaussianVI(), MeanField()])
def test_agrees_with_the_dense_model(kind, engine):
    model = grouped_model(kind, fixed=Lasso() if kind == "slopes" else None)
    ours, dense = (run(engine, m, max_iter=300, tol=1e-13) for m in (model, written_out(model)))
    assert ours.trace[-1] == pytest.approx(dense.trace[-1], rel=1e-9)
    sd = np.sqrt(dense.state.q.var)
    np.testing.assert_allclose(ours.state.q.mean / sd, dense.state.q.mean / sd, atol=1e-4)
    np.testing.assert_allclose(ours.state.q.var, dense.state.q.var, rtol=1e-4)
    np.testing.assert_allclose(ours.state.v, dense.state.v, rtol=1e-4)
    for name, value in dense.state.prior.values.items():
        assert ours.state.prior.values[name] == pytest.approx(value, rel=1e-4)


def test_full_covariance_at_an_optimum():
    """The bound of the coupled fit as a function of mean and covariance is stationary where the fit ends."""
    model = grouped_model("full")
    state = run(GaussianVI(), model, max_iter=300, tol=1e-13).state
    S, C = covariance_of(model, state, state.message.w, state.prior.precision)
    np.testing.assert_allclose(state.q.var[: model.size], S.diagonal(), rtol=1e-4)
    pairs = S.diagonal(1)[model.prior.parts[1].where.start :: 2]
    assert state.q.var[-1] == pytest.approx(2.0 * float(pairs.sum()), rel=1e-4)
    gradient = C.T @ (state.message.b - state.message.w * state.f) + state.prior.pull(state.q.mean)
    assert float(gradient @ S @ gradient) < 1e-8


@pytest.mark.parametrize("kind", UNCOUPLED)
def test_mode_agrees_with_the_dense_model(kind):
    """Standard deviations from a variational fit, then the exact mode; a lasso on the columns for one kind."""
    model = grouped_model(kind, fixed=Lasso(scale=0.4) if kind == "nested" else Ridge(scale=0.8))
    fit = run(GaussianVI(), model, max_iter=300, tol=1e-9).state
    model = model.with_prior(model.prior.settled(fit.prior))
    ours, dense = (run(Newton(), m, max_iter=20, tol=1e-8).state for m in (model, written_out(model)))
    assert dense.point.certificate.gap < 1e-9
    assert ours.point.certificate.gap < 1e-8
    assert ours.objective == pytest.approx(dense.objective, rel=1e-9)
    np.testing.assert_allclose(ours.point.f, dense.point.f, atol=1e-3)
    em = run(EM(), model, max_iter=3000, tol=1e-11).state
    assert em.objective == pytest.approx(dense.objective, rel=1e-4)


def test_mode_with_a_full_covariance():
    """EM reaches what a dense quadratic programme with the same penalty has; the interior point says no."""
    model = grouped_model("full", n=80, fixed=Ridge(scale=0.8, intercept_scale=5.0))
    fit = run(GaussianVI(), model, max_iter=300, tol=1e-9).state
    model = model.with_prior(model.prior.settled(fit.prior))
    em = run(EM(), model, max_iter=5000, tol=1e-12).state
    C, n, size = model.blocks.design.rows(np.arange(80)), 80, model.size
    P = np.array([model.prior.coupling.times(model.prior.start().precision, e) for e in np.eye(size)])
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    big = sp.block_diag((sp.csc_matrix(np.triu(P)), sp.csc_matrix((n, n)))).tocsc()
    A = sp.bmat([[-model.y[:, None] * C, -sp.identity(n)], [None, -sp.identity(n)]]).tocsc()
    q = np.concatenate((np.zeros(size), 2.0 * model.c))
    right = np.concatenate((-np.ones(n), np.zeros(n)))
    x = np.array(clarabel.DefaultSolver(big, q, A, right, [clarabel.NonnegativeConeT(2 * n)], settings).solve().x)
    beta = x[:size]

    def objective(b):
        return 2.0 * float(model.c @ np.maximum(1.0 - model.y * (C @ b), 0.0)) + 0.5 * float(b @ P @ b)

    assert objective(em.q.mean) == pytest.approx(objective(beta), rel=1e-5)
    np.testing.assert_allclose(em.q.mean, beta, atol=0.02)
    with pytest.raises(ValueError, match="interior point needs"):
        Newton().init(model)


def test_learned_variances_have_no_joint_mode():
    with pytest.raises(ValueError, match="joint mode"):
        EM().init(grouped_model("intercept"))


@pytest.mark.parametrize("kind", ["full", "crossed"])
def test_blocks_and_workers_change_nothing(kind):
    one = grouped_model(kind, n=6000)
    many = grouped_model(kind, n=6000, n_blocks=3, workers=2)
    assert len(one.blocks.cells) == 3
    try:
        left, right = (run(gibbs(chains=2), m, max_iter=3).state for m in (one, many))
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a.beta, b.beta)
            assert a.prior.values == b.prior.values
        a, b = (run(GaussianVI(), m, max_iter=3).state for m in (one, many))
        np.testing.assert_array_equal(a.q.mean, b.q.mean)
        assert a.bound == b.bound
    finally:
        many.blocks.close()


def test_weights_count_like_repeated_rows():
    model = grouped_model("slopes", n=100)
    design, twice = model.blocks.design, np.repeat(np.arange(100), 2)
    (term,) = design.terms
    repeated = Grouped(
        Dense.plain(design.base.X[twice], intercept=True),
        (GroupTerm(term.codes[twice], term.groups, term.columns[twice]),),
    )
    other = replace(model, blocks=Blocks(repeated, model.y[twice], np.ones(200)))
    ours = run(GaussianVI(), model.with_weight(np.full(100, 2.0)), max_iter=300, tol=1e-12).state
    theirs = run(GaussianVI(), other, max_iter=300, tol=1e-12).state
    assert ours.bound == pytest.approx(theirs.bound, rel=1e-9)
    np.testing.assert_allclose(ours.q.mean, theirs.q.mean, atol=1e-4)


# --- the spread that a learned standard deviation adds --------------------------------------------------------


def test_mixture_agrees_with_the_dense_model():
    model = grouped_model("intercept")
    dense = written_out(model)
    ours, theirs = (
        mix_over_scale(m, run(GaussianVI(), m, max_iter=99, tol=1e-12).state, label="g") for m in (model, dense)
    )
    np.testing.assert_allclose(ours.scales, theirs.scales, rtol=1e-6)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-6)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-5)
    np.testing.assert_allclose(ours.root.squares(), (theirs.root**2).sum(axis=1), rtol=1e-5)
    x = np.arange(float(model.size))
    assert ours.root.quadratic(x) == pytest.approx(float((theirs.root.T @ x) @ (theirs.root.T @ x)), rel=1e-5)
    drawn = ours.root.noise(np.random.default_rng(0), 4000)
    np.testing.assert_allclose((drawn**2).mean(axis=0) / ours.root.squares(), 1.0, atol=6.0 * math.sqrt(2.0 / 4000))
    np.testing.assert_allclose(model.blocks.row_quad(ours.root), dense.blocks.row_quad(theirs.root), rtol=1e-5)
    inside = run(GaussianVI(), model, max_iter=99, tol=1e-12).state.q.var
    assert ours.root.squares()[0] > 1.02 * inside[0]  # the intercept feels the standard deviation
    assert len(ours.scales) > 3


def test_mixture_over_other_scales():
    """The scale of the fixed effects by its usual name; what is not learned, or not a scale, is refused."""
    model = grouped_model("intercept")
    fit = run(GaussianVI(), model, max_iter=99, tol=1e-9).state
    assert len(mix_over_scale(model, fit).scales) >= 3
    settled = model.with_prior(model.prior.settled(fit.prior))
    with pytest.raises(ValueError, match="not a learned scale"):
        mix_over_scale(settled, fit, label="g")
    full = grouped_model("full")
    with pytest.raises(ValueError, match="not a learned scale"):
        mix_over_scale(full, run(GaussianVI(), full, max_iter=5).state, label="g")
