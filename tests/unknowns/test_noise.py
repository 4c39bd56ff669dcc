"""Learned noise levels: the level's law, bounds and modes by quadrature and optimisation, samplers by quadrature."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, log_scale_density, normal_logpdf, rows_of
from scipy import integrate, optimize
from stages import in_stages

from softmargin.core.loop import run
from softmargin.engines.alternate import Alternate
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import EpsilonInsensitive, Squared
from softmargin.priors import HalfCauchy, Ridge
from softmargin.unknowns.noise import Noise

LIMIT = 4.0
LOSSES = {"squared": Squared(), "epsilon": EpsilonInsensitive(0.2), "laplace": EpsilonInsensitive(0.0)}
HYPER = HalfCauchy(1.0)


def each(parts):
    return [pytest.param(part, id=name) for name, part in parts.items()]


def problem(loss, *, n=9, p=1, c=None, seed=3, prior=None, intercept=False):
    """A few rows with a slope; weights are counts."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = X @ np.linspace(0.8, -0.5, p) + 0.5 * rng.standard_normal(n)
    c = np.ones(n) if c is None else c
    model = build(X, y, c=c, prior=Ridge(scale=0.7) if prior is None else prior, intercept=intercept, seed=5)
    return replace(model, loss=loss)


def noisy(model, noise=None):
    """The model with its noise among the unknowns."""
    return model.with_unknowns((Noise(HYPER) if noise is None else noise,))


def error_logpdf(loss, e, l):
    """Log density of the errors, straight from the definitions."""
    if isinstance(loss, Squared):
        return normal_logpdf(e, np.exp(l))
    nu = np.exp(l)
    return -np.log(2.0 * loss.epsilon + nu) - 2.0 * np.maximum(np.abs(e) - loss.epsilon, 0.0) / nu


def log_joint(model, beta, l, loss=None):
    """Log of likelihood times both priors, one slope, over arrays of beta and log levels that broadcast."""
    loss = model.loss if loss is None else loss
    x = rows_of(model)[:, 0]
    total = normal_logpdf(beta, 0.7) + log_scale_density(HYPER, l)
    for i in range(len(x)):
        total = total + model.c[i] * error_logpdf(loss, model.y[i] - x[i] * beta, l)
    return total


# --- the law of the level -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", each(LOSSES))
@pytest.mark.parametrize(("T", "N"), [(3.0, 9.0), (0.4, 2.5), (500.0, 2000.0)])
def test_law_of_the_level(loss, T, N):
    """Mean weight and evidence against adaptive quadrature, and the mode against its neighbours."""

    def log_density(l):
        kappa = math.exp(-loss.noise_power * l)
        return float(log_scale_density(HYPER, l)) - kappa * T - N * float(loss.log_normalizer(kappa))

    law, mode = Noise(HYPER).law(loss, T, N), Noise(HYPER).law(loss, T, N, mode=True)
    peak = float(mode.points[0])
    top = log_density(peak)
    assert all(log_density(peak + step) < top for step in (-1e-3, 1e-3))
    assert mode.value == pytest.approx(top, rel=1e-12)
    assert mode.weight == pytest.approx(math.exp(-loss.noise_power * peak), rel=1e-9)
    ends = np.linspace(-9.0, 12.0, 200)

    def quad(weight):
        parts = [
            integrate.quad(lambda l: weight(l) * math.exp(log_density(l) - top), a, b, epsabs=1e-14)[0]
            for a, b in pairwise(ends)
        ]
        return sum(parts)

    total = quad(lambda l: 1.0)
    tolerance = 1e-9 if N > 5 else 2e-5  # the tails of very few rows are cut at twelve standard deviations
    assert law.value == pytest.approx(top + math.log(total), abs=tolerance)
    assert law.weight == pytest.approx(quad(lambda l: math.exp(-loss.noise_power * l)) / total, rel=tolerance)
    assert float(law.masses.sum()) == pytest.approx(1.0)


def test_a_fixed_level_stays():
    law = Noise(HYPER, level=0.4).law(Squared(), 3.0, 9.0)
    assert law.weight == pytest.approx(0.4**-2)
    assert law.value == pytest.approx(-3.0 / 0.16 - 4.5 * math.log(2.0 * math.pi * 0.16))


# --- approximations and modes ---------------------------------------------------------------------------------


