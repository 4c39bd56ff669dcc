"""The formula as an estimator: clones keep it, and the response is never among the predictors."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import softmargin
from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, Formula, plots
from softmargin.exceptions import ModelWarning
from softmargin.priors import Ridge

pytest.importorskip("formulae")
QUICK = {"inference": "map", "learning_rate": 0.5, "prior": Ridge(scale=1.0)}


def table(n=60, seed=3):
    """Noise: the response has nothing to do with the other columns."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"y": rng.permutation(np.arange(n) % 2), "a": rng.normal(size=n), "b": rng.uniform(1, 3, n)})
    data["kind"] = rng.choice(["u", "v"], n)
    data["label"] = np.where(data["y"] == 1, "yes", "no")
    data["cost"] = np.exp(data["a"] + rng.normal(size=n))
    data["w"] = rng.integers(0, 3, n)
    return data


def folds():
    return StratifiedKFold(3)


def by_hand(data, y, columns, **options):
    return cross_val_score(BayesianSVC(**QUICK), data[columns], y, cv=folds(), **options)


def test_a_formula_does_not_see_the_response_in_cross_validation():
    data = table()
    fitted = softmargin.fit("y ~ a", data, **QUICK)
    for model in (fitted, clone(fitted), Formula("y ~ a", BayesianSVC(**QUICK))):
        scores = cross_val_score(model, data, data["y"], cv=folds(), scoring="neg_log_loss")
        np.testing.assert_allclose(scores, by_hand(data, data["y"], ["a"], scoring="neg_log_loss"), atol=1e-12)
        assert scores.mean() < -0.6  # noise cannot be predicted


def test_a_clone_keeps_the_formula_and_every_parameter():
    model = softmargin.fit("y ~ a + (1 | kind)", table(), **QUICK)
    again = clone(model)
    assert type(again) is Formula and not hasattr(again, "estimator_") and not hasattr(again, "coef_")
    assert again.get_params()["formula"] == "y ~ a + (1 | kind)"
    assert again.get_params()["estimator__inference"] == "map"
    assert again.estimator.random_effects is None  # what the formula says is not written into the parameters
    again.set_params(estimator__prior="lasso", formula="y ~ b")
    assert again.estimator.prior == "lasso" and again.formula == "y ~ b"


def test_searches_reach_the_formula_and_the_estimator():
    data = table()
    grid = {"formula": ["label ~ a", "label ~ poly(b, 2)"], "estimator__prior": [Ridge(0.01), Ridge(1.0)]}
    search = GridSearchCV(Formula("label ~ a", BayesianSVC(**QUICK)), grid, cv=folds(), scoring="neg_log_loss")
    search.fit(data, data["label"])
    one = search.cv_results_["params"].index({"formula": "label ~ a", "estimator__prior": Ridge(1.0)})
    want = by_hand(data, data["label"], ["a"], scoring="neg_log_loss").mean()
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][one], want, atol=1e-12)
    assert set(search.predict(data.drop(columns="label"))) <= {"no", "yes"}


def test_a_formula_ends_a_pipeline_of_frames():
    data = table()
    twice = FunctionTransformer(lambda frame: frame.assign(a=2.0 * frame["a"]))
    chain = make_pipeline(twice, Formula("y ~ a", BayesianSVC(**QUICK)))
    scores = cross_val_score(chain, data, data["y"], cv=folds(), scoring="neg_log_loss")
    want = by_hand(data.assign(a=2.0 * data["a"]), data["y"], ["a"], scoring="neg_log_loss")
    np.testing.assert_allclose(scores, want, atol=1e-12)


def test_the_kind_of_model_is_that_of_the_estimator():
    classifier, regressor = Formula("y ~ a", BayesianSVC()), Formula("y ~ a", BayesianSVR())
    assert is_classifier(classifier) and not is_regressor(classifier)
    assert is_regressor(regressor) and not is_classifier(regressor)
    assert get_tags(BayesianSVC()).target_tags.required and not get_tags(classifier).target_tags.required
    assert hasattr(classifier, "predict_proba") and not hasattr(classifier, "predict_interval")
    assert hasattr(regressor, "predict_interval") and not hasattr(regressor, "predict_proba")
    assert not hasattr(classifier, "transform") and hasattr(Formula("y ~ a", BayesianSVC("lasso")), "transform")


