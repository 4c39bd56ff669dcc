"""A row that weighs w is w rows, also where it has missing entries."""

import warnings

import numpy as np
import pytest

from softmargin import BayesianSVC, BayesianSVR
from softmargin.exceptions import DataWarning
from softmargin.losses import Check
from softmargin.unknowns.covariates import CovariatePrior

SETTINGS = {
    "vb": {"likelihood": "logit"},
    "hinge": {},
    "map": {"likelihood": "logit", "inference": "map"},
    "mean field": {"inference": "meanfield", "learning_rate": 0.5},
    "lasso": {"prior": "lasso", "learning_rate": 0.5},
    "groups": {"random_effects": [3], "learning_rate": 0.5},
    "sum-to-zero": {"multi_class": "sum-to-zero", "learning_rate": 0.5},
}


def rows(n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)).cumsum(axis=1)
    score = X[:, 0] + 0.6 * rng.logistic(size=n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, score, rng.integers(1, 4, n)


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_are_repeated_rows(name):
    X, score, weight = rows()
    X = np.column_stack((X, np.arange(len(X)) % 7)) if name == "groups" else X
    y = np.digitize(score, [-1.0, 1.0]) if name == "sum-to-zero" else score > 0.0
    again = np.repeat(np.arange(len(X)), weight)
    one = BayesianSVC(**SETTINGS[name]).fit(X, y, sample_weight=weight)
    other = BayesianSVC(**SETTINGS[name]).fit(X[again], y[again])
    np.testing.assert_allclose(one.coef_, other.coef_, atol=2e-5)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-5)
    assert one.loo_.score == pytest.approx(other.loo_.score, abs=2e-5)
    assert one.trace_[-1] == pytest.approx(other.trace_[-1], rel=1e-6), "the bound counts entries as often as rows"
    double = BayesianSVC(**SETTINGS[name]).fit(X, y, sample_weight=2.0 * weight)
    assert np.abs(double.coef_ - one.coef_).max() > 1e-3, "it is not that weights do nothing"


@pytest.mark.parametrize("loss", ["squared", Check(0.5)])
def test_they_are_in_regressions(loss):
    X, score, weight = rows()
    again = np.repeat(np.arange(len(X)), weight)
    one = BayesianSVR(likelihood=loss).fit(X, score, sample_weight=weight)
    other = BayesianSVR(likelihood=loss).fit(X[again], score[again])
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-4)
    assert one.noise_ == pytest.approx(other.noise_, rel=1e-4)


def test_draws_agree_with_the_approximation_at_a_weight():
    """Entries that answered to three responses at once would have slopes a quarter larger."""
    X, score, _ = rows(300)
    given = {"likelihood": "logit", "random_state": 0}
    heavy = np.full(len(X), 3.0)
    with pytest.warns(DataWarning, match="weigh up to 3, and draws share their entries"):
        drawn = BayesianSVC(inference="gibbs", draws=300, warmup=200, **given).fit(X, score > 0.0, sample_weight=heavy)
    near = BayesianSVC(**given).fit(X, score > 0.0, sample_weight=heavy)
    np.testing.assert_allclose(drawn.coef_, near.coef_, atol=0.06)


def test_the_law_of_the_covariates_counts_rows():
    rng = np.random.default_rng(1)
    X, times = rng.standard_normal((30, 2)), rng.integers(1, 5, 30)
    again, prior, precision = np.repeat(X, times, axis=0), CovariatePrior(), np.array([[1.0, 0.2], [0.2, 2.0]])
    scatter = np.array([[0.3, 0.1], [0.1, 0.4]])
    law, bound = prior.expect(X, scatter, precision, times.astype(float))
    right, same = prior.expect(again, scatter, precision)
    np.testing.assert_allclose(law.mean, right.mean, rtol=1e-12)
    np.testing.assert_allclose(law.precision, right.precision, rtol=1e-12)
    assert bound == pytest.approx(same, rel=1e-12)
    one, other = (prior.draw(np.random.default_rng(2), *given) for given in ((X, precision, times), (again, precision)))
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-9)


def test_regressions_say_where_draws_stand_for_several_rows():
    X, score, weight = rows(40)
    few = {"inference": "gibbs", "likelihood": "squared", "draws": 20, "warmup": 5, "chains": 2}
    with pytest.warns(DataWarning, match="weigh up to 3"):
        BayesianSVR(**few).fit(X, score, sample_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        BayesianSVR(**few).fit(X, score)
        BayesianSVR(likelihood="squared").fit(X, score, sample_weight=weight)
        heavy = np.where(np.isnan(X).any(axis=1), 1.0, 5.0)
        BayesianSVR(**few).fit(X, score, sample_weight=heavy)
