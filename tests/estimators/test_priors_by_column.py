"""Priors by column: against plain priors, rescaled columns, enumeration, and what cannot be."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from softmargin import BayesianSVC, BayesianSVR, Formula
from softmargin.priors import Bridge, Horseshoe, LaplaceZero, Lasso, Ridge, SpikeSlab

N = 80
RUN = {"draws": 400, "warmup": 100, "chains": 2, "random_state": 0}
NAMES = ["age", "dose", "gene_a", "gene_b"]
SCALES = np.array([0.5, 0.3, 2.0, 2.0])
BY_COLUMN = {"age": Ridge(0.5), "dose": Ridge(0.3), "gene_*": Ridge(2.0)}
GIVEN = {"standardize": False, "likelihood": "squared", "noise": 0.7}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 4)), columns=NAMES)
    f = X.to_numpy() @ [1.0, -0.5, 0.0, 0.8]
    return X, np.where(f + rng.logistic(size=N) > 0.0, "yes", "no"), f + 0.7 * rng.normal(size=N)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield", "gibbs", "hmc"])
@pytest.mark.parametrize("prior", [Ridge(), Lasso(0.5)], ids=["ridge", "lasso"])
def test_one_entry_for_all_is_that_prior(data, prior, inference):
    X, label, _ = data
    for entries in ({...: prior}, {"*": prior}, {tuple(NAMES): prior}):
        ours, plain = (BayesianSVC(one, inference, learning_rate=0.5, **RUN).fit(X, label) for one in (entries, prior))
        np.testing.assert_array_equal(ours.coef_, plain.coef_)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
@pytest.mark.parametrize("groups", [False, True])
def test_scales_by_column_are_rescaled_columns(data, inference, groups):
    """``beta_j = s_j gamma_j`` with gamma ~ N(0, 1) on the columns ``s_j x_j``."""
    X, label, y = data
    more = {"groups": np.arange(N) % 5} if groups else {}
    ours = BayesianSVR(BY_COLUMN, inference, tol=1e-9, **GIVEN).fit(X, y, **more)
    plain = BayesianSVR(Ridge(1.0), inference, tol=1e-9, **GIVEN).fit(X * SCALES, y, **more)
    np.testing.assert_allclose(ours.coef_, SCALES * plain.coef_, atol=1e-4)
    rate = {"learning_rate": 1.0, "standardize": False, "likelihood": "logit", "tol": 1e-9}
    ours = BayesianSVC(BY_COLUMN, inference, **rate).fit(X, label, **more)
    plain = BayesianSVC(Ridge(1.0), inference, **rate).fit(X * SCALES, label, **more)
    np.testing.assert_allclose(ours.coef_, SCALES * plain.coef_, atol=2e-3)


@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
def test_draws_have_the_scales_of_their_columns(data, inference):
    X, _, y = data
    ours = BayesianSVR(BY_COLUMN, inference, **GIVEN, **RUN).fit(X, y)
    D = np.diag(np.append(1e-8, SCALES**-2.0))
    rows = np.column_stack((np.ones(N), X))
    exact = np.linalg.inv(rows.T @ rows / 0.7**2 + D)
    mean, sd = exact @ rows.T @ y / 0.7**2, np.sqrt(np.diag(exact))
    assert np.abs((ours.coef_[0] - mean[1:]) / sd[1:]).max() < 4.0 / np.sqrt(200.0)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield", "gibbs"])
def test_every_part_learns_its_own_scale(data, inference):
    """Columns without an effect are shrunk to nothing beside columns with large ones."""
    X, _, y = data
    rng = np.random.default_rng(1)
    wide = pd.concat([X, pd.DataFrame(rng.normal(size=(N, 30)), columns=[f"noise_{j}" for j in range(30)])], axis=1)
    apart, alone = (
        BayesianSVR(prior, inference, likelihood="squared", **RUN).fit(wide, y)
        for prior in ({"noise_*": Ridge(), ...: Ridge()}, Ridge())
    )
    at = slice(4, None)
    assert np.linalg.norm(apart.coef_[0, at]) < 0.6 * np.linalg.norm(alone.coef_[0, at])
    assert apart.scale_ > 2.0 * alone.scale_


def test_selection_beside_a_normal_prior_has_the_probabilities_of_enumeration(data):
    X, _, y = data
    prior = {"gene_*": SpikeSlab(inclusion=0.3, scale=0.5), "age": Ridge(0.5), "dose": Ridge(0.3)}
    model = BayesianSVR(prior, "gibbs", **GIVEN, **(RUN | {"draws": 2000})).fit(X, y)
    rows, weights, included = X.to_numpy(), [], []
    for inside in product((0.0, 1.0), repeat=2):
        scales = np.array([0.5, 0.3, 0.5 * inside[0], 0.5 * inside[1]])
        C = 1e8 + (rows * scales**2) @ rows.T + 0.49 * np.eye(N)
        chance = np.prod(np.where(np.array(inside) > 0.0, 0.3, 0.7))
        weights.append(np.log(chance) - 0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1]))
        included.append(inside)
    p = np.exp(np.array(weights) - max(weights))
    exact = (p / p.sum()) @ np.array(included)
    np.testing.assert_allclose(model.inclusion_, [1.0, 1.0, *exact], atol=0.03)
    assert model.get_support().tolist() == [True, True, *(exact > 0.5)]


def test_selection_beside_a_learned_normal_prior_fits_two_classes(data):
    X, label, _ = data
    model = BayesianSVC({"gene_*": SpikeSlab(), ...: Ridge()}, "gibbs", **RUN).fit(X, label)
    assert (model.inclusion_[:2] == 1.0).all()
    assert model.inclusion_[3] > model.inclusion_[2]
    assert model.transform(X).shape[1] >= 2


@pytest.mark.parametrize("groups", [False, True])
def test_the_order_of_columns_does_not_matter_to_parts(data, groups):
    X, _, y = data
    prior = {"gene_*": LaplaceZero(0.3, scale=0.5), "age": Ridge(), "dose": Ridge(0.3)}
    more = {"groups": np.arange(N) % 5} if groups else {}
    ours, other = (
        BayesianSVR(prior, "vb", likelihood="squared", tol=1e-9).fit(X[names], y, **more)
        for names in (NAMES, ["gene_b", "age", "gene_a", "dose"])
    )
    order = [1, 3, 2, 0]
    np.testing.assert_allclose(ours.coef_[0], other.coef_[0, order], atol=1e-4)
    np.testing.assert_allclose(ours.inclusion_, other.inclusion_[order], atol=1e-3)
    assert (ours.inclusion_[:2] == 1.0).all()


@pytest.mark.parametrize("inference", ["vb", "gibbs", "hmc"])
def test_other_priors_stand_beside_each_other(data, inference):
    X, label, _ = data
    prior = {"gene_*": Horseshoe(), "age": Lasso(0.5), 1: Bridge(alpha=0.7), ...: Ridge()}
    model = BayesianSVC(prior, inference, learning_rate=0.5, **RUN).fit(X, label)
    assert model.score(X, label) > 0.6


def test_names_come_before_patterns_and_earlier_patterns_before_later_ones(data):
    X, _, y = data
    by_pattern = {"gene_*": Ridge(2.0), "*": Ridge(0.3), "age": Ridge(0.5)}
    ours, other = (BayesianSVR(prior, **GIVEN).fit(X, y) for prior in (by_pattern, BY_COLUMN))
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-10)
    by_place = {0: Ridge(0.5), 1: Ridge(0.3), (2, -1): Ridge(2.0)}
    np.testing.assert_allclose(BayesianSVR(by_place, **GIVEN).fit(X.to_numpy(), y).coef_, other.coef_, atol=1e-10)


def test_terms_of_a_formula_have_priors(data):
    pytest.importorskip("formulae")
    X, _, y = data
    frame = X.assign(y=y, kind=np.tile(["a", "b", "c", "d"], N // 4))
    prior = {"kind": Ridge(1e-3), ...: Ridge(1.0)}
    model = Formula("y ~ age + kind", BayesianSVR(prior, likelihood="squared")).fit(frame)
    table = model.summary()["mean"]
    assert table.filter(like="kind").abs().max() < 0.01 < abs(table["age"])
    assert clone(model).estimator.prior == prior


@pytest.mark.parametrize(
    ("prior", "inference", "said"),
    [
        ({"age": Ridge()}, "vb", "3 columns have no prior, 'dose' first; add"),
        ({"weight": Ridge(), ...: Ridge()}, "vb", "'weight', which no column of X matches"),
        ({"w*": Ridge(), ...: Ridge()}, "vb", r"'w\*', which no column of X matches"),
        ({9: Ridge(), ...: Ridge()}, "vb", "the column 9, and X has 4 columns"),
        ({1.5: Ridge(), ...: Ridge()}, "vb", "a key of prior is a column's name"),
        ({}, "vb", "says nothing"),
        ({"age": "no prior"}, "vb", "unknown prior 'no prior'"),
        ({"age": SpikeSlab(), ...: SpikeSlab()}, "gibbs", "both leave columns out"),
        ({"age": Bridge(alpha="learn"), ...: Ridge()}, "gibbs", "learns more than a scale"),
        ({"age": SpikeSlab(always_include=[0]), ...: Ridge()}, "gibbs", "give those columns a key of their own"),
        ({"age": Ridge(0.5), ...: Ridge()}, "svi", "one prior for all columns"),
        ({"age": Horseshoe(), ...: Ridge()}, "map", "no mode"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(data, prior, inference, said):
    X, label, _ = data
    with pytest.raises(ValueError, match=said):
        BayesianSVC(prior, inference, learning_rate=1.0, **RUN).fit(X, label)


def test_names_need_a_frame_and_classes_need_pairs(data):
    X, label, _ = data
    with pytest.raises(ValueError, match="columns have no names"):
        BayesianSVC({"age": Ridge(), ...: Ridge()}).fit(X.to_numpy(), label)
    three = np.where(X["age"] > 1.0, "perhaps", label)
    with pytest.raises(ValueError, match="use multi_class='pairwise'"):
        BayesianSVC({"age": Ridge(0.5), ...: Ridge()}, multi_class="sum-to-zero").fit(X, three)
    assert BayesianSVC({"age": Ridge(0.5), ...: Ridge()}).fit(X, three).coef_.shape == (3, 4)


@pytest.mark.parametrize("prior", [{0: Ridge(0.5), ...: Lasso(1.0)}, {0: Ridge(), ...: Ridge(0.3)}])
def test_modes_take_what_is_chosen_for_them(prior):
    """With classes of one size tilted weights are plain ones, so that the rate is all there is to give."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((140, 4))
    y = X[:, 0] + rng.logistic(size=140) > 0.0
    few = min(int(y.sum()), int((~y).sum()))
    keep = np.sort(np.concatenate((np.flatnonzero(y)[:few], np.flatnonzero(~y)[:few])))
    X, y = X[keep], y[keep]
    model = BayesianSVC(prior, "map").fit(X, y)
    given = BayesianSVC(prior, "map", learning_rate=model.learning_rate_).fit(X, y)
    np.testing.assert_allclose(model.coef_, given.coef_, atol=1e-4)
    assert model.loo_.score == pytest.approx(given.loo_.score, abs=2e-3)
    assert 0.3 < model.loo_.score < np.log(2.0)
    three = BayesianSVC(prior, "map").fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    assert three.score(X, np.digitize(X[:, 0], [-0.5, 0.5])) > 0.8
