"""The cold posterior: near a support vector machine of large margin, and taken only where left-out rows prefer it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from softmargin import BayesianKernelClassifier
from softmargin.inference.choices import Candidate, Record, entropy
from softmargin.loo.folds import folds
from softmargin.loo.link import fit_link
from softmargin.losses import Hinge
from softmargin.models.kernel import cold as cold_rule
from softmargin.models.kernel import inducing
from softmargin.models.kernel.cold import RATE, SPREAD
from softmargin.models.kernel.folds import ordered
from softmargin.models.kernel.search import KernelRows, kernel_prior, quick_fit, settings_of
from softmargin.rows.streams import Streams

PLAIN = Candidate(False, RATE)


def seeds():
    return Streams.from_random_state(0)


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
    assert (cold.learning_rate_, cold.scale_) == (RATE, pytest.approx(SPREAD))
    assert pytest.approx(8.0) == 2.0 * RATE * SPREAD**2, "the cost of the support vector machine"
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
    assert set(taken["learning_rate"]) == {RATE}
    assert set(taken["scale"]) == {SPREAD}
    assert taken["n_inducing"].dropna().tolist() == [len(cold.posterior_.mean) - 1]
    assert set(taken["length_scale"]) == {cold.length_scale_}
    folds = table[table["method"] == "folds"]
    tried = folds[folds["scale"] == SPREAD]
    learned = folds[folds["scale"].isna()].iloc[-1]
    best = tried.loc[tried["score"].idxmin()]
    assert best["score"] < learned["score"], "folds preferred it"
    assert len(tried) >= 3, "with both its neighbours"
    assert best["length_scale"] == cold.length_scale_, "at this width; 500 rows are all of them"


def test_folds_choose_with_one_link_for_all():
    """Their score is the log loss of the best link of left-out rows, as of an independent refit of each fold."""
    X, _, y, _ = eights()
    rows = KernelRows(
        X, np.where(y > 0, 1.0, -1.0), np.ones(500), np.ones(500), Hinge(), kernel_prior("learn"), seeds()
    )
    some, setting = rows.at_candidate(PLAIN), settings_of(rows, "rbf", 24.0, False)[0]
    machine = quick_fit(replace(some, prior=kernel_prior(SPREAD)), setting)
    settled = SimpleNamespace(machine=machine, setting=setting, record=Record())
    score = cold_rule._folds(rows, settled).score(setting, PLAIN, SPREAD, {})
    f, v = np.empty((2, 500))
    for train, test in folds(rows.label, ordered(rows, setting), rows.count, 3, False):
        given = {"learning_rate": RATE, "scale": SPREAD, "length_scale": 24.0, "standardize": False, "basis": "full"}
        part = BayesianKernelClassifier(**given).fit(X[train.rows], y[train.rows])
        f[test.rows], v[test.rows] = part._fitted.moments(X[test.rows])
    right = fit_link(rows.sign, f, v, rows.weight, 0.0).score
    assert score == pytest.approx(right, abs=1e-3)
    entry = settled.record.entries[-1]
    assert (entry.method, entry.score) == ("folds", score)
    assert score < 0.3 * entropy(rows.label, rows.weight)


def test_scores_do_not_depend_on_where_the_search_came_from():
    """Refits start from those of the same fold at the width before, and end where those of the settled machine do."""
    X, _, y, _ = eights(300)
    count = np.where(np.arange(300) < 20, 2.0, 1.0)  # some rows are split over folds
    rows = KernelRows(X, np.where(y > 0, 1.0, -1.0), count, count, Hinge(), kernel_prior("learn"), seeds())
    settings = [settings_of(rows, "rbf", length, False)[0] for length in (24.0, 34.0, 17.0)]
    machine = quick_fit(replace(rows.at_candidate(PLAIN), prior=kernel_prior(SPREAD)), settings[0])

    def found(search):
        settled = SimpleNamespace(machine=machine, setting=settings[0], record=Record())
        folds = cold_rule._folds(rows, settled)
        return [folds.score(setting, PLAIN, SPREAD, {}) for setting in search]

    alone = [found([setting])[0] for setting in settings]
    assert found(settings) == pytest.approx(alone, abs=3e-4)
    assert max(alone) > min(alone) + 2e-3, "widths differ by more"


@pytest.mark.parametrize(("gain", "rate"), [(1.9, 1.0), (2.1, RATE)])
def test_a_gain_that_a_few_rows_may_bring_is_not_enough(digits, gain, rate, monkeypatch):
    """What folds must gain is a log likelihood, of all their rows."""
    X, _, y, _ = digits
    monkeypatch.setattr(cold_rule._Folds, "score", lambda _, *given: 0.05 - gain / 500 * (given[2] == SPREAD))
    assert BayesianKernelClassifier(random_state=0).fit(X, y).learning_rate_ == rate


def test_a_class_with_too_few_rows_for_folds_leaves_no_score():
    X, _, y, _ = eights()
    keep = np.flatnonzero(y == 0)[:30].tolist() + np.flatnonzero(y == 1)[:1].tolist()
    sign = np.where(y[keep] > 0, 1.0, -1.0)
    rows = KernelRows(X[keep], sign, np.ones(31), np.ones(31), Hinge(), kernel_prior(0.5), seeds())
    setting = settings_of(rows, "rbf", 24.0, False)[0]
    settled = SimpleNamespace(machine=quick_fit(rows, setting), setting=setting, record=Record())
    assert cold_rule._folds(rows, settled).score(setting, PLAIN, SPREAD, {}) == np.inf
    assert not settled.record.entries


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
    assert model.learning_rate_ != RATE


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
