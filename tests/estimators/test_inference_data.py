"""Everything that was sampled as ArviZ InferenceData, with what is said of the rows."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import expit, logsumexp, ndtr

from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, Formula
from softmargin.estimators.assess import export
from softmargin.exceptions import DataWarning
from softmargin.priors import Ridge

arviz = pytest.importorskip("arviz")

RUN = {"draws": 100, "warmup": 100, "chains": 2, "random_state": 0}


def problem(seed=0, n=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = X @ [1.0, -1.0, 0.5]
    return X, f, (f + rng.logistic(size=n) > 0).astype(int), rng.integers(0, 6, n).astype(str)


@pytest.mark.parametrize(("likelihood", "curve"), [("logit", expit), ("probit", ndtr)])
def test_leave_one_out_of_arviz_agrees_with_exact_refits(likelihood, curve):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 2))
    y = (rng.random(24) < curve(X @ [1.5, -1.0])).astype(int)
    model = BayesianSVC(
        Ridge(1.0), "hmc", likelihood=likelihood, fit_intercept=False, standardize=False, draws=1500, random_state=0
    )
    data = model.fit(X, y).to_arviz()
    found = arviz.loo(data, pointwise=True)

    grid = np.linspace(-6.0, 6.0, 301)  # every refit by quadrature over both coefficients
    beta = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    logs = np.log(curve((2.0 * y - 1.0) * (beta @ X.T)))
    posterior = logs.sum(axis=1) - 0.5 * (beta**2).sum(axis=1)
    exact = logsumexp(posterior) - logsumexp(posterior[:, None] - logs, axis=0)

    inverse = np.exp(-data.log_likelihood.y.to_numpy())  # its mean is one over the left-out probability
    size = np.array([float(arviz.ess(inverse[:, :, i], method="mean")) for i in range(len(y))])
    error = inverse.std(axis=(0, 1)) / inverse.mean(axis=(0, 1)) / np.sqrt(size)
    assert np.abs((found.loo_i.to_numpy() - exact) / error).max() < 4.5  # the largest of 24
    assert abs(found.elpd_loo - exact.sum()) < 4.0 * np.sqrt((error**2).sum())
    assert data.log_likelihood.attrs["kind"] == "likelihood"


def machines():
    X, f, y, groups = problem()
    three = np.digitize(f, [-0.7, 0.7])
    hinge = {"prior": Ridge(1.0), "inference": "gibbs", "learning_rate": 0.5, **RUN}
    yield "logit", BayesianSVC(Ridge(1.0), "gibbs", likelihood="logit", **RUN).fit(X, y)
    weight = 1.0 + (groups == "1")
    yield "weights", BayesianSVC(class_weight="balanced", **hinge).fit(X, y, sample_weight=weight)
    yield "pairs", BayesianSVC(**hinge).fit(X, three, groups=groups)
    yield "sum-to-zero", BayesianSVC(multi_class="sum-to-zero", **hinge).fit(X, three)
    yield "crammer-singer", BayesianSVC(multi_class="crammer-singer", inference="gibbs", **RUN).fit(X, three)
    kernel = BayesianKernelClassifier(basis="active", inference="gibbs", likelihood="probit", **RUN)
    yield "kernel", kernel.fit(X, y)


def test_log_likelihoods_of_rows_add_up_to_those_that_samplers_have_recorded():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in machines():
            data = model.to_arviz()
            recorded = data.sample_stats.loglik.to_numpy()
            recorded = recorded.sum(axis=2) if recorded.ndim == 3 else recorded  # over pairs
            np.testing.assert_allclose(data.log_likelihood.y.sum("row"), recorded, rtol=1e-10, err_msg=name)
            genuine = name in ("logit", "kernel")
            assert (data.log_likelihood.attrs["kind"] == "likelihood") == genuine, name
            assert {"posterior_predictive", "observed_data", "constant_data"} <= set(data.groups()), name


@pytest.mark.parametrize("likelihood", ["squared", "epsilon-insensitive"])
def test_log_densities_and_replicates_of_a_regression_are_those_of_its_noise(likelihood):
    X, f, _, _ = problem()
    y = 10.0 * (f + 0.3 * np.random.default_rng(5).normal(size=len(f)))
    model = BayesianSVR(Ridge(1.0), "gibbs", likelihood=likelihood, **RUN).fit(X, y)
    data = model.to_arviz()
    recorded = data.sample_stats.loglik.to_numpy() - len(y) * np.log(np.std(y))
    np.testing.assert_allclose(data.log_likelihood.y.sum("row"), recorded, rtol=1e-9)
    # replicates fall into predictive intervals as often as they say
    lower, upper = model.predict_interval(X, level=0.8).T
    drawn = data.posterior_predictive.y.to_numpy()
    share = ((drawn > lower) & (drawn < upper)).mean()
    assert abs(share - 0.8) < 0.03


def test_replicates_of_a_pseudo_likelihood_have_the_calibrated_probabilities():
    X, _, y, _ = problem()
    model = BayesianSVC(random_state=0).fit(X, y)
    data = model.to_arviz(draws=4000)
    p = model.predict_proba(X)[:, 1]
    z = (data.posterior_predictive.y.mean(("chain", "draw")).to_numpy() - p) / np.sqrt(p * (1.0 - p) / 4000)
    assert np.abs(z).max() < 4.5 and data.log_likelihood.attrs["kind"] == "pseudo: Hinge"


def test_group_effects_indicators_and_missing_entries_are_among_the_draws():
    X, _, y, groups = problem()
    grouped = BayesianSVC(likelihood="logit", inference="gibbs", **RUN).fit(X, y, groups=groups)
    effects = grouped.to_arviz(rows=False).posterior["effect_groups"]
    assert effects.dims == ("chain", "draw", "groups_level")
    np.testing.assert_allclose(effects.mean(("chain", "draw")), grouped.random_effects_["groups"]["mean"], atol=0.2)
    chosen = BayesianSVC("spike-slab", "gibbs", likelihood="probit", **RUN).fit(X, y)
    drawn = chosen.to_arviz().posterior
    np.testing.assert_array_equal(drawn["indicator"], drawn["coef"] != 0.0)
    holes = np.where(np.random.default_rng(3).random(X.shape) < 0.1, np.nan, X)
    incomplete = BayesianSVC(likelihood="logit", random_state=0).fit(holes, y)
    data = incomplete.to_arviz(draws=4000)
    entries = data.posterior["imputed"]
    z = (entries.mean(("chain", "draw")) - incomplete.imputed_["mean"]) / (incomplete.imputed_["sd"] / np.sqrt(4000))
    assert np.abs(z).max() < 4.5 and len(entries.entry) == np.isnan(holes).sum()
    assert f"x{incomplete.imputed_['feature'][0][1:]}[{incomplete.imputed_['row'][0]}]" == entries.entry[0]


def test_log_likelihoods_average_over_missing_entries():
    X, _, y, _ = problem()
    X[::4, 1] = np.nan
    model = BayesianSVC(Ridge(1.0), likelihood="probit", random_state=0).fit(X, y)
    data = model.to_arviz(draws=50)
    reader = model._fitted.reader
    design = reader.design(X)
    lead = data.posterior
    slopes = np.column_stack((lead.intercept.to_numpy()[0], lead.coef.to_numpy()[0] / reader.columns.scale))
    slopes[:, 0] += lead.coef.to_numpy()[0] @ reader.columns.shift
    f = np.stack([design.matvec(one) for one in slopes])
    v = np.stack([design.excess(one) for one in slopes])
    exact = np.log(ndtr((2.0 * y - 1.0) * f / np.sqrt(1.0 + v)))  # of the probit in closed form
    np.testing.assert_allclose(data.log_likelihood.y.to_numpy()[0], exact, rtol=1e-6)


def test_plots_and_comparisons_of_arviz_take_it():
    X, _, y, groups = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = BayesianSVC(likelihood="logit", random_state=0).fit(X[:, :1], y).to_arviz()
        large = BayesianSVC(likelihood="logit", random_state=0).fit(X, y, groups=groups).to_arviz()
        table = arviz.compare({"small": small, "large": large})
        arviz.plot_ppc(large, num_pp_samples=5)
        arviz.plot_forest(large, var_names=["coef", "effect_groups"])
        assert table.index[0] == "large" and np.isfinite(arviz.waic(large).elpd_waic)


def test_rows_stay_out_of_pickles_and_can_be_given_again():
    X, _, y, groups = problem()
    model = BayesianSVC(likelihood="logit", random_state=0).fit(X, y, sample_weight=groups != "1", groups=groups)
    first = model.to_arviz()
    again = pickle.loads(pickle.dumps(model))
    assert again._seen.X is None and model._seen.X is not None
    with pytest.warns(DataWarning, match=r"does not hold the rows of its fit .* to_arviz\(X, y\)"):
        without = again.to_arviz()
    assert "log_likelihood" not in without.groups() and "posterior" in without.groups()
    kept = groups != "1"
    given = again.to_arviz(X[kept], y[kept], groups=groups[kept])
    np.testing.assert_array_equal(given.log_likelihood.y, first.log_likelihood.y)
    with pytest.raises(ValueError, match="X without y"):
        again.to_arviz(X)
    with pytest.raises(ValueError, match=r"labels \[7\] that the fit did not have"):
        again.to_arviz(X[kept], np.full(kept.sum(), 7), groups=groups[kept])


def test_a_formula_takes_the_rows_of_its_fit_as_a_frame():
    pandas = pytest.importorskip("pandas")
    X, _, y, groups = problem()
    frame = pandas.DataFrame(X, columns=list("abc")).assign(y=y, g=groups)
    model = Formula("y ~ a + b + (1 | g)", BayesianSVC(likelihood="logit", random_state=0)).fit(frame)
    np.testing.assert_array_equal(model.to_arviz(frame).log_likelihood.y, model.to_arviz().log_likelihood.y)


def test_many_rows_thin_the_draws_or_are_refused_with_their_number(monkeypatch):
    X, _, y, _ = problem()
    model = BayesianSVC(Ridge(1.0), "gibbs", likelihood="logit", **{**RUN, "draws": 600}).fit(X, y)
    monkeypatch.setattr(export, "_LARGEST", 60 * 400)
    with pytest.warns(DataWarning, match=r"keeps one of 3 draws: .* 60 rows and entries at 1,200 draws"):
        data = model.to_arviz()
    assert data.posterior.sizes["draw"] == data.log_likelihood.sizes["draw"] == 200
    np.testing.assert_allclose(data.log_likelihood.y.sum("row"), data.sample_stats.loglik, rtol=1e-10)
    monkeypatch.setattr(export, "_LARGEST", 60 * 100)
    with pytest.raises(MemoryError, match=r"24,000 numbers, and 6,000 are the most; give some of the rows"):
        model.to_arviz()
    assert model.to_arviz(rows=False).posterior.sizes["draw"] == 600
