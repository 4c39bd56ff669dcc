"""Leave-one-out moments of class scores from sweeps: given the latents they are those of a refit."""

from types import SimpleNamespace

import numpy as np
import pytest
from class_problems import build_classes, simulated_classes

from softmargin.engines.sampling.moves.coefficients import draw_rows
from softmargin.loo.class_average import ClassCavityAverage
from softmargin.loo.class_cavity import class_scores
from softmargin.priors import Ridge
from softmargin.rows.streams import Purpose


@pytest.mark.parametrize("selects", [False, True])
def test_a_sweep_without_an_observation_is_a_refit_given_the_latents(selects):
    X, label = simulated_classes(30, 4, 3, seed=1)
    c = np.random.default_rng(0).uniform(0.3, 0.6, 30)
    model = build_classes(X, label, prior=Ridge(scale=1.0), c=c)
    f = model.blocks.matvec(0.1 * np.random.default_rng(2).standard_normal(model.size))
    gamma = np.array([True, True, False, True, True])  # the intercept and three of four variables
    precision = model.prior.start().precision
    chain = SimpleNamespace(f=f, gamma=None, prior=SimpleNamespace(precision=precision))
    kept = np.ones(5, dtype=bool)
    if selects:
        chain.gamma, chain.prior.precision, kept = gamma, precision[:5], gamma
    average = ClassCavityAverage(model, np.ones(30))
    average.add(chain, 7)
    found = average.moments()

    small = build_classes(X[:, kept[1:]], label, prior=Ridge(scale=1.0), c=c)
    w, b = draw_rows(model, f, Purpose.CAVITY, iteration=7)
    design = small.blocks.design
    for row in (0, 11, 29):
        others = design.index != row
        q = small.gaussian(np.where(others, w, 0.0), np.where(others, b, 0.0), small.prior.start().precision)
        mean, V = class_scores(design.base, q.mean, q.root, 3)
        np.testing.assert_allclose(found.mean[row], mean[row], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.covariance[row], V[row], rtol=1e-6, atol=1e-8)


def test_sweeps_are_mixed():
    X, label = simulated_classes(20, 2, 3, seed=3)
    model = build_classes(X, label, c=0.5)
    average = ClassCavityAverage(model, np.ones(20))
    prior = model.prior.start()
    for sweep in range(2):
        f = model.blocks.matvec(np.full(model.size, 0.05 * sweep))
        average.add(SimpleNamespace(f=f, gamma=None, prior=prior), sweep)
    one, two = average.parts
    found = average.moments()
    np.testing.assert_allclose(found.mean, 0.5 * (one.mean + two.mean))
    away = one.mean - two.mean
    between = 0.25 * away[:, :, None] * away[:, None, :]
    np.testing.assert_allclose(found.covariance, 0.5 * (one.covariance + two.covariance) + between)
