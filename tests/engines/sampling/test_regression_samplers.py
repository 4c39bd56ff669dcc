"""Samplers of regression with a learned noise level: selection priors and Hamiltonian chains.

Oracles: all models enumerated with closed forms or quadrature, quadrature over coefficients and noise, and the joint
distribution of parameters and responses (the errors have a normalised density, so that a prior draw of everything
can be compared with a chain that also redraws the responses).
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from engine_problems import build, log_scale_density, normal_logpdf, rows_of
from stages import in_stages

from softmargin.core.loop import run
from softmargin.core.visits import predictors
from softmargin.engines.alternate import Alternate
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import Trajectories, hmc
from softmargin.engines.selection import active
from softmargin.engines.selection import laplace_zero as laplace_zero_module
from softmargin.engines.selection.collapsed import collapsed
from softmargin.engines.selection.laplace_zero import laplace_zero
from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB
from softmargin.losses import EpsilonInsensitive, Hinge, Squared
from softmargin.priors import Bridge, HalfCauchy, Horseshoe, InverseGamma, LaplaceZero, Lasso, Ridge, SpikeSlab
from softmargin.unknowns.noise import Noise, NoiseDraw

LIMIT = 4.0
HYPER = HalfCauchy(1.0)


def alone(model):
    """Trajectories of one chain, one by one."""
    return hmc(model, 1, alone=True)


def z_score(series, exact, floor=0.0):
    """Error of a mean in standard errors, from 40 batches of a chain."""
    series = np.asarray(series, dtype=float)
    batches = series[: len(series) // 40 * 40].reshape(40, -1).mean(axis=1)
    return (series.mean() - exact) / max(batches.std(ddof=1) / math.sqrt(40), floor, 1e-12)


def drawn(sampler, model, noise, sweeps, warmup=200):
    """States of the first chain after the warm-up."""
    model = model.with_unknowns((noise,))
    engine = sampler if isinstance(sampler, Chains) else sampler(model)
    state, kept = engine.init(model)[0], []
    for iteration in range(1, warmup + sweeps + 1):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > warmup:
            kept.append(state)
    return kept


def level_of(state):
    return state.unknowns[0].log_level


def responses(n, p, loss, seed=3, *, prior, intercept=False, c=1.0):
    """Rows with one strong, one weak and idle effects, the first two columns correlated."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    y = X @ np.array([0.6, 0.0, -0.35, 0.0])[:p] + 0.7 * rng.standard_normal(n)
    return replace(build(X, y, c=c, prior=prior, intercept=intercept, seed=11), loss=loss)


# --- a loss as a sum of hinges --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.0), EpsilonInsensitive(0.4)])
def test_pieces_sum_to_the_loss(loss):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(50) < 0.5, 1.0, -1.0) if isinstance(loss, Hinge) else rng.standard_normal(50)
    c, f = rng.uniform(0.2, 3.0, 50), 2.0 * rng.standard_normal(50)
    start, sign, width = loss.pieces(y, c)
    assert width > 0.0 and (np.abs(sign) == 1.0).all()
    hinges = -2.0 * c * np.maximum(start - sign * f, 0.0).sum(axis=0)
    np.testing.assert_allclose(loss.loglik(y, c, f), hinges, rtol=1e-13)
    slope = 2.0 * c * (sign * (start > sign * f)).sum(axis=0)
    np.testing.assert_allclose(loss.score(y, c, f), slope, rtol=1e-13)


# --- squared loss: all models in closed form ------------------------------------------------------------------


def log_evidence(X, y, c, D, kappa):
    """Log of the integral of N(y; X beta, 1/(kappa c)) N(beta; 0, 1/D): a row of weight c is c rows of weight one."""
    A = kappa * X.T @ (c[:, None] * X) + np.diag(D)
    r = kappa * X.T @ (c * y)
    sign, logdet = np.linalg.slogdet(A)
    assert sign > 0
    constant = 0.5 * c.sum() * math.log(kappa / (2.0 * math.pi)) - 0.5 * kappa * float(c @ y**2)
    return constant + 0.5 * np.log(D).sum() - 0.5 * logdet + 0.5 * float(r @ np.linalg.solve(A, r))


