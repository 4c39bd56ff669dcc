"""The contract of scikit-learn: estimator checks, cloning, pipelines, searches, callbacks."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from softmargin import BayesianKernelClassifier, BayesianSVC
from softmargin.priors import Ridge

SHORT = {"inference": "gibbs", "draws": 20, "warmup": 20, "chains": 2, "random_state": 0}
REASONS = {
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 and two rows have the same posterior, but a "
    "chain draws one latent for the one and two for the other, so finite chains differ by Monte Carlo error",
    "check_sample_weight_equivalence_on_sparse_data": "as for dense data",
    "check_decision_proba_consistency": "probabilities integrate the posterior variance of f, which differs between "
    "rows, so two rows with nearly equal f may have their probabilities in the other order",
}
ESTIMATORS = [BayesianSVC(inference=name) for name in ("vb", "map", "meanfield")] + [BayesianSVC(**SHORT)]


@parametrize_with_checks(ESTIMATORS[:1])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks(
    ESTIMATORS[1:], expected_failed_checks=lambda estimator: REASONS if estimator.inference == "gibbs" else {}
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
def test_estimator_checks_of_other_engines(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:300, :8], np.where(y[:300] == 1, "benign", "malignant")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.inference)
def test_clone_pickle_and_copy_predict_alike(estimator, data):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = clone(estimator).fit(X, y)
        again = clone(fitted).set_params(random_state=0).fit(X, y)
    expected = fitted.predict_proba(X)
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(twin.predict_proba(X), expected)
    np.testing.assert_array_equal(again.predict_proba(X), expected)


def test_names_labels_and_shapes(data):
    X, y = data
    model = BayesianSVC().fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert list(model.classes_) == ["benign", "malignant"]
    assert model.coef_.shape == (1, 8) and model.intercept_.shape == (1,)
    assert list(model.summary().index) == ["Intercept", *X.columns]
    assert set(model.predict(X)) == {"benign", "malignant"}
    f, sd = model.decision_function(X, return_std=True)
    plain = X.to_numpy() @ model.coef_[0] + model.intercept_[0]
    moved = plain + model.offset_ * model.loo_.link.shrink(model._fitted.moments(X.to_numpy())[1])
    np.testing.assert_allclose(f, moved, rtol=1e-9)
    assert sd.shape == f.shape and (sd > 0).all()


@pytest.mark.parametrize("y", [[0, 1] * 30, [True, False] * 30, ["no", "yes"] * 30, [5.0, -2.0] * 30, [-1, 1] * 30])
def test_any_two_labels(y):
    rng = np.random.default_rng(0)
    y = np.asarray(y)
    X = rng.normal(size=(60, 2)) + 1.5 * (y == y[0])[:, None]
    model = BayesianSVC().fit(X, y)
    assert model.score(X, y) > 0.75
    assert model.predict(X).dtype == y.dtype


def test_pipeline_search_and_meta_estimators(data):
    X, y = data
    pipe = make_pipeline(PolynomialFeatures(2, include_bias=False), BayesianSVC())
    assert cross_val_score(pipe, X.iloc[:, :3], y, cv=3).mean() > 0.8
    grid = GridSearchCV(BayesianSVC(), {"prior": [Ridge(scale=0.1), Ridge(scale=1.0), "ridge"]}, cv=3).fit(X, y)
    assert grid.best_score_ > 0.85
    three = np.arange(300) % 3
    shifted = X.to_numpy() / X.to_numpy().std(axis=0)
    shifted[:, 0] += 3.0 * (three == 1)
    shifted[:, 1] += 3.0 * (three == 2)
    for wrapper in (OneVsOneClassifier, OneVsRestClassifier):
        assert wrapper(BayesianSVC()).fit(shifted, three).score(shifted, three) > 0.8


def test_predict_is_the_argmax_of_the_probabilities(data):
    X, y = data
    for kind in ("calibrated", "pseudo", "sign"):
        model = BayesianSVC(probability=kind).fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
        np.testing.assert_array_equal(model.predict(X) == model.classes_[1], model.decision_function(X) > 0)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_dense_sparse_and_frame_agree(inference, data):
    X, y = data
    values = np.where(X.to_numpy() > np.median(X.to_numpy(), axis=0), X.to_numpy(), 0.0)
    options = {"inference": inference, "prior": Ridge(scale=0.7), "learning_rate": 0.5, "tol": 1e-10}
    options["standardize"] = True
    dense = BayesianSVC(**options).fit(values, y)
    fortran = BayesianSVC(**options).fit(np.asfortranarray(values), y)
    frame = BayesianSVC(**options).fit(pd.DataFrame(values), y)
    for kind in (sp.csr_matrix, sp.csc_matrix, sp.csr_array):
        sparse = BayesianSVC(**options).fit(kind(values), y)
        np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(sparse.predict_proba(kind(values)), dense.predict_proba(values), atol=1e-6)
    np.testing.assert_array_equal(fortran.coef_, dense.coef_)
    np.testing.assert_array_equal(frame.coef_, dense.coef_)


def test_callbacks_see_every_iteration_and_may_stop(data):
    pytest.importorskip("sklearn.callback")
    X, y = data
    seen = []

    class Stop:
        def setup(self, estimator, context):
            seen.append("setup")

        def teardown(self, estimator, context):
            seen.append("teardown")

        def on_fit_task_begin(self, estimator, context):
            seen.append(("begin", context.task_name))

        def on_fit_task_end(self, estimator, context):
            seen.append(("end", context.task_name))
            return context.task_name == "iteration" and context.task_id == 2

    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations"):
        BayesianSVC(learning_rate=0.5, tol=1e-14).set_callbacks(Stop()).fit(X, y)
    assert seen[0] == "setup" and seen[-1] == "teardown"
    assert seen.count(("end", "iteration")) == 3
    assert ("end", "fit") in seen


def test_attributes_of_pairs_are_arrays_with_the_pairs_first():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    run = {"draws": 20, "warmup": 20, "chains": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs, two = (BayesianSVC("spike-slab", "gibbs", **run).fit(X, labels) for labels in (y, y > 0))
        kernel = BayesianKernelClassifier().fit(X, y)
    for name in ("scale_", "learning_rate_", "tilt_", "inclusion_", "inclusion_error_", "chain_inclusion_", "offset_"):
        one, many = np.asarray(getattr(two, name)), getattr(pairs, name)
        assert isinstance(many, np.ndarray) and many.shape == (3, *one.shape) and many.dtype == one.dtype, name
    for name in ("scale_", "learning_rate_", "tilt_", "length_scale_", "standardize_"):
        assert isinstance(getattr(kernel, name), np.ndarray) and getattr(kernel, name).shape == (3,), name
    for name in ("posterior_", "trace_"):
        assert isinstance(getattr(pairs, name), list) and len(getattr(pairs, name)) == 3, name


def test_groups_are_routed_to_fits_and_scores():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(120, 1)), rng.integers(0, 12, 120)
    y = X[:, 0] + rng.normal(0.0, 3.0, 12)[groups] + rng.logistic(size=120) > 0.0
    folds = KFold(3, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = BayesianSVC(likelihood="logit").set_fit_request(groups=True, sample_weight=False)
        model.set_score_request(groups=True, sample_weight=False)
        routed = cross_val_score(model, X, y, params={"groups": groups}, cv=folds)
    by_hand = []
    for train, test in folds.split(X):
        fitted = BayesianSVC(likelihood="logit").fit(X[train], y[train], groups=groups[train])
        by_hand.append(fitted.score(X[test], y[test], groups=groups[test]))
    np.testing.assert_array_equal(routed, by_hand)
    frame = pd.DataFrame({"x": X[:, 0], "g": groups})
    column = cross_val_score(BayesianSVC(likelihood="logit", random_effects=["g"]), frame, y, cv=folds)
    np.testing.assert_array_equal(column, by_hand)
