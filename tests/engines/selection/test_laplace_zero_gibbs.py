"""Draws under the Laplace-zero prior: indicator odds, enumeration with quadrature, the tilted joint distribution.

Failure rates: every comparison is a z score with a fixed seed and the limit 4, about 60 of them in the file, so that
a correct sampler and fresh seeds would exceed it in 0.4 % of runs; the negative controls must exceed 8.
"""

import itertools
import math
import warnings
from dataclasses import dataclass, fields

import numpy as np
import pytest
from engine_problems import build, hinge_loglik, log_integral, log_scale_density, normal_logpdf, simulated
from scipy import integrate
from scipy.special import betaln, expit
from stages import in_stages

from softmargin.core.loop import Outcome, run
from softmargin.engines.selection.laplace_zero import laplace_zero, log_inclusion_odds
from softmargin.loo.cavity import CavityAverage
from softmargin.priors import FixedScale, HalfCauchy, InverseGamma
from softmargin.priors.laplace_zero import BoundLaplaceZero, LaplaceZero

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz

LIMIT = 4.0
CONTROL = 8.0

PRIORS = {
    "fixed": LaplaceZero(0.3, scale=0.8, intercept_scale=1.5),
    "inverse gamma": LaplaceZero(0.4, hyperprior=InverseGamma(3.0, 2.0), intercept_scale=1.5),
    "half-Cauchy": LaplaceZero(0.4, hyperprior=HalfCauchy(0.6), intercept_scale=1.5),
    "learned inclusion": LaplaceZero("learn", hyperprior=InverseGamma(3.0, 2.0), intercept_scale=1.5),
    "one always in": LaplaceZero(0.4, scale=0.8, always_include=[1], intercept_scale=1.5),
}


def ess(series):
    return float(arviz.ess(np.asarray(series, dtype=float), method="mean"))


def chains_of(model, engine, sweeps, warmup=200):
    """Named series (chain, draw, ...)."""
    kept = {name: [] for name in ("beta", "gamma", "inclusion", "mean", "log_scale", "rate")}
    outcome = Outcome(None)

    def keep(iteration, info):
        if iteration > warmup:
            for name in ("beta", "gamma", "inclusion", "mean"):
                kept[name].append([getattr(chain, name) for chain in outcome.state])
            kept["log_scale"].append([math.log(chain.prior.values["scale"]) for chain in outcome.state])
            kept["rate"].append([chain.prior.values.get("inclusion", math.nan) for chain in outcome.state])
        return False

    run(engine, model, max_iter=warmup + sweeps, callback=keep, outcome=outcome)
    return {name: np.swapaxes(np.array(values), 0, 1) for name, values in kept.items()}


# --- one indicator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curvature", [1e-3, 0.7, 40.0, 1e5])
@pytest.mark.parametrize("pull", [0.0, -0.4, 3.0, -90.0, 900.0])
@pytest.mark.parametrize("rate", [0.02, 1.0, 300.0])
def test_log_odds_equal_quadrature(curvature, pull, rate):
    """The value integrated out numerically, in pieces on each side of zero, to 1e-10."""

    def log_half(slope):
        """log of the integral over t > 0 of exp(slope t - curvature t^2/2)."""
        mode = max(slope, 0.0) / curvature
        top = slope * mode - 0.5 * curvature * mode**2
        width = min(1.0 / math.sqrt(curvature), 1.0 / max(-slope, 1e-300))
        edges = np.unique(np.clip(mode + width * np.array([-40.0, -10.0, -3.0, 0.0, 3.0, 10.0, 40.0]), 0.0, None))
        nodes, weights = np.polynomial.legendre.leggauss(80)
        value = 0.0
        for low, high in itertools.pairwise(edges):
            t = low + (high - low) * 0.5 * (nodes + 1.0)
            value += 0.5 * (high - low) * (weights @ np.exp(slope * t - 0.5 * curvature * t**2 - top))
        return top + math.log(value)

    total, left, right = log_inclusion_odds(curvature, pull, rate)
    halves = math.log(0.5 * rate) + np.array([log_half(-pull - rate), log_half(pull - rate)])
    np.testing.assert_allclose([left, right], halves, rtol=1e-12, atol=1e-10)
    assert total == pytest.approx(np.logaddexp(*halves), rel=1e-12, abs=1e-10)


