"""Displays hold the numbers of the model, for any number of classes."""

import functools
import io
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from softmargin import (
    BayesianKernelClassifier,
    BayesianKernelRegressor,
    BayesianSVC,
    BayesianSVR,
    RandomEffect,
    Smooth,
    plots,
)

pyplot = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(1)
X = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
Z = (X["a"] - 0.5 * X["b"]).to_numpy() + 0.7 * RNG.normal(size=60)
TWO, MANY = np.array(["no", "yes"])[(Z > 0).astype(int)], np.array(["low", "mid", "top"])[np.digitize(Z, [-0.5, 0.5])]
GROUPED = X.assign(g=np.arange(60) % 5)
SHORT = {"draws": 8, "warmup": 4, "chains": 2, "random_state": 0, "learning_rate": 0.5}
MODELS = {
    "two": lambda: BayesianSVC(**SHORT).fit(X, TWO),
    "costs": lambda: BayesianSVC(**SHORT, costs=[[0, 1], [6, 0]]).fit(X, TWO),
    "pairs": lambda: BayesianSVC(**SHORT).fit(X, MANY),
    "pairs, draws": lambda: BayesianSVC("spike-slab", "gibbs", **SHORT).fit(X, MANY),
    "sum-to-zero": lambda: BayesianSVC(**SHORT, multi_class="sum-to-zero").fit(X, MANY),
    "sum-to-zero, draws": lambda: BayesianSVC(inference="gibbs", **SHORT, multi_class="sum-to-zero").fit(X, MANY),
    "terms": lambda: BayesianSVC(**SHORT, random_effects=[RandomEffect("g", slopes=["a"]), Smooth("b", knots=4)]).fit(
        GROUPED, TWO
    ),
    "kernel": lambda: BayesianKernelClassifier(length_scale=1.0, **SHORT).fit(X, TWO),
    "kernel, draws": lambda: BayesianKernelClassifier(length_scale=1.0, inference="gibbs", **SHORT).fit(X, TWO),
    "regression": lambda: BayesianSVR().fit(X, Z),
    "kernel regression": lambda: BayesianKernelRegressor(length_scale=1.0).fit(X[["a"]], Z),
}


@functools.cache
def model_of(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name]()


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


@pytest.mark.parametrize("name", ["pairs", "sum-to-zero"])
def test_coefficients_of_many_classes_are_those_of_the_summary(name):
    model = model_of(name)
    display = plots.CoefficientsDisplay.from_estimator(model)
    table, found = model.summary(), display.coefficients
    unit = display.coefficients.mean / np.array([table.loc[column, "mean"].to_numpy() for column in ("a", "b")])
    np.testing.assert_allclose(unit, np.broadcast_to(unit[:, :1], unit.shape) if name == "sum-to-zero" else unit)
    np.testing.assert_allclose(found.lower / unit, [table.loc[column, "lower"].to_numpy() for column in ("a", "b")])
    assert found.outputs == list(map(str, table.loc["a"].index))
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == found.outputs
    assert display.figure_ is display.ax_.figure


def test_very_many_outputs_are_a_field_of_colours():
    y = np.array(list("abcde"))[np.arange(60) % 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        display = plots.CoefficientsDisplay.from_estimator(BayesianSVC(**SHORT).fit(X, y))
    assert len(display.coefficients.outputs) == 10 and len(display.figure_.axes) == 2
    np.testing.assert_array_equal(
        np.sort(display.ax_.collections[0].get_array().ravel()), np.sort(display.coefficients.mean.ravel())
    )


def test_inclusion_of_pairs_shows_every_pair():
    model = model_of("pairs, draws")
    display = plots.InclusionDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.inclusions.value, np.column_stack(model.inclusion_))
    heights = [bar.get_width() for bar in display.ax_.patches]
    np.testing.assert_allclose(sorted(heights), sorted(np.column_stack(model.inclusion_).max(axis=1)))


@pytest.mark.parametrize("name", ["pairs, draws", "sum-to-zero, draws"])
def test_traces_and_agreement_of_many_classes_name_the_output(name):
    model = model_of(name)
    display = plots.TracesDisplay.from_estimator(model, ["a"])
    assert len(display.chains) == 3 and all(chain.name.startswith("a, ") for chain in display.chains)
    one = not isinstance(model.posterior_, list)
    for r, chain in enumerate(display.chains):
        posterior = model.posterior_ if one else model.posterior_[r]
        drawn = posterior.columns.to_user(posterior.all_coefficients())[0] / posterior.columns.scale
        np.testing.assert_allclose(chain.draws, drawn[..., r, 0] if one else drawn[..., 0])
    same = plots.AgreementDisplay.from_estimator(model, model)
    assert same.difference.max() == 0.0 and len(same.names) == 6
    assert plots.AgreementDisplay.from_estimator(model).rows.shape == (2, 6)


