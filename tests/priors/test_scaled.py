"""Factors of scales: the identities of a prior, and fits of columns times their factors."""

import numpy as np
import pytest
from sklearn.base import clone

from softmargin import BayesianSVC, BayesianSVR
from softmargin.checks import check_prior
from softmargin.priors import Bridge, Horseshoe, Lasso, Ridge, Scaled, SpikeSlab

BY = [0.5, 2.0, 0.1, 1.0]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    f = X @ [1.0, -0.5, 0.3, 0.0]
    return X, (f + rng.logistic(size=80) > 0.0).astype(int), f + 0.5 * rng.normal(size=80)


@pytest.mark.parametrize("prior", [Ridge(0.7), Ridge(), Lasso(0.5), Lasso(), Bridge(alpha=0.6, scale=0.5)])
def test_a_scaled_prior_is_a_prior(prior):
    check_prior(Scaled(prior, BY))


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
@pytest.mark.parametrize("prior", [Ridge(0.7), Ridge(), Lasso(0.5), Lasso()], ids=repr)
def test_factors_are_those_of_the_columns(data, prior, inference):
    X, label, _ = data
    given = {"learning_rate": 0.5, "standardize": False, "tol": 1e-10}
    ours = BayesianSVC(Scaled(prior, BY), inference, **given).fit(X, label)
    plain = BayesianSVC(prior, inference, **given).fit(X * BY, label)
    np.testing.assert_allclose(ours.coef_, BY * plain.coef_, atol=1e-4)
    assert ours.scale_ == pytest.approx(plain.scale_, rel=1e-3)


@pytest.mark.parametrize("prior", [Ridge(), Lasso(), Horseshoe()], ids=repr)
def test_draws_are_those_of_the_columns_times_their_factors(data, prior):
    """With the same random numbers in the same order the chains are the same up to rounding."""
    X, _, y = data
    run = {"draws": 20, "warmup": 0, "chains": 1, "random_state": 0, "standardize": False, "likelihood": "squared"}
    ours = BayesianSVR(Scaled(prior, BY), "gibbs", noise=0.5, **run).fit(X, y)
    plain = BayesianSVR(prior, "gibbs", noise=0.5, **run).fit(X * BY, y)
    np.testing.assert_allclose(ours.coef_, BY * plain.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.posterior_.scales, plain.posterior_.scales, rtol=1e-6)


def test_constant_columns_keep_the_factors_of_the_others(data):
    X, label, _ = data
    wide = np.insert(X, 1, 3.0, axis=1)
    given = {"learning_rate": 0.5}
    with pytest.warns(UserWarning, match="constant"):
        ours = BayesianSVC(Scaled(Ridge(1.0), np.insert(BY, 1, 9.0)), **given).fit(wide, label)
    plain = BayesianSVC(Scaled(Ridge(1.0), BY), **given).fit(X, label)
    np.testing.assert_allclose(np.delete(ours.coef_, 1, axis=1), plain.coef_, atol=1e-9)


def test_parts_are_cloned_and_searched():
    model = clone(BayesianSVC(Scaled(Ridge(1.0), BY))).set_params(prior__prior__scale=0.5)
    assert model.prior == Scaled(Ridge(0.5), BY)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Scaled(Ridge(), [1.0, -1.0]), "a positive number for every column"),
        (lambda: Scaled(SpikeSlab(), BY), "leaves no columns out"),
        (lambda: Scaled("ridge", BY), "takes a prior object"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_factors_are_as_many_as_columns(data):
    with pytest.raises(ValueError, match="2 factors for the 4 columns of X"):
        BayesianSVC(Scaled(Ridge(), [1.0, 2.0])).fit(*data[:2])
