"""Labels of groups and names of columns: their types, arrays and sparse X, tables, and what is said about bad ones."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from softmargin import BayesianSVC, RandomEffect, Smooth
from softmargin.exceptions import DataWarning


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(1, 7, n), "z": rng.gamma(2.0, size=n)})
    y = np.where(X["x"] + rng.normal(size=8)[X["g"]] + rng.logistic(size=n) > 0.0, "yes", "no")
    return X, y


def model(effects="g", **options):
    return BayesianSVC(random_effects=effects, learning_rate=0.5, **options)


@pytest.mark.parametrize("kind", [float, "float32", "Int64", "Float64", "category", object, "int8"])
def test_labels_that_are_equal_are_the_same_group(kind):
    X, y = rows()
    fitted = model().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = fitted.predict_proba(X.assign(g=X["g"].astype(kind)))
        again = model().fit(X.assign(g=X["g"].astype(kind)), y).predict_proba(X)
    np.testing.assert_array_equal(p, fitted.predict_proba(X))
    np.testing.assert_allclose(again, p, rtol=1e-12)


@pytest.mark.parametrize("kind", [str, "string", "padded"])
def test_text_is_no_number(kind):
    X, y = rows()
    text = X.assign(g="0" + X["g"].astype(str)) if kind == "padded" else X.assign(g=X["g"].astype(kind))
    for one, other in ((X, text), (text, X)):
        fitted = model().fit(one, y)
        for method in (fitted.predict, fitted.predict_proba, fitted.sample):
            with pytest.raises(ValueError, match=r"the groups 'g' have the label .* same type as in the fit\."):
                method(other)
    alone = BayesianSVC(learning_rate=0.5).fit(X[["x"]], y, groups=X["g"])
    with pytest.raises(ValueError, match=r"the groups 'groups' have the label '[1-6]' where the fit had [1-6];"):
        alone.predict(X[["x"]], groups=X["g"].astype(str))


def test_nested_labels_are_compared_part_by_part():
    X, y = rows()
    X["ward"] = np.resize(["a", "b"], len(X))
    fitted = model([RandomEffect(["ward", "g"])]).fit(X, y)
    with pytest.raises(ValueError, match=r"label \('a', '[1-6]'\) where the fit had \('a', [1-6]\)"):
        fitted.predict(X.assign(g=X["g"].astype(str)))
    table = fitted.random_effects_["ward:g"]
    f = X[["x", "z"]].to_numpy() @ fitted.coef_[0] + fitted.intercept_[0] + fitted.offset_
    own = table["mean"].loc[list(zip(X["ward"], X["g"], strict=True))].to_numpy()
    np.testing.assert_allclose(fitted.decision_function(X.assign(g=X["g"].astype(float))), f + own, rtol=1e-9)


def test_new_groups_of_another_type_are_noted_once_all_are_new():
    X, y = rows()
    fitted = model().fit(X, y)
    with pytest.warns(DataWarning, match=r"all groups 'g' are new, .* another type \('new'\) than in the fit \(1\)"):
        p = fitted.predict_proba(X.assign(g="new"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(fitted.predict_proba(X.assign(g=99)), p)
        np.testing.assert_array_equal(fitted.predict_proba(X.assign(g=None)), p)
        fitted.predict_proba(X.assign(g=[1, *["new"] * 119]))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "sample"])
def test_rows_without_the_groups_of_the_fit_are_noted_once_per_call(method):
    X, y = rows()
    fitted, columns = model(None).fit(X[["x", "z"]], y, groups=X["g"]), X[["x", "z"]]
    with pytest.warns(
        DataWarning, match=r"fitted with groups and none came with these 120 row\(s\), .* pass groups="
    ) as notes:
        getattr(fitted, method)(columns)
    assert len(notes) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(fitted, method)(columns, groups=X["g"])
        getattr(fitted, method)(columns.assign(groups=X["g"]))


@pytest.mark.parametrize("effects", [1, np.int64(1), [1], (1,), np.array([1]), RandomEffect(1)])
def test_columns_of_an_array_are_named_by_their_positions(effects):
    X, y = rows()
    fitted = model(effects).fit(X.to_numpy(), y)
    assert fitted.summary().index.tolist() == ["Intercept", "x0", "x2"]
    named = model().fit(X, y)
    np.testing.assert_allclose(fitted.predict_proba(X.to_numpy()), named.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(fitted.summary(), named.summary(), rtol=1e-12)
    holes = X.to_numpy()
    holes[::4, 2] = np.nan
    assert set(model(effects).fit(holes, y).imputed_["feature"]) == {"x2"}
    plain = model(effects, missing="indicator").fit(holes, y)
    assert plain.summary().index.tolist() == ["Intercept", "x0", "x2", "missing(x2)"]
    with pytest.warns(UserWarning, match="coefficient 0: x2"):
        model(effects).fit(np.where([False, False, True], 1.0, X.to_numpy()), y)


def test_frames_with_numbers_for_names_show_these():
    X, y = rows()
    fitted = model(1).fit(X.set_axis([0, 1, 2], axis=1), y)
    assert fitted.summary().index.tolist() == ["Intercept", "x0", "x2"]
    np.testing.assert_allclose(
        fitted.predict_proba(X.set_axis([0, 1, 2], axis=1)[[1, 0, 2]]), model().fit(X, y).predict_proba(X), rtol=1e-12
    )


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_sparse_columns_beside_groups(form):
    X, y = rows()
    X["x"] = X["x"].where(X["x"] > 0.0, 0.0)
    inside = sp.csr_array(X.to_numpy()).asformat(form)
    dense = model(1).set_params(standardize=True).fit(X.to_numpy(), y)
    fitted = model(1).set_params(standardize=True).fit(inside, y)
    np.testing.assert_allclose(fitted.predict_proba(inside), dense.predict_proba(X.to_numpy()), atol=1e-6)
    assert fitted.summary().index.tolist() == ["Intercept", "x0", "x2"]
    beside = sp.csr_array(X[["x", "z"]].to_numpy()).asformat(form)
    alone = BayesianSVC(learning_rate=0.5, standardize=True).fit(beside, y, groups=X["g"])
    np.testing.assert_allclose(alone.predict_proba(beside, groups=X["g"]), dense.predict_proba(X.to_numpy()), atol=1e-6)


def test_tables_have_a_level_for_every_column():
    X, y = rows()
    X["ward"] = np.resize(["a", "b"], len(X))
    single = model(["g"]).fit(X.drop(columns="ward"), y).random_effects_["g"]
    assert single.index.name == "g" and single.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert list(single.columns) == ["mean", "sd", "lower", "upper"]
    nested = model([RandomEffect(["ward", "g"])]).fit(X, y).random_effects_["ward:g"]
    assert nested.index.names == ["ward", "g"] and nested.index[0] == ("a", 1)
    assert len(nested.loc["a"]) == X.loc[X["ward"] == "a", "g"].nunique()
    slopes = model([RandomEffect(["ward", "g"], slopes=["x"])]).fit(X, y).random_effects_["ward:g"]
    assert slopes.index.names == ["ward", "g", "effect"]
    assert slopes.loc[("a", 1)].index.tolist() == ["Intercept", "x"]


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_a_grouping_column_may_be_called_scale(inference):
    X, y = rows()
    options = {"inference": inference, "draws": 40, "warmup": 20, "chains": 1, "random_state": 0}
    named = X.rename(columns={"g": "scale"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        one, other = model("scale", **options).fit(named, y), model("g", **options).fit(X, y)
    np.testing.assert_array_equal(one.variance_components_["sd"], other.variance_components_["sd"])
    assert "sd_scale" in one.to_arviz().posterior and one.scale_ == other.scale_


@pytest.mark.parametrize(
    ("effects", "words"),
    [
        ({"g"}, r"random_effects must be the name or position of a grouping column.*got \{'g'\}"),
        (1.0, r"random_effects must be the name .*got 1\.0"),
        (True, "RandomEffect group must be names or positions of columns of X; got True"),
        ([None], "names or positions of columns of X; got None"),
        (7, r"grouping column 7 .*not among the columns of X \(\['x', 'g', 'z'\]\); give its name"),
        ("ward", r"grouping column 'ward' .*\(\['x', 'g', 'z'\]\); add it to X, or fit with one of these"),
        (RandomEffect("g", slopes=["g"]), r"column 'g' of .* 'g' is not among the predictors \['x', 'z'\]"),
    ],
)  # fmt: skip
def test_effects_that_do_not_go(effects, words):
    X, y = rows(n=40)
    with pytest.raises(ValueError, match=words):
        model(effects).fit(X, y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomEffect("g", slopes=np.zeros(40)), "slopes must be names .*got an array of values"),
        (lambda: RandomEffect("g", slopes=None), "slopes must be names or positions of columns of X; got None"),
        (lambda: RandomEffect(np.array([1, 2, 1])), "each of them once; got 1 more than once"),
        (lambda: RandomEffect("g", slopes=["x", "x"]), "each of them once; got 'x' more than once"),
        (lambda: RandomEffect("g", covariance=np.eye(2)), r"covariance must be one of \('full', 'diagonal'\)"),
        (lambda: RandomEffect("g", scale=True), "scale must be 'learn' or a positive number"),
        (lambda: RandomEffect("g", scale=np.inf), "scale must be 'learn' or a positive number"),
        (lambda: Smooth(["x", "z"]), "Smooth takes one column"),
        (lambda: Smooth("x", knots=True), "knots must be a positive integer"),
    ],
)
def test_specifications_that_do_not_go(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_names_may_come_as_arrays():
    effect = RandomEffect(np.array(["g"]), slopes=pd.Index(["x", "z"]), scale=np.float32(2.0))
    assert effect.group == ("g",) and effect.slopes == ("x", "z")
    assert RandomEffect(np.int64(3)).group == (3,) and type(RandomEffect(np.int64(3)).group[0]) is int
    assert Smooth(np.int64(2), knots=np.int64(5)).name == "s(2)"


def test_labels_that_do_not_go():
    X, y = rows(n=40)
    with pytest.raises(ValueError, match="several columns 'g'"):
        model().fit(pd.concat([X, X[["g"]]], axis=1), y)
    with pytest.raises(ValueError, match="the groups 'g' hold lists; make numbers or text of them"):
        model().fit(X.assign(g=[[k] for k in X["g"]]), y)
    with pytest.raises(ValueError, match="called 'Intercept'"):
        model(RandomEffect("g", ["Intercept"]), fit_intercept=False).fit(X.rename(columns={"x": "Intercept"}), y)
    with pytest.raises(ValueError, match=r"grouping column 0 .*\(none\)"):
        model(0).fit(X["x"].to_numpy(), y)
    with pytest.raises(ValueError, match="'g' names a column, and only X in Parquet files"):
        BayesianSVC().fit(X, y, groups="g")
    fitted = model().fit(X, y)
    with pytest.raises(ValueError, match=r"'g' .*\(\['x', 'z'\]\); add it to X"):
        fitted.predict(X[["x", "z"]])
    with pytest.raises(ValueError, match=r"'g' .*\(0 to 2\); pass a data frame, or give its position"):
        fitted.predict(X.to_numpy())
    array = model(2).fit(X[["x", "z", "g"]].to_numpy(), y)
    with pytest.raises(ValueError, match=r"grouping column 2 .*\(0 to 1\); add it to X"):
        array.predict(X[["x", "z"]].to_numpy())
