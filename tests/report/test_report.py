"""A report has what its model has, and nothing that its model has not."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pages import MANY, MODELS, QUICK, SHORT, TWO, Page, X, Z, model_of, rows_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from softmargin import BayesianSVC, load, save
from softmargin.report import report
from softmargin.report.contents import data_section
from softmargin.report.quality import predictions, rows
from softmargin.report.study import Study
from softmargin.report.svg import ticks, written
from softmargin.report.text import number, percent, safe

WHOLE = {"words", "data", "left-out", "convergence", "repeat"}


def check(html):
    """A page that is well formed, small, and needs nothing from elsewhere; its parts."""
    page = Page(html)
    assert len(html.encode()) < 3e6
    assert {"script", "iframe", "object", "embed", "img", "form", "base"}.isdisjoint(page.tags)
    outside = [
        value for _, name, value in page.attributes if name in ("href", "src") and not value.startswith(("#", "data:"))
    ]
    assert outside == [] and "@import" not in html and "url(" not in html
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.tags.count("svg") == page.tags.count("figure") > 0
    anchors = [value[1:] for tag, name, value in page.attributes if tag == "a" and name == "href"]
    assert anchors == [section for section in page.sections if section != "words"]
    bad = [word for word in ("nan", "NaN", "inf") if word in page.text.split()]
    assert bad == []
    places = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "d", "points")
    wrong = [
        value for tag, name, value in page.attributes if name in places and tag != "svg" and "nan" in value.lower()
    ]
    assert wrong == []
    return page


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.soak) for n in MODELS])
def test_a_report_of_every_model_is_whole(name):
    model = model_of(name)
    page = check(report(model).html)
    assert set(page.sections) >= WHOLE
    given, y = rows_of(name)
    check(report(model, given, y).html)
    other = given.iloc[:40]
    page = check(report(model, other, None if y is None else y[:40]).html)
    assert "given" in page.sections


def test_sections_that_do_not_apply_are_left_out():
    plain = check(report(model_of("vb")).html)
    assert {"inclusion", "terms", "missing", "given"}.isdisjoint(plain.sections)
    assert {"calibration", "roc", "precision-recall", "confusion", "margins", "coefficients"} <= set(plain.kinds)
    assert "inclusion" in check(report(model_of("spike-slab")).html).sections
    assert {"smooth", "groups"} <= set(check(report(model_of("terms")).html).kinds)
    assert "missing" in check(report(model_of("missing")).html).sections
    kernel = check(report(model_of("kernel")).html)
    assert "coefficients" not in kernel.sections and "no coefficients of columns" in kernel.text
    numbers = check(report(model_of("regression")).html)
    assert {"predicted", "errors", "coverage"} <= set(numbers.kinds) and "roc" not in numbers.kinds


def test_the_words_have_the_figures_of_left_out_rows():
    model = model_of("vb")
    p = model.loo_probability_[:, 1]
    text = check(report(model).html).text
    assert percent(float(((p > 0.5) == (TWO == "yes")).mean())) in text
    assert number(log_loss(TWO == "yes", p)) in text
    assert f"{roc_auc_score(TWO == 'yes', p):.3f}" in text
    assert number(model.loo_.score) == number(log_loss(TWO == "yes", p))


def test_given_rows_that_are_those_of_the_fit_are_not_judged_again():
    model = model_of("vb")
    page = check(report(model, X, TWO).html)
    assert "given" not in page.sections and "influence" in page.kinds
    other = check(report(model, X[:30], TWO[:30]).html)
    assert "given" in other.sections and "influence" not in other.kinds
    assert percent(float(np.mean(model.predict(X[:30]) == TWO[:30]))) in other.text
    alone = check(report(model, X[:30]).html)  # rows without responses: their columns alone
    assert "given" not in alone.sections and "rows that were given" in alone.text


def test_costs_are_those_of_the_decisions():
    model = model_of("costs")
    counts = pd.crosstab(TWO, model.classes_[model.loo_probability_.argmax(axis=1)]).reindex(
        columns=["no", "yes"], fill_value=0
    )
    total = counts.loc["no", "yes"] + 5 * counts.loc["yes", "no"]
    text = " ".join(check(report(model).html).text.split())
    assert f"At the chosen costs they cost {number(float(total), 4)} in all" in text
    assert "Weights of classes and costs are taken back" in text


def test_what_a_fit_warned_of_is_in_its_report():
    with pytest.warns(UserWarning, match="did not converge"):
        model = BayesianSVC(max_iter=1, learning_rate=0.5).fit(X, TWO)
    assert "did not converge" in check(report(model).html).text
    assert "has nothing to warn of" not in report(model).html


def test_scores_are_called_optimistic_where_no_refits_were_made():
    def told(n, p, rate):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, p))
        model = BayesianSVC(learning_rate=rate).fit(X, X[:, 0] + rng.standard_normal(n) > 0.0)
        assert model.loo_.max_kv > 0.8
        return model.loo_.method, "are optimistic" in report(model).html

    assert told(40, 10, 4.0) == ("closed form", True)
    assert told(60, 900, "auto") == ("refits of 10 folds", False)


def test_a_model_that_was_saved_has_the_same_report(tmp_path):
    save(model_of("pairs"), tmp_path / "model")
    assert report(load(tmp_path / "model")).html == report(model_of("pairs")).html


def test_a_model_without_the_responses_of_its_rows_is_reported_all_the_same():
    model = BayesianSVC(**SHORT).fit(X, MANY)
    del model._observed  # as in files of an earlier version
    page = check(report(model).html)
    assert "left-out" not in page.sections and "nothing to compare with" in page.text
    assert "given" in check(report(model, X, MANY).html).sections


def test_very_many_classes_stay_a_small_page():
    study = Study.of(model_of("vb"))
    k = 120
    truth = np.arange(600) % k
    p = np.eye(k)[np.where(np.arange(600) % 7, truth, (truth + 1) % k)] + 1e-3
    many = study.left_out._replace(
        labels=[f"class {r}" for r in range(k)], y=truth, p=p / p.sum(axis=1, keepdims=True), times=np.ones(600),
        by_class=np.ones(k), margin=np.ones(600), rows=np.arange(600),
    )  # fmt: skip
    study = replace(study, left_out=many)
    html = data_section(study).html + "".join(each.html for each in predictions(study)) + rows(study).html
    assert len(html) < 500_000
    assert "Shown are the 30 of 120 classes with most errors" in html and "40 most frequent of 120" in html


def test_a_report_needs_no_other_package(monkeypatch):
    for package in ("matplotlib", "matplotlib.figure", "typer", "rich", "arviz"):
        monkeypatch.setitem(sys.modules, package, None)
    check(report(model_of("vb"), X, TWO).html)


def test_only_fitted_models_of_this_library_are_reported():
    with pytest.raises(ValueError, match="report draws a fitted model"):
        report(LogisticRegression().fit(X, TWO))
    with pytest.raises(ValueError, match="needs one class per row; got 3 for 60 rows"):
        report(model_of("vb"), X, ["no", "yes", "no"])


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></svg><script>",
    "a'b&amp;c",
    "x" * 300,
]
HOSTILE += ["\u202eevil\x00\x1b[31m", "line\nbreak", "javascript:alert(1)", "--><!--", "日本語 \U0001f600"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_shown_as_text(text):
    frame = X.rename(columns={"a": text}).assign(g=np.where(np.arange(60) % 2, text, "<b>other"))
    labels = np.where(Z > 0, text, "<i>plain")
    options = {**SHORT, "random_effects": "g"}
    model = BayesianSVC(**options).fit(frame, labels)
    page = check(report(model, frame, labels).html)
    plain = check(
        report(BayesianSVC(**options).fit(X.assign(g=np.arange(60) % 2), TWO), X.assign(g=np.arange(60) % 2), TWO).html
    )
    assert page.tags.count("script") == 0 and page.tags.count("b") == plain.tags.count("b")
    assert {"i", "img"}.isdisjoint(page.tags)
    shown = "".join(letter for letter in text[:12] if letter.isprintable() and letter not in "\u202e")
    assert shown[:4] in page.text


def test_letters_that_are_not_shown_are_replaced():
    assert safe("a\x00b\u202ec<d>\"e'") == "a\ufffdb\ufffdc&lt;d&gt;&quot;e&#x27;"
    assert safe("a\nb\u00a0c") == "a b c"
    "".join(safe(chr(code)) for code in range(0xD7FF, 0xE100)).encode()  # halves of letters cannot be written


def test_numbers_are_short_and_shares_do_not_round_to_all():
    assert [number(v) for v in (3.0, -0.12345, 1234567.0, np.nan, -np.inf)] == ["3", "−0.123", "1.23e+06", "–", "−∞"]
    assert [percent(v) for v in (1.0, 0.99999, 0.5, 0.051)] == [
        "100\u00a0%",
        "over 99.9\u00a0%",
        "50\u00a0%",
        "5.1\u00a0%",
    ]


def test_ticks_are_round_and_told_apart():
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert written(ticks(-402.3, -400.6)) == ["−402.0", "−401.5", "−401.0"]
    for low, high in ((1e-7, 3e-7), (-3.1, 1.7), (0.0, 1e9), (5.0, 5.0)):
        marks = ticks(low, high)
        assert len(set(written(marks))) == len(marks)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    page = report(model_of("vb"))
    view = page._repr_html_()
    assert view.startswith("<iframe sandbox srcdoc=") and view.count("<") == 2
    assert "kB" in repr(page)


def test_one_column_and_one_iteration_are_singular():
    """And tables that scroll say so by a shadow."""
    frame = pd.DataFrame({"a": X["a"], "noise": np.cos(97.0 * X["a"])})
    clear = BayesianSVC(learning_rate=0.5).fit(frame, X["a"] > 0.0)
    text = report(clear).html
    assert "1 of 2 columns has an interval that leaves zero out" in text
    clear.n_iter_ = 1
    assert "after 1 iteration." in report(clear).html
    assert "no-repeat local" in text


def test_a_report_of_batches_says_how_many_rows_there_were_in_all():
    model = BayesianSVC(inference="svi", learning_rate=0.5, random_state=0).fit(X, TWO)
    assert "in batches" not in report(model).html
    text = report(model.partial_fit(X[:40], TWO[:40])).html
    assert f"was fitted to {len(X) + 40} rows in batches" in text
    assert "Of the 40 rows of the last batch, scored before they were learned" in text
    assert "Rows of each class of the last batch; 40 in all" in text and "left out one at a time" not in text
    assert "in batches" not in report(model.fit(X, TWO)).html


def test_rows_of_a_report_may_be_in_files_and_behind_a_pipeline(tmp_path):
    pytest.importorskip("pyarrow")
    plain = X[["a", "b"]]
    model = BayesianSVC(learning_rate=0.5).fit(plain, np.asarray(Z) > 0)
    other = report(model, plain[:50], np.asarray(Z)[:50] > 0).html
    plain[:50].assign(y=np.asarray(Z)[:50] > 0, more=1.0).to_parquet(tmp_path / "rows.parquet")
    assert report(model, tmp_path / "rows.parquet", "y").html == other
    bare = BayesianSVC(learning_rate=0.5).fit(plain.to_numpy(), TWO)
    np.save(tmp_path / "rows.npy", plain[:50].to_numpy())
    assert report(bare, str(tmp_path / "rows.npy"), TWO[:50]).html == report(bare, plain[:50].to_numpy(), TWO[:50]).html
    with pytest.raises(ValueError, match="y without X"):
        report(model, None, TWO)
    with pytest.raises(ValueError, match="names a column, and only X in Parquet files"):
        report(model, plain, "y")
    pipe = make_pipeline(StandardScaler(), BayesianSVC(learning_rate=0.5)).fit(plain, TWO)
    assert report(pipe, plain[:50], TWO[:50]).html == report(pipe[-1], pipe[0].transform(plain[:50]), TWO[:50]).html


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    page, place = report(model_of("vb")), tmp_path / "page.html"
    place.write_text("before")

    def fails(handle):
        raise OSError("no room")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="no room"):
        page.save(place)
    assert place.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["page.html"]
