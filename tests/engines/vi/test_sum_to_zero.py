"""The multicategory model: its mode, its bound and its draws against independent computations."""

import math

import numpy as np
import pytest
from class_problems import build_classes, class_objective, convex_classes, simulated_classes
from engine_problems import build, grid_expectation, log_scale_density, simulated
from scipy.special import exp1
from sklearn.datasets import load_iris, load_wine
from stages import in_stages

from softmargin.core.loop import iterate, run
from softmargin.engines.mode.duality_gap import certify
from softmargin.engines.mode.newton import Newton
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import hmc
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.priors import Bridge, GroupLasso, HalfCauchy, Horseshoe, InverseGamma, Lasso, Ridge

COSTS = np.array([[0.0, 1.0, 3.0], [0.5, 0.0, 1.0], [2.0, 0.0, 0.0]])  # one pair of classes costs nothing


def weights(n, seed=1):
    return np.random.default_rng(seed).uniform(0.3, 2.0, n)


def blocks_of(model, beta):
    """Coefficients as k rows."""
    return beta.reshape(model.space.k, -1)


def mode(model):
    return run(Newton(), model, max_iter=50).state.point


def columns_of(name):
    data = {"iris": load_iris, "wine": load_wine}[name]()
    return (data.data - data.data.mean(axis=0)) / data.data.std(axis=0), data.target


# --- the mode -------------------------------------------------------------------------------------------------

PENALTIES = {
    "ridge": (lambda s: Ridge(scale=s), lambda s: {"ridge": s**-2}, lambda s, b: 0.5 * (b**2).sum() / s**2),
    "lasso": (lambda s: Lasso(scale=s), lambda s: {"lasso": 1.0 / s}, lambda s, b: np.abs(b).sum() / s),
    "group": (
        lambda s: GroupLasso(scale=s),
        lambda s: {"group": 1.0 / s},
        lambda s, b: np.sqrt((b**2).sum(0)).sum() / s,
    ),
}


def agrees(name, X, label, scale, **options):
    """Our mode and Clarabel's have the same objective, computed from the definition, and the gap says so."""
    prior, rates, value = PENALTIES[name]
    model = build_classes(X, label, prior=prior(scale), **options)
    point = mode(model)

    def penalty(b):
        return float(value(scale, b))

    peer = convex_classes(X, label, **rates(scale), **options)
    ours = class_objective(X, label, blocks_of(model, point.beta), penalty, **options)
    theirs = class_objective(X, label, peer, penalty, **options)
    assert abs(ours - theirs) <= 1e-8 * theirs
    assert -1e-12 <= point.certificate.gap <= 1e-8
    np.testing.assert_allclose(blocks_of(model, point.beta).sum(axis=0), 0.0, atol=1e-10)
    return point


@pytest.mark.parametrize("name", list(PENALTIES))
@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize("options", [{}, {"c": weights(50), "costs": COSTS}, {"c": weights(50), "own": 2.5}], ids=str)
def test_mode_equals_convex_solver(name, scale, options):
    X, label = simulated_classes(50, 4, 3, seed=3)
    agrees(name, X, label, scale, **options)


@pytest.mark.parametrize("name", list(PENALTIES))
@pytest.mark.parametrize("options", [{"costs": COSTS}, {"own": 2.5}], ids=["costs", "own"])
def test_certificate_is_valid_at_any_point(name, options):
    """The lower bound stays below the optimum for any multipliers, and is of use near the optimal ones."""
    X, label = simulated_classes(40, 3, 3, seed=8)
    model = build_classes(X, label, prior=PENALTIES[name][0](0.5), c=weights(40), **options)
    state = run(Newton(), model, max_iter=50).state
    point, rng, useful = state.point, np.random.default_rng(0), 0
    optimum = point.certificate.objective
    for k in range(200):
        size = 10.0 ** rng.uniform(-7, 0.5)
        move = rng.standard_normal((3, 4))
        beta = point.beta + size * (move - move.mean(axis=0)).ravel()
        noise = rng.standard_normal(len(model.y))
        g = model.c * (1.0 + noise) if k % 3 == 0 else point.g + size * model.c * noise
        found = certify(model, beta, model.blocks.matvec(beta), g, state.penalty)
        assert found.lower <= optimum * (1.0 + 1e-9)
        assert found.objective >= optimum * (1.0 - 1e-9)
        useful += found.gap < 0.05
    assert useful > 40


@pytest.mark.parametrize("name", list(PENALTIES))
@pytest.mark.parametrize("data", ["iris", "wine"])
def test_mode_on_real_data(name, data):
    X, label = columns_of(data)
    agrees(name, X, label, 0.2)


