"""BayesianKernelClassifier on the full basis: against convex solvers, stationarity, the linear machine and itself."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from softmargin import BayesianKernelClassifier, BayesianSVC
from softmargin.designs.kernel.kernels import resolve
from softmargin.inference.choices import Record
from softmargin.models.kernel.search import Search, Setting
from softmargin.priors import Ridge

FIXED = {"length_scale": 1.3, "scale": 2.0, "learning_rate": 0.5, "standardize": False}


def rings(n=60, seed=0, p=2):
    """Two classes inside and outside of a circle, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    f = 2.0 * ((X[:, :2] ** 2).sum(axis=1) - 1.4)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(int)


@pytest.fixture(scope="module")
def data():
    return rings()


def test_mode_is_the_support_vector_machine(data):
    """The penalty g'K^-1 g / (2 s^2) and the loss 2 c max(1 - y f, 0) make C = 2 c s^2."""
    X, y = data
    model = BayesianKernelClassifier(inference="map", **FIXED).fit(X, y)
    peer = SVC(C=2.0 * 0.5 * 2.0**2, gamma=1.3**-2, tol=1e-9).fit(X, y)
    new = rings(40, 1)[0]
    np.testing.assert_allclose(model.decision_function(new), peer.decision_function(new), atol=1e-5)
    assert model.gap_ < 1e-6


def test_vb_is_stationary_and_predicts_by_the_rules_of_normals(data):
    """The best Gaussian q(f) has mean ``K E l'`` and precision ``K^-1 - E l''``, K with the intercept's variance."""
    X, y = data
    model = BayesianKernelClassifier(tol=1e-12, **FIXED).fit(X, y)
    f, sd = model.decision_function(X, return_std=True)
    offset = model.loo_.b / model.loo_.a
    f, sign = f - offset, np.where(y == 1, 1.0, -1.0)
    t = (1.0 - sign * f) / sd
    slope, w = 2.0 * 0.5 * norm.cdf(t) * sign, 2.0 * 0.5 * norm.pdf(t) / sd

    def K(A, B):
        return 4.0 * np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / 1.3**2)

    flat = 1e4**2
    assert abs(slope.sum()) < 1e-4
    level = f - K(X, X) @ slope
    np.testing.assert_allclose(level, level.mean(), atol=1e-4)
    new = rings(25, 1)[0]
    f_new, sd_new = model.decision_function(new, return_std=True)
    np.testing.assert_allclose(f_new - offset, level.mean() + K(new, X) @ slope, atol=1e-4)
    root = np.sqrt(w)
    inner = np.eye(len(y)) + root[:, None] * (K(X, X) + flat) * root
    for rows, spread in ((X, sd), (new, sd_new)):
        across = root[:, None] * (K(X, rows) + flat)
        own = np.diag(K(rows, rows)) + flat
        expected = own - (across * np.linalg.solve(inner, across)).sum(axis=0)
        np.testing.assert_allclose(spread**2, expected, rtol=2e-3)


