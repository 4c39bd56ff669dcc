"""Chains with two unknowns at once, by quadrature; trajectories over rows whose entries are drawn."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from missing_problems import COVARIATES, LEVEL, noisy_column, noisy_column_grid, one_column, one_column_grid, unseen
from stages import in_stages

from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import hmc
from softmargin.priors import Ridge
from softmargin.unknowns.missing import Missing
from softmargin.unknowns.noise import Noise

LIMIT = 4.0  # standard errors
SAMPLERS = {"gibbs": (gibbs(chains=1), 2400), "hmc": (hmc, 1200)}


def score(values, exact):
    """Distance of a mean from its exact value in standard errors from 40 batches."""
    batches = np.asarray(values)[: len(values) // 40 * 40].reshape(40, -1).mean(axis=1)
    return float((np.mean(values) - exact) / (batches.std(ddof=1) / math.sqrt(40)))


def chain_of(model, sampler, sweeps, warmup=100):
    engine = sampler if isinstance(sampler, Chains) else sampler(model, 1)
    state, out = engine.init(model)[0], []
    for iteration in range(1, warmup + sweeps + 1):
        state = engine.sweep(model, state, 0, iteration)
        if iteration > warmup:
            out.append(state)
    return out


def margins(axes, weight):
    """Exact means and mean squares along every axis."""
    out = []
    for k, axis in enumerate(axes):
        margin = weight.sum(axis=tuple(j for j in range(len(axes)) if j != k))
        out += [float(margin @ axis), float(margin @ axis**2)]
    return out


def noise_and_entry_scores(model, sampler, sweeps):
    """z scores of both entries, of slope, mean, log variance and log level, and of their squares."""
    axes, log_p, means = noisy_column_grid(model)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    exact = [float((weight * mean).sum()) for mean in means] + margins(axes, weight)
    draws = []
    for state in chain_of(model, sampler, sweeps):
        noise, (X, law, _) = state.unknowns
        drawn = (state.beta[0], law.mean[0], -math.log(law.precision[0, 0]), noise.log_level)
        draws.append([X[3, 0], X[5, 0], *(value**power for value in drawn for power in (1, 2))])
    return [score(column, wanted) for column, wanted in zip(np.array(draws).T, exact, strict=True)]


@pytest.mark.parametrize("name", in_stages(SAMPLERS))
def test_noise_and_entries_equal_quadrature(name):
    scores = noise_and_entry_scores(noisy_column(), *SAMPLERS[name])
    assert np.abs(scores).max() < LIMIT, scores


@dataclass(frozen=True)
class AtOne(Missing):
    """The entries are drawn as if the noise level were one."""

    def draw(self, random, model, state, chain):
        return super().draw(random, model.with_weight(model.c / model.c.mean()), state, chain)


def test_quadrature_sees_entries_that_do_not_know_the_noise():
    model = noisy_column()
    model = model.with_unknowns((Noise(LEVEL), AtOne(COVARIATES)))
    assert np.abs(noise_and_entry_scores(model, gibbs(chains=1), 3000)).max() > 1.5 * LIMIT


def test_trajectories_over_drawn_entries_equal_quadrature():
    """Hinge, one column, two entries unknown: the density of a sweep is that of the rows as they were just drawn."""
    model = one_column(Ridge(scale=0.9))
    axes, log_p, means = one_column_grid(model, 0.9)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    exact = [float((weight * mean).sum()) for mean in means] + margins(axes, weight)
    draws = []
    for state in chain_of(unseen(model, COVARIATES), hmc, 1600):
        X, law, _ = state.unknowns[0]
        drawn = (state.beta[0], law.mean[0], -math.log(law.precision[0, 0]))
        draws.append([X[3, 0], X[5, 0], *(value**power for value in drawn for power in (1, 2))])
    scores = [score(column, wanted) for column, wanted in zip(np.array(draws).T, exact, strict=True)]
    assert np.abs(scores).max() < LIMIT, scores


def test_log_likelihood_is_that_of_the_drawn_unknowns():
    model = noisy_column()
    for sampler, _ in SAMPLERS.values():
        state = chain_of(model, sampler, 5, warmup=5)[-1]
        noise, (X, _, _) = state.unknowns
        error, sd = model.y - X[:, 0] * state.beta[0], math.exp(noise.log_level)
        direct = model.c @ (-0.5 * (error / sd) ** 2 - math.log(sd) - 0.5 * math.log(2.0 * math.pi))
        assert state.loglik == pytest.approx(float(direct), rel=1e-10)
        assert state.noted == {"noise": pytest.approx(sd)}


def test_a_start_is_near_the_variational_one():
    model = noisy_column()
    states = tuple(unknown.start(model) for unknown in model.unknowns)
    first = gibbs(chains=1, unknowns=states).init(model)[0]
    assert first.unknowns[0].log_level == pytest.approx(-0.5 * math.log(states[0].weight))
    np.testing.assert_array_equal(first.unknowns[1].X, states[1].design.dense.X)
