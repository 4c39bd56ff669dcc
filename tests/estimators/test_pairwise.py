"""Many classes by pairs."""

from __future__ import annotations

import pickle
import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.multiclass import OneVsRestClassifier

from softmargin import BayesianSVC
from softmargin.models.classes.pairwise import couple

IRIS = load_iris(return_X_y=True)


def test_coupling_recovers_consistent_probabilities():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), size=200)
    r = np.column_stack([p[:, j] / (p[:, i] + p[:, j]) for i, j in combinations(range(5), 2)])
    inside = ((r > 1e-5) & (r < 1.0 - 1e-5)).all(axis=1)
    np.testing.assert_allclose(couple(r, 5)[inside], p[inside], atol=1e-10)


def test_coupling_minimises_what_it_says():
    rng = np.random.default_rng(1)
    pairs = list(combinations(range(4), 2))
    r = rng.uniform(0.02, 0.98, size=(20, len(pairs)))
    for row, p in zip(r, couple(r, 4), strict=True):

        def disagreement(q, row=row):
            return sum((s * q[i] - (1.0 - s) * q[j]) ** 2 for s, (i, j) in zip(row, pairs, strict=True))

        total = {"type": "eq", "fun": lambda q: q.sum() - 1.0}
        best = minimize(disagreement, np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=total, tol=1e-14)
        assert disagreement(p) <= best.fun + 1e-9
        assert p.min() >= 0.0
    np.testing.assert_allclose(p.sum(), 1.0)


def test_coupling_of_one_pair_is_the_pair():
    r = np.linspace(0.01, 0.99, 9)[:, None]
    np.testing.assert_allclose(couple(r, 2)[:, 1:], r, atol=1e-12)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_pairs_are_the_models_of_two_classes(inference):
    X, y = IRIS
    model = BayesianSVC(inference=inference).fit(X, y)
    assert model.coef_.shape == (3, 4) and model.intercept_.shape == (3,)
    for number, (i, j) in enumerate(combinations(range(3), 2)):
        rows = (y == i) | (y == j)
        one = BayesianSVC(inference=inference).fit(X[rows], y[rows])
        np.testing.assert_allclose(model.coef_[number], one.coef_[0], rtol=1e-10)
        assert model.learning_rate_[number] == one.learning_rate_
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), p.argmax(axis=1))
    np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), p.argmax(axis=1))
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("inference", ["map", "vb"])
def test_names_and_order_of_classes_do_not_matter(inference):
    X, y = IRIS
    plain = BayesianSVC(inference=inference).fit(X, y).predict_proba(X)
    order = np.array([2, 0, 1])
    other = BayesianSVC(inference=inference).fit(X, np.array(["b", "c", "a"])[y])  # 0 -> b, 1 -> c, 2 -> a
    assert other.classes_.tolist() == ["a", "b", "c"]
    # the offset of a link is decided alike whichever class is called positive
    np.testing.assert_allclose(other.predict_proba(X), plain[:, order], atol=1e-8)


def test_leave_one_out_probabilities_are_those_of_refits():
    X, y = IRIS
    model = BayesianSVC(learning_rate=0.25).fit(X, y)
    p = model.loo_probability_
    assert p.shape == (150, 3)
    assert model.loo_.score == pytest.approx(-np.log(p[np.arange(150), y]).mean(), rel=1e-10)
    assert model.loo_.error == pytest.approx((p.argmax(axis=1) != y).mean())
    rows = np.flatnonzero(p.max(axis=1) < 0.95)
    refit = np.empty((len(rows), 3))
    for k, row in enumerate(rows):
        rest = np.arange(150) != row
        refit[k] = BayesianSVC(learning_rate=0.25).fit(X[rest], y[rest]).predict_proba(X[[row]])[0]
    # a refit also has a link of its own, which leave-one-out keeps
    off = np.abs(p[rows] - refit).mean()
    assert off < 0.4 * np.abs(model.predict_proba(X[rows]) - refit).mean()
    assert off < 0.03


