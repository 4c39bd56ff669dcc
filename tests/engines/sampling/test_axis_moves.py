"""Moves along axes alone against quadrature; a move that is wrong must fail. Limits are in standard errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from engine_problems import build, grid_expectation, hinge_loglik, normal_logpdf, simulated

from softmargin.designs import Dense
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.moves.axes import axes_for
from softmargin.losses import Logit
from softmargin.priors import Horseshoe, Lasso, Ridge

LIMIT, CONTROL = 4.0, 8.0
PRIORS = {"ridge": Ridge(scale=0.8, intercept_scale=1.5), "lasso": Lasso(scale=0.7, intercept_scale=1.5)}


def problem(prior):
    rng = np.random.default_rng(4)
    x = rng.standard_normal(8)
    y = np.where(rng.random(8) < 0.75, np.sign(x), -np.sign(x))
    return build(x[:, None], y, c=rng.uniform(0.3, 2.0, 8), prior=prior, seed=11), x


def exact(model, x, prior):
    """Means of intercept and slope and of their squares."""
    start, slope = np.linspace(-6.0, 6.0, 301), np.linspace(-6.0, 6.0, 1201)
    log_prior = normal_logpdf(slope, prior.scale) if isinstance(prior, Ridge) else -np.abs(slope) / prior.scale
    log_density = hinge_loglik(start[:, None, None] + slope[:, None] * x, model.y, model.c) + log_prior
    log_density += normal_logpdf(start, prior.intercept_scale)[:, None]
    grids = [np.broadcast_to(values, log_density.shape) for values in (start[:, None], slope)]
    return np.array([grid_expectation(g**power, log_density, start, slope) for power in (1, 2) for g in grids])


def scores(model, axes, wanted, moves=12_000):
    """z scores of a chain of moves alone, with errors from 40 batches."""
    rng, prior = np.random.default_rng(1), model.prior.start()
    beta, found = np.zeros(2), np.empty((moves, 2))
    f = model.blocks.matvec(beta)
    for k in range(moves):
        beta, f = axes.move(model, rng, beta, f, prior)
        found[k] = beta
    np.testing.assert_allclose(f, model.blocks.matvec(beta), atol=1e-9)
    series = np.column_stack((found, found**2))
    batches = series.reshape(40, -1, 4).mean(axis=1)
    return (series.mean(axis=0) - wanted) / (batches.std(axis=0, ddof=1) / math.sqrt(40))


@pytest.mark.parametrize("name", PRIORS)
def test_moments_equal_quadrature(name):
    """With the axes of the fit, and with skewed ones that have nothing to do with it."""
    model, x = problem(PRIORS[name])
    wanted, axes = exact(model, x, PRIORS[name]), axes_for(model)
    assert np.abs(scores(model, axes, wanted)).max() < LIMIT
    skewed = np.array([[1.0, 1.0], [0.2, -0.7]])
    products = np.stack([model.blocks.matvec(axis) for axis in skewed])
    slopes = products @ np.linalg.lstsq(axes.products, axes.slopes)[0]
    assert np.abs(scores(model, axes._replace(axes=skewed, products=products, slopes=slopes), wanted)).max() < LIMIT


@pytest.mark.parametrize("wrong", ["slopes", "fall"])
def test_sees_wrong_moves(wrong):
    model, x = problem(PRIORS["lasso"])
    axes = axes_for(model)
    broken = axes._replace(**{wrong: 0.5 * getattr(axes, wrong)})
    assert np.abs(scores(model, broken, exact(model, x, PRIORS["lasso"]))).max() > CONTROL


def test_axes_serve_only_their_own_rows():
    X, y = simulated(40, 3, seed=2)
    model = build(X, y, prior=Ridge())
    axes = axes_for(model)
    assert axes.serve(model) and axes.serve(model.serial())
    other = X.copy()
    assert axes.serve(redesigned(model, other))
    other[7, 1] += 0.1
    assert not axes.serve(redesigned(model, other))
    assert not axes.serve(model.with_weight(2.0 * model.c))
    model.y[3] *= -1.0
    assert not axes.serve(model)


def redesigned(model, X):
    return replace(model, blocks=model.blocks.redesigned(Dense.plain(X, intercept=True)))


def test_axes_are_for_two_lines_and_convex_priors():
    X, y = simulated(40, 3, seed=2)
    assert axes_for(build(X, y, prior=Horseshoe())) is None
    assert axes_for(build(X[:3], y[:3], prior=Ridge())) is None
    assert axes_for(replace(build(X, y, prior=Ridge()), loss=Logit())) is None
    chains = gibbs(chains=2).init(build(X, y, prior=Lasso()))
    assert chains[0].own["axes"] is chains[1].own["axes"]
    assert "axes" not in gibbs(chains=1, scale_moves=False).init(build(X, y))[0].own
