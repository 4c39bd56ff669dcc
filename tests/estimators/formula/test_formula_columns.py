"""Columns that formulas make, and what is said about formulas and data that do not go."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import softmargin
from softmargin import Smooth
from softmargin.estimators.formula._terms import learned
from softmargin.estimators.formula._text import Bar, read

formulae = pytest.importorskip("formulae")


def table(n=40, seed=1):
    """Every kind of column that a formula may meet."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "y": rng.choice(["no", "yes"], n),
            "x": rng.normal(size=n),
            "z": rng.uniform(1.0, 2.0, n),
            "a": rng.choice(["p", "q", "r"], n),
            "b": pd.Categorical(rng.choice(["m", "f"], n)),
            "size": pd.Categorical(rng.choice(["low", "high"], n), categories=["low", "high"], ordered=True),
            "k": rng.integers(1, 4, n),
            "flag": rng.random(n) < 0.5,
            "g": rng.integers(0, 6, n),
            "my col": rng.normal(size=n),
            "when": pd.Timestamp("2024-02-01"),
        },
        index=np.arange(n) * 3 + 5,
    )
    data["objects"], data["count"] = data["flag"].astype(object), data["k"].astype("Int64")
    return data


def frame(right, data, new=None):
    return learned(f"y ~ {right}", data)[0].frame(data if new is None else new)


ORACLE = [
    "x + a", "x * a", "0 + a", "0 + a:b", "a * b", "x:a", "x*z + x:b", "I(x**2) + {x + z}", "np.log(z)", "C(k)",
    "center(x) + scale(z)", "C(size) + b", "T(a, ref='q')", "S(a)", "C(a, Sum):x", "flag * x", "`my col` * a",
    "bs(x, df=4)", "poly(x, 2)", "(x + z + a)**2", "(x + a) * b", "x - 1", "-1 + x + size", "a:b + x", "x + z - z",
]  # fmt: skip


@pytest.mark.parametrize("right", ORACLE)
def test_columns_are_those_of_formulae(right):
    data = table()
    want = (
        formulae.design_matrices(f"y ~ {right}", data).common.as_dataframe().drop(columns="Intercept", errors="ignore")
    )
    made = frame(right, data)
    assert list(made.columns) == list(want.columns)
    np.testing.assert_allclose(made.to_numpy(), want.to_numpy(float), rtol=0, atol=1e-12)
    assert made.index.equals(data.index)
    for row in range(6):  # a row alone has one level of each factor
        alone = frame(right, data, data.iloc[[row]].drop(columns="y"))
        np.testing.assert_allclose(alone.to_numpy(), made.iloc[[row]].to_numpy(), rtol=0, atol=1e-12)


def test_columns_by_hand():
    data = table()
    x = data["x"].to_numpy()
    is_ = {level: (data["a"] == level).to_numpy(float) for level in "pqr"}
    male = (data["b"] == "m").to_numpy(float)
    want = {
        "x": x, "a[q]": is_["q"], "a[r]": is_["r"], "b[m]": male, "x:a[q]": x * is_["q"], "x:a[r]": x * is_["r"],
        "a[q]:b[m]": is_["q"] * male, "a[r]:b[m]": is_["r"] * male,
    }  # fmt: skip
    pd.testing.assert_frame_equal(frame("x * a + a * b", data), pd.DataFrame(want, index=data.index)[
        ["x", "a[q]", "a[r]", "x:a[q]", "x:a[r]", "b[m]", "a[q]:b[m]", "a[r]:b[m]"]])  # fmt: skip
    nested = {"a[q]": is_["q"], "a[r]": is_["r"]} | {f"a[{level}]:x": is_[level] * x for level in "pqr"}
    pd.testing.assert_frame_equal(frame("a / x", data), pd.DataFrame(nested, index=data.index))
    chosen = pd.DataFrame({"I(a == 'p')": is_["p"]}, index=data.index)
    pd.testing.assert_frame_equal(frame("{a == 'p'}", data), chosen)
    kinds = {"objects": data["flag"], "count": data["k"], "size[high]": data["size"] == "high"}
    pd.testing.assert_frame_equal(frame("objects + count + size", data), pd.DataFrame(kinds).astype(float))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("wrap", ["{}", "C({})", "T({})"])
def test_categories_keep_their_order_and_the_first_that_occurs_is_the_baseline(ordered, wrap):
    data = table()
    a = pd.Categorical(data["a"], categories=["unused", "r", "p", "q"], ordered=ordered)
    name = wrap.format("a")
    made = frame(name, data.assign(a=a))
    assert list(made.columns) == [f"{name}[p]", f"{name}[q]"]
    for level in "pq":
        np.testing.assert_array_equal(made[f"{name}[{level}]"], (data["a"] == level).astype(float))
    later = data[:5].assign(a=data["a"][:5])  # text, or other categories, at predictions
    pd.testing.assert_frame_equal(frame(name, data.assign(a=a), later), made[:5])
    assert list(frame("0 + a", data.assign(a=a)).columns) == ["a[r]", "a[p]", "a[q]"]
    assert list(frame(name, data).columns) == [f"{name}[q]", f"{name}[r]"]  # text is sorted


