"""Spike-and-slab and Laplace-zero through the estimator: against all models enumerated, and in every setting."""

from __future__ import annotations

import pickle

import arviz
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from selection_cases import APPROXIMATE, CHAINS, KINDS, SHORT, make, truth
from selection_oracle import inclusion, model_evidences
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from stages import in_stages

from softmargin import BayesianSVC
from softmargin.priors import LaplaceZero, SpikeSlab

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def same(one, other, tol):
    """Equal answers: inclusion, coefficients per spread of their column, learned scale."""
    np.testing.assert_allclose(one.inclusion_, other.inclusion_, atol=tol)
    np.testing.assert_allclose(one.chain_inclusion_, other.chain_inclusion_, atol=tol)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=tol, atol=tol)
    np.testing.assert_allclose(one.scale_, other.scale_, rtol=tol)


def standard_error(model):
    """Monte Carlo error of the indicators' means, which those of the inclusion probabilities do not exceed."""
    inside = (model.posterior_.draws[..., int(model.fit_intercept) :] != 0.0).astype(float)
    ess = np.array([arviz.ess(column) if np.ptp(column) else np.inf for column in np.moveaxis(inside, -1, 0)])
    return inside.std(axis=(0, 1)) / np.sqrt(ess)


# Against every model enumerated


@pytest.fixture(scope="module")
def heart(data_dir):
    frame = pd.read_csv(data_dir / "heart.csv.gz")
    X, y = frame.iloc[:, [0, 3, 4, 5, 7]].to_numpy(float), frame["y"].to_numpy(float)
    return X, y, np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)


