"""Random effects and smooth terms of many classes with scores that sum to zero."""

import math

import numpy as np
import pandas as pd
import pytest
from class_problems import class_objective, convex_classes

from softmargin import BayesianSVC, RandomEffect, Smooth
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns
from softmargin.models.classes.sum_to_zero import fit_sum_to_zero
from softmargin.models.random_effects.terms import Labelled
from softmargin.models.two_class import Recipe, fit_two_classes
from softmargin.priors import HalfT, Ridge, SpikeSlab
from softmargin.rows.streams import Streams

ROOT = math.sqrt(2.0)


def data(n=90, groups=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    group = np.repeat(np.arange(groups), n // groups)
    scores = X @ rng.standard_normal((2, k)) + rng.standard_normal((groups, k))[group] + 0.5 * rng.gumbel(size=(n, k))
    return X, scores.argmax(axis=1), group


def joint(*choices, **settings):
    lengths = {"draws": 60, "warmup": 30, "chains": 2} if settings.get("inference") in ("gibbs", "hmc") else {}
    return BayesianSVC(*choices, multi_class="sum-to-zero", random_state=0, **(lengths | settings))


def two_models(effect, wide, inference, prior=None):
    """The binary fit, and the same as a model of two classes with scales that are larger by the root of two."""
    X, y, group = data(k=2)
    ones = np.ones(len(y))
    rows = Labelled(X, {"groups": group}, (0, 1))
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    run = {"tol": 1e-12, "max_iter": 2000}
    recipe = Recipe(Ridge(0.7), Hinge(), inference, 0.5, effects=(effect,), run=run)
    two = fit_two_classes(recipe, rows, 2.0 * y - 1.0, ones, ones, columns, streams=Streams((0, 0)))
    recipe = Recipe(Ridge(0.7 * ROOT, None, 1e4 * ROOT), Hinge(), inference, 0.5, effects=(wide,), run=run)
    one = fit_sum_to_zero(recipe, rows, y, ones, ones, columns, None, 2, streams=Streams((0, 0)))
    new = Labelled(X[:8], {"groups": np.array([0, 1, 2, 3, 90, 90, 91, 5])}, (0, 1))
    return two, one, new


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield"])
@pytest.mark.parametrize(
    ("effect", "wide"),
    [
        (RandomEffect("groups", scale=0.6), RandomEffect("groups", scale=0.6 * ROOT)),
        (RandomEffect("groups", hyperprior=HalfT(1.0)), RandomEffect("groups", hyperprior=HalfT(ROOT))),
        (Smooth(0, scale=0.5), Smooth(0, scale=0.5 * ROOT)),
    ],
    ids=["fixed", "learned", "smooth"],
)
def test_two_classes_are_the_binary_model_with_groups(inference, effect, wide):
    two, one, new = two_models(effect, wide, inference)
    f, v = two.moments(new)
    scores, V = one.moments(new)
    tol = 1e-4 if inference == "map" and effect.scale == "learn" else 1e-6
    np.testing.assert_allclose(scores[:, 1], f, atol=tol)
    np.testing.assert_allclose(scores[:, 0], -f, atol=tol)
    np.testing.assert_allclose(V[:, 1, 1], v, atol=tol)
    np.testing.assert_allclose(V[:, 0, 1], -v, atol=tol)
    sd = two.reader.variance_components(np.nan)["sd"]
    np.testing.assert_allclose(one.reader.variance_components(np.nan)["sd"], ROOT * sd, rtol=1e-4)


def test_mode_with_groups_has_the_objective_of_a_convex_solver():
    """Effects with twice the sd of slopes are slopes of indicators that are twice as large."""
    X, y, group = data()
    effect = RandomEffect("groups", scale=1.6)
    model = joint(Ridge(0.8), "map", learning_rate=1.0, standardize=False, random_effects=[effect])
    model.fit(X, y, groups=group)
    u = model.random_effects_["groups"]["mean"].unstack("class").to_numpy()
    beta = np.column_stack((model.intercept_, model.coef_, u.T / 2.0))
    plain = np.column_stack((X, 2.0 * (group[:, None] == np.arange(6))))
    best = convex_classes(plain, y, ridge=0.8**-2)

    def penalty(b):
        return 0.5 * (b**2).sum() / 0.8**2

    assert class_objective(plain, y, beta, penalty) == pytest.approx(class_objective(plain, y, best, penalty), rel=1e-7)


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "gibbs"])
def test_score_is_the_sum_of_its_parts(inference):
    X, y, group = data()
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(school=[f"s{g}" for g in group])
    effect = RandomEffect("school", slopes=["a"], covariance="diagonal")
    names = np.array(["x", "y", "z"])
    model = joint(inference=inference, random_effects=[effect], learning_rate=0.5).fit(frame, names[y])
    table = model.random_effects_["school"]["mean"]
    assert table.index.names == ["school", "effect", "class"]
    effects = table.unstack("class")[list(names)]
    np.testing.assert_allclose(effects.sum(axis=1), 0.0, atol=1e-8)
    level, slope = (effects.xs(name, level="effect").loc[frame["school"]] for name in ("Intercept", "a"))
    f = X @ model.coef_.T + model.intercept_ + level.to_numpy() + slope.to_numpy() * X[:, :1]
    np.testing.assert_allclose(model._fitted.moments(model._checked(frame))[0], f, atol=1e-8)
    assert {"Intercept", "a"} <= set(model.variance_components_.loc["school"].index)
    assert (model.predict(frame) == names[model.predict_proba(frame).argmax(axis=1)]).all()


