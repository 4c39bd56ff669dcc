"""Rows left out of a mode: refits of folds where the closed form sends them far away."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC
from softmargin.inference import mode_left_out
from softmargin.inference.mode_left_out import far
from softmargin.priors import Bridge, Centred, GroupLasso, Lasso, Ridge
from softmargin.survival.watch import OutOfTime


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
    f, one = np.array([-2.0] * 50 + [2.0] * 50), np.ones(100)
    assert not far(f, f, one) and not far(f, f + 1.0 * (f < 0), one)
    two, six = (np.where(np.arange(100) < number, moved, f) for number, moved in ((2, 30.0), (6, 0.1)))
    assert far(f, two, one)  # beyond where predictors lie
    assert far(f, six, one)  # many that moved by more than the margin
    light = np.where(np.arange(100) < 6, 0.1, 1.0)  # the same rows as a smaller share of the observations
    assert not far(f, two, light) and not far(f, six, light)
    assert not far(f, f * (1.0 + 1e-9), one)  # rounding


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("prior", "exact"),
    [
        (Bridge(scale=10.0), False),
        (GroupLasso(groups=[[0, 1], [2, 3]], scale=3.0), False),
        (Lasso(scale=10.0), True),
        (Ridge(scale=30.0), True),
    ],
    ids=["bridge", "group lasso", "lasso", "ridge"],
)
def test_every_prior_with_a_mode_has_left_out_rows(prior, exact, seed):
    """Refits are made where the mode is found as fast as that of all rows; EM and annealing keep the closed form."""
    X, y = rows(40, 4, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSVC(prior, "map", learning_rate=1.0).fit(X, y)
    assert model.loo_.method == "closed form" or exact
    assert np.isfinite(model.loo_.score)


def test_a_prior_mean_is_not_forgotten():
    """A centred prior has its mode from EM: refits by Newton's method would be those of another prior."""
    X, y = rows(30, 4)
    model = BayesianSVC(Centred(Ridge(scale=1.0), [4.0, -9.0, -5.0, 0.0]), "map", learning_rate=1.0).fit(X, y)
    assert model.loo_.method == "closed form"


def test_time_that_ends_in_the_refits_keeps_the_mode(monkeypatch):
    X, y = rows()
    whole = mode(10.0).fit(X, y)

    def over(*arguments, **options):
        raise OutOfTime("max_time=1 seconds are over")

    monkeypatch.setattr(mode_left_out, "_refits", over)
    with pytest.warns(ConvergenceWarning, match="max_time=1 seconds are over"):
        model = mode(10.0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert model.loo_.method == "closed form"
