"""The spike-and-slab prior: what it accepts, how it binds, and its own draws."""

import math

import numpy as np
import pytest

from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.inference.selecting import selecting_sampler
from softmargin.priors import HalfT, InverseGamma
from softmargin.priors.scales import FixedScale
from softmargin.priors.spike_slab import SpikeSlab

FREE = np.array([True, False, False, False, False])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"inclusion": 0.0}, "inclusion must be a number in"),
        ({"inclusion": 1.0}, "inclusion must be a number in"),
        ({"inclusion": -0.2}, "inclusion must be a number in"),
        ({"inclusion": math.nan}, "inclusion must be a number in"),
        ({"inclusion": "half"}, "'learn'; got 'half'"),
        ({"scale": -1.0}, "scale must be a positive number"),
        ({"scale": 0.0}, "scale must be a positive number"),
        ({"scale": "auto"}, "scale must be a positive number"),
        ({"inclusion": 0.2, "expected_size": 3}, "not both"),
        ({"expected_size": 0}, "expected_size must be a positive"),
        ({"inclusion_prior": (1.0, 0.0)}, "inclusion_prior"),
        ({"inclusion_prior": (1.0,)}, "inclusion_prior"),
        ({"intercept_scale": 0.0}, "intercept_scale"),
    ],
)
def test_bad_values(arguments, words):
    with pytest.raises(ValueError, match=words):
        SpikeSlab(**arguments)


def test_bind():
    bound = SpikeSlab(0.2, 3.0).bind(FREE)
    assert bound.pi == 0.2
    assert bound.scale_prior == FixedScale(3.0)
    np.testing.assert_array_equal(bound.always, FREE)
    assert bound.selectable == 4
    assert selecting_sampler(bound) is spike_slab
    assert not bound.isotropic and not SpikeSlab().isotropic
    assert SpikeSlab().bind(FREE).scale_prior == HalfT(1.0)
    assert SpikeSlab("learn", hyperprior=InverseGamma(3.0, 2.0)).bind(FREE).scale_prior == InverseGamma(3.0, 2.0)
    np.testing.assert_allclose(bound.slab_precision(2.0), [1e-8, 0.25, 0.25, 0.25, 0.25])


def test_expected_size_counts_columns_that_can_be_out():
    assert SpikeSlab(expected_size=1.0).bind(FREE).pi == 0.25
    assert SpikeSlab(expected_size=1.0, always_include=[0]).bind(FREE).pi == pytest.approx(1.0 / 3.0)
    with pytest.raises(ValueError, match="below the number of columns that can be out, 4"):
        SpikeSlab(expected_size=4.0).bind(FREE)


def test_always_include():
    expected = [True, False, True, False, True]
    np.testing.assert_array_equal(SpikeSlab(always_include=[1, 3]).bind(FREE).always, expected)
    np.testing.assert_array_equal(SpikeSlab(always_include=[False, True, False, True]).bind(FREE).always, expected)
    mask = np.array([False, False, True, False, True])
    np.testing.assert_array_equal(SpikeSlab(always_include=["b", "d"]).bind(FREE, always=mask).always, expected)
    for bad in (["b"], [7], [-1], [True, False]):
        with pytest.raises(ValueError, match="always_include"):
            SpikeSlab(always_include=bad).bind(FREE)
    with pytest.raises(ValueError, match="2 entries for 5"):
        SpikeSlab().bind(FREE, always=mask[:2])


def test_state():
    gamma = np.array([True, True, False, False, True])
    state = SpikeSlab("learn", 2.0).bind(FREE).state(2.0, 0.3, gamma)
    assert state.values == {"scale": 2.0, "size": 2.0, "inclusion": 0.3}
    np.testing.assert_allclose(state.precision[gamma], [1e-8, 0.25, 0.25])
    assert (state.precision[~gamma] >= 1e20).all()
    assert "inclusion" not in SpikeSlab(0.3, 2.0).bind(FREE).state(2.0, 0.3, gamma).values


def test_draws():
    """The inclusion probability counts the coefficients that can be out; the scale sees the slab."""
    gamma = np.array([True, True, False, False, True])
    bound = SpikeSlab("learn", inclusion_prior=(2.0, 3.0), hyperprior=InverseGamma(3.0, 2.0)).bind(FREE)
    rng = np.random.default_rng(0)
    draws = np.array([bound.draw_inclusion(rng, gamma) for _ in range(20_000)])
    a, b = 2.0 + 2.0, 3.0 + 2.0
    mean, sd = a / (a + b), math.sqrt(a * b / (a + b) ** 2 / (a + b + 1.0))
    assert abs(draws.mean() - mean) < 4.0 * sd / math.sqrt(len(draws))
    assert draws.std() == pytest.approx(sd, rel=0.03)
    beta = np.array([50.0, 1.0, 0.0, 0.0, -2.0])
    tau = np.array([bound.draw_scale(rng, 1.0, beta, gamma) for _ in range(20_000)]) ** -2
    shape, rate = 3.0 + 1.0, 2.0 + 2.5
    assert abs(tau.mean() - shape / rate) < 4.0 * math.sqrt(shape) / rate / math.sqrt(len(tau))
    assert SpikeSlab(0.2, 2.0).bind(FREE).draw_inclusion(rng, gamma) == 0.2
    assert SpikeSlab(0.2, 2.0).bind(FREE).draw_scale(rng, 2.0, beta, gamma) == 2.0
