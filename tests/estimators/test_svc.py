"""What the two-class estimator computes."""

from __future__ import annotations

import signal
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import LinearSVC

from softmargin import BayesianSVC
from softmargin.inference.choices import tilted
from softmargin.priors import InverseGamma, Ridge


def simulated(n=200, p=5, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X @ np.arange(1, p + 1) / p + noise * rng.normal(size=n) > 0.2, 1, 0)


def test_map_is_linear_svc():
    X, y = simulated()
    s = 0.6
    ours = BayesianSVC(Ridge(scale=s), "map", learning_rate=1.0, fit_intercept=False, standardize=False).fit(X, y)
    theirs = LinearSVC(loss="hinge", C=2 * s**2, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.gap_ <= 1e-10


def test_map_objective_with_intercept_is_minimal():
    X, y = simulated()
    model = BayesianSVC(Ridge(scale=0.6), "map", learning_rate=1.0).fit(X, y)
    sd, sign = X.std(axis=0), 2 * y - 1

    def objective(coef, intercept):
        hinge = np.maximum(1 - sign * (X @ coef + intercept), 0).sum()
        return 2 * hinge + ((coef * sd) ** 2).sum() / (2 * 0.6**2)

    best = objective(model.coef_[0], model.intercept_[0])
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-3, 1e-5):
        for _ in range(50):
            assert (
                objective(model.coef_[0] + size * rng.normal(size=5), model.intercept_[0] + size * rng.normal()) >= best
            )


def test_em_and_newton_agree():
    X, y = simulated()
    fits = [
        BayesianSVC("ridge", "map", learning_rate=1.0, engine_options={"algorithm": name}, tol=1e-10, max_iter=5000)
        for name in ("newton", "em")
    ]
    newton, em = (fit.fit(X, y) for fit in fits)
    np.testing.assert_allclose(em.coef_, newton.coef_, atol=1e-4)
    assert newton.gap_ <= 1e-8 and em.gap_ <= 1e-6
    assert (np.diff(em.trace_) > -1e-9).all()


def test_weights_equal_repeated_rows():
    X, y = simulated(120)
    count = np.random.default_rng(1).integers(0, 4, size=120)
    for inference in ("map", "vb", "meanfield"):
        weighted = BayesianSVC(inference=inference, tol=1e-9).fit(X, y, sample_weight=count)
        repeated = BayesianSVC(inference=inference, tol=1e-9).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
        assert weighted.learning_rate_ == repeated.learning_rate_


def test_class_weight_moves_the_decision_towards_the_rare_class():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.1).astype(int)
    X = rng.normal(size=(600, 3)) + 0.8 * y[:, None]
    plain, balanced = BayesianSVC().fit(X, y), BayesianSVC(class_weight="balanced").fit(X, y)
    explicit = BayesianSVC(class_weight={0: 600 / (2 * (y == 0).sum()), 1: 600 / (2 * (y == 1).sum())}).fit(X, y)
    recall = [(model.predict(X)[y == 1] == 1).mean() for model in (plain, balanced)]
    assert recall[1] > recall[0] + 0.2
    np.testing.assert_allclose(explicit.predict_proba(X), balanced.predict_proba(X), rtol=1e-9)


def test_swapping_labels_mirrors_the_fit():
    X, y = simulated()
    for inference in ("map", "vb", "meanfield"):
        one, other = (BayesianSVC(inference=inference, tol=1e-9).fit(X, labels) for labels in (y, 1 - y))
        np.testing.assert_allclose(one.coef_, -other.coef_, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X)[:, ::-1], atol=1e-6)


def test_order_of_columns_and_rows_does_not_matter():
    X, y = simulated()
    model = BayesianSVC(tol=1e-9).fit(X, y)
    columns, rows = [3, 0, 4, 1, 2], np.random.default_rng(0).permutation(len(y))
    shuffled = BayesianSVC(tol=1e-9).fit(X[rows][:, columns], y[rows])
    np.testing.assert_allclose(shuffled.coef_[0], model.coef_[0, columns], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("inference", ["vb", "map", "meanfield"])
def test_dual_equals_primal(inference):
    X, y = simulated(60, 20)
    fits = [
        BayesianSVC(Ridge(scale=0.5), inference, learning_rate=0.5, solver=solver, tol=1e-12).fit(X, y)
        for solver in ("cholesky", "dual")
    ]
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fits[1].predict_proba(X), fits[0].predict_proba(X), atol=1e-6)
    if inference != "map":
        np.testing.assert_allclose(fits[1].summary()["sd"], fits[0].summary()["sd"], rtol=1e-5)


def test_dual_spread_covers_directions_no_row_sees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 40))
    y = np.sign(X[:, 0])
    fits = [
        BayesianSVC(Ridge(scale=0.5), learning_rate=0.5, solver=solver, tol=1e-12).fit(X, y)
        for solver in ("cholesky", "dual")
    ]
    new = rng.normal(size=(30, 40))
    (f0, s0), (f1, s1) = (model.decision_function(new, return_std=True) for model in fits)
    np.testing.assert_allclose(f1, f0, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(s1, s0, rtol=1e-5)
    draws = fits[1].sample(new, 20000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), s0, rtol=0.03)
    assert (abs(draws.mean(axis=1) - f0) < 5 * s0 / np.sqrt(20000)).all()


