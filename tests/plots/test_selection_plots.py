"""Pictures of selection show the numbers of the models they are given."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import softmargin
from softmargin import BayesianSVC, plots
from softmargin.estimators.path import Path
from softmargin.priors import Lasso, Ridge, SpikeSlab

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

NAMES = ["strong", "weak", "none", "against", "flat"]


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    """Columns in different units, the last one constant."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5)) * (1.0, 10.0, 1.0, 0.1, 0.0)
    f = X @ (1.5, 0.08, 0.0, -12.0, 0.0)
    y = np.where(rng.random(80) < 1.0 / (1.0 + np.exp(-2.0 * f)), "yes", "no")
    return pd.DataFrame(X, columns=NAMES), y


def fitted(data, prior, inference="gibbs", seed=0, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains, a constant column
        settings = {"draws": 40, "warmup": 40, "chains": 3, "learning_rate": 1.0, **settings}
        return BayesianSVC(prior, inference, random_state=seed, **settings).fit(*data)


@pytest.fixture(scope="module")
def selected(data):
    return fitted(data, SpikeSlab(0.3, scale=1.0))


@pytest.fixture(scope="module")
def drawn(data):
    return fitted(data, Ridge(scale=1.0))


@pytest.fixture(scope="module")
def mode(data):
    return fitted(data, Lasso(scale=1.0), "map")


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_inclusion_shows_probabilities_ranges_and_signs(selected):
    ax = plots.inclusion(selected)
    names = ticks(ax.yaxis)
    table = selected.summary().loc[names]
    assert set(names) == set(NAMES) and (np.diff(table["inclusion"]) <= 0).all()
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], table["inclusion"])
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    chains = selected.chain_inclusion_[:, [NAMES.index(name) for name in names]]
    np.testing.assert_allclose(ends, np.column_stack((chains.min(axis=0), chains.max(axis=0))), atol=1e-12)
    np.testing.assert_allclose(np.ptp(ends, axis=1), table["inclusion_range"], atol=1e-12)
    red, _, blue, _ = np.array([bar.get_facecolor() for bar in ax.patches]).T
    positive = table["prob_positive"].to_numpy()
    assert positive[names.index("strong")] > 0.9 > 0.1 > positive[names.index("against")]
    sure = np.abs(positive - 0.5) > 0.01
    np.testing.assert_array_equal((red > blue)[sure], (positive > 0.5)[sure])  # red is the second class
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["towards no", "either", "towards yes"]


def test_inclusion_threshold_and_top(selected):
    _, ax = pyplot.subplots()
    assert plots.inclusion(selected, ax, 3, threshold=0.9) is ax
    assert ticks(ax.yaxis) == [NAMES[j] for j in np.argsort(-selected.inclusion_)[:3]]
    opacity = np.array([bar.get_facecolor()[3] for bar in ax.patches])
    above = np.sort(selected.inclusion_)[::-1][:3] > 0.9
    np.testing.assert_array_equal(opacity > 0.5, above)
    assert [0.9, 0.9] in [list(line.get_xdata()) for line in ax.lines]


def test_inclusion_needs_point_masses(drawn):
    with pytest.raises(ValueError, match="fit with prior='spike-slab'"):
        plots.inclusion(drawn)


@pytest.fixture
def route():
    scales = np.array([1.0, 0.1, 0.01])  # any order
    standardized = np.array([[2.0, -30.0, 0.5], [1.0, -0.5, 0.0], [0.5, 0.0, 0.0]])
    none = np.zeros(3)
    return Path(scales, standardized, none, standardized, [3, 2, 1], none, none, ["a", "b", "c"])


def test_path_draws_coefficients_and_size(route):
    axes = plots.path(route, top=2, mark=0.3)
    lines = {tuple(np.round(line.get_ydata(), 6)): line for line in axes[0].lines}
    for j, colour in enumerate(("#d55e00", "#0072b2", "#8a8a8a")):  # positive, negative, not among the top
        line = lines[tuple(route.standardized[::-1, j])]
        np.testing.assert_array_equal(line.get_xdata(), [0.01, 0.1, 1.0])
        assert matplotlib.colors.to_hex(line.get_color()) == colour
    assert {text.get_text() for text in axes[0].texts} == {"a", "b"}
    np.testing.assert_array_equal(axes[1].lines[0].get_xydata(), [[0.01, 1], [0.1, 2], [1.0, 3]])
    for ax in axes:
        assert ax.get_xscale() == "log" and any(line.get_xdata()[0] == 0.3 for line in ax.lines)


def test_path_of_the_library(data):
    X, y = data[0][NAMES[:4]], data[1]
    found = softmargin.path(X, y, [0.01, 0.1, 1.0])
    axes = plots.path(found)
    drawn = {tuple(line.get_ydata()) for line in axes[0].lines}
    assert {tuple(column) for column in found.standardized.T} <= drawn
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), found.size)


def test_path_on_given_axes(route):
    _, ax = pyplot.subplots()
    (found,) = plots.path(route, ax, top=0)
    assert found is ax and not ax.texts and ax.get_xlabel() == "prior scale"


