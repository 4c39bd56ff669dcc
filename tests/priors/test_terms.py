"""Priors in parts, and priors of covariance matrices, against formulas computed in another way."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, multigammaln

from softmargin.core.prior import PriorState
from softmargin.priors import HalfT, InverseGamma, Lasso, Ridge
from softmargin.priors.composed._correlated import BoundCovariance
from softmargin.priors.composed.covariances import FixedCovariance, HalfTCovariance, InverseWishart
from softmargin.priors.composed.terms import TermPrior, Terms

M = 5  # groups
HYPERPRIORS = {
    "half-t": HalfTCovariance(0.7, 3.0),
    "inverse Wishart": InverseWishart(4.5, [[0.8, 0.3], [0.3, 1.5]]),
}


def moments(seed=0):
    """Means and covariances of M pairs: as a mean, a row of variances in the coupling's writing, and the sum E."""
    rng = np.random.default_rng(seed)
    mean, roots = rng.standard_normal(2 * M), rng.standard_normal((M, 2, 2))
    covariances = roots @ roots.transpose(0, 2, 1)
    var = np.concatenate((np.einsum("gaa->ga", covariances).ravel(), [2.0 * covariances[:, 0, 1].sum()]))
    U = mean.reshape(M, 2)
    return mean, var, U.T @ U + covariances.sum(axis=0)


def expected_log_det(df, rate):
    """E log |S| under IW(df, rate)."""
    s = len(rate)
    return np.linalg.slogdet(rate)[1] - s * math.log(2.0) - sum(digamma(0.5 * (df - k)) for k in range(s))


def inverse_wishart_entropy_part(df, rate):
    """-E log q(S) of q = IW(df, rate), from its density and the two expectations it needs."""
    s = len(rate)
    log_constant = 0.5 * df * (np.linalg.slogdet(rate)[1] - s * math.log(2.0)) - multigammaln(0.5 * df, s)
    return -(log_constant - 0.5 * (df + s + 1) * expected_log_det(df, rate) - 0.5 * df * s)


def direct_bound(hyperprior, E, m):
    """E log p(u, S, a) - E log q(S) - E log q(a) term by term, with the densities found by plain alternation."""
    s = len(E)
    if isinstance(hyperprior, InverseWishart):
        df, own, log_own, extra = hyperprior.df, hyperprior.matrix, np.linalg.slogdet(hyperprior.matrix)[1], 0.0
    else:
        nu, q = hyperprior.df, hyperprior.scale**-2
        df, shape, a_rate = nu + s - 1.0, 0.5 * (nu + s), np.ones(s)
        for _ in range(5000):
            P = (df + m) * np.linalg.inv(E + np.diag(2.0 * nu * shape / a_rate))
            a_rate = q + nu * P.diagonal()
        mean_inverse, mean_log = shape / a_rate, np.log(a_rate) - digamma(shape)
        own, log_own = np.diag(2.0 * nu * mean_inverse), float((math.log(2.0 * nu) - mean_log).sum())
        extra = sum(
            0.5 * math.log(q) - math.lgamma(0.5) - 1.5 * mean_log[k] - q * mean_inverse[k]
            + stats.invgamma(shape, scale=a_rate[k]).entropy()
            for k in range(s)
        )  # fmt: skip
    rate = own + E
    P, log_det = (df + m) * np.linalg.inv(rate), expected_log_det(df + m, rate)
    effects = -0.5 * m * (s * math.log(2.0 * math.pi) + log_det) - 0.5 * float((P * E).sum())
    prior = 0.5 * df * (log_own - s * math.log(2.0)) - multigammaln(0.5 * df, s)
    prior += -0.5 * (df + s + 1) * log_det - 0.5 * float((own * P).sum())
    return effects + prior + inverse_wishart_entropy_part(df + m, rate) + extra, P


@pytest.mark.parametrize("name", HYPERPRIORS)
def test_bound_of_a_covariance(name):
    mean, var, E = moments()
    bound = BoundCovariance(("a", "b"), M, HYPERPRIORS[name])
    message = bound.expect(mean, var)
    direct, P = direct_bound(HYPERPRIORS[name], E, M)
    assert message.bound == pytest.approx(float(direct), abs=1e-9)
    np.testing.assert_allclose(message.precision, np.concatenate((np.tile(P.diagonal(), M), [P[0, 1]])), rtol=1e-9)
    S = np.linalg.inv(P)
    assert message.values["corr(a, b)"] == pytest.approx(S[0, 1] / math.sqrt(S[0, 0] * S[1, 1]), rel=1e-8)
    assert message.values["b"] == pytest.approx(math.sqrt(S[1, 1]), rel=1e-8)


@pytest.mark.parametrize("name", HYPERPRIORS)
def test_derivatives_of_the_bound(name):
    """-precision/2 in the variances, also in the covariances, where the precision's entry counts once."""
    mean, var, _ = moments()
    bound = BoundCovariance(("a", "b"), M, HYPERPRIORS[name])
    precision = bound.expect(mean, var).precision
    for k in (0, 3, 2 * M):
        step = np.zeros_like(var)
        step[k] = 1e-4
        slope = (bound.expect(mean, var + step).bound - bound.expect(mean, var - step).bound) / 2e-4
        assert slope == pytest.approx(-0.5 * precision[k], rel=1e-6)


