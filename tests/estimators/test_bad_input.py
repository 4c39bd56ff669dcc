"""Bad input gets one clear sentence and changes nothing; awkward input gets an answer."""

from __future__ import annotations

import warnings
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from softmargin import BayesianKernelRegressor, BayesianSVC, BayesianSVR, plots
from softmargin.exceptions import DataWarning
from softmargin.priors import HalfCauchy, InverseGamma, Ridge

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = np.where(X[:, 0] + rng.normal(size=60) > 0, "b", "a")
FRAME = pd.DataFrame(X, columns=["age", "dose", "size", "time"])
INFERENCES = ["map", "vb", "meanfield", "gibbs"]


def with_value(row, column, value):
    frame = FRAME.copy()
    frame.loc[row, column] = value
    return frame


CASES = {
    "one class": ({}, X, ["a"] * 60, None, "at least two classes in y; got 1 class"),
    "no rows": ({}, np.zeros((0, 3)), [], None, "0 sample"),
    "no columns": ({}, np.zeros((4, 0)), Y[:4], None, "0 feature"),
    "nan": ({}, FRAME.assign(dose=np.nan), Y, None, "column dose of X has no observed value; drop it"),
    "labels": ({}, X, [None, *Y[1:]], None, "the label of 1 row is missing; drop"),
    "numbers": ({}, X, np.where(np.arange(60) < 2, np.nan, Y == "a"), None, "the label of 2 rows is missing; drop"),
    "text labels": ({}, X, pd.Series([pd.NA, *Y[1:]], dtype="string"), None, "the label of 1 row is missing"),
    "inf": ({}, with_value(3, "size", np.inf), Y, None, "infinity in column size; look for a logarithm of zero"),
    "dates": ({}, FRAME.assign(when=pd.Timestamp("2020")), Y, None, "column when of X holds dates; make numbers"),
    "times": ({}, FRAME.assign(gone=pd.Timedelta("1D")), Y, None, "column gone of X holds durations; make numbers"),
    "mask": ({}, np.ma.masked_greater(FRAME.to_numpy(float), 1.0), Y, None, "X is a masked array, whose mask"),
    "array of dates": ({}, np.full((60, 1), np.datetime64("2020")), Y, None, "X holds dates; make numbers of them"),
    "text": ({}, FRAME.assign(dose="high"), Y, None, "column dose of X cannot be read as numbers"),
    "lengths": ({}, X, Y[:50], None, "inconsistent numbers of samples"),
    "weight length": ({}, X, Y, np.ones(50), "sample_weight"),
    "negative weight": ({}, X, Y, -np.ones(60), "Negative values"),
    "class without weight": ({}, X, Y, (Y == "a") * 1.0, "all rows of class 'b' have zero sample_weight"),
    "continuous": ({}, X, X[:, 1], None, "continuous"),
    "prior": ({"prior": "ridgee"}, X, Y, None, "unknown prior 'ridgee'; choose one of 'ridge', 'lasso'"),
    "prior object": ({"prior": 3.0}, X, Y, None, "or a prior object; got 3.0"),
    "inference": ({"inference": "vi"}, X, Y, None, "unknown inference 'vi'; choose one of 'map', 'vb'"),
    "solver": ({"solver": "lu"}, X, Y, None, "unknown solver 'lu'; choose one of 'auto', 'cholesky', 'dual'"),
    "probability": ({"probability": True}, X, Y, None, "unknown probability True"),
    "likelihood": ({"likelihood": "cauchy"}, X, Y, None, "unknown likelihood 'cauchy'"),
    "rate": ({"learning_rate": 0.0}, X, Y, None, "learning_rate must be a positive number or 'auto'; got 0.0"),
    "rate of an array": ({"learning_rate": np.ones(1)}, X, Y, None, r"'auto'; got array\(\[1\.\]\)"),
    "rate of a truth": ({"learning_rate": True}, X, Y, None, "'auto'; got True"),
    "chains": ({"chains": 0}, X, Y, None, "chains must be an integer of at least 1; got 0"),
    "tol": ({"tol": -1.0}, X, Y, None, "tol must be a positive number"),
    "options": ({"engine_options": {"steps": 3}}, X, Y, None, r"unknown engine_options \['steps'\]"),
    "class weight": ({"class_weight": {"z": 2.0}}, X, Y, None, r"names classes \['z'\] that are not in y"),
    "half-Cauchy mode": (
        {"inference": "map", "prior": Ridge(hyperprior=HalfCauchy()), "engine_options": {"starts": (1.0,)}}, X, Y, None,
        "degenerates at zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_nothing_changed(case):
    parameters, data, y, weight, message = CASES[case]
    model = BayesianSVC().fit(FRAME, Y)
    before = {key: value for key, value in vars(model).items() if key.endswith("_")}
    data_before = data.copy()
    model.set_params(**parameters)
    with pytest.raises(ValueError, match=message) as error:
        model.fit(data, y, sample_weight=weight)
    assert "\n" not in str(error.value).strip() or case in ("no rows", "no columns")
    after = {key: value for key, value in vars(model).items() if key.endswith("_")}
    assert after.keys() == before.keys() and all(after[key] is before[key] for key in before)
    pd.testing.assert_frame_equal(pd.DataFrame(data), pd.DataFrame(data_before))


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "auto"])
def test_prior_scale_is_checked(value):
    with pytest.raises(ValueError, match="scale must be a positive number or 'learn'"):
        Ridge(scale=value)


