"""Estimators by products alone: the answers of the dense solvers, and what cannot be had is said."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC, BayesianSVR
from softmargin.designs.sparse import Implicit
from softmargin.exceptions import ModelWarning
from softmargin.models import build as problem
from softmargin.priors import Ridge


def words(n=90, p=40, seed=0):
    """Sparse rows of counts with labels that overlap."""
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix(rng.poisson(3.0 / np.arange(1, p + 1) ** 0.8, size=(n, p)).astype(float) + np.eye(n, p))
    f = X @ rng.normal(size=p)
    return X, np.where(f - np.median(f) + 2.0 * rng.normal(size=n) > 0.0, "b", "a")


def fitted(solver, X, y, **options):
    return BayesianSVC(solver=solver, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize("shape", [(90, 40), (50, 80)])
@pytest.mark.parametrize("likelihood", ["hinge", "logit"])
def test_vb_with_a_complete_sketch_is_that_of_the_dense_solver(shape, likelihood):
    X, y = words(*shape)
    options = {"prior": Ridge(scale=0.2), "likelihood": likelihood, "tol": 1e-9}
    cg, dense = (fitted(solver, X, y, **options) for solver in ("cg", "cholesky"))
    sd = dense.summary()["sd"].to_numpy()[1:]
    assert (np.abs(cg.coef_ - dense.coef_)[0] / np.maximum(sd, 1e-12))[sd > 0].max() < 1e-3
    assert cg.loo_.score == pytest.approx(dense.loo_.score, rel=1e-4)
    assert cg.loo_.max_kv == pytest.approx(dense.loo_.max_kv, rel=1e-4)
    assert cg.trace_[-1] == pytest.approx(dense.trace_[-1], rel=1e-7)
    f, v = cg._fitted.moments(X)
    wanted = dense._fitted.moments(X)
    np.testing.assert_allclose(f, wanted[0], atol=2e-3)
    np.testing.assert_allclose(np.sqrt(v), np.sqrt(wanted[1]), rtol=0.3)  # four errors of the draws behind it
    np.testing.assert_allclose(cg.predict_proba(X), dense.predict_proba(X), atol=0.03)


def test_learned_scale_and_learning_rate():
    X, y = words()
    cg, dense = (fitted(solver, X, y) for solver in ("cg", "cholesky"))
    assert cg.learning_rate_ == dense.learning_rate_
    assert cg.trace_[-1] == pytest.approx(dense.trace_[-1], rel=1e-5)


@pytest.mark.parametrize("shape", [(90, 40), (50, 80)])
def test_map_is_that_of_the_dense_solver(shape):
    X, y = words(*shape)
    cg, dense = (fitted(solver, X, y, inference="map", learning_rate=0.5, tol=1e-9) for solver in ("cg", "cholesky"))
    assert cg.gap_ <= 1e-9
    np.testing.assert_allclose(cg.coef_, dense.coef_, atol=1e-4 * np.abs(dense.coef_).max())
    assert cg.scale_ == pytest.approx(dense.scale_, rel=1e-4)
    assert cg.loo_.score == pytest.approx(dense.loo_.score, rel=1e-3)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
@pytest.mark.parametrize("options", [{}, {"prior": Ridge(scale=0.1)}, {"fit_intercept": False}])
def test_a_weight_of_two_is_a_repeated_row(solver, options):
    """With more columns than rows the mode of the scale counts directions, and a copy brings none."""
    X, y = words(50, 80)
    weight = np.ones(50)
    weight[:20] = 2.0
    order = np.concatenate((np.arange(50), np.arange(20)))
    options = {"inference": "map", "learning_rate": 0.5, **options}
    weighted = BayesianSVC(solver=solver, **options).fit(X, y, sample_weight=weight)
    repeated = BayesianSVC(solver=solver, **options).fit(X[order], y[order])
    assert weighted.scale_ == pytest.approx(repeated.scale_, rel=1e-5)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4 * np.abs(repeated.coef_).max())
    assert weighted.loo_.score == pytest.approx(repeated.loo_.score, rel=1e-3)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-3)


def test_a_learned_scale_is_that_of_the_space_of_the_rows():
    X, y = words(50, 80)
    X, y = X[np.arange(60) % 50], y[np.arange(60) % 50]  # ten copies
    options = {"inference": "map", "learning_rate": 0.5, "engine_options": {"starts": (0.1, 1.0, 10.0)}}
    assert fitted("cg", X, y, **options).scale_ == pytest.approx(fitted("dual", X, y, **options).scale_, rel=1e-4)


def test_gibbs_has_the_moments_of_the_dense_solver():
    X, y = words(60, 30)
    options = {"inference": "gibbs", "prior": Ridge(scale=0.3), "learning_rate": 0.5, "draws": 300, "warmup": 30}
    cg, dense = (fitted(solver, X, y, chains=2, **options).summary() for solver in ("cg", "cholesky"))
    varies = dense["sd"].to_numpy() > 0
    cg, dense = cg[varies], dense[varies]
    error = np.hypot(cg["sd"] / np.sqrt(cg["ess"]), dense["sd"] / np.sqrt(dense["ess"]))
    assert ((cg["mean"] - dense["mean"]) / error).abs().max() < 4.0
    spread = np.hypot(1.0 / np.sqrt(2.0 * cg["ess"]), 1.0 / np.sqrt(2.0 * dense["ess"]))
    assert (np.log(cg["sd"] / dense["sd"]) / spread).abs().max() < 4.0


def test_probabilities_of_a_row_do_not_depend_on_its_company():
    X, y = words()
    model = fitted("cg", X, y)
    np.testing.assert_allclose(model.predict_proba(X[:7]), model.predict_proba(X)[:7], rtol=1e-9)
    assert model.sample(X[:5], 3).shape == (5, 3)


def test_auto_takes_products_where_matrices_would_be_too_large(monkeypatch):
    X, _ = words()

    def design_of(X, prior):
        columns = problem.kept_columns(X, np.ones(X.shape[0]), intercept=True, standardized=True)
        design = problem.design_for(X, columns)
        return problem.coordinates_for(design, prior, "auto", products=True).design

    assert not isinstance(design_of(X, Ridge()), Implicit)
    monkeypatch.setattr(problem, "_ROOM", 1e3)
    assert isinstance(design_of(X, Ridge()), Implicit)
    assert not isinstance(design_of(X.toarray(), Ridge()), Implicit)
    assert not isinstance(design_of(X, problem.PRIORS["lasso"]()), Implicit)


@pytest.mark.filterwarnings("ignore:.*constant column")
def test_a_short_sketch_that_is_good_enough_is_silent(data_dir):
    """Real text, 649 rows of 7,511 words: standard deviations near those of the exact fit, and nothing to say."""
    X, y = load_svmlight_file(str(data_dir / "text_mac_windows.svm.gz"))
    X, y = X.tocsr()[::3], y[::3]
    options = {"prior": Ridge(scale=0.02), "learning_rate": 0.25}
    dense = fitted("dual", X, y, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        cg = fitted("cg", X, y, **options)
    wanted = dense.decision_function(X, return_std=True)
    f, s = cg.decision_function(X, return_std=True)
    assert np.sqrt(np.mean(((f - wanted[0]) / wanted[1]) ** 2)) < 0.1
    assert np.median(s / wanted[1]) == pytest.approx(1.0, abs=0.05)
    assert cg.loo_.score == pytest.approx(dense.loo_.score, abs=0.02)
    sd = [model.summary()["sd"].to_numpy() for model in (cg, dense)]
    used = sd[1] > 0
    assert np.median(sd[0][used] / sd[1][used]) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("shape", "density", "reported"), [((400, 600), 0.05, False), ((600, 200), 0.1, True)])
def test_a_sketch_is_reported_where_its_standard_deviations_are_wrong(shape, density, reported):
    """Against the exact fit: nothing is said of an error of 1 %, and one of 10 % is."""
    rng = np.random.default_rng(0)
    X = sp.random(*shape, density=density, format="csr", random_state=0)
    b = rng.normal(size=shape[1]) * (rng.random(shape[1]) < 0.1) * 3
    y = np.where(X @ b + 0.3 * rng.normal(size=shape[0]) > 0, 1, -1)
    options = {"prior": Ridge(scale=0.1), "learning_rate": 0.5}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cg = fitted("cg", X, y, **options)
    found = [each.category for each in caught if "approximates the spread" in str(each.message)]
    assert found == [ModelWarning] * reported  # the fit itself has converged
    exact = fitted("cholesky", X, y, **options).decision_function(X, return_std=True)[1]
    normal = cg.posterior_.root.normal
    error = np.sqrt(np.mean(np.log(normal.grow * np.sqrt(normal.rows.variance) / exact) ** 2))
    assert (error > 0.08) == reported and (error > 0.03) == reported


def test_regression_and_pairs_of_classes():
    X, _ = words()
    z = np.asarray(X[:, :3].sum(axis=1)).ravel() + np.random.default_rng(1).normal(size=90)
    options = {"likelihood": "epsilon-insensitive", "prior": Ridge(scale=0.3)}
    cg, dense = (BayesianSVR(solver=solver, **options).fit(X, z) for solver in ("cg", "cholesky"))
    np.testing.assert_allclose(cg.predict(X), dense.predict(X), atol=5e-3 * z.std())
    three = np.digitize(z, np.quantile(z, [0.3, 0.6]))
    cg, dense = (fitted(s, X, three, prior=Ridge(scale=0.2), learning_rate=0.5) for s in ("cg", "cholesky"))
    np.testing.assert_allclose(cg.predict_proba(X), dense.predict_proba(X), atol=0.05)


@pytest.mark.parametrize(("shape", "epsilon"), [((90, 40), 0.2), ((50, 80), 1.0)])
def test_the_mode_of_a_regression_converges(shape, epsilon):
    """Rows on the band have weights of 1e7: solves that are refined climb to the mode that the dense solver finds."""
    X, _ = words(*shape)
    z = np.asarray(X[:, :3].sum(axis=1)).ravel() + np.random.default_rng(1).normal(size=shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        cg, dense = (
            BayesianSVR(
                Ridge(0.2), solver=solver, inference="map", epsilon=epsilon, standardize=True, max_iter=2000
            ).fit(X, z)
            for solver in ("cg", "cholesky")
        )
    assert cg.converged_ and cg.trace_[-1] == pytest.approx(dense.trace_[-1], rel=1e-6)
    np.testing.assert_allclose(cg.predict(X), dense.predict(X), atol=1e-3 * z.std())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "hmc"}, "solver='cg' has none; use 'gibbs'"),
        ({"inference": "map", "engine_options": {"algorithm": "em"}}, "algorithm='newton' alone; got 'em'"),
    ],
)
def test_what_products_cannot_do_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted("cg", *words(), **options)


def test_parts_that_do_not_fit_are_refused():
    X, y = words()
    with pytest.raises(TypeError, match="ConjugateGradients needs a prior with 'isotropic'"):
        fitted("cg", X, y, prior="lasso")
    with pytest.raises(ValueError, match="works on a sparse X"):
        fitted("cg", X.toarray(), y)
    three = np.arange(90) % 3
    with pytest.raises(ValueError, match="solver='cg' is for two classes or pairs of them"):
        fitted("cg", X, three, multi_class="sum-to-zero")


def test_a_mode_with_its_rate_to_find_is_that_of_dense_rows():
    """The rate is settled by fits that products alone would only approximate."""
    rng = np.random.default_rng(3)
    X = sp.random(300, 1200, 0.005, random_state=3, format="csr")
    X.data[:] = rng.integers(1, 5, len(X.data))
    y = (X @ rng.standard_normal(1200) + 0.9 * rng.standard_normal(300) > 0).astype(int)
    dense, rows = (
        BayesianSVC(inference="map", fit_intercept=False, standardize=True).fit(Z, y) for Z in (X.toarray(), X)
    )
    assert rows.learning_rate_ == dense.learning_rate_
    np.testing.assert_allclose(rows.coef_, dense.coef_, atol=1e-6 * np.abs(dense.coef_).max())


def test_entries_of_one_cell_add_up():
    rng = np.random.default_rng(0)
    X = sp.random(80, 30, 0.2, random_state=0, format="csr")
    y = (X @ rng.standard_normal(30) > 0).astype(int)
    half = sp.csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape)
    one, two = (BayesianSVC(inference="map", learning_rate=1.0).fit(Z, y) for Z in (X, half))
    np.testing.assert_allclose(two.coef_, one.coef_, rtol=1e-9)
    assert half.nnz == 2 * X.nnz
