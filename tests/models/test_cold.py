"""A cold posterior where classes hardly overlap: when it is tried, when it is taken, and what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from softmargin import BayesianSVC
from softmargin.models import cold
from softmargin.priors import Lasso, Ridge


def separable(n, wrong=0.0, seed=0):
    """A sum of three of thirty indicators says the class, and some labels are wrong."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 30)).astype(float)
    y = (X[:, :3].sum(axis=1) > 1.5).astype(int)
    return X, np.where(rng.random(n) < wrong, 1 - y, y)


def tried(model):
    """Whether the cold posterior is among what was tried."""
    return "scale" in model.choices_


@pytest.fixture(scope="module")
def rows():
    return separable(150)


@pytest.fixture(scope="module")
def taken(rows):
    return BayesianSVC().fit(*rows)


def test_it_predicts_better_where_a_plane_separates_the_rows(taken):
    X, y = separable(4000, seed=1)
    assert taken.learning_rate_ == cold.RATE
    usual = BayesianSVC(learning_rate=0.25).fit(*separable(150))
    mine, other = (log_loss(y, model.predict_proba(X)) for model in (taken, usual))
    assert mine < 0.5 * other


def test_its_predictors_have_the_spread_that_is_said(taken, rows):
    """The prior standard deviation of the predictor of a row of mean length, about the mean row."""
    X = (rows[0] - rows[0].mean(axis=0)) / rows[0].std(axis=0)
    length = np.mean((X**2).sum(axis=1))
    assert taken.scale_ == pytest.approx(cold.SPREAD / np.sqrt(length), rel=1e-6)


def test_no_row_is_surer_than_labels_are(taken, rows):
    least = 0.5 / (len(rows[1]) + 1.0)
    assert taken.loo_.doubt == pytest.approx(least)
    p = taken.predict_proba(np.vstack((rows[0], 50.0 * rows[0] - 25.0)))
    assert p.min() >= least * (1.0 - 1e-9)
    assert p.min() < 1.01 * least


def test_the_record_says_what_was_tried_and_taken(taken):
    table = taken.choices_
    last = table[table["learning_rate"] == cold.RATE]
    assert last["method"].tolist() == ["leave-one-out", "folds"]
    assert last["taken"].all()
    assert table["taken"].sum() == 2
    assert (table["scale"].notna() == (table["learning_rate"] == cold.RATE)).all()


def test_standard_deviations_are_those_of_the_base_rate(taken, rows):
    """As for every rate above it: eight times those of the posterior at rate 16, with plain weights about the same."""
    own = BayesianSVC(learning_rate=cold.RATE, prior=Ridge(scale=taken.scale_)).fit(*rows)
    sd = [np.asarray(pd.DataFrame(model.summary())["sd"], dtype=float) for model in (taken, own)]
    assert np.median(sd[0][1:] / sd[1][1:]) == pytest.approx(8.0, rel=0.2)


def test_left_out_rows_decide(rows, monkeypatch):
    """Where its refits are no better by a standard error, all stays as it was without it."""
    monkeypatch.setattr(cold, "better", lambda new, old, errors: False)
    model = BayesianSVC().fit(*rows)
    assert tried(model)
    assert model.learning_rate_ < cold.RATE
    assert model.loo_.doubt == 0.0
    assert not model.choices_.loc[model.choices_["learning_rate"] == cold.RATE, "taken"].any()
    monkeypatch.setattr("softmargin.models.two_class.colder", lambda *given: None)
    np.testing.assert_array_equal(BayesianSVC().fit(*rows).coef_, model.coef_)


def test_classes_that_overlap_do_not_ask():
    assert not tried(BayesianSVC().fit(*separable(150, wrong=0.1)))


@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.25},
        {"class_weight": "balanced"},
        {"prior": Ridge(scale=1.0)},
        {"prior": Lasso()},
        {"inference": "map"},
        {"inference": "svi"},
        {"likelihood": "logit"},
        {"probability": "sign"},
    ],
    ids=str,
)
def test_what_the_user_gives_is_never_overruled(rows, given):
    model = BayesianSVC(**given).fit(*rows)
    assert not tried(model)


def test_draws_are_those_of_the_posterior_that_was_taken(rows, taken):
    drawn = BayesianSVC(inference="gibbs", draws=400, warmup=200, chains=2, random_state=0).fit(*rows)
    assert drawn.learning_rate_ == cold.RATE
    assert drawn.scale_ == pytest.approx(taken.scale_)
    gap = np.abs(drawn.coef_ - taken.coef_) / np.abs(taken.coef_).max()
    assert gap.max() < 0.15


@pytest.mark.parametrize("wrong", [0.005, 0.02])
def test_rows_that_are_labelled_wrongly_cost_no_more_than_without_it(wrong, monkeypatch):
    """Six sets each; without the doubt, rows with the wrong label cost more than the wider margin gains."""
    data = [(separable(200, wrong, seed), separable(4000, wrong, 100 + seed)) for seed in range(6)]

    def loss():
        return np.array([log_loss(z, BayesianSVC().fit(X, y).predict_proba(new)) for (X, y), (new, z) in data])

    mine = loss()
    monkeypatch.setattr("softmargin.models.two_class.colder", lambda *given: None)
    assert mine.mean() <= loss().mean() + 1e-4
