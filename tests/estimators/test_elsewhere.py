"""An X whose rows stay where they are is fitted and predicted as an array is."""

import numpy as np
import pytest

from softmargin import BayesianSVC, BayesianSVR
from softmargin.designs.standardize import design_for
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.in_memory import Blocks


class Apart(Elsewhere):
    """Rows of an array that no one sees whole."""

    kind = "X apart"

    def __init__(self, X, names=None):
        self.own, self.names = X, names

    @property
    def shape(self):
        return self.own.shape

    def design(self, columns):
        return design_for(self.own, columns)

    def rows(self, design, y, weight, workers):
        return Blocks(design, y, np.ascontiguousarray(weight), n_blocks=3)

    def at(self, index):
        return Apart(self.own[index], self.names)

    def __getitem__(self, index):
        return self.own[index]

    def each(self, read, *beside):
        cuts = [slice(lo, lo + 700) for lo in range(0, len(self.own), 700)]
        parts = [read(self.own[cut], *(vector[cut] for vector in beside)) for cut in cuts]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return np.concatenate(parts)


def problem(n=5000, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.geomspace(0.1, 30.0, p) + np.arange(p)
    X[:, 3] = 2.5
    return X, X[:, 0] * 5.0 - 0.05 * X[:, 5] + rng.logistic(size=n)


def test_two_classes_are_the_same_to_the_last_bit():
    X, f = problem()
    y = np.where(f > 0, "yes", "no")
    with pytest.warns(UserWarning, match="constant"):
        home = BayesianSVC(random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="constant column"):
        apart = BayesianSVC(random_state=0).fit(Apart(X), y)
    assert np.array_equal(home.coef_, apart.coef_) and home.trace_.tolist() == apart.trace_.tolist()
    assert np.array_equal(home.predict_proba(X), apart.predict_proba(Apart(X)))
    assert np.array_equal(home.predict(X), apart.predict(Apart(X)))
    for a, b in zip(home.decision_function(X, True), apart.decision_function(Apart(X), True), strict=True):
        assert np.array_equal(a, b)


def test_pairs_and_weights_are_the_same_to_the_last_bit():
    X, f = problem(3000)
    X, y = np.delete(X, 3, axis=1), np.digitize(f, (-2.0, 2.0))
    weight = np.tile([0.0, 1.0, 2.0], 1000)
    home, apart = (BayesianSVC(learning_rate=0.25).fit(each, y, sample_weight=weight) for each in (X, Apart(X)))
    assert np.array_equal(home.coef_, apart.coef_)
    assert np.array_equal(home.predict_proba(X), apart.predict_proba(Apart(X)))


def test_regression_is_the_same_to_the_last_bit_and_knows_the_names():
    X, y = problem(3000)
    X = np.delete(X, 3, axis=1)
    home = BayesianSVR().fit(X, y)
    apart = BayesianSVR().fit(Apart(X, list("abcde")), y)
    assert np.array_equal(home.coef_, apart.coef_) and apart.feature_names_in_.tolist() == list("abcde")
    there = Apart(X, list("abcde"))
    for a, b in zip(home.predict(X, return_std=True), apart.predict(there, return_std=True), strict=True):
        assert np.array_equal(a, b)
    np.testing.assert_allclose(  # interpolated between widths of the rows that come together
        apart.predict_interval(there), home.predict_interval(X), atol=1e-5, rtol=0.0
    )


@pytest.mark.parametrize(
    ("parameters", "fit", "reason"),
    [
        ({}, {"groups": np.zeros(3000)}, "without random effects"),
        ({"prior": "spike-slab", "inference": "gibbs"}, {}, "priors that select"),
        ({"multi_class": "sum-to-zero"}, {}, "pairwise"),
        ({"solver": "dual"}, {}, "more rows than columns"),
    ],
)
def test_what_needs_all_rows_home_is_refused_in_a_sentence(parameters, fit, reason):
    X, f = problem(3000)
    y = np.digitize(f, (-2.0, 2.0)) if "multi_class" in parameters else f > 0
    with pytest.raises(ValueError, match=reason):
        BayesianSVC(**parameters).fit(Apart(X), y, **fit)


@pytest.mark.parametrize(("bad", "kind"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_entries_that_are_not_finite_are_refused_with_the_name_of_their_column(bad, kind):
    X, f = problem(3000)
    X[2500, 4] = bad
    with pytest.raises(ValueError, match=f"contains {kind} in column e"):
        BayesianSVC().fit(Apart(X, list("abcdef")), f > 0)
    with pytest.raises(ValueError, match="y has 2999 values and X has 3000 rows"):
        BayesianSVC().fit(Apart(X), f[1:] > 0)
