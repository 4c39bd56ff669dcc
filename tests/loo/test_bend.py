"""The curve of a link: what it minimises, its evidence, and where it is taken."""

import itertools

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import expit, logsumexp

from softmargin import BayesianSVC
from softmargin.loo import bend as module
from softmargin.loo.bend import Bend, fit_bend
from softmargin.loo.link import WORTH, Link, bent, fit_link
from softmargin.plots.numbers.outcomes import left_out_decisions


@pytest.fixture(scope="module")
def steps():
    """Labels whose log odds are a step in the argument."""
    rng = np.random.default_rng(0)
    x = 1.5 * rng.normal(size=600)
    return np.where(rng.random(600) < np.where(x > 0.7, 0.95, 0.35), 1.0, -1.0), x, np.ones(600)


def curve(x, knots, middle, shift, logs):
    """The curve by integrating its slope."""

    def slope(t):
        return np.exp(logs)[np.searchsorted(knots, t)]

    grid = [
        np.unique(np.concatenate(([middle, t], knots[(knots > min(t, middle)) & (knots < max(t, middle))]))) for t in x
    ]
    ways = [sum(slope((a + b) / 2) * (b - a) for a, b in itertools.pairwise(g)) for g in grid]
    return middle + shift + np.sign(x - middle) * ways


def log_prior(theta):
    """Height in the middle, mean of the log slopes, and their changes."""
    own = stats.norm(0, 0.5).logpdf(theta[0]) + stats.norm(0, 1.5).logpdf(np.diff(theta[1:])).sum()
    return own - 0.5 * np.mean(theta[1:]) ** 2


def test_the_curve_is_the_minimum(steps):
    """Against a general minimiser, with the curve and the prior written down in another way."""
    y, x, weight = (each[:120] for each in steps)
    fitted = fit_bend(y, x, weight).bend
    knots = module._quantiles(x, weight)
    middle = knots[3]

    def objective(theta):
        return np.logaddexp(0.0, -y * curve(x, knots, middle, theta[0], theta[1:])).sum() - log_prior(theta)

    best = optimize.minimize(objective, np.zeros(9), method="BFGS", options={"gtol": 1e-7}).x
    np.testing.assert_allclose(np.log(fitted.slopes), best[1:], atol=1e-4)
    np.testing.assert_allclose(fitted(x), curve(x, knots, middle, best[0], best[1:]), atol=1e-4)
    assert np.all(np.diff(fitted(np.sort(x))) > 0.0)


def test_evidence_is_the_integral(steps, monkeypatch):
    """With two pieces: three numbers, integrated over a grid of the prior's draws."""
    monkeypatch.setattr(module, "_PIECES", 3)
    y, x, weight = (each[:150] for each in steps)
    found = fit_bend(y, x, weight).evidence
    knots, middle = module._quantiles(x, weight), float(module._quantiles(x, weight)[1])
    rng = np.random.default_rng(1)
    precision = module._prior(3).precision
    draws = rng.multivariate_normal(np.zeros(4), np.linalg.inv(precision), size=200_000)
    parts = module._parts(x, knots, middle)
    logs = np.concatenate([
        -np.logaddexp(0.0, -y * (middle + some[:, :1] + np.exp(some[:, 1:]) @ parts)).sum(axis=1)
        for some in np.array_split(draws, 100)
    ])  # fmt: skip
    exact = logsumexp(logs) - np.log(len(logs)) + np.logaddexp(0.0, -y * x).sum()
    assert found == pytest.approx(exact, abs=0.15)


def test_prior_is_the_one_that_is_written_down():
    theta, other = np.random.default_rng(0).normal(size=(2, 9))
    P = module._prior(8).precision
    wanted = log_prior(other) - log_prior(theta)
    assert 0.5 * (theta @ P @ theta - other @ P @ other) == pytest.approx(wanted)


def test_heights_slopes_and_zero():
    bend = Bend((-1.0, 0.5, 2.0), (-2.0, 1.0, 1.5), (0.5, 2.0, 1.0 / 3.0, 4.0))
    np.testing.assert_allclose(
        bend(np.array([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0])), [-3.0, -2.0, 0.0, 1.0, 1 + 1 / 6, 1.5, 5.5]
    )
    assert bend.zero == pytest.approx(0.0)
    for up in (-9.0, -1.0, 0.0, 3.0):
        moved = bend._replace(heights=tuple(h + up for h in bend.heights))
        assert moved(np.array([moved.zero]))[0] == pytest.approx(0.0, abs=1e-12)


