"""BayesianKernelClassifier on active vectors, inducing points and batches of rows."""

import math
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianKernelClassifier
from softmargin.designs.kernel.kernels import resolve
from softmargin.engines.kernel.draws import KernelDraws, hinge_link
from softmargin.losses import Hinge, Probit
from softmargin.models.kernel.fit import _left_out, _mixing
from softmargin.priors.g_prior import GPrior

FIXED = {"length_scale": 1.3, "standardize": False}
SHORT = {"inference": "gibbs", "draws": 300, "warmup": 200, "chains": 2, "random_state": 0}


def rings(n=60, seed=0):
    """Two classes inside and outside of a circle, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = 2.0 * ((X**2).sum(axis=1) - 1.4)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(int)


@pytest.fixture(scope="module")
def data():
    return rings()


@pytest.fixture(scope="module")
def active(data):
    return BayesianKernelClassifier(likelihood="probit", basis="active", **FIXED, **SHORT).fit(*data)


def test_active_vectors_are_reported(active):
    assert active.active_.shape == (60,)
    assert active.n_active_.shape == (2, 300)
    assert active.active_.sum() == pytest.approx(active.n_active_.mean())
    assert active.active_.min() > 0.0
    assert active.active_.max() < 1.0
    assert active.score(*rings(400, 1)) > 0.7


def test_active_predictions_are_averages_over_expansions(active, data):
    """Each draw is an intercept and a sum over its rows, put together here from the draws as they were kept."""
    X, _ = data
    new = rings(9, 1)[0]
    draws = active.posterior_
    K = np.exp(-((new[:, None] - X[None]) ** 2).sum(axis=2) / 1.3**2)
    f = np.array(
        [
            u + K[:, draws.index[a:b].astype(int)] @ draws.coef[a:b]
            for u, a, b in zip(draws.intercept.ravel(), draws.offset[:-1], draws.offset[1:], strict=True)
        ]
    )
    mean, sd = active.decision_function(new, return_std=True)
    np.testing.assert_allclose(mean - active.loo_.b / active.loo_.a, f.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(sd, f.std(axis=0), rtol=1e-9)
    erf = np.vectorize(math.erf)
    model = BayesianKernelClassifier(likelihood="probit", basis="active", **FIXED, **SHORT)
    model.__dict__.update(active.__dict__)
    pseudo = model.set_params(probability="pseudo").predict_proba(new)[:, 1]
    np.testing.assert_allclose(pseudo, (0.5 + 0.5 * erf(f / math.sqrt(2.0))).mean(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(active.predict_proba(new)[:, 1], pseudo)  # a likelihood needs no other link
    sign = model.set_params(probability="sign").predict_proba(new)[:, 1]
    np.testing.assert_allclose(sign, (f > 0).mean(axis=0))
    drawn = active.sample(new, 50)
    assert drawn.shape == (9, 50)
    assert np.abs(drawn[:, :, None] - f.T[:, None, :]).min(axis=2).max() < 1e-9, "draws are kept draws"


def test_fixed_scale_fixes_the_shrinkage(data):
    model = BayesianKernelClassifier(likelihood="logit", basis="active", scale=0.5, **FIXED, **SHORT).fit(*data)
    np.testing.assert_allclose(model.posterior_.values["g"], 4.0)
    assert model.scale_ == pytest.approx(0.5)


def test_options_reach_the_sampler(data):
    options = {"prior": GPrior(shrinkage=25.0), "moves": 3}
    model = BayesianKernelClassifier(
        likelihood="probit", basis="active", max_active=4, engine_options=options, **FIXED, **SHORT
    ).fit(*data)
    assert model.n_active_.max() <= 4
    np.testing.assert_allclose(model.posterior_.values["g"], 25.0)


def expansions(intercept):
    """Draws of the intercept alone, at one training row."""
    n = len(intercept)
    return KernelDraws(1, np.zeros(n + 1, int), np.zeros(0, int), np.zeros(0), intercept[None], {}, hinge_link)


@pytest.mark.parametrize(("loss", "c"), [(Probit(), 1.0), (Hinge(), 0.5)])
def test_leave_one_out_moments_of_draws_are_those_of_the_prior(loss, c):
    """One row, N(0.3, 0.8^2) before it: draws of the posterior, less the row, must give the prior back."""
    grid = np.linspace(-8.0, 8.0, 40_001)
    log_p = -0.5 * ((grid - 0.3) / 0.8) ** 2 + loss.loglik(np.ones(40_001), np.full(40_001, c), grid)
    cdf = np.cumsum(np.exp(log_p - log_p.max()))
    f = np.interp((np.arange(40_000) + 0.5) / 40_000, cdf / cdf[-1], grid)
    mean, variance, p, share = _left_out(expansions(f), lambda at: np.zeros((1, 1)), np.ones(1), np.full(1, c), loss)
    prior = np.exp(-0.5 * ((grid - 0.3) / 0.8) ** 2)
    assert p[0] == pytest.approx(hinge_link(grid, 0.0, 1.0) @ prior / prior.sum(), abs=0.005)
    assert mean[0] == pytest.approx(0.3, abs=0.01)
    assert variance[0] == pytest.approx(0.64, rel=0.02)
    assert share == pytest.approx(1.0 - f.var() / 0.64, abs=0.02)
    assert abs(f.mean() - 0.3) > 0.1


@pytest.mark.parametrize("likelihood", ["noisy-hinge", "complete-hinge"])
def test_noisy_hinges_have_all_rows(data, likelihood):
    model = BayesianKernelClassifier(likelihood=likelihood, basis="full", **FIXED, **SHORT)
    model.fit(*data)
    assert model.score(*rings(400, 1)) > 0.7
    assert set(model.posterior_.values) >= {"noise", "loglik"}
    assert not hasattr(model, "scale_")
    assert "scale" not in model.summary() and np.isfinite(model.summary()["loo_score"]).all()


@pytest.mark.parametrize(("apart", "said"), [(3.0, "the chains disagree"), (0.0, "")])
def test_chains_that_disagree_are_reported(apart, said):
    pytest.importorskip("arviz")
    draws = np.random.default_rng(0).normal(size=(2, 400)) + np.array([[0.0], [apart]])
    values = {"loglik": draws, "g": np.ones((2, 400)) + 1e-3 * draws}
    one = expansions(np.zeros(800))
    assert _mixing(replace(one, intercept=np.zeros((2, 400)), values=values)).startswith(said)
    assert bool(_mixing(replace(one, intercept=np.zeros((2, 400)), values=values))) == bool(said)


@pytest.mark.filterwarnings("ignore:the chains disagree")
def test_active_vectors_of_pairs_and_precomputed_kernels():
    X, y = rings(60)
    y = y + 2 * (X[:, 0] > 0.8)
    y[y == 3] = 2
    short = SHORT | {"draws": 50, "warmup": 50}
    model = BayesianKernelClassifier(likelihood="probit", basis="active", **FIXED, **short).fit(X, y)
    assert model.active_.shape == (3, 60)
    np.testing.assert_array_equal(np.isnan(model.active_[0]), y == 2)
    own = short | FIXED | {"length_scale": None, "likelihood": "probit", "basis": "active"}
    K = resolve("rbf", 1.3, X).matrix(X)
    given = BayesianKernelClassifier("precomputed", **own).fit(K, y)
    assert (given.predict(K) == model.predict(X)).mean() > 0.9


def test_all_rows_as_inducing_points_are_the_full_basis(data):
    X, y = data
    settings = FIXED | {"scale": 2.0, "tol": 1e-11}
    full = BayesianKernelClassifier(basis="full", **settings).fit(X, y)
    points = BayesianKernelClassifier(basis="inducing", n_inducing=60, **settings).fit(X, y)
    new = rings(30, 1)[0]
    for ours, theirs in zip(
        points.decision_function(new, return_std=True), full.decision_function(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_allclose(points.predict_proba(new), full.predict_proba(new), atol=1e-4)
    assert points.loo_.score == pytest.approx(full.loo_.score, abs=1e-4)


@pytest.mark.parametrize("inference", ["vb", "svi"])
def test_few_points_predict_like_all_rows(inference):
    X, y = rings(700)
    full = BayesianKernelClassifier(basis="full", random_state=0).fit(X, y)
    points = BayesianKernelClassifier(basis="inducing", inference=inference, n_inducing=40, random_state=0).fit(X, y)
    new = rings(200, 1)[0]
    assert np.abs(points.predict_proba(new) - full.predict_proba(new)).mean() < 0.02
    assert points.loo_.score == pytest.approx(full.loo_.score, abs=0.01)
    assert points.scale_ > 10.0, "wide kernels do not fall back to a flat function"


def test_auto_takes_inducing_points_for_many_rows():
    X, y = rings(2100)
    settings = {"length_scale": 0.3, "learning_rate": 0.25, "random_state": 0}
    model = BayesianKernelClassifier(**settings).fit(X, y)
    assert len(model.posterior_.mean) < 2100
    assert model.loo_probability_.shape == (2100, 2)
    assert np.isfinite(model.loo_probability_).all()
    given = BayesianKernelClassifier(n_inducing=30, **settings).fit(X, y)
    assert len(given.posterior_.mean) == 31


def test_rows_that_arrive_later():
    X, y = rings(1500)
    names = np.array(["in", "out"])[y]
    model = BayesianKernelClassifier(inference="svi", n_inducing=40, random_state=0)
    model.partial_fit(X[:300], names[:300], classes=["in", "out"])
    first, length = model.loo_.score, model.length_scale_
    sd = model.decision_function(X[:50], return_std=True)[1].mean()
    for lo in range(300, 1500, 300):
        model.partial_fit(X[lo : lo + 300], names[lo : lo + 300])
    assert model.length_scale_ == length
    assert model.decision_function(X[:50], return_std=True)[1].mean() < 0.8 * sd
    same = {"length_scale": length, "learning_rate": model.learning_rate_}
    whole = BayesianKernelClassifier(inference="svi", n_inducing=40, random_state=0, **same).fit(X, names)
    new = rings(300, 1)[0]
    assert np.abs(model.predict_proba(new) - whole.predict_proba(new)).mean() < 0.03
    assert model.loo_.score < first + 0.03
    alone = names[:300] == "in"
    model.partial_fit(X[:300][alone], names[:300][alone])  # a batch of one class is no reason to stop
    assert model.score(new, np.array(["in", "out"])[rings(300, 1)[1]]) > 0.75
    with pytest.raises(ValueError, match="labels \\['between'\\]"):
        model.partial_fit(X[:5], ["between"] * 5)


def test_memory_of_batches_grows_with_the_rows_alone():
    """Features of 100 points would be ten times the rows."""
    options = {"epochs": 1, "first": 512}
    settings = {"n_inducing": 100, "length_scale": 4.0, "learning_rate": 0.25, "standardize": False, "random_state": 0}
    model = BayesianKernelClassifier(inference="svi", engine_options=options, **settings)
    peak, n = [], (6_000, 6_000, 30_000)  # the first fit also compiles
    for rows in n:
        X = np.random.default_rng(0).normal(size=(rows, 10))
        y = (X[:, 0] + X[:, 1] ** 2 > 1.0).astype(int)
        tracemalloc.start()
        model.fit(X, y)
        peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peak[2] - peak[1] < 3.0 * (n[2] - n[1]) * 10 * 8


def test_rows_of_many_classes_that_arrive_later():
    X, y = rings(600)
    y = np.where(X[:, 0] > 1.0, 2, y)
    model = BayesianKernelClassifier(inference="svi", n_inducing=30, random_state=0)
    model.partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    before = model.predict_proba(X[:20])
    none = y[:300] == 0
    model.partial_fit(X[:300][none], y[:300][none])
    assert model.score(*(lambda Z, t: (Z, np.where(Z[:, 0] > 1.0, 2, t)))(*rings(300, 1))) > 0.75
    assert np.abs(model.predict_proba(X[:20]) - before).max() > 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"basis": "active"}, "it goes with basis='auto' with inference='map'"),
        ({"likelihood": "noisy-hinge"}, "basis='full' with inference='gibbs'"),
        ({"basis": "full", "inference": "svi"}, "does not go with basis='full'"),
        (
            {"likelihood": "noisy-hinge", "basis": "full", "inference": "gibbs", "scale": 2.0},
            "scale=2.0 is for coefficients that share one scale",
        ),
        ({"max_active": 3}, "max_active is for basis='active'"),
        ({"n_inducing": 3, "basis": "full"}, "n_inducing is for basis='inducing'"),
        ({"basis": "active", "inference": "gibbs", "max_active": 61}, "max_active must be between 1 and"),
        ({"basis": "inducing", "n_inducing": 61}, "n_inducing must be at most the number of rows"),
        ({"basis": "inducing", "n_inducing": 0}, "n_inducing must be at least 1"),
        ({"n_inducing": "many"}, "n_inducing must be a whole number or 'auto'"),
        ({"basis": "inducing", "engine_options": {"moves": 3}}, "unknown engine_options"),
        ({"inference": "svi", "engine_options": {"decay": 0.2}}, "decay must be"),
    ],
)
def test_refused_in_one_sentence(data, change, message):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(ValueError, match=message):
            BayesianKernelClassifier(**change).fit(X, y)


def test_partial_fit_is_for_batches(data):
    X, y = data
    assert not hasattr(BayesianKernelClassifier(), "partial_fit")
    with pytest.raises(ValueError, match="rows of every class"):
        BayesianKernelClassifier(inference="svi").partial_fit(X, y, classes=[0, 1, 2])
