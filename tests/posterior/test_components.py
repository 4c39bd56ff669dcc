"""Draws of the covariance between groups, and what is read off them."""

import numpy as np
import pytest

from softmargin.posterior.variance_components import Components, from_grid


def example(draws=4000, chains=None):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((draws, 2, 5)) @ np.array([[1.0, 0.3, 0.0, 0.0, 0.0]] * 5)
    S = A @ A.swapaxes(1, 2) / 5.0 + np.array([[0.5, 0.2], [0.2, 0.4]])
    turn = np.array([[1.0, -0.7], [0.0, 2.0]])  # x = 0 lies 0.35 below the mean, and one unit is half a spread
    return Components("school", ("Intercept", "age"), turn, S, chains)


def test_table_is_in_the_units_of_the_data():
    part = example()
    table = part.table(0.9)
    S = np.array([part.turn @ one @ part.turn.T for one in part.draws])
    sd = np.sqrt(S[:, [0, 1], [0, 1]])
    np.testing.assert_allclose(table.loc[["Intercept", "age"], "sd"], sd.mean(axis=0))
    np.testing.assert_allclose(table.loc["age", ["lower", "upper"]].tolist(), np.quantile(sd[:, 1], [0.05, 0.95]))
    correlation = S[:, 0, 1] / sd.prod(axis=1)
    assert table.loc["corr(Intercept, age)", "correlation"] == pytest.approx(correlation.mean())
    assert np.isnan(table.loc["corr(Intercept, age)", "sd"])


def test_new_groups_vary_by_the_covariance():
    part = example()
    u = part.new_groups(np.random.default_rng(0), 3, 40_000)
    assert u.shape == (3, 40_000, 2)
    for group in u:
        products = np.einsum("na,nb->nab", group, group)
        error = products.std(axis=0) / 200.0
        assert np.abs((products.mean(axis=0) - part.covariance) / error).max() < 4.0
    assert abs(np.corrcoef(u[0, :, 0], u[1, :, 0])[0, 1]) < 4.0 / 200.0  # groups are apart


def test_named_draws():
    assert example(chains=4).named_draws(7)["sd_school"].shape == (4, 1000)
    drawn = example().named_draws(250)
    assert set(drawn) == {"sd_school", "sd_school[age]", "corr_school[Intercept, age]"}
    assert drawn["sd_school[age]"].shape == (1, 250)


def test_a_point_has_no_interval():
    part = Components("g", ("Intercept",), np.eye(1), np.array([[[4.0]]]))
    table = part.table(0.95)
    assert table.loc["Intercept", "sd"] == 2.0
    assert table[["lower", "upper"]].isna().all().all()


def test_grid_becomes_draws_of_its_density():
    log_scales = np.linspace(-1.0, 1.0, 9)
    weights = np.exp(-0.5 * (log_scales / 0.4) ** 2)
    weights /= weights.sum()
    logs = np.log(from_grid(np.random.default_rng(0), np.exp(log_scales[::-1]), weights[::-1]))
    assert abs(logs.mean()) < 4.0 * 0.4 / np.sqrt(len(logs))
    assert logs.std() == pytest.approx(0.4, rel=0.07)
    assert len(np.unique(logs)) == len(logs)  # between the points too
