"""Ranks of parameters among posterior draws are uniform, and the test can tell when they are not."""

import warnings

import numpy as np
import pytest

pytest.importorskip("arviz")

from benchmarks.certificates import CASES, CONTROLS, Case, _accepted, judged, ranks

SOME = (
    Case("hinge", "Ridge, learned scale", "", "gibbs"),
    Case("hinge", "Lasso(0.7)", "", "hmc"),
    Case("hinge", "SpikeSlab(0.5, 1)", "groups", "gibbs"),
    Case("epsilon-insensitive", "Ridge(1)", "", "gibbs"),
    Case("logit", "Ridge, learned scale", "", "gibbs"),
    Case("probit", "Lasso(0.7)", "", "hmc"),
    Case("squared", "SpikeSlab(0.5, 1)", "", "gibbs"),
    Case("logit", "Ridge(1)", "groups", "gibbs"),
    Case("probit", "Ridge(1)", "missing entries", "gibbs"),
)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single short chains
        yield


@pytest.mark.soak
@pytest.mark.parametrize("case", SOME, ids=lambda case: "-".join(case.name))
def test_ranks_are_uniform(case):
    found = judged(ranks(case, 80))
    assert found["p"] > 1e-4  # nine cases at this level: one false alarm in a thousand runs
    assert max(found["mean"], found["spread"]) < 4.5


@pytest.mark.soak
@pytest.mark.parametrize(("control", "repetitions"), list(zip(CONTROLS, (40, 80), strict=True)), ids=("logit", "hinge"))
def test_ranks_of_other_models_are_not(control, repetitions):
    found = judged(ranks(control, repetitions))
    assert found["p"] < 1e-4
    assert max(found["mean"], found["spread"]) > 5


@pytest.mark.parametrize("case", [case for case in CASES if case.likelihood == "hinge" and case.unknown], ids=str)
def test_responses_are_of_both_classes(case):
    """Rows of few groups are often of one class, and a response that was changed would not be one of the model."""
    for seed in range(60):
        assert set(_accepted(case, np.random.default_rng(seed)).y) == {0, 1}


def test_uniform_ranks_pass_and_shifted_ones_do_not():
    u = (np.arange(400) + 0.5) / 400
    assert judged({"a": u})["p"] > 0.99
    assert judged({"a": u, "b": u**2})["p"] < 1e-6