def test_the_same_from_either_side_and_for_repeated_rows(steps):
    y, x, weight = (each[:200] for each in steps)
    bend, gain = fit_bend(y, x, weight)[:2]
    mirrored, same = fit_bend(-y, -x, weight)[:2]
    grid = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(mirrored(-grid), -bend(grid), atol=1e-7)
    assert same == pytest.approx(gain)
    times = np.random.default_rng(0).integers(1, 4, size=200)
    weighted, gain = fit_bend(y, x, times.astype(float))[:2]
    repeated, same = fit_bend(np.repeat(y, times), np.repeat(x, times), np.ones(times.sum()))[:2]
    np.testing.assert_allclose(repeated(grid), weighted(grid), atol=1e-7)
    assert same == pytest.approx(gain)


@pytest.mark.parametrize("n", [60, 300, 2000])
def test_a_straight_line_is_left_alone(n):
    rng = np.random.default_rng(n)
    for spread in (0.3, 1.0, 3.0):
        for _ in range(10):
            x = spread * rng.normal(size=n) - 0.5
            y, nothing, weight = np.where(rng.random(n) < expit(x), 1.0, -1.0), np.zeros(n), np.ones(n)
            assert bent(fit_link(y, x, nothing, weight, 0.0), y, x, nothing, weight, weight)[0].bend is None


def test_no_more_is_missed_than_the_first_step_allows(steps, monkeypatch):
    """Where the quadratic at the line promises less than the limit, the curve would not have been taken."""
    rng, gains = np.random.default_rng(3), []
    for _ in range(60):
        n, x = 150, 2.0 * rng.normal(size=150)
        lift = rng.normal() * np.maximum(x, 0.0)
        y, nothing = np.where(rng.random(n) < expit(x + lift), 1.0, -1.0), np.zeros(n)
        x = fit_link(y, x, nothing, np.ones(n), 0.0).link.argument(x, nothing)
        found = fit_bend(y, x, np.ones(n))
        monkeypatch.setattr(module, "_UNLIKELY", -1e300)
        whole = fit_bend(y, x, np.ones(n))
        monkeypatch.undo()
        if found is None:
            assert whole.evidence < WORTH
        gains.append(whole.evidence)
    assert max(gains) > WORTH > min(gains)


def test_what_a_link_with_a_curve_says(steps):
    y, x, weight = steps
    v = np.full(len(x), 0.3)
    straight = fit_link(y, x, v, weight, 0.0)
    curved, left_out = bent(straight, y, x, v, weight, weight)
    assert curved.bend is not None
    link = curved.link
    p = link.probability(x, v)
    np.testing.assert_array_equal(link.decision(x, v) > 0.0, p > 0.5)
    loss = -np.log(np.where(y > 0, p, 1.0 - p)).mean()
    assert loss < curved.score < straight.score  # each row is scored by the curve without it
    assert curved.score == pytest.approx(-np.log(np.where(y > 0, left_out, 1.0 - left_out)).mean())
    assert curved.error == pytest.approx((y * (left_out - 0.5) <= 0.0).mean())
    assert link.decision(np.array([0.0]), np.zeros(1))[0] == pytest.approx(link.offset)
    fresh = np.random.default_rng(9)
    new = 1.5 * fresh.normal(size=20_000)
    true = np.where(new > 0.7, 0.95, 0.35)

    def cross(p):
        return -(true * np.log(p) + (1 - true) * np.log1p(-p)).mean()

    some = np.full(len(new), 0.3)
    assert cross(link.probability(new, some)) < cross(straight.link.probability(new, some)) - 0.02