@pytest.mark.parametrize("name", list(PENALTIES))
def test_mode_with_more_columns_than_rows(name):
    """No matrix of the size of the coefficients is factored, and many classes do as well as three."""
    X, label = simulated_classes(24, 60, 4, seed=5)
    for own in (0.0, 4.0):
        agrees(name, X, label, 0.2, c=weights(24), intercept=name != "ridge", own=own)


def test_rotated_coordinates_give_the_same_scores():
    X, label = simulated_classes(20, 70, 3, seed=2)
    wide, rotated = (build_classes(X, label, prior=Ridge(scale=0.3), dual=dual) for dual in (False, True))
    assert rotated.size == 3 * (20 + 1)
    np.testing.assert_allclose(mode(rotated).f, mode(wide).f, atol=1e-8)


def test_unconstrained_model_is_degenerate():
    """Without the sum to zero every slope vanishes; with it the classes are told apart."""
    X, label = simulated_classes(60, 3, 3, seed=0)
    X = X - X.mean(axis=0)
    free = convex_classes(X, label, ridge=1.0, tied=False)
    assert np.abs(free[:, 1:]).max() < 1e-8
    point = mode(build_classes(X, label, prior=Ridge(scale=1.0)))
    beta = point.beta.reshape(3, -1)
    assert np.abs(beta[:, 1:]).max() > 0.1
    assert ((beta[:, 0] + X @ beta[:, 1:].T).argmax(axis=1) == label).mean() > 0.6


@pytest.mark.parametrize("prior", [Ridge(scale=1.0), Lasso(scale=0.3), GroupLasso(scale=0.3)], ids=str)
def test_permuting_classes_permutes_the_mode(prior):
    X, label = simulated_classes(60, 3, 3, seed=7)
    order = np.array([2, 0, 1])
    one = mode(build_classes(X, label, prior=prior)).beta.reshape(3, -1)
    two = mode(build_classes(X, order[label], prior=prior)).beta.reshape(3, -1)
    np.testing.assert_allclose(two[order], one, atol=1e-8)


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField()], ids=["vb", "meanfield"])
@pytest.mark.parametrize(
    "prior", [Ridge(), Lasso(), GroupLasso(), Horseshoe()], ids=["ridge", "lasso", "group", "horse"]
)
def test_permuting_classes_permutes_the_posterior(engine, prior):
    X, label = simulated_classes(40, 2, 3, seed=7)
    order = np.array([2, 0, 1])
    one, two = (run(engine, build_classes(X, l, prior=prior), max_iter=500, tol=1e-13) for l in (label, order[label]))
    for moment in ("mean", "var"):
        a, b = (getattr(o.state.q, moment).reshape(3, -1) for o in (one, two))
        np.testing.assert_allclose(b[order], a, rtol=1e-6, atol=1e-7)
    assert one.trace[-1] == pytest.approx(two.trace[-1], rel=1e-10)


# --- two classes ----------------------------------------------------------------------------------------------


def two_classes(prior, other, **options):
    """The binary model, and the same as a model of two classes: f_1 = -f_0 is the binary predictor."""
    X, y = simulated(60, 3, seed=4)
    c = weights(60)
    binary = build(X, y, c=(1.0 + options.get("own", 0.0)) * c, prior=prior)
    return binary, build_classes(X, (y > 0).astype(int), c=c, prior=other, **options)


@pytest.mark.parametrize(
    ("prior", "other"),
    [
        (Ridge(scale=0.7), Ridge(scale=0.7 * math.sqrt(2.0), intercept_scale=1e4 * math.sqrt(2.0))),
        (Lasso(scale=0.2), Lasso(scale=0.4, intercept_scale=1e4 * math.sqrt(2.0))),
    ],
    ids=["ridge", "lasso"],
)
@pytest.mark.parametrize("engine", [Newton(), GaussianVI(), MeanField()], ids=["map", "vb", "meanfield"])
@pytest.mark.parametrize("own", [0.0, 1.5])
def test_two_classes_equal_the_binary_model(prior, other, engine, own):
    """Both coefficients count: the normal scale is sqrt(2) times, the Laplace scale twice the binary one.

    The pair of a row with its own class says what the other one does, so that the row weighs ``1 + own``.
    """
    binary, pair = two_classes(prior, other, own=own)
    first, second = (run(engine, model, max_iter=500, tol=0.0) for model in (binary, pair))
    one, two = first.state, second.state
    if isinstance(engine, Newton):
        beta, halves = one.point.beta, two.point.beta.reshape(2, -1)
    else:
        beta, halves = one.q.mean, two.q.mean.reshape(2, -1)
        np.testing.assert_allclose(two.q.var.reshape(2, -1)[1], one.q.var, rtol=1e-7)
        assert second.trace[-1] == pytest.approx(first.trace[-1], rel=1e-12)
    np.testing.assert_allclose(halves[1], beta, atol=1e-8)
    np.testing.assert_allclose(halves[0], -halves[1], atol=1e-12)


