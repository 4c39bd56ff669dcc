"""Logistic and probit regression with the library's priors."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import expit, log_ndtr, ndtr
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from stages import in_stages

from softmargin import BayesianSVC, BayesianSVR
from softmargin.losses import Check, EpsilonInsensitive, Hinge, Logit, NoisyHinge, RowLoss, SquaredHinge
from softmargin.priors import Lasso, Ridge, SpikeSlab

LOG = {"logit": lambda m: -np.logaddexp(0.0, -m), "probit": log_ndtr}
MEAN = {"logit": expit, "probit": ndtr}


def overlapping(n=80, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] - 0.5 * X[:, -1] + rng.logistic(size=n) > 0, 1, 0)


def test_logit_mode_is_logistic_regression():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = BayesianSVC(Ridge(scale=0.7), "map", likelihood="logit", max_iter=2000, tol=1e-12).fit(X, y)
    theirs = LogisticRegression(C=0.49, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-5)
    assert ours.learning_rate_ == 1.0
    assert np.isnan(ours.gap_)


def test_probit_mode_maximises_the_posterior():
    X, y = overlapping()
    sign = 2.0 * y - 1.0

    def negative(b):
        return -log_ndtr(sign * (b[0] + X @ b[1:])).sum() + 0.5 * (b[1:] ** 2).sum() / 0.25

    best = optimize.minimize(negative, np.zeros(4), tol=1e-12).x
    model = BayesianSVC(Ridge(scale=0.5), "map", likelihood="probit", standardize=False, max_iter=2000, tol=1e-12).fit(
        X, y
    )
    np.testing.assert_allclose(np.concatenate((model.intercept_, model.coef_[0])), best, atol=1e-5)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_posterior_against_quadrature(likelihood, inference):
    X, y = overlapping(25, 1, seed=2)
    sign = 2.0 * y - 1.0
    grid = np.linspace(-6.0, 6.0, 1201)
    density = np.exp(LOG[likelihood](sign[:, None] * X * grid).sum(axis=0) - 0.5 * grid**2)
    density /= np.trapezoid(density, grid)
    mean = np.trapezoid(grid * density, grid)
    sd = np.sqrt(np.trapezoid((grid - mean) ** 2 * density, grid))
    model = BayesianSVC(
        Ridge(scale=1.0), inference, likelihood=likelihood, standardize=False, fit_intercept=False, random_state=0
    ).fit(X, y)
    row = model.summary().iloc[0]
    assert row["mean"] == pytest.approx(mean, abs=0.05 * sd if inference == "vb" else 0.06 * sd)
    assert row["sd"] == pytest.approx(sd, rel=0.06)
    # the predictive probability averages the likelihood over the posterior
    model.probability = "pseudo"
    wanted = [np.trapezoid(MEAN[likelihood](x * grid) * density, grid) for x in (-1.0, 0.3, 2.0)]
    np.testing.assert_allclose(model.predict_proba([[-1.0], [0.3], [2.0]])[:, 1], wanted, atol=0.01)


def test_predictive_probability_of_a_normal():
    from softmargin.losses import Logit, Probit
    from softmargin.losses.probability import predictive_probability

    f, v = np.array([-1.0, 0.4, 3.0]), np.array([0.5, 2.0, 9.0])
    np.testing.assert_allclose(predictive_probability(Probit(), f, v, 1.0), ndtr(f / np.sqrt(1.0 + v)), atol=1e-8)
    for m, s2, got in zip(f, v, predictive_probability(Logit(), f, v, 1.0), strict=True):
        s = np.sqrt(s2)
        exact = integrate.quad(lambda x, m=m, s=s: expit(m + s * x) * np.exp(-0.5 * x * x), -12, 12)[0]
        assert got == pytest.approx(exact / np.sqrt(2.0 * np.pi), abs=1e-8)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_sparse_priors_classes_and_weights(likelihood):
    X, y = overlapping(120, 6)
    for inference in ("vb", "meanfield", "gibbs", "map"):
        model = BayesianSVC(Lasso(scale=0.3), inference, likelihood=likelihood, random_state=0, draws=100, warmup=50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, np.where(np.arange(120) < 20, 2.0, 1.0))
        assert model.score(X, y) > 0.6
        assert model.coef_[0, 0] > 0.2
    many = BayesianSVC(likelihood=likelihood).fit(*load_iris(return_X_y=True))
    assert many.score(*load_iris(return_X_y=True)) > 0.95


def test_what_is_for_the_hinge_says_so():
    X, y = overlapping()
    with pytest.raises(ValueError, match="whole"):
        BayesianSVC(inference="gibbs", likelihood="probit", class_weight={0: 1.0, 1: 0.7}).fit(X, y)
    with pytest.raises(ValueError, match="is for likelihood='hinge'"):
        BayesianSVC(likelihood="logit", multi_class="sum-to-zero").fit(*load_iris(return_X_y=True))
    with pytest.raises(TypeError, match="margin_slope"):
        BayesianSVC(inference="map", likelihood="logit", engine_options={"algorithm": "newton"}).fit(X, y)


@pytest.mark.parametrize("likelihood", in_stages(["logit", "probit"]))
def test_selection_by_enumeration(likelihood):
    """Inclusion probabilities of two columns against four marginal likelihoods by quadrature, |z| < 4."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((25, 2))
    y = np.where(X @ [1.5, 0.6] + rng.logistic(size=25) > 0.0, 1, -1)
    grid = np.linspace(-6.0, 6.0, 241)
    density = np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi) * (grid[1] - grid[0])  # a slab of scale 1
    b = np.array([(0.0, 0.0), *((u, 0.0) for u in grid), *((0.0, u) for u in grid), *product(grid, grid)])
    mass = np.concatenate(([1.0], density, density, np.outer(density, density).ravel()))
    mass = mass * np.exp(LOG[likelihood](y[:, None] * (X @ b.T)).sum(axis=0))
    part = np.split(mass, np.cumsum((1, len(grid), len(grid))))
    weight = np.array([each.sum() for each in part]) * [0.7**2, 0.3 * 0.7, 0.3 * 0.7, 0.3**2]
    exact = np.array([weight[1] + weight[3], weight[2] + weight[3]]) / weight.sum()
    assert (exact > 0.1).all() and (exact < 0.9).all()
    model = BayesianSVC(
        SpikeSlab(inclusion=0.3, scale=1.0), "gibbs", likelihood=likelihood, fit_intercept=False, standardize=False,
        draws=2000, warmup=200, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert (np.abs(model.inclusion_ - exact) < 4.0 * model.inclusion_error_).all()
    assert (model.inclusion_error_ < 0.01).all()


@dataclass(frozen=True)
class Softplus(RowLoss):
    """The logit as a user would write it, with a slope of its own."""

    slope: float = 1.0

    normalised = True

    @staticmethod
    def derivatives(y, f, slope):
        t = slope * y * f
        small = math.exp(-abs(t))
        p = (small if t > 0.0 else 1.0) / (1.0 + small)
        return min(t, 0.0) - math.log1p(small), slope * y * p, slope * slope * p * (1.0 - p)

    @staticmethod
    def bends(y, slope):
        return (0.0,), 1.0 / slope

    @staticmethod
    def expect(y, c, f, v, slope):
        xi = max(math.sqrt(f * f + v), 1e-8)
        w = 0.5 * c * slope * math.tanh(0.5 * slope * xi) / xi
        return w, 0.5 * c * slope * y, c * (0.5 * slope * (y * f - xi) - math.log1p(math.exp(-slope * xi)))


@pytest.mark.parametrize("inference", ["vb", "map", "meanfield", "hmc"])
def test_a_users_loss_fits_as_the_librarys(inference):
    X, y = overlapping()
    run = {"draws": 50, "chains": 1, "random_state": 0}
    own = BayesianSVC(Ridge(scale=0.5), inference, likelihood=Softplus(), **run).fit(X, y)
    named = BayesianSVC(Ridge(scale=0.5), inference, likelihood="logit", **run).fit(X, y)
    np.testing.assert_allclose(own.coef_, named.coef_, rtol=1e-6)
    np.testing.assert_allclose(own.predict_proba(X), named.predict_proba(X), atol=1e-6)
    assert own.learning_rate_ == 1.0
    if inference == "vb":
        assert own.summary().header.startswith("Softplus(slope=1.0)")


def test_loss_objects_are_parameters_like_others():
    X, y = overlapping(40)
    model = BayesianSVC(likelihood=Softplus(2.0))
    assert clone(model).likelihood == Softplus(2.0)
    assert model.get_params()["likelihood__slope"] == 2.0
    assert BayesianSVC(likelihood=Hinge()).fit(X, y).summary().header.startswith("hinge, ")
    given, named = (BayesianSVC(likelihood=loss).fit(X, y) for loss in (Logit(), "logit"))
    np.testing.assert_array_equal(given.coef_, named.coef_)
    band = BayesianSVR(likelihood=EpsilonInsensitive(0.2), standardize=False).fit(X, X[:, 0] + 0.3 * y)
    assert band.epsilon_ == pytest.approx(0.2)


def test_losses_that_do_not_go_say_why():
    X, y = overlapping(40)
    with pytest.raises(ValueError, match=r"likelihood=Hinge is a class; give an object of it, Hinge\(\)"):
        BayesianSVC(likelihood=Hinge).fit(X, y)
    with pytest.raises(ValueError, match=r"likelihood=SquaredHinge\(\) is no density of y .* Check have them"):
        BayesianSVR(likelihood=SquaredHinge()).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"epsilon=0.1 .* likelihood=Check\(quantile=0.9\) has its own or none"):
        BayesianSVR(likelihood=Check(0.9), epsilon=0.1).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="needs a loss with 'gaussian', which NoGaussian does not have"):
        BayesianSVC(likelihood=NoGaussian()).fit(X, y)


class NoGaussian(NoisyHinge):
    gaussian = None