def test_traces_of_a_kernel_model_are_its_numbers():
    display = plots.TracesDisplay.from_estimator(model_of("kernel, draws"), ["scale", "intercept"])
    assert [chain.name for chain in display.chains] == ["scale", "intercept"]
    np.testing.assert_allclose(display.ax_[0].lines[0].get_ydata(), display.chains[0].draws[0])
    with pytest.raises(ValueError, match=r"names of what was drawn, 'intercept'.*got 'a'"):
        plots.traces(model_of("kernel, draws"), ["a"])


@pytest.mark.parametrize("name", ["two", "pairs", "sum-to-zero", "kernel"])
def test_calibration_and_margins_are_of_left_out_rows_unless_others_are_given(name):
    model = model_of(name)
    y = TWO if len(model.classes_) == 2 else MANY
    margins = plots.MarginsDisplay.from_estimator(model).decisions
    p = model.loo_probability_
    own = p[np.arange(60), np.searchsorted(model.classes_, y)]
    np.testing.assert_array_equal(margins.margin > 0, p.argmax(axis=1) == np.searchsorted(model.classes_, y))
    if len(model.classes_) > 2:
        rest = np.where(np.arange(3) == np.searchsorted(model.classes_, y)[:, None], 0.0, p).max(axis=1)
        np.testing.assert_allclose(margins.margin, np.log(own / rest))
    else:
        given = plots.MarginsDisplay.from_estimator(model, X, y).decisions
        np.testing.assert_allclose(given.margin, np.where(y == "yes", 1, -1) * model.decision_function(X))
    display = plots.CalibrationDisplay.from_estimator(model)
    first = next(iter(display.curves.values()))
    assert first.n.sum() == (60 if len(model.classes_) == 2 else 180)
    share = (first.share * first.n).sum() / first.n.sum()
    assert share == pytest.approx((y == "yes").mean() if len(model.classes_) == 2 else 1 / 3)


def test_confusion_is_that_of_the_decisions_and_has_the_costs():
    model = model_of("costs")
    display = plots.ConfusionDisplay.from_estimator(model)
    decided = model.classes_[model.loo_probability_.argmax(axis=1)]
    np.testing.assert_array_equal(display.counts, confusion_matrix(TWO, decided))
    assert display.cost == display.counts[0, 1] + 6 * display.counts[1, 0]
    assert f"cost {display.cost:.4g}" in display.ax_.get_title(loc="left")
    many, table = model_of("pairs"), np.array([[0, 1, 1], [1, 0, 1], [20, 20, 0]])
    careful = plots.ConfusionDisplay.from_estimator(many, X, MANY, costs=table)
    chosen = (many.predict_proba(X) @ table).argmin(axis=1)
    np.testing.assert_array_equal(careful.counts, confusion_matrix(MANY, many.classes_[chosen]))
    with pytest.raises(ValueError, match="one row and one column per class, 3 of each"):
        plots.confusion(many, costs=np.ones((2, 2)))


def test_probabilities_under_costs_are_brought_back_to_the_data():
    costly = plots.CalibrationDisplay.from_estimator(model_of("costs"))
    found = plots.MarginsDisplay.from_estimator(model_of("costs")).decisions
    assert found.by_class[1] / found.by_class[0] == pytest.approx(6.0)
    odds = found.p[:, 1] / found.p[:, 0]
    np.testing.assert_allclose(found.natural[:, 1] / found.natural[:, 0], odds / 6.0)
    curve = next(iter(costly.curves.values()))
    assert (curve.where * curve.n).sum() / 60 == pytest.approx(found.natural[:, 1].mean())


def test_random_effects_are_sorted_and_smooth_terms_have_bands():
    model = model_of("terms")
    display = plots.RandomEffectsDisplay.from_estimator(model)
    assert [panel.title for panel in display.effects] == ["g", "g, a"] and len(display.ax_) == 2
    table = model.random_effects_["g"].xs("a", level="effect").sort_values("mean")
    np.testing.assert_allclose(display.effects[1].mean, table["mean"])
    assert display.effects[1].groups == list(map(str, table.index))
    smooth = plots.SmoothDisplay.from_estimator(model, level=0.8)
    np.testing.assert_allclose(smooth.terms[0].lower, model.smooth_effects(0.8)["s(b)"]["lower"])
    assert smooth.ax_[0].get_xlabel() == "b"
    assert len(plots.RandomEffectsDisplay.from_estimator(model, top=2).ax_[0].get_yticklabels()) == 2