def test_rows_that_are_not_known_do_not_count(steps):
    y, x, weight = steps
    nothing = np.zeros(len(x))
    loo = fit_link(y, x, nothing, weight, 0.0)
    some = x.copy()
    some[::3] = np.nan
    known = np.isfinite(some)
    wanted, p = bent(loo, y[known], x[known], nothing[known], weight[known], weight[known])
    found, all_rows = bent(loo, y, some, nothing, weight, weight)
    assert found == wanted
    np.testing.assert_array_equal(all_rows[known], p)
    assert np.isnan(all_rows[~known]).all()
    assert bent(loo, y, np.full(len(y), np.nan), nothing, weight, weight) == (loo, None)


def test_a_doubt_few_values_and_no_rows_leave_the_line(steps):
    y, x, weight = steps
    nothing = np.zeros(len(x))
    doubtful = fit_link(y, x, nothing, weight, 0.0, wrong=0.5)
    assert bent(doubtful, y, x, nothing, weight, weight) == (doubtful, None)
    assert fit_bend(y, nothing, weight) is None
    assert fit_bend(y[:0], x[:0], weight[:0]) is None
    assert fit_bend(y, x, 0.0 * weight) is None


def test_left_out_heights_are_those_of_refits(steps):
    """Of every row that weighs one, and of one of several copies."""
    y, x, _ = (each[:150] for each in steps)
    weight = np.where(np.arange(150) % 10 == 0, 3.0, 1.0)
    curve = fit_bend(y, x, weight)
    found, whole = curve.left_out(y, x, np.minimum(weight, 1.0)), curve.bend(x)
    for i in (0, 7, 30, int(np.argmax(np.abs(found - whole)))):
        less = weight.copy()
        less[i] -= 1.0
        knots = np.array(curve.bend.knots)
        theta = refitted(y, x, less, knots, curve.middle)
        exact = curve_at(x[i : i + 1], knots, curve.middle, theta)[0]
        assert found[i] - whole[i] == pytest.approx(exact - whole[i], rel=0.2)


def curve_at(x, knots, middle, theta):
    return curve(x, knots, middle, theta[0], theta[1:])


def refitted(y, x, weight, knots, middle):
    def objective(theta):
        return weight @ np.logaddexp(0.0, -y * curve_at(x, knots, middle, theta)) - log_prior(theta)

    return optimize.minimize(objective, np.zeros(len(knots) + 2), method="BFGS", options={"gtol": 1e-7}).x


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_many_rows_are_put_together_whatever_their_order(steps, every):
    """Labels in a regular order, as of a file that is sorted by something else."""
    n = 24_000
    rng = np.random.default_rng(8)
    x = 1.5 * rng.normal(size=n)
    y, nothing, weight = np.where(rng.random(n) < np.where(x > 0.7, 0.95, 0.35), 1.0, -1.0), np.zeros(n), np.ones(n)
    turn = np.argsort(np.argsort(-y, kind="stable") % every, kind="stable")
    y, x = y[turn], x[turn]
    loo = fit_link(y, x, nothing, weight, 0.0)
    found, p = bent(loo, y, x, nothing, weight, weight)
    assert found.score == pytest.approx(-np.log(np.where(y > 0, p, 1.0 - p)).mean())
    grid = np.linspace(-3.0, 4.0, 50)
    true = np.where(np.abs(grid - 0.7) > 0.4, np.where(grid > 0.7, 0.95, 0.35), np.nan)
    assert np.nanmax(np.abs(found.link.probability(grid, 0.0 * grid) - true)) < 0.06


def test_classes_that_weigh_more_are_not_more_rows(steps):
    """What all rows weigh does not matter, and a rare row that weighs ten is left out whole."""
    y, x, weight = steps
    nothing = np.zeros(len(x))
    loo = fit_link(y, x, nothing, weight, 0.0)
    wanted, left_out = bent(loo, y, x, nothing, weight, weight)
    found, same = bent(loo, y, x, nothing, 7.0 * weight, weight)
    assert wanted.bend is not None
    np.testing.assert_allclose(found.bend.slopes, wanted.bend.slopes, rtol=1e-9)
    np.testing.assert_allclose(same, left_out, rtol=1e-9)
    heavy = np.where(y > 0.0, 2.0, 0.7)
    loo = fit_link(y, x, nothing, heavy, 0.0)
    found, p = bent(loo, y, x, nothing, heavy, weight)
    effective = heavy * heavy.sum() / (heavy @ heavy)
    assert effective.sum() < len(y)
    curve = fit_bend(y, loo.link.argument(x, nothing), effective)
    assert found.bend == curve.bend
    at = loo.link.argument(x, nothing)
    np.testing.assert_allclose(p, expit(curve.left_out(y, at, effective)))
    i = int(np.argmax(np.where(y > 0.0, np.abs(p - expit(curve.bend(at))), 0.0)))
    less = np.where(np.arange(len(y)) == i, 0.0, effective)
    knots = np.array(curve.bend.knots)
    exact = curve_at(at[i : i + 1], knots, curve.middle, refitted(y, at, less, knots, curve.middle))[0]
    whole = curve.bend(at)[i]
    assert np.log(p[i] / (1.0 - p[i])) - whole == pytest.approx(exact - whole, rel=0.3)


