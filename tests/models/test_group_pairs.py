"""Pairs of classes whose rows lack something that the data have: a pair is fitted as two classes without it."""

import warnings

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVC, RandomEffect, Smooth
from softmargin.priors import HalfTCovariance


def rows(n=150, seed=0):
    """Three classes; among the first two, z is constant and all rows are of one ward."""
    rng = np.random.default_rng(seed)
    y = np.repeat(["a", "b", "c"], n // 3)
    last = y == "c"
    X = pd.DataFrame({"x": rng.normal(size=n) + (y == "b"), "z": np.where(last, rng.normal(size=n), 1.0)})
    return X.assign(g=rng.integers(0, 5, n), ward=np.where(last, rng.integers(0, 4, n), 0)), y


def machine(effects, inference="vb"):
    lengths = {"draws": 40, "warmup": 20, "chains": 1, "random_state": 0, "tol": 1e-9}
    return BayesianSVC(random_effects=effects, inference=inference, learning_rate=0.5, **lengths)


def quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains, constant columns
        return model.fit(X, y)


# effects of the data and of the pair, and the columns that each of these fits has
CASES = {
    "slope": ([RandomEffect("g", ["z"], "diagonal")], ["g"], ["x", "z", "g"], ["x", "z", "g"]),
    "correlated": ([RandomEffect("g", ["z"], hyperprior=HalfTCovariance())], ["g"], ["x", "z", "g"], ["x", "z", "g"]),
    "some slopes": ([RandomEffect("g", ["z", "x"])], [RandomEffect("g", ["x"])], ["x", "z", "g"], ["x", "z", "g"]),
    "curve": ([Smooth("z"), "g"], ["g"], ["x", "z", "g"], ["x", "z", "g"]),
    "slope alone": (
        [RandomEffect("g", ["z"], intercept=False), "ward"], ["ward"], ["x", "z", "g", "ward"], ["x", "z", "ward"],
    ),
    "one group": (["ward"], ["ward"], ["x", "z", "ward"], ["x", "z", "ward"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_pair_is_fitted_without_what_it_lacks(case):
    """The model of the first pair against two classes with the effects that are left."""
    effects, left, columns, kept = CASES[case]
    X, y = rows()
    model = quiet(machine(effects), X[columns], y)
    two = y != "c"
    alone = quiet(machine(left), X.loc[two, kept], y[two])
    pair = model._fitted.parts[0]
    np.testing.assert_allclose(pair.fit.posterior.mean, alone._fitted.fit.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(pair.positive(model._checked(X[columns]), "calibrated"),
                               alone.predict_proba(X[kept])[:, 1], atol=1e-5)  # fmt: skip
    p = model.predict_proba(X[columns])
    assert np.isfinite(p).all() and model.score(X[columns], y) > 0.6
    for name, table in alone.random_effects_.items():
        np.testing.assert_allclose(model.random_effects_[0][name]["mean"], table["mean"], atol=1e-5)


@pytest.mark.parametrize("inference", ["map", "meanfield", "gibbs", "hmc"])
def test_every_inference_fits_such_pairs(inference):
    X, y = rows()
    effects = [RandomEffect("g", ["z"], intercept=False), Smooth("z"), "ward"]
    model = quiet(machine(effects, inference), X, y)
    assert np.isfinite(model.predict_proba(X.assign(g=9))).all()
    table = model.random_effects_[0]["g"]
    assert (table == 0.0).all(axis=None)  # slopes of a column that is constant there
    assert model.variance_components_[0].loc[("g", "z"), "sd"] == 0.0
    assert model.variance_components_[1].loc[("g", "z"), "sd"] > 0.0


@pytest.mark.parametrize("effects", [None, ["g"]])
def test_a_column_without_any_value_in_a_pair(effects):
    X, y = rows()
    holes = X[["x", "z", "g"] if effects else ["x", "z"]].copy()
    holes.loc[y != "c", "z"] = np.nan
    holes.loc[::9, "x"] = np.nan
    model = quiet(machine(effects), holes, y)
    assert (model.coef_[0, 1] == 0.0) and (model.coef_[1:, 1] != 0.0).all()
    alone = quiet(machine(effects), holes[y != "c"].drop(columns="z"), y[y != "c"])
    np.testing.assert_allclose(model.coef_[0, 0], alone.coef_[0, 0], atol=1e-6)
    assert np.isfinite(model.predict_proba(holes)).all()


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (RandomEffect("g", ["z"]), "the column 'z' is constant; leave it out of the slopes of 'g'"),
        (Smooth("z"), r"'s\(z\)' needs at least 4 distinct values; the column 'z' has 1"),
    ],
)
def test_what_all_rows_lack_is_an_error(effect, words):
    X, y = rows()
    with pytest.raises(ValueError, match=words), pytest.warns(UserWarning, match="constant column"):
        machine([effect]).fit(X.assign(z=1.0)[["x", "z", "g"]], y)