def enumerated(model, prior, levels, masses):
    """Inclusion probabilities of the columns and the mean log level, the level on a grid."""
    X, (y, c) = rows_of(model), (model.y, model.c)
    p = X.shape[1] - 1
    models = list(itertools.product((0, 1), repeat=p))
    log_weight = np.empty((len(models), len(levels)))
    for m, gamma in enumerate(models):
        inside = np.concatenate(([0], 1 + np.flatnonzero(gamma)))
        D = np.concatenate(([prior.intercept_scale**-2], np.full(sum(gamma), prior.scale**-2)))
        pi = sum(gamma) * math.log(prior.inclusion) + (p - sum(gamma)) * math.log1p(-prior.inclusion)
        for k, l in enumerate(levels):
            log_weight[m, k] = pi + masses[k] + log_evidence(X[:, inside], y, c, D, math.exp(-2.0 * l))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    return weight.sum(axis=1) @ np.array(models), float(weight.sum(axis=0) @ levels)


@pytest.mark.parametrize("level", [0.8, None])
def test_squared_loss_equals_enumeration(level):
    """Indicators, conditional probabilities and the level against all sixteen models, the noise known or learned."""
    prior = SpikeSlab(0.3, scale=0.8, intercept_scale=2.0)
    model = responses(25, 4, Squared(), prior=prior, intercept=True, c=np.resize([1.0, 2.0, 0.5], 25))
    levels = np.array([math.log(0.8)]) if level else np.linspace(-1.6, 1.4, 121)
    exact, mean = enumerated(model, prior, levels, np.zeros(1) if level else log_scale_density(HYPER, levels))
    kept = drawn(collapsed(chains=1), model, Noise(HYPER, level), 1500)
    assert 0.2 < exact.min() < exact.max() < 0.95
    for j in range(4):
        assert abs(z_score([state.gamma[j + 1] for state in kept], exact[j])) < LIMIT
        assert abs(z_score([state.inclusion[j + 1] for state in kept], exact[j])) < LIMIT
    if level is None:
        assert abs(z_score([level_of(state) for state in kept], mean)) < LIMIT
    assert all(not state.beta[1:][~state.gamma[1:]].any() for state in kept[:50])


def test_exchanges_alone_visit_models_of_one_size_rightly(monkeypatch):
    """With the scan left out, the size stays and the exchanges draw which columns are in from their conditional."""
    from softmargin.engines.selection import collapsed as module

    def swept_only(M, d, logit, order, uniform, gamma, inclusion):
        for j in np.flatnonzero(gamma):
            module.sweep(M, j, 1.0)
        return 0

    monkeypatch.setattr(module, "scan", swept_only)
    prior = SpikeSlab(0.3, scale=0.8)
    model = responses(12, 4, Squared(), prior=prior)
    engine = collapsed(chains=1, swaps=2)
    state = engine.init(model)[0]._replace(gamma=np.array([True, True, False, False]))
    X, models = rows_of(model), list(itertools.combinations(range(4), 2))
    logs = [log_evidence(X[:, m], model.y, model.c, np.full(2, 0.8**-2), 1.0) for m in models]
    exact = np.exp(np.array(logs) - max(logs))
    exact /= exact.sum()
    counts = []
    for iteration in range(1, 3001):
        state = engine.sweep(model, state, 0, iteration)
        counts.append([tuple(np.flatnonzero(state.gamma)) == m for m in models])
    assert max(abs(z_score(np.array(counts)[:, k], exact[k])) for k in range(6)) < LIMIT


# --- epsilon-insensitive loss: two models or four by quadrature -----------------------------------------------