def test_a_row_that_counts_twice_is_two_rows_whatever_its_class_weighs(steps):
    y, x, _ = (each[:400] for each in steps)
    times, heavy = np.random.default_rng(3).integers(1, 4, size=400), np.where(y > 0.0, 2.0, 0.7)
    nothing = np.zeros(400)
    loo = fit_link(y, x, nothing, times * heavy, 0.0)
    found, p = bent(loo, y, x, nothing, times * heavy, times.astype(float))
    Y, Z, W = (np.repeat(each, times) for each in (y, x, heavy))
    wanted, each = bent(loo, Y, Z, 0.0 * Z, W, np.ones(len(Y)))
    assert found.bend is not None
    np.testing.assert_allclose(found.bend.slopes, wanted.bend.slopes, rtol=1e-6)
    np.testing.assert_allclose(np.repeat(p, times), each, rtol=1e-6)
    assert found.score == pytest.approx(wanted.score)


def test_balanced_classes_show_no_curve_where_there_is_none():
    rng = np.random.default_rng(0)
    for _ in range(12):
        X = rng.normal(size=(400, 3))
        y = rng.random(400) < expit(X @ [1.2, -0.8, 0.4] - 3.5)
        assert BayesianSVC(class_weight="balanced").fit(X, y).loo_.bend is None


def test_a_curve_that_predicts_worse_than_the_line_is_not_kept(steps):
    y, x, weight = steps
    nothing = np.zeros(len(x))
    loo = fit_link(y, x, nothing, weight, 0.0)
    better = loo._replace(score=0.1)  # than any curve
    assert bent(better, y, x, nothing, weight, weight) == (better, None)


def test_decisions_and_heights_go_back_and_forth(steps):
    y, x, weight = steps
    v = np.full(len(x), 0.3)
    link = bent(fit_link(y, x, v, weight, 0.0), y, x, v, weight, weight)[0].link
    np.testing.assert_allclose(link.bend.inverse(link.bend(x)), x, atol=1e-9)
    np.testing.assert_allclose(link.decision_at(link.probability(x, v)), link.decision(x, v), atol=1e-9)
    np.testing.assert_allclose(link.decision_at(link.probability(x, 0 * v)), link.decision(x, 0 * v), atol=1e-9)


def test_decisions_and_their_spread_are_in_one_unit(stepped_rows):
    X, y = stepped_rows
    model = BayesianSVC().fit(X[:500], y[:500])
    assert model.loo_.bend is not None
    f, v = model._fitted.moments(X)
    decision, spread = model.decision_function(X, return_std=True)
    shrunk = model.loo_.link.shrink(v)
    np.testing.assert_allclose(spread * shrunk, model._fitted.stretch * np.sqrt(v))
    np.testing.assert_allclose((decision - model.offset_) * shrunk, f)


def test_left_out_margins_have_the_sign_of_their_probabilities():
    rng, bent_ones = np.random.default_rng(1), 0
    for _ in range(6):
        X = rng.normal(size=(200, 2))
        y = (rng.random(200) < np.where(X[:, 0] > 0.6, 0.95, 0.4)).astype(int)
        model = BayesianSVC().fit(X, y)
        found = left_out_decisions("a test", model)
        np.testing.assert_array_equal(found.margin > 0.0, (found.p[:, 1] > 0.5) == (found.y == 1))
        assert np.mean(found.margin <= 0.0) == pytest.approx(model.loo_.error)
        bent_ones += model.loo_.bend is not None
    assert bent_ones >= 3