def test_one_column_is_the_half_t_scale():
    scale, covariance = HalfT(0.7, 3.0), HalfTCovariance(0.7, 3.0)
    tau, bound = scale.expect(2.3, 5)
    P, same = covariance.expect(np.array([[2.3]]), 5)
    assert P[0, 0] == pytest.approx(tau, rel=1e-10)
    assert same == pytest.approx(bound, abs=1e-10)
    one = covariance.stretch(np.array([[4.0]]))
    density = scale.log_density
    assert one(0.4) - one(-0.2) == pytest.approx(density(math.log(0.5) + 0.4) - density(math.log(0.5) - 0.2), abs=1e-12)


def log_density(hyperprior, S):
    """Log density of the covariance itself, up to a constant; the half-t version by quadrature over each a."""
    if isinstance(hyperprior, InverseWishart):
        return stats.invwishart(hyperprior.df, hyperprior.matrix).logpdf(S)
    nu, P = hyperprior.df, np.linalg.inv(S)
    log_a = np.linspace(-25.0, 25.0, 4001)
    total = -0.5 * (nu + 2 * len(S)) * np.linalg.slogdet(S)[1]
    for k in range(len(S)):
        rate = hyperprior.scale**-2 + nu * P[k, k]
        power = -0.5 * (nu + len(S) - 1.0) - 1.5 + 1.0  # |2 nu diag(1/a)|^(df/2), the density of a, and its logarithm
        total += np.log(np.trapezoid(np.exp(power * log_a - rate * np.exp(-log_a)), log_a))
    return total


@pytest.mark.parametrize("name", HYPERPRIORS)
def test_stretch_is_the_density_along_a_ray(name):
    """Covariance times e^2t: its density and the Jacobian e^(s(s + 1)t) of three entries."""
    S = np.array([[1.3, -0.4], [-0.4, 0.6]])
    stretch = HYPERPRIORS[name].stretch(np.linalg.inv(S))
    wanted = log_density(HYPERPRIORS[name], S * math.exp(0.8)) + 6.0 * 0.4 - log_density(HYPERPRIORS[name], S)
    assert stretch(0.4) - stretch(0.0) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("name", HYPERPRIORS)
def test_draws_of_a_covariance(name):
    """Given the effects: moments of log sds and atanh correlation against a grid of the exact conditional."""
    hyperprior = HYPERPRIORS[name]
    E = np.array([[2.0, 0.9], [0.9, 1.4]]) * 3.0
    rng, P = np.random.default_rng(2), np.eye(2)
    draws = np.empty((10_000, 3))
    for k in range(len(draws)):
        P = hyperprior.draw(rng, E, M, P)
        S = np.linalg.inv(P)
        r = S[0, 1] / math.sqrt(S[0, 0] * S[1, 1])
        draws[k] = 0.5 * math.log(S[0, 0]), 0.5 * math.log(S[1, 1]), math.atanh(r)
    axes = [np.linspace(lo, hi, 21) for lo, hi in ((-1.6, 2.8), (-1.6, 2.6), (-1.6, 2.4))]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    target = np.empty(len(grid))
    for k, (a, b, z) in enumerate(grid):
        r = math.tanh(z)
        S = np.array([[math.exp(2 * a), r * math.exp(a + b)], [r * math.exp(a + b), math.exp(2 * b)]])
        jacobian = 3.0 * (a + b) + math.log1p(-r * r)  # of (S11, S22, S12) in (a, b, z)
        if isinstance(hyperprior, HalfTCovariance):
            own = -0.5 * (hyperprior.df + 4) * np.linalg.slogdet(S)[1]
            inverse = np.linalg.inv(S).diagonal()
            own -= 0.5 * (hyperprior.df + 2) * np.log(hyperprior.df * inverse + hyperprior.scale**-2).sum()
        else:
            own = -0.5 * (hyperprior.df + 3) * np.linalg.slogdet(S)[1] - 0.5 * np.trace(
                np.linalg.solve(S, hyperprior.matrix)
            )
        data = -0.5 * M * np.linalg.slogdet(S)[1] - 0.5 * np.trace(np.linalg.solve(S, E))
        target[k] = own + data + jacobian
    weight = np.exp(target - target.max())
    weight /= weight.sum()
    for power in (1, 2):
        exact, values = weight @ grid**power, draws**power
        batches = values.reshape(100, 100, 3).mean(axis=1)
        z = (values.mean(axis=0) - exact) / (batches.std(axis=0) / 10.0)
        assert np.abs(z).max() < 4.0, (power, z)


def composite(full=False, scale="learn"):
    terms = (TermPrior(("g", "g:x"), M, full=full), TermPrior(("smooth",), 3, scale=scale, hyperprior=None))
    free = np.arange(4 + 2 * M + 3) == 0
    return Terms(Lasso(), terms).bind(free, 50)


