"""Whole fits of many rows: the same answers as when every row is worked on, whatever the number of threads."""

import numpy as np
import pytest
from scipy.special import expit

from softmargin import BayesianSVC
from softmargin.engines.mode import newton
from softmargin.inference import evidence
from softmargin.inference import many_rows as tall
from softmargin.inference.readout import HeldOut
from softmargin.models import two_class as binary
from softmargin.priors import Ridge


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((24_000, 6)) * [1.0, 2.0, 0.1, 1.0, 1.0, 5.0] + 3.0
    truth = np.array([1.0, -0.4, 5.0, 0.0, 0.0, 0.0])
    return X, np.where((X - 3.0) @ truth + 0.6 * rng.standard_normal(24_000) > 0.2, "yes", "no")


def plain(monkeypatch):
    """Let no model have many rows."""
    for module in (binary, evidence, tall, newton):
        monkeypatch.setattr(module, "many_rows", lambda model: False)


def test_vb_of_many_rows_is_the_plain_fit(rows, monkeypatch):
    found = BayesianSVC(learning_rate=0.25).fit(*rows)
    plain(monkeypatch)
    wanted = BayesianSVC(tol=1e-9, learning_rate=0.25).fit(*rows)
    assert found.converged_
    a, b = found.summary(), wanted.summary()
    np.testing.assert_allclose(a["mean"], b["mean"], atol=0.02 * b["sd"].min())
    np.testing.assert_allclose(a["sd"], b["sd"], rtol=0.01)
    np.testing.assert_allclose(found.scale_, wanted.scale_, rtol=1e-2)
    np.testing.assert_allclose(found.trace_[-1], wanted.trace_[-1], rtol=1e-6)
    np.testing.assert_allclose(found.loo_probability_, wanted.loo_probability_, atol=1e-3)
    np.testing.assert_allclose(found.loo_.score, wanted.loo_.score, atol=1e-5)


JOINT = {"starts": (0.1, 1.0, 10.0)}  # of the joint mode of coefficients and scale


def test_map_of_many_rows_is_the_best_of_several_starts(rows, monkeypatch):
    found = BayesianSVC(inference="map", learning_rate=0.25, engine_options=JOINT).fit(*rows)
    plain(monkeypatch)
    wanted = BayesianSVC(inference="map", learning_rate=0.25, engine_options=JOINT).fit(*rows)
    assert found.gap_ <= 1e-12
    np.testing.assert_allclose(found.scale_, wanted.scale_, rtol=1e-5)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.trace_[-1], wanted.trace_[-1], rtol=1e-10)
    np.testing.assert_allclose(found.loo_probability_, wanted.loo_probability_, atol=1e-4)


def test_noise_has_one_mode(monkeypatch):
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((21_000, 4)), rng.random(21_000) < 0.4
    found = BayesianSVC(inference="map", learning_rate=0.25, engine_options=JOINT).fit(X, y)
    plain(monkeypatch)
    wanted = BayesianSVC(inference="map", learning_rate=0.25, engine_options=JOINT).fit(X, y)
    np.testing.assert_allclose(found.trace_[-1], wanted.trace_[-1], rtol=1e-9)


@pytest.mark.parametrize("inference_name", ["vb", "map"])
def test_threads_change_nothing(rows, inference_name):
    one = BayesianSVC(inference=inference_name).fit(*rows)
    two = BayesianSVC(inference=inference_name, n_jobs=2).fit(*rows)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.loo_probability_, two.loo_probability_)


def test_weights_count_rows(rows):
    X, y = rows
    X, y = X[:21_000], y[:21_000]
    weight = np.random.default_rng(9).integers(1, 3, len(y))
    args = {"prior": Ridge(scale=0.5), "inference": "map", "learning_rate": 0.25, "standardize": False}
    weighted = BayesianSVC(**args).fit(X, y, sample_weight=weight)
    repeated = BayesianSVC(**args).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.gap_ <= 1e-10
    assert repeated.gap_ <= 1e-8
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("prior", ["ridge", "lasso"])
@pytest.mark.parametrize(
    ("rows", "cut"),
    [
        (21_000, 4.0),
        pytest.param(50_000, 4.5, marks=pytest.mark.soak),
        pytest.param(50_000, 7.0, marks=pytest.mark.soak),
    ],
)
def test_rare_classes_are_the_plain_fit(prior, rows, cut, monkeypatch):
    """Where a class is rare, no row may be near the margin of a first guess.

    Straight links are compared to 0.002. A curve in the link of a fit that is next to constant has slopes of hundreds,
    and shows that left-out predictors of many rows come from a Gaussian with the moments of the mixture over the scale:
    its probabilities are compared by what they are worth.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 4))
    log_odds = X @ [1.0, -0.5, 0.3, 0.0] - cut
    y = (log_odds + rng.logistic(size=rows) > 0.0).astype(int)

    def fitted():
        return BayesianSVC(prior, learning_rate=0.25).fit(X, y)

    def loss(model):
        p, p_true = model.predict_proba(X)[:, 1], expit(log_odds)
        return -float(np.mean(p_true * np.log(p) + (1.0 - p_true) * np.log1p(-p)))

    found = fitted()
    with monkeypatch.context() as straight:
        straight.setattr(HeldOut, "bent", lambda self, *rows: self)
        unbent = fitted()
        plain(straight)
        wanted = fitted()
    np.testing.assert_allclose(unbent.predict_proba(X), wanted.predict_proba(X), atol=2e-3)
    np.testing.assert_allclose(unbent.trace_[-1], wanted.trace_[-1], rtol=1e-5)
    plain(monkeypatch)
    assert abs(loss(found) - loss(fitted())) < 1e-4


def test_columns_with_heavy_tails_are_the_plain_fit(monkeypatch):
    """Screens of rows by a first guess go wrong; climbs that they mislead must not be taken."""
    rng = np.random.default_rng(1)
    X = rng.standard_cauchy((40_000, 60))
    first = np.clip(X[:, 0], -3.0, 3.0)
    y = (first + rng.normal(size=40_000) > np.median(first)).astype(int)
    found = BayesianSVC(learning_rate=0.5).fit(X, y)
    plain(monkeypatch)
    wanted = BayesianSVC(learning_rate=0.5).fit(X, y)
    np.testing.assert_allclose(found.trace_[-1], wanted.trace_[-1], rtol=1e-5)
    assert found.score(X, y) > 0.8
