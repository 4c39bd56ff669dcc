"""Reports taken apart, and models to make them of."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
from quiet_fits import DRAWS, SHORT, fitted_once, has_many_classes

import softmargin
from softmargin import (
    BayesianKernelClassifier,
    BayesianKernelRegressor,
    BayesianSVC,
    BayesianSVR,
    RandomEffect,
    Smooth,
)

VOID = {"meta", "link", "br", "hr", "img", "input"}
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["a", "b", "c"])
Z = (X["a"] - 0.5 * X["b"]).to_numpy() + 0.7 * RNG.normal(size=60)
TWO, MANY = np.array(["no", "yes"])[(Z > 0).astype(int)], np.digitize(Z, [-0.5, 0.5])
GROUPED = X.assign(g=np.arange(60) % 4)
MISSING = X.mask(np.arange(60)[:, None] % 9 == np.arange(3))
PLAIN = {"draws": 8, "warmup": 4, "chains": 2, "random_state": 0}
PLAIN_TERMS = [RandomEffect("g"), Smooth("b", knots=4)]
TERMS = [RandomEffect("g", slopes=["a"]), Smooth("b", knots=4)]
FRAME = GROUPED.assign(y=TWO, z=Z)


class Page(HTMLParser):
    """Elements of a page by name, its text, and whether every element is closed in order."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words, self.kinds = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "figure":
            self.kinds.append(dict(attrs)["class"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)

    @property
    def sections(self):
        return [value for tag, name, value in self.attributes if tag == "section" and name == "id"]


def _kernel(**options):
    return BayesianKernelClassifier(length_scale=1.0, **options)


MODELS = {
    "vb": lambda: BayesianSVC(**SHORT).fit(X, TWO),
    "map": lambda: BayesianSVC(**SHORT, inference="map").fit(X, TWO),
    "gibbs": lambda: BayesianSVC(**DRAWS).fit(X, TWO),
    "hmc": lambda: BayesianSVC(**SHORT, inference="hmc").fit(X, TWO),
    "svi": lambda: BayesianSVC(**SHORT, inference="svi").fit(X, TWO),
    "costs": lambda: BayesianSVC(**SHORT, costs=[[0, 1], [5, 0]]).fit(X, TWO),
    "spike-slab": lambda: BayesianSVC("spike-slab", **DRAWS).fit(X, TWO),
    "missing": lambda: BayesianSVC(**SHORT).fit(MISSING, TWO),
    "indicator": lambda: BayesianSVC(**SHORT, missing="indicator").fit(MISSING, TWO),
    "weights": lambda: BayesianSVC(**SHORT).fit(X, TWO, sample_weight=np.arange(60) % 3),
    "terms": lambda: BayesianSVC(**SHORT, random_effects=TERMS).fit(GROUPED, TWO),
    "terms, draws": lambda: BayesianSVC(**DRAWS, random_effects=TERMS).fit(GROUPED, TWO),
    "pairs": lambda: BayesianSVC(**SHORT).fit(X, MANY),
    "pairs, draws": lambda: BayesianSVC(**DRAWS).fit(X, MANY),
    "pairs, spike-slab": lambda: BayesianSVC("spike-slab", **DRAWS).fit(X, MANY),
    "pairs, terms": lambda: BayesianSVC(**SHORT, random_effects=TERMS).fit(GROUPED, MANY),
    "sum-to-zero": lambda: BayesianSVC(**SHORT, multi_class="sum-to-zero").fit(X, MANY),
    "sum-to-zero, draws": lambda: BayesianSVC(**DRAWS, multi_class="sum-to-zero").fit(X, MANY),
    "sum-to-zero, terms": lambda: BayesianSVC(**SHORT, multi_class="sum-to-zero", random_effects=PLAIN_TERMS).fit(
        GROUPED, MANY
    ),
    "crammer-singer": lambda: BayesianSVC(**SHORT, inference="map", multi_class="crammer-singer").fit(X, MANY),
    "regression": lambda: BayesianSVR().fit(X, Z),
    "regression, map": lambda: BayesianSVR(inference="map").fit(X, Z),
    "regression, draws": lambda: BayesianSVR(inference="gibbs", **PLAIN).fit(X, Z),
    "regression, terms": lambda: BayesianSVR(random_effects=TERMS).fit(GROUPED, Z),
    "regression, spike-slab": lambda: BayesianSVR("spike-slab", inference="gibbs", **PLAIN).fit(X, Z),
    "kernel": lambda: _kernel(**SHORT).fit(X, TWO),
    "kernel, map": lambda: _kernel(**SHORT, inference="map").fit(X, TWO),
    "kernel, draws": lambda: _kernel(**DRAWS).fit(X, TWO),
    "kernel, active": lambda: _kernel(**DRAWS, basis="active").fit(X, TWO),
    "kernel pairs": lambda: _kernel(**SHORT).fit(X, MANY),
    "kernel regression": lambda: BayesianKernelRegressor(length_scale=1.0).fit(X, Z),
    "formula": lambda: softmargin.fit("y ~ a * b + s(c) + (1 | g)", FRAME, **SHORT),
    "formula, regression": lambda: softmargin.fit("z ~ a + b", FRAME, estimator=BayesianSVR),
}
QUICK = (
    "vb",
    "map",
    "spike-slab",
    "missing",
    "terms",
    "pairs",
    "sum-to-zero",
    "regression",
    "kernel",
    "kernel regression",
)


model_of = fitted_once(MODELS)


def rows_of(name):
    """Rows and responses of the fit of a model."""
    if name.startswith("formula"):
        return FRAME, None
    rows = GROUPED if "terms" in name else MISSING if name in ("missing", "indicator") else X
    if "regression" in name:
        return rows, Z
    return rows, MANY if has_many_classes(name) else TWO
