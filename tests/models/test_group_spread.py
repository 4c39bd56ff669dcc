"""Curves of columns that are unevenly spread, and how sure effects of groups are where a cell is missing."""

import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVC, Smooth
from softmargin.exceptions import DataWarning
from softmargin.inference.settings import Fit


def test_smooth_terms_of_few_values_and_of_skewed_ones():
    rng = np.random.default_rng(1)
    x = 2.0 * rng.standard_normal(300)
    y = (2.5 * np.sin(x) + rng.logistic(size=300) > 0).astype(int)
    few = pd.DataFrame({"x": np.round(x).clip(-3, 3)})  # seven values, fewer than knots
    curve = BayesianSVC(random_effects=[Smooth("x")], learning_rate=0.5).fit(few, y)
    grid = pd.DataFrame({"x": [-2.0, -1.0, 1.0, 2.0]})
    assert (np.sign(curve.decision_function(grid)) == [-1.0, -1.0, 1.0, 1.0]).all()
    skewed, logarithm = pd.DataFrame({"x": np.exp(x)}), pd.DataFrame({"x": x})
    with pytest.warns(DataWarning, match=r"'s\(x\)' can hardly bend .* take \d.* % of their range; use its logarithm"):
        poor = BayesianSVC(random_effects=[Smooth("x")], learning_rate=0.5).fit(skewed, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = BayesianSVC(random_effects=[Smooth("x")], learning_rate=0.5).fit(logarithm, y)
    assert good.loo_.score < poor.loo_.score - 0.02  # what the warning says


def test_effects_are_as_uncertain_with_a_missing_cell_as_without():
    """Both average over what the groups' standard deviation may be."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(40.0, 10.0, 240), "dose": rng.gamma(2.0, size=240)})
    X["school"] = rng.integers(0, 12, 240)
    f = 0.08 * (X["age"] - 40.0) - X["dose"] + 2.0 + 1.5 * rng.normal(size=12)[X["school"]]
    y = f + rng.logistic(size=240) > 0.0
    full = BayesianSVC(random_effects=["school"], learning_rate=0.5).fit(X, y)
    X.loc[0, "age"] = np.nan
    with patch.object(Fit, "settled", lambda fit: fit):  # keeps the state of the engine
        holes = BayesianSVC(random_effects=["school"], learning_rate=0.5).fit(X, y)
    one, other = full.random_effects_["school"], holes.random_effects_["school"]
    np.testing.assert_allclose(other["sd"], one["sd"], rtol=0.015)
    np.testing.assert_allclose(other["mean"], one["mean"], atol=0.1)
    at_one_value = holes._fitted.fit.outcome.state.inner.q.root[3:]
    assert (other["sd"] > 1.01 * np.sqrt((at_one_value**2).sum(axis=1))).all()
    sds = [model.variance_components_.loc[("school", "Intercept")] for model in (full, holes)]
    np.testing.assert_allclose(sds[1][["sd", "lower", "upper"]], sds[0][["sd", "lower", "upper"]], rtol=0.05)