# --- bounds ---------------------------------------------------------------------------------------------------

LEARNED = {
    "ridge": Ridge(),
    "lasso": Lasso(),
    "group": GroupLasso(),
    "horseshoe": Horseshoe(),
    "bridge": Bridge(0.7),
    "ridge-inverse-gamma": Ridge(hyperprior=InverseGamma(2.0, 1.0)),
}


@pytest.mark.parametrize("engine", [GaussianVI(), MeanField(accelerate=False)], ids=["vb", "meanfield"])
@pytest.mark.parametrize("name", list(LEARNED))
def test_bound_never_falls(engine, name):
    X, label = simulated_classes(40, 3, 4, seed=1)
    model = build_classes(X, label, prior=LEARNED[name], c=weights(40))
    trace = run(engine, model, max_iter=60, tol=1e-12).trace
    assert np.diff(trace).min(initial=0.0) >= -1e-9 * abs(trace[-1])
    assert len(trace) > 2


@pytest.mark.parametrize("name", ["ridge", "lasso", "group"])
def test_bound_equals_a_direct_average(name):
    """E log p - E log q in the space of coefficients, by draws from q, at a fixed scale."""
    X, label = simulated_classes(30, 2, 3, seed=6)
    prior = {"ridge": Ridge(scale=0.8), "lasso": Lasso(scale=0.5), "group": GroupLasso(scale=0.5)}[name]
    model = build_classes(X, label, prior=prior)
    state = run(GaussianVI(), model, max_iter=200, tol=1e-12).state
    rng = np.random.default_rng(0)
    draws = np.array([state.q.draw(rng) for _ in range(20_000)])
    start = model.prior.start()
    log_p = np.array([model.loss.loglik(model.y, model.c, model.blocks.matvec(b)).sum() for b in draws])
    log_p += np.array([model.prior.logpdf(start, b) for b in draws])
    theta = (draws - state.q.mean).reshape(len(draws), 3, -1)
    theta = np.einsum("sr,drj->dsj", model.space.contrast, theta).reshape(len(draws), -1)
    A = np.linalg.inv(np.cov(theta.T, bias=True))
    root = np.einsum("sr,rjm->sjm", model.space.contrast, state.q.root.reshape(3, -1, theta.shape[1]))
    covariance = root.reshape(theta.shape[1], -1) @ root.reshape(theta.shape[1], -1).T
    np.testing.assert_allclose(np.linalg.inv(A), covariance, atol=0.05 * covariance.diagonal().max())
    quad = np.einsum("ds,st,dt->d", theta, np.linalg.inv(covariance), theta)
    log_q = -0.5 * (quad + theta.shape[1] * math.log(2.0 * math.pi) + np.linalg.slogdet(covariance)[1])
    gain = log_p - log_q
    error = gain.std() / math.sqrt(len(gain))
    if name == "group":  # the expected length is replaced by its bound
        assert state.bound <= gain.mean() + 4.0 * error
        assert state.bound >= gain.mean() - 0.5
    else:
        assert abs(state.bound - gain.mean()) <= 4.0 * error


def test_many_em_iterations_stay_finite():
    X, label = simulated_classes(60, 3, 3, seed=2)
    model = build_classes(X, label, prior=Lasso(scale=0.2))
    last = None
    for _, state, info in iterate(EM(accelerate=False), model, max_iter=5000):
        assert math.isfinite(info.objective)
        last = state
    certificate = mode(model).certificate
    hinge = -float(model.loss.loglik(model.y, model.c, last.f).sum())
    assert hinge + np.abs(last.q.mean[~model.free]).sum() / 0.2 == pytest.approx(certificate.objective, rel=1e-5)


# --- draws ----------------------------------------------------------------------------------------------------


