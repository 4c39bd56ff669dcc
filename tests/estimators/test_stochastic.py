"""A linear fit by batches against the variational fit of all rows."""

import numpy as np
import pytest

from softmargin import BayesianSVC, BayesianSVR
from softmargin.inference import many_rows, stochastic
from softmargin.inference.readout import BinaryReadout
from softmargin.inference.settings import Settings
from softmargin.inference.stochastic import infer_svi
from softmargin.inference.variational import fit_vb
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns, prepare
from softmargin.priors import Ridge
from softmargin.rows.streams import Streams


def problem(n=4000, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.geomspace(0.1, 30.0, p) + 5.0
    margin = ((X - 5.0) / np.geomspace(0.1, 30.0, p)) @ np.linspace(-1.0, 1.5, p)
    sign = np.where(margin + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    ones = np.ones(n)
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    built = prepare(X, sign, ones, ones, columns, prior=Ridge(), loss=Hinge(), streams=Streams.from_random_state(0))
    return built.model.with_weight(0.25 * built.model.c), BinaryReadout(columns, None, built.part, ones)


def test_posterior_and_link_are_those_of_all_rows():
    model, readout = problem()
    wanted = fit_vb(model, Settings(readout))
    got = infer_svi(model, Settings(readout, options={"batch": 200, "first": 500}))
    sd = np.sqrt(wanted.vi.q.var)
    assert np.abs((got.fit.posterior.mean - wanted.posterior.mean) / sd).max() < 0.25
    assert got.fit.scale == pytest.approx(wanted.scale, rel=0.02)
    np.testing.assert_array_equal(got.rows, np.arange(4000))
    assert got.fit.loo.score == pytest.approx(wanted.loo.score, abs=1e-3)
    assert got.fit.loo.a == pytest.approx(wanted.loo.a, rel=0.05)
    f, v = got.fit.posterior.moments(model.blocks.design)
    np.testing.assert_allclose(v, wanted.vi.v, rtol=0.1)
    assert np.abs((f - wanted.vi.f) / np.sqrt(wanted.vi.v)).max() < 0.25


def test_options_and_more_rows():
    model, readout = problem(n=1000)
    options = {"batch": 100, "first": 300, "epochs": 2}
    first = infer_svi(model, Settings(readout, options=options))
    assert first.fit.outcome.n_iter == 20 and first.fit.outcome.converged
    more = infer_svi(model, Settings(readout, options=options | {"epochs": 1}), first.state)
    assert more.state.rows == 2000.0 and more.fit.outcome.n_iter == 10
    # twice the rows: standard deviations shrink by about the root of two
    ratio = np.sqrt(more.state.q.var / first.state.q.var)
    np.testing.assert_allclose(ratio, 2.0**-0.5, rtol=0.15)
    with pytest.raises(ValueError, match="unknown engine_options"):
        infer_svi(model, Settings(readout, options={"size": 3}))


def test_estimator_by_batches_is_that_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 5))
    y = np.where(X @ [1.0, -1.0, 0.5, 0.0, 0.0] + rng.logistic(size=6000) > 0.3, "yes", "no")
    one = BayesianSVC(learning_rate=0.5).fit(X, y)
    other = BayesianSVC(inference="svi", learning_rate=0.5, random_state=0).fit(X, y)
    sd = one.summary()["sd"].to_numpy()[1:]
    assert np.abs((one.coef_[0] - other.coef_[0]) / sd).max() < 0.3
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=0.01)
    assert other.loo_probability_.shape == (6000, 2)
    assert other.loo_.score == pytest.approx(one.loo_.score, abs=2e-3)