ENUMERATED = {
    "spike-slab": (SpikeSlab(0.2, scale=0.6), "normal", 0.6, 0.2),
    "spike-slab, learned": (SpikeSlab("learn", scale="learn", inclusion_prior=(1.0, 1.0)), "normal", None, None),
    "laplace-zero": (LaplaceZero(0.2, scale=0.6), "laplace", 0.6, 0.2),
    "laplace-zero, learned": (LaplaceZero("learn", scale="learn"), "laplace", None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", in_stages(ENUMERATED))
def test_inclusion_equals_enumeration(case, heart):
    """All 32 models of five columns of heart; the rows with weight 2 count twice in moments and likelihood."""
    prior, slab, scale, probability = ENUMERATED[case]
    X, y, weight = heart
    mean = weight @ X / weight.sum()
    Z = (X - mean) / np.sqrt(weight @ (X - mean) ** 2 / weight.sum())
    evidences = model_evidences(Z, y, 0.5 * weight, slab, scale, draws=4000)
    exact, error = inclusion(*evidences, probability)
    model = BayesianSVC(prior, "gibbs", learning_rate=0.5, draws=1000, warmup=200, random_state=1)
    model.fit(X, y, sample_weight=weight)
    assert ((exact > 0.1) & (exact < 0.9)).sum() >= 2
    error = np.hypot(standard_error(model), error)
    assert error.max() < 0.025  # enough to tell other prior odds or half the likelihood apart
    assert (np.abs(model.inclusion_ - exact) < 4.0 * error + 1e-9).all()


# Rows


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_a_weight_of_two_equals_a_repeated_row(kind):
    X, y = truth()
    weight = np.where(np.arange(100) % 3 == 0, 2, 1)
    weighted = make(kind, learning_rate="auto", tol=1e-10).fit(X, y, sample_weight=weight)
    repeated = make(kind, learning_rate="auto", tol=1e-10).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    same(weighted, repeated, 1e-6)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("kind", in_stages(CHAINS))
def test_a_weight_of_two_equals_a_repeated_row_in_distribution(kind):
    X, y = truth(60)
    weight = np.where(np.arange(60) % 3 == 0, 2, 1)
    weighted = make(kind, draws=800).fit(X, y, sample_weight=weight)
    repeated = make(kind, draws=800, random_state=1).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    error = np.hypot(standard_error(weighted), standard_error(repeated))
    assert (np.abs(weighted.inclusion_ - repeated.inclusion_) <= 4.0 * error + 1e-6).all()


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_a_weight_of_zero_leaves_the_row_out(kind):
    X, y = truth()
    weight = np.where(np.arange(100) % 4 == 0, 0.0, 1.0)
    same(make(kind).fit(X, y, sample_weight=weight), make(kind).fit(X[weight > 0], y[weight > 0]), 1e-12)


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_class_weights_multiply_the_rows(kind):
    """At learning rate 1 the weight {0: 0.5, 1: 0.5} is a learning rate of one half."""
    X, y = truth()
    same(make(kind, learning_rate=1.0, class_weight={0: 0.5, 1: 0.5}).fit(X, y), make(kind).fit(X, y), 1e-12)
    counts = np.bincount(y)
    balanced = make(kind, class_weight="balanced").fit(X, y)
    by_hand = make(kind, class_weight=dict(enumerate(100.0 / (2.0 * counts)))).fit(X, y)
    same(balanced, by_hand, 1e-12)
    assert not np.allclose(balanced.coef_, make(kind).fit(X, y).coef_, rtol=1e-4)


# Columns


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
def test_sparse_equals_dense(kind, container):
    X, y = truth()
    X[np.abs(X) < 0.7] = 0.0
    same(*(make(kind, standardize=True, **SHORT).fit(columns, y) for columns in (container(X), X)), 1e-7)


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_wide_sparse_equals_dense(kind):
    X, y = truth(30, 60)
    X[np.abs(X) < 0.7] = 0.0
    same(*(make(kind, standardize=True, **SHORT).fit(columns, y) for columns in (sp.csr_array(X), X)), 1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_units_do_not_matter(kind):
    X, y = truth()
    unit, shift = np.array([1e3, 1e-4, 1.0, 1e6, -2.0]), np.array([0.0, 1.0, 5.0, -3.0, 0.0])
    here, there = make(kind, **SHORT).fit(X, y), make(kind, **SHORT).fit(X * unit + shift, y)
    if "gibbs" in kind:  # a negative unit mirrors the draws of that column
        there = make(kind, **SHORT).fit(X * np.abs(unit) + shift, y)
        unit = np.abs(unit)
    np.testing.assert_allclose(there.inclusion_, here.inclusion_, atol=1e-6)
    np.testing.assert_allclose(there.coef_[0] * unit, here.coef_[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(there.scale_, here.scale_, rtol=1e-6)


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_the_order_of_columns_does_not_matter(kind):
    X, y = truth()
    order = np.array([3, 1, 4, 0, 2])
    here, there = make(kind, draws=600).fit(X, y), make(kind, draws=600).fit(X[:, order], y)
    tol = 4.0 * np.hypot(standard_error(here)[order], standard_error(there)) + 1e-4 if "gibbs" in kind else 1e-4
    assert (np.abs(there.inclusion_ - here.inclusion_[order]) < tol).all()


@pytest.mark.parametrize("kind", KINDS)
def test_constant_columns_are_out(kind):
    X, y = truth()
    plain = make(kind, **SHORT).fit(X, y)
    with pytest.warns(UserWarning, match="1 constant column.*: 2"):
        model = make(kind, **SHORT).fit(np.insert(X, 2, 7.0, axis=1), y)
    np.testing.assert_allclose(np.delete(model.inclusion_, 2), plain.inclusion_, atol=1e-7)
    assert model.inclusion_[2] == 0.0 and model.coef_[0, 2] == 0.0 and not model.get_support()[2]
    assert model.summary().loc["x2", "inclusion"] == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_only_constant_columns(kind):
    _, y = truth()
    with pytest.warns(UserWarning, match="3 constant column"):
        model = make(kind).fit(np.ones((100, 3)), y)
    assert not model.get_support().any() and (model.coef_ == 0.0).all()
    assert set(model.predict(np.ones((2, 3)))) == {int(y.mean() > 0.5)}


def test_copies_of_a_column_share_the_inclusion():
    """Two copies and one coefficient: at most rarely both, never neither, and chains change between them."""
    X, y = truth(200)
    model = make("spike-slab gibbs", prior=SpikeSlab(0.1, scale=1.0), draws=1000).fit(np.c_[X, X[:, 0]], y)
    inside = model.posterior_.draws[..., 1:] != 0.0
    assert (inside[..., 0] | inside[..., 5]).all()
    assert (inside[..., 0] & inside[..., 5]).mean() < 0.3
    error = standard_error(model)
    assert abs(model.inclusion_[0] - model.inclusion_[5]) < 4.0 * np.hypot(error[0], error[5])
    approximate = make("laplace-zero vb").fit(np.c_[X, X[:, 0]], y)
    assert approximate.inclusion_[[0, 5]].sum() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_wide_data(kind):
    rng = np.random.default_rng(1)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 120))
    X[:, 7] += 4.0 * y
    model = make(kind, prior=type(KINDS[kind][0])(expected_size=2, scale=1.0)).fit(X, y)
    assert list(model.get_support(indices=True)) == [7] and model.score(X, y) > 0.9
    assert model.transform(X).shape == (40, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_one_column(kind):
    X, y = truth()
    assert make(kind).fit(X[:, :1], y).inclusion_[0] > 0.99
    # slopes up to 1 cost nothing where both signs are equally often right, larger ones do
    noise = make(kind, prior=type(KINDS[kind][0])(0.3, scale=10.0))
    noise.fit(np.tile([[1.0], [-1.0]], (50, 1)), np.arange(100) // 2 % 2)
    assert noise.inclusion_[0] < 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", in_stages(["auto", 1.0]))
def test_four_rows(kind, rate):
    X, _ = truth()
    model = make(kind, learning_rate=rate).fit(X[:4], [0, 1, 0, 1])
    assert ((model.inclusion_ >= 0.0) & (model.inclusion_ <= 1.0)).all()
    p = model.predict_proba(X)
    assert np.isfinite(p).all() and np.isfinite(model.summary()["mean"]).all()


@pytest.mark.parametrize("kind", in_stages(KINDS, 2))
def test_separable_data(kind):
    X, _ = truth()
    y = (X[:, 0] > 0).astype(int)
    for scale in ("learn", 3.0):
        model = make(kind, prior=type(KINDS[kind][0])(0.3, scale=scale)).fit(X, y)
        assert model.inclusion_[0] > 0.99 and model.inclusion_[1:].max() < 0.35 and model.score(X, y) > 0.98


@pytest.mark.parametrize("kind", [*APPROXIMATE, "laplace-zero gibbs"])
def test_without_an_intercept(kind):
    X, y = truth()
    model = make(kind, fit_intercept=False).fit(X, y)
    assert model.intercept_[0] == 0.0 and list(model.get_support(indices=True)) == [0, 1]
    assert "Intercept" not in model.summary().index


def test_spike_slab_without_an_intercept():
    X, y = truth()
    model = make("spike-slab gibbs", fit_intercept=False).fit(X, y)
    assert model.intercept_[0] == 0.0 and list(model.get_support(indices=True)) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_without_standardization_scales_are_those_of_the_columns(kind):
    """Columns multiplied by their spread and a slab of scale s are columns as they are and a slab s times theirs."""
    X, y = truth()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    prior = type(KINDS[kind][0])
    inside = make(kind, prior=prior(0.3, scale=0.6), **SHORT).fit(Z, y)
    outside = make(kind, prior=prior(0.3, scale=0.6), standardize=False, **SHORT).fit(Z, y)
    same(outside, inside, 1e-6)
    if kind == "laplace-zero gibbs":  # chains start at coefficients that do not know the scale
        return
    wider = make(kind, prior=prior(0.3, scale=0.06), standardize=False, **SHORT).fit(10.0 * Z, y)
    np.testing.assert_allclose(wider.inclusion_, inside.inclusion_, atol=1e-6)
    np.testing.assert_allclose(10.0 * wider.coef_, inside.coef_, rtol=1e-5, atol=1e-8)


# Names and scikit-learn


@pytest.mark.parametrize("kind", KINDS)
def test_names(kind):
    X, y = truth()
    frame = pd.DataFrame(X, columns=["age", "dose", "size", "time", "site"])
    prior = type(KINDS[kind][0])(0.3, always_include=["time", -1])
    model = make(kind, prior=prior, **SHORT).fit(frame, y)
    assert (model.inclusion_[[3, 4]] == 1.0).all() and (model.coef_[0, [3, 4]] != 0.0).all()
    table = model.summary()
    assert list(table.index) == ["Intercept", *frame.columns]
    assert table.loc["time", "inclusion"] == 1.0 and table.loc["Intercept", "inclusion"] == 1.0
    np.testing.assert_array_equal(table["inclusion"].to_numpy()[1:], model.inclusion_)
    np.testing.assert_array_equal(table["inclusion_range"].to_numpy()[1:], np.ptp(model.chain_inclusion_, axis=0))
    assert list(model.get_feature_names_out()) == list(frame.columns[model.get_support()])
    by_position = make(kind, prior=type(prior)(0.3, always_include=[3, 4]), **SHORT).fit(X, y)
    np.testing.assert_array_equal(by_position.inclusion_, model.inclusion_)


@pytest.mark.parametrize("container", [list, np.array])
def test_always_include_as_a_mask(container):
    X, y = truth()
    prior = SpikeSlab(0.3, always_include=container([False, False, False, False, True]))
    model = make("spike-slab gibbs", prior=prior).fit(X, y)
    assert model.inclusion_[4] == 1.0 and model.inclusion_[2:4].max() < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_everything_always_in(kind):
    X, y = truth()
    model = make(kind, prior=type(KINDS[kind][0])(0.3, scale=1.0, always_include=range(5)), **SHORT).fit(X, y)
    assert (model.inclusion_ == 1.0).all() and model.get_support().all()


@pytest.mark.parametrize("kind", KINDS)
def test_clone_and_pickle(kind):
    X, y = truth()
    model = make(kind, **SHORT)
    assert clone(model).prior == model.prior
    fitted, again = clone(model).fit(X, y), clone(model).fit(X, y)
    twin = pickle.loads(pickle.dumps(fitted))
    for other in (again, twin):
        np.testing.assert_array_equal(other.inclusion_, fitted.inclusion_)
        np.testing.assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))
    pd.testing.assert_frame_equal(twin.summary(), fitted.summary())


@pytest.mark.parametrize("kind", CHAINS)
def test_jobs_do_not_matter_and_seeds_do(kind):
    X, y = truth()
    one, two = make(kind).fit(X, y), make(kind, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.posterior_.draws, two.posterior_.draws)
    other = make(kind, random_state=1).fit(X, y)
    assert not np.array_equal(one.posterior_.draws, other.posterior_.draws)


@pytest.mark.parametrize("kind", KINDS)
def test_selector_in_a_pipeline(kind):
    X, y = truth()
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(5)])
    pipe = make_pipeline(make(kind), LogisticRegression()).fit(frame, y)
    assert list(pipe[0].get_feature_names_out()) == ["gene0", "gene1"]
    assert pipe[1].coef_.shape == (1, 2) and pipe.score(frame, y) > 0.8
    assert np.abs(pipe[0].inverse_transform(pipe[0].transform(frame))[:, 2:]).max() == 0.0


def test_search_over_priors():
    """Priors are values of ``prior``: a search lists them."""
    X, y = truth()
    grid = {"prior": [LaplaceZero(0.1, scale=0.001), LaplaceZero(0.1, scale=1.0)]}
    search = GridSearchCV(BayesianSVC(learning_rate=0.5), grid, cv=3, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_ == {"prior": LaplaceZero(0.1, scale=1.0)}
    assert list(search.best_estimator_.get_support(indices=True)) == [0, 1]


def test_names_of_priors_are_their_defaults():
    X, y = truth()
    for name, prior, inference in (("spike-slab", SpikeSlab(), "gibbs"), ("laplace-zero", LaplaceZero(), "vb")):
        settings = {"inference": inference, "random_state": 0, "learning_rate": 0.5, "chains": 1, **SHORT}
        one, other = BayesianSVC(name, **settings).fit(X, y), BayesianSVC(prior, **settings).fit(X, y)
        np.testing.assert_array_equal(one.coef_, other.coef_)
