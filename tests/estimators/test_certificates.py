"""A certificate holds for the problem that the user gave, whatever the rank and the units of its columns."""

import warnings

import numpy as np
import pytest
from convex_oracle import clarabel_optimum, columns_of, objective

from softmargin import BayesianSVC
from softmargin.priors import Lasso, Ridge


def random_problem(seed):
    """Rows, labels, weights and settings: more columns than rows or fewer, nearly dependent ones, any units."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 40))
    p = int(rng.integers(n + 1, 3 * n)) if rng.random() < 0.6 else int(rng.integers(2, max(3, n // 2)))
    X = rng.standard_normal((n, p))
    if rng.random() < 0.4:
        rank = int(rng.integers(1, min(n, p)))
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + 10.0 ** rng.uniform(-8, -2) * X
    if rng.random() < 0.5:
        X = X * 10.0 ** rng.uniform(-5, 5, p)
    elif rng.random() < 0.3:
        X = X + rng.normal(0, 5, p)
    f = X / np.abs(X).max(axis=0) @ rng.standard_normal(p)
    f = (f - np.median(f)) / f.std() + rng.choice([0.0, 0.5, 2.0]) * rng.standard_normal(n)
    y = np.where(f > 0, 1.0, -1.0)
    y[0] = -y[1:].mean() if abs(y.mean()) == 1.0 else y[0]
    weight = rng.uniform(0.1, 5, n) if rng.random() < 0.5 else np.ones(n)
    kind = Ridge if rng.random() < 0.6 else Lasso
    prior = kind(10.0 ** rng.uniform(-3, 5), intercept_scale=float(rng.choice([1e4, 1.0, 0.1])))
    return X, y, weight, prior, bool(rng.random() < 0.5), float(rng.choice([0.25, 1.0, 4.0]))


def excess(X, y, weight, prior, standardized, rate):
    """How far our objective is above the best one known, and how far the certificate says it may be; both relative."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a gap is large is said in a warning
        model = BayesianSVC(prior, "map", learning_rate=rate, standardize=standardized).fit(X, y, sample_weight=weight)
    Z, mean, spread = columns_of(X, weight, standardized)
    coef = model.coef_[0]
    ours = objective(Z, y, rate * weight, float(model.intercept_[0] + mean @ coef), coef * spread, prior)
    return (ours - clarabel_optimum(Z, y, rate * weight, prior)) / ours, model.gap_


def assert_certified(seeds):
    wrong = {}
    for seed in seeds:
        above, allowed = excess(*random_problem(seed))
        if above > max(allowed, 0.0) + 1e-6:
            wrong[seed] = above, allowed
    assert not wrong


def test_no_certificate_of_random_problems_is_wrong():
    assert_certified(range(40))


@pytest.mark.soak
def test_no_certificate_of_many_random_problems_is_wrong():
    assert_certified(range(40, 440))


def test_directions_far_smaller_than_the_largest_matter_under_a_wide_prior():
    """Rank two with noise of 1e-5: the noise separates the classes, at a price that a wide prior makes small."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 20)) + 1e-5 * rng.standard_normal((12, 20))
    y = np.where(rng.random(12) < 0.5, 1.0, -1.0)
    above, gap = excess(X, y, np.ones(12), Ridge(1e5), False, 1.0)
    assert above <= 1e-6
    assert gap <= 1e-8


def test_a_gap_that_is_left_is_said():
    """Columns in units from 1e-5 to 1e5 under absolute values: the mode is not found, and the user is told."""
    X, y, weight, prior, standardized, rate = random_problem(145)
    assert not isinstance(prior, Ridge)
    with pytest.warns(UserWarning, match="certified to a relative gap of .* only; .* columns in similar units"):
        model = BayesianSVC(prior, "map", learning_rate=rate, standardize=standardized).fit(X, y, sample_weight=weight)
    assert model.gap_ > 1e-6