def on_grid(model, log_slab, inclusion, beta, l, widths=None):
    """Exact inclusion probabilities, and means of log level and log band, by sums over a grid.

    ``log_slab`` is the log density of a coefficient that is in; the grid of one that is out is the point zero.
    """
    X, p = rows_of(model), model.size
    step, models, logs, means = beta[1] - beta[0], list(itertools.product((0, 1), repeat=p)), [], []
    bands = [model.loss] if widths is None else [EpsilonInsensitive(math.exp(t)) for t in widths]
    hyper = np.zeros(1) if widths is None else log_scale_density(HYPER, widths)
    at = np.zeros(1) if widths is None else widths
    for gamma in models:
        axes = [beta if inside else np.zeros(1) for inside in gamma]
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        prior = sum(
            np.log(inclusion * step) + log_slab(grid[:, j]) if gamma[j] else math.log1p(-inclusion) for j in range(p)
        )
        size = np.abs(model.y - grid @ X.T)  # (grid, row)
        total = np.empty((len(grid), len(l), len(bands)))
        for k, loss in enumerate(bands):
            over = np.maximum(size - loss.epsilon, 0.0) @ model.c
            total[:, :, k] = hyper[k] - 2.0 * np.outer(over, np.exp(-l))
            total[:, :, k] -= model.c.sum() * np.log(2.0 * loss.epsilon + np.exp(l))
        total += log_scale_density(HYPER, l)[None, :, None] + np.broadcast_to(prior, len(grid))[:, None, None]
        top = total.max()
        weight = np.exp(total - top)
        mass = weight.sum()
        logs.append(top + math.log(mass))
        margin = weight.sum(axis=0) / mass
        means.append((float(margin.sum(axis=1) @ l), float(margin.sum(axis=0) @ at)))
    probability = np.exp(np.array(logs) - max(logs))
    probability /= probability.sum()
    return probability @ np.array(models), *(probability @ np.array(means))


def laplace_logpdf(x, scale):
    return -np.abs(x) / scale - math.log(2.0 * scale)


SPIKE, ZERO = SpikeSlab(0.4, scale=0.7), LaplaceZero(0.4, scale=0.5)
SAMPLERS = {
    "lines": (SPIKE, spike_slab(chains=1, warmup=200)),
    "births": (SPIKE, spike_slab(chains=1, warmup=200, flips=1, births=4, swaps=2)),
    "many columns": (SPIKE, spike_slab(chains=1, warmup=200, flips=2, births=2, swaps=2)),
    "plain": (SPIKE, spike_slab(chains=1, warmup=200, scan="plain")),
    "collapsed": (SPIKE, collapsed(chains=1)),
    "laplace": (ZERO, laplace_zero(chains=1)),
}


@pytest.mark.parametrize("name", in_stages(SAMPLERS, 2))
def test_epsilon_loss_equals_quadrature(name, monkeypatch):
    """Two correlated columns, four models, the level learned: indicators, probabilities and the level."""
    if name == "many columns":  # lines without the whole of X'KX, of which rows are kept that go with a noise level
        monkeypatch.setattr(active, "_WIDE", 1)
    prior, sampler = SAMPLERS[name]
    model = responses(14, 2, EpsilonInsensitive(0.25), prior=prior, c=np.resize([1.0, 0.6, 1.5], 14))
    slab = (lambda x: normal_logpdf(x, 0.7)) if prior is SPIKE else (lambda x: laplace_logpdf(x, 0.5))
    exact, level, _ = on_grid(model, slab, 0.4, np.linspace(-2.5, 3.0, 141), np.linspace(-3.0, 3.0, 61))
    assert 0.25 < exact.min() < exact.max() < 0.85
    kept = drawn(sampler, model, Noise(HYPER), 2000)
    for j in range(2):
        assert abs(z_score([state.gamma[j] for state in kept], exact[j])) < LIMIT
        # the grid on a line is good to a few 1e-4
        assert abs(z_score([state.inclusion[j] for state in kept], exact[j], 3e-4)) < LIMIT
    assert abs(z_score([level_of(state) for state in kept], level)) < LIMIT


def test_a_learned_band_equals_quadrature():
    """One column, in or out, with level and band learned."""
    model = responses(14, 2, EpsilonInsensitive(0.3), prior=SPIKE)
    model = replace(build(rows_of(model)[:, :1], model.y, prior=SPIKE, intercept=False, seed=4), loss=model.loss)
    l, t = np.linspace(-7.0, 4.0, 121), np.linspace(-11.0, 4.0, 121)
    exact, level, band = on_grid(model, lambda x: normal_logpdf(x, 0.7), 0.4, np.linspace(-2.5, 3.0, 111), l, t)
    kept = drawn(spike_slab(chains=1, warmup=200), model, Noise(HYPER, width_prior=HYPER), 2500)
    assert abs(z_score([state.gamma[0] for state in kept], exact[0])) < LIMIT
    assert abs(z_score([state.inclusion[0] for state in kept], exact[0], 3e-4)) < LIMIT
    assert abs(z_score([level_of(state) for state in kept], level)) < LIMIT
    assert abs(z_score([math.log(state.unknowns[0].loss.epsilon) for state in kept], band)) < LIMIT