@pytest.mark.parametrize("name", ["two", "pairs", "kernel"])
def test_a_boundary_is_where_the_decision_changes(name):
    model = model_of(name)
    y = TWO if len(model.classes_) == 2 else MANY
    display = plots.BoundaryDisplay.from_estimator(model, X, y, grid=20)
    at = pd.DataFrame({"a": display.xx.ravel(), "b": display.yy.ravel()})
    np.testing.assert_allclose(display.probability.reshape(-1, len(model.classes_)), model.predict_proba(at))
    assert (display.distance is not None) == (len(model.classes_) == 2)
    if display.distance is not None:
        f, sd = model.decision_function(at, return_std=True)
        np.testing.assert_allclose(display.distance.ravel(), f / sd)
    other = plots.BoundaryDisplay.from_estimator(model_of("terms"), GROUPED, columns=["b", "a"], grid=5)
    assert other.names == ("b", "a")
    with pytest.raises(ValueError, match="draws over 2 columns; got 1"):
        plots.boundary(model, X, columns=["a"])


@pytest.mark.parametrize("name", ["regression", "kernel regression"])
def test_intervals_are_those_of_the_regression(name):
    model = model_of(name)
    rows = X if name == "regression" else X[["a"]]
    display = plots.IntervalsDisplay.from_estimator(model, rows, Z, column="a", level=0.8)
    np.testing.assert_allclose(np.column_stack(display.responses[2:4]), model.predict_interval(rows, 0.8))
    assert display.ax_.get_xlabel() == "a"
    left_out = plots.IntervalsDisplay.from_estimator(model)
    assert left_out.responses.rmse == pytest.approx(model.loo_.rmse)
    assert f"{100 * left_out.responses.covered:.3g} % inside" == left_out.ax_.get_title(loc="left")


def test_a_display_is_drawn_again_on_given_axes():
    display = plots.CoefficientsDisplay.from_estimator(model_of("two"))
    _, ax = pyplot.subplots()
    assert display.plot(ax) is display and display.ax_ is ax
    with pytest.raises(ValueError, match="one axes per panel: 2 panels, 1 axes"):
        plots.random_effects(model_of("terms"), ax)


def test_dollars_of_names_and_classes_are_no_formulas():
    dollars = {"a": "$a_$", "b": r"b$^^$"}
    frame, two = GROUPED.rename(columns=dollars), np.array(["$no_$", "$yes^$"])[(Z > 0).astype(int)]
    grouped = frame.assign(g=[f"$g_${i % 5}" for i in range(60)])
    three = np.array(["$low_$", "mid", "$top^$"])[np.digitize(Z, [-0.5, 0.5])]
    plain, terms = frame[list(dollars.values())], [RandomEffect("g"), Smooth(dollars["b"], knots=4)]
    drawn = BayesianSVC("spike-slab", "gibbs", **SHORT).fit(plain, two)
    pairs = BayesianSVC(**SHORT).fit(plain, three)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grouped = BayesianSVC(**SHORT, random_effects=terms).fit(grouped, two)
    shown = [
        *(plots.CoefficientsDisplay.from_estimator(model) for model in (drawn, pairs)),
        plots.InclusionDisplay.from_estimator(drawn),
        plots.TracesDisplay.from_estimator(drawn),
        plots.AgreementDisplay.from_estimator(drawn),
        *(plots.MarginsDisplay.from_estimator(model) for model in (drawn, pairs)),
        plots.ConfusionDisplay.from_estimator(pairs),
        *(plots.CalibrationDisplay.from_estimator(model) for model in (drawn, pairs)),
        *(plots.ProbabilitiesDisplay.from_estimator(model, plain, y) for model, y in ((drawn, two), (pairs, three))),
        plots.BoundaryDisplay.from_estimator(drawn, plain, two),
        plots.RandomEffectsDisplay.from_estimator(grouped),
        plots.SmoothDisplay.from_estimator(grouped),
    ]
    for display in shown:
        display.figure_.savefig(io.BytesIO())
    assert shown[0].ax_.get_yticklabels()[0].get_text().replace(r"\$", "$") in dollars.values()
