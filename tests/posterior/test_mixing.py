"""R-hat and effective sample size against ArviZ, where it is installed, and against closed forms."""

import numpy as np
import pytest
from scipy.signal import lfilter

import softmargin.posterior.mixing
from softmargin.posterior.mixing import mixing, r_hat


def effective_size(draws):
    return mixing(draws)[0]


def autocorrelated(shape, rho, rng):
    return lfilter([1.0], [1.0, -rho], rng.normal(size=shape), axis=1)


def problems():
    rng = np.random.default_rng(0)
    constant = rng.normal(size=(4, 50, 4))
    constant[..., 1] = 3.0
    constant[..., 2] = rng.choice([-1.0, 1.0], size=(4, 50))
    constant[..., 3] = rng.choice([0.0, 0.0, 1.0], size=(4, 50))
    missing = rng.normal(size=(3, 20, 3))
    missing[1, 4, 1], missing[2, 3, 2] = np.nan, np.inf
    apart = rng.normal(size=(4, 60, 3))
    apart[2:, :, 0] += 3.0
    apart[0, :, 1] *= 20.0  # the same middle, another spread
    return {
        "independent": rng.normal(size=(4, 200, 6)),
        "positively correlated": autocorrelated((4, 301, 5), 0.95, rng),
        "negatively correlated": autocorrelated((2, 100, 5), -0.8, rng),
        "trending": np.cumsum(rng.normal(size=(3, 80, 4)), axis=1),
        "heavy tails": rng.standard_cauchy(size=(4, 150, 4)),
        "constant": constant,
        "missing": missing,
        "apart": apart,
        "two chains": rng.normal(size=(2, 40, 3)),
        "several dimensions": autocorrelated((3, 64, 2, 3, 2), 0.5, rng),
        "no dimension": rng.normal(size=(4, 30)),
    } | {f"{n} draws": autocorrelated((4, n, 40), 0.4, rng) for n in range(4, 14)}


PROBLEMS = problems()


@pytest.mark.parametrize("name", PROBLEMS)
def test_both_numbers_are_those_of_arviz(name):
    arviz = pytest.importorskip("arviz")
    draws = PROBLEMS[name]
    data = arviz.convert_to_dataset({"x": draws})
    with np.errstate(all="ignore"):
        wanted_r, wanted_n = arviz.rhat(data)["x"].to_numpy(), arviz.ess(data)["x"].to_numpy()
    size, ratio = mixing(draws)
    np.testing.assert_allclose(ratio, wanted_r, rtol=1e-10)
    np.testing.assert_allclose(size, wanted_n, rtol=1e-8)
    assert np.array_equal(r_hat(draws), ratio, equal_nan=True)


@pytest.mark.parametrize("n", [4, 5, 50])
def test_one_chain_has_a_size_and_no_r_hat(n):
    arviz = pytest.importorskip("arviz")
    draws = autocorrelated((1, n, 3), 0.3, np.random.default_rng(1))
    assert np.isnan(r_hat(draws)).all()
    wanted = arviz.ess(arviz.convert_to_dataset({"x": draws}))["x"].to_numpy()
    np.testing.assert_allclose(effective_size(draws), wanted, rtol=1e-8)


def test_three_draws_say_nothing():
    draws = np.random.default_rng(0).normal(size=(4, 3, 2))
    assert np.isnan(r_hat(draws)).all() and np.isnan(effective_size(draws)).all()


def test_chains_that_never_leave_different_places_have_an_infinite_r_hat():
    draws = np.ones((4, 50, 1))
    draws[1:] = 2.0
    assert r_hat(draws)[0] == np.inf


def test_blocks_of_variables_change_nothing(monkeypatch):
    draws = PROBLEMS["positively correlated"]
    whole = r_hat(draws), effective_size(draws)
    monkeypatch.setattr(softmargin.posterior.mixing, "BLOCK", 2 * draws.shape[0] * draws.shape[1])
    assert np.array_equal(r_hat(draws), whole[0]) and np.array_equal(effective_size(draws), whole[1])


def test_neither_number_depends_on_a_monotone_change_of_the_draws():
    draws = autocorrelated((4, 200, 3), 0.7, np.random.default_rng(2))
    np.testing.assert_allclose(effective_size(np.exp(draws)), effective_size(draws), rtol=1e-12)


def test_long_autoregressions_have_the_size_of_the_closed_form():
    """n (1 - rho)/(1 + rho) of normal draws, to 4 standard errors of such an estimate, measured as 3 % each."""
    for rho in (0.0, 0.5, 0.8):
        draws = autocorrelated((4, 20_000, 1), rho, np.random.default_rng(3))
        assert effective_size(draws)[0] == pytest.approx(80_000 * (1 - rho) / (1 + rho), rel=0.12)
