"""Many more columns than rows: when the narrow prior is taken, and what it is."""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from softmargin import BayesianSVC
from softmargin.exceptions import ModelWarning
from softmargin.inference.choices import tilted
from softmargin.priors import HalfT, Ridge

USUAL = Ridge(hyperprior=HalfT(1.0))  # what "ridge" learns its scale by; given by name it is the user's choice


def shifted(n_negative, n_positive, p=1200, shift=0.11, seed=0):
    """Normal columns whose means differ a little between the classes, in all of them."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], [n_negative, n_positive])
    return rng.normal(size=(len(y), p)) + shift * (2 * y[:, None] - 1), y


@pytest.fixture(scope="module")
def unequal():
    X, y = shifted(20, 6)
    return X, y, BayesianSVC().fit(X, y)


def test_the_narrow_prior_gives_one_quarter_to_a_row_of_mean_length(unequal):
    X, y, model = unequal
    assert model.learning_rate_ == 16.0
    assert model.scale_ == pytest.approx(0.25 / math.sqrt(X.shape[1]), rel=1e-12)  # standardized columns
    plain = BayesianSVC(standardize=False).fit(X, y)
    length = ((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert plain.scale_ == pytest.approx(0.25 / math.sqrt(length), rel=1e-12)


def test_it_is_the_fit_at_this_scale_and_rate_with_an_offset(unequal):
    X, y, model = unequal
    weight = {k: tilted(y, np.ones(len(y)))[y == k][0] for k in (0, 1)}
    same = BayesianSVC(Ridge(scale=model.scale_), learning_rate=16.0, class_weight=weight).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(model.intercept_, same.intercept_, rtol=1e-10)
    assert model.offset_ != 0.0


def test_rows_left_out_are_predicted_clearly_better_and_so_are_new_ones(unequal):
    X, y, model = unequal
    usual = BayesianSVC(USUAL).fit(X, y)
    assert usual.learning_rate_ < 1.0
    assert model.loo_.objective < usual.loo_.objective - 0.05
    X_new, y_new = shifted(400, 120, seed=1)
    assert model.score(X_new, y_new) > usual.score(X_new, y_new) + 0.05
    small = y_new == 1  # the usual fit gives the smaller class away
    assert (usual.predict(X_new[small]) == 1).mean() < 0.5 < (model.predict(X_new[small]) == 1).mean()


def test_left_out_rows_come_from_refits_unless_none_is_wrong():
    X, y = shifted(20, 12, p=600)
    model = BayesianSVC().fit(X, y)
    assert model.loo_.method == "refits of 10 folds"
    kept = np.ones(len(y), dtype=bool)
    columns = (X - X.mean(axis=0)) / X.std(axis=0)  # refits keep the columns as all rows scale them
    order = np.argsort((columns**2).sum(axis=1))
    first = [order[y[order] == label][0] for label in (0, 1)]  # both are dealt to the first fold
    tenth = [order[y[order] == label][10::10] for label in (0, 1)]
    kept[np.concatenate((first, *tenth))] = False
    scale, weight = model.scale_, {k: tilted(y[kept], np.ones(kept.sum()))[y[kept] == k][0] for k in (0, 1)}
    alone = BayesianSVC(Ridge(scale=scale), learning_rate=16.0, class_weight=weight, standardize=False)
    f = alone.fit(columns[kept], y[kept])._fitted.moments(columns)[0]
    np.testing.assert_allclose(model._fitted.fit.held.f[~kept], f[~kept], atol=0.02)
    easy = BayesianSVC().fit(*shifted(20, 12, p=600, shift=1.0))
    assert easy.loo_.method == "closed form"


def test_little_is_promised_without_signal():
    loss = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)  # thirty rows may look a little better than nothing
            model = BayesianSVC().fit(rng.normal(size=(30, 600)), np.repeat([0, 1], 15))
        p = model.predict_proba(rng.normal(size=(400, 600)))[:, 1]
        loss.append(-0.5 * (np.log(p) + np.log1p(-p)).mean())  # labels of new rows are heads and tails
    assert np.mean(loss) < np.log(2.0) + 0.1


def test_nothing_changes_with_fewer_than_ten_columns_a_row():
    X, y = shifted(40, 12, p=500)  # classes that overlap: others have a cold posterior of their own
    model, usual = BayesianSVC().fit(X, y), BayesianSVC(USUAL).fit(X, y)
    assert model.learning_rate_ == usual.learning_rate_
    np.testing.assert_array_equal(model.coef_, usual.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), usual.predict_proba(X))


@pytest.mark.parametrize(
    "choice", [{"learning_rate": 0.5}, {"prior": Ridge(scale=0.1)}, {"inference": "map"}, {"likelihood": "logit"}]
)
def test_what_the_user_chose_stays(unequal, choice):
    X, y, _ = unequal
    model = BayesianSVC(**choice).fit(X, y)
    assert model.learning_rate_ <= 1.0
    assert model.scale_ != pytest.approx(0.25 / math.sqrt(X.shape[1]))


def test_solvers_agree():
    X, y = shifted(10, 4, p=150, shift=0.4)
    dual, cholesky = (BayesianSVC(solver=solver, tol=1e-12).fit(X, y) for solver in ("dual", "cholesky"))
    assert dual.learning_rate_ == cholesky.learning_rate_ == 16.0
    np.testing.assert_allclose(dual.coef_, cholesky.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(dual.predict_proba(X), cholesky.predict_proba(X), atol=1e-5)


def test_weights_are_repeated_rows_and_small_weights_are_rows():
    X, y = shifted(12, 4, p=500, shift=0.15)
    count = np.where(np.arange(len(y)) % 3 == 0, 2, 1)
    weighted = BayesianSVC().fit(X, y, sample_weight=count)
    repeated = BayesianSVC().fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    assert weighted.learning_rate_ == repeated.learning_rate_ == 16.0
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    many, labels = shifted(100, 100, p=50)
    assert BayesianSVC().fit(many, labels, sample_weight=np.full(200, 0.01)).learning_rate_ < 1.0


def test_labels_may_be_exchanged(unequal):
    X, y, model = unequal
    other = BayesianSVC().fit(X, 1 - y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X)[:, ::-1], atol=1e-6)


def test_draws_are_taken_at_the_same_scale_and_rate(unequal):
    X, y, model = unequal
    drawn = BayesianSVC(inference="gibbs", draws=200, warmup=200, chains=2, random_state=0).fit(X, y)
    assert (drawn.learning_rate_, drawn.scale_) == (16.0, pytest.approx(model.scale_, rel=1e-12))
    f, g = (fit._fitted.moments(X)[0] for fit in (model, drawn))
    assert np.corrcoef(f, g)[0, 1] > 0.99
    assert np.abs(f - g).max() < 0.1  # predictors of the training rows are near their margins at -1 and 1


def test_golub_default_keeps_the_small_class():
    folder = os.environ.get("SOFTMARGIN_DATA")
    if not folder:
        pytest.skip("needs SOFTMARGIN_DATA")
    with np.load(Path(folder) / "golub.npz") as data:
        X, y = data["X"].astype(float), data["y"]
    wrong = usual = 0
    for seed in range(4):
        X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=38, stratify=y, random_state=seed)
        wrong += (BayesianSVC().fit(X_train, y_train).predict(X_test) != y_test).sum()
        usual += (BayesianSVC(USUAL).fit(X_train, y_train).predict(X_test) != y_test).sum()
    assert wrong <= 0.13 * 4 * 34  # searched linear peers err in 13 %
    assert usual > wrong
