"""The prior of the intercept is about the columns that the model is stated in: as given, or standardized."""

import numpy as np
import pytest
from convex_oracle import clarabel_optimum, objective

from softmargin import BayesianSVC
from softmargin.priors import Lasso, Ridge

SCALE, INTERCEPT = 1.0, 0.1
GIVEN = {"standardize": False, "learning_rate": 1.0}


def near_five(n=60, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = 5.0 + rng.standard_normal((n, p))
    y = np.where((X - 5.0) @ np.arange(1.0, p + 1.0) + rng.standard_normal(n) > 0, 1.0, -1.0)
    return X, y


def as_column(X):
    """The columns with the intercept in front, in the unit in which its prior is that of the others."""
    return np.column_stack((np.full(len(X), INTERCEPT / SCALE), X))


@pytest.mark.parametrize("prior", [Ridge(SCALE, intercept_scale=INTERCEPT), Lasso(SCALE, intercept_scale=INTERCEPT)])
def test_the_mode_of_columns_as_given_is_that_of_a_convex_solver(prior):
    X, y = near_five()
    model = BayesianSVC(prior, "map", **GIVEN).fit(X, y)
    ours = objective(X, y, np.ones(len(y)), float(model.intercept_[0]), model.coef_[0], prior)
    assert ours == pytest.approx(clarabel_optimum(X, y, np.ones(len(y)), prior), rel=1e-8)
    assert abs(model.intercept_[0]) < 1.0  # shrunk, as asked for
    assert model.gap_ <= 1e-8


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
@pytest.mark.parametrize("shape", [(60, 3), (20, 30)])
def test_a_shrunk_intercept_is_a_column_like_the_others(inference, shape):
    X, y = near_five(*shape)
    options = GIVEN | {"tol": 1e-10, "max_iter": 5000}
    model = BayesianSVC(Ridge(SCALE, intercept_scale=INTERCEPT), inference, **options).fit(X, y)
    other = BayesianSVC(Ridge(SCALE), inference, fit_intercept=False, **options).fit(as_column(X), y)
    np.testing.assert_allclose(model.coef_[0], other.coef_[0, 1:], atol=2e-5)
    np.testing.assert_allclose(model.intercept_[0], other.coef_[0, 0] * INTERCEPT / SCALE, atol=2e-5)


def test_draws_of_a_shrunk_intercept_have_the_moments_of_quadrature():
    """Four standard errors, fixed seed; the prior of centred columns would put the intercept tens of them away."""
    X, y = near_five(n=15, p=1)
    prior = Ridge(SCALE, intercept_scale=1.0)
    a, b = np.meshgrid(np.linspace(-6, 6, 401), np.linspace(-3, 3, 401), indexing="ij")
    u = np.maximum(1.0 - y * (a[..., None] + b[..., None] * X[:, 0]), 0.0).sum(axis=-1)
    log_density = -2.0 * u - 0.5 * (a / prior.intercept_scale) ** 2 - 0.5 * (b / prior.scale) ** 2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    model = BayesianSVC(prior, "gibbs", draws=2000, warmup=300, chains=2, random_state=1, **GIVEN).fit(X, y)
    table = model.summary()
    for name, values in (("Intercept", a), (table.index[1], b)):
        mean = float((weight * values).sum())
        error = table.loc[name, "sd"] / np.sqrt(table.loc[name, "ess"])
        assert abs(table.loc[name, "mean"] - mean) <= 4.0 * error