class Quadrature:
    """One column, no intercept, three classes: (theta_1, theta_2) and the log scale on a grid."""

    def __init__(self, X, label, log_prior, hyperprior=None, shape=2, nodes=161):
        """``log_prior(beta, scale)`` without its normaliser ``scale^-shape``."""
        t = np.linspace(-6.0, 6.0, nodes)
        contrast = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
        grid = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1)
        beta = grid @ contrast
        loss = np.zeros(beta.shape[:2])
        for x, own in zip(X[:, 0], label, strict=True):
            for r in set(range(3)) - {int(own)}:
                loss += np.maximum(x * beta[..., r] + 0.5, 0.0)
        l = np.array([0.0]) if hyperprior is None else np.linspace(-4.0, 4.0, 121)
        scale = np.exp(l)[:, None, None]
        log_density = -2.0 * loss + log_prior(beta[None], scale) - shape * l[:, None, None]
        if hyperprior is not None:
            log_density = log_density + hyperprior(l)[:, None, None]
        self.axes = (l, t, t) if hyperprior is not None else (t, t)
        self.log_density = log_density if hyperprior is not None else log_density[0]
        self.beta, self.l = beta, l

    def mean(self, function):
        values = function(self.beta, self.l[:, None, None])
        values = np.broadcast_to(values, self.log_density.shape)
        return grid_expectation(values, self.log_density, *self.axes)


def z_scores(sample, exact):
    """Standardised error of the mean of every column, from batches."""
    batches = np.array([b.mean(axis=0) for b in np.array_split(sample, 40)])
    return (batches.mean(axis=0) - exact) / (batches.std(axis=0, ddof=1) / math.sqrt(len(batches)))


def chain_of(model, sweeps=6000, engine=None):
    """Statistics of one chain: b_0, b_2, b_0^2, |b| and the log scale."""
    out = []
    for k, state, _ in iterate(gibbs(chains=1) if engine is None else engine, model, max_iter=sweeps + 200):
        beta = state[0].beta
        if k > 200:
            out.append([beta[0], beta[2], beta[0] ** 2, np.abs(beta).sum(), math.log(state[0].prior.values["scale"])])
    return np.array(out)


STATISTICS = (
    lambda b, l: b[..., 0],
    lambda b, l: b[..., 2],
    lambda b, l: b[..., 0] ** 2,
    lambda b, l: np.abs(b).sum(axis=-1),
    lambda b, l: l,
)
LOG_PRIORS = {
    "ridge": lambda b, s: -0.5 * (b**2).sum(axis=-1) / s**2,
    "lasso": lambda b, s: -np.abs(b).sum(axis=-1) / s,
    "group": lambda b, s: -np.sqrt((b**2).sum(axis=-1)) / s,
}
FAMILIES = {"ridge": Ridge, "lasso": Lasso, "group": GroupLasso}


def small_problem():
    rng = np.random.default_rng(11)
    label = np.repeat(np.arange(3), [5, 4, 4])
    return (np.array([-1.2, 0.2, 1.0])[label] + rng.standard_normal(13))[:, None], label


@pytest.mark.parametrize("name", in_stages(FAMILIES))
def test_draws_equal_quadrature_at_a_fixed_scale(name):
    X, label = small_problem()
    exact = Quadrature(X, label, lambda b, s: LOG_PRIORS[name](b, 0.8))
    sample = chain_of(build_classes(X, label, prior=FAMILIES[name](scale=0.8), intercept=False, seed=1))
    z = z_scores(sample[:, :4], [exact.mean(f) for f in STATISTICS[:4]])
    assert np.abs(z).max() < 4.0


def horseshoe_density(b, scale):
    """Log of ``e^z E_1(z)`` with ``z = b^2/(2 scale^2)``, up to a constant."""
    z = 0.5 * (b / scale) ** 2
    return np.log(exp1(z)) + z


@pytest.mark.parametrize(
    ("prior", "log_prior"),
    in_stages(
        [
            (Bridge(0.7, scale=0.8), lambda b, s: -((np.abs(b) / 0.8) ** 0.7).sum(axis=-1)),
            (Horseshoe(scale=0.8), lambda b, s: horseshoe_density(b, 0.8).sum(axis=-1)),
        ]
    ),
    ids=["bridge", "horseshoe"],
)
def test_draws_under_peaked_priors(prior, log_prior):
    X, label = small_problem()
    exact = Quadrature(X, label, log_prior, nodes=400)  # an even number: no node at the peak
    sample = chain_of(build_classes(X, label, prior=prior, intercept=False, seed=1), sweeps=4000)
    assert np.abs(z_scores(sample[:, :4], [exact.mean(f) for f in STATISTICS[:4]])).max() < 4.0