# --- Hamiltonian chains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", in_stages([EpsilonInsensitive(0.25), Squared()]), ids=lambda loss: type(loss).__name__)
def test_hamiltonian_chains_equal_quadrature(loss):
    """Two slopes and the level: means, squares and the product, within 4 standard errors."""
    model = responses(12, 2, loss, prior=Ridge(scale=0.7), c=np.resize([1.0, 0.6, 1.5], 12))
    X, beta, l = rows_of(model), np.linspace(-2.5, 3.0, 141), np.linspace(-3.0, 3.0, 81)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(beta, beta, indexing="ij")], axis=1)
    e, nu = model.y - grid @ X.T, np.exp(l)
    if isinstance(loss, Squared):
        fit = -0.5 * np.outer(e**2 @ model.c, nu**-2) - model.c.sum() * (l + 0.5 * math.log(2.0 * math.pi))
    else:
        fit = -2.0 * np.outer(np.maximum(np.abs(e) - 0.25, 0.0) @ model.c, 1.0 / nu)
        fit -= model.c.sum() * np.log(0.5 + nu)
    density = fit + normal_logpdf(grid, 0.7).sum(axis=1)[:, None] + log_scale_density(HYPER, l)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    margin = weight.sum(axis=1)
    kept = drawn(alone, model, Noise(HYPER), 1500, warmup=50)
    draws = np.array([state.beta for state in kept])
    for name, values in {
        "first": lambda b: b[:, 0],
        "second": lambda b: b[:, 1],
        "square": lambda b: b[:, 0] ** 2,
        "product": lambda b: b[:, 0] * b[:, 1],
    }.items():
        assert abs(z_score(values(draws), float(margin @ values(grid)))) < LIMIT, name
    assert abs(z_score([level_of(state) for state in kept], float(weight.sum(axis=0) @ l))) < LIMIT
    cross = float(l @ weight.T @ grid[:, 0] ** 2)  # a noise that does not follow the slopes would miss it
    assert abs(z_score([level_of(state) * state.beta[0] ** 2 for state in kept], cross)) < LIMIT


def test_a_chain_does_not_depend_on_the_others():
    model = responses(30, 3, EpsilonInsensitive(0.2), prior=Ridge()).with_unknowns((Noise(HYPER),))
    engine = hmc(model, 2)
    together, alone = run(engine, model, max_iter=10).state, engine.init(model)[1]
    for iteration in range(1, 11):
        alone = engine.sweep(model, alone, 1, iteration)
    np.testing.assert_array_equal(alone.beta, together[1].beta)
    assert not np.array_equal(together[0].beta, together[1].beta)


# --- the joint distribution -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogNormal:
    """A prior of noise levels and bands that is easy to draw."""

    centre: float
    sd: float

    def log_density(self, l):
        return float(normal_logpdf(l - self.centre, self.sd))

    def draw(self, rng):
        return self.centre + self.sd * rng.standard_normal()


LEVEL, BAND = LogNormal(-0.7, 0.4), LogNormal(-1.2, 0.5)
SCALE = InverseGamma(4.0, 3.0)


def errors(rng, loss, l, n):
    """Errors from the density that a loss stands for."""
    nu = math.exp(l)
    if isinstance(loss, Squared):
        return nu * rng.standard_normal(n)
    inside = rng.random(n) < 2.0 * loss.epsilon / (2.0 * loss.epsilon + nu)
    size = np.where(inside, loss.epsilon * rng.random(n), loss.epsilon + 0.5 * nu * rng.standard_exponential(n))
    return size * np.where(rng.random(n) < 0.5, 1.0, -1.0)


def statistics(beta, scale, l, loss):
    band = getattr(loss, "epsilon", 1.0)
    known = [math.tanh(beta[0]), float(np.abs(np.tanh(beta)).mean()), float((beta != 0.0).mean()), math.log(scale)]
    return [
        *known,
        l,
        math.log(band),
        l * l,
        l * math.log(band),
        math.tanh(beta[0] * beta[1]),
        l * abs(math.tanh(beta[0])),
    ]


