"""The regressor with Hamiltonian chains and with priors that leave columns out."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit

from softmargin import BayesianSVR
from softmargin.priors import LaplaceZero, Ridge, SpikeSlab

SHORT = {"draws": 20, "warmup": 20, "chains": 2, "random_state": 0}
STRONG, WEAK = ["bmi", "bp", "s5"], ["age", "s6"]


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


def quietly(model, X, y, **options):
    """Fit a chain that is shorter than a user's would be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


@pytest.mark.parametrize(
    "options",
    [{"likelihood": "epsilon-insensitive"}, {"prior": "lasso", "likelihood": "squared"}],
    ids=["epsilon", "squared"],
)
def test_hmc_agrees_with_gibbs(options, diabetes):
    """Means within 4 Monte Carlo errors and equal spreads, of coefficients, noise and band, in the units of y."""
    X, y = diabetes
    chains = [
        BayesianSVR(inference="gibbs", draws=700, warmup=150, chains=2, random_state=2, **options),
        BayesianSVR(inference="hmc", draws=700, warmup=50, chains=2, random_state=3, **options),
    ]
    one, two = (quietly(model, X, y).summary() for model in chains)
    error = np.sqrt(one["sd"] ** 2 / one["ess"] + two["sd"] ** 2 / two["ess"])
    assert (np.abs(one["mean"] - two["mean"]) / error).max() < 4.0
    np.testing.assert_allclose(two["sd"] / one["sd"], 1.0, atol=0.15)
    assert chains[1].noise_ == pytest.approx(chains[0].noise_, rel=0.03)
    assert chains[1].scale_ == pytest.approx(chains[0].scale_, rel=0.08)
    if options["likelihood"] != "squared":
        assert chains[1].epsilon_ == pytest.approx(chains[0].epsilon_, rel=0.03)


@pytest.mark.parametrize(
    ("prior", "likelihood"),
    [("spike-slab", "epsilon-insensitive"), ("spike-slab", "squared"), (LaplaceZero(0.5), "epsilon-insensitive")],
)
def test_known_predictors_of_diabetes_are_found(prior, likelihood, diabetes):
    """Body mass, blood pressure and s5 are in for certain; age and s6 are not wanted."""
    X, y = diabetes
    model = BayesianSVR(
        prior, "gibbs", likelihood=likelihood, draws=300, warmup=150, chains=2, random_state=0
    )  # fmt: skip
    quietly(model, X, y)
    inclusion = dict(zip(X.columns, model.inclusion_, strict=True))
    assert min(inclusion[name] for name in STRONG) > 0.97
    assert max(inclusion[name] for name in WEAK) < 0.4
    assert np.abs(model.indicator_gap_).max() < 0.08  # indicators and probabilities tell the same
    assert model.chain_inclusion_.shape == (2, 10) and model.inclusion_error_.shape == (10,)
    table = model.summary()
    np.testing.assert_allclose(table["inclusion"].iloc[1:], model.inclusion_)
    assert {"inclusion_error", "inclusion_range", "ess", "r_hat"} <= set(table.columns)
    assert set(STRONG) <= set(model.get_feature_names_out())
    assert model.transform(X).shape == (442, model.get_support().sum())
    posterior = model.to_arviz()["posterior"]
    np.testing.assert_allclose(float(posterior["size"].mean()), (posterior["coef"] != 0.0).sum("feature").mean())
    spread = float(y.std(ddof=0))
    assert 0.5 * spread < model.noise_ < 0.9 * spread


def test_variational_selection(diabetes):
    """Mean field is surer than draws, and finds the strong predictors with both losses."""
    X, y = diabetes
    for likelihood in ("epsilon-insensitive", "squared"):
        model = BayesianSVR(LaplaceZero(0.5), likelihood=likelihood).fit(X, y)
        assert set(STRONG) <= set(model.get_feature_names_out())
        assert not model.get_support()[list(X.columns).index("age")]
        assert (np.diff(model.trace_) > -1e-6).all()
        out = ~model.get_support()
        assert np.abs(model.summary()["mean"].iloc[1:][out]).max() < 1.0


