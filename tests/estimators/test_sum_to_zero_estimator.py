"""Many classes as one model with scores that sum to zero, through the estimator."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from class_problems import class_objective, convex_classes, simulated_classes
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC
from softmargin.designs.standardize import design_for
from softmargin.inference.choices import Candidate
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns
from softmargin.models.classes.sum_to_zero import OWN, fit_sum_to_zero
from softmargin.models.two_class import Recipe, fit_two_classes
from softmargin.priors import GroupLasso, Lasso, Ridge, SpikeSlab
from softmargin.rows.streams import Streams

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)
COSTS = np.array([[0.0, 1.0, 3.0], [0.5, 0.0, 1.0], [2.0, 0.0, 0.0]])
DRAWS = {"inference": "gibbs", "draws": 300, "warmup": 200, "chains": 2, "random_state": 3}


def joint(*choices, **settings):
    return BayesianSVC(*choices, multi_class="sum-to-zero", **settings)


def standardized(data):
    X, y = data
    return (X - X.mean(axis=0)) / X.std(axis=0), y


# --- two classes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_two_classes_are_the_binary_model(inference):
    """f of the second class, with a prior scale that is larger by the root of two."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:200, :6]
    y, ones = y[:200], np.ones(200)
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    recipe = Recipe(Ridge(scale=0.7), Hinge(), inference, 0.5, run={"tol": 1e-12})
    two = fit_two_classes(recipe, X, 2.0 * y - 1.0, ones, ones, columns, streams=Streams((0, 0))).fit.posterior
    wide = Ridge(scale=0.7 * np.sqrt(2.0), intercept_scale=1e4 * np.sqrt(2.0))
    one = fit_sum_to_zero(
        replace(recipe, prior=wide), X, y, ones, ones, columns, None, 2, streams=Streams((0, 0))
    ).fit.posterior
    design = design_for(X, columns)
    f, v = two.moments(design)
    scores, V = one.moments(design)
    np.testing.assert_allclose(scores[:, 1], f, atol=1e-8)
    np.testing.assert_allclose(scores[:, 0], -f, atol=1e-8)
    np.testing.assert_allclose(V[:, 1, 1], v, atol=1e-8)


@pytest.mark.parametrize("costs", [None, [[0.0, 3.0], [1.0, 0.0]]])
def test_two_labels_take_the_binary_path(costs):
    X, y = IRIS
    X, y = X[y > 0], y[y > 0]
    model = joint(costs=costs).fit(X, y)
    plain = BayesianSVC(class_weight=None if costs is None else {1: 3.0}).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-8)
    assert model.coef_.shape == (1, 4)


# --- the mode -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [IRIS, WINE], ids=["iris", "wine"])
@pytest.mark.parametrize(
    ("prior", "rates", "penalty"),
    [
        (Ridge(scale=0.8), {"ridge": 0.8**-2}, lambda b: 0.5 * (b**2).sum() / 0.8**2),
        (Lasso(scale=0.3), {"lasso": 1 / 0.3}, lambda b: np.abs(b).sum() / 0.3),
        (GroupLasso(scale=0.3), {"group": 1 / 0.3}, lambda b: np.sqrt((b**2).sum(axis=0)).sum() / 0.3),
    ],
    ids=["ridge", "lasso", "group"],
)
def test_mode_has_the_objective_of_a_convex_solver(data, prior, rates, penalty):
    X, y = standardized(data)
    weight = np.random.default_rng(1).uniform(0.3, 2.0, len(y))
    settings = {"costs": COSTS, "learning_rate": 1.0, "standardize": False}
    model = joint(prior, "map", **settings).fit(X, y, weight)
    beta = np.column_stack((model.intercept_, model.coef_))
    best = convex_classes(X, y, c=weight, costs=COSTS, **rates)
    ours, theirs = (class_objective(X, y, b, penalty, c=weight, costs=COSTS) for b in (beta, best))
    assert ours == pytest.approx(theirs, rel=1e-7)
    assert model.gap_ < 1e-6