def from_prior(rng, prior, loss):
    """Coefficients, scale, log level and loss drawn from the prior."""
    scale = getattr(prior, "scale", 1.0)
    scale = math.sqrt(3.0 / rng.standard_gamma(4.0)) if isinstance(scale, str) else scale
    unit = rng.laplace(size=2) if isinstance(prior, LaplaceZero) or prior == LASSO else rng.standard_normal(2)
    inside = rng.random(2) < getattr(prior, "inclusion", 1.0)
    own = loss.with_band(math.exp(BAND.draw(rng))) if loss.band is not None else loss
    return scale * unit * inside, scale, LEVEL.draw(rng), own


def moved(rng, model, chain, beta, scale, l, loss):
    """A chain that stands at given parameters, with local variables drawn given them."""
    state = chain.prior._replace(values=chain.prior.values | {"scale": scale})
    state = model.prior.at_scale(scale).draw(rng, state, beta)
    rows, _ = model.blocks.keep(predictors, beta)
    gamma = None if chain.gamma is None else beta != 0.0
    return chain._replace(beta=beta, mean=beta, rows=rows, prior=state, gamma=gamma, unknowns=(NoiseDraw(l, loss),))


ROUNDS = 10  # of redrawn responses and a sweep, before a chain starts from the prior again