@pytest.mark.parametrize("twice", ["C(C(k))", "C(T(k))", "I(C(k))", "C(I(k))"])
def test_a_box_in_a_box_holds_the_same_labels(twice):
    data = table()
    made, want = frame(twice, data), frame("C(k)", data)
    assert list(made.columns) == [name.replace("C(k)", twice) for name in want]
    np.testing.assert_array_equal(made, want)
    np.testing.assert_array_equal(frame(twice, data, data[:1]), want[:1])


def test_a_difference_may_have_one_of_its_columns_as_a_predictor():
    made, response = learned("{x - z} ~ x", table())
    assert made.names == ("x",)
    np.testing.assert_allclose(response.values, table()["x"] - table()["z"])


def test_transformations_remember_the_training_rows():
    data = table()
    new = data[:3].assign(x=[10.0, 20.0, 30.0])
    got = frame("center(x) + scale(z)", data, new)
    np.testing.assert_allclose(got["center(x)"], [10.0, 20.0, 30.0] - data["x"].mean(), atol=1e-12)
    np.testing.assert_allclose(got["scale(z)"], (data["z"][:3] - data["z"].mean()) / data["z"].std(ddof=0), atol=1e-12)


def test_new_rows_may_come_in_other_types():
    data = table()
    made = frame("a + k + b + C(k)", data)
    other = data.assign(
        a=data["a"].astype("category"), k=data["k"].astype("Float64"), b=data["b"].astype(object), y=0, when=None
    )
    pd.testing.assert_frame_equal(frame("a + k + b + C(k)", data, other), made)


def test_missing_numbers_stay_missing():
    data = table()
    data["count"] = data["count"].mask(data.index < 20)
    made = frame("count + np.sqrt(count) + center(count)", data)
    assert (made.isna().to_numpy() == (data.index < 20)[:, None]).all()


@pytest.mark.parametrize(
    ("formula", "common", "bars", "smooths"),
    [
        ("y ~ x", "+ x", (), ()),
        ("y ~ x + (1|g) - 1", "+ x - 1", (Bar("1", "g", True),), ()),
        ("y ~ (x + z || g/h) + (a*b)", "+ (a*b)", (Bar("x + z", "g/h", False),), ()),
        ("y ~ s(x, knots=7) + `a + b|c`", "+ `x` + `a + b|c`", (), (Smooth("x", 7),)),
        ("y ~ s (`my col`, scale=2.0)", "+ `my col`", (), (Smooth("my col", scale=2.0),)),
        ("y ~ (1 | g)", "1", (Bar("1", "g", True),), ()),
        ("y ~ bs(x + 1, df=3) + sums(x)", "+ bs(x + 1, df=3) + sums(x)", (), ()),
    ],
)
def test_a_formula_is_taken_apart(formula, common, bars, smooths):
    assert read(formula) == ("y", common, bars, smooths)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (3, "formula must be a text"),
        ("x + z", "needs a response and predictors with one '~'"),
        ("~ x", "needs a response"),
        ("y ~ ", "needs a response"),
        ("y ~ x ~ z", "one '~'"),
        ("y ~ x z", "cannot be read from 'z' on"),
        ("y ~ x + (z", r"lacks a closing '\)'"),
        ("y ~ x + z)", r"'\)' that closes nothing"),
        ("y ~ `x", "lacks a closing '`'"),
        ("y ~ x +", r"ends with '\+'"),
        ("y ~ x $ z", r"cannot be read: Unexpected character: \$"),
        ("y ~ x | g", r"write a group term in brackets of its own, '\+ \(x \| g\)'"),
        ("y ~ x * (1 | g)", "write a group term in brackets of its own"),
        ("y ~ x - (1 | g)", r"subtracts '\(1 \| g\)'"),
        ("y ~ (1 | g | k)", r"must look like '\(x \| g\)'"),
        ("y ~ (1 | )", r"must look like '\(x \| g\)'"),
        ("y ~ (0 | g)", "has no effects"),
        ("y ~ (1 | 1)", "has no groups"),
        ("y ~ z + (x | g)", r"the slope 'x' of \(x \| g\) must be one of the predictors \['z'\] too"),
        ("y ~ x + (x | g) + (1 | g)", "several terms for the groups 'g'"),
        ("y ~ x + z + (x | g) + (0 + z | g)", "several terms for the groups 'g'"),
        ("y ~ s(x) * z", "has a smooth function inside"),
        ("y ~ s(x, z)", r"must look like 's\(x\)'"),
        ("y ~ s(x, bend=2)", r"does not know \['bend'\]"),
        ("y ~ s(x, knots=0)", "knots must be a positive integer"),
        ("y ~ s(a)", r"s\(a\) needs numbers; the column 'a' has"),
        ("y ~ x + salary + zip", r"no column 'salary', 'zip', which the formula .* needs; they have \['y', 'x'"),
        ("outcome ~ x", "no column 'outcome'"),
        ("y ~ x + (1 | ward)", "no column 'ward'"),
        ("y ~ 1", "has no predictors"),
        ("y ~ 0 + (1 | g)", "has no predictors; add some, or an intercept"),
        ("y ~ double(x)", "calls 'double', which formulas may not do; they may call log, exp"),
        ("y ~ np.log(a)", "does not fit these data"),
        ("y ~ when", "the column 'when' has datetime64"),
        ("y ~ x + offset(z)", "has an offset"),
        ("y ~ y", "has the response 'y' on its right side too; take it out there"),
        ("y ~ x + (1 | y)", "has the response 'y' on its right side too"),
        ("{k > 1} ~ x + C(k)", "has the response 'k' on its right side too"),
        ("1 ~ x", "must be one column, or one function of columns"),
        ("x - z ~ k", r"the response 'x - z' must be one column; write arithmetic in braces: '\{x - z\}'"),
        ('y ~ a["p"]', r"a\['p'\] is for a response; write \{a == 'p'\} for a predictor"),
        ("p(k, 5) ~ x", "is a proportion"),
        ('y["maybe"] ~ x', r"no level 'maybe'; it has \['no', 'yes'\]"),
        ("k ~ x", "3 different numbers"),
    ],
)
def test_what_is_said_about_a_formula(formula, message):
    with pytest.raises(ValueError, match=message) as caught:
        softmargin.fit(formula, table())
    assert str(caught.value).endswith(".") and not str(caught.value).endswith("..")


