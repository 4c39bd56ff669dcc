"""Modes of rows that are elsewhere: the bits that they have in memory, however rows are held."""

from dataclasses import replace

import numpy as np
import pytest
from distant_rows import Distant
from engine_problems import build, simulated

from softmargin.core.loop import run
from softmargin.engines.mode.newton import Newton
from softmargin.engines.mode.smoothed_start import brought_home
from softmargin.priors import Lasso, Ridge

N = 19_500  # ten cells, the last one short


def problem(prior, n=N):
    X, y = simulated(n, 6)
    return build(X, y, c=np.random.default_rng(1).uniform(0.2, 2.0, n), prior=prior)


@pytest.mark.parametrize("prior", [Ridge(), Lasso(scale=0.05)], ids=["ridge", "lasso"])
def test_the_exact_mode_of_rows_held_apart_has_the_same_bits(prior):
    here = problem(prior)
    wanted = run(Newton(), here, max_iter=20, tol=1e-8)
    assert wanted.state.point.certificate.gap < 1e-9
    for n_blocks in (1, 4, 10):
        found = run(Newton(), replace(here, blocks=Distant.of(here.blocks, n_blocks)), max_iter=20, tol=1e-8)
        assert found.trace == wanted.trace
        assert found.state.point.certificate == wanted.state.point.certificate
        for own, other in zip(found.state.point[:5], wanted.state.point[:5], strict=True):
            np.testing.assert_array_equal(own, other)


def test_all_rows_are_looked_at_a_few_times_only():
    """Smoothed passes, the sides of all rows, and the certificate; the mode is found on rows near the margin."""
    here = problem(Ridge(scale=0.7))
    there = Distant.of(here.blocks, 4)
    found = run(Newton(), replace(here, blocks=there), max_iter=20, tol=1e-8)
    assert found.state.point.certificate.gap < 1e-9
    assert there.passes <= 60


def test_few_rows_are_brought_home(monkeypatch):
    here = problem(Ridge(scale=0.7), 3000)
    there = brought_home(replace(here, blocks=Distant.of(here.blocks, 2)))
    np.testing.assert_array_equal(there.blocks.design.rows(np.arange(3000)), here.blocks.design.rows(np.arange(3000)))
    np.testing.assert_array_equal(there.y, here.y)
    np.testing.assert_array_equal(there.c, here.c)
    assert brought_home(here) is here
    monkeypatch.setattr("softmargin.rows.in_memory.HOME", 1000)
    many = replace(here, blocks=Distant.of(here.blocks, 2))
    assert brought_home(many) is many
