"""The cold posterior: near a support vector machine of large margin, and taken only where left-out rows prefer it."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from softmargin import BayesianKernelClassifier
from softmargin.models.kernel import inducing


def eights(train=500):
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], (y[order] == 8).astype(int)
    return X[:train], X[train:], y[:train], y[train:]


@pytest.fixture(scope="module")
def digits():
    return eights()


@pytest.fixture(scope="module")
def cold(digits):
    X, _, y, _ = digits
    return BayesianKernelClassifier(random_state=0).fit(X, y)


def test_clean_rows_are_fitted_with_a_large_margin(digits, cold, monkeypatch):
    X, new, y, label = digits
    assert (cold.learning_rate_, cold.scale_) == (16.0, pytest.approx(0.5))
    monkeypatch.setattr(inducing, "colder", lambda *_: None)
    learned = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert learned.learning_rate_ <= 1.0
    assert log_loss(label, cold.predict_proba(new)) < log_loss(label, learned.predict_proba(new))


def test_its_mean_tends_to_a_support_vector_machine(digits):
    """The same ``C = 2 * rate * scale**2`` at lower and lower temperatures."""
    X, new, y, _ = digits
    exact = SVC(C=8.0, gamma=24.0**-2.0).fit(X, y).decision_function(new)

    def apart(rate, scale):
        given = {"length_scale": 24.0, "standardize": False, "basis": "full", "learning_rate": rate, "scale": scale}
        mean, _ = BayesianKernelClassifier(**given).fit(X, y)._fitted.moments(new)
        return 1.0 - np.corrcoef(mean, exact)[0, 1]

    found = [apart(rate, scale) for rate, scale in ((4.0, 1.0), (16.0, 0.5), (256.0, 0.125))]
    assert found[0] > found[1] > found[2]
    assert found[1] < 0.02
    assert found[2] < 0.005


def test_choices_tell_of_it(cold):
    table = cold.choices_
    taken = table[table["taken"]]
    assert set(taken["learning_rate"]) == {16.0}
    assert set(taken["scale"]) == {0.5}
    assert taken["n_inducing"].dropna().tolist() == [len(cold.posterior_.mean) - 1]
    assert set(taken["length_scale"]) == {cold.length_scale_}
    folds = table[table["method"] == "folds"].tail(2)
    assert folds["score"].iloc[1] < folds["score"].iloc[0], "folds preferred it"
    on_points = table[table["n_inducing"].notna()]["score"]
    assert on_points.iloc[-1] < on_points.iloc[-2], "leave-one-out of all rows did not object"


@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.5},
        {"scale": 3.0},
        {"n_inducing": 250},
        {"class_weight": "balanced"},
        {"likelihood": "logit"},
    ],
)
def test_what_is_given_leaves_no_room_for_it(digits, given):
    X, _, y, _ = digits
    model = BayesianKernelClassifier(length_scale=24.0, standardize=False, random_state=0, **given).fit(X, y)
    assert "scale" not in model.choices_
    assert model.learning_rate_ != 16.0


def test_a_length_that_is_given_stays(digits):
    X, _, y, _ = digits
    model = BayesianKernelClassifier(length_scale=24.0, standardize=False, random_state=0).fit(X, y)
    assert model.choices_["scale"].notna().any(), "it was tried"
    assert set(model.choices_["length_scale"]) == {24.0}
    assert model.length_scale_ == 24.0


def test_it_is_not_tried_where_classes_overlap():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = rng.standard_normal((400, 5)) + 0.6 * y[:, None]
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert "scale" not in model.choices_
    assert model.learning_rate_ <= 1.0
