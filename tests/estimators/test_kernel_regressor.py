"""BayesianKernelRegressor: against Gaussian process formulas, other regressions and itself."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from softmargin import BayesianKernelRegressor, BayesianSVR
from softmargin.losses import Check
from softmargin.priors import Ridge

GIVEN = {"length_scale": 1.3, "scale": 2.0, "noise": 0.4, "standardize": False}
NORMAL = GIVEN | {"likelihood": "squared"}
FLAT = 1e4


def waves(n=60, seed=0, noise=0.3, p=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


def covariance(A, B, y):
    """Of f, in units of y: the intercept has a standard deviation of 10,000 spreads of y."""
    distance = ((A[:, None] - B[None]) ** 2).sum(axis=2)
    return 4.0 * np.exp(-distance / 1.3**2) + (FLAT * y.std()) ** 2


def normal_log_density(e, C):
    return -0.5 * (e @ np.linalg.solve(C, e) + np.linalg.slogdet(2.0 * np.pi * C)[1])


@pytest.fixture(scope="module")
def data():
    return waves()


@pytest.mark.parametrize("inference", ["vb", "meanfield"])
def test_normal_errors_are_gaussian_process_regression(data, inference):
    X, y = data
    model = BayesianKernelRegressor(basis="full", inference=inference, **NORMAL).fit(X, y)
    new = waves(30, 1)[0]
    across = np.linalg.solve(covariance(X, X, y) + 0.16 * np.eye(len(y)), covariance(X, new, y))
    f, sd = model.predict(new, return_std=True)
    np.testing.assert_allclose(f, y.mean() + across.T @ (y - y.mean()), atol=1e-5)
    variance = np.diag(covariance(new, new, y)) - (covariance(X, new, y) * across).sum(axis=0)
    np.testing.assert_allclose(sd**2, variance, rtol=1e-4, atol=1e-6)


def test_the_bound_is_the_evidence_where_errors_are_normal(data):
    X, y = data
    model = BayesianKernelRegressor(**NORMAL).fit(X, y)
    exact = normal_log_density(y - y.mean(), covariance(X, X, y) + 0.16 * np.eye(len(y)))
    np.testing.assert_allclose(model.trace_[-1], exact, rtol=1e-6)
    bounds = model.choices_.query("method == 'evidence bound'").score
    np.testing.assert_allclose(bounds, exact, rtol=1e-4)


def test_left_out_rows_are_those_of_refits(data):
    X, y = data
    model = BayesianKernelRegressor(**NORMAL).fit(X, y)
    K = covariance(X, X, y) + 0.16 * np.eye(len(y))
    inverse = np.linalg.inv(K)
    error = inverse @ (y - y.mean()) / inverse.diagonal()
    np.testing.assert_allclose(model.loo_.rmse, np.sqrt(np.mean(error**2)), rtol=1e-4)


def test_learned_numbers_are_those_of_the_highest_evidence():
    X, y = waves(150, 2)
    model = BayesianKernelRegressor(likelihood="squared", standardize=False).fit(X, y)
    form = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    peer = GaussianProcessRegressor(form, n_restarts_optimizer=3, random_state=0).fit(X, y - y.mean())
    best = peer.kernel_
    assert model.length_scale_ / np.sqrt(2.0) == pytest.approx(best.k1.k2.length_scale, rel=0.1)
    assert model.noise_**2 == pytest.approx(best.k2.noise_level, rel=0.1)
    new = waves(200, 3)[0]
    assert np.abs(model.predict(new) - y.mean() - peer.predict(new)).mean() < 0.02


def test_mode_is_support_vector_regression(data):
    """The penalty g'K^-1 g / (2 s^2) and the loss 2 max(|e| - epsilon, 0) / nu make C = 2 s^2 / nu."""
    X, y = data
    loss = {"likelihood": "epsilon-insensitive", "epsilon": 0.1}
    model = BayesianKernelRegressor(inference="map", max_iter=5000, **GIVEN, **loss).fit(X, y)
    peer = SVR(C=2.0 * 4.0 / 0.4, epsilon=0.1, gamma=1.3**-2, tol=1e-8).fit(X, y)
    new = waves(30, 1)[0]
    np.testing.assert_allclose(model.predict(new), peer.predict(new), atol=2e-3)


