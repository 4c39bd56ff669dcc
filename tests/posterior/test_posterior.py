"""Posteriors on the user's scale against matrix formulas and draws."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from parts import dense_columns
from scipy import stats

import softmargin.posterior.mixing
from softmargin.designs import design_for, standardize
from softmargin.designs.standardize import Columns
from softmargin.posterior import draws as coefficient_draws
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, PointPosterior
from softmargin.solvers import Dual

Z_LIMIT = 4.5
SQUARE = 0.3


class Case:
    """A Gaussian posterior, its full mean and covariance of the model's coefficients, and the map to the user's."""

    def __init__(self, *, wide, intercept=True):
        rng = np.random.default_rng(0)
        self.X = np.insert(dense_columns(n=6 if wide else 23, p=8 if wide else 4), 2, 5.0, axis=1)
        self.columns = standardize(self.X, np.ones(len(self.X)), intercept=intercept)
        if not intercept:  # then a constant column stays
            self.X[:, 2] = 0.0
            self.columns = standardize(self.X, np.ones(len(self.X)), intercept=False)
        self.design = design_for(self.X, self.columns)
        lead, q = int(intercept), self.design.shape[1]
        self.basis = Dual().coordinates(self.design).basis if wide else None
        r = lead + self.basis.shape[1] if wide else q
        self.z, self.root = rng.normal(size=r), np.triu(rng.normal(size=(r, r))) * 0.4
        lift, outside = np.eye(q), np.zeros((q, q))
        if wide:
            lift = np.zeros((q, r))
            lift[:lead, :lead], lift[lead:, lead:] = np.eye(lead), self.basis
            outside[lead:, lead:] = np.eye(q - lead) - self.basis @ self.basis.T
        self.mean = lift @ self.z
        self.covariance = lift @ self.root @ self.root.T @ lift.T + SQUARE * outside
        # user's (intercept, slopes) = T beta
        self.T = np.zeros((1 + self.X.shape[1], q))
        self.T[0, :lead] = 1.0
        self.T[0, lead:] = -self.columns.shift * self.columns.scale
        self.T[1 + self.columns.keep, lead + np.arange(q - lead)] = self.columns.scale
        scales, weights = np.sqrt(SQUARE * np.array([0.5, 1.5])), np.full(2, 0.5)  # E scale^2 = SQUARE
        self.posterior = GaussianPosterior(self.columns, self.basis, self.z, SQUARE, self.root, scales, weights)
        self.new = design_for(self.X[:4] + 0.7 * rng.normal(size=(4, self.X.shape[1])), self.columns)
        self.rows = self.new.rows(np.arange(4))


@pytest.fixture(params=[(False, True), (True, True), (True, False)], ids=["tall", "wide", "wide-no-intercept"])
def case(request):
    wide, intercept = request.param
    return Case(wide=wide, intercept=intercept)


def test_wide_case_has_unseen_directions():
    assert Case(wide=True).basis.shape == (8, 5)


def test_mean_on_the_users_scale(case):
    coef, intercept = case.posterior.user_mean()
    np.testing.assert_allclose(np.insert(coef, 0, intercept), case.T @ case.mean, atol=1e-12)
    np.testing.assert_allclose(case.X @ coef + intercept, case.posterior.predictor(case.design), atol=1e-9)
    assert coef[2] == 0.0


def test_predictive_moments(case):
    f, v = case.posterior.moments(case.new)
    np.testing.assert_allclose(f, case.rows @ case.mean, atol=1e-10)
    np.testing.assert_allclose(v, np.diag(case.rows @ case.covariance @ case.rows.T), rtol=1e-9)


def test_table(case):
    table = case.posterior.table(0.9)
    mean, sd = case.T @ case.mean, np.sqrt(np.diag(case.T @ case.covariance @ case.T.T))
    np.testing.assert_allclose(table["mean"], mean, atol=1e-12)
    np.testing.assert_allclose(table["sd"], sd, rtol=1e-9, atol=1e-12)
    moving = sd > 0
    law = stats.norm(mean[moving], sd[moving])
    np.testing.assert_allclose(table["lower"][moving], law.ppf(0.05), rtol=1e-8)
    np.testing.assert_allclose(table["upper"][moving], law.ppf(0.95), rtol=1e-8)
    np.testing.assert_allclose(table["prob_positive"][moving], law.sf(0.0), atol=1e-9)
    assert table["prob_positive"][3] == 0.5 and table["sd"][3] == 0.0  # the column that was left out


def check_moments(draws, mean, covariance):
    """Mean and variances of draws (n, k) within 4.5 standard errors; twice the variance must not be."""
    n, variance = len(draws), covariance.diagonal()
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= Z_LIMIT * np.sqrt(variance / n) + 1e-12)
    spread = Z_LIMIT * np.sqrt((np.outer(variance, variance) + covariance**2) / n) + 1e-12
    assert np.all(np.abs(np.cov(draws.T) - covariance) <= spread)
    assert not np.all(np.abs(np.cov(draws.T) - 2 * covariance) <= spread)


def test_draws_of_coefficients_and_predictors(case):
    beta = case.posterior.coefficient_draws(np.random.default_rng(1), 8000)
    check_moments(beta, case.mean, case.covariance)
    f = case.posterior.sample(case.new, np.random.default_rng(2), 8000)
    assert f.shape == (4, 8000)
    check_moments(f.T, case.rows @ case.mean, case.rows @ case.covariance @ case.rows.T)


def test_scales_are_drawn_by_their_probabilities():
    case = Case(wide=False)
    posterior = replace(case.posterior, scales=np.array([0.5, 2.0]), weights=np.array([0.2, 0.8]))
    drawn = posterior.scale_draws(np.random.default_rng(5), 5000)
    assert set(drawn) == {0.5, 2.0}
    assert abs((drawn == 2.0).mean() - 0.8) < Z_LIMIT * np.sqrt(0.16 / 5000)


def test_point_has_no_spread(case):
    point = PointPosterior(case.columns, case.basis, case.z, SQUARE)
    f, v = point.moments(case.new)
    np.testing.assert_allclose(f, case.rows @ case.mean, atol=1e-10)
    assert not v.any()
    assert not point.has_spread and case.posterior.has_spread


def drawn(case, chains=2, draws=3000):
    """Draws from the Gaussian, as a sampler would leave them; the mean of their squared scales is SQUARE."""
    rng = np.random.default_rng(3)
    z = case.z + rng.standard_normal((chains, draws, len(case.z))) @ case.root.T
    scale = np.sqrt(SQUARE) * np.where(np.arange(draws) % 2, 1.2, np.sqrt(2 - 1.44)) * np.ones((chains, 1))
    scales, weights, square = scale.ravel(), np.full(scale.size, 1 / scale.size), float((scale**2).mean())
    loglik = np.zeros((chains, draws))
    return DrawsPosterior(case.columns, case.basis, case.z, square, case.root, scales, weights, z, loglik)


def test_table_of_draws(case):
    posterior = drawn(case)
    table = posterior.table(0.8)
    flat = posterior.all_coefficients().reshape(6000, -1) @ case.T.T
    np.testing.assert_allclose(table["mean"], case.T @ case.mean, atol=1e-12)
    np.testing.assert_allclose(table["sd"], flat.std(axis=0, ddof=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(table["lower"], np.quantile(flat, 0.1, axis=0), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(table["upper"], np.quantile(flat, 0.9, axis=0), rtol=1e-6, atol=1e-8)
    keep = np.delete(np.arange(flat.shape[1]), 3)
    np.testing.assert_allclose(
        table["prob_positive"][keep], np.where(flat.std(axis=0) > 0, (flat > 0).mean(axis=0), 0.5)[keep], atol=1e-3
    )
    check_moments(flat, case.T @ case.mean, case.T @ case.covariance @ case.T.T)


def test_all_coefficients_keep_the_draws(case):
    """What rows see is the draw itself; what no row sees has the variance of that draw's own scale."""
    posterior = drawn(case)
    beta = posterior.all_coefficients()
    lead = int(case.columns.intercept)
    if case.basis is None:
        assert np.array_equal(beta, posterior.draws)
        return
    np.testing.assert_allclose(beta[..., :lead], posterior.draws[..., :lead])
    np.testing.assert_allclose(beta[..., lead:] @ case.basis, posterior.draws[..., lead:], atol=1e-9)
    rest = beta[..., lead:] - (beta[..., lead:] @ case.basis) @ case.basis.T
    free = case.basis.shape[0] - case.basis.shape[1]
    ratio = (rest**2).sum(axis=-1) / posterior.scale**2  # chi-squared, whatever the scale
    assert abs(ratio.mean() - free) < Z_LIMIT * np.sqrt(2 * free / ratio.size)
    assert np.array_equal(beta, posterior.all_coefficients())