def test_learning_rate_auto_and_fixed():
    X, y = simulated()
    auto = BayesianSVC().fit(X, y)
    assert auto.learning_rate_ in (0.25, 0.5)
    weight = tilted(y, np.ones(len(y)))
    by_class = {label: weight[y == label][0] for label in (0, 1)} if auto.tilt_ else None
    fixed = BayesianSVC(learning_rate=auto.learning_rate_, class_weight=by_class, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(fixed.coef_, BayesianSVC(tol=1e-9).fit(X, y).coef_, rtol=1e-4)
    assert BayesianSVC(inference="map").fit(X, y).learning_rate_ == auto.learning_rate_


def test_hyperprior_is_used():
    X, y = simulated(80)
    tight = BayesianSVC(Ridge(hyperprior=InverseGamma(200.0, 200 * 0.01))).fit(X, y)
    assert tight.scale_ == pytest.approx(0.1, rel=0.15)
    assert BayesianSVC().fit(X, y).scale_ > 2 * tight.scale_


def test_probabilities_are_calibrated_where_the_raw_ones_are_not():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4300, 4))
    p = 1 / (1 + np.exp(-(X @ [0.8, -0.5, 0.3, 0.0])))
    y = (rng.random(4300) < p).astype(int)
    train, test = slice(0, 300), slice(300, None)
    scores = {}
    for kind in ("calibrated", "pseudo", "sign"):
        model = BayesianSVC(probability=kind, learning_rate=1.0).fit(X[train], y[train])
        scores[kind] = log_loss(y[test], model.predict_proba(X[test]))
    logistic = log_loss(y[test], LogisticRegression().fit(X[train], y[train]).predict_proba(X[test]))
    assert scores["calibrated"] < logistic + 0.01 < scores["pseudo"] < scores["sign"]


def test_leave_one_out_score_predicts_the_test_score():
    X, y = simulated(2000, 5, noise=1.5)
    model = BayesianSVC().fit(X[:200], y[:200])
    test = log_loss(y[200:], model.predict_proba(X[200:]))
    assert abs(model.loo_.score - test) < 0.06
    assert 0 < model.loo_.max_kv < 0.7


def test_gibbs_and_vb_tell_the_same_story():
    X, y = simulated(150, 3)
    vb = BayesianSVC(learning_rate=0.5).fit(X, y)
    gibbs = BayesianSVC(inference="gibbs", learning_rate=0.5, draws=2000, random_state=0).fit(X, y)
    table, exact = vb.summary(), gibbs.summary()
    assert (abs(table["mean"] - exact["mean"]) < 0.15 * exact["sd"]).all()
    assert table["sd"].div(exact["sd"]).between(0.88, 1.08).all()
    assert (exact["ess"] > 400).all() and (exact["r_hat"] < 1.02).all()
    assert abs(vb.predict_proba(X) - gibbs.predict_proba(X)).max() < 0.03


def test_gibbs_summary_is_on_the_scale_of_the_columns():
    X, y = simulated(100, 2)
    options = {"inference": "gibbs", "learning_rate": 0.5, "draws": 200, "warmup": 100, "random_state": 0}
    a = BayesianSVC(**options).fit(X, y).summary()
    units = np.array([2.0**10, 2.0**-10])  # powers of two, so that the chains agree to the last bit
    b = BayesianSVC(**options).fit(X * units, y).summary()
    for column in ("mean", "sd", "lower", "upper"):
        np.testing.assert_allclose(b.loc[["x0", "x1"], column] * units, a.loc[["x0", "x1"], column], rtol=1e-9)


