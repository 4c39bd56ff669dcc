"""Keywords of other estimators and names of columns that cannot be: what is said, and that it is true."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

import softmargin
from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, Formula
from softmargin.priors import Ridge

BROUGHT = [
    (BayesianSVC, (SVC, LinearSVC)),
    (BayesianSVR, (SVR, LinearSVR)),
    (BayesianKernelClassifier, (SVC,)),
]


def parameters(kind):
    return set(inspect.signature(kind.__init__).parameters) - {"self"}


@pytest.mark.parametrize(("ours", "theirs"), BROUGHT)
def test_every_keyword_of_a_support_vector_machine_is_known_or_explained(ours, theirs):
    unknown = set().union(*map(parameters, theirs)) - parameters(ours)
    assert "C" in unknown
    for name in sorted(unknown):
        with pytest.raises(TypeError, match=rf"^{ours.__name__} has no parameter '{name}': .+\.$"):
            ours(**{name: 1})


@pytest.mark.parametrize("kind", [BayesianSVC, BayesianSVR, BayesianKernelClassifier])
def test_constructors_keep_their_signatures(kind):
    assert not any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in _parameters(kind))
    assert parameters(kind) == set(kind().get_params())
    assert clone(kind(max_iter=7)).max_iter == 7
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        kind(foo=1)
    with pytest.raises(ValueError, match="Invalid parameter 'C'"):
        kind().set_params(C=1.0)


def _parameters(kind):
    return inspect.signature(kind.__init__).parameters.values()


def test_a_formula_explains_keywords_too():
    pytest.importorskip("formulae")
    data = pd.DataFrame({"y": [0, 1] * 5, "x": range(10)})
    with pytest.raises(TypeError, match="BayesianSVC has no parameter 'C': the penalty is learned"):
        softmargin.fit("y ~ x", data, C=1.0)


def test_the_penalty_of_regression_is_what_is_said():
    """C = 2 s^2 / nu: the same minimum as scikit-learn's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, -0.5, 0.0] + rng.laplace(size=60)
    scale, noise, epsilon = 0.3, 0.5, 0.2
    ours = BayesianSVR(prior=Ridge(scale), inference="map", noise=noise, epsilon=epsilon, standardize=False, tol=1e-10)
    theirs = SVR(kernel="linear", C=2 * scale**2 / noise, epsilon=epsilon, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.coef_, atol=1e-4)


def test_the_penalty_and_the_width_of_a_kernel_are_what_is_said():
    """C = 2 s^2 and gamma = 1 / length^2: the same decision function as scikit-learn's."""
    X, y = make_moons(60, noise=0.3, random_state=0)
    scale, length = 0.7, 0.8
    fixed = {"scale": scale, "length_scale": length, "learning_rate": 1.0, "standardize": False}
    ours = BayesianKernelClassifier(inference="map", basis="full", probability="pseudo", **fixed).fit(X, y)
    theirs = SVC(C=2 * scale**2, gamma=1 / length**2, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)


FRAME, LABEL = load_breast_cancer(return_X_y=True, as_frame=True)
FRAME, LABEL = FRAME.iloc[:60, :3].set_axis(["a", "b", "c"], axis=1), LABEL[:60]


@pytest.mark.parametrize("make", [BayesianSVC, BayesianSVR, BayesianKernelClassifier])
def test_columns_of_one_name_are_refused(make):
    with pytest.raises(ValueError, match=r"^X has several columns 'a'; give each a name of its own\.$"):
        make().fit(FRAME.set_axis(["a", "b", "a"], axis=1), LABEL)


def test_the_path_refuses_the_same_names():
    with pytest.raises(ValueError, match="X has several columns 'a'"):
        softmargin.path(FRAME.set_axis(["a", "b", "a"], axis=1), LABEL)
    with pytest.raises(ValueError, match="X has a column named 'Intercept'"):
        softmargin.path(FRAME.rename(columns={"a": "Intercept"}), LABEL)


@pytest.mark.parametrize("make", [BayesianSVC, BayesianSVR])
def test_a_column_is_not_called_intercept_beside_an_intercept(make):
    frame = FRAME.rename(columns={"a": "Intercept"})
    with pytest.raises(ValueError, match="drop the column, rename it, or set fit_intercept=False"):
        make().fit(frame, LABEL)
    model = make(inference="map", fit_intercept=False).fit(frame, LABEL)
    assert list(model.summary().index) == ["Intercept", "b", "c"]


def test_a_formula_refuses_a_predictor_called_intercept():
    pytest.importorskip("formulae")
    data = FRAME.rename(columns={"a": "Intercept"}).assign(y=LABEL)
    with pytest.raises(ValueError, match="X has a column named 'Intercept'"):
        Formula("y ~ Intercept + b", BayesianSVC()).fit(data)
    model = Formula("y ~ b", BayesianSVC(inference="map")).fit(data)  # beside the formula it may be called anything
    assert list(model.summary().index) == ["Intercept", "b"]
