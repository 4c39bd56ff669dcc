"""The worst-rival loss behind the estimator."""

import numpy as np
import pytest
import scipy.sparse as sp
from class_problems import convex_scores
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from stages import in_stages

from softmargin import BayesianSVC
from softmargin.engines.mode import crammer_singer
from softmargin.priors import Lasso, Ridge

SHORT = {"inference": "gibbs", "draws": 300, "warmup": 200, "chains": 2, "random_state": 0}
LONE = SHORT | {"draws": 500, "warmup": 100, "chains": 1}


def machine(**choices):
    return BayesianSVC(multi_class="crammer-singer", **({"inference": "map"} | choices))


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return train_test_split(X, y, train_size=0.7, stratify=y, random_state=0)


def standardized(X):
    return np.column_stack((np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)))


def test_mode_is_that_of_a_convex_solver(wine):
    X, _, y, _ = wine
    model = machine(prior=Ridge(scale=0.2), learning_rate=1.0).fit(X, y)
    precision = np.concatenate(([1e-8], np.full(X.shape[1], 25.0)))
    _, beta = convex_scores(standardized(X), y, np.ones(len(y)), precision)
    beta = beta - beta.mean(axis=0)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), beta[:, 1:], atol=1e-6)
    f = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(f, standardized(X) @ beta.T, atol=1e-5)
    assert model.gap_ < 1e-8
    assert model.converged_


def test_a_learned_scale_is_at_its_conditional_mode(wine):
    """InverseGamma(2, 1) on the variance: given d numbers with squares E, 1/s^2 is (1 + d/2)/(1 + E/2)."""
    X, _, y, _ = wine
    model = machine(learning_rate=1.0).fit(X, y)
    E, d = float(((model.coef_ * X.std(axis=0)) ** 2).sum()), 2 * X.shape[1]
    assert model.scale_**2 == pytest.approx((1.0 + 0.5 * E) / (1.0 + 0.5 * d), rel=1e-5)
    fixed = machine(prior=Ridge(scale=model.scale_), learning_rate=1.0).fit(X, y)
    np.testing.assert_allclose(fixed.coef_, model.coef_, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("choice", [{}, SHORT])
def test_predictions_and_tables(wine, choice):
    X, X_test, y, y_test = wine
    model = machine(**choice).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (model.predict(X_test) == model.classes_[p.argmax(axis=1)]).all()
    assert model.score(X_test, y_test) > 0.93
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-10)
    assert model.learning_rate_ == 0.25
    assert len(model.summary()) == 3 * 14
    np.testing.assert_array_equal(model.decision_function(X_test).argmax(axis=1), p.argmax(axis=1))
    for kind in ("pseudo", "sign"):
        other = model.set_params(probability=kind).predict_proba(X_test)
        np.testing.assert_allclose(other.sum(axis=1), 1.0, rtol=1e-12)
        assert (other.argmax(axis=1) == y_test).mean() > 0.9


def test_pseudo_probabilities_of_a_mode_are_the_normalised_pseudo_likelihood(wine):
    X, X_test, y, _ = wine
    model = machine(learning_rate=1.0, probability="pseudo").fit(X, y)
    f = X_test @ model.coef_.T + model.intercept_
    rival = [[max(1 - (r == j) + row[r] - row[j] for r in range(3)) for j in range(3)] for row in f]
    weight = np.exp(-2.0 * np.array(rival))
    np.testing.assert_allclose(model.predict_proba(X_test), weight / weight.sum(axis=1, keepdims=True), rtol=1e-8)


@pytest.mark.parametrize("inference", in_stages(["map", "gibbs"]))
def test_rows_left_out_against_refits(inference):
    """Log losses of refits without a row, under the link of the full fit, beside what the fit itself says."""
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    settings = {"prior": Ridge(scale=1.0), "learning_rate": 0.5, **(LONE if inference == "gibbs" else {})}
    model = machine(**settings).fit(X, y)
    link, at = model.loo_.link, np.arange(0, 50, 8 if inference == "gibbs" else 2)
    refitted, inside = np.zeros((len(at), 3)), np.zeros((len(at), 3))
    for number, i in enumerate(at):
        rest = np.arange(50) != i
        other = machine(**settings).fit(X[rest], y[rest])
        refitted[number] = link.probability(*other._fitted.moments(X[[i]]))[0]
        inside[number] = link.probability(*model._fitted.moments(X[[i]]))[0]

    def loss(p):
        return -np.log(p[np.arange(len(at)), y[at]])

    said = loss(model.loo_probability_[at])
    assert abs(said.mean() - loss(refitted).mean()) < 0.05
    off, optimism = np.abs(said - loss(refitted)).mean(), np.abs(loss(inside) - loss(refitted)).mean()
    assert off < max(0.5 * optimism, 0.03)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 8)
    X = rng.normal(size=(24, 200)) + 0.3 * rng.normal(size=(3, 200))[y]
    model = machine(prior=Ridge(scale=0.1), learning_rate=1.0).fit(X, y)
    direct = machine(prior=Ridge(scale=0.1), learning_rate=1.0, solver="cholesky").fit(X, y)
    np.testing.assert_allclose(model.coef_, direct.coef_, atol=1e-7)
    assert model.score(X, y) == 1.0
    drawn = machine(prior=Ridge(scale=0.1), **SHORT).fit(X, y)
    assert drawn.sample(X, 5).shape == (24, 5, 3)


