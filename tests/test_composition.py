"""A seeded sample of all compositions of task, likelihood, prior, inference and data: each fits, or is refused.

A refusal is a sentence of the one table of what does not go together.
"""

import itertools
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from parts import INFERENCES

from softmargin import BayesianSVC, BayesianSVR
from softmargin.models.prior_choice import PRIORS
from softmargin.refusals import REFUSALS

SAMPLE = 60
ROWS = ("plain", "missing", "groups", "missing and groups", "sparse", "sparse and groups", "weights")
LIKELIHOODS = {
    "two classes": ("hinge", "logit", "probit"),
    "pairs": ("hinge", "logit", "probit"),
    "sum-to-zero": ("hinge", "logit"),
    "regression": ("epsilon-insensitive", "squared"),
}
CASES = [
    (task, likelihood, *rest)
    for task, likelihoods in LIKELIHOODS.items()
    for likelihood, *rest in itertools.product(likelihoods, PRIORS, INFERENCES, ROWS)
]
CHOSEN = [CASES[k] for k in np.sort(np.random.default_rng(20).choice(len(CASES), SAMPLE, replace=False))]


def data(task, rows):
    """Forty rows of three columns in eight groups."""
    rng = np.random.default_rng(4)
    X, groups = rng.standard_normal((40, 3)), np.arange(40) // 5
    f = X @ [1.5, -1.0, 0.0] + rng.standard_normal(8)[groups] + 0.5 * rng.logistic(size=40)
    y = f if task == "regression" else np.digitize(f, [0.0] if task == "two classes" else [-1.0, 1.0])
    given = {"groups": groups} if "groups" in rows else {}
    if rows == "weights":
        given["sample_weight"] = 1.0 + (np.arange(40) % 3 == 0)
    if "missing" in rows:
        X = np.where(rng.random(X.shape) < 0.15, np.nan, X)
    return sp.csr_matrix(np.where(np.abs(X) > 0.6, X, 0.0)) if "sparse" in rows else X, y, given


def known(sentence):
    """Whether a sentence is one of the table, with anything in place of what was given."""
    patterns = (re.sub(r"\\\{\w+\\\}", ".+", re.escape(refusal.sentence)) for refusal in REFUSALS.values())
    return any(re.fullmatch(pattern, sentence) for pattern in patterns)


@pytest.mark.parametrize("case", CHOSEN, ids=", ".join)
def test_a_composition_fits_or_is_refused_by_a_sentence_of_the_table(case):
    task, likelihood, prior, inference, rows = case
    X, y, given = data(task, rows)
    run = {"draws": 10, "warmup": 10, "chains": 2, "random_state": 0, "likelihood": likelihood}
    if task == "regression":
        model = BayesianSVR(prior, inference, **run)
    else:
        scheme = "sum-to-zero" if task == "sum-to-zero" else "pairwise"
        model = BayesianSVC(prior, inference, multi_class=scheme, learning_rate=1.0, **run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y, **given)
        except (ValueError, TypeError) as error:
            if not known(str(error)):
                raise
            return
        new = {"groups": given["groups"]} if "groups" in given else {}
        assert np.isfinite(model.coef_).all() and np.isfinite(model.predict(X, **new).astype(float)).all()
        if task != "regression":
            p = model.predict_proba(X, **new)
            assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1.0)


def test_a_sentence_that_is_not_in_the_table_is_told_from_those_that_are():
    assert known("solver='cg' is for two classes or pairs of them; use multi_class='pairwise', or 'auto'.")
    way = "choose another inference or solver, or another prior."
    assert known(f"Dual needs a prior with 'isotropic', which Horseshoe does not have; {way}")
    assert not known("something else went wrong.")