def direct_bound(model, state):
    """E[log p - log q] over a normal slope and the level's density, without the library's averages."""
    q, law = state.inner.q, state.unknowns[0].law
    mean, sd = float(q.mean[0]), math.sqrt(float(q.var[0]))
    z = np.linspace(-9.0, 9.0, 4001)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    spacing = law.points[1] - law.points[0]
    log_q = normal_logpdf(z, 1.0) - math.log(sd)
    values = log_joint(model, (mean + sd * z)[:, None], law.points) - log_q[:, None]
    kept = law.masses > 1e-200
    return float(weight @ (values[:, kept] - np.log(law.masses[kept] / spacing)) @ law.masses[kept])


@pytest.mark.parametrize("loss", each(LOSSES))
def test_vb_bound_is_the_bound(loss):
    """The objective equals E[log p - log q], rises, and lies below the evidence by little."""
    model = problem(loss, c=np.linspace(0.5, 2.0, 9))
    outcome = run(Alternate(GaussianVI()), noisy(model), max_iter=200, tol=1e-12)
    assert np.diff(outcome.trace).min() > -1e-10
    assert outcome.state.objective == pytest.approx(direct_bound(model, outcome.state), abs=1e-5)
    beta, l = np.linspace(-3.0, 4.0, 1401)[:, None], np.linspace(-9.0, 9.0, 1801)
    density = log_joint(model, beta, l)
    evidence = density.max() + math.log(np.exp(density - density.max()).sum() * (7.0 / 1400) * (18.0 / 1800))
    assert evidence - 0.2 < outcome.state.objective < evidence


def test_bounds_of_two_losses_differ_as_their_evidences_do():
    """Both have their normalising constants: the difference of bounds is that of exact evidences, within 0.05 nats."""
    beta, l = np.linspace(-1.0, 2.0, 1201)[:, None], np.linspace(-4.0, 3.0, 1401)
    found = []
    for loss in (Squared(), EpsilonInsensitive(0.3)):
        model = problem(loss, n=60)
        density = log_joint(model, beta, l)
        evidence = density.max() + math.log(np.exp(density - density.max()).sum() * (3.0 / 1200) * (7.0 / 1400))
        bound = run(Alternate(GaussianVI()), noisy(model), max_iter=200, tol=1e-12).state.objective
        found.append((evidence, bound))
    (first, first_bound), (second, second_bound) = found
    assert abs(first - second) > 0.5
    assert first_bound - second_bound == pytest.approx(first - second, abs=0.05)


@pytest.mark.parametrize("learned", [False, True])
def test_bound_depends_on_the_unit_of_the_response_as_a_density_does(learned):
    """A response in other units: less one log unit per row, with a band that is learned too."""
    found = []
    for unit in (1.0, 1e3):
        hyper = HalfCauchy(unit)
        noise = Noise(hyper, width_prior=hyper if learned else None, unit=unit)
        model = problem(EpsilonInsensitive(0.3), n=40, prior=Ridge(scale=0.7))
        model = replace(
            build(rows_of(model), unit * model.y, prior=Ridge(scale=0.7 * unit), intercept=False),
            loss=EpsilonInsensitive(0.3 * unit),
        )
        state = run(Alternate(GaussianVI()), noisy(model, noise), max_iter=300, tol=1e-13).state
        found.append(state.objective + 40.0 * math.log(unit))
    assert found[0] == pytest.approx(found[1], abs=1e-4)


@pytest.mark.parametrize("loss", each(LOSSES))
def test_mean_field_is_below(loss):
    """The augmented bound rises, is below that of the best Gaussian, and equal to it where there is no latent."""
    model = problem(loss, n=40, p=3, intercept=True)
    best, augmented = (
        run(Alternate(engine), noisy(model), max_iter=500, tol=1e-12) for engine in (GaussianVI(), MeanField())
    )
    assert np.diff(augmented.trace).min() > -1e-9
    if isinstance(loss, Squared):
        assert augmented.state.objective == pytest.approx(best.state.objective, abs=1e-7)
    else:
        assert best.state.objective - 6.0 < augmented.state.objective < best.state.objective - 0.1