def test_leave_one_out_probabilities_of_two_classes():
    X, y = IRIS
    X, y = X[y > 0], y[y > 0]
    weight = np.ones(100)
    weight[7] = 0.0
    model = BayesianSVC().fit(X, y, weight)
    p = model.loo_probability_
    assert np.isnan(p[7]).all() and np.isfinite(np.delete(p, 7, axis=0)).all()
    own = np.delete(p[np.arange(100), y - 1], 7)
    assert model.loo_.score == pytest.approx(-np.log(own).mean(), rel=1e-10)


def test_weights_equal_repeated_rows():
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, size=len(y)).astype(float)
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted = BayesianSVC().fit(X, y, weight).predict_proba(X)
    np.testing.assert_allclose(weighted, BayesianSVC().fit(X[again], y[again]).predict_proba(X), atol=1e-6)


def test_draws_threads_sparse_and_pickle():
    X, y = IRIS
    settings = {"inference": "gibbs", "draws": 60, "warmup": 60, "chains": 2, "random_state": 3, "learning_rate": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSVC(**settings).fit(X, y)
        threads = BayesianSVC(**settings, n_jobs=2).fit(X, y)
        thin = BayesianSVC(**settings).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(model.predict_proba(X), threads.predict_proba(X))
    np.testing.assert_allclose(thin.predict_proba(X), model.predict_proba(X), atol=0.15)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    assert model.sample(X[:4], 11).shape == (4, 11, 3)
    data = model.to_arviz()
    assert data["posterior"]["coef"].dims == ("chain", "draw", "pair", "feature")
    assert list(data["posterior"]["coef"].coords["pair"].to_numpy()) == ["0 | 1", "0 | 2", "1 | 2"]
    assert model.posterior_[0].draws.shape[:2] == (2, 60)
    assert not np.array_equal(model.posterior_[0].scales, model.posterior_[1].scales)


def test_summary_has_the_pair_as_second_level():
    X, y = load_iris(return_X_y=True, as_frame=True)
    labels = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    table = BayesianSVC().fit(X, labels).summary()
    assert table.index.names == ["feature", "pair"]
    assert table.index[0] == ("Intercept", "setosa | versicolor")
    assert table.loc[("petal width (cm)", "versicolor | virginica"), "mean"] > 0
    assert len(table) == 5 * 3
    without = BayesianSVC(fit_intercept=False).fit(X, labels).summary()
    assert len(without) == 4 * 3


def test_selection_by_the_pair_that_wants_a_column_most():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    y = np.repeat([0, 1, 2], 80)
    X[y == 1, 0] += 3.0
    X[y == 2, 1] += 3.0
    model = BayesianSVC("laplace-zero", learning_rate=0.5).fit(X, y)
    assert np.shape(model.inclusion_) == (3, 6)
    assert model.get_support(indices=True).tolist() == [0, 1]
    assert model.transform(X).shape == (240, 2)


def test_class_with_one_row_and_balanced_weights():
    X, y = IRIS
    few = np.r_[0:50, 50:51, 100:150]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = BayesianSVC(class_weight="balanced").fit(X[few], y[few])
    assert model.predict_proba(X).shape == (150, 3)
    # balanced weights count every class alike
    plain = BayesianSVC(class_weight="balanced", learning_rate=0.5).fit(X, y)
    again = BayesianSVC(class_weight={0: 1.0, 1: 1.0, 2: 1.0}, learning_rate=0.5).fit(X, y)
    np.testing.assert_allclose(plain.coef_, again.coef_, rtol=1e-8)


def test_one_against_rest_by_scikit_learn():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns
        model = OneVsRestClassifier(BayesianSVC()).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.predict_proba(X).shape == (300, 10)


def test_what_is_for_two_classes_says_so():
    X, y = IRIS
    model = BayesianSVC().fit(X, y)
    with pytest.raises(ValueError, match="pairs of classes have none"):
        model.decision_function(X, return_std=True)
    with pytest.raises(ValueError, match="all rows of class 2 have zero sample_weight"):
        BayesianSVC().fit(X, y, (y != 2).astype(float))
    assert isinstance(model.summary(), pd.DataFrame)
