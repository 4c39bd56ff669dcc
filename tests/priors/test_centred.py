"""Prior means: conjugate answers, convex solvers, quadrature, and all inferences with a prior that leaves no doubt."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone

from softmargin import BayesianSVC, BayesianSVR, Formula, RandomEffect, load, path, save
from softmargin.priors import Centred, Horseshoe, LaplaceZero, Lasso, Ridge, Scaled, SpikeSlab

MEAN = np.array([1.5, -0.7, 0.4])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, -1.0]
    f = (X - X.mean(axis=0)) @ [1.0, -0.5, 2.0]
    return X, (f + rng.logistic(size=60) > 0.0).astype(int), f + 0.5 * rng.normal(size=60) + 3.0


@pytest.mark.parametrize("prior", [Ridge(0.7), Ridge(), Lasso(), Horseshoe(), Scaled(Ridge(0.7), [1.0, 2.0, 0.5])])
def test_the_faces_are_those_of_the_prior_in_what_is_left_of_the_means(prior):
    free = np.array([True, False, False, False])
    ours, plain = Centred(prior, MEAN).bind(free), prior.bind(free)
    beta, var, centre = np.array([0.3, 1.0, -0.2, 0.6]), np.array([0.2, 0.1, 0.5, 0.3]), np.append(0.0, MEAN)
    for name in ("expect", "gaussian"):
        message = getattr(ours, name)(beta, var)
        assert message.bound == getattr(plain, name)(beta - centre, var).bound
        slopes = [
            (getattr(ours, name)(beta + h, var).bound - getattr(ours, name)(beta - h, var).bound) / 2e-5
            for h in 1e-5 * np.eye(4)
        ]
        np.testing.assert_allclose(message.pull(beta), slopes, rtol=1e-5, atol=1e-6)
    state = ours.start()
    assert ours.logpdf(state, beta) == plain.logpdf(state, beta - centre)
    along = ours.along(state, beta)
    change = ours.logpdf(state, math.exp(0.3) * beta) - ours.logpdf(state, beta)
    assert along(0.3) - along(0.0) == pytest.approx(change)


def conjugate(X, y, mean, scale, noise):
    """Mean and sd of the slopes in units of X and y; scale and noise are of standardized columns and response."""
    centre, spread, unit = X.mean(axis=0), X.std(axis=0), y.std()
    Z = np.column_stack((np.ones(len(X)), (X - centre) / spread))
    D = np.array([1e-8, *np.full(X.shape[1], scale**-2)])
    A = Z.T @ Z / noise**2 + np.diag(D)
    linear = Z.T @ (y - y.mean()) / unit / noise**2 + D * np.append(0.0, mean * spread / unit)
    beta = np.linalg.solve(A, linear)
    return unit * beta[1:] / spread, unit * np.sqrt(np.linalg.inv(A).diagonal()[1:]) / spread


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "svi"])
def test_a_normal_fit_has_the_conjugate_mean(data, inference):
    X, _, y = data
    prior = Centred(Ridge(0.1), MEAN)
    model = BayesianSVR(prior, inference, likelihood="squared", noise=0.8, random_state=0, tol=1e-10).fit(X, y)
    coef, sd = conjugate(X, y, MEAN, 0.1, 0.8)
    np.testing.assert_allclose(model.coef_[0], coef, atol=1e-5 if inference != "svi" else 0.1 * sd.max())
    if inference == "vb":
        np.testing.assert_allclose(model.summary()["sd"].iloc[1:], sd, rtol=1e-5)


@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
def test_draws_of_a_normal_fit_have_the_conjugate_mean(data, inference):
    X, _, y = data
    run = {"noise": 0.8, "draws": 400, "warmup": 100, "random_state": 0}
    model = BayesianSVR(Centred(Ridge(0.1), MEAN), inference, likelihood="squared", **run).fit(X, y)
    coef, sd = conjugate(X, y, MEAN, 0.1, 0.8)
    drawn = model.summary().iloc[1:]
    assert (np.abs(drawn["mean"] - coef) < 4.0 * sd / np.sqrt(drawn["ess"])).all()
    np.testing.assert_allclose(drawn["sd"], sd, rtol=0.12)


def minimum(X, label, loss, weight, mean, scale):
    """Coefficients by a general solver; ``loss`` of margins is smooth."""
    sign, center, spread = 2.0 * label - 1.0, X.mean(axis=0), X.std(axis=0)
    Z = (X - center) / spread

    def objective(b):
        return weight * loss(sign * (b[0] + Z @ b[1:])).sum() + 0.5 * (((b[1:] - mean * spread) / scale) ** 2).sum()

    return minimize(objective, np.zeros(X.shape[1] + 1), method="BFGS", options={"gtol": 1e-9}).x[1:] / spread


def test_the_mode_of_a_logistic_fit_is_that_of_another_solver(data):
    X, label, _ = data
    model = BayesianSVC(Centred(Ridge(0.3), MEAN), "map", likelihood="logit", tol=1e-10).fit(X, label)
    other = minimum(X, label, lambda m: np.logaddexp(0.0, -m), 1.0, MEAN, 0.3)
    np.testing.assert_allclose(model.coef_[0], other, atol=1e-4)


@pytest.mark.filterwarnings("ignore:this model predicts no better")
def test_the_mode_of_a_hinge_is_that_of_a_quadratic_program(data):
    X, label, _ = data
    X, label, sign = X[:24], label[:24], 2.0 * label[:24] - 1.0
    model = BayesianSVC(Centred(Ridge(0.3), MEAN), "map", learning_rate=0.5, tol=1e-10).fit(X, label)
    spread, n = X.std(axis=0), len(X)
    Z = np.column_stack((np.ones(n), (X - X.mean(axis=0)) / spread))
    centre = np.append(0.0, MEAN * spread)

    def objective(x):
        return 0.5 * (((x[1:4] - centre[1:]) / 0.3) ** 2).sum() + x[4:].sum()

    def slope(x):
        return np.concatenate(([0.0], (x[1:4] - centre[1:]) / 0.09, np.ones(n)))

    above = {"type": "ineq", "fun": lambda x: x[4:] - 1.0 + sign * (Z @ x[:4])}
    above["jac"] = lambda x: np.column_stack((sign[:, None] * Z, np.eye(n)))
    bounds = [(None, None)] * 4 + [(0.0, None)] * n
    start = np.concatenate((centre, np.maximum(1.0 - sign * (Z @ centre), 0.0)))
    how = {"method": "SLSQP", "options": {"ftol": 1e-13, "maxiter": 500}}
    found = minimize(objective, start, jac=slope, bounds=bounds, constraints=[above], **how)
    assert found.success
    np.testing.assert_allclose(model.coef_[0], found.x[1:4] / spread, atol=2e-4)


@pytest.mark.filterwarnings("ignore:this model predicts no better")
@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
@pytest.mark.parametrize("prior", [Ridge(0.6), Ridge(), Lasso()], ids=repr)
def test_draws_of_a_hinge_agree_with_quadrature(prior, inference):
    """One coefficient, and its scale where that is learned."""
    x, y, mean = np.array([0.5, -1.0, 1.5, 0.3, -0.4]), np.array([1, 0, 0, 1, 1]), 1.2
    run = {"learning_rate": 0.5, "standardize": False, "fit_intercept": False, "random_state": 1}
    model = BayesianSVC(Centred(prior, mean), inference, draws=1000, warmup=200, **run).fit(x[:, None], y)
    beta = np.linspace(-8.0, 10.0, 601)
    data = -np.maximum(1.0 - (2 * y - 1) * np.outer(beta, x), 0.0).sum(axis=1)
    bound = prior.bind(np.array([False]))
    state, t = bound.start(), np.linspace(-8.0, 8.0, 51)
    hyper = bound.stretch(state)
    log_prior = np.zeros(len(beta))
    for k, b in enumerate(beta - mean):
        if hyper is None:
            log_prior[k] = bound.logpdf(state, np.array([b]))
        else:
            each = [hyper(s) + bound.logpdf(bound.stretched(state, s), np.array([b])) for s in t]
            log_prior[k] = np.logaddexp.reduce(each)
    p = np.exp(data + log_prior - (data + log_prior).max())
    p /= p.sum()
    exact, sd = p @ beta, math.sqrt(p @ (beta - p @ beta) ** 2)
    drawn = model.summary().iloc[0]
    assert abs(drawn["mean"] - exact) < 4.0 * sd / math.sqrt(drawn["ess"])
    assert drawn["sd"] == pytest.approx(sd, rel=0.1)


def surely(mean):
    """A prior that leaves no doubt about its means."""
    return Centred(Ridge(1e-4), mean)


@pytest.mark.filterwarnings("ignore::UserWarning")  # few draws and rounds
@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "gibbs", "hmc", "svi"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "wide", "missing", "groups"])
def test_every_inference_of_every_kind_of_rows_has_the_means(data, kind, inference):
    X, label, _ = data
    if kind in ("missing", "groups") and inference == "svi":
        pytest.skip("refused with a sentence of its own")
    if kind == "wide" and inference == "hmc":
        pytest.skip("refused with a sentence of its own")
    mean, given = MEAN, {}
    if kind == "wide":
        mean, X = np.resize(MEAN, 70), np.random.default_rng(0).normal(size=(30, 70))
        label = label[:30]
    if kind == "missing":
        X = X.copy()
        X[::7, 1] = np.nan
    if kind == "groups":
        given["groups"] = np.arange(len(X)) % 6
    run = {"learning_rate": 0.5, "draws": 20, "warmup": 20, "chains": 1, "random_state": 0, "max_iter": 200}
    rows = sp.csr_array(X) if kind == "sparse" else X
    model = BayesianSVC(surely(mean), inference, **run).fit(rows, label, **given)
    np.testing.assert_allclose(model.coef_[0], mean, atol=0.01)


def test_means_by_column_and_by_term(data):
    X, label, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, g=np.arange(len(X)) % 5)
    whole = BayesianSVC(Centred(Ridge(0.2), MEAN), learning_rate=0.5).fit(frame[["a", "b", "c"]], label)
    named = Centred(Ridge(0.2), {"b": -0.7, "a": 1.5, 2: 0.4})
    same = BayesianSVC(named, learning_rate=0.5).fit(frame[["a", "b", "c"]], label)
    np.testing.assert_array_equal(same.coef_, whole.coef_)
    parts = {"b": Centred(Ridge(0.2), -0.7), ("a", "c"): Centred(Ridge(0.2), [1.5, 0.4])}
    same = BayesianSVC(parts, learning_rate=0.5).fit(frame[["a", "b", "c"]], label)
    np.testing.assert_allclose(same.coef_, whole.coef_, atol=1e-4)
    one = BayesianSVR({"b": surely(-0.7), ...: Ridge()}, random_state=0)
    fitted = Formula("y ~ a + b + (1 | g)", one).fit(frame)
    assert fitted.summary().loc["b", "mean"] == pytest.approx(-0.7, abs=0.01)
    assert abs(fitted.summary().loc["a", "mean"] - 1.0) < 0.3
    beside = BayesianSVR(surely(MEAN), random_effects=[RandomEffect("g")], random_state=0)
    found = beside.fit(frame[["a", "b", "c", "g"]], y).coef_
    np.testing.assert_allclose(found[0, :3], MEAN, atol=0.01)


def test_constant_columns_keep_the_means_of_the_others(data):
    X, label, _ = data
    wide = np.insert(X, 1, 3.0, axis=1)
    with pytest.warns(UserWarning, match="constant"):
        model = BayesianSVC(surely(np.insert(MEAN, 1, 9.0)), learning_rate=0.5).fit(wide, label)
    np.testing.assert_allclose(np.delete(model.coef_[0], 1), MEAN, atol=0.01)


@pytest.mark.parametrize("likelihood", ["hinge", "logit"])
def test_left_out_rows_of_a_mode_are_those_of_refits(data, likelihood):
    X, label, _ = data
    prior = Centred(Ridge(0.3), MEAN)
    run = {"likelihood": likelihood, "learning_rate": 0.5, "tol": 1e-10, "standardize": False}
    model = BayesianSVC(prior, "map", **run).fit(X, label)
    for i in (0, 7, 20):
        other = BayesianSVC(prior, "map", **run).fit(np.delete(X, i, axis=0), np.delete(label, i))
        refitted = other.decision_function(X[i : i + 1])[0]
        # the last one has the predictors that the link was fitted to
        assert model._fitted.fit.held.f[i] == pytest.approx(refitted, abs=0.05)


def test_parts_are_cloned_searched_and_saved(data, tmp_path):
    X, label, _ = data
    model = clone(BayesianSVC(Centred(Ridge(1.0), MEAN), learning_rate=0.5)).set_params(prior__prior__scale=0.5)
    assert model.prior.prior.scale == 0.5
    model.fit(X, label)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again.prior.mean, MEAN)


def test_refusals_are_sentences(data):
    X, label, _ = data
    for prior in (SpikeSlab(), LaplaceZero()):
        with pytest.raises(ValueError, match="leaves out has the coefficient zero"):
            Centred(prior, 1.0)
    for prior in ("ridge", Centred(Ridge(), 1.0)):
        with pytest.raises(ValueError, match="a prior object around zero"):
            Centred(prior, 1.0)
    for mean in ("a", [1.0, np.nan], [[1.0]], None):
        with pytest.raises(ValueError, match="a number, one for every column"):
            Centred(Ridge(), mean)
    with pytest.raises(ValueError, match="2 means for 3 columns"):
        BayesianSVC(Centred(Ridge(), [1.0, 2.0])).fit(X, label)
    with pytest.raises(ValueError, match="none of the 3 columns"):
        BayesianSVC(Centred(Ridge(), {"age": 1.0})).fit(X, label)
    with pytest.raises(ValueError, match="y has 3 classes"):
        BayesianSVC(Centred(Ridge(), 1.0)).fit(X, np.arange(60) % 3)
    with pytest.raises(ValueError, match="leaves columns out"):
        BayesianSVC({0: SpikeSlab(), ...: Centred(Ridge(), 1.0)}, "gibbs").fit(X, label)
    with pytest.raises(ValueError, match="priors around zero"):
        path(X, label, prior=Centred(Ridge(), 1.0))
    with pytest.raises(ValueError, match="priors around zero"):
        BayesianSVC(Centred(Ridge(), 1.0), "map", engine_options={"algorithm": "newton"}).fit(X, label)
