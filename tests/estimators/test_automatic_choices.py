"""What estimators choose for the user: no collapse, nothing given is overruled, and it is all said."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.svm import SVC

from softmargin import BayesianKernelClassifier, BayesianSVC
from softmargin.designs import standardize
from softmargin.exceptions import ModelWarning
from softmargin.inference import trials as choosing
from softmargin.inference.choices import tilted
from softmargin.priors import Ridge, SpikeSlab


def logistic(n, seed=0, p=6, intercept=-1.7, size=0.45):
    """Rows whose second class is rare and never the more probable one for most of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    f = intercept + size * X.sum(axis=1) / np.sqrt(p) * 2.0
    return X, (rng.random(n) < expit(f)).astype(int)


def share_of_gain(model, seed=0, **kind):
    """The gain in log loss over the class shares on new rows, as a share of the logistic fit's."""
    X, y = logistic(4000, seed + 100, **kind)
    X_train, y_train = logistic(2000, seed, **kind)
    constant = log_loss(y, np.full(len(y), y_train.mean()))
    reference = log_loss(y, LogisticRegression(C=np.inf).fit(X_train, y_train).predict_proba(X)[:, 1])
    return (constant - log_loss(y, model.fit(X_train, y_train).predict_proba(X)[:, 1])) / (constant - reference)


@pytest.mark.parametrize(
    "options",
    [{}, {"inference": "map"}, {"inference": "hmc", "draws": 100}, {"prior": "lasso"}],
    ids=["vb", "map", "hmc", "lasso"],
)
def test_a_rare_class_with_a_moderate_signal_is_seen(options):
    assert share_of_gain(BayesianSVC(random_state=0, **options)) > 0.9


def test_plain_weights_collapse_there_and_the_fit_says_so():
    X, y = logistic(2000)
    with pytest.warns(ModelWarning, match="likelihood='logit'|no better than the class frequencies"):
        BayesianSVC(learning_rate=0.25).fit(X, y)


def test_the_tilted_fit_is_the_fit_with_these_sample_weights():
    X, y = logistic(300)
    model = BayesianSVC().fit(X, y)
    assert model.tilt_ is True
    by_class = {k: tilted(y, np.ones(300))[y == k][0] for k in (0, 1)}
    same = BayesianSVC(learning_rate=model.learning_rate_, class_weight=by_class).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=2e-3, atol=2e-4)


def test_probabilities_of_a_tilted_fit_are_calibrated_to_the_data_as_they_are():
    X, y = logistic(2000)
    model = BayesianSVC().fit(X, y)
    assert model.tilt_
    assert model.loo_probability_[:, 1].mean() == pytest.approx(y.mean(), abs=0.005)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), (p[:, 1] > 0.5).astype(int))
    np.testing.assert_array_equal(model.decision_function(X) > 0, p[:, 1] > 0.5)


