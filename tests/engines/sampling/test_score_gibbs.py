"""Class-wise sampling against quadrature over the contrasts."""

from dataclasses import dataclass

import numpy as np
import pytest
from class_problems import simulated_classes

from softmargin.designs import Dense
from softmargin.designs.classes import helmert
from softmargin.engines.sampling.crammer_singer import ScoreModel, score_gibbs
from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.priors import HalfT, Ridge
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

SWEEPS, WARMUP, BATCHES = 4000, 200, 40


def build_scores(X, label, k, *, prior, c=1.0, intercept=False, seed=0):
    base = Dense.plain(np.ascontiguousarray(X), intercept=intercept)
    free = np.tile(np.arange(base.shape[1]) < int(intercept), k)
    blocks = Blocks(base, label, np.full(len(label), c))
    bound = prior.bind(free, classes=k)
    streams = Streams.from_random_state(seed)
    return ScoreModel(blocks, CrammerSinger(), bound, free, streams, Full(), label=label, k=k)


def chain_of(engine, model, sweeps=SWEEPS):
    """Contrast coefficients and scales of one chain."""
    (state,) = engine.init(model)
    A, theta, scale = helmert(model.k), [], []
    for iteration in range(1, WARMUP + sweeps + 1):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > WARMUP:
            theta.append((A @ state.beta.reshape(model.k, -1)).ravel())
            scale.append(state.prior.values["scale"])
    np.testing.assert_allclose(state.beta.reshape(model.k, -1).sum(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(state.f, _scores(model, state.beta), atol=1e-9)
    return np.array(theta), np.array(scale)


def _scores(model, beta):
    base = model.blocks.design
    return base.rows(np.arange(base.shape[0])) @ beta.reshape(model.k, -1).T


def distance(values, exact):
    """Mean less the exact one, in standard errors from batches."""
    means = np.array([part.mean() for part in np.array_split(values, BATCHES)])
    return (values.mean() - exact) / (means.std(ddof=1) / np.sqrt(BATCHES))


def log_likelihood(model, theta):
    """Log pseudo-likelihood at contrast coefficients (points, k - 1), all points at once."""
    beta = np.einsum("sr,asj->arj", helmert(model.k), theta.reshape(len(theta), model.k - 1, -1))
    base = model.blocks.design
    f = np.einsum("ij,arj->air", base.rows(np.arange(base.shape[0])), beta)
    label, c = np.tile(model.label, len(theta)), np.tile(model.c, len(theta))
    return model.loss.loglik(label, c, f.reshape(-1, model.k)).reshape(len(theta), -1).sum(axis=1)


def square_grid(reach, points):
    axis = np.linspace(-reach, reach, points)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def normalised(log_density):
    weight = np.exp(log_density - log_density.max())
    return weight / weight.sum()


def grid(model, sd, reach):
    """Points of the two contrast coefficients and their posterior weights under N(0, sd^2)."""
    theta = square_grid(reach, 161)
    return theta, normalised(log_likelihood(model, theta) - 0.5 * ((theta / sd) ** 2).sum(axis=1))


def moments(theta):
    return {"first": theta[:, 0], "second": theta[:, 1], "square": theta[:, 0] ** 2, "product": theta.prod(axis=1)}


@pytest.fixture(scope="module")
def three():
    X, label = simulated_classes(12, 1, 3, 3, signal=1.0)
    model = build_scores(X, label, 3, prior=Ridge(scale=1.3), c=0.6)
    return model, *grid(model, 1.3, 7.0)


def test_three_classes_against_quadrature(three):
    model, theta, weight = three
    draws, _ = chain_of(score_gibbs(chains=1), model)
    for name, values in moments(draws).items():
        assert abs(distance(values, weight @ moments(theta)[name])) < 4.0, name


def test_without_scale_moves_too(three):
    model, theta, weight = three
    draws, _ = chain_of(score_gibbs(chains=1, scale_moves=False), model)
    for name, values in moments(draws).items():
        assert abs(distance(values, weight @ moments(theta)[name])) < 4.0, name


@dataclass(frozen=True)
class _Unspread(CrammerSinger):
    """Other rows forget what their other rivals cost."""

    def hinge(self, label, f, r):
        y, offset = super().hinge(label, f, r)
        own = f[np.arange(len(f)), label]
        return y, np.where(label == r, offset, own)


def test_a_wrong_hinge_fails_the_same_test(three):
    model, theta, weight = three
    wrong = ScoreModel(
        model.blocks, _Unspread(), model.prior, model.free, model.streams, Full(), label=model.label, k=model.k
    )
    draws, _ = chain_of(score_gibbs(chains=1, scale_moves=False), wrong)
    worst = max(abs(distance(values, weight @ moments(theta)[name])) for name, values in moments(draws).items())
    assert worst > 8.0


def test_an_intercept_against_quadrature():
    """Two classes have one contrast: intercept and slope."""
    X, label = simulated_classes(14, 1, 2, 5, signal=1.0)
    model = build_scores(X, label, 2, prior=Ridge(scale=0.9, intercept_scale=2.0), c=0.8, intercept=True)
    theta, weight = grid(model, np.array([2.0, 0.9]), 8.0)
    draws, _ = chain_of(score_gibbs(chains=1), model)
    for name, values in moments(draws).items():
        assert abs(distance(values, weight @ moments(theta)[name])) < 4.0, name


@pytest.mark.soak
def test_a_learned_scale_against_quadrature():
    X, label = simulated_classes(10, 1, 3, 7, signal=1.0)
    hyper = HalfT(1.0)
    model = build_scores(X, label, 3, prior=Ridge(hyperprior=hyper), c=0.5)
    unit, logs = square_grid(5.0, 41), np.linspace(-7.0, 2.5, 77)  # theta = scale times unit, smooth in both
    parts = [hyper.log_density(t) - 0.5 * (unit**2).sum(axis=1) + log_likelihood(model, np.exp(t) * unit) for t in logs]
    weight = normalised(np.concatenate(parts))
    exact = moments(np.concatenate([np.exp(t) * unit for t in logs])) | {"scale": np.repeat(np.exp(logs), len(unit))}
    draws, scale = chain_of(score_gibbs(chains=1), model)
    for name, values in (moments(draws) | {"scale": scale}).items():
        bounded = np.tanh(values)  # tails would make the standard error large
        assert abs(distance(bounded, weight @ np.tanh(exact[name]))) < 4.0, name


def test_jobs_do_not_matter():
    X, label = simulated_classes(30, 3, 3, 2)
    model = build_scores(X, label, 3, prior=Ridge(scale=1.0), intercept=True)
    other = ScoreModel(
        Blocks(model.blocks.design, label, model.c, workers=2),
        model.loss, model.prior, model.free, model.streams, Full(), label=label, k=3,
    )  # fmt: skip
    engine = score_gibbs(chains=3)
    states = []
    for each in (model, other):
        state = engine.init(each)
        for iteration in range(5):
            state, _ = engine.step(each, state, iteration)
        states.append([chain.beta for chain in state])
        each.blocks.close()
    np.testing.assert_array_equal(*states)
