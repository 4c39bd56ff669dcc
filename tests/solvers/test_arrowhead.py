"""The arrowhead solver against a dense one."""

import math

import numpy as np
import pytest

from softmargin.core.precision import Coupled, Coupling
from softmargin.designs import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.solvers import arrowhead
from softmargin.solvers.arrowhead import Arrowhead

KINDS = ["intercept", "slopes", "crossed", "nested", "nested slopes", "few rows"]


def problem(kind, coupled=False):
    """A grouped design, row messages and a prior precision, with the dense precision they mean."""
    rng = np.random.default_rng(7)
    n = 30 if kind == "few rows" else 250
    X = rng.standard_normal((n, 3))
    inner, other = rng.integers(0, 23, n), rng.integers(0, 6, n)
    inner[0] = 23  # a group with one row
    lines = np.column_stack((np.ones(n), X[:, :2]))
    terms = {
        "intercept": (GroupTerm.intercept(inner, 25),),
        "slopes": (GroupTerm(inner, 24, lines),),
        "crossed": (GroupTerm(other, 6, lines), GroupTerm(inner, 24, lines), GroupTerm.intercept(other % 3)),
        "nested": (GroupTerm.intercept(inner, 24), GroupTerm.intercept(inner // 5, 5)),
        "nested slopes": (GroupTerm(inner // 5, 5, lines[:, :2]), GroupTerm(inner, 24, lines)),
        "few rows": (GroupTerm(inner, 24, lines),),
    }[kind]
    design = Grouped(Dense.plain(X, intercept=True), terms)
    size = design.shape[1]
    precision, P = rng.gamma(3.0, size=size), None
    coupling = None
    if coupled:
        places = [Coupled(design.starts[k], t.groups, t.width) for k, t in enumerate(terms) if t.width > 1]
        coupling = Coupling(size, tuple(places))
        extra = []
        for place in places:
            matrix = np.cov(rng.standard_normal((place.width, 9)))
            precision[place.place] = np.tile(matrix.diagonal(), place.groups)
            extra.append(matrix[place.pairs])
        precision = np.concatenate((precision, *extra))
    P = dense_precision(precision, coupling, size)
    w, b = rng.gamma(0.5, size=n) * 10.0 ** rng.uniform(-3, 3, n), rng.standard_normal(n)
    return design, w, b, precision, coupling, P


def dense_precision(precision, coupling, size):
    P = np.diag(precision[:size])
    at = size
    for start, groups, width in () if coupling is None else coupling.terms:
        for a in range(width):
            for b in range(a + 1, width):
                for g in range(groups):
                    i, j = start + g * width + a, start + g * width + b
                    P[i, j] = P[j, i] = precision[at]
                at += 1
    return P


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_a_dense_solve(kind, coupled):
    design, w, b, precision, coupling, P = problem(kind, coupled)
    C, size = design.rows(np.arange(len(w))), design.shape[1]
    A = (C * w[:, None]).T @ C + P
    unit = 1.0 / np.sqrt(A.diagonal())
    covariance = np.linalg.inv(A * unit * unit[:, None]) * unit * unit[:, None]
    space = Arrowhead(coupling)
    gram, linear = design.gram(w, b)
    q = space.gaussian(gram, linear, precision)
    grown = q.dilated(0.3).with_mean(np.arange(float(size)))
    rows = np.einsum("ij,jk,ik->i", C, covariance, C)
    np.testing.assert_allclose(q.mean, covariance @ (C.T @ b), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(q.solve(precision[:size]), covariance @ precision[:size], rtol=1e-10, atol=1e-10)
    log_det = np.linalg.slogdet(A)[1]
    assert q.logdet == pytest.approx(log_det, abs=1e-10 * size)
    assert q.entropy == pytest.approx(0.5 * (size * (1.0 + math.log(2.0 * math.pi)) - log_det), abs=1e-10 * size)
    for gaussian, factor in ((q, 1.0), (grown, math.exp(0.6))):
        np.testing.assert_allclose(gaussian.var[:size], factor * covariance.diagonal(), rtol=1e-10)
        np.testing.assert_allclose(design.row_quad(gaussian.root), factor * rows, rtol=1e-9)
    assert grown.logdet == pytest.approx(log_det - 0.6 * size, abs=1e-10 * size)
    np.testing.assert_array_equal(grown.mean, np.arange(float(size)))
    x = np.sin(np.arange(size))
    assert q.root.quadratic(x) == pytest.approx(float(x @ covariance @ x), rel=1e-10)
    np.testing.assert_array_equal(q.root.squares(), q.var[:size])
    assert q.root.noise(np.random.default_rng(0), 3).shape == (3, size)
    spread = space.spread(design, w, C.T @ b, precision)
    np.testing.assert_allclose(spread.var, q.var, rtol=1e-9)
    wide = space.wide(design, w, C.T @ b, precision)
    np.testing.assert_allclose(wide.mean, q.mean, rtol=1e-9, atol=1e-10)
    if coupled:  # the row of precisions times the row of variances is the trace of the product
        trace = float((P * covariance).sum())
        assert float(precision @ q.var) == pytest.approx(trace, rel=1e-10)


@pytest.mark.parametrize("kind", ["slopes", "crossed", "nested slopes"])
def test_draws_have_the_mean_and_covariance(kind):
    """Cov(A^1/2 (draw - mean)) = I: the largest of the z scores of all its entries, and of the means."""
    design, w, b, precision, coupling, P = problem(kind, True)
    C = design.rows(np.arange(len(w)))
    q = Arrowhead(coupling).gaussian(*design.gram(w, b), precision)
    rng, count = np.random.default_rng(0), 4000
    L = np.linalg.cholesky((C * w[:, None]).T @ C + P)
    white = (np.array([q.draw(rng) for _ in range(count)]) - q.mean) @ L
    size = len(L)
    z = (white.T @ white / count - np.eye(size)) * math.sqrt(count) / np.sqrt(1.0 + np.eye(size))
    assert np.abs(z).max() < 5.5  # about 10,000 scores
    assert np.abs(white.mean(axis=0)).max() * math.sqrt(count) < 4.5


@pytest.mark.parametrize("coupled", [False, True])
def test_rows_that_are_not_nested_after_all(coupled):
    """Rows to predict may pair a group with another outer one than the rows of the fit did."""
    design, w, b, precision, coupling, P = problem("nested slopes", coupled)
    q = Arrowhead(coupling).gaussian(*design.gram(w, b), precision)
    outer, inner = design.terms
    other = Grouped(design.base, (GroupTerm((outer.codes + 1) % 5, 5, outer.columns), inner))
    assert design.nested
    C, rows = design.rows(np.arange(len(w))), other.rows(np.arange(len(w)))
    A = (C * w[:, None]).T @ C + P
    np.testing.assert_allclose(
        other.row_quad(q.root), np.einsum("ij,ji->i", rows, np.linalg.solve(A, rows.T)), rtol=1e-8
    )


def test_a_dense_part_that_does_not_fit_is_refused(monkeypatch):
    design, w, b, precision, _, _ = problem("crossed")
    monkeypatch.setattr(arrowhead, "_LARGEST_CORE", 20)
    with pytest.raises(ValueError, match="leave out the second largest grouping factor"):
        Arrowhead().gaussian(*design.gram(w, b), precision)


def test_a_group_that_is_not_positive_is_refused():
    design, w, b, precision, _, _ = problem("slopes")
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        Arrowhead().gaussian(*design.gram(np.zeros_like(w), b), -precision)


def test_coordinates_of_a_coupled_precision():
    *_, precision, coupling, P = problem("crossed", True)
    np.testing.assert_allclose(coupling.from_logs(coupling.logs(precision)), precision, rtol=1e-12)
    x = np.random.default_rng(1).standard_normal(coupling.size)
    np.testing.assert_allclose(coupling.times(precision, x), P @ x, rtol=1e-12, atol=1e-13)