def test_path_names_do_not_overlap(route):
    many = {"standardized": np.tile(np.linspace(1.0, 1.01, 12), (3, 1)), "feature_names": [f"n{j}" for j in range(12)]}
    axes = plots.path(replace(route, **many), top=12)
    places = sorted(text.get_position()[1] for text in axes[0].texts)
    assert len(places) == 12 and np.diff(places).min() > 0.05


def test_traces_show_every_chain(drawn, mode, data):
    axes = plots.traces(drawn, ["against", 0], mode)
    sd = data[0].std(ddof=0)
    coef, _ = drawn.posterior_.columns.to_user(drawn.posterior_.all_coefficients())
    for ax, j in zip(axes, (3, 0), strict=True):
        for k in range(3):
            x, values = ax.lines[2 * k - (k > 0)].get_data()
            np.testing.assert_array_equal(x, 40 * k + np.arange(40))
            np.testing.assert_allclose(values, coef[k, :, j] * sd.iloc[j])
        assert ax.get_ylabel() == NAMES[j]
        dashed = next(line for line in ax.lines if line.get_label() == "mode")
        np.testing.assert_allclose(dashed.get_ydata(), mode.coef_[0, j] * sd.iloc[j])


def test_traces_choose_the_farthest(drawn):
    axes = plots.traces(drawn)
    table = drawn.summary().drop(index=["Intercept", "flat"])
    wanted = (table["mean"] / table["sd"]).abs().nlargest(3).index
    assert {ax.get_ylabel() for ax in axes} == set(wanted)
    _, ax = pyplot.subplots()
    assert plots.traces(drawn, ["weak"], ax=ax)[0] is ax


def test_traces_of_long_chains_are_thinned(data):
    long = fitted(data, Ridge(scale=1.0), draws=4000, warmup=10, chains=1)
    assert len(plots.traces(long, [0])[0].lines[0].get_xdata()) <= 2000


def test_traces_refuse(drawn, mode, data):
    with pytest.raises(ValueError, match="needs draws"):
        plots.traces(mode)
    with pytest.raises(ValueError, match="names or positions of the 5 columns"):
        plots.traces(drawn, ["missing"])
    with pytest.raises(ValueError, match="one axes per panel: 2 panels, 1 axes"):
        plots.traces(drawn, ["weak", "none"], ax=pyplot.subplots()[1])
    fewer = fitted((data[0][NAMES[:2]], data[1]), Lasso(scale=1.0), "map")
    with pytest.raises(ValueError, match="same columns; they have 5 and 2"):
        plots.traces(drawn, ["weak"], fewer)


def test_agreement_of_two_fits(selected, data):
    other = fitted(data, SpikeSlab(0.3, scale=1.0), seed=1)
    ax = plots.agreement(selected, other)
    points = ax.collections[0].get_offsets()
    np.testing.assert_allclose(points, np.column_stack((selected.inclusion_, other.inclusion_)))
    difference = np.abs(selected.inclusion_ - other.inclusion_)
    assert ax.get_title(loc="left") == f"largest difference {difference.max():.2g} ({NAMES[difference.argmax()]})"
    np.testing.assert_array_equal(*ax.lines[0].get_data())  # the identity
    assert ax.get_xlim() == ax.get_ylim()


def test_agreement_of_coefficients(drawn, mode, data):
    ax = plots.agreement(drawn, mode)
    sd = data[0].std(ddof=0).to_numpy()
    np.testing.assert_allclose(
        ax.collections[0].get_offsets(), np.column_stack((drawn.coef_[0], mode.coef_[0])) * sd[:, None]
    )
    assert "one sd of the column, first fit" in ax.get_xlabel()
    far = fitted(data, Ridge(scale=30.0), "map")
    assert "strong" in {text.get_text() for text in plots.agreement(drawn, far).texts}


def test_agreement_of_the_chains_of_one_fit(selected, drawn, data):
    ax = plots.agreement(selected)
    for k, points in enumerate(ax.collections[1:]):
        np.testing.assert_allclose(
            points.get_offsets(), np.column_stack((selected.inclusion_, selected.chain_inclusion_[k]))
        )
    worst = selected.summary()["inclusion_range"]
    assert ax.get_title(loc="left") == f"largest difference {worst.max():.2g} ({worst.idxmax()})"
    coef, _ = drawn.posterior_.columns.to_user(drawn.posterior_.all_coefficients())
    means = coef.mean(axis=1) * data[0].std(ddof=0).to_numpy()
    chains = plots.agreement(drawn).collections[1:]
    np.testing.assert_allclose([points.get_offsets()[:, 1] for points in chains], means)


def test_agreement_refuses(selected, mode, data):
    with pytest.raises(ValueError, match="needs chains"):
        plots.agreement(mode)
    fewer = fitted((data[0][NAMES[:2]], data[1]), Lasso(scale=1.0), "map")
    with pytest.raises(ValueError, match="same columns"):
        plots.agreement(selected, fewer)


def test_missing_matplotlib_names_the_extra(selected, drawn, route, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (
        lambda: plots.inclusion(selected),
        lambda: plots.path(route),
        lambda: plots.traces(drawn),
        lambda: plots.agreement(selected),
    ):
        with pytest.raises(ImportError, match=r"needs matplotlib: pip install 'softmargin\[plot\]'"):
            draw()