@pytest.mark.parametrize("likelihood", ["hinge", "logit", "probit"])
def test_linear_kernel_is_the_linear_machine(likelihood):
    """The scale is that of f: slopes of sd s make f of sd ``s sqrt(mean |x|^2)``."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 3))
    y = (X @ [1.0, -1.0, 0.0] + rng.normal(size=50) > 0).astype(int)
    s = 0.7
    exact = {"learning_rate": 0.5, "likelihood": likelihood, "tol": 1e-12}
    scale = s * np.sqrt((X**2).sum(axis=1).mean())
    kernel = BayesianKernelClassifier("linear", scale=scale, standardize=False, **exact).fit(X, y)
    linear = BayesianSVC(Ridge(scale=s), standardize=False, **exact).fit(X, y)
    new = rng.normal(size=(20, 3))
    for ours, theirs in zip(
        kernel.decision_function(new, return_std=True), linear.decision_function(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kernel.predict_proba(new), linear.predict_proba(new), atol=1e-4)


def test_leave_one_out_is_that_of_refits(data):
    X, y = data[0][:40], data[1][:40]
    settings = FIXED | {"learning_rate": 0.25, "scale": 1.0}
    model = BayesianKernelClassifier(**settings).fit(X, y)
    refits, inside = np.empty(40), model.predict_proba(X)[:, 1]
    for i in range(40):
        rest = np.arange(40) != i
        one = BayesianKernelClassifier(**settings).fit(X[rest], y[rest])
        f, sd = one.decision_function(X[i : i + 1], return_std=True)
        refits[i] = model.loo_.link.probability(f - one.loo_.b / one.loo_.a, sd**2)[0]
    error = np.abs(model.loo_probability_[:, 1] - refits).max()
    assert error < 0.01
    assert np.abs(inside - refits).max() > 5 * error


def test_weights_are_repeated_rows_and_order_does_not_matter(data):
    X, y = data
    count = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = BayesianKernelClassifier().fit(X, y, sample_weight=count)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), count))
    repeated = BayesianKernelClassifier().fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)
    assert weighted.length_scale_ == pytest.approx(repeated.length_scale_)
    np.testing.assert_allclose(weighted.loo_probability_[rows], repeated.loo_probability_, rtol=1e-9)
    assert np.isnan(weighted.loo_probability_[count == 0]).all()


def test_learned_width_has_the_best_leave_one_out_score(data):
    X, y = data
    settings = {"learning_rate": 0.25, "standardize": False, "scale": 2.0}
    learned = BayesianKernelClassifier(**settings).fit(X, y)
    for step in (1.0, -1.0):
        other = BayesianKernelClassifier(length_scale=learned.length_scale_ * 2.0**step, **settings).fit(X, y)
        assert learned.loo_.objective < other.loo_.objective + 2e-3


def test_units_are_rescaled_where_that_predicts_better():
    X, y = rings(80, p=3)
    unlike = X * [1.0, 1.0, 1000.0]  # the last column says nothing
    model = BayesianKernelClassifier().fit(unlike, y)
    assert model.standardize_
    fixed = BayesianKernelClassifier(standardize=True)
    p = fixed.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(fixed.fit(unlike + 50.0, y).predict_proba(unlike + 50.0), p, atol=1e-5)
    small = X * [1.0, 1.0, 0.01]
    assert not BayesianKernelClassifier().fit(small, y).standardize_


def test_precomputed_objects_functions_and_sparse_rows_agree(data):
    X, y = data
    new = rings(30, 1)[0]
    settings = FIXED | {"tol": 1e-11}  # they start from different fits
    expected = BayesianKernelClassifier(**settings).fit(X, y)
    p = expected.predict_proba(new)

    def rbf(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2) / 1.3**2)

    own = settings | {"length_scale": None}
    same = {"rtol": 0.0, "atol": 1e-5}
    np.testing.assert_allclose(BayesianKernelClassifier(rbf, **own).fit(X, y).predict_proba(new), p, **same)
    half = RBF(1.3 / np.sqrt(2.0))  # scikit-learn's has a factor two
    np.testing.assert_allclose(BayesianKernelClassifier(half, **own).fit(X, y).predict_proba(new), p, **same)
    given = BayesianKernelClassifier("precomputed", **own).fit(rbf(X, X), y)
    np.testing.assert_allclose(given.predict_proba(rbf(new, X)), p, **same)
    sparse = BayesianKernelClassifier(**settings).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_array(new)), p, **same)


def test_precomputed_matrices_are_split_by_rows_and_columns(data):
    X, y = data
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 1.3**2)
    scores = cross_val_score(BayesianKernelClassifier("precomputed"), K, y, cv=3)
    np.testing.assert_allclose(
        scores, cross_val_score(BayesianKernelClassifier(length_scale=1.3, standardize=False), X, y, cv=3), atol=0.051
    )


def test_draws_have_the_moments_that_are_reported(data):
    X, y = data
    model = BayesianKernelClassifier(random_state=0, **FIXED).fit(X, y)
    new = np.concatenate((rings(8, 1)[0], [[30.0, 30.0]]))
    f, sd = model.decision_function(new, return_std=True)
    draws = model.sample(new, 4000)
    n = draws.shape[1]
    assert np.abs((draws.mean(axis=1) + model.loo_.b / model.loo_.a - f) / sd * np.sqrt(n)).max() < 4.0
    assert np.abs((draws.var(axis=1) / sd**2 - 1.0) * np.sqrt(n / 2.0)).max() < 4.0
    level = BayesianKernelClassifier(random_state=0, **FIXED).fit(X, y).sample(new[-1:], 4000)
    assert level.std() > 2.0, "far from all rows f has its prior variance"
    close = model.sample(np.array([[30.0, 30.0], [30.0, 30.1], [-30.0, 30.0]]), 4000)
    r = np.corrcoef(close)
    assert r[0, 1] > 0.99
    assert r[0, 2] < 0.5


@pytest.mark.parametrize("inference", ["gibbs", "hmc"])
def test_samplers_agree_with_vb(data, inference):
    X, y = data
    settings = FIXED | {"learning_rate": 0.25, "scale": 1.0, "probability": "pseudo"}
    vb = BayesianKernelClassifier(**settings).fit(X, y)
    length = {"draws": 400, "warmup": 100, "chains": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        drawn = BayesianKernelClassifier(inference=inference, **settings, **length).fit(X, y)
    (f, sd), (f_drawn, sd_drawn) = (m.decision_function(X, return_std=True) for m in (vb, drawn))
    assert np.abs((f - f_drawn) / sd).max() < 0.3
    np.testing.assert_allclose(sd_drawn, sd, rtol=0.2)


def test_many_classes_by_pairs():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = BayesianKernelClassifier().fit(X[::2], names[::2])
    p = model.predict_proba(X[1::2])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.predict(X[1::2]) == names[1::2]).mean() > 0.9
    assert len(model.length_scale_) == len(model.scale_) == 3
    pair = np.isin(names[::2], ["a", "c"])
    alone = BayesianKernelClassifier().fit(X[::2][pair], names[::2][pair])
    assert alone.length_scale_ == model.length_scale_[1]
    assert list(model.summary().index) == ["a | b", "a | c", "b | c"]
    assert model.sample(X[:4], 7, random_state=0).shape == (4, 7, 3)
    threads = BayesianKernelClassifier(n_jobs=2).fit(X[::2], names[::2])
    np.testing.assert_array_equal(threads.predict_proba(X[1::2]), p)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 4.0)
    given = BayesianKernelClassifier("precomputed").fit(K[::2, ::2], names[::2]).predict_proba(K[1::2, ::2])
    plain = BayesianKernelClassifier(length_scale=2.0, standardize=False).fit(X[::2], names[::2]).predict_proba(X[1::2])
    np.testing.assert_allclose(given, plain, atol=0.02)


def test_constant_rows_predict_the_shares():
    y = np.array([0, 1, 1, 1] * 10)
    p = BayesianKernelClassifier().fit(np.ones((40, 2)), y).predict_proba(np.ones((1, 2)))
    assert p[0, 1] == pytest.approx(0.75, abs=0.1)


def test_clone_pickle_and_seed(data):
    X, y = data
    model = BayesianKernelClassifier(random_state=3, **FIXED).fit(X, y)
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    stored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(stored.sample(X, 5), model.sample(X, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "sigmoid"}, "not positive semi-definite"),
        ({"kernel": "precomputed"}, "must be square"),
        ({"inference": "svgd"}, "unknown inference"),
        ({"likelihood": "cauchy"}, "unknown likelihood"),
        ({"basis": "half"}, "unknown basis"),
        ({"length_scale": 0.0}, "length_scale must be positive"),
        ({"scale": -1.0}, "scale must be a positive number"),
        ({"learning_rate": "fast"}, "learning_rate must be"),
        ({"learning_rate": True}, "learning_rate must be"),
        ({"learning_rate": np.ones(1)}, "learning_rate must be"),
        ({"standardize": "yes"}, "standardize must be"),
        ({"draws": 1}, "draws must be"),
        ({"tol": 0.0}, "tol must be"),
        ({"probability": "sure"}, "unknown probability"),
        ({"engine_options": 3}, "engine_options must be"),
    ],
)
def test_refused_in_one_sentence(data, change, message):
    X, y = data
    with pytest.raises(ValueError, match=message) as caught:
        BayesianKernelClassifier(**change).fit(3.0 * X, y)
    assert str(caught.value).count(". ") == 0


def test_one_class_is_refused(data):
    with pytest.raises(ValueError, match="at least two classes in y; got 1 class"):
        BayesianKernelClassifier().fit(data[0], np.zeros(60))


def test_a_point_has_no_spread(data):
    X, y = data
    model = BayesianKernelClassifier(inference="map", **FIXED).fit(X, y)
    with pytest.raises(ValueError, match="needs a posterior"):
        model.decision_function(X, return_std=True)
    with pytest.raises(ValueError, match="needs a posterior"):
        model.sample(X)


def test_mode_takes_the_scale_of_a_quick_fit():
    """The joint mode with the scale of as many features as rows is near zero."""
    X, y = rings(200, seed=4)
    mode, vb = BayesianKernelClassifier(inference="map").fit(X, y), BayesianKernelClassifier().fit(X, y)
    assert 0.3 < mode.scale_ / vb.scale_ < 3.0
    assert mode.score(X, y) > vb.score(X, y) - 0.05


def test_counts_are_not_centred():
    X, y = rings(80, seed=5)
    counts = np.abs(X) * [1.0, 10.0]
    assert BayesianKernelClassifier("chi2").fit(counts, y).score(counts, y) > 0.5


class Curve(Search):
    """A search over widths whose scores are a given function of the step."""

    def __init__(self, score):
        super().__init__(None, Record())
        self.score, self.setting = score, Setting(resolve("rbf", 1.0, np.zeros((2, 1))), None)

    def at(self, setting, step):
        one = SimpleNamespace(setting=setting, step=step, rank=(False, self.score(step)))
        return self.found.setdefault((setting.kernel, step), one)

    def best(self):
        return self.refined(self.climb(self.at(self.setting, 0.0))).step


@pytest.mark.parametrize(
    ("score", "best", "fits"),
    [
        (lambda x: (x - 1.35) ** 2, 1.25, 5),  # of a parabola the lowest point is found, to a quarter of a step
        (lambda x: (x + 0.65) ** 2, -0.75, 5),
        (lambda x: 0.1 * (x - 0.02) ** 2, 0.0, 4),  # a small move is not worth a fit
        (lambda x: abs(x) + 2.0 * max(-x, 0.0), 0.0, 5),  # nor kept where it is no better
        (lambda x: 0.01 * 0.1**x, 3.0, 5),  # what is left to gain beyond 3 is not worth more fits
        (lambda x: 1e-3 * x**2, 0.0, 3),  # nor what is left between the steps
        (lambda x: -x, 4.0, 6),
        (lambda x: x, -3.0, 5),
    ],
)
def test_widths_are_searched_uphill(score, best, fits):
    curve = Curve(score)
    assert curve.best() == pytest.approx(best)
    assert len(curve.found) == fits
