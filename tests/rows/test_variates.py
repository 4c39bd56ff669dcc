"""Slice sampling leaves known densities invariant; log-concave, stable and horseshoe variates have their laws."""

import math

import numpy as np
import pytest
from scipy import stats

from softmargin.rows.compiled import njit
from softmargin.rows.variates import (
    Uniforms,
    log_concave,
    reciprocal_horseshoe,
    slice_step,
    tilted_stable,
    uniform,
)

P_LIMIT = 1e-4  # Kolmogorov-Smirnov, fixed seeds
LAWS = {
    "normal": stats.norm(1.0, 0.5),
    "gumbel": stats.gumbel_r(),
    "gamma": stats.gamma(2.5),
    "cauchy": stats.cauchy(),
    "uniform": stats.uniform(-1, 3),
}


# log densities up to a constant, which is not needed
LOG_DENSITIES = {
    "normal": lambda x: -2.0 * (x - 1.0) ** 2,
    "gumbel": lambda x: -x - math.exp(-x),
    "gamma": lambda x: 1.5 * math.log(x) - x if x > 0 else -math.inf,
    "cauchy": lambda x: -math.log1p(x * x),
    "uniform": lambda x: 0.0 if -1 <= x <= 2 else -math.inf,
}


def moved(name, n, width):
    """One update from each of n exact draws."""
    rng = np.random.default_rng(0)
    start = LAWS[name].rvs(n, random_state=rng)
    return np.array([slice_step(rng, LOG_DENSITIES[name], x, width=width) for x in start])


@pytest.mark.parametrize("width", [0.05, 1.0, 50.0])
@pytest.mark.parametrize("name", ["normal", "gamma"])
def test_one_update_keeps_the_law(name, width):
    assert stats.kstest(LAWS[name].cdf(moved(name, 2000, width)), "uniform").pvalue > P_LIMIT


@pytest.mark.parametrize("name", ["gumbel", "cauchy", "uniform"])
def test_other_shapes(name):
    assert stats.kstest(LAWS[name].cdf(moved(name, 2000, 1.0)), "uniform").pvalue > P_LIMIT


@pytest.mark.parametrize("width", [1e-9, 1.0, 300.0])
@pytest.mark.parametrize(("name", "mode"), [("normal", 1.0), ("gumbel", 0.0)])
def test_log_concave_draws_are_exact_whatever_their_width(name, mode, width):
    rng = np.random.default_rng(0)
    x = np.array([log_concave(rng, LOG_DENSITIES[name], mode, width=width) for _ in range(2000)])
    assert stats.kstest(LAWS[name].cdf(x), "uniform").pvalue > P_LIMIT


def test_two_modes_and_a_small_budget_of_steps():
    """The budget of steps is shared at random between the sides, which is what keeps the law when it runs out."""
    law, rng = stats.norm(), np.random.default_rng(1)
    start = law.rvs(4000, random_state=rng) + np.where(rng.random(4000) < 0.3, -2.5, 2.5)

    def log_mixture(x):
        return math.log(0.3 * math.exp(-0.5 * (x + 2.5) ** 2) + 0.7 * math.exp(-0.5 * (x - 2.5) ** 2))

    x = np.array([slice_step(rng, log_mixture, s, width=0.7, max_steps=3) for s in start])
    cdf = 0.3 * law.cdf(x + 2.5) + 0.7 * law.cdf(x - 2.5)
    assert stats.kstest(cdf, "uniform").pvalue > P_LIMIT


def test_it_moves_and_reaches_the_law_from_one_point():
    rng, law = np.random.default_rng(2), LAWS["normal"]
    x = np.full(1000, 4.0)
    for _ in range(10):
        x = np.array([slice_step(rng, LOG_DENSITIES["normal"], s, width=1.0) for s in x])
    assert stats.kstest(law.cdf(x), "uniform").pvalue > P_LIMIT


def test_a_wrong_density_is_rejected():
    """Negative control: half the variance, and a density without its Jacobian, fail the same test."""
    normal, gamma = moved("normal", 2000, 1.0), moved("gamma", 2000, 1.0)
    assert stats.kstest(stats.norm(1.0, 0.5 / math.sqrt(2)).cdf(normal), "uniform").pvalue < 1e-8
    assert stats.kstest(stats.gamma(3.5).cdf(gamma), "uniform").pvalue < 1e-8


def test_outside_the_support_is_never_returned():
    rng = np.random.default_rng(3)
    points = [slice_step(rng, lambda x: -x if x >= 0 else -math.inf, 0.01, width=2.0) for _ in range(500)]
    assert min(points) >= 0.0
    assert np.mean(points) > 0.05


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("z", [1e-3, 0.3, 1.0, 4.0])
def test_tilted_stable_by_its_laplace_transform(alpha, z):
    """E exp(-s T) = exp(z^alpha - (z^2 + 2 s)^(alpha/2)) within 4.5 standard errors; half of T is rejected."""
    T = tilted_stable(np.random.default_rng(4), np.full(20_000, z), alpha)
    scale = max(z, 0.5)
    for s in (0.1 * scale, scale):
        wanted = math.exp(z**alpha - (z * z + 2 * s) ** (0.5 * alpha))
        sample, wrong = np.exp(-s * T), np.exp(-0.5 * s * T)
        assert abs(sample.mean() - wanted) <= 4.5 * sample.std() / math.sqrt(len(T)) + 1e-12
        assert abs(wrong.mean() - wanted) > 4.5 * wrong.std() / math.sqrt(len(T))


def test_tilted_stable_at_one_is_inverse_gaussian():
    """The closed form and the general algorithm both give an inverse Gaussian of mean 1/z and shape 1."""
    law = stats.invgauss(1 / 0.7)
    for alpha in (1.0, 1.0 + 1e-12):
        T = tilted_stable(np.random.default_rng(5), np.full(4000, 0.7), alpha)
        assert stats.kstest(law.cdf(T), "uniform").pvalue > P_LIMIT
        assert stats.kstest(law.cdf(2.0 * T), "uniform").pvalue < 1e-8


@pytest.mark.parametrize("z", [1e-8, 1e-3, 0.3, 0.999, 1.0, 3.0, 100.0])
def test_reciprocal_horseshoe(z):
    """Density proportional to exp(-x z)/(1 + x), by quadrature in log x."""
    t = np.linspace(-40.0, math.log(60.0 / z), 100_001)
    cdf = np.cumsum(np.exp(t - np.exp(t) * z) / (1 + np.exp(t)))
    x = reciprocal_horseshoe(np.random.default_rng(6), np.full(4000, z))
    assert stats.kstest(np.interp(np.log(x), t, cdf / cdf[-1]), "uniform").pvalue > P_LIMIT
    assert stats.kstest(np.interp(np.log(2.0 * x), t, cdf / cdf[-1]), "uniform").pvalue < 1e-4


@njit(nogil=True)
def _filled(uniforms, out):
    for i in range(len(out)):
        out[i] = uniform(uniforms)


@pytest.mark.parametrize("kind", [np.random.Philox, np.random.PCG64, np.random.MT19937])
def test_compiled_code_draws_the_numbers_of_the_generator(kind):
    """Those that ``random`` gives, and the generator goes on behind them."""
    rng, same, out = np.random.Generator(kind(3)), np.random.Generator(kind(3)), np.empty(7)
    _filled(Uniforms.of(rng), out)
    assert np.array_equal(out, same.random(7)) and rng.random() == same.random()
