"""Rows left out of a mode: refits of folds where the closed form sends them far away."""

import numpy as np
import pytest

from softmargin import BayesianSVC
from softmargin.inference.mode_left_out import far
from softmargin.priors import Ridge


def rows(n=150, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ np.array([1.0, -1.0, 0.0, 2.0])[:p] + rng.normal(size=n) > 0.0


def mode(scale, **how):
    return BayesianSVC(Ridge(scale=scale), "map", learning_rate=1.0, **how)


@pytest.mark.parametrize("scale", [1.0, 3.0, 10.0, 100.0])
def test_probabilities_do_not_fade_with_the_cost(scale):
    X, y = rows()
    new, truth = rows(2000, seed=1)
    model = mode(scale).fit(X, y)
    assert model.loo_.score < 0.4
    assert np.ptp(model.predict_proba(X)[:, 1]) > 0.9
    assert -np.log(np.where(truth, *model.predict_proba(new).T[::-1])).mean() < 0.4
    assert model.loo_.method == ("closed form" if scale == 1.0 else "refits of 10 folds")


def test_refits_are_those_of_the_machine_itself():
    X, y = rows()
    model = mode(10.0).fit(X, y)
    own = np.asarray(model._fitted.fit.held.f)
    alone = np.array(
        [mode(10.0).fit(np.delete(X, i, axis=0), np.delete(y, i)).decision_function(X[i : i + 1])[0] for i in range(60)]
    )
    assert np.corrcoef(own[:60], alone)[0, 1] > 0.98
    assert np.mean((own[:60] > 0.0) == (alone > 0.0)) > 0.95


def test_a_weight_of_two_is_a_row_twice_and_order_and_units_do_not_matter():
    X, y = rows(80, 4, seed=2)
    count = np.random.default_rng(1).integers(1, 4, 80)
    new = rows(50, seed=3)[0]
    weighted = mode(30.0).fit(X, y, sample_weight=count)
    repeated = mode(30.0).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    assert weighted.loo_.method == "refits of 10 folds"
    np.testing.assert_allclose(weighted.predict_proba(new), repeated.predict_proba(new), atol=1e-5)
    other = np.random.default_rng(2).permutation(80)
    turned = mode(30.0).fit(-1000.0 * X[other], y[other], sample_weight=count[other])
    np.testing.assert_allclose(turned.predict_proba(-1000.0 * new), weighted.predict_proba(new), atol=1e-5)


def test_what_is_far():
    f = np.array([-2.0] * 50 + [2.0] * 50)
    assert not far(f, f) and not far(f, f + 1.0 * (f < 0))
    assert far(f, np.where(np.arange(100) < 2, 30.0, f))  # beyond where predictors lie
    assert far(f, np.where(np.arange(100) < 6, 0.1, f))  # many that moved by more than the margin