def test_a_given_rate_at_a_fixed_scale_stays_the_solution_of_the_plain_machine():
    X, y = logistic(400, intercept=-0.5)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    ours = BayesianSVC(Ridge(0.8), "map", learning_rate=1.0, standardize=False).fit(X, y)
    theirs = SVC(kernel="linear", C=2 * 0.8**2, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.tilt_ is False
    assert not len(ours.choices_)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 0.5},
        {"class_weight": "balanced"},
        {"costs": [[0, 1], [2, 0]]},
        {"fit_intercept": False},
        {"probability": "pseudo"},
        {"likelihood": "logit"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_nothing_that_the_user_gave_is_overruled(options):
    X, y = logistic(300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = BayesianSVC(**options).fit(X, y)
    assert model.tilt_ is False
    if "learning_rate" in options:
        assert model.learning_rate_ == 0.5


def test_choices_tell_what_was_tried_and_taken():
    X, y = logistic(300)
    model = BayesianSVC().fit(X, y)
    table = model.choices_
    assert isinstance(table, pd.DataFrame)
    assert {"tilt", "learning_rate", "method", "score", "standard_error", "seconds", "taken"} <= set(table.columns)
    taken = table[table["taken"]].iloc[0]
    assert (taken["tilt"], taken["learning_rate"]) == (model.tilt_, model.learning_rate_)
    header = model.summary().header
    assert f"learning rate {model.learning_rate_:g}" in header
    assert header in repr(model.summary())
    assert type(model.summary()["mean"].to_frame()) is pd.DataFrame


def test_pairs_have_a_choice_each():
    model = BayesianSVC().fit(*load_iris(return_X_y=True))
    assert set(model.choices_["pair"]) == {"0 | 1", "0 | 2", "1 | 2"}
    assert len(model.tilt_) == 3


def strong(n=150, p=8, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, (X @ rng.standard_normal(p) + 0.05 * rng.standard_normal(n) > 0).astype(int)


def test_a_higher_rate_is_taken_where_refits_want_it_and_intervals_stay_those_of_the_base_rate():
    X, y = strong()
    model = BayesianSVC().fit(X, y)
    rate = model.learning_rate_
    assert rate > 0.25
    folds = model.choices_[model.choices_["method"] == "folds"].groupby("learning_rate")["score"].first()
    assert folds[rate] == folds[:rate].min() < folds[0.25]  # a still higher one must gain more than a standard error
    weights = dict(enumerate(np.unique(tilted(y, np.ones(len(y)))[np.argsort(y)])))
    weights = {k: tilted(y, np.ones(len(y)))[y == k][0] for k in weights} if model.tilt_ else None
    plain = BayesianSVC(learning_rate=rate, class_weight=weights).fit(X, y)
    stretch = np.sqrt(rate / 0.25)
    np.testing.assert_allclose(model.summary()["sd"], stretch * plain.summary()["sd"], rtol=0.02)
    _f, sd = model.decision_function(X[:5], return_std=True)
    draws = model.sample(X[:5], 4000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.05)


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_draws_of_a_stretched_posterior_agree_with_its_table(inference):
    X, y = strong()
    model = BayesianSVC(inference=inference, draws=300, warmup=200, random_state=0).fit(X, y)
    assert model.learning_rate_ > 0.25
    posterior = model.to_arviz(draws=4000).posterior
    sd = np.asarray(posterior["coef"]).reshape(-1, X.shape[1]).std(axis=0)
    np.testing.assert_allclose(sd, model.summary()["sd"].iloc[1:], rtol=0.1)


def test_missing_entries_and_groups_are_chosen_for_in_the_same_place():
    X, y = logistic(400, size=0.9)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    alone = BayesianSVC().fit(X, y)
    both = BayesianSVC().fit(X, y, groups=np.arange(400) // 8)
    for model in (alone, both):
        assert model.tilt_ is True
        assert model.choices_["taken"].any()


def test_classes_that_sum_to_zero_start_at_their_own_base_rate_and_do_not_collapse():
    rng = np.random.default_rng(0)
    centres, sizes = rng.standard_normal((6, 9)) * 0.9, [76, 70, 29, 17, 13, 9]
    y = np.repeat(np.arange(6), sizes)
    X = centres[y] + rng.standard_normal((len(y), 9))
    model = BayesianSVC(multi_class="sum-to-zero").fit(X, y)
    assert model.choices_["learning_rate"].iloc[0] == 6 / 32
    priced = BayesianSVC(multi_class="sum-to-zero", costs=1.0 - np.eye(6)).fit(X, y)
    assert priced.choices_["learning_rate"].iloc[0] == 6 / 8
    pairs = BayesianSVC().fit(X, y)
    new = np.repeat(np.arange(6), 300)
    X_new = centres[new] + rng.standard_normal((len(new), 9))
    assert model.score(X_new, new) > pairs.score(X_new, new) - 0.02
    assert len(np.unique(model.predict(X_new))) == 6


@pytest.mark.parametrize("scheme", ["pairwise", "sum-to-zero"])
def test_a_fit_without_signal_says_so(scheme):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 4)), rng.integers(0, 3, 300)
    with pytest.warns(ModelWarning, match="no better than the class frequencies"):
        BayesianSVC(multi_class=scheme).fit(X, y)


def test_a_fit_with_signal_says_nothing():
    X, y = logistic(500, intercept=0.0, size=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianSVC().fit(X, y)


def test_sparse_columns_are_divided_by_the_root_of_their_spread():
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.1, rng=rng, format="csr")
    columns = standardize(X, np.ones(200), power=0.5)
    sd = X.toarray().std(axis=0)
    ratio = columns.scale * np.sqrt(sd)
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_allclose(((columns.scale * sd) ** 2).sum(), 30)
    y = (X @ rng.standard_normal(30) > 0).astype(int)
    auto = BayesianSVC(learning_rate=0.25).fit(X, y)
    np.testing.assert_allclose(auto.posterior_.columns.scale, columns.scale)
    dense = BayesianSVC(learning_rate=0.25).fit(X.toarray(), y)
    np.testing.assert_allclose(dense.posterior_.columns.scale, 1 / sd)


def test_units_of_sparse_columns_together_do_not_matter():
    rng = np.random.default_rng(0)
    X = sp.random_array((150, 20), density=0.2, rng=rng, format="csr")
    y = (X @ rng.standard_normal(20) > 0).astype(int)
    one, other = (BayesianSVC(learning_rate=0.25).fit(factor * X, y) for factor in (1.0, 1e-6))
    np.testing.assert_allclose(one.coef_, 1e-6 * other.coef_, rtol=1e-6)


def test_a_false_discovery_list_of_the_hinge_is_empty_without_signal():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((500, 8)), rng.integers(0, 2, 500)
    with pytest.warns(ModelWarning):
        model = BayesianSVC("spike-slab", "gibbs", draws=100, warmup=50, random_state=0).fit(X, y)
    model.inclusion_ = np.full(8, 0.99)
    with pytest.warns(ModelWarning, match="the list is empty"):
        assert not model.get_support(false_discovery=0.2).any()
    assert model.get_support().all()


def test_selection_expects_about_one_column_and_keeps_the_base_rate():
    bound = SpikeSlab().bind(np.array([True] + [False] * 12))
    assert (bound.pi, bound.a, bound.b) == (None, 1.0, 12.0)
    X, y = strong(100, 4)
    model = BayesianSVC("spike-slab", "gibbs", draws=50, warmup=50, random_state=0).fit(X, y)
    assert model.learning_rate_ == 0.25


def test_a_kernel_fit_without_signal_says_so_too():
    rng = np.random.default_rng(0)
    with pytest.warns(ModelWarning, match="no better than the class frequencies"):
        BayesianKernelClassifier(random_state=0).fit(rng.standard_normal((200, 3)), rng.integers(0, 2, 200))


def test_a_plain_fit_with_a_second_optimum_next_to_a_constant_is_not_taken():
    """Its quick fit stays at the other optimum and scores better; the fit that averages over the scale does not."""
    rng = np.random.default_rng(20)
    slopes = rng.standard_normal(20)
    slopes *= 1.5 / np.linalg.norm(slopes)
    rng = np.random.default_rng([1000, 20, 0])
    X = rng.standard_normal((1000, 20))
    y = (rng.random(1000) < expit(X @ slopes - 1.8)).astype(int)
    model = BayesianSVC().fit(X, y)
    taken = model.choices_[model.choices_["taken"]]
    assert model.tilt_ is True and taken["tilt"].all()
    table = model.summary().iloc[1:]
    assert ((table["lower"] > 0) | (table["upper"] < 0)).sum() >= 10  # no constant: effects are seen


def test_a_fold_is_refitted_once_for_the_rate_and_for_the_link(monkeypatch):
    """Rows and columns for which a higher rate is taken and left-out predictors of the closed form are not trusted."""
    made, fitted = [], choosing.fit_vb
    monkeypatch.setattr(choosing, "fit_vb", lambda model, *a, **k: made.append(len(model.y)) or fitted(model, *a, **k))
    rng = np.random.default_rng(2)
    X = rng.standard_normal((220, 60))
    y = (X[:, :5].sum(axis=1) > 0).astype(int)
    model = BayesianSVC().fit(X, y)
    folds = (model.choices_["method"] == "folds").sum()
    assert folds >= 2 and model.learning_rate_ > 0.25 and model.loo_.method == "refits of 5 folds"
    number = sum(n < 220 for n in made)
    assert 5 * folds - 2 <= number <= 5 * folds, "only those of the rate that is refused may end early"


@pytest.mark.parametrize("rare", [1, 3, 10])
def test_probabilities_of_a_very_rare_class_rank_rows_as_the_decision_function_does(rare):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((1000, 5)), (np.arange(1000) < rare).astype(int)
    X[:rare, 0] += 2.5
    new, label = rng.standard_normal((1000, 5)), (np.arange(1000) < 200).astype(int)
    new[:200, 0] += 2.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = BayesianSVC().fit(X, y)
    areas = [roc_auc_score(label, score) for score in (model.predict_proba(new)[:, 1], model.decision_function(new))]
    assert areas[0] > max(0.85, areas[1] - 0.02)


def test_another_kind_of_probability_needs_another_fit_where_weights_were_tilted():
    X, y = logistic(300)
    model = BayesianSVC().fit(X, y)
    assert model.tilt_
    with pytest.raises(ValueError, match="fit again with probability='sign'"):
        model.set_params(probability="sign").predict(X)


def test_folds_of_rows_of_zeros_and_ones_do_not_depend_on_their_order():
    rng = np.random.default_rng(205)
    X = (rng.random((100, 6)) < 0.5) * 1.0
    y = (4.0 * X[:, 0] + 2.0 * X[:, 1] - 3.0 + rng.logistic(size=100) > 0).astype(int)
    turn, columns = rng.permutation(100), rng.permutation(6)
    one, other = BayesianSVC().fit(X, y), BayesianSVC().fit(X[turn][:, columns], y[turn])
    assert one.learning_rate_ == other.learning_rate_
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X[:, columns]), atol=1e-5)
