"""The loss that a regression takes when none is given, rows that are left out, and models that explain nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVR
from softmargin.exceptions import ModelWarning
from softmargin.losses import Squared
from softmargin.models import regression as regression_choice
from softmargin.priors import LaplaceZero, Ridge

SHORT = {"draws": 200, "warmup": 100, "chains": 2, "random_state": 0}
NOISE = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "uniform": lambda rng, n: rng.uniform(-2.0, 2.0, size=n),
    "contaminated": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 6.0, 1.0),
}


def simulated(kind="normal", n=200, p=4, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, 3.0 + X @ np.linspace(1.0, -0.6, p) + NOISE[kind](rng, n)


# --- the choice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("normal", "squared"),
        ("laplace", "epsilon-insensitive"),
        ("uniform", "epsilon-insensitive"),
        ("contaminated", "epsilon-insensitive"),
    ],
)
def test_the_loss_follows_the_noise(kind, wanted):
    """Eight sets of 400 rows: at least seven are fitted with the loss of their noise."""
    found = [BayesianSVR().fit(*simulated(kind, n=400, seed=seed)).likelihood_ for seed in range(8)]
    assert found.count(wanted) >= 7


def skewed(seed, n=600):
    """Noise of 5 % large positive values that become larger with a column: its mean is no middle of anything."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, X[:, 1] + 0.2 * rng.standard_normal(n) + np.where(rng.random(n) < 0.05, 10.0, 0.0) * np.exp(X[:, 0])


def test_where_noise_is_skewed_the_loss_is_the_one_that_predicts_the_mean():
    """The density of the band fits such noise far better, and its centre is not what ``predict`` should say."""
    for seed in range(3):
        (X, y), (Z, new) = skewed(seed), skewed(100 + seed, 20_000)
        model = BayesianSVR().fit(X, y)
        table = model.choices_.set_index(["method", "likelihood"])["score"]
        assert table["evidence bound"].idxmax() == "epsilon-insensitive"
        assert table["leave-one-out squared error"].idxmin() == model.likelihood_ == "squared"
        band = BayesianSVR(likelihood="epsilon-insensitive").fit(X, y)
        assert model.score(Z, new) > band.score(Z, new) + 0.02


@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_the_default_is_the_fit_of_the_loss_that_was_taken(kind):
    """The quick fit becomes the fit: nothing differs from a model that was told the loss."""
    X, y = simulated(kind)
    model = BayesianSVR().fit(X, y)
    told = BayesianSVR(likelihood=model.likelihood_).fit(X, y)
    np.testing.assert_array_equal(model.predict_interval(X), told.predict_interval(X))
    assert model.noise_ == told.noise_ and model.loo_ == told.loo_
    assert hasattr(model, "epsilon_") == (model.likelihood_ == "epsilon-insensitive")
    assert told.choices_.empty


def test_what_was_tried_is_recorded():
    X, y = simulated()
    table = BayesianSVR().fit(X, y).choices_
    assert list(table.columns) == ["likelihood", "method", "score", "standard_error", "seconds", "taken"]
    bounds = table[table["method"] == "evidence bound"].set_index("likelihood")["score"]
    assert bounds.idxmax() == table[table["taken"]]["likelihood"].unique().item() == "squared"
    left_out = table[table["method"] == "leave-one-out"].set_index("likelihood")
    squares = table[table["method"] == "leave-one-out squared error"].set_index("likelihood")["score"]
    for likelihood in ("squared", "epsilon-insensitive"):
        fixed = BayesianSVR(likelihood=likelihood).fit(X, y)
        assert left_out.loc[likelihood, "score"] == pytest.approx(fixed.loo_.log_density, abs=2e-3)
        assert squares[likelihood] == pytest.approx(fixed.loo_.rmse**2, rel=2e-3)
    assert (left_out["standard_error"] > 0.0).all() and (table["seconds"] >= 0.0).all()
    other = BayesianSVR().fit(X, 100.0 * y - 7.0).choices_
    np.testing.assert_allclose(
        other.loc[other["method"] == "evidence bound", "score"],
        table.loc[table["method"] == "evidence bound", "score"] - len(y) * np.log(100.0),
        atol=1e-3,
    )


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_choice_does_not_depend_on_units(scale):
    """Without standardizing, y in other units: the same bounds but for one log unit per row."""
    X, y = simulated("laplace", n=60)
    one = BayesianSVR(Ridge(scale=1.0, intercept_scale=1e3), standardize=False).fit(X, y)
    two = BayesianSVR(Ridge(scale=scale, intercept_scale=1e3 * scale), standardize=False).fit(X, scale * y)
    bound = one.choices_["method"] == "evidence bound"
    np.testing.assert_allclose(
        two.choices_.loc[bound, "score"], one.choices_.loc[bound, "score"] - 60.0 * np.log(scale), atol=1e-2
    )


