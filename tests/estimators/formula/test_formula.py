"""Fits by formula against the same fits with columns and effects made by hand."""

from __future__ import annotations

import doctest
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import softmargin
from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, Formula, RandomEffect, Smooth
from softmargin.estimators.formula import formula

pytest.importorskip("formulae")


def patients(n=160, seed=0):
    """Visits of 20 patients in 4 clinics, under two treatments."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, 20, n)
    data = pd.DataFrame(
        {
            "patient": [f"p{k:02d}" for k in patient],
            "clinic": np.array(list("wxyz"))[patient % 4],
            "treatment": rng.choice(["new", "old"], n),
            "time": rng.uniform(0.0, 10.0, n),
            "age": rng.normal(50.0, 10.0, n),
        }
    )
    level, slope = rng.normal(0.0, 1.5, 20), rng.normal(0.0, 0.3, 20)
    f = level[patient] + (slope[patient] - 0.2) * (data["time"] - 5.0) * (data["treatment"] == "new")
    data["state"] = np.where(f + 2.0 * np.sin(data["age"] / 5.0) + rng.logistic(size=n) > 0, "sick", "healthy")
    return data


def by_hand(data):
    """The columns of time * treatment."""
    old = (data["treatment"] == "old").astype(float)
    return pd.DataFrame(
        {"time": data["time"], "treatment[old]": old, "time:treatment[old]": data["time"] * old}, index=data.index
    )


def same(model, other, data, X, tolerance=1e-10):
    """Whether two fits agree: coefficients, tables, and predictions of some rows."""
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.intercept_, other.intercept_, rtol=0, atol=tolerance)
    pd.testing.assert_frame_equal(model.summary(), other.summary(), rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.predict_proba(data), other.predict_proba(X), rtol=0, atol=tolerance)
    for got, want in zip(
        model.decision_function(data, return_std=True), other.decision_function(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.sample(data, 5), other.sample(X, 5), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(model.predict(data), other.predict(X))


@pytest.mark.parametrize(
    ("term", "effects"),
    [
        ("", None),
        ("+ (1 | patient)", [RandomEffect("patient")]),
        ("+ (time | patient)", [RandomEffect("patient", ["time"])]),
        ("+ (time || patient)", [RandomEffect("patient", ["time"], "diagonal")]),
        ("+ (1 | patient) + (0 + time | patient)", [RandomEffect("patient", ["time"], "diagonal")]),
        ("+ (0 + time | patient)", [RandomEffect("patient", ["time"], intercept=False)]),
        ("+ (1 | clinic:treatment)", [RandomEffect(["clinic", "treatment"])]),
        ("+ (1 | clinic/patient)", [RandomEffect("clinic"), RandomEffect(["clinic", "patient"])]),
        ("+ (treatment | patient)", [RandomEffect("patient", ["treatment[old]"])]),
    ],
)
def test_the_fit_is_that_of_columns_and_effects_by_hand(term, effects):
    data = patients()
    model = softmargin.fit(f"state ~ time * treatment {term}", data, learning_rate=0.5, random_state=0)
    assert isinstance(model, Formula) and isinstance(model.estimator_, BayesianSVC)
    X = by_hand(data)
    keys = [key for effect in effects or [] for key in effect.group]
    X[list(dict.fromkeys(keys))] = data[list(dict.fromkeys(keys))]
    other = BayesianSVC(random_effects=effects, learning_rate=0.5, random_state=0).fit(X, data["state"])
    new = data.iloc[[7]].assign(patient="p99")
    X_new = X.iloc[[7]].assign(patient="p99") if "patient" in X else X.iloc[[7]]
    for rows, columns in ((data[:20], X[:20]), (data.iloc[[3]], X.iloc[[3]]), (new, X_new)):
        same(model, other, rows, columns)
    assert list(model.summary().index) == ["Intercept", "time", "treatment[old]", "time:treatment[old]"]
    if effects:
        pd.testing.assert_frame_equal(model.variance_components_, other.variance_components_, rtol=0, atol=1e-10)
        assert list(model.random_effects_) == [effect.name for effect in effects]
        for name, table in other.random_effects_.items():
            pd.testing.assert_frame_equal(model.random_effects_[name], table, rtol=0, atol=1e-10)


def test_a_smooth_function_is_that_of_its_column():
    data = patients()
    model = softmargin.fit("state ~ s(age, knots=6) + time", data, learning_rate=0.5, random_state=0)
    X = data[["age", "time"]]
    other = BayesianSVC(random_effects=Smooth("age", knots=6), learning_rate=0.5, random_state=0)
    same(model, other.fit(X, data["state"]), data[:9], X[:9])
    assert list(model.summary().index) == ["Intercept", "age", "time"]


def test_groups_alone_make_a_model():
    data = patients()
    model = softmargin.fit("state ~ 1 + (1 | patient)", data, learning_rate=0.5, random_state=0)
    assert list(model.summary().index) == ["Intercept"]
    assert model.coef_.shape == (1, 0)
    with pytest.warns(UserWarning, match="constant column"):
        other = BayesianSVC(learning_rate=0.5, random_state=0).fit(
            np.zeros((len(data), 1)), data["state"], groups=data["patient"]
        )
    np.testing.assert_allclose(
        model.predict_proba(data), other.predict_proba(np.zeros((len(data), 1)), groups=data["patient"]), atol=1e-10
    )


def test_a_column_can_be_predictor_and_group():
    data = patients().assign(year=np.arange(160) % 6)
    model = softmargin.fit("state ~ year + (1 | year)", data, learning_rate=0.5)
    assert list(model.random_effects_) == ["year (group)"]
    X = data[["year"]].assign(group=data["year"])
    other = BayesianSVC(random_effects="group", learning_rate=0.5).fit(X, data["state"])
    np.testing.assert_allclose(model.predict_proba(data), other.predict_proba(X), atol=1e-10)


def test_zero_leaves_the_intercept_out():
    data = patients()
    model = softmargin.fit("state ~ 0 + time + age", data, learning_rate=0.5, random_state=0)
    other = BayesianSVC(fit_intercept=False, learning_rate=0.5, random_state=0)
    same(model, other.fit(data[["time", "age"]], data["state"]), data, data[["time", "age"]])
    assert list(model.summary().index) == ["time", "age"]


def test_prior_weights_and_options_reach_the_estimator():
    data, weight = patients(), np.arange(160) % 3
    options = {"prior": "lasso", "inference": "map", "learning_rate": 1.0, "class_weight": "balanced"}
    model = softmargin.fit("state ~ time * treatment", data, sample_weight=weight, **options)
    other = BayesianSVC(**options).fit(by_hand(data), data["state"], sample_weight=weight)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-10)
    assert model.prior == "lasso" and model.inference == "map"


def test_missing_numbers_reach_the_model():
    data = patients()
    data.loc[data.index % 5 == 0, "time"] = np.nan
    model = softmargin.fit("state ~ time * treatment + age + (1 | patient)", data, learning_rate=0.5)
    X = model.formula_.frame(data)
    gone, new = data["time"].isna(), data["treatment"] == "new"
    assert X["time"].isna().equals(gone)
    np.testing.assert_array_equal(X["time:treatment[old]"].isna(), gone & ~new)  # zero times unknown is zero
    assert (X.loc[new, "time:treatment[old]"] == 0).all()
    assert set(model.imputed_["feature"]) == {"time", "time:treatment[old]"}
    other = BayesianSVC(random_effects="patient", learning_rate=0.5).fit(X, data["state"])
    np.testing.assert_allclose(model.predict_proba(data), other.predict_proba(X), atol=1e-10)
    assert np.isfinite(model.predict_proba(data.assign(time=np.nan))).all()
    compared = softmargin.fit("state ~ {time > 5} + age", data, learning_rate=0.5)
    assert compared.formula_.frame(data).iloc[:, 0].isna().equals(gone)  # not False


def test_a_row_without_a_group_is_of_a_new_one():
    data = patients()
    model = softmargin.fit("state ~ time + (1 | patient)", data, learning_rate=0.5)
    rows = data[:4]
    new = model.predict_proba(rows.assign(patient="somebody"))
    for nobody in (None, np.nan, pd.NA):
        np.testing.assert_allclose(model.predict_proba(rows.assign(patient=nobody)), new, atol=1e-12)
    assert np.abs(model.predict_proba(rows) - new).max() > 0.01


@pytest.mark.parametrize(
    ("left", "classes"),
    [
        ("state", ["healthy", "sick"]),
        ('state["sick"]', [False, True]),
        ('state["healthy"]', [False, True]),
        ("kind", ["healthy", "sick"]),
        ("flag", [False, True]),
        ("code", [0, 1]),
        ('code["0"]', [False, True]),
        ("nullable", [0, 1]),
        ("maybe", [False, True]),
        ("{time > 5}", [False, True]),
        ("C(clinic)", ["w", "x", "y", "z"]),
        ("C(many)", [0, 1, 2, 3]),
    ],
)
def test_responses(left, classes):
    data = patients()
    sick = data["state"] == "sick"
    data["kind"], data["flag"], data["code"] = data["state"].astype("category"), sick, sick.astype(int)
    data["nullable"], data["maybe"] = data["code"].astype("Int64"), sick.astype("boolean")
    data["many"] = data["clinic"].map({"w": 0, "x": 1, "y": 2, "z": 3})
    model = softmargin.fit(f"{left} ~ age + treatment", data, learning_rate=0.5)
    assert model.classes_.tolist() == classes
    X = data[["age"]].assign(old=(data["treatment"] == "old").astype(float))
    plain = {"{time > 5}": data["time"] > 5, "C(clinic)": data["clinic"], "C(many)": data["clinic"]}
    other = BayesianSVC(learning_rate=0.5).fit(X, plain.get(left, sick))
    p = other.predict_proba(X)
    if left in ('state["healthy"]', 'code["0"]'):  # the other class is the positive one
        p = p[:, ::-1]
    np.testing.assert_allclose(model.predict_proba(data), p, atol=1e-6)
    assert set(model.predict(data).tolist()) <= set(classes)


def test_regression_is_asked_for():
    data = patients().assign(weight=lambda d: d["age"] + 3.0 * d["time"])
    with pytest.raises(ValueError, match="160 different numbers; say with estimator=BayesianSVR"):
        softmargin.fit("weight ~ time", data)
    model = softmargin.fit("weight ~ time + treatment", data, estimator=BayesianSVR)
    X = by_hand(data)[["time", "treatment[old]"]]
    other = BayesianSVR().fit(X, data["weight"])
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-10)
    np.testing.assert_allclose(model.predict(data.iloc[[4]]), other.predict(X.iloc[[4]]), atol=1e-10)
    np.testing.assert_allclose(model.predict_interval(data[:3]), other.predict_interval(X[:3]), atol=1e-10)
    grouped = softmargin.fit("weight ~ time + (1 | patient)", data, estimator=BayesianSVR)
    other = BayesianSVR(random_effects=["patient"]).fit(data[["time", "patient"]], data["weight"])
    np.testing.assert_allclose(grouped.predict(data), other.predict(data[["time", "patient"]]), atol=1e-10)
    assert list(grouped.random_effects_) == ["patient"]
    with pytest.raises(ValueError, match="BayesianSVR needs numbers"):
        softmargin.fit("state ~ time", data, estimator=BayesianSVR)
    with pytest.raises(ValueError, match="must be the class BayesianSVC or BayesianSVR"):
        softmargin.fit("state ~ time", data, estimator=BayesianKernelClassifier)


def test_a_model_pickles_and_holds_no_training_rows():
    data = patients()
    text = "state ~ np.log(time) + C(treatment) + scale(age) + (1 | patient)"
    model = softmargin.fit(text, data, learning_rate=0.5)
    assert str(model.formula_) == text
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(data), model.predict_proba(data))
    assert repr(again.formula_) == f"Terms({text!r})"
    large = softmargin.fit(text, pd.concat([data] * 4), inference="map", learning_rate=0.5)
    assert len(pickle.dumps(large.formula_)) < len(pickle.dumps(model.formula_)) + 100  # no training rows inside


def test_formulae_has_to_be_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulae", None)
    with pytest.raises(ImportError, match=r"pip install \"softmargin\[formula\]\""):
        softmargin.fit("state ~ time", patients())


def test_toenail(data_dir):
    """The random intercept of Luts and Ormerod (2014), section 4.3."""
    data = pd.read_csv(data_dir / "toenail.csv.gz")
    model = softmargin.fit("y ~ time * treatment + (1 | patient)", data, learning_rate=0.5)
    later = data["treatment"].eq("terbinafine").astype(float)
    X = pd.DataFrame({"time": data["time"], "t": later, "tt": data["time"] * later, "patient": data["patient"]})
    other = BayesianSVC(random_effects="patient", learning_rate=0.5).fit(X, data["y"])
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(data), other.predict_proba(X), atol=1e-10)
    table = model.summary()
    assert table.index[-1] == "time:treatment[terbinafine]"
    assert table.loc["time", "upper"] < 0 and table.loc["time:treatment[terbinafine]", "mean"] < 0
    assert len(model.random_effects_["patient"]) == 294
    assert model.variance_components_.loc[("patient", "Intercept"), "lower"] > 1.0


def test_the_example_runs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.testmod(formula)
    assert result.attempted > 0 and result.failed == 0
