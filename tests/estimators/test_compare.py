"""Models of the same rows, compared by how they predict rows that are left out."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import softmargin
from softmargin import BayesianKernelRegressor, BayesianSVC, BayesianSVR, Formula, compare
from softmargin.priors import Ridge


def problem(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    f = X @ [2.0, -1.0, 0.5]
    return X, f, (f + rng.logistic(size=n) > 0).astype(int), f + 0.5 * rng.normal(size=n)


def test_scores_and_differences_are_those_of_left_out_rows():
    X, _, y, _ = problem()
    weight = np.arange(len(y)) % 3.0  # some rows not at all, some twice
    fits = {"a": BayesianSVC().fit(X, y, weight), "b": BayesianSVC(likelihood="logit").fit(X[:, :1], y, weight)}
    table = compare(fits)
    used = weight > 0
    losses = {name: -np.log(model.loo_probability_[np.arange(len(y)), y][used]) for name, model in fits.items()}
    assert list(table.index) == ["a", "b"] and table["rows"].tolist() == [40, 40]
    total = weight.sum()
    for name, loss in losses.items():
        assert table.loc[name, "log_loss"] == pytest.approx(fits[name].loo_.score, rel=1e-10)
        difference = loss - losses["a"]
        mean = weight[used] @ difference / total
        assert table.loc[name, "difference"] == pytest.approx(mean, abs=1e-12)
        square = weight[used] @ (difference - mean) ** 2
        assert table.loc[name, "se_difference"] == pytest.approx(np.sqrt(square) / total, abs=1e-12)
    assert table.loc["b", "se_difference"] < table.loc["b", "se"]


def test_regressions_compare_by_their_left_out_density_in_units_of_y():
    X, _, _, y = problem()
    table = compare({"line": BayesianSVR().fit(X, 10.0 * y), "curve": BayesianKernelRegressor().fit(X, 10.0 * y)})
    assert table.loc["line", "log_loss"] == pytest.approx(-BayesianSVR().fit(X, 10.0 * y).loo_.log_density, rel=1e-9)
    exact = BayesianSVR(Ridge(2.0), likelihood="squared", noise=5.0, standardize=False, fit_intercept=False)
    model = exact.fit(X, 10.0 * y)
    left_out = []  # of a normal model every refit has a closed form
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        A = X[others].T @ X[others] / 25.0 + np.eye(3) / 4.0
        mean = X[i] @ np.linalg.solve(A, X[others].T @ (10.0 * y)[others]) / 25.0
        variance = 25.0 + X[i] @ np.linalg.solve(A, X[i])
        left_out.append(0.5 * np.log(2.0 * np.pi * variance) + 0.5 * (10.0 * y[i] - mean) ** 2 / variance)
    assert compare({"exact": model}).loc["exact", "log_loss"] == pytest.approx(np.mean(left_out), rel=1e-6)


def test_many_classes_formulas_pipelines_and_saved_models_compare(tmp_path):
    X, f, _, _ = problem()
    y = np.digitize(f, [-1.0, 1.0])
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y)
    pairs = BayesianSVC().fit(X, y)
    softmargin.save(pairs, tmp_path / "pairs")
    models = {
        "pairs": softmargin.load(tmp_path / "pairs"),
        "joint": make_pipeline(StandardScaler(), BayesianSVC(multi_class="sum-to-zero")).fit(X, y),
        "formula": Formula("y ~ a", BayesianSVC()).fit(frame),
    }
    table = compare(models)
    assert table.loc["pairs", "log_loss"] == pytest.approx(pairs.loo_.score, rel=1e-10)
    assert table.index[-1] == "formula" and table["difference"].iloc[0] == 0.0


def test_models_of_other_rows_are_refused_in_a_sentence():
    X, _, y, quantity = problem()
    model = BayesianSVC().fit(X, y)
    others = {
        "60 and 50 rows": BayesianSVC().fit(X[:50], y[:50]),
        r"other responses: 2 of 60 differ, the first in row \d+": BayesianSVC().fit(X, _swapped(y)),
        "other classes": BayesianSVC().fit(X, y + 1),
        "count differently": BayesianSVC().fit(X, y, np.where(np.arange(60) == 3, 2.0, 1.0)),
        "a classifier and a regression": BayesianSVR().fit(X, quantity),
        "takes fitted models of this package": StandardScaler().fit(X),
    }
    for sentence, other in others.items():
        with pytest.raises(ValueError, match=sentence):
            compare({"one": model, "other": other})
    with pytest.raises(ValueError, match="must be a dict"):
        compare([model])


def _swapped(y):
    """The same with one row of each class exchanged."""
    y = y.copy()
    one, zero = np.flatnonzero(y == 1)[0], np.flatnonzero(y == 0)[0]
    y[[one, zero]] = y[[zero, one]]
    return y
