"""What BayesianKernelClassifier chooses by itself: tilt, learning rate, width and number of points."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from softmargin import BayesianKernelClassifier
from softmargin.designs.kernel.kernels import Kernel
from softmargin.inference import choices
from softmargin.inference.choices import Candidate
from softmargin.losses import Hinge
from softmargin.models.kernel.choice import _sampled
from softmargin.models.kernel.inducing import level_sizes
from softmargin.models.kernel.search import KernelRows, Search, Setting, Width, kernel_prior
from softmargin.rows.streams import Streams


def ring(n, level, seed=0, p=4):
    """A class outside of a sphere; where ``level`` is low it is rare, and no row reaches a probability of one half."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, (rng.random(n) < expit(0.3 * (X**2).sum(axis=1) - level)).astype(int)


def checkers(n, seed=0):
    """A board of many fields: more points than 200 are needed."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 3))
    return X, (np.sin(np.pi * X).prod(axis=1) > 0.0).astype(int)


@pytest.fixture(scope="module")
def rare():
    return ring(500, 2.8)


@pytest.fixture(scope="module")
def tilted(rare):
    return BayesianKernelClassifier(random_state=0).fit(*rare)


def test_a_rare_class_does_not_collapse_to_class_frequencies(rare, tilted):
    """Of the gain over class shares that a logistic fit in the right basis has, most is there."""
    new, label = ring(20_000, 2.8, 1)

    def share(X, y, model):
        shares = log_loss(label, np.full(len(label), y.mean()))
        right = LogisticRegression(C=1e6).fit((X**2).sum(axis=1)[:, None], y)
        best = log_loss(label, right.predict_proba((new**2).sum(axis=1)[:, None]))
        assert shares - best > 0.03
        return (shares - log_loss(label, model.predict_proba(new))) / (shares - best)

    other = ring(500, 2.8, 11)
    assert share(*rare, tilted) > 0.8
    assert share(*other, BayesianKernelClassifier(random_state=0).fit(*other)) > 0.8
    assert tilted.predict_proba(new)[:, 1].mean() == pytest.approx(label.mean(), abs=0.04), "the link counts rows once"


@pytest.mark.parametrize(
    "given",
    [
        {"learning_rate": 0.25},
        {"class_weight": "balanced"},
        {"class_weight": {0: 1.0, 1: 1.0}},
        {"probability": "pseudo"},
        {"likelihood": "logit"},
    ],
)
def test_weights_that_are_given_are_not_tilted(rare, given):
    X, y = rare[0][:200], rare[1][:200]
    model = BayesianKernelClassifier(length_scale=4.0, standardize=False, **given).fit(X, y)
    assert not model.tilt_
    assert not model.choices_.get("tilt", np.zeros(0)).any()


def test_what_is_given_is_never_overruled():
    X, y = ring(450, 1.0)
    given = {"length_scale": 2.7, "learning_rate": 0.8, "scale": 1.5, "standardize": True, "n_inducing": 37}
    model = BayesianKernelClassifier(**given).fit(X, y)
    assert model.length_scale_ == 2.7
    assert model.learning_rate_ == 0.8
    assert model.scale_ == pytest.approx(1.5)
    assert model.standardize_
    assert len(model.posterior_.mean) == 38
    assert not len(model.choices_), "nothing was tried"
    chosen = BayesianKernelClassifier(length_scale=2.7, n_inducing=37, standardize=True).fit(X, y)
    assert chosen.length_scale_ == 2.7
    assert set(chosen.choices_["length_scale"]) == {2.7}


def test_no_number_of_points_is_the_automatic_one(rare):
    X, y = rare
    settings = {"length_scale": 3.0, "learning_rate": 0.25, "standardize": False, "random_state": 0}
    auto, none = (BayesianKernelClassifier(n_inducing=way, **settings).fit(X, y) for way in ("auto", None))
    np.testing.assert_array_equal(auto.predict_proba(X), none.predict_proba(X))


def test_choices_tell_what_was_taken(tilted):
    table = tilted.choices_
    taken = table[table["taken"]]
    assert set(taken["length_scale"]) == {tilted.length_scale_}
    assert set(taken["tilt"]) == {tilted.tilt_}
    assert set(taken["learning_rate"]) == {tilted.learning_rate_}
    assert set(taken["n_inducing"].dropna()) == {len(tilted.posterior_.mean) - 1}
    at_base = table[(table["method"] == "leave-one-out") & (table["learning_rate"] == 0.25)]
    both = at_base[(at_base["length_scale"] == tilted.length_scale_) & at_base["n_inducing"].isna()]
    assert both.sort_values("score")["tilt"].iloc[0] == tilted.tilt_, "the lower objective was kept"
    assert (table["seconds"] >= 0.0).all()


def test_every_pair_of_classes_is_chosen_for():
    X, y = ring(240, 1.5)
    y = np.where(X[:, 0] > 0.8, 2, y)
    model = BayesianKernelClassifier(length_scale=4.0, standardize=False).fit(X, y)
    assert set(model.choices_["pair"]) == {"0 | 1", "0 | 2", "1 | 2"}
    assert len(model.tilt_) == len(model.learning_rate_) == 3
    pair = y != 2
    alone = BayesianKernelClassifier(length_scale=4.0, standardize=False).fit(X[pair], y[pair])
    assert (alone.tilt_, alone.learning_rate_) == (model.tilt_[0], model.learning_rate_[0])


def test_points_are_doubled_while_that_pays():
    X, y = checkers(700)
    settings = {"length_scale": 1.0, "learning_rate": 0.5, "standardize": False, "random_state": 0}
    many = BayesianKernelClassifier(**settings).fit(X, y)
    tried = many.choices_["n_inducing"].tolist()
    assert tried == [200, 400, 700][: len(tried)]
    assert len(tried) > 1
    scores = many.choices_["score"]
    assert len(many.posterior_.mean) - 1 == tried[int(scores.argmin())]
    few = BayesianKernelClassifier(n_inducing=200, **settings).fit(X, y)
    assert many.loo_.objective < few.loo_.objective
    wide = BayesianKernelClassifier(**settings | {"length_scale": 30.0}).fit(X, y)
    assert len(wide.choices_) == 1
    assert len(wide.posterior_.mean) < 150, "points that others determine are left out"


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (201, [201]),
        (280, [280]),
        (300, [200, 300]),
        (999, [200, 400, 999]),
        (1000, [200, 400, 1000]),
        (1001, [200, 400, 1000]),
        (2500, [200, 400, 1000]),
        (5000, [200, 400, 707]),
        (20_000, [200, 353]),
        (1_000_000, [200]),
    ],
)
def test_one_rule_for_any_number_of_rows(n, sizes):
    assert list(level_sizes(n)) == sizes


def test_fits_on_both_sides_of_a_thousand_rows_are_alike():
    X, y = ring(1001, 1.0, p=2)
    new = ring(300, 1.0, 1, p=2)[0]
    below, above = (BayesianKernelClassifier(random_state=0).fit(X[:n], y[:n]) for n in (999, 1001))
    assert np.abs(below.predict_proba(new) - above.predict_proba(new)).mean() < 0.02
    assert below.choices_["method"].tolist()[-1:] == above.choices_["method"].tolist()[-1:]


def test_copies_are_weights_and_order_does_not_matter_on_points():
    X, y = ring(260, 1.0)
    count = np.where(np.arange(260) < 30, 2, 1)
    settings = {"length_scale": 3.0, "standardize": False, "random_state": 0}
    weighted = BayesianKernelClassifier(**settings).fit(X, y, sample_weight=count)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(260), count))
    repeated = BayesianKernelClassifier(**settings).fit(X[rows], y[rows])
    np.testing.assert_allclose(repeated.predict_proba(X), weighted.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(repeated.loo_probability_, weighted.loo_probability_[rows], rtol=1e-6)


def test_a_rare_class_has_more_than_its_share_of_the_rows_that_choose():
    X, y = ring(4000, 4.5)
    sign = np.where(y == 1, 1.0, -1.0)
    ones = np.ones(len(y))
    rows = KernelRows(X, sign, ones, ones, Hinge(), kernel_prior("learn"), Streams.from_random_state(0))
    some = _sampled(rows)
    assert len(some.sign) == 400
    assert (some.sign > 0).sum() == 100
    np.testing.assert_allclose(some.weight[some.sign > 0], 1.0)
    assert some.weight[some.sign > 0].sum() / some.weight.sum() == pytest.approx(y.mean()), "the shares of all rows"
    tilted = some.at_candidate(Candidate(True, 0.25))
    assert tilted.c[some.sign > 0].sum() == pytest.approx(tilted.c[some.sign < 0].sum())
    whole = rows.at_candidate(Candidate(True, 0.25))
    assert tilted.c[some.sign > 0][0] == pytest.approx(whole.c[sign > 0][0]), "a rare row weighs what it does in all"


def test_a_row_is_in_one_fold_where_choices_are_made_on_some_of_the_rows(monkeypatch):
    """Sampled rows weigh what they stand for: dealt out by that, a row would be split and help to predict itself."""
    dealt = []

    def spied(*arguments):
        for train, test in folds(*arguments):
            dealt.append((train.rows, test.rows))
            yield train, test

    folds = choices._folds
    monkeypatch.setattr(choices, "_folds", spied)
    X, y = checkers(503)
    y = (X[:, 0] * X[:, 1] > 0.5).astype(int)
    BayesianKernelClassifier(random_state=0).fit(X, y)
    assert len(dealt) >= 6, "two rates were refitted"
    assert not any(np.isin(test, train).any() for train, test in dealt)


def searched(scores):
    """A search in which ``scores`` says how well every power of two of the width predicts."""

    class Known(Search):
        def at(self, setting, step):
            loo = SimpleNamespace(max_kv=0.3, score=scores(step), objective=(step - 2.0) ** 2)
            return self.found.setdefault((setting.kernel, step), Width(setting, step, SimpleNamespace(loo=loo)))

    return Known(None, None)


def test_a_width_between_whole_steps_is_found_where_the_score_is_skewed():
    """Half and twice the width score the same, and 0.8 of it is best: a parabola through whole steps misses that."""
    search, setting = searched(lambda step: np.exp(-2.0 * step) + 3.63 * step), Setting(Kernel("rbf", length=1.0), None)
    assert search.at(setting, -1.0).rank[1] == pytest.approx(search.at(setting, 1.0).rank[1], abs=0.02)
    best = search.refined(search.climb(search.at(setting, 0.0)))
    assert best.step == pytest.approx(-0.5 * np.log(3.63 / 2.0), abs=0.1)


def test_widths_are_compared_by_log_loss_without_the_prior_of_the_link():
    """The objective with that prior is lowest at four times the width that predicts best."""
    search, setting = searched(lambda step: step**2), Setting(Kernel("rbf", length=1.0), None)
    assert search.refined(search.climb(search.at(setting, 0.0))).step == 0.0
