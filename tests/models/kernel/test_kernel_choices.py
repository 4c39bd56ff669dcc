"""What BayesianKernelClassifier chooses by itself: tilt, learning rate, width and number of points."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel

from softmargin import BayesianKernelClassifier
from softmargin.designs.kernel.kernels import Kernel
from softmargin.inference import choices
from softmargin.inference.choices import Candidate
from softmargin.losses import Hinge
from softmargin.models.kernel.comparison import Comparison, Look
from softmargin.models.kernel.folds import sampled
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
    on_points = at_base[at_base["n_inducing"].notna()]
    both = on_points[on_points["length_scale"] == on_points["length_scale"].iloc[0]]
    assert both.sort_values("score")["tilt"].iloc[0] == tilted.tilt_, "the lower score was kept"
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
    some = sampled(rows, 400)
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

    folds = choices.folds
    monkeypatch.setattr(choices, "folds", spied)
    X, _ = checkers(503)
    y = (X[:, 0] * X[:, 1] > 0.5).astype(int)
    BayesianKernelClassifier("precomputed", random_state=0).fit(rbf_kernel(X, gamma=0.3), y)
    assert len(dealt) >= 5, "two rates were refitted, of which the second may end after two of three folds"
    assert not any(np.isin(test, train).any() for train, test in dealt)


def test_folds_do_not_depend_on_the_units_of_standardized_columns():
    X, y = ring(90, 1.0)
    given = {"length_scale": 2.0, "standardize": True}
    tables = [BayesianKernelClassifier(**given).fit(Z, y).choices_ for Z in (X, X * [1.0, 30.0, 1.0, 0.01] + 5.0)]
    scores = [table.loc[table["method"] == "folds", "score"].to_numpy() for table in tables]
    assert len(scores[0])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)


def searched(scores):
    """A search in which ``scores`` says how well every power of two of the width predicts."""

    class Known(Search):
        def at(self, setting, step):
            loo = SimpleNamespace(max_kv=0.3, score=scores(step), objective=(step - 2.0) ** 2)
            return self.found.setdefault((setting.kernel, step), Width(setting, step, SimpleNamespace(loo=loo)))

    return Known(None, None)


def test_half_a_step_to_the_narrow_side_is_tried_where_the_score_is_skewed():
    """Half and twice the width score the same, and 0.8 of it is best: a parabola through whole steps misses that."""
    search, setting = searched(lambda step: np.exp(-2.0 * step) + 3.63 * step), Setting(Kernel("rbf", length=1.0), None)
    assert search.at(setting, -1.0).rank[1] == pytest.approx(search.at(setting, 1.0).rank[1], abs=0.02)
    best = search.refined(search.climb(search.at(setting, 0.0)))
    assert best.step == -0.5


def test_narrow_widths_are_tried_where_all_others_say_nothing():
    """Regions that are smaller than half the mean distance are flat to every kernel that a climb would meet."""
    setting = Setting(Kernel("rbf", length=1.0), None)
    search = searched(lambda step: 0.3 if step == -3.0 else 0.69 - 0.001 * step)
    best = search.climb(search.at(setting, 0.0))
    assert best.step > 0.0
    assert search.unseen(best, np.log(2.0)).step == -3.0
    noise = searched(lambda step: 0.69 - 0.001 * abs(step))
    assert noise.unseen(noise.at(setting, 0.0), np.log(2.0)).step == 0.0, "what says as little is no reason to move"
    clear = searched(lambda step: 0.3 + 0.1 * step**2)
    clear.unseen(clear.climb(clear.at(setting, 0.0)), np.log(2.0))
    assert len(clear.found) == 3, "where something is seen nothing else is tried"


def test_a_chessboard_is_seen():
    """The mean distance is half of its width, and from there on wider kernels look a little better."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0.0, 4.0, size=(1400, 2))
    y = (np.floor(X).sum(axis=1) % 2).astype(int)
    model = BayesianKernelClassifier(random_state=0).fit(X[:600], y[:600])
    assert model.score(X[600:], y[600:]) > 0.85