def test_hyperprior_is_checked():
    with pytest.raises(ValueError, match="a > 0 and b > 0"):
        InverseGamma(0.0, 1.0)


def test_prediction_input_is_checked():
    with pytest.raises(NotFittedError):
        BayesianSVC().predict(X)
    model = BayesianSVC().fit(FRAME, Y)
    with pytest.raises(ValueError, match="feature"):
        model.predict(FRAME.iloc[:, :2])
    with pytest.raises(ValueError, match="NaN in column dose"):
        model.predict(with_value(0, "dose", np.nan))


def test_a_point_has_no_spread():
    model = BayesianSVC(inference="map").fit(X, Y)
    for call in (lambda: model.decision_function(X, return_std=True), lambda: model.sample(X), model.to_arviz):
        with pytest.raises(ValueError, match="inference='map' gives a point; fit with inference='vb' or 'gibbs'"):
            call()
    assert list(model.summary().columns) == ["mean"]


def quiet_fit(inference, X, y, **kwargs):
    weight = kwargs.pop("sample_weight", None)
    model = BayesianSVC(inference=inference, draws=60, warmup=60, chains=2, random_state=0, **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y, sample_weight=weight)
    p = model.predict_proba(X)
    assert np.isfinite(p).all() and (p >= 0).all() and np.isfinite(model.coef_).all()
    return model


