"""No fit ends with a number that is not finite, and none with a raw numerical error."""

import warnings

import numpy as np
import pytest

from softmargin import BayesianSVC, BayesianSVR
from softmargin.engines.kernel.data import KernelData
from softmargin.engines.kernel.jump import fit_active
from softmargin.inference.functions import INFERENCES
from softmargin.losses import Probit
from softmargin.rows.streams import Streams
from softmargin.rows.variates import tilted_stable


def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((63, 5)), rng.integers(0, 2, 63)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("lost"), OverflowError("lost"), ZeroDivisionError("lost")])
def test_a_numerical_error_becomes_a_sentence_and_leaves_the_last_fit(monkeypatch, error):
    X, y = rows()
    fit = BayesianSVR().fit(X, y)
    before = fit.coef_

    def broken(*_):
        raise error

    monkeypatch.setitem(INFERENCES, "vb", broken)
    with pytest.raises(ValueError, match=r"broke down numerically: .* bring them closer"):
        fit.fit(X, y)
    assert fit.coef_ is before


def test_coefficients_that_are_not_finite_are_refused(monkeypatch):
    X, y = rows()
    usual = INFERENCES["map"]

    def spoilt(*given):
        found = usual(*given)
        found.posterior.mean[:] = np.nan
        return found

    monkeypatch.setitem(INFERENCES, "map", spoilt)
    fit = BayesianSVR(inference="map")
    with pytest.raises(ValueError, match="not finite"):
        fit.fit(X, y)
    assert not hasattr(fit, "coef_")


def test_random_effects_are_drawn_with_heavy_rows():
    X, y = rows()
    fit = BayesianSVC("ridge", "gibbs", draws=30, warmup=30, chains=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws have not mixed
        fit.fit(X, y, sample_weight=np.full(63, 5e8), groups=np.arange(63) % 7)
    assert np.isfinite(fit.posterior_.draws).all()


def test_the_active_basis_carries_weights(monkeypatch):
    """The logit's rows are never copied, whatever they weigh; the probit says that it would have to."""

    def copied(_):
        raise AssertionError("rows were copied by weight")

    X, y = rows()
    K, sign, draws = X @ X.T + np.eye(63), 2.0 * y - 1.0, {"sweeps": 10, "warmup": 5, "thin": 1}
    draws["streams"] = Streams((0, 0))
    monkeypatch.setattr(KernelData, "row", property(copied))
    found = fit_active(K, sign, 10.0 ** (np.arange(63) % 5), likelihood="logit", **draws)
    assert np.isfinite(found.intercept).all()
    with pytest.raises(ValueError, match=r"at most 1e\+06 in all, and the weights sum to 6.3e\+10"):
        fit_active(K, sign, np.full(63, 1e9), likelihood="probit", **draws)


def test_probit_draws_refuse_more_copies_than_they_can_draw():
    with pytest.raises(ValueError, match=r"sum to 1e\+09"):
        Probit().draw(np.random.default_rng(0), np.ones(1), np.array([1e9]), np.zeros(1))


@pytest.mark.parametrize("size", [np.nan, np.inf])
def test_a_rejection_that_would_never_end_is_refused(size):
    with pytest.raises(FloatingPointError, match="not finite"):
        tilted_stable(np.random.default_rng(0), np.array([1.0, size]), 0.5)