def test_widths_are_compared_by_log_loss_without_the_prior_of_the_link():
    """The objective with that prior is lowest at four times the width that predicts best."""
    search, setting = searched(lambda step: step**2), Setting(Kernel("rbf", length=1.0), None)
    assert search.refined(search.climb(search.at(setting, 0.0))).step == 0.0


def compared(look):
    """A comparison in which ``look(length, rate)`` is a score, the largest k v and the share left undetermined."""

    class Known(Comparison):
        def __init__(self):
            self.tried = []

        def at(self, setting, candidate, start):
            self.tried.append((setting.kernel.length, candidate.rate))
            score, max_kv, undetermined = look(*self.tried[-1])
            loo = SimpleNamespace(score=score, objective=score, max_kv=max_kv)
            held = SimpleNamespace(loo=loo)
            return Look(setting, candidate, SimpleNamespace(held=held, messages=None, undetermined=undetermined))

        def best(self, rates=()):
            first = self.at(Setting(Kernel("rbf", length=1.0), None), Candidate(True, 0.25), None)
            found = self.higher(self.wider(first, 16.0), rates)
            return found.setting.kernel.length, found.candidate.rate

    return Known()


@pytest.mark.parametrize(
    ("look", "best"),
    [
        (lambda length, rate: ((np.log2(length) - 2.0) ** 2, 0.2, 0.0), 4.0),
        (lambda length, rate: (-np.log2(length), 0.2, 0.0), 16.0),  # no longer than the search may go
        (lambda length, rate: (-np.log2(length), 0.2, 0.3), 1.0),  # too few points favour wide kernels
        (lambda length, rate: (-np.log2(length), 0.2 + 0.4 * np.log2(length), 0.0), 2.0),  # not to be trusted
    ],
)
def test_more_rows_may_widen_the_kernel(look, best):
    assert compared(look).best()[0] == best


@pytest.mark.parametrize(
    ("scores", "max_kv", "rate"),
    [
        ((0.5, 0.496, 0.4), 0.5, 0.25),  # leave-one-out flatters a higher rate by more than that
        ((0.5, 0.494, 0.4895), 0.5, 0.5),
        ((0.5, 0.494, 0.488), 0.5, 1.0),
        ((0.05, 0.0488, 0.047), 0.5, 1.0),  # where little is at stake less is enough
        ((0.5, 0.485, 0.4), 0.75, 0.25),  # more is asked where rows see themselves
        ((0.5, 0.475, 0.47), 0.75, 0.5),
        ((0.5, 0.3, 0.1), 0.85, 0.25),  # and nothing is believed beyond
    ],
)
def test_a_higher_rate_must_gain_more_than_leave_one_out_flatters_it(scores, max_kv, rate):
    known = dict(zip((0.25, 0.5, 1.0), scores, strict=True))
    looked = compared(lambda length, c: (known[c] if length == 1.0 else 1.0, max_kv if c > 0.25 else 0.3, 0.0))
    assert looked.best((0.5, 1.0)) == (1.0, rate)


def test_smooth_functions_take_no_more_than_the_first_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3))
    y = (rng.random(700) < expit(X[:, 0] + X[:, 1])).astype(int)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert model.choices_["n_inducing"].max() <= 200


def test_all_rows_are_fitted_where_some_of_them_chose():
    """Beyond 3000 rows choices are made on some; the last fit sees all of them, at the scale that those found."""
    X, y = ring(3300, 1.0, p=2)
    model = BayesianKernelClassifier(length_scale=2.0, standardize=False, random_state=0).fit(X, y)
    assert len(model.loo_probability_) == 3300
    assert np.isfinite(model.loo_probability_).all()
    fewer = BayesianKernelClassifier(length_scale=2.0, standardize=False, random_state=0).fit(X[:3000], y[:3000])
    assert model.scale_ == pytest.approx(fewer.scale_, rel=0.3)
    new = ring(500, 1.0, 1, p=2)[0]
    assert np.abs(model.predict_proba(new) - fewer.predict_proba(new)).mean() < 0.02