def test_log_odds_are_those_of_the_scale_mixture():
    """With the local precision b held they are log(t/(t + G))/2 + h^2/(2 (t + G)), t = b/scale^2; averaged over b."""
    G, h, scale = 3.0, 2.2, 0.6

    def inside(b):
        t = b / scale**2
        return 0.5 * b**-2 * math.exp(-0.5 / b + 0.5 * math.log(t / (t + G)) + h * h / (2.0 * (t + G)))

    wanted = math.log(integrate.quad(inside, 0.0, 1.0)[0] + integrate.quad(inside, 1.0, np.inf)[0])
    assert log_inclusion_odds(G, h, 1.0 / scale)[0] == pytest.approx(wanted, abs=1e-8)


def test_no_information_leaves_the_prior():
    """A column that no row sees: the odds are the prior odds, exactly."""
    assert log_inclusion_odds(0.0, 0.0, 2.0)[0] == pytest.approx(0.0, abs=1e-12)


# --- enumeration and quadrature -------------------------------------------------------------------------------


def small_problem(columns, seed=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((8, columns))
    X[:, -1] += 0.8 * X[:, 0]
    y = np.where(rng.random(8) < 0.75, np.sign(X[:, 0]), -np.sign(X[:, 0]))
    return X, y, rng.uniform(0.3, 1.5, 8)


def log_laplace(prior, size, count):
    """log of prod Laplace(u_k | scale) with total |u| = size, averaged over a learned scale."""
    if prior.scale != "learn":
        return -count * math.log(2.0 * prior.scale) - size / prior.scale
    t, grid = np.linspace(-26.0, 9.0, 1751), np.geomspace(1e-9, 20.0, 800)
    joint = log_scale_density(prior.hyperprior, t) - count * (math.log(2.0) + t) - grid[:, None] * np.exp(-t)
    top = joint.max(axis=1, keepdims=True)
    return np.interp(np.log(size), np.log(grid), top[:, 0] + np.log(np.trapezoid(np.exp(joint - top), t, axis=1)))


def enumerated(X, y, c, prior, intercept):
    """Posterior inclusion probability and posterior mean of every coefficient.

    Under a half-Cauchy scale the density of a coefficient has a logarithmic pole at zero: the grid is geometric.
    """
    m, positive = X.shape[1], np.geomspace(1e-8, 9.0, 320)
    axis = np.concatenate((-positive[::-1], positive))
    start = np.linspace(-7.0, 7.0, 281) if intercept else np.zeros(1)
    evidence, means = {}, {}
    for choice in itertools.product((False, True), repeat=m):
        columns = np.flatnonzero(choice)
        if any(place not in columns for place in prior.always_include):
            continue
        grids = np.meshgrid(start, *[axis] * len(columns), indexing="ij")
        f = grids[0][..., None] + sum(g[..., None] * X[:, j] for g, j in zip(grids[1:], columns, strict=True))
        log_density = hinge_loglik(f, y, c)
        if intercept:
            log_density = log_density + normal_logpdf(grids[0], prior.intercept_scale)
        if len(columns):
            log_density = log_density + log_laplace(prior, sum(np.abs(g) for g in grids[1:]), len(columns))
        axes = ([start] if intercept else []) + [axis] * len(columns)
        log_density = log_density if intercept else log_density[0]
        s, k = len(columns) - len(prior.always_include), m - len(prior.always_include)
        log_prior = (
            betaln(1.0 + s, 1.0 + k - s)
            if prior.inclusion == "learn"
            else s * math.log(prior.inclusion) + (k - s) * math.log1p(-prior.inclusion)
        )
        level = log_integral(log_density, *axes) if axes else float(log_density)
        evidence[choice] = level + log_prior
        weight = np.exp(log_density - level)
        means[choice] = np.zeros(m)
        for g, j in zip(grids[1:], columns, strict=True):
            value = weight * (g if intercept else g[0])
            for a in reversed(axes):
                value = np.trapezoid(value, a, axis=-1)
            means[choice][j] = value
    top = max(evidence.values())
    weight = {choice: math.exp(level - top) for choice, level in evidence.items()}
    total = sum(weight.values())
    inclusion = sum(w / total * np.array(choice, dtype=float) for choice, w in weight.items())
    return inclusion, sum(w / total * means[choice] for choice, w in weight.items())


CASES = [
    # prior, columns, intercept, scale moves, scans
    ("fixed", 2, False, True, 1),
    ("fixed", 1, True, False, 2),
    ("half-Cauchy", 1, True, True, 1),
    ("inverse gamma", 2, False, False, 1),
    ("learned inclusion", 2, False, True, 1),
    ("one always in", 2, False, True, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "columns", "intercept", "moves", "scans"), in_stages(CASES, 2))
def test_draws_equal_enumeration(prior, columns, intercept, moves, scans):
    """Inclusion by indicators and by conditional probabilities, and means by draws and conditional means."""
    X, y, c = small_problem(columns)
    model = build(X, y, c=c, prior=PRIORS[prior], intercept=intercept, seed=5)
    draws = chains_of(model, laplace_zero(chains=2, scale_moves=moves, scans=scans), 5_000)
    inclusion, mean = enumerated(X, y, c, PRIORS[prior], intercept)
    for name, wanted in (("gamma", inclusion), ("inclusion", inclusion), ("beta", mean), ("mean", mean)):
        for j in range(columns):
            series = draws[name][..., int(intercept) + j].astype(float)
            if np.ptp(series) == 0.0:
                assert series[0, 0] == 1.0 == pytest.approx(wanted[j])
                continue
            size = ess(series)
            assert size > 500
            z = (series.mean() - wanted[j]) / (series.std() / math.sqrt(size))
            assert abs(z) < LIMIT, (name, j, z)
    np.testing.assert_array_equal(draws["gamma"], (draws["beta"] != 0.0))


# --- the tilted joint distribution ----------------------------------------------------------------------------


def tilted_problem(prior):
    rng = np.random.default_rng(8)
    X, c = rng.standard_normal((6, 2)), rng.uniform(0.3, 1.5, 6)
    return X, c, build(X, np.where(np.arange(6) % 2, 1.0, -1.0), c=c, prior=prior, seed=21)


def statistics(beta, log_scale, rate):
    named = {"log scale": log_scale, "log scale^2": log_scale**2, "rate": rate, "rate^2": rate**2}
    for j in range(3):
        named[f"sign {j}"] = np.tanh(beta[..., j])
        named[f"size {j}"] = np.log(np.abs(beta[..., j]) + 0.1)
        named[f"in {j}"] = (beta[..., j] != 0.0).astype(float)
    inside = (beta[..., 1:] != 0.0).sum(axis=-1)
    named["both"] = (inside == 2).astype(float)
    named["rate in"] = rate * inside
    named["standardized"] = np.minimum(np.abs(beta[..., 1:]).sum(axis=-1) * np.exp(-log_scale), 15.0)
    return named


def importance_reference(X, c, prior, draws=400_000):
    rng, hyperprior = np.random.default_rng(99), prior.hyperprior
    if isinstance(hyperprior, HalfCauchy):
        scale = np.abs(hyperprior.scale * rng.standard_cauchy(draws))
    else:
        scale = (rng.gamma(hyperprior.a, size=draws) / hyperprior.b) ** -0.5
    rate = rng.random(draws) if prior.inclusion == "learn" else np.full(draws, prior.inclusion)
    slopes = scale[:, None] * rng.laplace(size=(draws, 2)) * (rng.random((draws, 2)) < rate[:, None])
    beta = np.column_stack((prior.intercept_scale * rng.standard_normal(draws), slopes))
    f = beta[:, :1] + slopes @ X.T
    either = np.logaddexp(-2.0 * c * np.maximum(1.0 - f, 0.0), -2.0 * c * np.maximum(1.0 + f, 0.0)).sum(axis=1)
    weight = np.exp(either - either.max())
    weight /= weight.sum()
    reference = {}
    for name, value in statistics(beta, np.log(scale), rate).items():
        mean = float(weight @ value)
        reference[name] = mean, math.sqrt(float(weight**2 @ (value - mean) ** 2))
    return reference


def tilted_worst(model, engine, X, c, prior, sweeps, warmup=200):
    """Largest |z| of a chain that alternates one sweep with labels drawn with odds L(+1) : L(-1)."""
    y, rng = model.blocks.y, np.random.default_rng(5)
    chain = engine.init(model)[0]
    beta, log_scale, rate = np.empty((sweeps, 3)), np.empty(sweeps), np.empty(sweeps)
    for iteration in range(1, warmup + sweeps + 1):
        chain = engine.sweep(model, chain, 0, iteration)
        log_odds = 2.0 * c * (np.maximum(1.0 + chain.f, 0.0) - np.maximum(1.0 - chain.f, 0.0))
        y[:] = np.where(rng.random(6) < expit(log_odds), 1.0, -1.0)
        if iteration > warmup:
            at = iteration - warmup - 1
            beta[at], log_scale[at] = chain.beta, math.log(chain.prior.values["scale"])
            rate[at] = chain.prior.values.get("inclusion", prior.inclusion)
    reference, scores = importance_reference(X, c, prior), {}
    for name, value in statistics(beta, log_scale, rate).items():
        if np.ptp(value) > 0.0:
            mean, error = reference[name]
            scores[name] = (value.mean() - mean) / math.hypot(value.std() / math.sqrt(ess(value[None])), error)
    return max(scores.items(), key=lambda entry: abs(entry[1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "moves"),
    in_stages([("half-Cauchy", True), ("inverse gamma", True), ("learned inclusion", True), ("half-Cauchy", False)]),
)
def test_tilted_joint_distribution(prior, moves):
    X, c, model = tilted_problem(PRIORS[prior])
    engine = laplace_zero(chains=1, scale_moves=moves)
    worst = tilted_worst(model, engine, X, c, PRIORS[prior], 8_000)
    assert abs(worst[1]) < LIMIT, worst


@dataclass(frozen=True, eq=False)
class CountsAll(BoundLaplaceZero):
    """The scale is drawn as if the coefficients that are left out were small ones."""

    def draw(self, rng, state, beta):
        right, out = self.scale_prior, int((beta == 0.0).sum())

        class Wrong:
            learned = True

            def log_density(self, log_scale):
                return right.log_density(log_scale) - out * log_scale

        return BoundLaplaceZero(self.free, self.always, self.flat, Wrong(), self.inclusion).draw(rng, state, beta)


@dataclass(frozen=True, eq=False)
class WrongOdds(BoundLaplaceZero):
    """The prior probability is taken for prior odds."""

    @property
    def prior_log_odds(self):
        return np.full(len(self.free), math.log(self.inclusion))


@dataclass(frozen=True, eq=False)
class WrongScale(BoundLaplaceZero):
    """The scale is drawn from half of the sum of |u|."""

    def draw(self, rng, state, beta):
        scale = super().draw(rng, state, 0.5 * beta).values["scale"]
        right = BoundLaplaceZero(self.free, self.always, self.flat, FixedScale(scale), self.inclusion)
        return right.draw(rng, state._replace(values=state.values | {"scale": scale}), beta)


@pytest.mark.soak
@pytest.mark.parametrize("part", [CountsAll, WrongOdds, WrongScale])
def test_tilted_joint_distribution_sees_broken_samplers(part):
    prior = PRIORS["inverse gamma"]
    X, c, model = tilted_problem(prior)
    right = model.prior
    model = model.with_prior(part(**{field.name: getattr(right, field.name) for field in fields(right)}))
    worst = tilted_worst(model, laplace_zero(chains=1), X, c, prior, 14_000)
    assert abs(worst[1]) > CONTROL, worst


# --- reproducibility ------------------------------------------------------------------------------------------


def states(model, engine, sweeps):
    return run(engine, model, max_iter=sweeps).state


def assert_bitwise(left, right):
    for a, b in zip(left, right, strict=True):
        for name in ("beta", "f", "mean", "gamma", "inclusion"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert a.prior.values == b.prior.values
        assert a.loglik == b.loglik


@pytest.mark.parametrize(("n_chains", "n_blocks", "workers"), [(1, 5, 1), (1, None, 2), (3, 3, 3), (2, 1, 4)])
def test_blocks_and_workers_change_nothing(n_chains, n_blocks, workers):
    X, y = simulated(9_000, 6, seed=6)
    prior, engine = LaplaceZero("learn"), laplace_zero(chains=n_chains)
    model = build(X, y, prior=prior, seed=7, n_blocks=n_blocks, workers=workers)
    try:
        assert_bitwise(states(model, engine, 10), states(build(X, y, prior=prior, seed=7), engine, 10))
    finally:
        model.blocks.close()


def test_chains_alone_and_together():
    X, y = simulated(60, 4, seed=6)
    model = build(X, y, prior=LaplaceZero(0.2), seed=7)
    together = states(model, laplace_zero(chains=4), 20)
    assert_bitwise(states(model, laplace_zero(chains=2), 20), together[:2])
    assert all(np.abs(together[i].beta - together[j].beta).max() > 1e-3 for i in range(4) for j in range(i))


def test_records():
    X, y = simulated(60, 4, seed=6)
    model = build(X, y, prior=LaplaceZero("learn", always_include=[2]), seed=7)
    for chain in states(model, laplace_zero(chains=2), 30):
        assert chain.gamma.dtype == bool and chain.gamma[0] and chain.gamma[3]
        np.testing.assert_array_equal(chain.inclusion[[0, 3]], 1.0)
        assert set(chain.prior.values) == {"scale", "size", "inclusion"}
        assert chain.prior.values["size"] == chain.gamma[1:].sum()
        np.testing.assert_array_equal(chain.beta[~chain.gamma], 0.0)
        np.testing.assert_array_equal(chain.mean[~chain.gamma], 0.0)
        np.testing.assert_allclose(chain.f, np.column_stack((np.ones(60), X)) @ chain.beta, atol=1e-12)


def test_leave_one_out_moments():
    """A coefficient that is left out has a precision so high that the moments are those of the others alone."""
    X, y = simulated(60, 4, seed=6, signal=2.0)
    model = build(X, y, prior=LaplaceZero(0.3), seed=7)
    engine = laplace_zero(chains=1)
    chain = engine.init(model)[0]
    for iteration in range(1, 500):
        chain = engine.sweep(model, chain, 0, iteration)
        if 1 < chain.gamma.sum() < 5:
            break
    inside = np.flatnonzero(chain.gamma)
    assert 1 < len(inside) < 5
    average = CavityAverage(model, np.ones(60))
    average.add(chain, 20)
    few = build(X[:, inside[1:] - 1], y, prior=LaplaceZero(0.3), seed=7)
    alone = CavityAverage(few, np.ones(60))
    within = chain.prior._replace(precision=chain.prior.precision[inside])
    alone.add(chain._replace(prior=within, gamma=np.ones(len(inside), dtype=bool)), 20)
    for found, wanted in zip(average.moments(), alone.moments(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
