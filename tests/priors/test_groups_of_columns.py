"""Groups of columns that are in or out together, and inclusion probabilities by column."""

import itertools
import math
import warnings

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from selection_oracle import model_evidences

from softmargin import BayesianSVC, BayesianSVR
from softmargin.checks import check_prior
from softmargin.priors import GroupLasso, Lasso, Ridge, SpikeSlab

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz

GROUPS = [[0, 1], [2, 3, 4]]
PLAIN = {"standardize": False, "fit_intercept": False}


def problem(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, X @ [1.0, -0.8, 0.0, 0.1, 0.0, 0.5] + 0.5 * rng.normal(size=n)


def test_density_of_a_group_integrates_to_one_and_groups_of_one_are_the_lasso():
    free = np.zeros(2, dtype=bool)
    bound = GroupLasso(0.7, groups=[[0, 1]]).bind(free)
    t = np.linspace(-15.0, 15.0, 401)
    state = bound.start()
    value = np.array([[math.exp(bound.logpdf(state, np.array([a, b]))) for b in t] for a in t])
    assert np.trapezoid(np.trapezoid(value, t, axis=1), t) == pytest.approx(1.0, abs=2e-3)
    free, rng = np.array([True, False, False, False]), np.random.default_rng(1)
    ones, lasso = GroupLasso(0.7, groups=[[0], [2]]).bind(free), Lasso(0.7).bind(free)
    beta, var = rng.normal(size=4), rng.exponential(size=4)
    assert ones.logpdf(ones.start(), beta) == pytest.approx(lasso.logpdf(lasso.start(), beta), rel=1e-12)
    one, other = ones.expect(beta, var), lasso.expect(beta, var)
    assert one.bound == pytest.approx(other.bound, rel=1e-12)
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-12)


