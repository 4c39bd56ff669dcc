"""Scores that sum to zero with many more columns than rows: the narrow prior, and when it is taken."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from softmargin import BayesianSVC
from softmargin.models.classes import sum_to_zero as module
from softmargin.models.wide import RATE, SPREAD
from softmargin.priors import Ridge


def wide(n, columns, signal, seed):
    """Three classes whose means differ in a tenth of the columns."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 3
    means = np.zeros((3, columns))
    means[:, : columns // 10] = signal * rng.normal(size=(3, columns // 10))
    return rng.normal(size=(n, columns)) + means[label], label


def joint(**settings):
    return BayesianSVC(multi_class="sum-to-zero", **settings)


def test_the_narrow_prior_is_taken_where_refits_prefer_it(monkeypatch):
    X, y = wide(400, 800, 0.7, 0)
    model = joint().fit(X[:45], y[:45])
    taken = model.choices_[model.choices_["taken"]]
    assert model.learning_rate_ == RATE
    spread = model.scale_ * np.linalg.norm((X[:45] - X[:45].mean(axis=0)) / X[:45].std(axis=0), axis=1)
    assert np.sqrt(np.mean(spread**2)) == pytest.approx(SPREAD)
    assert list(taken["scale"]) == [pytest.approx(model.scale_)]
    folds = model.choices_[model.choices_["method"] == "folds"]
    assert folds["score"].iloc[-1] < folds["score"].iloc[-2]
    monkeypatch.setattr(module, "is_wide", lambda *_: False)
    usual = joint().fit(X[:45], y[:45])
    assert usual.learning_rate_ < RATE
    losses = [log_loss(y[45:], each.predict_proba(X[45:])) for each in (model, usual)]
    assert losses[0] < losses[1]


def test_it_is_not_taken_without_signal_nor_where_something_is_given():
    X, y = wide(300, 600, 0.0, 1)
    model = joint().fit(X[:45], y[:45])
    assert log_loss(y[45:], model.predict_proba(X[45:])) < np.log(3) + 0.05
    table = model.choices_
    folds = table[table["method"] == "folds"]
    taken = folds[folds["taken"]]
    assert len(taken) == 1 and taken["learning_rate"].iloc[0] == model.learning_rate_
    assert len(folds) == len(folds.drop_duplicates(["tilt", "learning_rate", "scale"]))
    last = folds.iloc[-1]  # what it gains, if anything, is within the standard error of the difference
    assert taken["score"].iloc[0] - last["score"] <= taken["standard_error"].iloc[0] + last["standard_error"]
    X, y = wide(45, 800, 0.7, 0)
    assert joint(learning_rate=0.5).fit(X, y).learning_rate_ == 0.5
    assert joint(inference="map").fit(X, y).learning_rate_ < RATE
    few = joint().fit(X[:, :100], y)
    assert "scale" not in few.choices_ or not few.choices_["scale"].notna().any()


def test_draws_take_it_and_units_do_not_matter():
    X, y = wide(45, 700, 0.7, 2)
    model = joint(inference="gibbs", draws=50, warmup=20, chains=2, random_state=0).fit(X, y)
    assert model.learning_rate_ == RATE
    assert np.isfinite(model.predict_proba(X)).all()
    moved = joint().fit(10.0 * X + 3.0, y)  # units do not matter
    np.testing.assert_allclose(moved.predict_proba(10.0 * X + 3.0), joint().fit(X, y).predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
def test_missing_entries_leave_the_usual_prior(intercept):
    X, y = wide(15, 160, 0.7, 3)
    X[3, 5] = X[7, 100] = np.nan
    model = joint(fit_intercept=intercept).fit(X, y)
    assert model.learning_rate_ < RATE
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("n", [6, 7, 8, 9])
@pytest.mark.parametrize("columns", [20, 120])
def test_classes_of_two_rows_are_fitted(n, columns):
    """Their folds have classes of a single row, of which nothing can be left out."""
    X, y = wide(n, columns, 3.0, 0)
    model = joint().fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_the_prior_of_the_intercept_is_the_same_in_folds():
    X, y = wide(30, 400, 0.7, 5)
    scores = []
    for scale in (1e4, 1e-3):
        table = joint(prior=Ridge(intercept_scale=scale)).fit(X, y).choices_
        scores.append(table[table["scale"].notna()]["score"].iloc[-1])
    assert scores[0] != pytest.approx(scores[1], rel=1e-4)
