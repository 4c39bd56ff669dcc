"""``warm_start=True``: chains and climbs go on where the last fit ended."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR
from softmargin.exceptions import CheckpointWarning


def rows(n=120):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    f = X[:, 0] + 0.5 * X[:, 1]
    return X, (f + rng.logistic(size=n) > 0).astype(int), f + 0.3 * rng.normal(size=n)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("make", "response"),
    [
        (lambda **k: BayesianSVC("lasso", "gibbs", learning_rate=0.5, **k), 1),
        (lambda **k: BayesianSVC(inference="hmc", **k), 1),
        (lambda **k: BayesianSVR(inference="gibbs", likelihood="squared", **k), 2),
    ],
)
def test_the_draws_of_a_second_fit_are_the_next_ones_of_one_long_run(make, response):
    data = rows()
    X, y = data[0], data[response]
    own = {"warmup": 5, "chains": 2, "random_state": 1}
    model = make(draws=20, warm_start=True, **own).fit(X, y)
    first = model.posterior_.draws
    second = model.set_params(draws=30).fit(X, y).posterior_.draws
    whole = make(draws=50, **own).fit(X, y).posterior_.draws
    np.testing.assert_array_equal(np.concatenate((first, second), axis=1), whole)
    assert model.n_iter_ == 55


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_chains_of_active_vectors_go_on_too():
    X, y, _ = rows(50)
    own = {"basis": "active", "inference": "gibbs", "length_scale": 2.0, "learning_rate": 0.5, "random_state": 1}
    own |= {"warmup": 5, "chains": 2}
    model = BayesianKernelClassifier(draws=10, warm_start=True, **own).fit(X, y)
    first = model.posterior_.intercept
    second = model.fit(X, y).posterior_.intercept
    whole = BayesianKernelClassifier(draws=20, **own).fit(X, y).posterior_.intercept
    np.testing.assert_array_equal(np.concatenate((first, second), axis=1), whole)


def test_a_climb_goes_on_from_where_it_was_cut_off():
    X, y, _ = rows()
    own = {"learning_rate": 1.0, "tol": 1e-12}
    model = BayesianSVC(max_iter=3, warm_start=True, **own)
    heights = []
    for _ in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        heights += model.trace_.tolist()
    assert (np.diff(heights) >= -1e-9).all()  # the bound never falls from fit to fit
    whole = BayesianSVC(**own).fit(X, y)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-5)


def test_other_data_and_other_parameters_start_anew_and_say_so():
    X, y, _ = rows()
    own = {"inference": "gibbs", "learning_rate": 0.5, "draws": 20, "warmup": 5, "chains": 1, "random_state": 1}
    model = BayesianSVC(warm_start=True, **own).fit(X, y)
    with pytest.warns(CheckpointWarning, match="warm_start=True starts anew: since the fit before the data changed"):
        model.fit(X[:-1], y[:-1])
    np.testing.assert_array_equal(model.posterior_.draws, BayesianSVC(**own).fit(X[:-1], y[:-1]).posterior_.draws)
    with pytest.warns(CheckpointWarning, match="the fit before learning_rate changed"):
        model.set_params(learning_rate=1.0).fit(X[:-1], y[:-1])


def test_without_it_every_fit_is_the_same():
    X, y, _ = rows()
    model = BayesianSVC(inference="gibbs", learning_rate=0.5, draws=10, warmup=2, chains=1, random_state=1)
    first = model.fit(X, y).posterior_.draws
    np.testing.assert_array_equal(model.fit(X, y).posterior_.draws, first)


@pytest.mark.parametrize("likelihood", ["hinge", "logit"])
def test_a_mode_with_missing_entries_may_be_fitted_again(likelihood):
    X, y, _ = rows()
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    given = {"inference": "map", "likelihood": likelihood, "learning_rate": 1.0}
    model = BayesianSVC(warm_start=True, **given).fit(X, y)
    first = model.coef_
    np.testing.assert_allclose(first, BayesianSVC(**given).fit(X, y).coef_, atol=1e-6)
    np.testing.assert_allclose(model.fit(X, y).coef_, first, atol=1e-4)
