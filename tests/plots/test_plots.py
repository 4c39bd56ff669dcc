"""Pictures show the numbers of the model."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from softmargin import BayesianSVC, plots
from softmargin.plots.numbers import curves
from softmargin.priors import Ridge

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:, :8], np.array(["malignant", "benign"])[y]


@pytest.fixture(scope="module")
def model(data):
    X, y = data
    return BayesianSVC().fit(X[::2], y[::2])


def drawn(ax):
    """Names, markers and interval ends from bottom to top, and the marker colours."""
    names = [text.get_text() for text in ax.get_yticklabels()]
    points = ax.collections[-1]
    bars = [segment[:, 0] for segment in ax.collections[0].get_segments()] if len(ax.collections) > 1 else []
    return names, points.get_offsets(), np.array(bars), points.get_edgecolors()


def test_coefficients_shows_the_summary(model, data):
    ax = plots.coefficients(model)
    names, points, bars, colours = drawn(ax)
    assert len(names) == 8  # all of them: fewer than `top`
    sd = data[0][::2].std(ddof=0)
    table = model.summary().loc[names]
    np.testing.assert_allclose(points[:, 0], table["mean"] * sd[names])
    np.testing.assert_allclose(bars, table[["lower", "upper"]].mul(sd[names], axis=0))
    assert (np.diff(points[:, 0]) >= 0).all()
    assert len({matplotlib.colors.to_hex(c) for c, x in zip(colours, points[:, 0], strict=True) if x > 0}) == 1
    assert len({matplotlib.colors.to_hex(c) for c in colours}) == 2  # one colour a sign
    assert "benign" in ax.get_xlabel() and "malignant" in ax.get_xlabel()


def test_filled_markers_leave_zero_out(data):
    X, y = data
    sure = BayesianSVC(learning_rate=1.0).fit(X, y)
    ax = plots.coefficients(sure)
    _, _, bars, _ = drawn(ax)
    filled = ax.collections[-1].get_facecolors()[:, :3].min(axis=1) < 1.0
    away = (bars[:, 0] > 0) | (bars[:, 1] < 0)
    assert 0 < away.sum() < len(away)
    np.testing.assert_array_equal(filled, away)


def test_coefficients_takes_the_farthest(model):
    _, ax = pyplot.subplots()
    assert plots.coefficients(model, ax, 3, level=0.5) is ax
    names, _, bars, _ = drawn(ax)
    table = model.summary(0.5).drop(index="Intercept")
    wanted = (table["mean"] / table["sd"]).abs().nlargest(3).index
    assert set(names) == set(wanted)
    wide = drawn(plots.coefficients(model, None, 3))[2]
    assert (np.diff(wide) > np.diff(bars)).all()


def test_coefficients_of_a_mode_and_of_raw_constant_columns(data):
    X, y = data
    X = X.iloc[:, :3].assign(nothing=1.0)
    model = BayesianSVC(Ridge(scale=1.0), "map", standardize=False, learning_rate=1.0)
    with pytest.warns(UserWarning, match="constant column"):
        model.fit(X / X.max(), y)
    names, points, bars, _ = drawn(plots.coefficients(model))
    assert len(bars) == 0
    np.testing.assert_allclose(points[:, 0], model.summary().loc[names, "mean"])
    assert points[names.index("nothing"), 0] == 0


def test_reliability_of_exact_probabilities():
    rng = np.random.default_rng(0)
    p = rng.choice([0.1, 0.4, 0.8], size=3000)
    y = rng.random(3000) < p
    where, share, n = curves.reliability(p, y.astype(float))
    np.testing.assert_allclose(where, [0.1, 0.4, 0.8])
    np.testing.assert_allclose(share, [y[p == value].mean() for value in where])
    np.testing.assert_array_equal(n, [(p == value).sum() for value in where])
    grid, low, high = curves.band(p)
    inside = (grid >= 0.1) & (grid <= 0.8)
    assert (low <= grid)[inside].all() and (high >= grid)[inside].all()
    assert 0 < (high - low)[inside].max() < 0.1
    off = curves.reliability(1 - p, y.astype(float))  # probabilities of the wrong class: one flat level
    assert len(off[0]) == 1 and off[1][0] == pytest.approx(y.mean())


def test_calibration_draws_models_and_probabilities_alike(model, data):
    X, y = data[0][1::2], data[1][1::2]
    logistic = LogisticRegression(max_iter=5000).fit(X, y)
    models = {"ours": model, "logistic": logistic}
    ax = plots.calibration(models, X, y)
    p = {name: each.predict_proba(X)[:, 1] for name, each in models.items()}
    same = plots.calibration(p, None, y)
    for one, other in zip(ax.lines, same.lines, strict=True):
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours", "logistic"]
    np.testing.assert_allclose(ax.lines[1].get_xydata().T, curves.reliability(p["ours"], y == "malignant")[:2])
    assert "malignant" in ax.get_xlabel()


def test_calibration_refuses(model, data):
    X, y = data
    with pytest.raises(ValueError, match="two classes"):
        plots.calibration({"ours": model}, X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="between 0 and 1"):
        plots.calibration({"ours": np.full(len(y), 1.2)}, None, y)
    with pytest.raises(ValueError, match="one per row of y"):
        plots.calibration({"ours": np.full((len(y), 2), 0.5)}, None, y)


def test_probabilities_shows_f_and_its_interval(model, data):
    X, y = data[0][1::2], data[1][1::2]
    ax = plots.probabilities(model, X, y)
    f, sd = model.decision_function(X, return_std=True)
    p = model.predict_proba(X)[:, 1]
    for label, bars, points in zip(model.classes_, ax.collections[::2], ax.collections[1::2], strict=True):
        rows = y == label
        np.testing.assert_allclose(points.get_offsets(), np.column_stack((f, p))[rows])
        ends = np.array([segment[:, 0] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, np.column_stack((f - 1.96 * sd, f + 1.96 * sd))[rows])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["benign", "malignant"]
    with pytest.raises(ValueError, match="inference='map'"):
        plots.probabilities(BayesianSVC(inference="map").fit(X, y), X, y)


def test_demo_figure_is_not_attached_to_a_window(model, data, tmp_path):
    X, y = data
    figure = plots.demo_figure(model, {"other": np.full(len(y), 0.5)}, X, y, top=5)
    assert isinstance(figure, matplotlib.figure.Figure) and not pyplot.get_fignums()
    assert len(figure.axes) == 3 and len(figure.axes[0].get_yticklabels()) == 5
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_missing_matplotlib_names_the_extra(model, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (
        lambda: plots.coefficients(model),
        lambda: plots.calibration({"ours": model}, *data),
        lambda: plots.probabilities(model, *data),
        lambda: plots.demo_figure(model, {}, *data),
    ):
        with pytest.raises(ImportError, match=r"needs matplotlib: pip install 'softmargin\[plot\]'"):
            draw()