@pytest.mark.slow
def test_intervals_cover_with_selection(diabetes):
    """90 % intervals cover 87 to 93 % of the rows that were left out."""
    X, y = (part.to_numpy() for part in diabetes)
    hits = []
    for train, test in ShuffleSplit(6, test_size=0.3, random_state=0).split(X):
        model = BayesianSVR(
            "spike-slab", "gibbs", likelihood="epsilon-insensitive", draws=150, warmup=150, chains=1, random_state=0
        )
        interval = quietly(model, X[train], y[train]).predict_interval(X[test], level=0.9)
        hits.append((interval[:, 0] < y[test]) & (y[test] < interval[:, 1]))
    assert 0.87 < np.mean(hits) < 0.93


@pytest.mark.parametrize(
    "options",
    [
        {"inference": "hmc", "likelihood": "epsilon-insensitive"},
        {"inference": "hmc", "prior": "horseshoe", "likelihood": "epsilon-insensitive"},
        {"inference": "gibbs", "prior": "spike-slab", "likelihood": "epsilon-insensitive"},
        {"inference": "gibbs", "prior": "spike-slab", "likelihood": "squared"},
        {"inference": "gibbs", "prior": LaplaceZero(0.5), "likelihood": "epsilon-insensitive"},
    ],
)
def test_seeds_jobs_sparse_rows_and_copies(options, diabetes):
    """The same seed gives the same draws with two threads; CSR rows give those of dense ones; pickles predict alike."""
    X, y = (part.to_numpy() for part in diabetes)
    X = np.where(X[:120] > 0.0, X[:120], 0.0)
    model = quietly(BayesianSVR(**options, **SHORT, standardize=True), X, y[:120])  # sparse columns too
    twin = quietly(clone(model).set_params(n_jobs=2), X, y[:120])
    np.testing.assert_array_equal(model.posterior_.draws, twin.posterior_.draws)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(twin)).predict_interval(X[:5]), model.predict_interval(X[:5])
    )
    sparse = quietly(clone(model), sp.csr_matrix(X), y[:120])
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), model.predict(X), rtol=1e-7)


def test_names_and_columns_that_stay(diabetes):
    X, y = diabetes
    model = quietly(BayesianSVR(SpikeSlab(0.1, always_include=["age"]), "gibbs", **SHORT), X, y)
    assert model.inclusion_[0] == 1.0
    assert (model.to_arviz()["posterior"]["coef"].to_numpy()[..., 0] != 0.0).all()


def test_large_units_without_standardizing():
    """A response of any size: chains move as they do for a small one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y = 1e4 * (X @ [1.0, -0.5, 0.0] + 0.4 * rng.standard_normal(80))
    prior = Ridge(scale=1e4, intercept_scale=1e7)
    run = {"likelihood": "epsilon-insensitive", "draws": 200, "chains": 1, "random_state": 0}
    model = quietly(BayesianSVR(prior, "hmc", standardize=False, **run), X, y)
    np.testing.assert_allclose(model.coef_[0], [1e4, -5e3, 0.0], atol=1.6e3)
    assert model.summary()["ess"].min() > 50


def test_more_columns_than_rows():
    """Selection among many columns, with either loss; the two that matter are found."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 80))
    y = 2.0 * X[:, 3] - 1.5 * X[:, 10] + 0.5 * rng.standard_normal(50)
    for likelihood in ("epsilon-insensitive", "squared"):
        model = BayesianSVR(
            SpikeSlab(expected_size=3), "gibbs", likelihood=likelihood, draws=60, warmup=60, chains=2, random_state=0
        )
        quietly(model, X, y)
        assert list(model.get_support(indices=True)) == [3, 10]
    with pytest.raises(ValueError, match="takes at most two coefficients per row, and 161 are more for 50 rows"):
        BayesianSVR(inference="hmc", solver="cholesky").fit(np.hstack((X, X)), y)


def test_a_band_that_starts_at_nothing_moves():
    """Heavy tails: the variational band is next to zero, where hmc starts from, and draws are elsewhere."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2))
    y = X @ [1.0, -1.0] + 0.3 * rng.standard_t(1.5, size=100)
    bands = [
        BayesianSVR(
            inference=inference, likelihood="epsilon-insensitive", draws=150, warmup=50, chains=2, random_state=0
        )
        .fit(X, y)
        .epsilon_
        for inference in ("hmc", "gibbs")
    ]
    assert 0.5 < bands[0] / bands[1] < 2.0
