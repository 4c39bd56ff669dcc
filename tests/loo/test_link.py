"""The link: derivatives, its optimum against SciPy, and exact leave-one-out where it is exact."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit

from softmargin.loo import _link_minimum as link_module
from softmargin.loo._link_minimum import _objective
from softmargin.loo.link import Link, cavity, fit_link


@pytest.fixture(scope="module")
def predictors():
    """Labels that follow a logistic in f, with an offset and unequal variances."""
    rng = np.random.default_rng(0)
    f, v = 1.5 * rng.normal(size=400), rng.exponential(size=400)
    y = np.where(rng.random(400) < expit(1.2 * f - 0.8), 1.0, -1.0)
    return y, f, v, rng.integers(1, 4, size=400).astype(float)


def test_link_by_hand():
    link, f, v = Link(2.0, 0.5, 3.0), np.array([1.0, -1.0]), np.array([0.4, 0.0])
    wanted = np.array([2.0 / math.sqrt(1 + 3 * math.pi / 8 * 4 * 0.4) + 0.5, -1.5])
    np.testing.assert_allclose(link.argument(f, v), wanted)
    np.testing.assert_allclose(link.probability(f, v), 1 / (1 + np.exp(-wanted)))


def test_link_is_close_to_the_average_of_a_logistic():
    """With lam = 1 and no offset it is MacKay's approximation of E sigmoid(a f), good to 0.02."""
    for m, s in ((0.5, 1.0), (-2.0, 3.0), (1.0, 0.1)):
        law = stats.norm(m, s)
        exact = integrate.quad(lambda f, law=law: expit(2 * f) * law.pdf(f), m - 9 * s, m + 9 * s)[0]
        assert Link(2.0, 0.0, 1.0).probability(np.array([m]), np.array([s * s]))[0] == pytest.approx(exact, abs=0.02)


def test_a_row_of_which_nothing_is_known_has_the_offset_alone():
    link = Link(2.0, -4.0, 1.0)
    np.testing.assert_allclose(link.probability(np.array([1.0]), np.array([1e12])), expit(-4.0), rtol=1e-4)
    f, v = np.array([-1.0, 1.9, 2.1, 9.0]), np.array([0.0, 0.0, 0.0, 5.0])
    np.testing.assert_array_equal(link.decision(f, v) > 0, link.probability(f, v) > 0.5)


THETAS = [(0.3, 0.0, 0.0), (1.2, -0.7, 0.9), (-1.5, 2.0, -2.0), (2.0, 0.1, 3.0)]


def penalty(log_a, log_lam):
    """Minus the log densities, but for constants: log lam ~ N(0, 1), and log a ~ N(0, 3^2) where it is negative."""
    below = stats.norm(0, 3).logpdf(0) - stats.norm(0, 3).logpdf(log_a) if log_a < 0 else 0.0
    return below + stats.norm.logpdf(0) - stats.norm.logpdf(log_lam)


@pytest.mark.parametrize("theta", THETAS)
def test_objective_by_hand(predictors, theta):
    y, f, v, weight = predictors
    probability = Link(math.exp(theta[0]), theta[1], math.exp(theta[2])).probability(f, v)
    wanted = -weight @ np.log(np.where(y > 0, probability, 1 - probability)) + penalty(theta[0], theta[2])
    assert _objective(np.array(theta), (y > 0) * 1.0, f, v, weight)[0] == pytest.approx(wanted, rel=1e-10)
    target = np.where(y > 0, 0.9, 0.2)  # a part of each row counts for either label
    wanted = -weight @ (target * np.log(probability) + (1 - target) * np.log1p(-probability))
    wanted += penalty(theta[0], theta[2])
    assert _objective(np.array(theta), target, f, v, weight)[0] == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("targets", [(0.0, 1.0), (0.2, 0.9)])
