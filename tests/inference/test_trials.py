"""Quick fits of all rows and of folds, from starts that other rates give."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from softmargin import BayesianSVC
from softmargin.inference import trials
from softmargin.inference.choices import Candidate


def state(rng):
    return SimpleNamespace(
        ku=rng.gamma(1.0, size=6), Du=rng.gamma(1.0, size=3), q=SimpleNamespace(mean=rng.standard_normal(3))
    )


def test_a_fold_that_leaves_nothing_out_starts_at_the_fit_of_all_rows():
    rng = np.random.default_rng(0)
    before, after = state(rng), state(rng)
    after.ku = before.ku * rng.uniform(0.2, 5.0, 6)
    after.Du = before.Du * rng.uniform(0.2, 5.0, 3)
    fold = trials._Fold(Candidate(True, 0.25), before, before.ku, before.Du, before.q.mean)
    ku, Du, mean = fold.moved_to(after, np.arange(6))
    np.testing.assert_allclose(ku, after.ku)
    np.testing.assert_allclose(Du, after.Du)
    np.testing.assert_allclose(mean, after.q.mean)
    some = np.array([4, 1])
    np.testing.assert_allclose(fold._replace(ku=2.0 * before.ku[some]).moved_to(after, some)[0], 2.0 * after.ku[some])


def test_starts_stay_finite_where_a_row_has_no_curvature_at_one_rate():
    found = trials._ratio(np.array([0.0, 1.0, 0.0, 3.0]), np.array([0.0, 0.0, 1.0, 1.5]))
    np.testing.assert_allclose(found, [1.0, trials._FARTHEST, 1.0 / trials._FARTHEST, 2.0])


@pytest.mark.parametrize(("n", "columns"), [(80, 12), (80, 30), (200, 30)])
def test_refits_do_not_depend_on_where_they_start(n, columns, monkeypatch):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, columns))
    y = X[:, 0] - X[:, 1] > 0.2
    found = BayesianSVC().fit(X, y).choices_
    monkeypatch.setattr(trials._Fold, "moved_to", lambda fold, whole, index: (whole.ku[index], whole.Du, whole.q.mean))
    plain = BayesianSVC().fit(X, y).choices_
    folds = found["method"] == "folds"
    assert folds.sum() > 1
    np.testing.assert_array_equal(found["taken"], plain["taken"])
    gap = np.abs(found["score"] - plain["score"])[folds]
    assert (gap < 0.2 * found["standard_error"][folds]).all()
