"""Commands do what the package does, say what they did, and fail in one line with the place of the mistake."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command import run

import softmargin
from softmargin import BayesianKernelClassifier, BayesianKernelRegressor, BayesianSVC, cli
from softmargin.cli.precompile import fits
from softmargin.cli.tables import read_table
from softmargin.estimators.tabular.tabular import Tabular
from softmargin.inference.functions import INFERENCES
from softmargin.models.classes.schemes import SCHEMES
from softmargin.models.prior_choice import PRIORS

N = 80


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, N).round(1), "sex": rng.choice(["f", "m"], N)})
    frame["site"] = rng.choice(["a", "b", "c"], N)
    f = 0.1 * (frame["age"] - 50) + (frame["sex"] == "m") + rng.normal(size=N)
    frame["sick"] = np.where(f > 0, "yes", "no")
    frame["cost"] = (10 * f).round(3)
    frame.loc[3, "age"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("commands")
    data.to_csv(place / "data.csv", index=False)
    fit = ("fit", place / "data.csv", "--target", "sick", "--drop", "cost", "--drop", "site", "--out", place / "model")
    assert run(*fit).code == 0
    return place


def refused(match, *argv, code=1):
    result = run(*argv)
    assert result.code == code and result.out == ""
    assert result.err.splitlines()[-1].startswith("softmargin: error: ")
    assert match in result.err.splitlines()[-1], result.err


def test_a_fit_of_a_table_is_that_of_its_encoded_columns(folder, data):
    model = softmargin.load(folder / "model")
    assert isinstance(model, Tabular)
    more = data["sex"].value_counts().idxmax()
    other = ({"f", "m"} - {more}).pop()
    X = pd.DataFrame({"age": data["age"], f"sex[{other}]": (data["sex"] == other).astype(float)})
    direct = BayesianSVC(random_state=0).fit(X, data["sick"])
    np.testing.assert_array_equal(model.predict_proba(data), direct.predict_proba(X))
    pd.testing.assert_frame_equal(pd.DataFrame(model.summary()), pd.DataFrame(direct.summary()))


def test_predictions_are_those_of_the_model(folder, data, tmp_path):
    model = softmargin.load(folder / "model")
    assert run("predict", folder / "model", folder / "data.csv", "--proba", "--out", tmp_path / "p.tsv").code == 0
    written = pd.read_csv(tmp_path / "p.tsv", sep="\t")
    np.testing.assert_allclose(written[["P(no)", "P(yes)"]], model.predict_proba(data), rtol=1e-12)
    assert list(written["prediction"]) == list(model.predict(data))
    told = json.loads(run("predict", folder / "model", folder / "data.csv", "--json").out)
    assert [row["prediction"] for row in told["rows"]] == list(model.predict(data))


def test_what_columns_were_taken_for_is_shown_and_intervals_have_bars(folder, tmp_path):
    options = ("--target", "sick", "--drop", "cost", "--groups", "site", "--out", tmp_path / "m")
    result = run("fit", folder / "data.csv", *options)
    assert result.code == 0
    assert "one-hot against" in result.out and "1 missing, modelled" in result.out and "groups (3)" in result.out
    line = [line for line in result.out.splitlines() if line.startswith("age ")][-1]
    assert "●" in line and "─" in line and "│" in line
    assert softmargin.load(tmp_path / "m").random_effects_["site"].shape[0] == 3


def test_quantities_are_regressed_with_intervals(folder, data, tmp_path):
    told = run("fit", folder / "data.csv", "--target", "cost", "--drop", "sick", "--out", tmp_path / "m", "--json")
    assert json.loads(told.out)["estimator"] == "BayesianSVR"
    rows = pd.read_csv(pd.io.common.StringIO(run("predict", tmp_path / "m", folder / "data.csv", "--proba").out))
    assert ((rows["lower"] < rows["prediction"]) & (rows["prediction"] < rows["upper"])).all()
    assert ((rows["lower"] < data["cost"]) & (data["cost"] < rows["upper"])).mean() > 0.85


def test_formulas_reports_and_comparisons(folder, tmp_path, data):
    pytest.importorskip("formulae")
    fit = ("fit", folder / "data.csv", "--formula", "sick ~ age * sex", "--inference", "map", "--out", tmp_path / "m")
    assert run(*fit).code == 0
    told = json.loads(run("report", tmp_path / "m", "--json").out)
    names = {row["name"] for row in told["coefficients"]}
    assert {"Intercept", "age", "sex[m]", "age:sex[m]"} == names
    assert "left-out log loss" in run("report", tmp_path / "m").out
    both = json.loads(run("compare", tmp_path / "m", folder / "model", "--json").out)
    assert both == sorted(both, key=lambda one: one["log_loss"]) and len(both) == 2
    scores = [softmargin.load(each["model"]).loo_.score for each in both]
    np.testing.assert_allclose([each["log_loss"] for each in both], scores, rtol=1e-9)
    assert both[0]["difference"] == 0.0 and both[1]["se_difference"] > 0.0
    assert "80 left-out rows" in run("compare", tmp_path / "m", folder / "model").out
    small = tmp_path / "small.csv"
    data.iloc[:60].to_csv(small, index=False)
    assert run("fit", small, "--formula", "sick ~ age", "--out", tmp_path / "s").code == 0
    refused = run("compare", tmp_path / "m", tmp_path / "s")
    assert refused.code == 1 and "were fitted to 80 and 60 rows" in refused.err


def test_a_report_is_a_page_where_it_goes_to_a_file(folder, data, tmp_path):
    page = tmp_path / "report.html"
    assert run("report", folder / "model", "--out", page).out == f"Report: {page}\n"
    alone = page.read_text(encoding="utf-8")
    assert alone.startswith("<!DOCTYPE html>") and "Linear classifier of sick" in alone
    data.iloc[::2].to_csv(tmp_path / "half.csv", index=False)
    told = json.loads(run("report", folder / "model", tmp_path / "half.csv", "--out", page, "--json").out)
    model = softmargin.load(folder / "model")
    assert told["given"]["accuracy"] == pytest.approx(np.mean(model.predict(data.iloc[::2]) == data["sick"].iloc[::2]))
    assert 'id="given"' in page.read_text(encoding="utf-8") and 'id="given"' not in alone
    assert "decided rightly" in run("report", folder / "model", tmp_path / "half.csv").out
    own = json.loads(run("report", folder / "model", folder / "data.csv", "--json").out)
    assert "given" not in own  # the rows of the fit are not judged again


def test_selection_lists_inclusion_probabilities(folder):
    told = run("select", folder / "data.csv", "--target", "sick", "--drop", "cost", "--drop", "site", "--json")
    found = json.loads(told.out)
    assert list(found.values()) == sorted(found.values(), reverse=True) and found["age"] > 0.9


def test_new_levels_are_said_once_and_get_the_shares(folder, data, tmp_path):
    model = softmargin.load(folder / "model")
    data.assign(sex="x").to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", folder / "model", tmp_path / "new.csv")
    assert result.code == 0
    assert result.err.count("\n") == 1 and f"in {N} row(s) that the fit has not seen ('x')" in result.err
    column = model.columns_[1]
    with pytest.warns(UserWarning, match="not seen"):
        np.testing.assert_array_equal(model.encoded(data.assign(sex="x")).iloc[:, 1], column.shares[1])


def test_tables_are_read_in_every_form(data, tmp_path):
    from softmargin.cli.tables import read_table

    data.to_csv(tmp_path / "a.csv", index=False)
    data.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    data.to_csv(tmp_path / "c.csv", index=False, sep=";")
    data.to_csv(tmp_path / "d.csv.gz", index=False)
    expected = read_table(tmp_path / "a.csv")
    np.testing.assert_array_equal(expected["age"], data["age"])
    assert list(expected["sex"]) == list(data["sex"])
    for name in ("b.tsv", "c.csv", "d.csv.gz"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name), expected)
    pytest.importorskip("pyarrow")
    data.to_parquet(tmp_path / "e.parquet")
    np.testing.assert_array_equal(read_table(tmp_path / "e.parquet")["age"], data["age"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"a,b\n1,2\n3\n", "line 3: 1 fields where the header has 2 names"),
        (b"a,b\n1,2,3\n", "line 2: 3 fields where the header has 2 names"),
        (b'a,b\n1,2\n"3,4\n5,6\n', "line 3: unexpected end of data"),
        (b"a,b\n1,\xff2\n", "line 2: byte 3 is not UTF-8"),
        (b"a,a\n1,2\n", "line 1: column 2 has the name 'a' of another one"),
        (b"a,\n1,2\n", "line 1: column 2 has no name"),
        (b"", "line 1: there are no column names"),
        (b"a,b\n", "has column names and no rows"),
        (b"a,y\n" + b"1,0\n" * 30 + b"x7,1\n", "line 32: the column 'a' has 'x7' where 30 rows have numbers"),
        (b"\x1f\x8bnot gzip", "cannot be unpacked"),
        (gzip.compress(b"a\n" + b"0" * 400_000_000, 1)[:2_000_000], "unpack"),
    ],
    ids=range(11),
)
def test_broken_tables_have_their_line_and_column(text, match, tmp_path):
    (tmp_path / "broken.csv").write_bytes(text)
    refused(match, "fit", tmp_path / "broken.csv", "--target", "y", "--out", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_what_cannot_be_is_one_sentence(folder, tmp_path):
    data, out = folder / "data.csv", ("--out", tmp_path / "m")
    refused("no column 'illness'", "fit", data, "--target", "illness", *out)
    refused("no column 'nothing'", "fit", data, "--target", "sick", "--drop", "nothing", *out)
    refused("either --target or --formula", "fit", data, *out, code=2)
    refused("--task is auto", "fit", data, "--target", "sick", "--task", "guess", *out, code=2)
    refused("No such file", "fit", tmp_path / "none.csv", "--target", "sick", *out)
    refused("is not a file of softmargin.save", "predict", data, data)
    refused("there is no data set 'moon'", "datasets", "get", "moon")
    refused("unknown inference 'magic'", "fit", data, "--target", "sick", "--inference", "magic", *out)
    refused("no column 'sex'", "predict", folder / "model", _without(folder, tmp_path))


def test_places_and_columns_that_cannot_be_are_refused_before_the_fit(folder, data, tmp_path):
    table, out = folder / "data.csv", ("--out", tmp_path / "m")
    fit = ("fit", table, "--target", "sick")
    for command in (
        fit,
        ("predict", folder / "model", table),
        ("report", folder / "model"),
        ("datasets", "get", "iris"),
    ):
        refused("there is no folder", *command, "--out", tmp_path / "none" / "it")
        refused("is a folder", *command, "--out", tmp_path)
    refused("--weights names 'sex'", *fit, "--weights", "sex", *out)
    refused("--weights names 'sex'", "fit", table, "--formula", "sick ~ age", "--weights", "sex", *out)
    named = data.assign(id=[f"row {i}" for i in range(N)])
    named.to_csv(tmp_path / "named.csv", index=False)
    refused("'id' has 80 classes in 80 rows", "fit", tmp_path / "named.csv", "--target", "id", *out)


def test_rows_that_cannot_be_judged_are_told(folder, data, tmp_path):
    model = folder / "model"
    refused("no column 'sex'", "report", model, _without(folder, tmp_path))
    refused("no column 'sex'", "report", model, _without(folder, tmp_path), "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    data.drop(columns="sick").to_csv(tmp_path / "blind.csv", index=False)
    assert "no column 'sick', so they cannot be judged" in run("report", model, tmp_path / "blind.csv").err
    assert "those of the fit" in run("report", model, folder / "data.csv").err


def test_the_table_says_what_weighs_rows_and_leaves_out_what_a_formula_does_not_name(folder, data, tmp_path):
    data.assign(times=1.0).to_csv(tmp_path / "counted.csv", index=False)
    how = ("--weights", "times", "--json", "--out", tmp_path / "m")
    for model in (("--target", "sick", "--drop", "cost"), ("--formula", "sick ~ age")):
        columns = json.loads(run("fit", tmp_path / "counted.csv", *model, *how).out)["columns"]
        taken = {name: kind for name, kind, _ in columns}
        assert taken["times"] == "counts of the rows" and taken["age"] == "numbers"
        assert ("sex" in taken) == ("--target" in model)


def _without(folder, tmp_path):
    pd.read_csv(folder / "data.csv").drop(columns="sex").to_csv(tmp_path / "less.csv", index=False)
    return tmp_path / "less.csv"


def test_data_sets_are_listed_and_written(tmp_path):
    assert "breast_cancer" in json.loads(run("datasets", "list", "--json").out)
    assert run("datasets", "get", "iris", "--out", tmp_path / "iris.csv").code == 0
    assert set(pd.read_csv(tmp_path / "iris.csv")["target"]) == {"setosa", "versicolor", "virginica"}


def test_hostile_names_are_shown_as_they_are(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(40, 1)), columns=["[red]x[/] <b>"])
    frame["y"] = np.where(frame.iloc[:, 0] > 0, "[bold]", "\x1b[2J")
    frame.to_csv(tmp_path / "d.csv", index=False)
    result = run("fit", tmp_path / "d.csv", "--target", "y", "--out", tmp_path / "m")
    assert result.code == 0 and "[red]x[/] <b>" in result.out and "\x1b" not in result.out


def test_the_command_line_names_its_extra_where_it_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    assert cli.main(["--version"]) == 1
    assert "pip install 'softmargin[cli]'" in capsys.readouterr().err


def test_the_package_does_not_import_typer():
    code = "import sys, softmargin.cli; softmargin.BayesianSVC; print('typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_newer_versions_of_typer_come_without_click(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip()


def test_compile_has_a_fit_of_every_engine_prior_scheme_and_estimator():
    names = list(fits())
    wanted = [*INFERENCES, *(prior for prior in PRIORS if prior != "ridge"), *(s for s in SCHEMES if s != "pairwise")]
    wanted += ["BayesianSVC", "BayesianSVR", "BayesianKernelClassifier", "BayesianKernelRegressor", "groups", "missing"]
    assert [word for word in wanted if not any(word in name for name in names)] == []
    done = run("compile", "--only", "BayesianSVC: map")
    assert done.code == 0 and "BayesianSVC: map" in done.out and "kinds of fits" in done.out
    assert "no kind of fit has 'nothing'" in run("compile", "--only", "nothing").err


def test_the_response_is_told_from_the_predictors_and_probabilities_are_short(folder, tmp_path):
    only = ("--drop", "sick", "--drop", "site")
    done = run("fit", folder / "data.csv", "--target", "cost", *only, "--out", tmp_path / "m")
    assert "the response, a quantity" in done.out and done.out.count("numbers") == 1  # age
    by_formula = run("fit", folder / "data.csv", "--formula", "sick ~ age", "--out", tmp_path / "f")
    assert "the response, 2 classes" in by_formula.out
    assert ">0.999" in by_formula.out


def test_a_model_of_a_table_finds_the_response_of_rows_to_score(data):
    model = Tabular(BayesianSVC(learning_rate=1.0), "sick").fit(data.drop(columns=["cost", "site"]))
    assert model.score(data) == model.score(data, data["sick"]) == (model.predict(data) == data["sick"]).mean()


def test_many_columns_of_numbers_are_one_line_and_pairs_say_which_class_is_meant(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 25)), columns=[f"x{j}" for j in range(25)]).assign(
        kind=np.array(["a", "b", "c"])[np.arange(60) % 3]
    )
    frame.loc[2, "x3"] = np.nan
    frame.to_csv(tmp_path / "wide.csv", index=False)
    result = run("fit", tmp_path / "wide.csv", "--target", "kind", "--inference", "map", "--out", tmp_path / "m")
    assert result.code == 0
    head = result.out.partition("Fit")[0]
    assert "x0 ... x24 (24)" in head and "x7" not in head and "1 missing, modelled" in head
    assert "the second class of the pair" in result.out


def test_whole_numbers_that_name_groups_stay_whole(data):
    """Also where a missing one beside them has made them fractions."""
    frame = data.assign(patient=np.arange(N) % 8 + 100).drop(columns=["cost", "site"])
    model = Tabular(BayesianSVC(learning_rate=0.5, random_state=0), "sick", ["patient"]).fit(frame)
    assert list(model.random_effects_["patient"].index) == [str(100 + j) for j in range(8)]
    later = frame.astype({"patient": float})
    later.loc[0, "patient"] = np.nan
    np.testing.assert_array_equal(model.predict_proba(later)[1:], model.predict_proba(frame)[1:])


def test_saved_kernel_models_are_reported_and_paths_are_refused_in_a_sentence(tmp_path):
    rng = np.random.default_rng(0)
    X, f = rng.normal(size=(40, 2)), rng.normal(size=40)
    f += X[:, 0]
    two, pairs = BayesianKernelClassifier(learning_rate=0.25, length_scale=1.0), np.arange(40) % 3
    for model, words in (
        (two.fit(X, f > 0.0), "Kernel"),
        (BayesianKernelClassifier(learning_rate=0.25, length_scale=1.0).fit(X, pairs), "Kernels of the pairs"),
        (BayesianKernelRegressor(length_scale=1.0).fit(X, f), "Kernel"),
    ):
        softmargin.save(model, tmp_path / "kernel")
        result = run("report", tmp_path / "kernel")
        assert result.code == 0 and words in result.out.splitlines() and "length_scale" in result.out
        told = json.loads(run("report", tmp_path / "kernel", "--json").out)
        assert told["kernels"][0]["length_scale"] == 1.0
    softmargin.save(softmargin.path(X, f > 0.0), tmp_path / "path")
    refused("holds a path of modes", "report", tmp_path / "path")


def test_numbers_of_files_with_semicolons_may_have_decimal_commas(tmp_path):
    file = tmp_path / "de.csv"
    file.write_text("dose;size;code;place\n-0,5;1;1.5;1,2 m\n,25;2;;3,4 m\n;3;1,5;5 m\n1,5e2;4;2;6 m\n")
    table = read_table(file)
    np.testing.assert_array_equal(table["dose"], [-0.5, 0.25, np.nan, 150.0])
    np.testing.assert_array_equal(table["size"], [1.0, 2.0, 3.0, 4.0])
    assert table["code"].tolist() == ["1.5", None, "1,5", "2"], "two notations in one column are no numbers"
    assert table["place"].tolist() == ["1,2 m", "3,4 m", "5 m", "6 m"]
    assert read_table(file, frozenset({"dose"}))["dose"].tolist() == ["-0,5", ",25", None, "1,5e2"]
    file.write_text('dose,y\n"1,000",a\n"2,000",b\n')
    assert read_table(file)["dose"].tolist() == ["1,000", "2,000"], "between commas they are something else"
    file.write_text("n;y\n1,000;a\n12,500;b\n")
    assert read_table(file)["n"].tolist() == ["1,000", "12,500"], "which may be thousands"
    file.write_text("dose;y\n" + "".join(f"0,{j};a\n" for j in range(20)) + "0,95x;b\n")
    with pytest.raises(ValueError, match=r"line 22: the column 'dose' has '0,95x' where 20 rows have numbers"):
        read_table(file)


def test_classes_of_a_formula_read_as_they_were_written(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=90)
    frame = pd.DataFrame({"x": x, "stage": np.digitize(x + 0.3 * rng.normal(size=90), [-0.5, 0.5])})
    frame.to_csv(tmp_path / "d.csv", index=False)
    out = ("--formula", "stage ~ x", "--task", "classify", "--out", tmp_path / "m")
    assert run("fit", tmp_path / "d.csv", *out).code == 0
    told = run("predict", tmp_path / "m", tmp_path / "d.csv", "--proba").out
    assert told.splitlines()[0] == "prediction,P(0),P(1),P(2)"
    assert {line.split(",")[0] for line in told.splitlines()[1:]} == {"0", "1", "2"}
    assert run("report", tmp_path / "m", tmp_path / "d.csv", "--out", tmp_path / "r.html").code == 0
