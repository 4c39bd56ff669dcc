"""Missing predictors through the estimator."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from softmargin import BayesianSVC, BayesianSVR


def holes(n=200, share=0.25, seed=0):
    """Correlated columns, the label from two of them, a quarter of the cells gone."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    X = 0.8 * common + 0.6 * rng.normal(size=(n, 5))
    y = np.where(X[:, 0] + X[:, 1] + 0.7 * rng.normal(size=n) > 0, "yes", "no")
    return np.where(rng.random(X.shape) < share, np.nan, 3.0 * X + 10.0), y, 3.0 * X + 10.0


@pytest.mark.parametrize("inference", ["vb", "map", "meanfield", "gibbs"])
def test_every_inference_beats_chance_and_fills_in(inference):
    X, y, full = holes()
    model = BayesianSVC(inference=inference, draws=200, warmup=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:150], y[:150])
    assert model.score(X[150:], y[150:]) > 0.75
    cells = model.imputed_
    gone = np.argwhere(np.isnan(X[:150]))
    np.testing.assert_array_equal(cells["row"], gone[:, 0])
    truth = full[gone[:, 0], gone[:, 1]]
    off = np.abs(cells["mean"] - truth) / cells["sd"]
    assert 0.5 < off.median() < 0.9  # 0.67 where mean and sd are right
    assert np.abs(cells["mean"] - truth).mean() < 0.8 * np.abs(truth - full.mean()).mean()


def test_no_nan_is_the_same_model_as_before():
    _, y, full = holes()
    plain = BayesianSVC().fit(full, y)
    assert not hasattr(plain, "imputed_")
    one = full.copy()
    one[0, 4] = np.nan  # a single cell changes little
    near = BayesianSVC().fit(one, y)
    np.testing.assert_allclose(near.predict_proba(full), plain.predict_proba(full), atol=0.03)
    assert len(near.imputed_) == 1


@pytest.mark.parametrize("prior", ["lasso", "horseshoe", "laplace-zero", "spike-slab"])
def test_other_priors_select_with_missing_values(prior):
    X, y, _ = holes(300)
    inference = "gibbs" if prior == "spike-slab" else "vb"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSVC(prior, inference, draws=150, warmup=150, random_state=0, learning_rate=0.5).fit(X, y)
    size = np.abs(model.coef_[0])
    assert set(np.argsort(-size)[:2]) == {0, 1}
    if hasattr(model, "inclusion_"):
        assert model.inclusion_[:2].min() > 0.8


def test_rows_to_predict_with_holes():
    X, y, full = holes()
    model = BayesianSVC(random_state=0).fit(X, y)
    _, sd = model.decision_function(full[:20], return_std=True)
    gone = full[:20].copy()
    gone[:, 0] = np.nan
    g, spread = model.decision_function(gone, return_std=True)
    assert (spread > sd).all()  # what is not known widens the answer
    nothing = model.predict_proba(np.full((2, 5), np.nan))
    np.testing.assert_allclose(nothing[0], nothing[1])
    assert 0.2 < nothing[0, 1] < 0.8
    drawn = model.sample(gone, 4000)
    np.testing.assert_allclose(drawn.mean(axis=1) + model.offset_, g, atol=6.0 * spread.max() / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(axis=1), spread, rtol=0.1)


def test_names_units_order_and_pickle():
    X, y, _ = holes()
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = BayesianSVC().fit(frame, y)
    assert set(model.imputed_["feature"]) <= set("abcde")
    again = BayesianSVC().fit(frame[list("edcba")] * 1000.0, y)
    np.testing.assert_allclose(
        again.predict_proba(frame[list("edcba")] * 1000.0), model.predict_proba(frame), atol=1e-5
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(frame), model.predict_proba(frame))
    assert make_pipeline(StandardScaler(), BayesianSVC()).fit(X, y).score(X, y) > 0.75


def test_weights_of_zero_keep_positions():
    X, y, _ = holes()
    weight = np.ones(len(y))
    weight[:10] = 0.0
    model = BayesianSVC(learning_rate=0.5).fit(X, y, weight)
    assert model.imputed_["row"].min() >= 10
    assert np.isnan(model.loo_probability_[:10]).all()


def test_many_classes_by_pairs():
    X, y = load_iris(return_X_y=True)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.15, np.nan, X)
    model = BayesianSVC().fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.loo_.error < 0.1


def test_as_good_as_imputation_on_real_data():
    X, y = load_breast_cancer(return_X_y=True)
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    train, test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = BayesianSVC().fit(train, y_train)
    assert log_loss(y_test, model.predict_proba(test)) < 0.16
    assert abs(model.loo_.score - log_loss(y_test, model.predict_proba(test))) < 0.06


def test_what_cannot_be_is_said():
    X, y, full = holes()
    with pytest.raises(ValueError, match="has no observed value; drop it"):
        BayesianSVC().fit(np.column_stack((X, np.full(200, np.nan))), y)
    with pytest.raises(ValueError, match="does not take missing values"):
        BayesianSVC(inference="map", multi_class="crammer-singer").fit(X, np.arange(200) % 3)
    with pytest.raises(ValueError, match=r"contains NaN in columns? 0"):
        BayesianSVC().fit(full, y).predict(np.where(np.isnan(X), np.nan, X))
    with pytest.raises(ValueError, match="infinity"):
        BayesianSVC().fit(np.where(np.isnan(X), np.inf, X), y)
    with pytest.raises(ValueError, match="NaN"):
        BayesianSVC().fit(sp.csr_matrix(X), y)
    with pytest.raises(ValueError, match="NaN"):
        BayesianSVR().fit(sp.csr_matrix(X), full[:, 0])


def test_indicators_are_the_plain_way():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((150, 3)), columns=["a", "b", "c"])
    y = (X["a"] + 0.5 * rng.standard_normal(150) > 0).astype(int)
    gone = rng.random(150) < 0.3
    holes = X.assign(b=X["b"].where(~gone))
    model = BayesianSVC(missing="indicator").fit(holes, y)
    assert model.coef_.shape == (1, 4)
    assert model.summary().index.tolist() == ["Intercept", "a", "b", "c", "missing(b)"]
    filled = holes.fillna({"b": holes["b"].mean()}).assign(gone=gone.astype(float))
    by_hand = BayesianSVC().fit(filled, y)
    np.testing.assert_allclose(model.coef_, by_hand.coef_, rtol=1e-10)
    np.testing.assert_allclose(model.predict_proba(holes), by_hand.predict_proba(filled), rtol=1e-10)
    with pytest.raises(ValueError, match="column 0 of X has missing values and had none"):
        model.predict(X.assign(a=np.nan))
    complete = BayesianSVC(missing="indicator").fit(X, y)  # nothing missing: nothing added
    assert complete.coef_.shape == (1, 3)
    model.fit(X, y)  # a second fit forgets the first
    assert model.coef_.shape == (1, 3)