@pytest.mark.filterwarnings("ignore:map did not converge:sklearn.exceptions.ConvergenceWarning")
def test_em_ends_at_the_same_mode():
    X, y = standardized(WINE)
    settings = {"prior": Ridge(scale=0.8), "inference": "map", "costs": COSTS, "learning_rate": 1.0}
    newton = joint(**settings).fit(X, y)
    em = joint(**settings, engine_options={"algorithm": "em"}, max_iter=3000).fit(X, y)
    np.testing.assert_allclose(em.coef_, newton.coef_, atol=1e-5)


# --- shapes, order, units -------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"inference": "map"}, {}, {"inference": "meanfield"}, DRAWS], ids=str)
@pytest.mark.parametrize("kind", ["calibrated", "pseudo", "sign"])
def test_decisions_agree_and_rows_sum_to_zero(settings, kind):
    X, y = WINE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = joint(probability=kind, learning_rate=0.5, **settings).fit(X, y)
    p, scores = model.predict_proba(X), model.decision_function(X)
    assert model.coef_.shape == (3, 13) and model.intercept_.shape == (3,)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.intercept_.sum(), 0.0, atol=1e-10)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(scores.sum(axis=1), 0.0, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), p.argmax(axis=1))
    np.testing.assert_array_equal(scores.argmax(axis=1), p.argmax(axis=1))
    assert model.score(X, y) > 0.97
    f = model._fitted.moments(X)[0]
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, f, atol=1e-9)


@pytest.mark.parametrize("inference", ["map", "vb"])
def test_names_and_order_of_classes_do_not_matter(inference):
    X, y = IRIS
    plain = joint(inference=inference).fit(X, y)
    other = joint(inference=inference).fit(X, np.array(["b", "c", "a"])[y])  # 0 -> b, 1 -> c, 2 -> a
    order = [2, 0, 1]
    np.testing.assert_allclose(other.coef_, plain.coef_[order], atol=1e-8)
    np.testing.assert_allclose(other.predict_proba(X), plain.predict_proba(X)[:, order], atol=1e-8)


def test_order_of_classes_does_not_matter_to_draws():
    X, y = IRIS
    settings = {**DRAWS, "draws": 500, "learning_rate": 0.5}
    plain, other = (joint(**settings).fit(X, labels).summary() for labels in (y, (y + 1) % 3))
    for feature in ("x2", "x3"):
        for label in range(3):
            one, two = plain.loc[(feature, label)], other.loc[(feature, (label + 1) % 3)]
            error = np.hypot(one["sd"] / np.sqrt(one["ess"]), two["sd"] / np.sqrt(two["ess"]))
            assert abs(one["mean"] - two["mean"]) < 4.0 * error


@pytest.mark.parametrize(("inference", "tolerance"), [("map", 1e-7), ("vb", 1e-6)])
def test_weights_equal_repeated_rows(inference, tolerance):
    X, y = WINE
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted, repeated = (joint(inference=inference).fit(*data) for data in ((X, y, weight), (X[again], y[again])))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=tolerance)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=tolerance)
    assert np.isnan(weighted.loo_probability_[weight == 0]).all()


def test_weights_equal_repeated_rows_with_more_columns_than_rows():
    """The learned scale counts directions that the pairs of rows and classes see, not repeated ones."""
    rng = np.random.default_rng(2)
    X, y, weight = rng.random((15, 80)), np.arange(15) % 3, rng.integers(1, 4, 15)
    weighted, repeated = (
        joint(inference="map", learning_rate=0.5).fit(*data)
        for data in ((X, y, weight), (X.repeat(weight, axis=0), y.repeat(weight)))
    )
    assert weighted.scale_ == pytest.approx(repeated.scale_, rel=1e-8)
    left_out, first = (model._fitted.fit.held.f for model in (weighted, repeated)), np.cumsum(weight) - weight
    one, two = left_out
    np.testing.assert_allclose(two[first], one, atol=1e-8)