def test_given_responses_replace_the_column():
    data = table()
    other = 1 - data["y"]
    model = Formula("y ~ a + kind", BayesianSVC(**QUICK))
    swapped = clone(model).fit(data, other)
    np.testing.assert_array_equal(swapped.coef_, clone(model).fit(data.assign(y=other)).coef_)
    np.testing.assert_array_equal(swapped.coef_, clone(model).fit(data.drop(columns="y"), other.to_numpy()).coef_)
    for frame in (data, data.drop(columns="y")):
        np.testing.assert_array_equal(swapped.predict(frame), swapped.predict(data))
    named = Formula('label["no"] ~ a', BayesianSVC(**QUICK))
    np.testing.assert_array_equal(named.fit(data, data["label"] == "no").coef_, clone(named).fit(data).coef_)
    with pytest.raises(ValueError, match="is whether 'label' is 'no'; give y as True and False"):
        named.fit(data, data["label"])


def test_a_transformed_response_is_given_transformed():
    data = table()
    model = Formula("np.log(cost) ~ a", BayesianSVR(prior=Ridge(1.0), inference="map"))
    np.testing.assert_array_equal(clone(model).fit(data, np.log(data["cost"])).coef_, clone(model).fit(data).coef_)
    with pytest.raises(ValueError, match=r"y holds the column 'cost' and the response of .* is 'np.log\(cost\)'"):
        model.fit(data, data["cost"])
    plain = Formula("{cost} ~ a", model.estimator).fit(data, data["cost"])
    np.testing.assert_array_equal(plain.coef_, Formula("cost ~ a", model.estimator).fit(data).coef_)


def test_scores_take_the_response_from_the_frame_as_fits_do():
    data = table()
    sides = {"y": data["y"], "label": data["label"], 'label["no"]': data["label"] == "no", "{b > 2}": data["b"] > 2}
    for left, y in sides.items():
        model = Formula(f"{left} ~ a", BayesianSVC(**QUICK)).fit(data)
        hits = model.predict(data) == y
        assert model.score(data) == model.score(data.drop(columns="w"), y) == hits.mean()
        assert model.score(data, sample_weight="w") == pytest.approx(np.average(hits, weights=data["w"]), abs=1e-14)
        np.testing.assert_array_equal(
            cross_val_score(model, data, cv=StratifiedKFold(3).split(data, y)), cross_val_score(model, data, y, cv=3)
        )
        assert cross_val_score(model, data, cv=3).shape == (3,)
    lacking = data[data["label"] == "yes"]
    named = Formula('label["no"] ~ a', BayesianSVC(**QUICK)).fit(data)
    assert named.score(lacking) == (~named.predict(lacking)).mean()
    with pytest.raises(ValueError, match="the data have no column 'label'"):
        named.score(data.drop(columns="label"))
    with pytest.raises(ValueError, match="is whether 'label' is 'no'; give y as True and False"):
        named.score(data, data["label"])


def test_scores_of_a_transformed_response_are_those_of_its_values():
    data, late = table(), table(seed=4)
    estimator = BayesianSVR(prior=Ridge(1.0), inference="map")
    model = Formula("np.log(cost) ~ a", estimator).fit(data)
    assert model.score(late) == model.score(late, np.log(late["cost"]))
    with pytest.raises(ValueError, match=r"y holds the column 'cost' and the response of .* is 'np.log\(cost\)'"):
        model.score(late, late["cost"])
    centred = Formula("center(cost) ~ a", estimator).fit(data)
    mean = data["cost"].mean()  # of the training rows
    assert centred.score(late) == pytest.approx(centred.score(late, late["cost"] - mean), abs=1e-12)
    given = Formula("center(cost) ~ a", estimator).fit(data, data["cost"] - mean)
    with pytest.raises(ValueError, match="depends on the training rows, and the fit was given y instead; give y here"):
        given.score(late)


