"""The regressor: the contract of scikit-learn, units, weights, agreement of engines, coverage and error."""

from __future__ import annotations

import doctest
import math
import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from softmargin.estimators import svr
from softmargin.estimators.svr import BayesianSVR
from softmargin.inference.regression_readout import half_widths
from softmargin.losses import EpsilonInsensitive, Squared
from softmargin.priors import Horseshoe, Ridge, SpikeSlab

SHORT = {"inference": "gibbs", "draws": 20, "warmup": 20, "chains": 2, "random_state": 0}
REASONS = {
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 and two rows have the same posterior, but a "
    "chain draws one latent for the one and two for the other, so finite chains differ by Monte Carlo error",
    "check_sample_weight_equivalence_on_sparse_data": "as for dense data",
}
ESTIMATORS = [
    BayesianSVR(),
    BayesianSVR(inference="map", epsilon=0.1),
    BayesianSVR(**SHORT),
]
BAND = "epsilon-insensitive"


@parametrize_with_checks(ESTIMATORS[:1])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
@pytest.mark.filterwarnings("ignore::softmargin.exceptions.ModelWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks(
    ESTIMATORS[1:], expected_failed_checks=lambda estimator: REASONS if estimator.inference == "gibbs" else {}
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*constant column.*:UserWarning")
@pytest.mark.filterwarnings("ignore::softmargin.exceptions.ModelWarning")
def test_estimator_checks_of_other_engines(estimator, check):
    check(estimator)


def simulated(noise, n=300, p=5, seed=0):
    """Columns and response of unlike units; ``noise(rng, n)`` draws the errors."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.geomspace(0.01, 50.0, p) + 3.0
    f = (X - 3.0) / np.geomspace(0.01, 50.0, p) @ np.linspace(0.8, -0.4, p)
    return X, 120.0 + 30.0 * (f + noise(rng, n))


def normal(rng, n):
    return 0.6 * rng.standard_normal(n)


def laplace(rng, n):
    return 0.5 * rng.laplace(size=n)


@pytest.fixture(scope="module")
def data():
    return simulated(normal)


@pytest.mark.parametrize("prior", ["ridge", "lasso", "bridge", "horseshoe"])
def test_engines_and_priors_agree(prior, data):
    """Means of all engines lie within a fraction of a standard deviation; mean field is narrower than the others."""
    X, y = data
    options = {"prior": prior, "epsilon": 0.2, "random_state": 1}
    exact = BayesianSVR(inference="gibbs", draws=800, warmup=150, chains=1, **options).fit(X, y)
    table = exact.summary()
    for inference in ("vb", "meanfield") if prior == "horseshoe" else ("vb", "meanfield", "map"):
        other = BayesianSVR(inference=inference, **options).fit(X, y).summary()
        limit = 0.35 if inference == "vb" else 1.5
        assert (np.abs(other["mean"] - table["mean"]) / table["sd"]).max() < limit
        if inference == "vb":
            ratio = other["sd"] / table["sd"]
            assert ratio.min() > 0.85 and ratio.max() < 1.15
        if inference == "meanfield":
            assert (other["sd"] / table["sd"]).max() < 0.8
    vb = BayesianSVR(**options).fit(X, y)
    assert vb.noise_ == pytest.approx(exact.noise_, rel=0.03)
    assert vb.epsilon_ == pytest.approx(0.2 * y.std()) and exact.epsilon_ == pytest.approx(0.2 * y.std())


def test_squared_loss_is_conjugate(data):
    """Fixed noise, fixed scale: the posterior is the textbook one, on the user's scale."""
    X, y = data
    model = BayesianSVR(Ridge(scale=0.4), likelihood="squared", noise=0.7).fit(X, y)
    Z, r = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    A = np.column_stack((np.ones(len(y)), Z))
    precision = A.T @ A / 0.49 + np.diag([1e-8] + [0.4**-2] * 5)
    covariance = np.linalg.inv(precision)
    mean = covariance @ A.T @ r / 0.49
    np.testing.assert_allclose(model.coef_[0], mean[1:] * y.std() / X.std(axis=0), rtol=1e-8)
    np.testing.assert_allclose(
        model.summary()["sd"].iloc[1:], np.sqrt(np.diag(covariance)[1:]) * y.std() / X.std(axis=0), rtol=1e-8
    )
    f, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(f, y.mean() + y.std() * (A @ mean), rtol=1e-8)
    np.testing.assert_allclose(sd, y.std() * np.sqrt(np.einsum("ij,jk,ik->i", A, covariance, A)), rtol=1e-8)
    total = np.sqrt(sd**2 + (0.7 * y.std()) ** 2)
    interval = model.predict_interval(X, 0.9)
    np.testing.assert_allclose(interval[:, 1] - f, 1.6448536 * total, rtol=1e-5)
    np.testing.assert_allclose(interval.mean(axis=1), f, rtol=1e-12)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_units_do_not_matter(inference, data):
    X, y = data
    one = BayesianSVR(inference=inference, likelihood=BAND, tol=1e-9).fit(X, y)
    two = BayesianSVR(inference=inference, likelihood=BAND, tol=1e-9).fit(1e3 * X - 7.0, 0.01 * y + 5.0)
    np.testing.assert_allclose(0.01 * one.predict(X) + 5.0, two.predict(1e3 * X - 7.0), rtol=1e-5)
    np.testing.assert_allclose(1e-5 * one.coef_, two.coef_, rtol=1e-3)
    assert two.noise_ == pytest.approx(0.01 * one.noise_, rel=1e-3)
    assert two.epsilon_ == pytest.approx(0.01 * one.epsilon_, rel=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_without_standardizing(unit):
    """Columns and y as given, of any size: scale, noise and epsilon are then in the units of the data."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    y = unit * (X @ [1.0, -0.5, 0.0] + 0.4 * rng.standard_normal(150))
    model = BayesianSVR(Ridge(scale=unit), likelihood="squared", standardize=False).fit(X, y)
    assert model.noise_ == pytest.approx(0.4 * unit, rel=0.15)
    assert model.scale_ == pytest.approx(unit)
    np.testing.assert_allclose(model.coef_[0] / unit, [1.0, -0.5, 0.0], atol=0.15)
    prior = Ridge(scale=unit, intercept_scale=1e4 * unit)
    learned = BayesianSVR(prior, likelihood=BAND, standardize=False).fit(X, y)
    assert learned.epsilon_ == pytest.approx(
        BayesianSVR(Ridge(scale=1.0), likelihood=BAND, standardize=True).fit(X, y).epsilon_, rel=0.1
    )
    fixed = BayesianSVR(Ridge(scale=unit), epsilon=0.3 * unit, noise=0.2 * unit, standardize=False).fit(X, y)
    assert (fixed.epsilon_, fixed.noise_) == (pytest.approx(0.3 * unit), pytest.approx(0.2 * unit))


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
def test_weights_are_counts_and_sparse_is_dense(inference, data):
    X, y = data
    X = np.where(np.median(X, axis=0) < X, X, 0.0)
    times = np.arange(len(y)) % 3
    options = {"inference": inference, "epsilon": 0.1, "tol": 1e-10, "prior": Ridge(scale=0.5), "standardize": True}
    weighted = BayesianSVR(**options).fit(X, y, sample_weight=times.astype(float))
    repeated = BayesianSVR(**options).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4)
    assert weighted.noise_ == pytest.approx(repeated.noise_, rel=1e-4)
    sparse = BayesianSVR(**options).fit(sp.csr_matrix(X), y, sample_weight=times.astype(float))
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), weighted.predict(X), rtol=1e-5)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 80))
    y = X[:, 0] + 0.3 * rng.standard_normal(30)
    dual, plain = (
        BayesianSVR(Ridge(scale=0.1), epsilon=0.1, solver=name, tol=1e-10).fit(X, y) for name in ("auto", "cholesky")
    )
    np.testing.assert_allclose(dual.predict(X), plain.predict(X), rtol=1e-4)
    np.testing.assert_allclose(dual.predict(X, return_std=True)[1], plain.predict(X, return_std=True)[1], rtol=1e-3)
    assert np.isfinite(BayesianSVR().fit(X, y).predict_interval(X)).all()


def test_half_widths_by_simulation():
    """P(|f + e| <= h) = level, with f normal and e from either density, to 4 standard errors."""
    rng, n = np.random.default_rng(0), 200_000
    for loss, levels in ((Squared(), [0.5, 0.9]), (EpsilonInsensitive(0.4), [0.3, 1.1])):
        v = np.array([0.0, 0.09, 1.44])
        h = half_widths(0.8, v, np.array(levels), (loss,) * 2)
        assert (np.diff(h) > 0).all()
        nu = rng.choice(levels, size=n)
        if isinstance(loss, Squared):
            e = nu * rng.standard_normal(n)
        else:
            size = np.where(
                rng.random(n) < 0.8 / (0.8 + nu), 0.4 * rng.random(n), 0.4 + 0.5 * nu * rng.standard_exponential(n)
            )
            e = size * np.where(rng.random(n) < 0.5, 1.0, -1.0)
        for variance, half in zip(v, h, strict=True):
            inside = np.abs(math.sqrt(variance) * rng.standard_normal(n) + e) <= half
            assert abs(inside.mean() - 0.8) < 4.0 * math.sqrt(0.16 / n)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [normal, laplace])
def test_intervals_cover_simulated_data(noise):
    """90 % intervals cover 87 to 93 % of new rows, for errors of either shape."""
    hits = []
    for seed in range(15):
        X, y = simulated(noise, n=350, seed=seed)
        interval = BayesianSVR().fit(X[:200], y[:200]).predict_interval(X[200:], level=0.9)
        hits.append((interval[:, 0] < y[200:]) & (y[200:] < interval[:, 1]))
    assert 0.87 < np.mean(hits) < 0.93


@pytest.mark.slow
def test_diabetes():
    """Twenty splits: 90 % intervals cover 87 to 93 %; the error is not above that of a linear SVR.

    The SVR has the best of nine settings, chosen with the test rows; ours sees them once.
    """
    X, y = load_diabetes(return_X_y=True)
    ours, theirs, hits = [], {}, []
    for train, test in ShuffleSplit(20, test_size=0.3, random_state=0).split(X):
        model = BayesianSVR().fit(X[train], y[train])
        interval = model.predict_interval(X[test], level=0.9)
        hits.append((interval[:, 0] < y[test]) & (y[test] < interval[:, 1]))
        ours.append(np.mean((model.predict(X[test]) - y[test]) ** 2))
        for C, epsilon in product((1.0, 3.0, 10.0), (10.0, 30.0, 50.0)):
            other = make_pipeline(StandardScaler(), SVR(kernel="linear", C=C, epsilon=epsilon)).fit(X[train], y[train])
            theirs.setdefault((C, epsilon), []).append(np.mean((other.predict(X[test]) - y[test]) ** 2))
    assert 0.87 < np.mean(hits) < 0.93
    assert np.mean(ours) <= 1.01 * min(np.mean(errors) for errors in theirs.values())


@pytest.mark.filterwarnings("ignore:the chains disagree:sklearn.exceptions.ConvergenceWarning")
def test_results_have_names_and_round_trip(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = BayesianSVR(likelihood=BAND, **(SHORT | {"draws": 50})).fit(frame, y)
    assert list(model.summary().index) == ["Intercept", *"abcde"]
    assert {"mean", "sd", "lower", "upper", "prob_positive", "ess", "r_hat"} <= set(model.summary().columns)
    posterior = model.to_arviz()["posterior"]
    assert posterior["coef"].shape == (2, 50, 5)
    assert float(np.exp(np.log(posterior["noise"]).mean())) == pytest.approx(model.noise_, rel=0.02)
    assert float(posterior["epsilon"].mean()) == pytest.approx(model.epsilon_, rel=0.05)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_interval(frame), model.predict_interval(frame))
    again = clone(model).fit(frame, y)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    draws = model.sample(frame.iloc[:4], n=60)
    np.testing.assert_allclose(draws.mean(axis=1), model.predict(frame.iloc[:4]), atol=8.0)
    jobs = clone(model).set_params(n_jobs=2).fit(frame, y)
    np.testing.assert_array_equal(jobs.predict(frame), model.predict(frame))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must be a number of at least 0 or 'learn'"),
        ({"noise": 0.0}, "noise must be a positive number or 'learn'"),
        ({"likelihood": "hinge"}, "unknown likelihood 'hinge'"),
        ({"inference": "newton"}, "unknown inference"),
        ({"prior": SpikeSlab()}, "a spike-and-slab prior needs draws: use inference='gibbs'"),
        ({"prior": "spike-slab", "inference": "map"}, "a spike-and-slab prior needs draws: use inference='gibbs'"),
        ({"prior": "spike-slab", "inference": "hmc"}, "a prior with point masses has draws of its own: use"),
        ({"prior": "laplace-zero", "inference": "map"}, "no mode away from zero; use inference='vb' or 'gibbs'"),
        ({"prior": SpikeSlab(always_include=["z"]), "inference": "gibbs"}, "always_include names column 'z'"),
        (
            {"prior": "spike-slab", "inference": "gibbs", "engine_options": {"ladder": (0.5,)}},
            "unknown engine_options",
        ),
        ({"prior": Horseshoe(), "inference": "map"}, "no mode away from zero"),
        ({"engine_options": {"speed": 1}}, "unknown engine_options"),
        ({"draws": 1}, "draws must be an integer of at least 2"),
    ],
)
def test_bad_parameters(options, message, data):
    with pytest.raises(ValueError, match=message):
        BayesianSVR(**options).fit(*data)


def test_a_failed_fit_leaves_the_model_as_it_was(data):
    X, y = data
    model = BayesianSVR().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(X > 3.0, np.inf, X), y)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.predict_interval(X, level=90)
    with pytest.raises(ValueError, match="needs a posterior, and inference='map' gives a point"):
        BayesianSVR(inference="map").fit(X, y).predict(X, return_std=True)


def test_a_warning_points_at_the_line_that_called_fit(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="vb did not converge: .* after 1 iterations") as caught:
        BayesianSVR(max_iter=1, tol=1e-12).fit(X, y)
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize("options", [{"likelihood": "squared"}, {"epsilon": 0.1}, {}])
def test_a_constant_response(options, data):
    """Nothing to explain: the prediction is the constant, and nothing is infinite."""
    X = data[0][:40]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BayesianSVR(**options).fit(X, np.full(40, 4.0))
    np.testing.assert_allclose(model.predict(X), 4.0, atol=1e-3)
    assert np.isfinite(model.predict_interval(X)).all()


def test_examples_run():
    result = doctest.testmod(svr)
    assert result.attempted >= 5 and result.failed == 0
