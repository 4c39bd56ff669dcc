"""Missing entries in models of many classes with scores that sum to zero."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from softmargin import BayesianSVC
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.core.unknown import Seen
from softmargin.core.visits import Face, Moments, messages
from softmargin.designs.classes import ClassDesign, CompletedClasses, Pairs
from softmargin.designs.dense import Dense
from softmargin.engines.alternate import Alternate
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.inference.choices import Candidate
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns
from softmargin.models.classes.sum_to_zero import OWN, fit_sum_to_zero
from softmargin.models.random_effects.effect import RandomEffect
from softmargin.models.random_effects.terms import Labelled
from softmargin.models.two_class import Recipe, fit_two_classes
from softmargin.priors import Ridge, SpikeSlab
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Address, Streams
from softmargin.solvers.sum_to_zero import SumToZero
from softmargin.unknowns.class_missing import ClassMissing

ROOT = math.sqrt(2.0)


def data(n=60, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.3], [0.0, 0.0, 1.0]])
    y = (X @ (1.5 * rng.standard_normal((3, k))) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return np.where(rng.random(X.shape) < 0.2, np.nan, X), y


def joint(**settings):
    lengths = {"draws": 60, "warmup": 30, "chains": 2} if settings.get("inference") in ("gibbs", "hmc") else {}
    return BayesianSVC(multi_class="sum-to-zero", random_state=0, **(lengths | settings))


@pytest.mark.parametrize("groups", [False, True], ids=["rows", "groups"])
@pytest.mark.parametrize("inference", ["vb", "meanfield", "map"])
@pytest.mark.parametrize("given", [True, False], ids=["rate-given", "rate-chosen"])
def test_two_classes_are_the_binary_model_with_missing_entries(inference, groups, given):
    """Predictors, imputed entries and left-out rows, with scales that are larger by the root of two.

    Where the rate is chosen, the pair of a row with its own class says what the other one does and adds to it.
    """
    X, y = data(k=2)
    ones, number = np.ones(len(y)), np.arange(60) % 5
    rows = Labelled(X, {"groups": number}, (0, 1, 2)) if groups else X
    columns = kept_columns(X, ones, intercept=True, standardized=True)
    run = {"tol": 1e-12, "max_iter": 2000}

    def recipe(root):
        effects = (RandomEffect("groups", scale=0.5 * root),) if groups else ()
        prior = Ridge(0.7 * root, None, 1e4 * root)
        rate = 0.5 if given or root == 1.0 else 0.5 / (1.0 + OWN)
        own = {"learning_rate": rate} if given else {"learning_rate": "auto", "candidate": Candidate(False, rate)}
        return Recipe(prior, Hinge(), inference, incomplete=True, effects=effects, run=run, **own)

    two = fit_two_classes(recipe(1.0), rows, 2.0 * y - 1.0, ones, ones, columns, streams=Streams((0, 0)))
    one = fit_sum_to_zero(recipe(ROOT), rows, y, ones, ones, columns, None, 2, streams=Streams((0, 0)))
    tol = 1e-5 if inference != "map" else 1e-3  # the mode is approached by EM, which creeps
    f, v = two.moments(rows)
    scores, V = one.moments(rows)
    np.testing.assert_allclose(scores[:, 1], f, atol=tol)
    np.testing.assert_allclose(V[:, 1, 1], v, atol=tol)
    np.testing.assert_allclose(V[:, 0, 1], -v, atol=tol)
    for mine, other in zip(one.reader.entries, two.reader.entries, strict=True):
        np.testing.assert_allclose(mine, other, atol=tol)
    np.testing.assert_allclose(one.fit.held.f[:, 1], two.fit.held.f, atol=10.0 * tol)
    if inference != "map":
        np.testing.assert_allclose(one.fit.held.V[:, 1, 1], two.fit.held.v, atol=10.0 * tol)
        assert one.fit.loo.max_kv == pytest.approx(two.fit.loo.max_kv, abs=10.0 * tol)


def model_of(X, y, k, *, prior=None, seed=0, own=0.0):
    pairs = Pairs.of(y, np.full(len(y), 0.5), None, k, own)
    design = pairs.design(Dense.plain(X, intercept=True))
    blocks = Blocks(design, pairs.in_order(pairs.sign), pairs.in_order(pairs.weight))
    bound = (Ridge(1.0) if prior is None else prior).bind(design.free, None, classes=k)
    parts = (blocks, Hinge(), bound, design.free, Streams.from_random_state(seed), SumToZero.of(design))
    return Model(*parts, unknowns=(ClassMissing(),))


def test_bound_of_the_mean_field_never_falls():
    X, y = data(k=4)
    trace = run(Alternate(MeanField(accelerate=False)), model_of(X, y, 4), max_iter=60, tol=1e-12).trace
    assert np.diff(trace[1:]).min() >= -1e-8 * abs(trace[-1])
    assert len(trace) > 5


def test_products_are_averages_over_the_rows():
    """Gram, variances, excess variances and their slopes against draws of the rows, class by class."""
    X, y = data(n=12)
    model = model_of(X, y, 3)
    unknown = model.unknowns[0]
    state = run(Alternate(MeanField()), model, max_iter=5).state
    design = unknown.apply(model, state.unknowns[0]).blocks.design
    assert isinstance(design, CompletedClasses)
    base, rng = design.base, np.random.default_rng(0)
    S = np.zeros((12, 4, 4))
    for row, (cells, F) in zip(base.patterns.row, base.each(), strict=True):
        S[np.ix_([row], 1 + cells, 1 + cells)] = F.T @ F
    beta, w = rng.standard_normal(12), rng.random(len(design.index))
    blocks, pair = beta.reshape(3, 4), design.pair_class
    expected = [4.0 * blocks[r] @ S[i] @ blocks[r] for i, r in zip(design.index, pair, strict=True)]
    np.testing.assert_allclose(design.excess(beta), expected, atol=1e-12)
    A = np.zeros((3, 4, 4))
    for weight, i, r in zip(w, design.index, pair, strict=True):
        A[r] += 4.0 * weight * S[i]
    np.testing.assert_allclose(design.excess_slope(w, beta), (A @ blocks[:, :, None]).ravel(), atol=1e-12)
    plain = ClassDesign(base.dense, design.index, design.start, design.grow)
    np.testing.assert_allclose(design.gram(w, w)[0], plain.gram(w, w)[0] + A, atol=1e-10)
    moments = rng.standard_normal((3, 4, 5))
    wanted = np.einsum("rat,iab,sbt->irs", moments, S, moments)
    np.testing.assert_allclose(base.covariances(moments), wanted, atol=1e-12)


@pytest.mark.parametrize("own", [0.0, 1.5])
def test_drawn_entries_have_the_density_of_their_row(own):
    """One missing entry, coefficients and covariates given: the draws against quadrature."""
    X, y = data(n=40)
    X = np.where(np.isnan(X), 0.0, X)
    X[3, 1] = np.nan
    model = model_of(X, y, 3, own=own)
    unknown = model.unknowns[0]
    state = unknown.drawn(unknown.start(model))
    beta = 1.5 * np.random.default_rng(1).standard_normal((3, 4))
    beta -= beta.mean(axis=0)
    chain = gibbs(chains=1).init(unknown.apply(model, state))[0]._replace(beta=beta.ravel())
    drawn = []
    for iteration in range(6000):
        now = unknown.apply(model, state)
        chain = chain._replace(rows=now.predicted(chain.beta)[0])
        entries = unknown._entries(Address(model.streams, 0, iteration), model, state, chain)
        state = state._replace(X=entries)
        drawn.append(entries[3, 1])
    x = np.linspace(-8.0, 8.0, 4001)
    rows = np.repeat(np.concatenate(([1.0], np.where(np.isnan(X[3]), 0.0, X[3])))[None], len(x), axis=0)
    rows[:, 2] = x
    off = rows[:, 1:] - state.law.mean
    log_density = -0.5 * np.einsum("ia,ab,ib->i", off, state.law.precision, off)
    scores = rows @ beta.T
    for r in set(range(3)) - {int(y[3])}:
        log_density -= 2.0 * 0.5 * np.maximum(scores[:, r] + 0.5, 0.0)
    log_density -= 2.0 * 0.5 * own * np.maximum(1.0 - scores[:, y[3]], 0.0)
    weight = np.exp(log_density - logsumexp(log_density))
    sample = np.array(drawn[500:])
    for power in (1, 2):
        batches = np.array([part.mean() for part in np.array_split(sample**power, 40)])
        error = batches.std(ddof=1) / math.sqrt(40)
        assert abs(batches.mean() - weight @ x**power) < 4.0 * error
    # the density of the approximation is the best normal one: its mean is near that of the exact density
    now = unknown.apply(model, unknown.start(model))
    f, v = now.blocks.matvec(beta.ravel()), now.blocks.excess(beta.ravel()) + 1e-12
    rows, _ = now.blocks.keep(messages, Face(model.loss, "gaussian"), now.blocks.place(Moments(f, v)))
    seen = Seen(beta.ravel(), np.zeros((12, 1)), rows, "gaussian", False)
    found = unknown._refreshed(model, unknown.start(model), seen).cells()
    sd = math.sqrt(weight @ x**2 - (weight @ x) ** 2)
    assert abs(found.mean[0] - weight @ x) < 0.05 * sd and found.sd[0] == pytest.approx(sd, rel=0.08)


@pytest.mark.parametrize("inference", ["map", "vb", "meanfield", "gibbs", "hmc"])
def test_estimator_takes_missing_entries_beside_groups(inference):
    X, y = data(n=90)
    number = np.arange(90) % 6
    model = joint(inference=inference, learning_rate=0.5).fit(X, y, groups=number)
    p = model.predict_proba(X, groups=number)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.score(X, y, groups=number) > 0.6
    assert len(model.imputed_) == np.isnan(X).sum()
    assert np.isfinite(model.loo_.score)


def test_approximation_is_near_the_draws():
    X, y = data(n=60, seed=2)
    given = {"prior": Ridge(1.0), "learning_rate": 0.5}
    one = joint(**given).fit(X, y)
    two = joint(inference="gibbs", **given).set_params(draws=500, warmup=100).fit(X, y)
    sd = two.summary()["sd"].to_numpy()
    gap = one.summary()["mean"].to_numpy() - two.summary()["mean"].to_numpy()
    assert np.abs(gap / sd).max() < 0.5
    hmc = joint(inference="hmc", **given).set_params(draws=500, warmup=50).fit(X, y)
    ess = np.minimum(two.summary()["ess"], hmc.summary()["ess"]).to_numpy()
    gap = (hmc.summary()["mean"] - two.summary()["mean"]).to_numpy()
    assert np.abs(gap / (sd * np.sqrt(2.0 / ess))).max() < 4.0
    drawn = two.sample(X[:5], n=3000)
    f, V = two._fitted.moments(X[:5])
    np.testing.assert_allclose(drawn.mean(axis=1), f, atol=0.15)
    np.testing.assert_allclose(drawn.std(axis=1), np.sqrt(np.einsum("irr->ir", V)), rtol=0.1)


def test_selection_beside_missing_entries():
    X, y = data(n=90)
    noise = np.random.default_rng(5).standard_normal((90, 2))
    model = joint(prior=SpikeSlab(0.5), inference="gibbs", learning_rate=0.5).fit(np.column_stack((X, noise)), y)
    assert model.inclusion_.shape == (5,) and np.isfinite(model.loo_.score)