@pytest.mark.parametrize("theta", THETAS)
def test_gradient_and_hessian(predictors, theta, targets):
    y, *rest = predictors
    target = np.where(y > 0, targets[1], targets[0])
    x, h = np.array(theta), 1e-5
    _, gradient, hessian = map(np.array, _objective(x, target, *rest))
    for j, step in enumerate(h * np.eye(3)):
        up, down = (tuple(map(np.array, _objective(at, target, *rest))) for at in (x + step, x - step))
        assert gradient[j] == pytest.approx((up[0] - down[0]) / (2 * h), rel=1e-6, abs=1e-5)
        np.testing.assert_allclose(hessian[j], (up[1] - down[1]) / (2 * h), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(hessian, hessian.T)


def best(y, f, v, weight, offset=True, targets=(0.0, 1.0)):
    """The minimum by SciPy from several starts, over the same box."""
    target = np.where(y > 0, targets[1], targets[0])
    bounds = [(-6, 6), (-20, 20) if offset else (0, 0), (-5, 5)]
    runs = [
        optimize.minimize(
            lambda x: _objective(x, target, f, v, weight)[:2], start, jac=True, bounds=bounds, options={"ftol": 1e-15}
        )
        for start in ((0.3, 0, 0), (3, 0, 2), (-3, 0, -2))
    ]
    return min(runs, key=lambda run: run.fun)


def test_optimum(predictors):
    y, f, v, weight = predictors
    found = best(y, f, v, weight)
    loo = fit_link(y, f, v, weight, 0.3)
    np.testing.assert_allclose([math.log(loo.a), loo.b, math.log(loo.lam)], found.x, atol=1e-4)
    assert loo.objective * weight.sum() == pytest.approx(found.fun, rel=1e-10)
    assert loo.b < -0.3  # the offset of the simulation is negative
    assert loo.max_kv == 0.3


def test_score_and_error(predictors):
    y, f, v, weight = predictors
    loo = fit_link(y, f, v, weight, 0.0)
    probability = loo.link.probability(f, v)
    own = np.where(y > 0, probability, 1 - probability)
    assert loo.score == pytest.approx(-np.average(np.log(own), weights=weight), rel=1e-12)
    assert loo.error == pytest.approx(np.average(own <= 0.5, weights=weight), rel=1e-12)
    both = penalty(math.log(loo.a), math.log(loo.lam))
    assert loo.objective == pytest.approx(loo.score + both / weight.sum(), rel=1e-12)


def test_one_row_far_off_does_not_turn_a_signal_into_the_class_shares():
    """Maximum likelihood makes the slope less than half as large; where rows weigh much the penalty changes nothing."""
    rng = np.random.default_rng(2)
    f = rng.standard_normal(40)
    y = np.where(rng.random(40) < expit(f), 1.0, -1.0)
    f, y, v = np.append(f, -15.0), np.append(y, 1.0), np.full(41, 0.1)

    def free(weight):
        def minus_log_likelihood(theta):
            eta = Link(math.exp(theta[0]), theta[1], math.exp(theta[2])).argument(f, v)
            return weight * np.logaddexp(0.0, -y * eta).sum() + 0.5 * theta[2] ** 2

        return math.exp(optimize.minimize(minus_log_likelihood, (0.0, 0.0, 0.0), method="Nelder-Mead").x[0])

    few, many = (fit_link(y, f, v, np.full(41, weight), 0.0, worth=0.0).a for weight in (1.0, 1000.0))
    assert few > 2.0 * free(1.0)
    assert many == pytest.approx(free(1000.0), rel=0.02)


def test_offset_is_kept_only_where_it_pays(predictors):
    y, f, v, weight = predictors
    refused = fit_link(y, f, v, weight, 0.0, offset=False)
    assert refused.b == 0.0
    assert refused.objective * weight.sum() == pytest.approx(best(y, f, v, weight, offset=False).fun, rel=1e-8)
    rng = np.random.default_rng(5)
    y = np.where(rng.random(400) < expit(1.2 * f), 1.0, -1.0)  # no offset in the truth
    without, full = (best(y, f, v, np.ones(400), offset=offset) for offset in (False, True))
    assert 1e-3 < without.fun - full.fun < 2.0
    assert full.x[1] != 0.0
    assert fit_link(y, f, v, np.ones(400), 0.0).b == 0.0


def test_weights_are_repeated_rows(predictors):
    y, f, v, weight = predictors
    count = weight.astype(int)
    a = fit_link(y, f, v, weight, 0.0)
    b = fit_link(np.repeat(y, count), np.repeat(f, count), np.repeat(v, count), np.ones(count.sum()), 0.0)
    np.testing.assert_allclose(a[:-2], b[:-2], rtol=1e-7)
    assert a[-2:] == b[-2:]


def test_labels_may_be_exchanged(predictors):
    y, f, v, weight = predictors
    a, b = fit_link(y, f, v, weight, 0.0), fit_link(-y, -f, v, weight, 0.0)
    assert (a.a, a.b, a.lam) == (pytest.approx(b.a, rel=1e-6), pytest.approx(-b.b, rel=1e-6), pytest.approx(b.lam))


def test_separable_predictors_stay_in_the_box():
    f = np.concatenate((np.linspace(-3, -0.1, 50), np.linspace(0.1, 3, 50)))
    loo = fit_link(np.sign(f), f, np.full(100, 0.2), np.ones(100), 0.0)
    assert loo.error == 0.0
    assert loo.a == pytest.approx(math.exp(6.0))
    found = best(np.sign(f), f, np.full(100, 0.2), np.ones(100), offset=False)
    assert loo.objective * 100 == pytest.approx(found.fun, rel=1e-6)


def test_a_doubt_bounds_what_any_row_can_be_sure_of(predictors):
    """Jeffreys' rule: half a wrong label among the N and half a right one more. The slope does not see it."""
    y, f, v, weight = predictors
    usual, doubtful = (fit_link(y, f, v, weight, 0.0, wrong=wrong) for wrong in (0.0, 0.5))
    assert doubtful.doubt == pytest.approx(0.5 / (weight.sum() + 1.0))
    assert usual.doubt == 0.0
    assert doubtful[3:7] == usual[3:7]
    d, p = doubtful.doubt, usual.link.probability(f, v)
    np.testing.assert_allclose(doubtful.link.probability(f, v), d * (1.0 - p) + (1.0 - d) * p)  # labels are exchanged
    own = np.where(y > 0, d * (1.0 - p) + (1.0 - d) * p, (1.0 - d) * (1.0 - p) + d * p)
    assert doubtful.score == pytest.approx(-(weight @ np.log(own)) / weight.sum())
    far = doubtful.link.probability(np.array([-1e6, 1e6]), np.zeros(2))
    np.testing.assert_allclose(far, [d, 1.0 - d])
    np.testing.assert_array_equal(doubtful.link.decision(f, v), usual.link.decision(f, v))


def test_smooth_targets_bound_the_confidence_without_variance():
    """Platt's targets (N + 1)/(N + 2) and 1/(N + 2), N the rows of the class: on separable rows those are the limit."""
    f = np.concatenate((np.full(30, -2.0), np.full(10, 2.0)))
    y, weight, v = np.sign(f), np.where(f > 0, 2.0, 1.0), np.zeros(40)
    targets = (1 / 32, 21 / 22)
    loo = fit_link(y, f, v, weight, 0.0, smooth=True)
    found = best(y, f, v, weight, targets=targets, offset=loo.b != 0.0)
    assert loo.objective * weight.sum() == pytest.approx(found.fun, rel=1e-8)
    assert loo.link.probability(np.array([2.0]), np.zeros(1))[0] < 0.97
    assert fit_link(y, f, v, weight, 0.0).link.probability(np.array([2.0]), np.zeros(1))[0] > 0.9999


def regression(repeat=None):
    """Posterior moments of the predictors and row messages of a linear regression with known noise."""
    rng = np.random.default_rng(1)
    X, y, noise = rng.normal(size=(15, 4)), rng.normal(size=15), 0.6
    w, b = np.full(15, 1 / noise**2), y / noise**2
    if repeat is not None:
        w, b = w * repeat, b * repeat

    def moments(w, b):
        covariance = np.linalg.inv((X.T * w) @ X + 0.5 * np.eye(4))
        return X @ covariance @ X.T @ b, np.einsum("ij,jk,ik->i", X, covariance, X)

    return moments, w, b


def test_cavity_is_exact_leave_one_out_in_a_gaussian_model():
    moments, w, b = regression()
    f, v = moments(w, b)
    f_out, v_out, largest = cavity(f, v, w, b, np.ones(15))
    for i in range(15):
        without = np.arange(15) != i
        f_i, v_i = moments(w * without, b * without)
        assert f_out[i] == pytest.approx(f_i[i], rel=1e-9)
        assert v_out[i] == pytest.approx(v_i[i], rel=1e-9)
    assert largest == pytest.approx((w * v).max())
    assert 0.2 < largest < 0.95


def test_cavity_takes_one_observation_out_of_a_repeated_row():
    count = np.arange(15) % 3 + 1.0
    moments, w, b = regression(count)
    f, v = moments(w, b)
    f_out, v_out, largest = cavity(f, v, w, b, 1 / count)
    for i in range(15):
        left = np.where(np.arange(15) == i, 1 - 1 / count, 1.0)
        f_i, v_i = moments(w * left, b * left)
        assert f_out[i] == pytest.approx(f_i[i], rel=1e-9)
        assert v_out[i] == pytest.approx(v_i[i], rel=1e-9)
    assert largest == pytest.approx((w * v / count).max())


def test_cavity_stays_finite_where_a_row_holds_its_predictor_alone():
    one = np.ones(1)
    f_out, v_out, largest = cavity(0.5 * one, one, one, 0.7 * one, one)
    assert largest == 1.0
    assert v_out[0] == pytest.approx(1000.0)
    assert f_out[0] == pytest.approx(0.5 - (0.7 - 0.5) * 1000.0)


def test_an_offset_may_be_free(predictors):
    _, f, v, _ = predictors
    y = np.where(np.random.default_rng(5).random(400) < expit(1.2 * f), 1.0, -1.0)
    found = best(y, f, v, np.ones(400))
    free = fit_link(y, f, v, np.ones(400), 0.0, worth=0.0)
    assert free.objective * 400 == pytest.approx(found.fun, rel=1e-10)
    assert free.b == pytest.approx(found.x[1], abs=1e-4) != 0.0


@pytest.mark.parametrize("offset", [False, True])
def test_some_rows_find_the_way_for_all(offset, monkeypatch):
    """The start from a subsample does not move the minimum, which is stationary in the sum over all rows."""
    rng = np.random.default_rng(3)
    f, v, weight = 1.5 * rng.standard_normal(6000), 0.3 * rng.gamma(2.0, size=6000), rng.uniform(0.5, 2.0, 6000)
    y = np.where(0.4 + f + rng.logistic(size=6000) > 0.0, 1.0, -1.0)
    plain = fit_link(y, f, v, weight, 0.1, offset=offset)
    monkeypatch.setattr(link_module, "_ENOUGH", 500)
    found = fit_link(y, f, v, weight, 0.1, offset=offset)
    np.testing.assert_allclose((found.a, found.b, found.lam), (plain.a, plain.b, plain.lam), rtol=1e-6, atol=1e-8)
    theta = np.array([np.log(found.a), found.b, np.log(found.lam)])
    gradient = np.array(_objective(theta, (y > 0).astype(float), f, v, weight)[1])
    assert np.abs(gradient[[0, 2]]).max() < 1e-4


@pytest.mark.parametrize("free", [[0, 1, 2], [0, 2], [1]])
def test_the_step_is_newtons_where_the_objective_is_convex_and_descends_elsewhere(free):
    rng = np.random.default_rng(len(free))
    for shift in (4.0, 0.0):
        root, gradient = rng.standard_normal((3, 3)), rng.standard_normal(3)
        hessian = root + root.T + shift * np.eye(3) + (root @ root.T if shift else 0.0)
        step = np.array(link_module._direction(gradient.tolist(), hessian.tolist(), free))
        block = np.ix_(free, free)
        if np.linalg.eigvalsh(hessian[block]).min() > 0.0:
            np.testing.assert_allclose(step[free], -np.linalg.solve(hessian[block], gradient[free]), rtol=1e-10)
        assert step @ gradient < 0.0
        assert not np.delete(step, free).any()
