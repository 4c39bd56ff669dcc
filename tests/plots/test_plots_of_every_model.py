"""Every picture of every kind of model: drawn, or refused with a sentence of ours."""

import traceback

import numpy as np
import pandas as pd
import pytest
from quiet_fits import DRAWS, SHORT, fitted_once, has_many_classes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import softmargin
from softmargin import BayesianKernelClassifier, BayesianKernelRegressor, BayesianSVC, BayesianSVR, Smooth

pytest.importorskip("matplotlib")
from matplotlib import pyplot

from softmargin import plots

RNG = np.random.default_rng(0)
X = RNG.normal(size=(45, 3))
Z = X[:, 0] - 0.5 * X[:, 1] + 0.7 * RNG.normal(size=45)
TWO, MANY = (Z > 0).astype(int), np.digitize(Z, [-0.5, 0.5])
GROUPED = pd.DataFrame(X, columns=["a", "b", "c"]).assign(g=np.arange(45) % 4)
MISSING = np.where(np.arange(45)[:, None] % 9 == 0, np.nan, X)
MODELS = {
    "vb": lambda: BayesianSVC(**SHORT).fit(X, TWO),
    "map": lambda: BayesianSVC(**SHORT, inference="map").fit(X, TWO),
    "gibbs": lambda: BayesianSVC(**DRAWS).fit(X, TWO),
    "spike-slab": lambda: BayesianSVC("spike-slab", **DRAWS).fit(X, TWO),
    "laplace-zero": lambda: BayesianSVC("laplace-zero", **SHORT).fit(X, TWO),
    "no intercept": lambda: BayesianSVC(**SHORT, fit_intercept=False).fit(X, TWO),
    "missing": lambda: BayesianSVC(**SHORT).fit(MISSING, TWO),
    "indicator": lambda: BayesianSVC(**SHORT, missing="indicator").fit(MISSING, TWO),
    "groups": lambda: BayesianSVC(**SHORT, random_effects="g").fit(GROUPED, TWO),
    "groups, draws": lambda: BayesianSVC(**DRAWS, random_effects="g").fit(GROUPED, TWO),
    "pairs": lambda: BayesianSVC(**SHORT).fit(X, MANY),
    "pairs, draws": lambda: BayesianSVC(**DRAWS).fit(X, MANY),
    "pairs, spike-slab": lambda: BayesianSVC("spike-slab", **DRAWS).fit(X, MANY),
    "sum-to-zero": lambda: BayesianSVC(**SHORT, multi_class="sum-to-zero").fit(X, MANY),
    "sum-to-zero, draws": lambda: BayesianSVC(**DRAWS, multi_class="sum-to-zero").fit(X, MANY),
    "crammer-singer": lambda: BayesianSVC(**SHORT, inference="map", multi_class="crammer-singer").fit(X, MANY),
    "regression": lambda: BayesianSVR().fit(X, Z),
    "regression, map": lambda: BayesianSVR(inference="map").fit(X, Z),
    "regression, draws": lambda: BayesianSVR(inference="gibbs", draws=8, warmup=4, chains=2).fit(X, Z),
    "regression, spike-slab": lambda: BayesianSVR("spike-slab", inference="gibbs", draws=8, warmup=4).fit(X, Z),
    "kernel": lambda: BayesianKernelClassifier(**SHORT, length_scale=1.0).fit(X, TWO),
    "kernel, map": lambda: BayesianKernelClassifier(**SHORT, inference="map", length_scale=1.0).fit(X, TWO),
    "kernel, draws": lambda: BayesianKernelClassifier(**DRAWS, length_scale=1.0).fit(X, TWO),
    "kernel pairs": lambda: BayesianKernelClassifier(**SHORT, length_scale=1.0).fit(X, MANY),
    "regression, kernel": lambda: BayesianKernelRegressor(length_scale=1.0).fit(X, Z),
    "kernel, active": lambda: BayesianKernelClassifier(**DRAWS, length_scale=1.0, basis="active").fit(X, TWO),
    "groups, pairs": lambda: BayesianSVC(**SHORT, random_effects=["g", Smooth("a", knots=4)]).fit(GROUPED, MANY),
    "groups, sum-to-zero": lambda: BayesianSVC(
        **SHORT, multi_class="sum-to-zero", random_effects=["g", Smooth("a", knots=4)]
    ).fit(GROUPED, MANY),
    "unfitted": lambda: BayesianSVC(),
    "unfitted regression": lambda: BayesianSVR(),
    "unfitted kernel": lambda: BayesianKernelClassifier(),
    "path": lambda: softmargin.path(X, TWO, scales=[0.1, 1.0]),
    "of another library": lambda: LogisticRegression().fit(X, TWO),
    "no model": lambda: None,
}


model_of = fitted_once(MODELS)


def rows_of(name):
    if name.startswith("groups"):
        return GROUPED
    return MISSING if name in ("missing", "indicator") else X


