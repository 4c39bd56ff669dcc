"""Leave-one-out predictors of incomplete rows against matrices of full size and against refits."""

import numpy as np
import pytest
from engine_problems import build
from missing_problems import unseen, with_holes

from softmargin.core.loop import run
from softmargin.designs.imputed import given_observed
from softmargin.engines.alternate import Alternate
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.loo import missing_cavity
from softmargin.loo.link import cavity
from softmargin.loo.missing_cavity import missing_cavities


def fitted(model):
    state = run(Alternate(GaussianVI()), unseen(model), max_iter=500, tol=1e-12).state
    return state, *GaussianVI().coefficients(state.inner)


def held_out(state, mean, root, part):
    inner = state.inner
    return missing_cavities(
        state.unknowns[0].design, state.unknowns[0].law, mean, root, inner.message, inner.f, inner.v, part
    )


def test_removal_equals_full_matrices():
    """The precision without the row, inverted as it stands; complete rows as without missing entries."""
    model = with_holes()
    state, mean, root = fitted(model)
    part = np.linspace(0.4, 1.0, 40)
    f, v, largest = held_out(state, mean, root, part)
    inner, X = state.inner, model.blocks.design.X
    complete = ~np.isnan(X).any(axis=1)
    plain = cavity(inner.f, inner.v, inner.message.w, inner.message.b, part)
    np.testing.assert_array_equal(f[complete], plain[0][complete])
    np.testing.assert_array_equal(v[complete], plain[1][complete])
    precision = np.linalg.inv(root @ root.T)
    blind = given_observed(X, *state.unknowns[0].law, intercept=True)
    assert 0.0 < largest < 0.999
    for i in np.flatnonzero(~complete):
        k, b = part[i] * inner.message.w[i], part[i] * inner.message.b[i]
        A, linear = state.unknowns[0].design.gram(np.array([k]), np.array([b]), i, i + 1)
        without = np.linalg.inv(precision - A)
        other = without @ (precision @ mean - linear)
        moment = blind.gram(np.ones(1), np.zeros(1), i, i + 1)[0]
        wanted = float(blind.matvec(other, i, i + 1)[0])
        assert f[i] == pytest.approx(wanted, abs=1e-4)  # the factors are those of the step before the last
        assert v[i] == pytest.approx(np.trace(moment @ (without + np.outer(other, other))) - wanted**2, rel=1e-4)


def test_refits_agree():
    """Without the row the fit gives nearly the moments that are read off with it."""
    model = with_holes(n=80, share=0.25, c=0.25)
    state, mean, root = fitted(model)
    f, v, _ = held_out(state, mean, root, np.ones(80))
    X, y = model.blocks.design.X, model.y
    rows = np.flatnonzero(np.isnan(X).any(axis=1))[:6]
    for i in rows:
        rest = np.arange(80) != i
        other, centre, spread = fitted(build(X[rest], y[rest], c=0.25))
        new = given_observed(X[i : i + 1], *other.unknowns[0].law, intercept=True)
        sd = np.sqrt(float(new.row_quad(spread)[0] + new.excess(centre)[0]))
        assert f[i] == pytest.approx(float(new.matvec(centre)[0]), abs=0.1 * sd)
        assert np.sqrt(v[i]) == pytest.approx(sd, rel=0.1)


def test_nothing_missing():
    model = build(np.where(np.isnan(with_holes().blocks.design.X), 0.2, with_holes().blocks.design.X), with_holes().y)
    state, mean, root = fitted(model)
    inner = state.inner
    plain = cavity(inner.f, inner.v, inner.message.w, inner.message.b, np.ones(40))
    for a, b in zip(held_out(state, mean, root, np.ones(40)), plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_few_rows_at_a_time_give_what_all_at_once_give(monkeypatch):
    state, mean, root = fitted(with_holes())
    whole = held_out(state, mean, root, np.ones(40))
    monkeypatch.setattr(missing_cavity, "_NUMBERS", 20.0)
    for found, wanted in zip(held_out(state, mean, root, np.ones(40)), whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