@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
def test_draws_agree_with_the_exact_posterior(data, inference):
    X, y = data
    model = BayesianKernelRegressor(inference=inference, draws=500, warmup=100, random_state=0, **NORMAL).fit(X, y)
    exact = BayesianKernelRegressor(**NORMAL).fit(X, y)
    new = waves(30, 1)[0]
    (f, sd), (mean, spread) = (each.predict(new, return_std=True) for each in (model, exact))
    assert np.abs((f - mean) / spread).max() < 4.0 / np.sqrt(300.0)
    np.testing.assert_allclose(sd, spread, rtol=0.2)


def test_linear_kernel_is_the_linear_model(data):
    X, y = data
    given = {"likelihood": "squared", "noise": 0.5, "standardize": False}
    model = BayesianKernelRegressor("linear", scale=2.0, basis="full", **given).fit(X, y)
    unit = (X**2).sum(axis=1).mean()
    peer = BayesianSVR(Ridge(2.0 / np.sqrt(unit)), **given).fit(X, y)
    for a, b in zip(model.predict(X, return_std=True), peer.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("likelihood", ["squared", "epsilon-insensitive"])
def test_points_tend_to_all_rows(likelihood):
    X, y = waves(120, 4)
    given = GIVEN | {"likelihood": likelihood, "tol": 1e-9}
    full = BayesianKernelRegressor(basis="full", **given).fit(X, y)
    new = waves(50, 5)[0]
    mean, spread = full.predict(new, return_std=True)
    gaps = []
    for points in (10, 40, 120):
        model = BayesianKernelRegressor(basis="inducing", n_inducing=points, random_state=0, **given).fit(X, y)
        f, sd = model.predict(new, return_std=True)
        gaps.append(np.abs(f - mean).max() + np.abs(sd - spread).max())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-3


def test_batches_come_close_to_all_rows():
    X, y = waves(3000, 6)
    given = {"length_scale": 1.3, "likelihood": "squared", "n_inducing": 60, "random_state": 0}
    model = BayesianKernelRegressor(inference="svi", **given).fit(X, y)
    other = BayesianKernelRegressor(basis="inducing", **given).fit(X, y)
    new = waves(200, 7)[0]
    assert np.abs(model.predict(new) - other.predict(new)).mean() < 0.02
    assert model.noise_ == pytest.approx(other.noise_, rel=0.03)
    assert model.loo_.log_density == pytest.approx(other.loo_.log_density, abs=0.02)


@pytest.mark.parametrize("basis", ["full", "inducing"])
def test_units_of_the_response_do_not_matter(basis):
    X, y = waves(100, 8)
    model = BayesianKernelRegressor(basis=basis, random_state=0).fit(X, y)
    for standardize, tol in (("auto", 1e-6), (False, 1e-3)):
        other = BayesianKernelRegressor(basis=basis, standardize=standardize, random_state=0).fit(X, 1e5 * y - 3e6)
        np.testing.assert_allclose((other.predict(X) + 3e6) / 1e5, model.predict(X), atol=tol)
        np.testing.assert_allclose(other.noise_ / 1e5, model.noise_, rtol=tol)
        np.testing.assert_allclose(other.scale_ / 1e5, model.scale_, rtol=10 * tol)


@pytest.mark.parametrize("basis", ["full", "inducing"])
def test_weights_are_repeated_rows(basis):
    """The noise is given: exact copies of a row say that there is none."""
    X, y = waves(40, 9)
    times = np.random.default_rng(0).integers(0, 4, 40)
    model = BayesianKernelRegressor(basis=basis, likelihood="squared", noise=0.3, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, 0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-9)
    assert weighted.loo_.log_density == pytest.approx(repeated.loo_.log_density)


@pytest.mark.parametrize("n", [80, 600])
@pytest.mark.parametrize("noise", [0.05, 0.5, 3.0])
def test_intervals_cover_as_they_say(n, noise):
    X, y = waves(n, 10, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noise of 3 leaves little to predict
        model = BayesianKernelRegressor(random_state=0).fit(X, y)
    new, response = waves(4000, 11, noise)
    for level in (0.5, 0.9):
        lower, upper = model.predict_interval(new, level).T
        share = np.mean((response > lower) & (response < upper))
        assert abs(share - level) < (0.12 if n == 80 else 0.05)
    assert 0.6 * noise < np.sqrt(model._fitted.noise_variance) < 1.4 * noise


def test_the_band_is_taken_where_errors_are_heavy_and_normal_errors_where_they_are_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 1))
    f = np.sin(2.0 * X[:, 0])
    heavy = BayesianKernelRegressor(random_state=0).fit(X, f + 0.3 * rng.laplace(size=300))
    normal = BayesianKernelRegressor(random_state=0).fit(X, f + 0.3 * rng.normal(size=300))
    assert (heavy.likelihood_, normal.likelihood_) == ("epsilon-insensitive", "squared")
    assert set(normal.choices_.query("taken").likelihood) == {"squared"}
    assert heavy.summary().epsilon[0] == heavy.epsilon_ < 0.3