def test_same_seed_same_draws_for_any_number_of_jobs():
    X, y = simulated(2500, 3)
    options = {"inference": "gibbs", "draws": 30, "warmup": 10, "chains": 3, "learning_rate": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = BayesianSVC(**options, random_state=7).fit(X, y).posterior_.draws
        two = BayesianSVC(**options, random_state=7, n_jobs=2).fit(X, y).posterior_.draws
        fewer = BayesianSVC(**{**options, "chains": 2}, random_state=7).fit(X, y).posterior_.draws
        other = BayesianSVC(**options, random_state=8).fit(X, y).posterior_.draws
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[:2], fewer)
    assert not np.array_equal(one, other)
    a, b = BayesianSVC(n_jobs=1).fit(X, y), BayesianSVC(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(a.coef_, b.coef_)


def test_random_state_objects():
    X, y = simulated(60, 2)
    options = {"inference": "gibbs", "draws": 20, "warmup": 5, "chains": 2, "learning_rate": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for make in (np.random.default_rng, np.random.RandomState):
            a = BayesianSVC(**options, random_state=make(3)).fit(X, y).posterior_.draws
            b = BayesianSVC(**options, random_state=make(3)).fit(X, y).posterior_.draws
            np.testing.assert_array_equal(a, b)


def test_interrupt_keeps_what_was_computed():
    X, y = simulated(3000, 10)
    model = BayesianSVC(inference="gibbs", draws=5, warmup=20, chains=2, learning_rate=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)  # compiles: the interrupt below must find the chains at work
    model.set_params(draws=10**5)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    try:
        with pytest.warns(ConvergenceWarning, match="what was computed is kept"):
            model.fit(X, y)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    chains, kept, _ = model.posterior_.draws.shape
    assert chains == 2 and 2 <= kept < 10**5 and not model.converged_
    assert np.isfinite(model.predict_proba(X)).all()


def test_progress_is_shown_when_asked(capsys):
    X, y = simulated(60, 2)
    BayesianSVC(verbose=1, learning_rate=0.5).fit(X, y)
    assert "vb: 1/500, objective" in capsys.readouterr().err
    BayesianSVC(learning_rate=0.5).fit(X, y)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [{}, {"inference": "meanfield"}, {"multi_class": "sum-to-zero"}])
def test_progress_is_that_of_the_fit_asked_for(options, capsys):
    """Fits by which the rate is chosen and judged are not shown."""
    X, y = simulated(60, 2)
    y = np.where(X[:, 1] > 0.8, 2, y) if "multi_class" in options else y
    BayesianSVC(verbose=1, **options).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "objective" in line]) <= 1


def test_to_arviz():
    arviz = pytest.importorskip("arviz")
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.iloc[:, :3]
    gibbs = BayesianSVC(inference="gibbs", draws=50, warmup=50, chains=2, learning_rate=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        data = gibbs.fit(X, y).to_arviz()
    assert data.posterior["coef"].shape == (2, 50, 3)
    assert list(data.posterior["feature"].to_numpy()) == list(X.columns)
    assert data.posterior["scale"].shape == (2, 50) and data.posterior["intercept"].shape == (2, 50)
    np.testing.assert_allclose(data.posterior["coef"].std(("chain", "draw"), ddof=1), gibbs.summary()["sd"][1:])
    assert data.posterior.attrs["approximation"] == 0
    vb = BayesianSVC().fit(X, y)
    approximate = vb.to_arviz(draws=4000)
    assert approximate.posterior.attrs["approximation"] == 1
    np.testing.assert_allclose(approximate.posterior["coef"].std(("chain", "draw")), vb.summary()["sd"][1:], rtol=0.1)
    assert arviz.summary(data).shape[0] == 3 + 1 + 1


def test_summary_columns():
    X, y = simulated()
    table = BayesianSVC().fit(pd.DataFrame(X, columns=list("abcde")), y).summary(level=0.9)
    assert list(table.columns) == ["mean", "sd", "lower", "upper", "prob_positive"]
    np.testing.assert_allclose(table["upper"] - table["mean"], 1.6448536 * table["sd"], rtol=1e-6)
    assert table.loc["e", "prob_positive"] > 0.99
    assert list(BayesianSVC(fit_intercept=False).fit(X, y).summary().index) == ["x0", "x1", "x2", "x3", "x4"]


def test_nothing_of_an_earlier_fit_survives():
    X, y = simulated(80, 4)
    model = BayesianSVC(inference="map").fit(X, y)
    assert hasattr(model, "gap_")
    model.set_params(inference="vb").fit(X[:, :3], y)
    assert not hasattr(model, "gap_") and len(model.summary()) == 4


def test_an_unfinished_mode_is_not_called_found():
    """Nearly separable data and a wide prior: the certificate decides what is said, and here it is small."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    model = BayesianSVC(Ridge(scale=1e3), "map", learning_rate=1.0).fit(X, X[:, 0] > 0)
    assert model.gap_ < 1e-8 and model.converged_ and model.score(X, X[:, 0] > 0) == 1.0


def test_interrupting_an_inner_run_is_not_swallowed(monkeypatch):
    from softmargin.engines.mode.interior import InteriorPoint

    plain = InteriorPoint.step

    def interrupted(self, model, state, iteration):
        if iteration == 3:
            raise KeyboardInterrupt
        return plain(self, model, state, iteration)

    monkeypatch.setattr(InteriorPoint, "step", interrupted)
    X, y = simulated(80, 4)
    with pytest.raises(KeyboardInterrupt):
        BayesianSVC(Ridge(scale=1.0), "map", learning_rate=1.0).fit(X, y)


def test_overlapping_fits_give_the_threads_back():
    from threadpoolctl import threadpool_info

    X, y = simulated(400, 5)
    before = [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]
    threads = [threading.Thread(target=lambda: BayesianSVC().fit(X, y)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"] == before


def test_a_shift_of_columns_as_given_changes_nothing_where_the_intercept_is_flat():
    X, y = simulated(80, 3)
    options = {"inference": "map", "learning_rate": 1.0, "standardize": False}
    prior = Ridge(scale=0.5, intercept_scale=1e10)
    near, far = (BayesianSVC(prior, **options).fit(X + shift, y) for shift in (0.0, 1e5))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-4)
