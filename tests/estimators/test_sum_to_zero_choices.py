"""Costs, rare classes, selection over variables and the contract of scikit-learn, with scores that sum to zero."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from class_problems import simulated_classes
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from softmargin import BayesianSVC
from softmargin.priors import GroupLasso, Lasso, Ridge, SpikeSlab

IRIS = load_iris(return_X_y=True)


def joint(*choices, **settings):
    return BayesianSVC(*choices, multi_class="sum-to-zero", **settings)


# --- costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["calibrated", "pseudo"])
def test_costs_move_decisions_away_from_what_is_expensive(kind):
    X, label = simulated_classes(900, 3, 3, seed=2, signal=0.7)
    train, test = slice(0, 400), slice(400, None)
    missed = np.array([[0.0, 6.0, 6.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])  # overlooking class 0 is expensive
    claimed = missed.T  # so is claiming it
    plain = joint(probability=kind).fit(X[train], label[train]).predict(X[test])
    for costs, sign in ((missed, 1), (claimed, -1)):
        costly = joint(costs=costs, probability=kind).fit(X[train], label[train]).predict(X[test])
        assert sign * ((costly == 0).mean() - (plain == 0).mean()) > 0.05
        assert costs[label[test], costly].mean() < costs[label[test], plain].mean()


def test_costs_that_differ_by_a_factor_only():
    X, y = IRIS
    one, two = (
        joint(costs=factor * (1.0 - np.eye(3)), learning_rate=rate).fit(X, y) for factor, rate in ((1, 1), (2, 0.5))
    )
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-8)


@pytest.mark.parametrize("classes", [["setosa", "versicolor", "virginica"], [7, 8, 9]])
def test_a_frame_of_costs_goes_by_its_labels(classes):
    X, y = IRIS[0], np.array(classes)[IRIS[1]]
    costs = pd.DataFrame([[0, 1, 1], [1, 0, 5], [1, 2, 0]], index=classes, columns=classes)
    mixed = costs.loc[[classes[2], classes[0], classes[1]], classes[::-1]]
    quick = {"inference": "map", "learning_rate": 0.5}
    want = joint(costs=costs.to_numpy(), **quick).fit(X, y)
    assert not np.allclose(want.coef_, joint(costs=mixed.to_numpy(), **quick).fit(X, y).coef_)
    for frame in (costs, mixed):
        model = joint(costs=frame, **quick).fit(X, y)
        np.testing.assert_array_equal(model.coef_, want.coef_)
    for wrong in (costs.set_axis([0, 1, 2], axis=0), costs.set_axis([0, 0, 1], axis=1), costs.iloc[:2, :2]):
        with pytest.raises(
            ValueError, match=r"costs must have the classes \[.*\] as its index and as its columns; its"
        ):
            joint(costs=wrong).fit(X, y)


def test_costs_of_two_classes_go_by_their_labels():
    X, y = IRIS[0][50:], IRIS[1][50:] == 2
    costs = pd.DataFrame([[0, 1], [4, 0]], index=[False, True], columns=[False, True])
    want = BayesianSVC(inference="map", learning_rate=0.5, costs=costs.to_numpy()).fit(X, y)
    turned = BayesianSVC(inference="map", learning_rate=0.5, costs=costs.iloc[::-1, ::-1]).fit(X, y)
    np.testing.assert_array_equal(turned.coef_, want.coef_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"costs": np.ones((2, 2))}, r"the cost matrix must be 3 x 3, .* got \(2, 2\)"),
        ({"costs": -np.ones((3, 3))}, "finite numbers that are not negative"),
        ({"costs": np.full((3, 3), np.nan)}, "finite numbers that are not negative"),
        ({"costs": "high"}, "costs must be a 3 x 3 table of numbers"),
        ({"costs": np.zeros((3, 3))}, "a row of the cost matrix is zero"),
        ({"costs": [[0, 1, 1], [0, 0, 1], [0, 1, 0]]}, "costs charges nothing for deciding on class number 0"),
        ({"costs": [[0, 1, 0], [1, 0, 0], [1, 1, 0]]}, "give column 2 a positive entry"),
        ({"costs": np.ones((3, 3)), "multi_class": "pairwise"}, "set multi_class='sum-to-zero'"),
        ({"multi_class": "one-class"}, "unknown multi_class 'one-class'; choose one of"),
        ({"prior": "laplace-zero"}, "use SpikeSlab or multi_class='pairwise'"),
        ({"prior": "spike-slab"}, "use inference='gibbs'"),
        ({"prior": "horseshoe", "inference": "map"}, "use inference='vb' or 'gibbs'"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        BayesianSVC(**{"multi_class": "sum-to-zero", **settings}).fit(*IRIS)
    assert str(error.value).count("\n") == 0 and str(error.value).endswith(".")


def test_a_mode_has_no_draws_and_no_spread():
    X, y = IRIS
    model = joint(inference="map").fit(X, y)
    for ask in (lambda: model.sample(X), model.to_arviz):
        with pytest.raises(ValueError, match="inference='map' gives a point"):
            ask()
    with pytest.raises(ValueError, match="inference='map' gives a point"):
        model.decision_function(X, return_std=True)
    with pytest.raises(ValueError, match="pairs of classes have none"):
        BayesianSVC().fit(X, y).decision_function(X, return_std=True)


def test_standard_deviations_of_scores_are_those_of_their_draws():
    X, y = IRIS
    model = joint(random_state=0).fit(X, y)
    scores, sd = model.decision_function(X[::10], return_std=True)
    np.testing.assert_array_equal(scores, model.decision_function(X[::10]))
    drawn = model.sample(X[::10], n=4000)
    np.testing.assert_allclose(sd, drawn.std(axis=1), rtol=0.06)


# --- rare classes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["map", "vb"])
def test_class_with_one_row(inference):
    X, y = IRIS
    few = np.r_[0:50, 60:61, 100:150]
    model = joint(inference=inference).fit(X[few], y[few])
    p = model.predict_proba(X)
    assert p.shape == (150, 3) and np.isfinite(p).all() and np.isfinite(model.loo_.score)
    assert (model.predict(X)[y != 1] == y[y != 1]).mean() > 0.9


def test_a_class_missing_in_a_fold_counts_as_errors():
    X, y = IRIS
    rare = np.r_[0:50, 50:52, 100:150]
    # without shuffling the second fold tests on all rows of the rare class, and its training rows have two classes
    scores = cross_val_score(joint(), X[rare], y[rare], cv=KFold(3))
    assert np.isfinite(scores).all()
    model = joint().fit(X[rare][y[rare] != 1], y[rare][y[rare] != 1])
    assert model.predict_proba(X).shape == (150, 2) and model.classes_.tolist() == [0, 2]


# --- selection over variables ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_of_eight():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(240, 8)), np.repeat([0, 1, 2], 80)
    X[y == 1, 0] += 2.5
    X[y == 2, 3] += 2.5
    return pd.DataFrame(X, columns=list("abcdefgh")), y


def test_spike_and_slab_finds_the_variables(two_of_eight):
    X, y = two_of_eight
    prior = SpikeSlab(inclusion=0.25, always_include=["h"])
    model = joint(prior, "gibbs", draws=200, warmup=100, chains=2, random_state=0, learning_rate=0.5).fit(X, y)
    assert model.inclusion_.shape == (8,)
    assert model.get_support(indices=True).tolist() == [0, 3, 7]
    assert model.inclusion_[[0, 3]].min() > 0.99 and model.inclusion_[[1, 2, 4, 5, 6]].max() < 0.5
    assert model.inclusion_[7] == 1.0
    table = model.summary()
    assert table.loc[("a", 1), "mean"] > 0 > table.loc[("a", 0), "mean"]
    assert table["inclusion"].unstack("class").nunique(axis=1).max() == 1  # a variable is in for all classes or none
    assert model.transform(X).shape == (240, 3)
    assert model.score(X, y) > 0.8


def test_group_lasso_leaves_variables_out_as_a_whole(two_of_eight):
    X, y = two_of_eight
    model = joint(GroupLasso(scale=0.04), "map", learning_rate=0.5).fit(X, y)
    used = model.coef_ != 0.0
    np.testing.assert_array_equal(used.any(axis=0), used.all(axis=0))
    assert np.flatnonzero(used.any(axis=0)).tolist() == [0, 3]
    lasso = joint(Lasso(scale=0.2), "map", learning_rate=0.5).fit(X, y)
    partly = (lasso.coef_ != 0.0).any(axis=0) & ~(lasso.coef_ != 0.0).all(axis=0)
    assert partly.any()  # the plain lasso zeroes single classes


# --- scikit-learn ---------------------------------------------------------------------------------------------


@parametrize_with_checks([joint(Ridge(scale=1.0), "map", learning_rate=0.5)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks([joint(learning_rate=0.5)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
def test_estimator_checks_of_the_variational_fit(estimator, check):
    check(estimator)