def test_blocks_on_the_users_scale_are_all_draws_on_the_users_scale(case, monkeypatch):
    monkeypatch.setattr(coefficient_draws, "BLOCK", 2 * 2 * 40)  # two columns at a time
    posterior = drawn(case, draws=40)
    wanted = posterior.all_coefficients() @ case.T.T
    found = np.full_like(wanted, np.nan)
    for at, draws in posterior.in_blocks().user_blocks():
        assert draws.shape[-1] <= 2
        found[..., at] = draws
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_the_table_of_draws_needs_memory_for_a_few_columns_only(monkeypatch):
    """10,000 columns of 200 draws are 16 MB at once; blocks of half a percent of that must not pile up."""
    monkeypatch.setattr(coefficient_draws, "BLOCK", 200 * 50)
    monkeypatch.setattr(softmargin.posterior.mixing, "BLOCK", 200 * 50)
    rng, p = np.random.default_rng(0), 10_000
    basis = np.linalg.qr(rng.normal(size=(p, 3)))[0]
    columns = Columns(np.arange(p), np.zeros(p), np.ones(p), True, p)
    z, scale, none = rng.normal(size=(2, 100, 4)), np.ones(200), np.zeros((2, 100))
    posterior = DrawsPosterior(columns, basis, z.mean(axis=(0, 1)), 1.0, np.eye(4), scale, scale / 200, z, none)
    tracemalloc.start()
    posterior.table(0.9), posterior.in_blocks().mixing()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_sample_picks_from_the_draws():
    case = Case(wide=False)
    posterior = drawn(case, draws=50)
    f = posterior.sample(case.new, np.random.default_rng(4), 100)
    every = case.rows @ posterior.draws.reshape(100, -1).T
    np.testing.assert_allclose(np.sort(f, axis=1), np.sort(every, axis=1), atol=1e-10)  # each draw once
    assert posterior.sample(case.new, np.random.default_rng(4), 250).shape == (4, 250)