def test_many_rows_count_as_often_as_they_weigh():
    rng = np.random.default_rng(2)
    n = 12_000
    x = rng.standard_t(3, size=n)
    y = np.where(rng.random(n) < np.where(x > 0.7, 0.95, 0.35), 1.0, -1.0)
    times = rng.integers(1, 4, size=n)
    one = fit_bend(y, x, times.astype(float))
    other = fit_bend(np.repeat(y, times), np.repeat(x, times), np.ones(times.sum()))
    grid = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(one.bend(grid), other.bend(grid), atol=1e-7)
    assert one.evidence == pytest.approx(other.evidence)
    whole = float(np.logaddexp(0.0, -y * one.bend(x)) @ times)
    sign, at, weight = module._pooled(y, x, times.astype(float))
    assert weight.sum() == times.sum()
    assert float(np.logaddexp(0.0, -sign * one.bend(at)) @ weight) == pytest.approx(whole, rel=1e-4)


def test_predictors_that_flatter_show_no_curve():
    """At a high rate every row is most of what its own predictor knows; the log odds are a line."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        X = rng.normal(size=(300, 100))
        y = rng.random(300) < expit(X[:, :5].sum(axis=1))
        model = BayesianSVC(learning_rate=8.0).fit(X, y)
        assert model.loo_.max_kv > 0.6
        assert model.loo_.bend is None


def test_decisions_rank_as_probabilities_do():
    rng = np.random.default_rng(0)
    Z = rng.standard_t(3, size=(2000, 20))
    y = (rng.random(2000) < np.where(Z[:, 0] + Z[:, 1] > -0.5, 0.35, 0.02)).astype(int)
    model = BayesianSVC().fit(Z, y)
    assert model.loo_.bend is not None
    f, p = model.decision_function(Z), model.predict_proba(Z)[:, 1]
    np.testing.assert_array_equal(f > 0.0, p > 0.5)
    assert np.all(np.diff(p[np.argsort(f)]) >= -1e-12)
    assert "curve" in model.summary().header
    assert "curve" not in BayesianSVC(probability="sign", learning_rate=0.25).fit(Z, y).summary().header


@pytest.fixture(scope="module")
def stepped_rows():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6500, 3))
    p = np.where(X[:, 0] + X[:, 1] > 1.0, 0.97, 0.4)
    return X, np.where(rng.random(6500) < p, "b", "a")


@pytest.mark.parametrize("inference", ["vb", "meanfield", "gibbs", "svi"])
def test_fits_take_the_curve(stepped_rows, inference):
    X, y = stepped_rows
    lengths = {"draws": 100, "warmup": 50, "chains": 2} if inference == "gibbs" else {}
    model = BayesianSVC(inference=inference, random_state=0, **lengths).fit(X[:500], y[:500])
    assert model.loo_.bend is not None
    p, f = model.predict_proba(X[500:])[:, 1], model.decision_function(X[500:])
    np.testing.assert_array_equal(f > 0.0, p > 0.5)
    straight = Link(model.loo_.a, model.loo_.b, model.loo_.lam)
    q = straight.probability(*model._fitted.moments(X[500:]))

    def loss(p):
        return -np.log(np.where(y[500:] == "b", p, 1.0 - p)).mean()

    assert loss(p) < loss(q)
    assert model.loo_.score == pytest.approx(loss(p), abs=0.08)


def test_a_mode_and_a_model_without_an_intercept_keep_the_line(stepped_rows):
    X, y = stepped_rows
    assert BayesianSVC(inference="map").fit(X[:500], y[:500]).loo_.bend is None
    assert BayesianSVC(fit_intercept=False).fit(X[:500], y[:500]).loo_.bend is None


def test_batches_learn_the_curve(stepped_rows):
    X, y = stepped_rows
    model = BayesianSVC(inference="svi", random_state=0)
    for k in range(3):
        model.partial_fit(X[300 * k : 300 * (k + 1)], y[300 * k : 300 * (k + 1)], classes=["a", "b"])
    assert model.loo_.bend is not None