def test_sparse_columns_weights_and_names():
    rng = np.random.default_rng(1)
    X = np.where(rng.random((60, 4)) < 0.5, rng.normal(size=(60, 4)), 0.0)
    y = (X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(60, 3))).argmax(axis=1)
    count = rng.integers(1, 4, 60)
    weighted = machine(prior=Ridge(scale=0.5)).fit(X, y, sample_weight=count)
    repeated = machine(prior=Ridge(scale=0.5)).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    sparse = machine(prior=Ridge(scale=0.5), standardize=True).fit(sp.csr_array(X), y, sample_weight=count)
    np.testing.assert_allclose(weighted.coef_, sparse.coef_, atol=1e-6)
    names = np.array(["c", "a", "b"])
    named = machine(prior=Ridge(scale=0.5)).fit(X, names[y], sample_weight=count)
    order = np.argsort(names)
    np.testing.assert_allclose(named.coef_, weighted.coef_[order], atol=1e-6)
    np.testing.assert_allclose(named.predict_proba(X), weighted.predict_proba(X)[:, order], atol=1e-5)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"inference": "vb"}, "has inference 'map' and 'gibbs', not 'vb'"),
        ({"prior": "lasso"}, "ridge prior alone; use multi_class='sum-to-zero'"),
        ({"prior": Lasso(scale=0.1)}, "ridge prior alone"),
        ({"likelihood": "logit"}, "is for likelihood='hinge'; use multi_class='pairwise'"),
        ({"costs": np.ones((3, 3))}, "has no costs; use multi_class='sum-to-zero'"),
        ({"engine_options": {"starts": [1.0]}}, "unknown engine_options"),
    ],
)
def test_what_it_does_not_do_is_said(wine, choice, sentence):
    X, _, y, _ = wine
    with pytest.raises(ValueError, match=sentence):
        machine(**choice).fit(X, y)


def test_missing_values_are_refused(wine):
    X, _, y, _ = wine
    X = X.copy()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="does not take missing values; use multi_class='pairwise'"):
        machine().fit(X, y)


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_repeated_rows_for_left_out_scores_too(seed):
    """They come from a point on the way to the mode, which must not depend on how rows are put together."""
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(120, 3)), rng.integers(1, 4, 120)
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=120), [-0.7, 0.7])
    again = np.repeat(np.arange(120), weight)
    one = BayesianSVC(multi_class="crammer-singer", inference="map").fit(X, y, sample_weight=weight)
    other = BayesianSVC(multi_class="crammer-singer", inference="map").fit(X[again], y[again])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)
    assert one.loo_.score == pytest.approx(other.loo_.score, rel=1e-6)
    assert one.loo_.max_kv == pytest.approx(other.loo_.max_kv, rel=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("powers", [3, 6])
def test_weights_that_are_very_unlike_have_a_mode_and_a_link_of_it(powers):
    X, y = load_wine(return_X_y=True)
    weight = 10.0 ** np.random.default_rng(0).uniform(-powers, powers, len(y))
    model = BayesianSVC(Ridge(1.0), multi_class="crammer-singer", inference="map").fit(X, y, sample_weight=weight)
    assert model.gap_ < 1e-6
    assert model.score(X, y, weight) > 0.99, "nearly all weight is on a few rows, which any link of the mode has right"


def test_a_mode_that_is_not_proven_says_so(monkeypatch):
    monkeypatch.setattr(crammer_singer, "_STEPS", 4)
    X, y = load_wine(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="certified to a relative gap of"):
        model = BayesianSVC(Ridge(1.0), multi_class="crammer-singer", inference="map").fit(X, y)
    assert model.gap_ > 1e-6