def test_quantiles_have_their_share_of_rows_below():
    X, y = waves(400, 12)
    low, high = (BayesianKernelRegressor(likelihood=Check(q), random_state=0).fit(X, y) for q in (0.1, 0.9))
    for model, share in ((low, 0.1), (high, 0.9)):
        assert np.mean(y < model.predict(X)) == pytest.approx(share, abs=0.04)


def test_samples_have_the_moments_of_predictions(data):
    X, y = data
    model = BayesianKernelRegressor(**NORMAL).fit(X, y)
    new = waves(5, 1)[0]
    f, sd = model.predict(new, return_std=True)
    drawn = model.sample(new, 4000, random_state=0)
    assert np.abs((drawn.mean(axis=1) - f) / sd).max() < 4.0 / np.sqrt(4000.0)
    np.testing.assert_allclose(drawn.std(axis=1), sd, rtol=0.06)


def test_what_is_sampled_goes_to_arviz(data):
    pytest.importorskip("arviz")
    X, y = data
    run = {"inference": "gibbs", "draws": 20, "warmup": 20, "chains": 2, "random_state": 0}
    model = BayesianKernelRegressor(length_scale=1.3, likelihood="epsilon-insensitive", **run).fit(X, y)
    drawn = model.to_arviz().posterior
    assert {"intercept", "scale", "noise", "epsilon"} <= set(drawn)
    assert float(np.exp(np.log(drawn["noise"]).mean())) == pytest.approx(model.noise_)


def test_it_is_searched_cloned_and_pickled(data):
    X, y = data
    search = GridSearchCV(BayesianKernelRegressor(**NORMAL), {"length_scale": [0.1, 1.3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"length_scale": 1.3}
    model = search.best_estimator_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))


def test_a_precomputed_matrix_is_the_kernel(data):
    X, y = data
    new = waves(20, 1)[0]
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    across = ((new[:, None] - X[None]) ** 2).sum(axis=2)
    model = BayesianKernelRegressor("precomputed", **NORMAL).fit(np.exp(-distance / 1.3**2), y)
    other = BayesianKernelRegressor(**NORMAL).fit(X, y)
    np.testing.assert_allclose(model.predict(np.exp(-across / 1.3**2)), other.predict(new), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"basis": "active"}, "unknown basis 'active'"),
        ({"basis": "inducing", "inference": "gibbs"}, "basis='inducing' goes with inference='vb' or 'svi'"),
        ({"likelihood": "hinge"}, "unknown likelihood 'hinge'"),
        ({"noise": -1.0}, "noise must be a positive number"),
        ({"n_inducing": 5, "basis": "full"}, "n_inducing is for basis='inducing'"),
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"likelihood": "squared", "epsilon": 0.1}, "leave out one of the two"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(data, given, said):
    with pytest.raises(ValueError, match=said):
        BayesianKernelRegressor(**given).fit(*data)


def test_other_words_are_explained():
    with pytest.raises(TypeError, match="alpha being sigma"):
        BayesianKernelRegressor(alpha=0.1)


@parametrize_with_checks([BayesianKernelRegressor(length_scale="mean-distance")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*predicts no better than the mean.*")
def test_estimator_checks(estimator, check):
    check(estimator)
