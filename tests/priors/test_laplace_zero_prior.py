"""The Laplace-zero prior: its checks of what it is given, and its conditionals against quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from softmargin import BayesianSVC
from softmargin.core.prior import PriorState
from softmargin.inference.selecting import selecting_sampler, selecting_variational
from softmargin.priors import HalfCauchy, HalfT, InverseGamma
from softmargin.priors.laplace_zero import LaplaceZero

FREE = np.array([True, False, False, False, False])
BETA = np.array([2.0, -0.7, 0.0, 1.4, 0.0])
HYPERPRIORS = [InverseGamma(3.0, 2.0), HalfCauchy(0.7)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"inclusion": 0.0},
            "inclusion must be a number in .0, 1., one such number for every column, or 'learn'; got 0.0",
        ),
        ({"inclusion": 1}, "inclusion must be a number in .0, 1., one such number for every column, or 'learn'; got 1"),
        (
            {"inclusion": "often"},
            "inclusion must be a number in .0, 1., one such number for every column, or 'learn'; got 'often'",
        ),
        ({"scale": -1.0}, "scale must be a positive number or 'learn'; got -1.0"),
        ({"scale": "auto"}, "scale must be a positive number or 'learn'; got 'auto'"),
        ({"expected_size": 0}, "expected_size must be a positive number or None; got 0"),
        ({"inclusion": 0.2, "expected_size": 3}, "takes inclusion or expected_size, not both"),
        ({"always_include": "age"}, r"always_include must be a list of columns; write \['age'\]"),
        ({"hyperprior": 2.0}, "hyperprior must be HalfT, HalfCauchy, InverseGamma or None; got 2.0"),
        ({"intercept_scale": 0.0}, "intercept_scale must be a positive number; got 0.0"),
    ],
)
def test_what_is_given_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        LaplaceZero(**options)


def test_binding_checks_columns():
    with pytest.raises(ValueError, match="expected_size must be below the 4 columns that may be left out; got 4"):
        LaplaceZero(expected_size=4).bind(FREE)
    with pytest.raises(ValueError, match="always_include has no column 'age' among 4 columns"):
        LaplaceZero(always_include=["age"]).bind(FREE)
    with pytest.raises(ValueError, match="always_include has no column 4 among 4 columns"):
        LaplaceZero(always_include=[4]).bind(FREE)


def test_places():
    prior = LaplaceZero(always_include=[1], expected_size=1.5).bind(FREE)
    np.testing.assert_array_equal(prior.shrunk, [1, 2, 3, 4])
    np.testing.assert_array_equal(prior.candidates, [1, 3, 4])
    assert prior.inclusion == 0.5
    marked = LaplaceZero(0.2).bind(FREE, always=np.array([True, False, True, False, False]))
    np.testing.assert_array_equal(marked.candidates, prior.candidates)
    assert not marked.always[0]
    assert LaplaceZero("learn").bind(FREE).inclusion is None
    assert set(LaplaceZero("learn").bind(FREE).start().values) == {"scale", "size", "inclusion"}


def test_engines():
    prior = LaplaceZero()
    assert selecting_sampler(prior.bind(FREE)).__name__ == "laplace_zero"
    assert selecting_variational(prior.bind(FREE)).__name__ == "LaplaceZeroVB"
    assert not prior.isotropic
    assert not prior.bind(FREE).isotropic


def test_local_precisions_make_a_laplace_density():
    """N(0, s^2/b) with b ~ IG(1, 1/2) is Laplace(s), which the rest of this file takes for granted."""
    s = 0.8
    for v in (0.3, -1.7):
        density = integrate.quad(
            lambda b, v=v: stats.norm.pdf(v, scale=s / b**0.5) * 0.5 * b**-2 * math.exp(-0.5 / b), 0, np.inf
        )
        assert density[0] == pytest.approx(stats.laplace.pdf(v, scale=s), rel=1e-8)


def test_inclusion_is_averaged():
    """The bound of the indicators by quadrature over the probability."""
    included = np.array([0.7, 0.1, 0.4, 0.1])
    size, m = included.sum(), 4
    logit, bound = LaplaceZero("learn").bind(FREE).expect_inclusion(included)
    law = stats.beta(1.0 + size, 1.0 + m - size)

    def average(function):
        return integrate.quad(lambda x: law.pdf(x) * function(x), 0.0, 1.0, epsabs=1e-12)[0]

    assert logit == pytest.approx(average(lambda x: math.log(x / (1.0 - x))), abs=1e-8)
    wanted = average(lambda x: size * math.log(x) + (m - size) * math.log1p(-x) - law.logpdf(x))
    assert bound == pytest.approx(wanted, abs=1e-8)
    logit, bound = LaplaceZero(0.2).bind(FREE).expect_inclusion(included)
    assert logit == pytest.approx(math.log(0.25))
    assert bound == pytest.approx(size * math.log(0.2) + (m - size) * math.log(0.8))
    each = np.array([0.2, 0.9, 0.5, 0.01])
    logit, bound = LaplaceZero(each).bind(FREE).expect_inclusion(included)
    np.testing.assert_allclose(logit[1:], np.log(each / (1.0 - each)))
    assert bound == pytest.approx(included @ np.log(each) + (1.0 - included) @ np.log1p(-each))


@pytest.mark.parametrize("hyperprior", HYPERPRIORS)
def test_draw(hyperprior):
    """Scale, local precisions and inclusion given coefficients, two of them zero, within 4 standard errors."""
    prior = LaplaceZero("learn", hyperprior=hyperprior).bind(FREE)
    rng, state = np.random.default_rng(2), prior.start()
    log_scale, local, inclusion = [], [], []
    for _ in range(8_000):
        state = prior.draw(rng, state, BETA)
        log_scale.append(math.log(state.values["scale"]))
        local.append(state.precision[3] * state.values["scale"] * 1.4)  # inverse Gaussian with mean scale/1.4
        inclusion.append(state.values["inclusion"])
    assert state.values["size"] == 2.0
    assert state.precision[0] == prior.flat
    assert state.precision[2] == state.precision[4] > 1e20
    t = np.linspace(-8.0, 12.0, 20_001)
    density = np.exp([hyperprior.log_density(x) for x in t] - 2.0 * t - 2.1 * np.exp(-t))
    mean = np.trapezoid(density * t, t) / np.trapezoid(density, t)
    for sample, wanted, slack in ((log_scale, mean, 3.0), (local, 1.0, 1.5), (inclusion, 3.0 / 6.0, 1.0)):
        error = slack * np.std(sample) / math.sqrt(len(sample))  # the scale is a slice update: correlated draws
        assert abs(np.mean(sample) - wanted) < 4.0 * error


def test_fixed_scale_is_kept():
    prior = LaplaceZero(0.3, scale=0.4).bind(FREE)
    state = prior.draw(np.random.default_rng(0), prior.start(), BETA)
    assert state.values == {"scale": 0.4, "size": 2.0}
    assert prior.stretch(state) is None
    learned = LaplaceZero(0.3).bind(FREE)
    assert learned.at_scale(0.4).draw(np.random.default_rng(0), prior.start(), BETA).values["scale"] == 0.4


def test_moves_along_and_stretch():
    """``along`` is the log density of the coefficients that are in, less one t for each that is out."""
    prior = LaplaceZero(0.3, intercept_scale=3.0).bind(FREE)
    state = PriorState(prior.start().precision, {"scale": 0.6, "size": 2.0})
    along, t = prior.along(state, BETA), 0.3

    def log_density(beta):
        inside = beta[1:][beta[1:] != 0.0]
        return stats.laplace.logpdf(inside, scale=0.6).sum() + stats.norm.logpdf(beta[0], scale=3.0)

    wanted = log_density(math.exp(t) * BETA) - log_density(BETA) - 2.0 * t
    assert along(t) - along(0.0) == pytest.approx(wanted, rel=1e-12)
    assert prior.stretch(state)(t) == pytest.approx(HalfT(1.0).log_density(math.log(0.6) + t))
    state = prior.draw(np.random.default_rng(0), state, BETA)
    moved = prior.stretched(state, t)
    assert moved.values["scale"] == pytest.approx(state.values["scale"] * math.exp(t))
    inside = np.array([1, 3])
    np.testing.assert_allclose(moved.precision[inside], state.precision[inside] * math.exp(-2.0 * t))
    np.testing.assert_array_equal(moved.precision[[0, 2, 4]], state.precision[[0, 2, 4]])


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_columns_have_inclusion_probabilities_of_their_own(inference):
    """Equal numbers are one number, and columns that say nothing keep what they have before the data."""
    rng = np.random.default_rng(0)
    X = np.insert(rng.normal(size=(200, 3)), 1, 2.0, axis=1)
    y = (X[:, 0] + rng.logistic(size=200) > 0.0).astype(int)
    run = {"likelihood": "logit", "draws": 150, "warmup": 50, "chains": 2, "random_state": 0}

    def inclusion(prior):
        with pytest.warns(UserWarning, match="constant"):
            return BayesianSVC(prior, inference, **run).fit(X, y).inclusion_

    one, same = inclusion(LaplaceZero(0.3, 1.0)), inclusion(LaplaceZero([0.3, 0.9, 0.3, 0.3], 1.0))
    np.testing.assert_allclose(same, one, rtol=1e-12)
    apart = np.ravel(inclusion(LaplaceZero([0.3, 0.9, 0.999, 0.001], 1.0)))
    assert apart[2] > 0.9 and apart[3] < 0.05
    with pytest.warns(UserWarning, match="constant"), pytest.raises(ValueError, match="2 inclusion probabilities"):
        BayesianSVC(LaplaceZero([0.3, 0.3]), inference).fit(X, y)