@pytest.mark.parametrize("name", in_stages(["group", "lasso", "ridge"]))
def test_draws_equal_quadrature_with_a_learned_scale(name):
    """The scale counts p(k - 1) dimensions; with pk the same chain is many standard errors off."""
    X, label = small_problem()
    a, b, power = 3.0, 2.0, 2.0 if name == "ridge" else 1.0

    def log_hyper(l):  # scale^-power ~ Gamma(a, b)
        return -power * a * l - b * np.exp(-power * l)

    prior = FAMILIES[name](hyperprior=InverseGamma(a, b))
    right, wrong = (Quadrature(X, label, LOG_PRIORS[name], log_hyper, shape) for shape in (2, 3))
    sample = chain_of(build_classes(X, label, prior=prior, intercept=False, seed=2), sweeps=6000)
    assert np.abs(z_scores(sample, [right.mean(f) for f in STATISTICS])).max() < 4.0
    assert np.abs(z_scores(sample, [wrong.mean(f) for f in STATISTICS])).max() > 8.0


@pytest.mark.soak
def test_draws_with_a_half_cauchy_scale():
    X, label = small_problem()
    exact = Quadrature(X, label, LOG_PRIORS["ridge"], lambda l: log_scale_density(HalfCauchy(1.0), l))
    sample = chain_of(build_classes(X, label, prior=Ridge(hyperprior=HalfCauchy(1.0)), intercept=False, seed=3))
    assert np.abs(z_scores(sample, [exact.mean(f) for f in STATISTICS])).max() < 4.0


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_trajectories_equal_quadrature(name, learned):
    """Hamiltonian draws in the k - 1 contrasts, the scale integrated out or, under lengths, drawn."""
    X, label = small_problem()
    power, prior = 2.0 if name == "ridge" else 1.0, FAMILIES[name](scale=0.8)
    exact = Quadrature(X, label, lambda b, s: LOG_PRIORS[name](b, 0.8))
    if learned:
        prior = FAMILIES[name](hyperprior=InverseGamma(3.0, 2.0))
        exact = Quadrature(X, label, LOG_PRIORS[name], lambda l: -power * 3.0 * l - 2.0 * np.exp(-power * l))
    model = build_classes(X, label, prior=prior, intercept=False, seed=4)
    sweeps = 4000 if name != "group" else 1500
    sample, count = chain_of(model, sweeps, hmc(model, 1)), 5 if learned else 4
    assert np.abs(z_scores(sample[:, :count], [exact.mean(f) for f in STATISTICS[:count]])).max() < 4.0


@pytest.mark.parametrize("alone", [False, True], ids=["copied", "direct"])
@pytest.mark.parametrize("prior", [Ridge(), Horseshoe()], ids=["shared", "local"])
def test_trajectories_stay_in_the_space_of_the_coefficients(alone, prior):
    X, label = simulated_classes(60, 3, 4, seed=1)
    model = build_classes(X, label, prior=prior)
    engine = hmc(model, 2, alone=alone)
    state = engine.init(model)
    for iteration in range(20):
        state, _ = engine.step(model, state, iteration)
    for k, each in enumerate(state):
        chain = engine.complete(model, each, k, 20)
        np.testing.assert_allclose(chain.beta.reshape(4, -1).sum(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(chain.f, model.blocks.matvec(chain.beta), atol=1e-9)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_chain_does_not_depend_on_the_solver(name):
    """More columns than rows: the same draws as from the factor of the whole precision, in distribution."""
    X, label = simulated_classes(12, 30, 3, seed=9)
    model = build_classes(X, label, prior=FAMILIES[name](scale=0.3))
    rng = np.random.default_rng(0)
    w, b = rng.exponential(size=len(model.y)), rng.standard_normal(len(model.y))
    precision = np.where(model.free, 1e-2, rng.exponential(size=model.size))
    wide, plain = model.solver(w, b, precision), model.gaussian(w, b, precision)
    np.testing.assert_allclose(wide.mean, plain.mean, rtol=1e-8, atol=1e-10)
    rhs = rng.standard_normal(model.size)
    np.testing.assert_allclose(wide.solve(rhs), plain.solve(rhs), rtol=1e-8, atol=1e-10)
    draws = np.array([wide.draw(rng) for _ in range(2000)])
    x = np.asarray(model.blocks.design.rows([0, 15])) @ (draws - plain.mean).T
    expected = model.blocks.design.row_quad(plain.root)[[0, 15]]
    np.testing.assert_allclose((x**2).mean(axis=1), expected, rtol=5.0 * math.sqrt(2.0 / 2000))


def test_number_of_threads_does_not_matter():
    X, label = simulated_classes(900, 3, 4, seed=0)
    one, two = (build_classes(X, label, prior=Ridge(), workers=workers) for workers in (1, 2))
    a, b = (run(gibbs(chains=2), model, max_iter=3).state for model in (one, two))
    np.testing.assert_array_equal(a[1].beta, b[1].beta)
    two.blocks.close()