def test_all_that_the_estimator_has_is_there():
    data = table()
    model = softmargin.fit("y ~ a + kind + (1 | w)", data, learning_rate=0.5, random_state=0)
    inner, X = model.estimator_, model.formula_.frame(data)
    public = {
        name for name in dir(inner) if not name.startswith("_") and name not in dir(Formula) and hasattr(inner, name)
    }
    assert {"coef_", "loo_", "posterior_", "random_effects_", "summary", "get_support"} <= public
    for name in sorted(public):
        assert getattr(model, name) is getattr(inner, name) or type(getattr(model, name)) is type(getattr(inner, name))
    np.testing.assert_array_equal(model.sample(data, 3), inner.sample(X, 3))
    np.testing.assert_array_equal(model.decision_function(data, return_std=True), inner.decision_function(X, True))
    assert model.score(data, data["y"]) == inner.score(X, data["y"])
    assert model.prior == "ridge" and list(model.feature_names_in_) == ["a", "kind[v]"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(data), model.predict_proba(data))
    pytest.importorskip("matplotlib")
    plots.coefficients(model)
    plots.probabilities(model, data, data["y"])


def test_weights_are_an_array_or_a_column():
    data = table()
    model = Formula("y ~ a", BayesianSVC(**QUICK))
    named = clone(model).fit(data, sample_weight="w")
    np.testing.assert_array_equal(named.coef_, clone(model).fit(data, sample_weight=data["w"]).coef_)
    np.testing.assert_array_equal(named.coef_, softmargin.fit("y ~ a", data, sample_weight="w", **QUICK).coef_)
    repeated = BayesianSVC(**QUICK).fit(data.loc[data.index.repeat(data["w"]), ["a"]], data["y"].repeat(data["w"]))
    np.testing.assert_allclose(named.coef_, repeated.coef_, atol=1e-8)
    with pytest.raises(ValueError, match="no column 'nowhere'"):
        model.fit(data, sample_weight="nowhere")


def test_what_is_said_about_the_estimator():
    data = table()
    for wrong in (BayesianSVC, BayesianKernelClassifier()):
        with pytest.raises(ValueError, match="estimator must be a BayesianSVC or a BayesianSVR"):
            Formula("y ~ a", wrong).fit(data)
    with pytest.raises(ValueError, match=r"random_effects is what the formula says; .* write '\(1 \| g\)'"):
        Formula("y ~ a", BayesianSVC(random_effects="kind")).fit(data)
    with pytest.raises(ValueError, match="fit_intercept is what the formula says"):
        Formula("y ~ a", BayesianSVC(fit_intercept=False)).fit(data)
    model = Formula("y ~ a", BayesianSVC(**QUICK))
    with pytest.raises(NotFittedError):
        model.predict(data)
    with pytest.raises(AttributeError, match="no attribute 'coef_'; fit it first"):
        _ = model.coef_
    before = model.fit(data).coef_
    with pytest.raises(ValueError, match="no column 'a'"):
        model.fit(data.drop(columns="a"))
    np.testing.assert_array_equal(model.coef_, before)  # a fit that fails leaves the model as it was


def test_frames_of_polars_are_those_of_pandas():
    polars = pytest.importorskip("polars")
    data = table()
    data.loc[:4, "a"] = np.nan
    size = polars.Series("size", ["small", "large"] * 30, dtype=polars.Enum(["small", "large"]))
    columns = {name: column.tolist() for name, column in data.drop(columns="a").items()}
    frame = polars.DataFrame({**columns, "a": [None] * 5 + data["a"].tolist()[5:], "size": size})
    data["size"] = pd.Categorical(["small", "large"] * 30, ["small", "large"])
    text = "label ~ a * kind + np.log(b) + size + (1 | w)"
    one, other = (softmargin.fit(text, rows, learning_rate=0.5) for rows in (data, frame))
    assert list(other.summary().index) == list(one.summary().index) and "size[large]" in other.summary().index
    np.testing.assert_array_equal(other.coef_, one.coef_)
    np.testing.assert_array_equal(other.predict_proba(frame.drop("label")), one.predict_proba(data))
    model = Formula("label ~ b + kind", BayesianSVC(**QUICK))
    found = [
        cross_val_predict(model, rows, rows["label"], cv=folds(), method="predict_proba") for rows in (data, frame)
    ]
    np.testing.assert_array_equal(*found)


def test_warnings_of_a_formula_point_to_the_line_that_fits_it():
    with pytest.warns(ModelWarning) as caught:
        softmargin.fit("y ~ a + b", table())
    assert [each.filename for each in caught] == [__file__]
