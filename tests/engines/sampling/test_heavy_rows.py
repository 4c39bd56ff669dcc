"""Rows of any weight: engines agree, or say that they did not converge."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR
from softmargin.core.loop import relative
from softmargin.priors import Bridge, Ridge


def rows(n=63):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 5)), rng.integers(0, 2, n)


@pytest.mark.parametrize("weight", [1e3, 1e5, 1e7, 1e9])
@pytest.mark.parametrize("inference", ["vb", "meanfield", "svi"])
def test_heavy_rows_have_the_mode_as_their_posterior_mean(inference, weight):
    """The posterior shrinks onto its mode, which is found by another engine, like one over the weight."""
    X, y = rows()
    mode = BayesianSVC("ridge", "map", learning_rate=0.25).fit(X, y, sample_weight=np.full(63, weight))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = BayesianSVC("ridge", inference, learning_rate=0.25).fit(X, y, sample_weight=np.full(63, weight))
    assert fit.converged_
    np.testing.assert_allclose(fit.coef_, mode.coef_, atol=3.0 / weight + 1e-7)


def test_the_spread_of_heavy_rows_is_that_of_the_limit():
    """Ten times the weight is a tenth of the standard deviation where the prior says nothing."""
    X, y = rows()
    deviation = [
        BayesianSVC("ridge", "vb", learning_rate=0.25)
        .fit(X, y, sample_weight=np.full(63, weight))
        .summary()["sd"]
        .to_numpy()
        for weight in (1e6, 1e8)
    ]
    np.testing.assert_allclose(deviation[0], 100.0 * deviation[1], rtol=0.05)


def test_weights_over_many_decades_and_zeros():
    X, y = rows()
    rng = np.random.default_rng(1)
    weight = np.where(rng.random(63) < 0.1, 0.0, 10.0 ** rng.uniform(-9.0, 9.0, 63))
    mode, vb, svi = (
        BayesianSVC(Ridge(1.0), inference, learning_rate=0.25).fit(X, y, sample_weight=weight)
        for inference in ("map", "vb", "svi")
    )
    deviation = vb.summary()["sd"].to_numpy()[1:]
    assert (np.abs(svi.coef_[0] - vb.coef_[0]) < deviation).all()
    assert (np.abs(mode.coef_[0] - vb.coef_[0]) < 2.0 * deviation).all()


def test_svi_says_that_batches_of_heavy_rows_did_not_settle():
    X, y = rows(1500)
    fit = BayesianSVC("ridge", "svi", learning_rate=0.25, engine_options={"batch": 200, "first": 500}, random_state=0)
    with pytest.warns(ConvergenceWarning, match="use inference='vb'"):
        fit.fit(X, y, sample_weight=np.full(1500, 1e7))
    assert not fit.converged_


@pytest.mark.parametrize("weight", [1e5])
def test_kernel_svi_finds_the_bound_of_vb_at_any_weight(weight):
    X, y = rows()
    vb, svi = (
        BayesianKernelClassifier(
            inference=inference, basis="inducing", learning_rate=0.25, length_scale=2.0, n_inducing=63
        )
        .fit(X, y, sample_weight=np.full(63, weight))
        .trace_[-1]
        for inference in ("vb", "svi")
    )
    assert svi == pytest.approx(vb, abs=0.1)


@pytest.mark.soak
def test_hmc_starts_with_noise_that_all_but_vanishes_under_heavy_rows():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((60, 5))
    weight = 10.0 ** rng.uniform(-3.0, 3.0, 60)
    fit = BayesianSVR("lasso", "hmc", draws=4, warmup=4, chains=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws
        fit.fit(X, X[:, 0], sample_weight=weight)
    np.testing.assert_allclose(fit.coef_[0], [1.0, 0.0, 0.0, 0.0, 0.0], atol=1e-3)


def test_meanfield_does_not_follow_rounding():
    """More columns than rows under a prior that is all but flat: the bound cannot be told from its rounding."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((15, 36)), rng.standard_normal(15)
    fit = BayesianSVR(Bridge(0.13, 1.5), "meanfield", likelihood="squared", noise=0.005)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit.fit(X, y)
    assert len({one.category for one in caught}) == len(caught) <= 2  # not converged, and what it says of the model
    assert np.isfinite(fit.coef_).all()
    np.testing.assert_allclose(fit.predict(X), y, atol=0.05)


def test_a_change_is_measured_so_that_heavy_rows_do_not_hide_it():
    assert relative(1.0, 99.0) == 0.01
    assert relative(1.0, -1e9) == pytest.approx(1e-6, rel=1e-5)
    assert relative(1e-7, 1e9) == 0.0