def spoiled(**columns):
    """The table with values missing in the first three rows."""
    data = table()
    return data.assign(**{key: data[key].astype(kind).mask(np.arange(40) < 3) for key, kind in columns.items()})


@pytest.mark.parametrize(
    ("formula", "data", "message"),
    [
        ("y ~ x", spoiled(y=object), r"the response 'y' is missing in 3 row\(s\)"),
        ("{k > 1} ~ x", spoiled(k=float), r"the response 'k' is missing in 3 row\(s\)"),
        ("y ~ a", spoiled(a=object), r"the column 'a' holds labels and is missing in 3 row\(s\)"),
        ("y ~ b:x", spoiled(b="category"), r"the column 'b' holds labels and is missing in 3 row\(s\)"),
        ("y ~ C(k)", spoiled(k=float), r"the column 'k' holds labels and is missing in 3 row\(s\)"),
        ("y ~ x + (1 | g)", spoiled(g=float), r"the groups 'g' are missing in 3 row\(s\)"),
        ("y ~ x", table().to_dict("list"), "from a pandas or polars DataFrame; got dict"),
        ("y ~ x", table()[:0], "the data have no rows"),
        ("y ~ x", pd.concat([table(), table()[["x"]]], axis=1), "several columns 'x'"),
    ],
)
def test_what_is_said_about_data(formula, data, message):
    with pytest.raises(ValueError, match=message):
        softmargin.fit(formula, data)


@pytest.mark.parametrize("name", ["random_effects", "fit_intercept"])
def test_what_the_formula_says_is_no_option(name):
    with pytest.raises(ValueError, match=f"{name} is what the formula says"):
        softmargin.fit("y ~ x", table(), **{name: None})


def test_what_is_said_about_new_rows():
    data = table()
    model = softmargin.fit("y ~ x * a + np.log(z) + C(k) + (1 | g)", data, inference="map", learning_rate=0.5)
    cases = [
        (data.drop(columns=["x", "g"]), "no column 'g', 'x', which the formula .* needs"),
        (
            data.assign(a="new"),
            r"'a' has the level\(s\) \['new'\] that were not in the training data; it had \['p', 'q'",
        ),
        (data.assign(k=7), r"'C\(k\)' has the level\(s\) \['7'\]"),
        (data.assign(a=None), r"'a' holds labels and is missing in 40 row\(s\)"),
        (data.assign(z="much"), r"'np.log\(z\)' was made of numbers"),
        (data.assign(x="much"), "'x' was made of numbers in the training data"),
        (data.to_numpy(), "from a pandas or polars DataFrame; got ndarray"),
    ]
    for new, message in cases:
        for method in (model.predict, model.predict_proba, model.decision_function):
            with pytest.raises(ValueError, match=message):
                method(new)