def labels_of(name):
    if name.startswith("regression"):
        return Z
    return MANY if has_many_classes(name) else TWO


PICTURES = {
    "margins": lambda name, model: plots.margins(model, rows_of(name), labels_of(name)),
    "margins, left out": lambda name, model: plots.margins(model),
    "confusion": lambda name, model: plots.confusion(model, rows_of(name), labels_of(name)),
    "calibration, left out": lambda name, model: plots.calibration(model),
    "probabilities, left out": lambda name, model: plots.probabilities(model),
    "random effects": lambda name, model: plots.random_effects(model),
    "smooth": lambda name, model: plots.smooth(model),
    "boundary": lambda name, model: plots.boundary(model, rows_of(name)),
    "boundary of two": lambda name, model: plots.boundary(model, rows_of(name), labels_of(name), columns=[0, 1]),
    "intervals": lambda name, model: plots.intervals(model),
    "intervals of rows": lambda name, model: plots.intervals(model, rows_of(name), labels_of(name), column=0),
    "coefficients": lambda name, model: plots.coefficients(model),
    "calibration": lambda name, model: plots.calibration({"it": model}, rows_of(name), labels_of(name)),
    "probabilities": lambda name, model: plots.probabilities(model, rows_of(name), labels_of(name)),
    "demo_figure": lambda name, model: plots.demo_figure(model, {}, rows_of(name), labels_of(name)),
    "inclusion": lambda name, model: plots.inclusion(model),
    "path": lambda name, model: plots.path(model),
    "traces": lambda name, model: plots.traces(model),
    "traces with a mode": lambda name, model: plots.traces(model_of("gibbs"), mode=model),
    "agreement": lambda name, model: plots.agreement(model),
    "agreement of two": lambda name, model: plots.agreement(model, model_of("gibbs")),
    "agreement with it": lambda name, model: plots.agreement(model_of("gibbs"), model),
}


REFUSED = {
    (
        "kernel",
        "coefficients",
    ): r"draws coefficients of columns, and BayesianKernelClassifier has none; fit BayesianSVC",
    ("kernel", "agreement with it"): r"and BayesianKernelClassifier has none",
    ("pairs", "traces with a mode"): r"same classes; they have 1 coefficient per column and 3 coefficients per column",
    ("sum-to-zero", "agreement with it"): r"they have 1 coefficient per column and 3 coefficients per column",
    ("kernel", "random effects"): r"draws coefficients of columns, and BayesianKernelClassifier has none",
    ("vb", "random effects"): r"draws effects of groups, and this model has none; fit with random_effects or groups",
    ("vb", "smooth"): r"draws smooth terms, and this model has none; fit with Smooth\('column'\) or s\(column\)",
    ("vb", "intervals"): r"draws a regression, and this is a classifier; fit BayesianSVR",
    ("regression", "margins"): r"draws a classifier, and this is a regression; fit BayesianSVC",
    ("vb", "boundary"): r"draws over 2 columns, and X has 3 of numbers; name them, as in columns=\['x0', 'x1'\]",
    ("kernel", "traces"): r"needs draws, and inference='vb' has none; fit with 'gibbs'",
    ("groups", "agreement with it"): r"the same columns; one has 'x0' and the other 'a'",
    ("regression", "probabilities"): r"this is a regression; fit BayesianSVC",
    ("unfitted", "traces"): r"not fitted yet",
    ("of another library", "coefficients"): r"as in BayesianSVC\(\)\.fit\(X, y\); got LogisticRegression",
    ("vb", "path"): r"draws what softmargin\.path returns; got BayesianSVC",
}


@pytest.mark.parametrize(("name", "picture"), REFUSED)
def test_the_sentence_says_what_is_wrong(name, picture):
    with pytest.raises((ValueError, NotFittedError), match=REFUSED[name, picture]):
        PICTURES[picture](name, model_of(name))


def test_calibration_wants_named_models_of_two_classes():
    with pytest.raises(ValueError, match=r"draws a fitted model, as in BayesianSVC.*got LogisticRegression"):
        plots.calibration(model_of("of another library"), X, TWO)
    with pytest.raises(ValueError, match="arrays with the probability of the second class; got object"):
        plots.calibration({"nothing": object()}, X, TWO)
    with pytest.raises(ValueError, match=r"one per row of y; got shape \(45, 3\)"):
        plots.calibration({"pairs": model_of("pairs")}, X, TWO)


@pytest.mark.soak
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", MODELS)
def test_a_picture_is_drawn_or_refused_with_a_sentence(name, picture):
    model, refusal = model_of(name), None
    try:
        PICTURES[picture](name, model)
    except (ValueError, NotFittedError) as error:
        refusal = error
    finally:
        pyplot.close("all")
    if refusal is not None:  # a sentence of ours, not of NumPy or matplotlib
        place = traceback.extract_tb(refusal.__traceback__)[-1].filename
        assert "softmargin" in place or "sklearn" in place, refusal
        assert str(refusal).endswith(".")
