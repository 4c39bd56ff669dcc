"""Coordinate descent on the multipliers: the mode of the interior point and of a convex solver, with a certificate."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from engine_problems import build, penalty_of, quadratic_programme, rows_of
from sklearn.datasets import load_svmlight_file

from softmargin.core.loop import run
from softmargin.designs.sparse import Implicit
from softmargin.engines.mode.active_set import leave_one_out
from softmargin.engines.mode.dual_descent import Descent, mode_engine
from softmargin.engines.mode.newton import Newton
from softmargin.priors import InverseGamma, Ridge
from softmargin.solvers.cg._sketch import Sketch
from softmargin.solvers.cg.solver import Iterative
from softmargin.solvers.row_span import span_of


def words(n, p, seed=0):
    """Sparse rows of counts, with labels that depend on some of the columns."""
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix(rng.poisson(3.0 / np.arange(1, p + 1) ** 0.8, size=(n, p)).astype(float) + np.eye(n, p))
    f = X @ rng.normal(size=p)
    return X, np.where(f - np.median(f) + rng.normal(size=n) > 0.0, 1.0, -1.0)


def pair(X, y, **options):
    """The same problem with a Gram matrix and by products."""
    model = build(X, y, **options)
    d = model.blocks.design
    design = Implicit(d.X, d.shift, d.scale, d.intercept)
    return model, replace(model, blocks=model.blocks.redesigned(design), space=Iterative(design))


@pytest.mark.parametrize("scale", [0.03, 0.5, 20.0])
@pytest.mark.parametrize("standardized", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", [(120, 20), (60, 150)])
def test_it_is_the_mode_of_the_convex_solver(shape, intercept, standardized, scale):
    X, y = words(*shape)
    c = np.random.default_rng(1).uniform(0.2, 3.0, shape[0])
    options = {"c": c, "intercept": intercept, "standardized": standardized, "prior": Ridge(scale=scale)}
    model, implicit = pair(X, y, **options)
    penalty = penalty_of(model)
    point = mode_engine(implicit)().at(implicit, penalty)
    assert mode_engine(implicit) is Descent and mode_engine(model) is Newton
    assert -1e-14 <= point.certificate.gap <= 1e-9
    u = 1.0 - y * (rows_of(model) @ point.beta)
    value = 2.0 * float(c @ np.maximum(u, 0.0)) + 0.5 * float(penalty.precision @ point.beta**2)
    assert point.certificate.objective == pytest.approx(value, rel=1e-10)
    beta = quadratic_programme(model, penalty.precision)
    u = 1.0 - y * (rows_of(model) @ beta)
    assert value <= (2.0 * float(c @ np.maximum(u, 0.0)) + 0.5 * float(penalty.precision @ beta**2)) * (1.0 + 1e-8)
    # the objective is strongly convex: a small gap is a small distance
    wanted = Newton().at(model, penalty)
    assert abs(wanted.certificate.objective - value) <= 2e-9 * value
    off = (point.beta - wanted.beta)[int(intercept) :]
    assert 0.5 * penalty.precision[-1] * float(off @ off) <= 4e-9 * value


def test_warm_starts_end_at_the_same_point():
    X, y = words(80, 150)
    _, implicit = pair(X, y, prior=Ridge(scale=0.1), standardized=True)
    penalty = penalty_of(implicit)
    cold = Descent().at(implicit, penalty)
    other = Descent().at(implicit, penalty._replace(precision=penalty.precision * 30.0))
    for near in (cold, other):
        warm = Descent().at(implicit, penalty, near)
        assert warm.certificate.gap <= 1e-9
        np.testing.assert_allclose(warm.f, cold.f, atol=1e-3)


def test_rows_on_the_margin_are_those_inside_the_box():
    X, y = words(80, 150)
    _, implicit = pair(X, y, prior=Ridge(scale=0.05), standardized=True)
    point = Descent().at(implicit, penalty_of(implicit))
    u = 1.0 - y * point.f
    assert 0 < point.margin.sum() < 80
    assert np.abs(u[point.margin]).max() < 1e-4
    assert (u[point.g == 0.0] < 1e-4).all() and (u[point.g == 2.0] > -1e-4).all()


def test_a_learned_scale_is_that_of_the_interior_point():
    X, y = words(60, 150)
    found = [
        run(engine, model, max_iter=100, tol=1e-7).state
        for engine, model in zip(
            (Newton(), Descent()),
            pair(X, y, prior=Ridge(hyperprior=InverseGamma(2.0, 1.0)), standardized=True),
            strict=True,
        )
    ]
    assert found[1].prior.values["scale"] == pytest.approx(found[0].prior.values["scale"], rel=1e-4)
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-7)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("shape", "scale"), [((60, 90), 0.03), ((60, 90), 0.3), ((150, 12), 0.5), ((40, 90), 1e-4)])
def test_left_out_rows_are_those_of_the_span_rule(shape, scale, intercept):
    """Copies of rows and rows that others span are among them; at the smallest scale none is on the margin."""
    X, y = words(*shape)
    X, y = sp.vstack([X, X[:25], X[:1] + X[1:2]]).tocsr(), np.concatenate((y, y[:25], y[:1]))
    model, implicit = pair(X, y, prior=Ridge(scale=scale), standardized=True, intercept=intercept)
    penalty, part = penalty_of(model), np.linspace(0.3, 1.0, len(y))
    point = Descent().at(implicit, penalty)
    wanted = leave_one_out(model, point, penalty, part)
    got = implicit.space.left_out(implicit, point, penalty, part)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    assert np.abs(got - point.f).max() > 1e-6  # there was something to leave out


def test_distances_from_a_span():
    """Against least squares, row by row; three of the rows depend on each other, and no other has a part in that."""
    X = words(30, 40)[0]
    X = sp.vstack([X, X[0] + X[1]]).tocsr()
    design = Implicit(X, np.full(40, 0.2), np.full(40, 1.5), False)
    rows, precision = np.array([0, 1, 2, 5, 9, 30]), np.full(40, 4.0)
    shifted = Implicit(X, np.zeros(40), np.full(40, 1.5), False)
    for each in (design, shifted):
        got = span_of(each, rows, np.ones(31), precision).distances(np.ones(31, dtype=bool))
        Z = each.rows(np.arange(31)) / 2.0
        for i in range(31):
            others = Z[[j for j in rows if j != i]].T
            off = Z[i] - others @ np.linalg.lstsq(others, Z[i], rcond=None)[0]
            assert got[i] == pytest.approx(off @ off, rel=1e-8, abs=1e-9)
    assert (got[[0, 1, 30]] < 1e-9).all() and (got[[2, 5, 9]] > 1e-3).all()


def test_text(data_dir):
    """1,946 rows of 7,511 words: certified where no matrix of either size is formed."""
    X, y = load_svmlight_file(str(data_dir / "text_mac_windows.svm.gz"))
    X.sort_indices()
    _, implicit = pair(X.tocsr(), y, prior=Ridge(scale=0.03), standardized=True)
    assert Descent().at(implicit, penalty_of(implicit)).certificate.gap <= 1e-9


def test_left_out_rows_hardly_depend_on_the_sketch(monkeypatch):
    """With too many rows on the margin: a rough sketch alone would be off by several per cent of 1."""
    monkeypatch.setattr("softmargin.solvers.row_span._WORK", 0.0)
    X, y = words(150, 400)
    model, implicit = pair(X, y, prior=Ridge(scale=0.05), standardized=True)
    penalty, part = penalty_of(model), np.ones(150)
    point = Descent().at(implicit, penalty)
    wanted = leave_one_out(model, point, penalty, part)
    implicit.space.__dict__["sketch"] = Sketch.from_design(implicit.blocks.design, 3)
    got = implicit.space.left_out(implicit, point, penalty, part)
    moved = point.g > 0.0
    assert np.abs(np.mean((y * (got - wanted))[moved])) < 0.02
    assert np.corrcoef(got, wanted)[0, 1] > 0.98