def test_what_the_user_gives_is_never_overruled():
    """Normal noise, and a loss or a band that says otherwise."""
    X, y = simulated()
    assert BayesianSVR(epsilon=0.1).fit(X, y).likelihood_ == "epsilon-insensitive"
    assert BayesianSVR(epsilon=0.1, noise=0.5).fit(X, y).noise_ == pytest.approx(0.5 * y.std())
    assert BayesianSVR(likelihood="epsilon-insensitive").fit(X, y).likelihood_ == "epsilon-insensitive"
    X, y = simulated("laplace")
    assert BayesianSVR(likelihood="squared").fit(X, y).likelihood_ == "squared"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "squared", "epsilon": 0.1}, "epsilon=0.1 is the band of the epsilon-insensitive loss"),
        ({"noise": 0.5}, "noise=0.5 is another thing for each loss: name it too"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BayesianSVR(**options).fit(*simulated(n=30))


@pytest.mark.parametrize(
    "options",
    [
        {"inference": "map"},
        {"inference": "meanfield"},
        {"inference": "gibbs"} | SHORT,
        {"inference": "hmc"} | SHORT,
        {"prior": "spike-slab", "inference": "gibbs"} | SHORT,
        {"prior": LaplaceZero(0.5)},
        {"prior": "horseshoe"},
    ],
    ids=lambda options: "-".join(str(each) for each in options.values())[:24],
)
@pytest.mark.filterwarnings("ignore:the chains disagree:sklearn.exceptions.ConvergenceWarning")
def test_every_inference_runs_with_the_loss_of_the_quick_fits(options):
    """The choice, and rows left out: within 3 % of the default's error, whatever the engine."""
    for kind, wanted in (("normal", "squared"), ("contaminated", "epsilon-insensitive")):
        X, y = simulated(kind)
        model = BayesianSVR(**options).fit(X, y)
        assert model.likelihood_ == wanted and len(model.choices_) == 6
        default = BayesianSVR().fit(X, y).loo_
        assert model.loo_.rmse == pytest.approx(default.rmse, rel=0.03)
        assert model.loo_.log_density == pytest.approx(default.log_density, abs=0.03)


def test_more_columns_than_rows():
    """Quick fits are made under a ridge prior, in the space of the rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 90))
    y = 3.0 * X[:, 0] + 0.5 * rng.standard_normal(40)
    for prior in ("ridge", "lasso"):
        model = BayesianSVR(prior).fit(X, y)
        assert len(model.choices_) == 6 and model.loo_.r2 > 0.2


def test_a_fit_that_is_stopped_ends_the_choice(monkeypatch):
    """Of what there is, the fit that came to its end is kept, and the user is told; other inferences stop."""
    original = regression_choice.fit_vb

    def stopped(model, settings):
        fit = original(model, settings)
        fit.outcome.interrupted = model.loss != Squared()
        return fit

    monkeypatch.setattr(regression_choice, "fit_vb", stopped)
    X, y = simulated("laplace")
    with pytest.warns(ConvergenceWarning, match="vb was stopped after"):
        model = BayesianSVR().fit(X, y)
    assert model.likelihood_ == "squared" and not model.converged_
    for inference in ("map", "gibbs"):
        with pytest.raises(KeyboardInterrupt, match="interrupted while the likelihood was being chosen"):
            BayesianSVR(inference=inference).fit(X, y)


# --- rows that are left out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map"])
@pytest.mark.parametrize("standardize", [True, False])
def test_rows_left_out_equal_refits_without_them(inference, standardize):
    """Squared loss, given noise and scale: closed form and exact refits without the row agree to rounding.

    Standardizing is that of all rows, so the refit is the textbook one in their units.
    """
    X, y = simulated(n=25)
    options = {"likelihood": "squared", "noise": 0.8, "inference": inference, "standardize": standardize, "tol": 1e-13}
    model = BayesianSVR(Ridge(scale=0.6, intercept_scale=1e4), **options).fit(X, y)
    Z, r, spread = X, y, 1.0
    if standardize:
        Z, r, spread = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std(), y.std()
    A, D = np.column_stack((np.ones(25), Z)), np.diag([1e-8] + [0.6**-2] * 4)
    errors, densities = [], []
    for i in range(25):
        rest = np.delete(np.arange(25), i)
        covariance = np.linalg.inv(A[rest].T @ A[rest] / 0.64 + D)
        error = r[i] - A[i] @ covariance @ A[rest].T @ r[rest] / 0.64
        variance = A[i] @ covariance @ A[i] + 0.64
        errors.append(error)
        densities.append(-0.5 * np.log(2.0 * np.pi * variance) - 0.5 * error**2 / variance - np.log(spread))
    constant = [y[i] - np.delete(y, i).mean() for i in range(25)]
    assert model.loo_.rmse == pytest.approx(spread * np.sqrt(np.mean(np.square(errors))), rel=1e-7)
    assert model.loo_.log_density == pytest.approx(np.mean(densities), rel=1e-7)
    wanted = 1.0 - spread**2 * np.sum(np.square(errors)) / np.sum(np.square(constant))
    assert model.loo_.r2 == pytest.approx(wanted, rel=1e-7)


def test_a_weight_of_two_leaves_out_one_of_two_rows():
    X, y = simulated(n=40)
    times = 1 + np.arange(40) % 2
    for likelihood in ("squared", "epsilon-insensitive"):
        model = BayesianSVR(Ridge(scale=0.6), likelihood=likelihood, tol=1e-12)
        weighted = model.fit(X, y, sample_weight=times.astype(float)).loo_
        repeated = model.fit(np.repeat(X, times, axis=0), np.repeat(y, times)).loo_
        np.testing.assert_allclose(weighted, repeated, rtol=1e-4)


@pytest.mark.soak
def test_rows_left_out_of_the_other_loss_are_close_to_refits():
    """Epsilon-insensitive loss with everything learned: the error of 40 refits, within 2 %."""
    X, y = simulated("laplace", n=40)
    loo = BayesianSVR(likelihood="epsilon-insensitive").fit(X, y).loo_
    errors = []
    for i in range(40):
        rest = np.delete(np.arange(40), i)
        refit = BayesianSVR(likelihood="epsilon-insensitive").fit(X[rest], y[rest])
        errors.append(y[i] - refit.predict(X[[i]])[0])
    assert loo.rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.02)


# --- models that explain nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"inference": "map"}, {"inference": "gibbs"} | SHORT])
@pytest.mark.filterwarnings("ignore:the chains disagree:sklearn.exceptions.ConvergenceWarning")
def test_a_model_that_says_nothing_says_so(options):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    with pytest.warns(ModelWarning, match=r"predicts no better than the mean of y: .* times the squared") as caught:
        model = BayesianSVR(**options).fit(X, y)
    assert [each.filename for each in caught] == [__file__]
    assert model.loo_.r2 < 0.01


def test_a_model_that_says_something_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianSVR().fit(*load_diabetes(return_X_y=True))
        BayesianSVR().fit(*simulated(n=40))
        BayesianSVR(likelihood="squared").fit(simulated(n=40)[0], np.full(40, 4.0))  # nothing to explain