@pytest.mark.parametrize("prior", ["ridge", "lasso"])
def test_many_classes_by_batches_are_those_of_all_rows(prior):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4))
    y = (X @ rng.standard_normal((4, 3)) + rng.gumbel(size=(3000, 3))).argmax(axis=1)
    given = {"prior": prior, "multi_class": "sum-to-zero", "learning_rate": 0.4, "random_state": 0}
    one, other = (BayesianSVC(inference=name, **given).fit(X, y) for name in ("vb", "svi"))
    assert np.abs(one.coef_ - other.coef_).max() < 0.3 * one.summary()["sd"].min()
    np.testing.assert_allclose(other.coef_.sum(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=0.01)
    np.testing.assert_allclose(one.loo_probability_, other.loo_probability_, atol=0.02)
    assert other.loo_.score == pytest.approx(one.loo_.score, abs=2e-3)


@pytest.mark.parametrize("likelihood", ["epsilon-insensitive", "squared"])
def test_regression_by_batches_is_that_of_all_rows(likelihood, monkeypatch):
    """The noise is that of some of the rows."""
    monkeypatch.setattr(many_rows, "_ROWS", 1500)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.standard_normal(3000)
    one, other = (
        BayesianSVR(inference=name, likelihood=likelihood, random_state=0).fit(X, y) for name in ("vb", "svi")
    )
    assert np.abs(one.coef_ - other.coef_).max() < 0.3 * one.summary()["sd"].min()
    np.testing.assert_allclose(one.summary()["sd"], other.summary()["sd"], rtol=0.1)
    assert other.noise_ == pytest.approx(one.noise_, rel=0.05)
    assert other.loo_.rmse == pytest.approx(one.loo_.rmse, rel=1e-3)


def test_only_some_of_very_many_rows_are_left_out(monkeypatch):
    monkeypatch.setattr(stochastic, "_KEPT", 200)
    rng = np.random.default_rng(2)
    X = rng.standard_normal((900, 3))
    y = (X @ rng.standard_normal((3, 3)) + rng.gumbel(size=(900, 3))).argmax(axis=1)
    given = {"multi_class": "sum-to-zero", "learning_rate": 0.4, "random_state": 0, "inference": "svi"}
    few = BayesianSVC(**given).fit(X, y)
    kept = ~np.isnan(few.loo_probability_[:, 0])
    assert kept.sum() == 200
    monkeypatch.setattr(stochastic, "_KEPT", 900)
    held, every = few._fitted.fit.held, BayesianSVC(**given).fit(X, y)._fitted.fit.held
    np.testing.assert_allclose(held.f[kept], every.f[kept], atol=1e-12)
    np.testing.assert_allclose(held.V[kept], every.V[kept], atol=1e-12)


def test_rate_of_very_many_rows_of_classes_is_chosen_on_some(monkeypatch):
    monkeypatch.setattr(many_rows, "_ROWS", 150)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((700, 2))
    y = (X @ rng.standard_normal((2, 3)) + rng.gumbel(size=(700, 3))).argmax(axis=1)
    some = many_rows.choice_rows(700, 6)
    assert len(some) < 200
    whole = BayesianSVC(multi_class="sum-to-zero", inference="svi", random_state=0).fit(X, y)
    few = BayesianSVC(multi_class="sum-to-zero").fit(X[some], y[some])
    assert whole.learning_rate_ == few.learning_rate_ and whole.tilt_ == few.tilt_


def test_what_batches_do_not_take():
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.resize([0, 1], 60)
    with pytest.raises(ValueError, match="complete rows"):
        BayesianSVC(inference="svi").fit(np.where(X > 2.0, np.nan, X), y)
    with pytest.raises(ValueError, match="complete rows"):
        BayesianSVC(inference="svi").fit(X, y, groups=np.resize(["a", "b"], 60))
    with pytest.raises(ValueError, match="pairwise"):
        BayesianSVC(inference="svi", multi_class="crammer-singer").fit(X, np.resize([0, 1, 2], 60))
    with pytest.raises(ValueError, match="gibbs"):
        BayesianSVC("spike-slab", inference="svi", learning_rate=0.5).fit(X, y)