def joint_scores(prior, loss, sampler, sweeps, *, draws_from=None, seed=0):
    """z scores of chains that redraw responses and parameters in turn, each from its own draw of the prior.

    Responses drawn given parameters from the prior make the pair stationary from the first sweep on, so that the mean
    of a chain less its start has expectation zero. The differences are independent, whatever the memory of a chain.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 2))
    band = BAND if loss.band is not None else None
    model = build(X, X[:, 0] + 0.5 * rng.standard_normal(6), prior=prior, intercept=False, seed=9)
    model = replace(model, loss=loss, unknowns=(Noise(LEVEL, width_prior=band),))
    engine = sampler if isinstance(sampler, Chains) else sampler(model)
    state, out, other = engine.init(model)[0], [], loss if draws_from is None else draws_from
    for iteration in range(1, sweeps + 1):
        if iteration % ROUNDS == 1:
            state = moved(rng, model, state, *(start := from_prior(rng, prior, loss)))
            out.append([statistics(*start)])
        noise = state.unknowns[0]
        own = other.with_band(noise.loss.band) if band is not None else other
        blocks = model.blocks.weighted(model.c)
        blocks.y = X @ state.beta + errors(rng, own, noise.log_level, 6)
        model = replace(model, blocks=blocks)
        state = engine.sweep(model, state, 0, iteration)
        noise = state.unknowns[0]
        out[-1].append(statistics(state.beta, state.prior.values["scale"], noise.log_level, noise.loss))
    chains = np.array(out)
    change = chains[:, 1:].mean(axis=1) - chains[:, 0]
    change = change[:, chains.std(axis=(0, 1)) > 1e-9]
    return change.mean(axis=0) / (change.std(axis=0, ddof=1) / math.sqrt(len(change)))


LASSO, LEARNED = Lasso(scale=0.6), {"scale": "learn", "hyperprior": SCALE}
JOINT = {
    "spike, lines": (SpikeSlab(0.5, **LEARNED), EpsilonInsensitive(0.3), spike_slab(chains=1, warmup=0), 2500),
    "spike, squared": (SpikeSlab(0.5, **LEARNED), Squared(), collapsed(chains=1), 2500),
    "laplace-zero": (LaplaceZero(0.5, **LEARNED), EpsilonInsensitive(0.3), laplace_zero(chains=1), 2500),
    "hmc, ridge": (Ridge(**LEARNED), EpsilonInsensitive(0.3), alone, 1500),
    "hmc, lasso": (LASSO, Squared(), alone, 1500),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", in_stages(JOINT))
def test_joint_distribution(name):
    """Coefficients, indicators, scale, level and band: ten statistics, each within 4 standard errors of the prior."""
    prior, loss, sampler, sweeps = JOINT[name]
    scores = joint_scores(prior, loss, sampler, sweeps)
    assert np.abs(scores).max() < LIMIT, scores


@dataclass(frozen=True)
class NoBand(EpsilonInsensitive):
    """The normaliser forgets the flat part."""

    def log_normalizer(self, kappa):
        return np.log(1.0 / kappa)

    def with_band(self, width):
        return NoBand(width)


@dataclass(frozen=True)
class Stale(Trajectories):
    """Trajectories accepted by the density of the first noise."""

    def __call__(self, random, model, chain):
        return super().__call__(random, chain.own["hmc"].plan.rows.model, chain)


def stale(model):
    right = alone(model)
    last = right.moves[-1]
    return replace(right, moves=(*right.moves[:-1], Stale(last.integrated, last.scale_moves, last.alone)))


@pytest.mark.parametrize("sampler", [spike_slab(chains=1, warmup=0), collapsed(chains=1)])
def test_joint_distribution_sees_a_wrong_normaliser(sampler):
    right = EpsilonInsensitive(0.3)
    scores = joint_scores(SpikeSlab(0.5, scale=0.8), NoBand(0.3), sampler, 1000, draws_from=right)
    assert np.abs(scores).max() > 2.0 * LIMIT


@pytest.mark.soak
def test_joint_distribution_sees_wrong_odds_of_a_coefficient_with_a_laplace_value(monkeypatch):
    """The half in the Laplace density forgotten where a coefficient comes in."""
    right = laplace_zero_module._scan

    def doubled(rng, A, linear, order, rate, logit, *rest):
        right(rng, A, linear, order, rate, logit + math.log(2.0), *rest)

    monkeypatch.setattr(laplace_zero_module, "_scan", doubled)
    prior, loss, sampler, sweeps = JOINT["laplace-zero"]
    assert np.abs(joint_scores(prior, loss, sampler, 4 * sweeps)).max() > 2.0 * LIMIT


def test_joint_distribution_sees_a_stale_density():
    scores = joint_scores(Ridge(scale=0.8), EpsilonInsensitive(0.3), stale, 800)
    assert np.abs(scores).max() > 2.0 * LIMIT


@pytest.mark.parametrize(
    "prior", in_stages([Bridge(alpha=0.7, scale=0.3), Horseshoe(scale=0.5)]), ids=["bridge", "horseshoe"]
)
def test_hamiltonian_chains_with_local_precisions_agree_with_gibbs(prior):
    """Priors whose local variables are drawn: moments of slopes and level of both samplers, |z| < 4."""
    model = responses(25, 3, EpsilonInsensitive(0.25), prior=prior, intercept=True)
    noise = Noise(HYPER, width_prior=HYPER)
    chains = [
        np.array([[*state.beta, *state.beta**2, level_of(state)] for state in drawn(each, model, noise, n)])
        for each, n in ((gibbs(chains=1), 1500), (alone, 500))
    ]
    for k in range(chains[0].shape[1]):
        means, errors_ = zip(
            *(
                (each[:, k].mean(), each[: len(each) // 30 * 30, k].reshape(30, -1).mean(axis=1).std(ddof=1) / 30**0.5)
                for each in chains
            ),
            strict=True,
        )
        assert abs(means[0] - means[1]) < LIMIT * math.hypot(*errors_)


# --- variational selection ------------------------------------------------------------------------------------


def test_bound_of_the_selecting_approximation():
    """It rises, and equals E[log p - log q] with the averages over noise and errors computed directly."""
    model = responses(40, 4, Squared(), prior=LaplaceZero(0.3, scale=0.5), intercept=True, c=np.resize([1.0, 2.0], 40))
    outcome = run(Alternate(LaplaceZeroVB()), model.with_unknowns((Noise(HYPER),)), max_iter=200, tol=1e-12)
    assert np.diff(outcome.trace).min() > -1e-9
    state, law = outcome.state.inner, outcome.state.unknowns[0].law
    l, spacing = law.points, law.points[1] - law.points[0]
    sizes = float(model.c @ ((model.y - state.f) ** 2 + state.v))
    fit = -0.5 * model.c.sum() * (math.log(2.0 * math.pi) + 2.0 * l) - 0.5 * sizes * np.exp(-2.0 * l)
    kept = law.masses > 1e-200
    entropy = -float(law.masses[kept] @ np.log(law.masses[kept] / spacing))
    noise = float(law.masses @ (fit + log_scale_density(HYPER, l))) + entropy
    assert outcome.state.objective == pytest.approx(noise + state.prior.bound + state.q.entropy, abs=1e-7)