@pytest.mark.parametrize("loss", each(LOSSES))
def test_mode_of_coefficients_and_level(loss):
    """The joint mode in (beta, log level): no other optimiser finds a higher point."""
    model = problem(loss, n=40, p=2)
    outcome = run(Alternate(EM(), mode=True), noisy(model), max_iter=2000, tol=1e-14)
    assert np.diff(outcome.trace).min() > -1e-9
    X = rows_of(model)

    def objective(theta):
        fit = error_logpdf(loss, model.y - X @ theta[:2], theta[2]).sum()
        return -float(fit + normal_logpdf(theta[:2], 0.7).sum() + log_scale_density(HYPER, theta[2]))

    start = np.append(outcome.state.inner.q.mean, outcome.state.unknowns[0].law.points[0])
    assert outcome.state.objective == pytest.approx(-objective(start), abs=1e-5)
    other = optimize.minimize(objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
    assert objective(start) < other.fun + 1e-6
    np.testing.assert_allclose(start, other.x, atol=2e-3)


def test_mode_equals_a_quadratic_programme():
    """Fixed level and ridge: the epsilon-insensitive mode is a quadratic programme."""
    import clarabel

    model = problem(EpsilonInsensitive(0.2), n=60, p=4, c=np.linspace(0.5, 2.0, 60))
    outcome = run(Alternate(EM(), mode=True), noisy(model, Noise(HYPER, level=0.3)), max_iter=5000, tol=1e-15)
    X, n = rows_of(model), 60
    P = sp.diags(np.concatenate((np.full(4, 0.7**-2), np.zeros(n)))).tocsc()
    q = np.concatenate((np.zeros(4), 2.0 * model.c / 0.3))
    A = sp.vstack(
        (
            sp.hstack((-X, -sp.identity(n))),
            sp.hstack((X, -sp.identity(n))),
            sp.hstack((sp.csr_matrix((n, 4)), -sp.identity(n))),
        )
    )
    right = np.concatenate((0.2 - model.y, 0.2 + model.y, np.zeros(n)))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solved = clarabel.DefaultSolver(P, q, A.tocsc(), right, [clarabel.NonnegativeConeT(3 * n)], settings).solve()
    np.testing.assert_allclose(outcome.state.inner.q.mean, np.array(solved.x)[:4], atol=2e-5)


@pytest.mark.parametrize("loss", each(LOSSES))
@pytest.mark.parametrize("engine", [GaussianVI(), MeanField(), EM()], ids=lambda e: type(e).__name__)
def test_weights_are_repeated_rows(loss, engine):
    model = problem(loss, n=30, p=2, c=np.where(np.arange(30) % 3, 1.0, 2.0))
    times = model.c.astype(int)
    twice = replace(
        build(
            np.repeat(rows_of(model), times, axis=0), np.repeat(model.y, times), prior=Ridge(scale=0.7), intercept=False
        ),
        loss=loss,
    )
    learned = Alternate(engine, mode=isinstance(engine, EM))
    one, two = (run(learned, noisy(each), max_iter=1000, tol=1e-13).state for each in (model, twice))
    assert one.objective == pytest.approx(two.objective, rel=1e-7)
    assert one.unknowns[0].weight == pytest.approx(two.unknowns[0].weight, rel=1e-4)


def test_learned_band_maximises_the_bound():
    """The band found is better than its neighbours, and finds the shape of the errors."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    for errors, low, high in ((rng.laplace(size=400) * 0.3, 0.0, 0.1), (rng.uniform(-1.0, 1.0, size=400), 0.8, 1.1)):
        model = replace(build(X, X @ [0.5, -0.2] + errors, prior=Ridge(scale=1.0)), loss=EpsilonInsensitive(0.5))
        banded = noisy(model, Noise(HYPER, width_prior=HYPER))
        state = run(Alternate(GaussianVI()), banded, max_iter=100, tol=1e-10).state
        width = state.unknowns[0].loss.epsilon
        assert low <= width <= high
        for other in (width + 0.05, max(width - 0.05, 1e-3)):
            fixed = replace(model, loss=EpsilonInsensitive(other))
            bound = run(Alternate(GaussianVI()), noisy(fixed), max_iter=100, tol=1e-10).state.objective
            assert state.objective > bound + HYPER.log_density(math.log(other)) - math.log(other) - 1e-6


# --- samplers -------------------------------------------------------------------------------------------------


def chain_of(model, noise, sweeps):
    """Draws of the slope, log level and log band of one chain."""
    engine, model = gibbs(chains=1), noisy(model, noise)
    state, out = engine.init(model)[0], np.empty((sweeps, 3))
    for iteration in range(-200, sweeps):
        state = engine.sweep(model, state, 0, iteration + 201)
        if iteration >= 0:
            drawn = state.unknowns[0]
            width = getattr(drawn.loss, "epsilon", 1.0)
            out[iteration] = state.beta[0], drawn.log_level, math.log(max(width, 1e-300))
    return out


def scores(draws, exact):
    """z scores of means and mean squares, with standard errors from batches."""
    found = {}
    for name, (values, mean) in exact.items():
        sample = values(draws)
        batches = sample[: len(sample) // 40 * 40].reshape(40, -1).mean(axis=1)
        found[name] = (sample.mean() - mean) / (batches.std(ddof=1) / math.sqrt(40))
    return found


def exact_means(weight, beta, l, t=None):
    """The same means from a grid of unnormalised masses (beta, log level[, log band])."""
    axes = (beta, l) if t is None else (beta, l, t)
    weight = weight / weight.sum()
    exact = {}
    for k, (name, axis) in enumerate(zip(("slope", "log level", "log band"), axes, strict=False)):
        margin = weight.sum(axis=tuple(j for j in range(len(axes)) if j != k))
        for power in (1, 2):
            centre = float(margin @ axis) if power == 2 else 0.0
            wanted = float(margin @ (axis - centre) ** power)
            exact[f"{name} {power}"] = (lambda d, k=k, c=centre, p=power: (d[:, k] - c) ** p), wanted
    return exact


@pytest.mark.parametrize("loss", each(LOSSES))
@pytest.mark.parametrize("level", in_stages([None, 0.4]))
def test_gibbs_equals_quadrature(loss, level):
    """Slope and log level within 4 standard errors, with weights; the level learned or fixed."""
    model = problem(loss, c=np.linspace(0.5, 2.0, 9))
    draws = chain_of(model, Noise(HYPER, level=level), 3000)
    beta = np.linspace(-3.0, 4.0, 701)
    l = np.linspace(-8.0, 6.0, 701) if level is None else np.array([math.log(level)])
    density = log_joint(model, beta[:, None], l)
    exact = exact_means(np.exp(density - density.max()), beta, l)
    if level is not None:
        assert np.ptp(draws[:, 1]) == 0.0
        exact = {name: entry for name, entry in exact.items() if name.startswith("slope")}
    assert max(map(abs, scores(draws, exact).values())) < LIMIT


def test_gibbs_with_a_learned_band_equals_quadrature():
    model = problem(EpsilonInsensitive(0.3), n=12)
    draws = chain_of(model, Noise(HYPER, width_prior=HYPER), 5000)
    beta, l, t = np.linspace(-2.0, 3.0, 121), np.linspace(-7.0, 4.0, 161), np.linspace(-11.0, 4.0, 161)
    density = np.stack(
        [log_joint(model, beta[:, None], l, EpsilonInsensitive(math.exp(w))) + log_scale_density(HYPER, w) for w in t],
        axis=-1,
    )
    found = scores(draws, exact_means(np.exp(density - density.max()), beta, l, t))
    assert max(map(abs, found.values())) < LIMIT, found


@dataclass(frozen=True)
class HalfNormalizer(Squared):
    """The normaliser lacks a factor of two."""

    def log_normalizer(self, kappa):
        return 0.5 * super().log_normalizer(kappa)


@dataclass(frozen=True)
class NoBand(EpsilonInsensitive):
    """The normaliser forgets the flat part."""

    def log_normalizer(self, kappa):
        return np.log(1.0 / kappa)


@pytest.mark.parametrize(("right", "wrong"), [(Squared(), HalfNormalizer()), (EpsilonInsensitive(0.2), NoBand(0.2))])
def test_wrong_normalisers_are_seen(right, wrong):
    """Negative controls of the comparison with quadrature."""
    model = problem(right)
    draws = chain_of(replace(model, loss=wrong), Noise(HYPER), 2500)
    beta, l = np.linspace(-3.0, 4.0, 701), np.linspace(-8.0, 6.0, 701)
    density = log_joint(model, beta[:, None], l)
    exact = exact_means(np.exp(density - density.max()), beta, l)
    assert max(map(abs, scores(draws, exact).values())) > 2.0 * LIMIT


def test_chains_do_not_depend_on_each_other():
    model = noisy(problem(EpsilonInsensitive(0.2), n=50, p=2, prior=Ridge()))
    engine = gibbs(chains=2)
    together = run(engine, model, max_iter=20).state
    alone = engine.init(model)[1]
    for iteration in range(1, 21):
        alone = engine.sweep(model, alone, 1, iteration)
    np.testing.assert_array_equal(alone.beta, together[1].beta)
    levels = [state.unknowns[0].log_level for state in (*together, alone)]
    assert levels[2] == levels[1] != levels[0]