def test_parts_are_priors_of_their_own():
    """A diagonal term is one ridge for each column, with nothing between them."""
    prior, rng = composite(), np.random.default_rng(1)
    mean, var = rng.standard_normal(17), rng.gamma(1.0, size=17)
    fixed = Lasso().bind(np.arange(4) == 0, 50)
    ridge = Ridge().bind(np.zeros(M, dtype=bool))
    other = Ridge().bind(np.zeros(3, dtype=bool))
    places = [(fixed, slice(0, 4)), (ridge, slice(4, 14, 2)), (ridge, slice(5, 14, 2)), (other, slice(14, 17))]
    for name in ("expect", "gaussian"):
        message = getattr(prior, name)(mean, var)
        single = [getattr(part, name)(mean[at], var[at]) for part, at in places]
        assert message.bound == pytest.approx(sum(m.bound for m in single), abs=1e-12)
        for (_, at), own in zip(places, single, strict=True):
            np.testing.assert_array_equal(message.precision[at], own.precision)
        assert message.values["g:x"] == single[2].values["scale"]
    state = prior.start()
    assert prior.logpdf(state, mean) == pytest.approx(
        sum(part.logpdf(PriorState(state.precision[at], {"scale": 1.0}), mean[at]) for part, at in places)
    )


@pytest.mark.parametrize("full", [False, True])
def test_density_along_rays_and_stretched_states(full):
    prior, rng = composite(full), np.random.default_rng(1)
    beta = rng.standard_normal(17)
    state = prior.draw(rng, prior.start(), beta)
    ray = prior.along(state, beta)
    longer = prior.logpdf(state, math.exp(0.3) * beta) - prior.logpdf(state, beta)
    assert ray(0.3) - ray(0.0) == pytest.approx(longer, abs=1e-10)
    moved = prior.stretched(state, 0.2)
    for name, value in state.values.items():
        assert moved.values[name] == pytest.approx(value * (1.0 if "corr" in name else math.exp(0.2)))
    np.testing.assert_allclose(moved.precision[1:], state.precision[1:] * math.exp(-0.4))
    assert moved.precision[0] == state.precision[0]
    both = sum(part.stretch(state)(0.2) - part.stretch(state)(0.0) for part in prior.parts)
    assert prior.stretch(state)(0.2) - prior.stretch(state)(0.0) == pytest.approx(both, abs=1e-12)


def test_fixed_scales_do_not_move():
    prior, rng = composite(scale=0.7), np.random.default_rng(1)
    beta = rng.standard_normal(17)
    state = prior.start()
    assert state.values["smooth"] == 0.7
    assert prior.stretch(state) is None  # not all scales can grow together
    assert prior.stretched(state, 0.5).values["smooth"] == 0.7
    assert prior.draw(rng, state, beta).values["smooth"] == 0.7
    assert prior.at_scale(0.4).start().values["scale"] == 0.4


def test_settled_at_a_fit():
    """The terms keep the values of the message; the fixed effects go on learning theirs."""
    prior, (mean, var, _) = composite(full=True), moments()
    mean = np.concatenate((np.ones(4), mean, np.ones(3)))
    var = np.concatenate((np.ones(4), var[:-1], np.ones(3), var[-1:]))
    message = prior.expect(mean, var)
    fixed = prior.settled(message)
    assert isinstance(fixed.parts[1].prior.hyperprior, FixedCovariance)
    again = fixed.expect(2.0 * mean, var)
    np.testing.assert_allclose(again.precision[4:], message.precision[4:], rtol=1e-10)
    assert again.values["scale"] != message.values["scale"]
    S = fixed.parts[1].prior.hyperprior.P
    U = mean[4:14].reshape(M, 2)
    normal = stats.multivariate_normal(np.zeros(2), np.linalg.inv(S)).logpdf(U).sum()
    assert fixed.parts[1].prior.mode(mean[4:14]).bound == pytest.approx(normal, abs=1e-9)


def test_errors_say_what_to_do():
    prior = composite()
    with pytest.raises(ValueError, match="joint mode"):
        prior.mode(np.ones(17))
    with pytest.raises(ValueError, match="joint mode"):
        composite(full=True).parts[1].prior.mode(np.ones(2 * M))
    named = Terms(Ridge(), (TermPrior(("g",), M, hyperprior=InverseGamma(3.0, 1.0)),)).bind(np.zeros(M + 1, dtype=bool))
    assert named.mode(np.ones(M + 1)).values["g"] > 0.0
    with pytest.raises(ValueError, match="differ from each other"):
        Terms(Ridge(), (TermPrior(("g", "g"), 3),))
    with pytest.raises(ValueError, match="only 4"):
        Terms(Ridge(), (TermPrior(("g",), 9),)).bind(np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="at least one group"):
        TermPrior(("g",), 0)
    with pytest.raises(ValueError, match="full=False with a fixed scale"):
        TermPrior(("g", "h"), 3, scale=1.0, full=True)
    with pytest.raises(ValueError, match="df above 1"):
        InverseWishart(1.0, np.eye(2))
    with pytest.raises(ValueError, match="square matrix"):
        InverseWishart(4.0, np.ones((2, 3)))
    with pytest.raises(ValueError, match="positive numbers"):
        HalfTCovariance(0.0)