@pytest.mark.parametrize("inference", ["map", "vb"])
def test_sparse_equals_dense(inference):
    X, y = IRIS
    dense, thin = (joint(inference=inference, standardize=True).fit(columns, y) for columns in (X, sp.csr_matrix(X)))
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-7)
    np.testing.assert_allclose(thin.predict_proba(sp.csr_matrix(X)), dense.predict_proba(X), atol=1e-7)


def test_class_weight_multiplies_the_rows_of_a_class():
    X, y = standardized(IRIS)
    settings = {"learning_rate": 0.5, "standardize": False}
    by_class = joint(class_weight={1: 3.0}, **settings).fit(X, y)
    by_cost = joint(costs=np.array([[1.0] * 3, [3.0] * 3, [1.0] * 3]), **settings).fit(X, y)
    np.testing.assert_allclose(by_class.coef_, by_cost.coef_, atol=1e-8)
    np.testing.assert_allclose(by_class.predict_proba(X), by_cost.predict_proba(X), atol=1e-8)
    balanced = joint(class_weight="balanced", **settings).fit(X, y)  # the classes are of one size
    np.testing.assert_allclose(balanced.coef_, joint(**settings).fit(X, y).coef_, atol=1e-8)


# --- what is reported -----------------------------------------------------------------------------------------


def test_summary_names_arviz_and_sample():
    X, y = load_iris(return_X_y=True, as_frame=True)
    labels = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    model = joint(random_state=0).fit(X, labels)
    table = model.summary()
    assert table.index.names == ["feature", "class"]
    assert table.index[0] == ("Intercept", "setosa") and len(table) == 5 * 3
    assert list(model.feature_names_in_) == list(X.columns)
    for r, name in enumerate(model.classes_):
        np.testing.assert_allclose(table.xs(name, level="class")["mean"][1:], model.coef_[r])
    drawn = model.to_arviz(draws=4000)["posterior"]
    assert drawn["coef"].dims == ("chain", "draw", "class", "feature")
    assert drawn["coef"].coords["class"].to_numpy().tolist() == ["setosa", "versicolor", "virginica"]
    sd = table["sd"].unstack("class").loc[list(X.columns)].T.to_numpy()
    np.testing.assert_allclose(drawn["coef"].to_numpy()[0].std(axis=0), sd, rtol=0.06)
    f = model.sample(X.iloc[:5], 4000)
    assert f.shape == (5, 4000, 3)
    np.testing.assert_allclose(f.sum(axis=-1), 0.0, atol=1e-9)
    assert len(joint(fit_intercept=False).fit(X, labels).summary()) == 4 * 3
    assert list(joint(inference="map").fit(X, labels).summary().columns) == ["mean"]


def test_draws_threads_pickle_and_clone():
    X, y = IRIS
    model = joint(**DRAWS, learning_rate=0.5).fit(X, y)
    threads = joint(**DRAWS, learning_rate=0.5, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(threads.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)
    table = model.summary()
    assert {"sd", "ess", "r_hat"} <= set(table.columns) and (table["r_hat"] < 1.2).all()
    drawn = model.to_arviz()["posterior"]
    assert drawn["coef"].shape == (2, 300, 3, 4) and drawn["intercept"].shape == (2, 300, 3)
    # draws and the Gaussian approximation are two views of one posterior
    vb = joint(learning_rate=0.5).fit(X, y).summary()
    assert ((table["mean"] - vb["mean"]).abs() < 0.4 * vb["sd"]).all()
    assert (table["sd"] / vb["sd"]).between(0.75, 1.35).all()


def test_directions_that_no_row_saw_have_the_variance_of_the_prior():
    X, label = simulated_classes(20, 45, 3, seed=2)
    model = joint(learning_rate=0.5, random_state=0).fit(X, label)
    assert model.posterior_.basis is not None
    new = np.random.default_rng(5).standard_normal((4, 45))
    f, V = model._fitted.moments(new)
    drawn = model.sample(new, 20000)
    for row in range(4):
        np.testing.assert_allclose(drawn[row].mean(axis=0), f[row], atol=0.05 * np.sqrt(V[row].max()))
        np.testing.assert_allclose(np.cov(drawn[row].T), V[row], atol=0.06 * V[row].max())
    sd = model.summary()["sd"].unstack("class").loc[[f"x{j}" for j in range(45)]].T.to_numpy()
    drawn = model.to_arviz(draws=8000)["posterior"]["coef"].to_numpy()[0]
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1)
    # the whole space and the space of the rows are one model
    plain = joint(Ridge(scale=0.3), learning_rate=0.5, solver="cholesky", tol=1e-12).fit(X, label)
    dual = joint(Ridge(scale=0.3), learning_rate=0.5, tol=1e-12).fit(X, label)
    np.testing.assert_allclose(dual.coef_, plain.coef_, atol=1e-7)
    np.testing.assert_allclose(dual._fitted.moments(new)[1], plain._fitted.moments(new)[1], atol=1e-6)
    np.testing.assert_allclose(dual.summary()["sd"], plain.summary()["sd"], atol=1e-6)


