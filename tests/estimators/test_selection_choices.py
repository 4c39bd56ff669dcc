"""What is chosen from inclusion probabilities, and what selecting priors refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from selection_cases import make, truth
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC
from softmargin.models.prior_choice import chosen
from softmargin.priors import Bridge, HalfCauchy, InverseGamma, LaplaceZero, SpikeSlab

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_median_model_and_false_discovery_by_hand():
    inclusion_ = np.array([0.2, 0.99, 0.5, 0.8, 0.95])
    np.testing.assert_array_equal(chosen(inclusion_, 0.5, None), [False, True, False, True, True])
    np.testing.assert_array_equal(chosen(inclusion_, 0.15, None), True)
    # running means of 1 - inclusion from the top: 0.01, 0.03, 0.0867, 0.19, 0.312
    for level, size in ((0.005, 0), (0.02, 1), (0.05, 2), (0.1, 3), (0.2, 4), (0.32, 5)):
        mask = chosen(inclusion_, 0.5, level)
        assert mask.sum() == size
        np.testing.assert_array_equal(np.sort(inclusion_)[::-1][:size], np.sort(inclusion_[mask])[::-1])
    for level in (0.0, 1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="false_discovery must be between 0 and 1; got"):
            chosen(inclusion_, 0.5, level)


def test_support_follows_the_inclusion_probabilities():
    X, y = truth()
    model = make("spike-slab gibbs").fit(X, y)
    model.inclusion_ = np.array([1.0, 0.9, 0.7, 0.4, 0.0])
    assert list(model.get_support(indices=True)) == [0, 1, 2]
    assert list(model.get_support(indices=True, threshold=0.3)) == [0, 1, 2, 3]
    assert list(model.get_support(indices=True, false_discovery=0.06)) == [0, 1]
    np.testing.assert_array_equal(model.transform(X), X[:, :3])


# Bad input

PROBABILITY = r"inclusion must be a number in \(0, 1\), one such number for every column, or 'learn'"
BAD_PRIORS = {
    "inclusion 0": (lambda: SpikeSlab(0.0), r"inclusion must be a number in \(0, 1\), .*or 'learn'; got 0.0"),
    "inclusion 1": (lambda: SpikeSlab(1.0), r"inclusion must be a number in \(0, 1\), .*or 'learn'; got 1.0"),
    "inclusion word": (lambda: SpikeSlab("half"), r"inclusion must be a number in \(0, 1\), .*or 'learn'; got 'half'"),
    "inclusion nan": (lambda: SpikeSlab(np.nan), "got nan"),
    "scale": (lambda: SpikeSlab(scale=-1.0), "scale must be a positive number or 'learn'; got -1.0"),
    "size": (lambda: SpikeSlab(expected_size=-2), "expected_size must be a positive number or None; got -2"),
    "both": (lambda: SpikeSlab(0.2, expected_size=2), "inclusion or expected_size, not both"),
    "beta": (lambda: SpikeSlab("learn", inclusion_prior=(1.0, 0.0)), "inclusion_prior must be two positive numbers"),
    "intercept": (lambda: SpikeSlab(intercept_scale=0.0), "intercept_scale must be a positive number; got 0.0"),
    "zero inclusion 0": (lambda: LaplaceZero(0.0), f"{PROBABILITY}; got 0.0"),
    "zero inclusion 2": (lambda: LaplaceZero(2), f"{PROBABILITY}; got 2"),
    "zero scale": (lambda: LaplaceZero(scale=-1.0), "scale must be a positive number or 'learn'; got -1.0"),
    "zero size": (lambda: LaplaceZero(expected_size=0), "expected_size must be a positive number or None; got 0"),
    "zero both": (lambda: LaplaceZero(0.2, expected_size=2), "inclusion or expected_size, not both"),
    "zero text": (lambda: LaplaceZero(always_include="age"), r"must be a list of columns; write \['age'\]"),
    "zero hyperprior": (lambda: LaplaceZero(hyperprior=3.0), "HalfCauchy, InverseGamma or None; got 3.0"),
    "alpha 0": (lambda: Bridge(0.0), r"alpha must be a number in \(0, 2\] or 'learn'; got 0.0"),
    "alpha 3": (lambda: Bridge(3.0), r"alpha must be a number in \(0, 2\] or 'learn'; got 3.0"),
    "half-Cauchy": (lambda: HalfCauchy(0.0), "HalfCauchy needs a positive scale; got 0.0"),
    "inverse gamma": (lambda: InverseGamma(-1.0, 1.0), "InverseGamma needs a > 0 and b > 0; got a=-1.0"),
}


@pytest.mark.parametrize("case", BAD_PRIORS)
def test_bad_priors_are_refused_in_one_sentence(case):
    build, message = BAD_PRIORS[case]
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


BAD_FITS = {
    "unknown name": (SpikeSlab(always_include=["dosis"]), "gibbs", {}, "column 'dosis', which X does not have"),
    "unknown position": (LaplaceZero(always_include=[5]), "vb", {}, "names or positions of the 5 columns of X; got 5"),
    "no position": (SpikeSlab(always_include=[1.0]), "gibbs", {}, "names or positions of the 5 columns of X; got 1.0"),
    "size": (SpikeSlab(expected_size=6), "gibbs", {}, "below the number of columns that can be out, 5; got 6"),
    "size of the others": (
        SpikeSlab(expected_size=4, always_include=["age"]), "gibbs", {}, "that can be out, 4; got 4",
    ),
    "zero size": (LaplaceZero(expected_size=5), "vb", {}, "below the 5 columns that may be left out; got 5"),
    "options": (SpikeSlab(), "gibbs", {"engine_options": {"flip": 3}}, r"unknown engine_options \['flip'\].*'flips'"),
    "scan": (SpikeSlab(), "gibbs", {"engine_options": {"scan": "fast"}}, "scan must be 'lines' or 'plain'"),
    "starts": (LaplaceZero(), "vb", {"engine_options": {"starts": ("none",)}}, "starts must be some of"),
    "zero map": (LaplaceZero(), "map", {}, "no mode away from zero; use inference='vb' or 'gibbs'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_fits_are_refused_in_one_sentence(case):
    prior, inference, parameters, message = BAD_FITS[case]
    X, y = truth()
    frame = pd.DataFrame(X, columns=["age", "dose", "size", "time", "site"])
    model = BayesianSVC(prior, inference, learning_rate=0.5, **parameters)
    with pytest.raises(ValueError, match=message) as error:
        model.fit(frame, y)
    assert "\n" not in str(error.value) and not hasattr(model, "classes_")


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
@pytest.mark.parametrize("rate", [0.5, "auto"])
def test_spike_slab_needs_draws(inference, rate):
    X, y = truth()
    with pytest.raises(ValueError, match="inference='gibbs'") as error:
        BayesianSVC(SpikeSlab(), inference, learning_rate=rate).fit(X, y)
    assert "vb" not in str(error.value)


def stuck():
    """Two columns that differ in one row of a hundred, and no time to change between them: what the fit says."""
    X, y = truth(100, 2)
    twin = X[:, :1].copy()
    twin[0] += 1e-3
    model = make("spike-slab gibbs", draws=2, warmup=0, learning_rate=1.0, chains=8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(np.c_[X, twin], y)
    return [entry for entry in caught if issubclass(entry.category, ConvergenceWarning)]


def test_chains_that_disagree_say_so():
    (warning,) = stuck()
    assert "disagree on inclusion probabilities by up to" in str(warning.message)


def test_the_warning_points_at_the_fit():
    assert [warning.filename for warning in stuck()] == [__file__]
