"""Priors and losses of the user's own, and their parameters in searches."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from softmargin import BayesianKernelClassifier, BayesianKernelRegressor, BayesianSVC, BayesianSVR, Formula
from softmargin.checks import check_prior
from softmargin.losses import Check, EpsilonInsensitive, Hinge, RowLoss
from softmargin.priors import (
    GroupLasso,
    HalfT,
    Horseshoe,
    LaplaceZero,
    Lasso,
    Prior,
    PriorBase,
    PriorMessage,
    PriorState,
    Ridge,
    SpikeSlab,
)

SHORT = {"draws": 200, "warmup": 100, "chains": 2, "random_state": 0}
FLAT = 1e-8


@dataclass(frozen=True)
class MyRidge(Prior):
    """Normal coefficients, written with nothing but the formulas."""

    scale: float = 1.0

    def bind(self, free, rows=None):
        return MyBound(free, self.scale)


@dataclass(frozen=True, eq=False)
class MyBound(PriorBase):
    free: Any
    scale: float

    @property
    def precision(self):
        return np.where(self.free, FLAT, self.scale**-2.0)

    def start(self):
        return PriorState(self.precision, {"scale": self.scale})

    def expect(self, mean, var):
        d = self.precision
        bound = 0.5 * float(np.log(d / (2.0 * math.pi)).sum() - d @ (mean * mean + var))
        return PriorMessage(d, bound, {"scale": self.scale})

    def mode(self, beta):
        return self.expect(beta, np.zeros(len(beta)))

    def draw(self, rng, state, beta):
        return state

    def logpdf(self, state, beta):
        return self.expect(beta, np.zeros(len(beta))).bound

    def at_scale(self, scale):
        return replace(self, scale=scale)


@dataclass(frozen=True)
class SoftHinge(RowLoss):
    """A logistic loss with another slope."""

    slope: float = 2.0

    @staticmethod
    def derivatives(y, f, slope):
        p = 1.0 / (1.0 + math.exp(max(min(slope * y * f, 700.0), -700.0)))
        log = -max(-slope * y * f, 0.0) - math.log1p(math.exp(-abs(slope * y * f)))
        return log, slope * y * p, slope * slope * p * (1.0 - p)

    @staticmethod
    def bends(y, slope):
        return (0.0,), 2.0 / slope


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    f = X @ [1.5, -1.0, 0.0]
    return X, np.where(f + rng.logistic(size=100) > 0.0, 1, 0), f + 0.5 * rng.normal(size=100)


def test_a_prior_of_ones_own_is_checked():
    check_prior(MyRidge(0.7))


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield", "gibbs", "hmc", "svi"])
@pytest.mark.parametrize("make", [BayesianSVC, BayesianSVR])
def test_a_prior_of_ones_own_works_with_every_inference(data, make, inference):
    X, label, y = data
    target = label if make is BayesianSVC else y
    given = {"likelihood": "logit"} if make is BayesianSVC else {"likelihood": "squared", "noise": 0.5}
    ours, theirs = (
        make(prior, inference, **given, **SHORT).fit(X, target) for prior in (MyRidge(0.7), Ridge(scale=0.7))
    )
    tol = 0.1 if inference in ("gibbs", "hmc") else 1e-3
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=tol)


@pytest.mark.parametrize(
    ("gone", "inference", "said"),
    [
        ("expect", "vb", "needs a prior with 'expect'"),
        ("expect", "svi", "needs a prior with 'expect'"),
        ("expect", "meanfield", "needs a prior with 'expect'"),
        ("mode", "map", "needs a prior with 'mode'"),
        ("draw", "gibbs", "needs a prior with 'draw'"),
        ("logpdf", "gibbs", "needs a prior with 'logpdf'"),
        ("draw", "hmc", "needs a prior with 'draw'"),
    ],
)
def test_what_a_prior_lacks_is_said_in_one_sentence(data, gone, inference, said):
    bare = type("Bare", (MyBound,), {gone: None})

    class Mine(Prior):
        def bind(self, free, rows=None):
            return bare(free, 0.7)

    with pytest.raises(TypeError, match=said):
        BayesianSVC(Mine(), inference, learning_rate=1.0, **SHORT).fit(*data[:2])


def test_what_is_no_bound_prior_is_refused(data):
    class Mine(Prior):
        def bind(self, free, rows=None):
            return free

    with pytest.raises(ValueError, match="derives from softmargin"):
        BayesianSVC(Mine()).fit(*data[:2])

    class Nameless(Mine):
        def bind(self, free, rows=None):
            return PriorBase()

    with pytest.raises(ValueError, match=r"needs a method start\(\)"):
        BayesianSVC(Nameless()).fit(*data[:2])


def test_classes_in_one_model_ask_for_a_prior_that_knows_them(data):
    X, label, _ = data
    label = label + (X[:, 2] > 1.0)
    with pytest.raises(ValueError, match=r"does not take classes=k.*use multi_class='pairwise'"):
        BayesianSVC(MyRidge(), multi_class="sum-to-zero").fit(X, label)


@pytest.mark.parametrize("make", [BayesianSVC, BayesianKernelClassifier])
def test_a_loss_of_ones_own_is_taken(data, make):
    X, label, _ = data
    model = make(likelihood=SoftHinge(2.0), learning_rate=1.0).fit(X, label)
    assert model.score(X, label) > 0.75
    with pytest.raises(TypeError, match="needs a loss with 'draw'"):
        make(likelihood=SoftHinge(), inference="gibbs", learning_rate=1.0, **SHORT).fit(X, label)


def test_a_loss_object_is_the_loss_of_its_name(data):
    X, label, _ = data
    given = {"length_scale": 1.0, "learning_rate": 0.5}
    named, made = (BayesianKernelClassifier(likelihood=one, **given).fit(X, label) for one in ("hinge", Hinge()))
    np.testing.assert_array_equal(named.predict_proba(X), made.predict_proba(X))
    with pytest.raises(ValueError, match="does not go with basis='active'"):
        BayesianKernelClassifier(likelihood=SoftHinge(), basis="active", inference="gibbs").fit(X, label)


PARTS = [
    Ridge(0.5),
    Ridge(hyperprior=HalfT(2.0)),
    Lasso(0.3),
    Horseshoe(),
    SpikeSlab(always_include=[1]),
    LaplaceZero(0.2),
    GroupLasso(),
    MyRidge(2.0),
]


@pytest.mark.parametrize("prior", PARTS, ids=lambda prior: type(prior).__name__)
def test_priors_are_cloned_and_changed_by_name(prior):
    model = clone(BayesianSVC(prior))
    assert model.prior == prior
    assert model.get_params()["prior__scale"] == prior.scale
    changed = clone(model).set_params(prior__scale=0.25)
    assert (changed.prior.scale, model.prior.scale) == (0.25, prior.scale)
    assert type(changed.prior) is type(prior)


def test_parts_of_parts_have_names_too():
    model = BayesianSVC(Ridge(hyperprior=HalfT(2.0)))
    assert model.get_params()["prior__hyperprior__scale"] == 2.0
    model.set_params(prior__hyperprior__scale=3.0, prior__intercept_scale=10.0)
    assert model.prior == Ridge(hyperprior=HalfT(3.0), intercept_scale=10.0)


def test_parts_themselves_do_not_change():
    loss = EpsilonInsensitive(0.1)
    assert loss.set_params(epsilon=0.5) == EpsilonInsensitive(0.5)
    assert loss == EpsilonInsensitive(0.1)
    with pytest.raises(ValueError, match="EpsilonInsensitive has no parameter 'width'; it has epsilon"):
        loss.set_params(width=1.0)


def test_names_have_no_parameters():
    with pytest.raises(ValueError, match=r"prior__scale is a parameter of a prior object.*such as Ridge\(\)"):
        BayesianSVC("ridge").set_params(prior__scale=1.0)


@pytest.mark.parametrize(
    ("model", "grid", "best"),
    [
        (BayesianSVR(Ridge(1.0), likelihood="squared"), {"prior__scale": [1e-4, 1.0]}, 1.0),
        (BayesianSVR(MyRidge(1.0), likelihood="squared"), {"prior__scale": [1e-4, 1.0]}, 1.0),
        (BayesianSVR(likelihood=Check(0.5)), {"likelihood__quantile": [0.01, 0.5]}, 0.5),
        (BayesianKernelRegressor(likelihood=Check(0.5)), {"likelihood__quantile": [0.01, 0.5]}, 0.5),
    ],
)
def test_parameters_of_parts_are_searched(data, model, grid, best):
    X, _, y = data
    found = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert list(found.best_params_.values()) == [best]


def test_formulas_pass_parameters_on(data):
    pytest.importorskip("formulae")
    model = Formula("y ~ a + b", BayesianSVR(Ridge(1.0))).set_params(estimator__prior__scale=0.1)
    assert clone(model).estimator.prior == Ridge(0.1)
