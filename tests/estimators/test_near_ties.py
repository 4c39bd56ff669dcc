"""Rows on the boundary: the predicted class is the more probable one, to the last bit."""

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianKernelClassifier, BayesianSVC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def problem(n=80, p=3, noise=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] + 0.5 + noise * rng.normal(size=n) > 0, 1, 0)


def on_the_boundary(decide, X, y):
    """Rows between pairs of different classes, where the decision function changes its sign, and their neighbours."""
    low, high = X[y == 0][:15], X[y == 1][:15]
    apart = (decide(low) > 0) != (decide(high) > 0)
    assert apart.sum() > 5
    low, high = low[apart], high[apart]
    ends = np.array([np.zeros(len(low)), np.ones(len(low))])
    first = decide(low) > 0

    def rows(t):
        return low + t[:, None] * (high - low)

    for _ in range(60):
        middle = ends.mean(axis=0)
        same = (decide(rows(middle)) > 0) == first
        ends = np.where(np.array([same, ~same]), middle, ends)
    steps = ends[0] * (1.0 + 2.0**-52 * np.arange(-4, 5)[:, None])
    return np.concatenate([rows(t) for t in steps])


def check(model, X):
    p = model.predict_proba(X)
    assert np.array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    np.testing.assert_array_equal(p[:, 1] > 0.5, model.decision_function(X) > 0.0)


@pytest.mark.parametrize("kind", ["calibrated", "pseudo", "sign"])
@pytest.mark.parametrize("inference", ["map", "vb", "gibbs"])
def test_two_classes(inference, kind):
    X, y = problem()
    model = BayesianSVC(inference=inference, probability=kind, draws=50, warmup=50, random_state=0).fit(X, y)
    near = on_the_boundary(model.decision_function, X, y)
    assert np.abs(model.decision_function(near)).max() < 1e-12
    check(model, near)


@pytest.mark.parametrize("costs", [None, [[0, 1], [3, 0]]])
@pytest.mark.parametrize("likelihood", ["logit", "hinge"])
def test_unequal_classes_whose_link_has_an_offset(costs, likelihood):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + rng.normal(size=300) > 1.2).astype(int)
    model = BayesianSVC(likelihood=likelihood, costs=costs, random_state=0).fit(X, y)
    check(model, on_the_boundary(model.decision_function, X, y))


def test_missing_values():
    X, y = problem()
    X[::7, 2] = np.nan
    model = BayesianSVC(random_state=0).fit(X, y)
    complete = np.where(np.isnan(X), 0.0, X)
    near = on_the_boundary(model.decision_function, complete, y)
    check(model, near)
    check(model, X)


def test_groups():
    X, y = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    group = np.arange(len(y)) % 5
    model = BayesianSVC(random_effects="g", random_state=0).fit(frame.assign(g=group), y)

    def framed(rows, label):
        return pd.DataFrame(rows, columns=["a", "b", "c"]).assign(g=label)

    for label in (1, 9):  # a known group and a new one
        near = on_the_boundary(lambda rows, label=label: model.decision_function(framed(rows, label)), X, y)
        check(model, framed(near, label))


@pytest.mark.parametrize("inference", ["map", "vb"])
def test_kernel(inference):
    X, y = problem(80, 2, noise=0.2)
    model = BayesianKernelClassifier(inference=inference, length_scale=1.0, random_state=0).fit(X, y)
    check(model, on_the_boundary(model.decision_function, X, y))


@pytest.mark.parametrize("scheme", ["pairwise", "sum-to-zero", "crammer-singer"])
def test_many_classes(scheme):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=90), [-0.5, 0.5])
    model = BayesianSVC(inference="map", multi_class=scheme, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    assert np.array_equal(model.predict(X), p.argmax(axis=1))