def test_a_new_group_adds_what_groups_vary_by_and_keeps_the_sum_of_scores():
    X, y, group = data()
    model = joint(random_effects=[RandomEffect("groups", scale=0.9)], learning_rate=0.5).fit(X, y, groups=group)
    fitted, centred = model._fitted, np.eye(3) - 1.0 / 3.0
    f, V = fitted.moments(model._checked(X[:4], np.full(4, 77)))
    own, W = fitted.posterior.moments(fitted.reader.design(model._checked(X[:4], np.full(4, 77))).base)
    np.testing.assert_allclose(f, own, atol=1e-12)
    np.testing.assert_allclose(V, W + 0.9**2 * centred, atol=1e-12)
    drawn = model.sample(X[:2], n=4000, groups=[77, 77])
    np.testing.assert_allclose(drawn.sum(axis=2), 0.0, atol=1e-10)
    gap = (drawn[0] - drawn[1]).var(axis=0)  # the rows share the draw of their group's effects
    near = model.sample(X[:2], n=4000, groups=[0, 0])
    np.testing.assert_allclose(gap, (near[0] - near[1]).var(axis=0), rtol=0.15)
    np.testing.assert_allclose(np.cov(drawn[0].T), fitted.stretch**2 * W[0] + 0.9**2 * centred, atol=0.08)


def test_selection_beside_groups_is_that_of_two_classes():
    """Inclusion probabilities of the binary model with groups, where two classes are one contrast."""
    X, y, group = data(n=42, k=2, seed=3)
    X = np.column_stack((X, np.random.default_rng(1).standard_normal((42, 2))))
    ones, rows = np.ones(42), Labelled(X, {"groups": group}, (0, 1, 2, 3))
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    run = {"draws": 400, "warmup": 100, "chains": 2}
    found = []
    for root, many in ((1.0, False), (ROOT, True)):
        prior = SpikeSlab(0.4, scale="learn", hyperprior=HalfT(root), intercept_scale=10.0 * root)
        effect = RandomEffect("groups", hyperprior=HalfT(root))
        recipe = Recipe(prior, Hinge(), "gibbs", 0.5, effects=(effect,), run=run)
        if many:
            model = fit_sum_to_zero(recipe, rows, y, ones, ones, columns, None, 2, streams=Streams((0, 0)))
        else:
            model = fit_two_classes(recipe, rows, 2.0 * y - 1.0, ones, ones, columns, streams=Streams((0, 0)))
        draws = np.concatenate([np.log(model.joint.recorded["groups"] / root), np.log(model.joint.scale / root)])
        found.append((model.inclusion(), draws.reshape(2, 40, -1).mean(axis=2)))  # 20 batches of each chain
    (one, batches), (two, others) = found
    error = np.hypot(one.error, two.error)
    assert (np.abs(one.chains.mean(axis=0) - two.chains.mean(axis=0)) < 4.0 * error + 0.01).all()
    error = np.hypot(batches.std(axis=1, ddof=1), others.std(axis=1, ddof=1)) / np.sqrt(40.0)
    assert (np.abs(batches.mean(axis=1) - others.mean(axis=1)) < 4.0 * error).all()
    assert (error < 0.1).all()


def test_correlated_effects_are_refused_with_what_to_do():
    X, y, group = data()
    effect = RandomEffect("groups", slopes=[0])
    with pytest.raises(ValueError, match="covariance='diagonal'"):
        joint(random_effects=[effect]).fit(X, y, groups=group)