@pytest.mark.parametrize("inference", INFERENCES)
class TestAwkwardInput:
    def test_constant_columns(self, inference):
        wide = np.column_stack([X, np.full(60, 7.3), np.zeros(60)])
        model = quiet_fit(inference, wide, Y)
        plain = quiet_fit(inference, X, Y)
        assert (model.coef_[0, 4:] == 0).all()
        np.testing.assert_array_equal(model.coef_[0, :4], plain.coef_[0])

    def test_only_constant_columns(self, inference):
        assert (quiet_fit(inference, np.ones((60, 2)), Y).coef_ == 0).all()

    def test_duplicated_columns(self, inference):
        model = quiet_fit(inference, np.column_stack([X, X]), Y)
        if inference != "gibbs":
            np.testing.assert_allclose(model.coef_[0, :4], model.coef_[0, 4:], rtol=1e-5, atol=1e-8)
        assert model.score(np.column_stack([X, X]), Y) > 0.65

    def test_separable_with_learned_scale(self, inference):
        y = np.sign(X[:, 0])
        assert quiet_fit(inference, X, y).score(X, y) == 1.0

    def test_two_rows(self, inference):
        model = quiet_fit(inference, X[:2], [0, 1])
        below, above = model.decision_function(X[:2])
        assert below < above
        if inference != "gibbs":  # two rows hardly say where the boundary is, and few draws place it anywhere
            assert model.score(X[:2], [0, 1]) == 1.0

    def test_many_more_columns_than_rows(self, inference):
        wide = np.random.default_rng(1).normal(size=(20, 5000))
        y = np.sign(wide[:, 0])
        wide += 0.3 * y[:, None]
        model = quiet_fit(inference, wide, y)
        assert model.score(wide, y) == 1.0 and model.loo_.error == 0.0

    def test_units_do_not_matter(self, inference):
        units = 2.0 ** np.array([-40, 40, 0, -10])  # exact, or rounding would grow along a chain
        model, plain = quiet_fit(inference, X * units, Y), quiet_fit(inference, X, Y)
        np.testing.assert_allclose(model.coef_[0] * units, plain.coef_[0], rtol=1e-4, atol=1e-6)

    def test_far_from_zero(self, inference):
        model, plain = quiet_fit(inference, X + 1e6, Y), quiet_fit(inference, X, Y)
        if inference == "gibbs":  # rounding grows along a chain: only the distribution is the same
            assert (model.predict(X + 1e6) == plain.predict(X)).mean() > 0.9
        else:
            np.testing.assert_allclose(model.coef_[0], plain.coef_[0], rtol=1e-2, atol=1e-3)

    @pytest.mark.parametrize("heavy", [1e6, 1e-6])
    def test_extreme_weights(self, inference, heavy):
        model = quiet_fit(inference, X, Y, sample_weight=np.where(Y == "a", heavy, 1.0))
        assert set(model.predict(X)) == {"a" if heavy > 1 else "b"}

    def test_a_handful_of_distinct_rows(self, inference):
        few = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        index = np.random.default_rng(2).integers(0, 4, size=400)
        y = np.where(np.random.default_rng(3).random(400) < np.array([0.1, 0.4, 0.6, 0.9])[index], 1, 0)
        model = quiet_fit(inference, few[index], y)
        assert model.score(few[index], y) > 0.7


def test_constant_columns_are_named():
    with pytest.warns(DataWarning, match=r"1 constant column\(s\) .* coefficient 0: dull"):
        BayesianSVC().fit(FRAME.assign(dull=1.0), Y)


def test_one_convergence_warning_with_the_number():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BayesianSVC(max_iter=2, tol=1e-12, learning_rate=1.0).fit(X, Y)
    messages = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert len(messages) == 1 and "after 2 iterations" in messages[0] and "raise max_iter" in messages[0]


def test_nullable_booleans_are_booleans():
    model = BayesianSVC().fit(X, pd.array(Y == "a", dtype="boolean"))
    assert model.classes_.dtype == bool and model.predict(X[:2]).dtype == bool
    assert BayesianSVC().fit(X, pd.array(Y == "a", dtype="Int64")).classes_.dtype == np.int64


@pytest.mark.parametrize("estimator", [BayesianSVC, BayesianSVR])
def test_missing_values_that_no_training_row_had_ask_for_another_fit(estimator):
    model = estimator().fit(FRAME, (Y == "a") * 1)
    with pytest.raises(
        ValueError, match=r"NaN in column size; .* complete rows: refit with missing values in the data"
    ):
        model.predict(with_value(3, "size", np.nan))


@pytest.mark.parametrize("estimator", [BayesianSVC, BayesianSVR])
def test_sparse_rows_with_missing_values_are_told_what_works(estimator):
    with pytest.raises(ValueError, match=r"NaN in columns 0, 1, 2, 3; .* give dense columns, X\.toarray\(\)"):
        estimator().fit(csr_array(np.where(X > 1.0, np.nan, X)), (Y == "a") * 1)


@pytest.mark.parametrize("estimator", [BayesianSVC, BayesianSVR])
def test_dates_in_new_rows_are_refused_as_in_the_fit(estimator):
    model = estimator().fit(FRAME, (Y == "a") * 1)
    with pytest.raises(ValueError, match=f"column {FRAME.columns[0]} of X holds dates"):
        model.predict(FRAME.assign(**{FRAME.columns[0]: pd.Timestamp("2020")}))


def test_all_intervals_have_one_level_unless_told():
    intervals = [BayesianSVC.summary, BayesianSVR.summary, BayesianSVR.predict_interval]
    intervals += [BayesianKernelRegressor.predict_interval, plots.coefficients]
    assert {signature(method).parameters["level"].default for method in intervals} == {0.95}