def conic_mode(X, y, c, scale, groups):
    """``2 c'max(1 - y f, 0) + sum |beta_g|/scale`` by Clarabel, a cone for every group."""
    (n, p), m = X.shape, len(groups)
    linear = np.concatenate((np.zeros(p), 2.0 * c, np.full(m, 1.0 / scale)))
    none = sp.csr_matrix
    rows = [
        sp.hstack((-y[:, None] * X, -sp.identity(n), none((n, m)))),
        sp.hstack((none((n, p)), -sp.identity(n), none((n, m)))),
    ]
    right, cones = [-np.ones(n), np.zeros(n)], [clarabel.NonnegativeConeT(2 * n)]
    for g, group in enumerate(groups):
        cone = np.zeros((1 + len(group), p + n + m))
        cone[0, p + n + g] = -1.0
        cone[np.arange(1, 1 + len(group)), group] = -1.0
        rows.append(sp.csr_matrix(cone))
        right.append(np.zeros(1 + len(group)))
        cones.append(clarabel.SecondOrderConeT(1 + len(group)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.tol_gap_abs, settings.tol_gap_rel = False, 1e-12, 1e-12
    A = sp.vstack(rows).tocsc()
    solver = clarabel.DefaultSolver(none((A.shape[1],) * 2).tocsc(), linear, A, np.concatenate(right), cones, settings)
    return np.array(solver.solve().x)[:p]


def test_mode_is_that_of_a_conic_solver_and_whole_groups_are_out():
    X, f = problem()
    y, groups = np.where(f > 0.0, 1.0, -1.0), [*GROUPS, [5]]
    prior = GroupLasso(0.12, groups=GROUPS)
    model = BayesianSVC(prior, "map", learning_rate=0.5, max_iter=20_000, tol=1e-12, **PLAIN).fit(X, y)
    wanted = conic_mode(X, y, np.full(len(y), 0.5), 0.12, groups)

    def objective(beta):
        lengths = sum(np.linalg.norm(beta[group]) for group in groups)
        return np.maximum(1.0 - y * (X @ beta), 0.0).sum() + lengths / 0.12

    assert objective(model.coef_[0]) == pytest.approx(objective(wanted), rel=1e-5)
    np.testing.assert_allclose(model.coef_[0], wanted, atol=2e-3)
    assert (model.coef_[0, [2, 3, 4]] == 0.0).all() and (model.coef_[0, [0, 1]] != 0.0).all()
    assert model.get_support().tolist() == [True, True, False, False, False, True]


def test_checks_of_priors_take_them():
    check_prior(GroupLasso(0.7, groups=[[0, 1]]))
    check_prior(GroupLasso(groups=[[0, 1, 3]]))
    check_prior(SpikeSlab([0.1, 0.5, 0.9, 0.2], scale=1.0))


def test_draws_of_a_group_agree_with_quadrature_and_the_variational_fit_is_close():
    X, f = problem(12)
    X = X[:, :2]
    given = {"likelihood": "squared", "noise": 1.0, **PLAIN}
    model = BayesianSVR(GroupLasso(0.3, groups=[[0, 1]]), "gibbs", draws=3000, random_state=0, **given).fit(X, f)
    grid = np.linspace(-2.5, 2.5, 401)
    beta = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    logs = -0.5 * ((f - beta @ X.T) ** 2).sum(axis=1) - np.linalg.norm(beta, axis=1) / 0.3
    weight = np.exp(logs - logsumexp(logs))
    mean = weight @ beta
    drawn = model.posterior_.draws
    for j in range(2):
        for power, exact in ((1, mean[j]), (2, weight @ beta[:, j] ** 2)):
            series = drawn[..., j] ** power
            error = series.std() / math.sqrt(float(arviz.ess(series, method="mean")))
            assert abs(series.mean() - exact) < 4.0 * error
    vb = BayesianSVR(GroupLasso(0.3, groups=[[0, 1]]), **given).fit(X, f)
    sd = np.sqrt(weight @ (beta - mean) ** 2)
    assert (np.abs(vb.coef_[0] - mean) < 0.25 * sd).all()


def test_groups_go_by_names_and_constant_columns_drop_out_of_them():
    pandas = pytest.importorskip("pandas")
    X, f = problem()
    X[:, 1] = 3.0
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    with pytest.warns(match="constant column"):
        named = BayesianSVR(GroupLasso(0.5, groups=[["a", "b", "c"]]), tol=1e-10).fit(frame, f)
    rest = BayesianSVR(GroupLasso(0.5, groups=[[0, 1]]), tol=1e-10).fit(np.delete(X, 1, axis=1), f)
    np.testing.assert_allclose(np.delete(named.coef_, 1, axis=1), rest.coef_, rtol=1e-6)
    for groups, sentence in (
        ([["a", "z"]], "must name columns of X, or positions among its 6 columns; got 'z'"),
        ([["a"], ["a"]], "the column 'a' twice"),
    ):
        with pytest.raises(ValueError, match=sentence):
            BayesianSVR(GroupLasso(groups=groups)).fit(frame, f)
    with pytest.raises(ValueError, match="must list lists of columns"):
        GroupLasso(groups=["a", "b"])
    joint = BayesianSVC(GroupLasso(groups=[[0, 1]]), multi_class="sum-to-zero")
    with pytest.raises(ValueError, match="leave groups out of GroupLasso"):
        joint.fit(np.delete(X, 1, axis=1), np.digitize(f, [-1.0, 1.0]))


def test_inclusion_probabilities_by_column_are_those_of_all_models():
    """A regression with known noise and slab: every model has its evidence in closed form."""
    X, f = problem(25)
    X, pi = X[:, :4], np.array([0.05, 0.2, 0.6, 0.9])
    logs, models = [], list(itertools.product((False, True), repeat=4))
    for gamma in np.array(models):
        C = np.eye(len(f)) * 2.25 + 0.49 * X[:, gamma] @ X[:, gamma].T
        evidence = -0.5 * f @ np.linalg.solve(C, f) - 0.5 * np.linalg.slogdet(C)[1]
        logs.append(evidence + np.where(gamma, np.log(pi), np.log1p(-pi)).sum())
    exact = np.exp(np.array(logs) - logsumexp(logs)) @ np.array(models)
    given = {"likelihood": "squared", "noise": 1.5, "draws": 2000, "random_state": 0, **PLAIN}
    model = BayesianSVR(SpikeSlab(pi, scale=0.7), "gibbs", **given).fit(X, f)
    assert (np.abs(model.inclusion_ - exact) < 4.5 * model.inclusion_error_ + 1e-4).all()
    same = BayesianSVR(SpikeSlab([0.3] * 4, scale=0.7), "gibbs", **{**given, "draws": 100}).fit(X, f)
    one = BayesianSVR(SpikeSlab(0.3, scale=0.7), "gibbs", **{**given, "draws": 100}).fit(X, f)
    np.testing.assert_array_equal(same.inclusion_, one.inclusion_)


def test_inclusion_probabilities_by_column_go_with_the_hinge():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=30) > 0.0, 1.0, -1.0)
    pi, c = np.array([0.1, 0.7]), np.full(30, 0.5)
    models, logs, error = model_evidences(X, y, c, "normal", 1.0, draws=4000)
    logs = logs + np.where(models, np.log(pi), np.log1p(-pi)).sum(axis=1)
    weight = np.exp(logs - logsumexp(logs))
    exact = weight @ models
    spread = np.sqrt(((weight[:, None] * (models - exact) * error[:, None]) ** 2).sum(axis=0))
    options = {"learning_rate": 0.5, "standardize": False, "draws": 1500, "random_state": 0}
    model = BayesianSVC(SpikeSlab(pi, scale=1.0), "gibbs", **options).fit(X, y)
    assert (np.abs(model.inclusion_ - exact) < 4.5 * np.hypot(model.inclusion_error_, spread)).all()
    joint = BayesianSVC(SpikeSlab(pi, scale=1.0), "gibbs", multi_class="sum-to-zero", **options | {"draws": 50})
    assert joint.fit(X, y).inclusion_.shape == (2,)


def test_a_wrong_number_of_inclusion_probabilities_is_refused():
    X, f = problem()
    with pytest.raises(ValueError, match=r"3 inclusion probabilities for the 6 columns of X; give one for each"):
        BayesianSVR(SpikeSlab([0.1, 0.2, 0.3]), "gibbs").fit(X, f)
    with pytest.raises(ValueError, match=r"one such number for every column, or 'learn'"):
        SpikeSlab([0.1, 1.2])
    with pytest.raises(ValueError, match=r"for one per column use Scaled\(Ridge\(scale=1.0\), by=\[...\]\)"):
        Ridge([0.1, 1.2])