def test_leave_one_out_probabilities_are_those_of_refits():
    X, y = IRIS
    settings = {"learning_rate": 0.25}
    model = joint(**settings).fit(X, y)
    p = model.loo_probability_
    assert model.loo_.score == pytest.approx(-np.log(p[np.arange(150), y]).mean(), rel=1e-10)
    assert model.loo_.error == pytest.approx((p.argmax(axis=1) != y).mean())
    rows = np.flatnonzero(p.max(axis=1) < 0.9)
    refit = np.empty((len(rows), 3))
    for k, row in enumerate(rows):
        rest = np.arange(150) != row
        refit[k] = joint(**settings).fit(X[rest], y[rest]).predict_proba(X[[row]])[0]
    # a refit also has a link of its own, which leave-one-out keeps
    off = np.abs(p[rows] - refit).mean()
    assert off < 0.5 * np.abs(model.predict_proba(X[rows]) - refit).mean()
    assert off < 0.04


@pytest.mark.parametrize("prior", ["ridge", SpikeSlab(inclusion=0.3)], ids=["ridge", "spike-slab"])
def test_probabilities_of_draws_on_separable_classes(prior):
    """Moments of such draws are far from Gaussian; the link must not turn the scores around."""
    rng = np.random.default_rng(1)
    y = np.arange(120) % 3
    X = rng.standard_normal((120, 30)) + 1.2 * np.eye(3)[y].repeat(10, axis=1)
    model = joint(prior, **{**DRAWS, "draws": 150}, learning_rate=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:36], y[:36])
    scores = X @ model.coef_.T + model.intercept_
    assert (model.predict(X[36:]) == scores[36:].argmax(axis=1)).mean() > 0.9
    assert model.score(X[36:], y[36:]) > 0.85
    p = model.predict_proba(X[36:])
    assert -np.log(p[np.arange(84), y[36:]]).mean() < 0.5


@pytest.mark.parametrize("prior", [Lasso(), GroupLasso()], ids=["lasso", "group"])
def test_pairs_with_the_own_class_add_no_directions_that_rows_see(prior):
    """With two classes they say what the other pairs do: at the same weight of rows the learned scale is the same."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 400))
    y, ones = (X[:, :2] + 0.3 * rng.standard_normal((24, 2))).argmax(axis=1), np.ones(24)
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    scales = []
    for rate in ({"learning_rate": 0.9}, {"learning_rate": "auto", "candidate": Candidate(False, 0.9 / (1.0 + OWN))}):
        recipe = Recipe(prior, Hinge(), "map", **rate)
        fit = fit_sum_to_zero(recipe, X, y, ones, ones, columns, None, 2, streams=Streams((0, 0)))
        scales.append(fit.fit.scale)
    assert scales[0] == pytest.approx(scales[1], rel=1e-6)
