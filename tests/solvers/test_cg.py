"""The Gaussian by conjugate gradients against the dense one, and the sketch against its own derivatives."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from parts import standardized

from softmargin.designs import Dense
from softmargin.rows.in_memory import Blocks
from softmargin.solvers import Gaussian
from softmargin.solvers.cg._root import PROBES
from softmargin.solvers.cg._sketch import RowGaussian, Sketch
from softmargin.solvers.cg.solver import TOLERANCE, CGNormal, ConjugateGradients, Iterative

SHAPES = [(40, 15), (20, 30), (15, 60)]  # more rows, somewhat more columns, many more columns


def words(n, p):
    """Counts of words, some of which most rows have."""
    rng = np.random.default_rng(0)
    return sp.csr_matrix(rng.poisson(2.0 / np.arange(1, p + 1) ** 0.7, size=(n, p)).astype(float) + np.eye(n, p))


class Case:
    """A dense Gaussian and the same by products, the sketch of rank ``rank``."""

    def __init__(self, shape, *, intercept=True, rank=None, extreme=False):
        self.design = ConjugateGradients().coordinates(standardized(words(*shape), intercept=intercept)).design
        rng = np.random.default_rng(1)
        n, q = self.design.shape
        self.w, self.linear = rng.gamma(1.0, size=n), rng.normal(size=q)
        if extreme:
            self.w[:4] = 0.0, 1e-30, 1e8, 1e12
        self.precision = np.full(q, 7.0)
        self.precision[: int(intercept)] = 1e-8
        self.rows = self.design.rows(np.arange(n))
        A = self.rows.T @ (self.w[:, None] * self.rows) + np.diag(self.precision)
        self.A, self.dense = A, Gaussian.from_precision(A, self.linear)
        space = Iterative(self.design)
        if rank is not None:
            space.__dict__["sketch"] = Sketch.from_design(self.design, rank)
        self.cg = CGNormal(space, self.w, self.linear, self.precision)

    def error(self, got, wanted):
        """Root mean square of the difference in posterior standard deviations."""
        off = got - wanted
        return np.sqrt(off @ self.A @ off / len(off))


@pytest.mark.parametrize("rank", [None, 3, 0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_and_solves_have_the_promised_accuracy_whatever_the_sketch(shape, intercept, rank):
    case = Case(shape, intercept=intercept, rank=rank)
    assert case.error(case.cg.mean, case.dense.mean) < 2.0 * TOLERANCE
    x = np.linspace(-1.0, 2.0, len(case.linear))
    assert case.error(case.cg.solve(x), case.dense.solve(x)) < 2.0 * TOLERANCE
    assert case.cg.root.quadratic(x) == pytest.approx(float(x @ case.dense.solve(x)), rel=1e-3)


@pytest.mark.parametrize("own", [0.0, 0.3])
def test_rows_as_many_as_directions_keep_their_digits_under_a_wide_prior(own):
    """``I + W^1/2 K W^1/2`` is 1e16 times a well-conditioned matrix M, whose inverse is known to all digits."""
    shared, s = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, -1.0]]), np.array([1.0, 0.5])
    wide = RowGaussian(1e12 * shared, np.full(2, 1e24 * own), 1e-8 * s**2, None)
    M = s[:, None] * (shared @ shared.T + own * np.eye(2)) * s
    np.testing.assert_allclose(wide.relax(np.eye(2)), 1e-16 * np.linalg.inv(M), rtol=1e-12)


def test_weights_from_zero_to_enormous():
    case = Case((30, 50), rank=5, extreme=True)
    assert case.error(case.cg.mean, case.dense.mean) < 2.0 * TOLERANCE
    assert np.isfinite(case.cg.rows.variance).all() and np.isfinite(case.cg.logdet)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_complete_sketch_is_exact(shape, intercept):
    case = Case(shape, intercept=intercept)
    n = len(case.w)
    np.testing.assert_allclose(
        Blocks(case.design).row_quad(case.cg.root), case.design.row_quad(case.dense.root), rtol=1e-7
    )
    assert case.cg.logdet == pytest.approx(case.dense.logdet, rel=1e-9)
    assert case.cg.entropy == pytest.approx(case.dense.entropy, rel=1e-9)
    lead = int(intercept)
    assert case.cg.var[lead:].sum() == pytest.approx(case.dense.var[lead:].sum(), rel=1e-6)
    np.testing.assert_allclose(case.cg.var[:lead], case.dense.var[:lead], rtol=1e-6)
    assert case.cg.root.notice == ""
    sketch = case.cg.space.sketch
    products = case.rows[:, lead:] @ case.rows[:, lead:].T
    np.testing.assert_allclose(sketch.shared @ sketch.shared.T + np.diag(sketch.own), products, atol=1e-7 * n)


def test_a_short_sketch_keeps_the_diagonal():
    case = Case((30, 60), rank=4)
    sketch = case.cg.space.sketch
    assert sketch.shared.shape == (30, 4)
    np.testing.assert_allclose(
        np.einsum("ij,ij->i", sketch.shared, sketch.shared) + sketch.own, case.design.norms(), rtol=1e-10
    )


@pytest.mark.parametrize(("shape", "rank"), [((30, 60), 4), ((120, 40), 1)])
def test_the_notice_has_the_error_of_the_standard_deviations_where_it_is_large(shape, rank):
    case = Case(shape, rank=rank)
    wanted = case.design.row_quad(case.dense.root)
    error = 0.5 * np.sqrt(np.mean(np.log(case.cg.rows.variance / wanted) ** 2))
    found = re.search(r"by ([\d.]+) %", case.cg.root.notice)
    assert (found is not None) == (error > 0.1) == (rank == 1)
    assert found is None or float(found[1]) / 100 == pytest.approx(error, abs=0.05)


@pytest.mark.parametrize("intercept", [False, True])
def test_variances_are_derivatives_of_the_log_determinant(intercept):
    """What makes the variational bound of the sketch stationary where its engine stops."""
    case = Case((25, 60), intercept=intercept, rank=4)
    space, step, lead = case.cg.space, 1e-5, int(intercept)

    def logdet(w, precision):
        return CGNormal(space, w, case.linear, precision).logdet

    for i in (0, 7, 24):
        e = step * (np.arange(25) == i)
        slope = (logdet(case.w + e, case.precision) - logdet(case.w - e, case.precision)) / (2.0 * step)
        assert case.cg.rows.variance[i] == pytest.approx(slope, rel=1e-6)
    tau = np.where(np.arange(len(case.precision)) < lead, 0.0, step)
    slope = (logdet(case.w, case.precision + tau) - logdet(case.w, case.precision - tau)) / (2.0 * step)
    assert case.cg.var[lead:].sum() == pytest.approx(slope, rel=1e-6)


def test_draws_have_the_moments():
    case = Case((12, 20), rank=3)
    covariance = np.linalg.inv(case.A)
    k = 20_000
    draws = case.cg.root.noise(np.random.default_rng(2), k)
    unit = 1.0 / np.sqrt(covariance.diagonal())
    correlation = covariance * np.outer(unit, unit)
    z = (draws.mean(axis=0) * unit) * np.sqrt(k)
    assert np.abs(z).max() < 4.0
    z = ((draws * unit).T @ (draws * unit) / k - correlation) / np.sqrt((1.0 + correlation**2) / k)
    assert np.abs(z).max() < 4.5  # 231 statistics
    one = case.cg.draw(np.random.default_rng(3)) - case.cg.mean
    assert np.abs(one * unit).max() < 5.0


def test_kept_and_taken_parts_are_independent_and_add_up_to_the_prior():
    case = Case((12, 20), rank=3)
    k = 20_000
    kept, taken = case.cg.coupled(np.random.default_rng(4), k)
    prior, given = 1.0 / case.precision[-1], np.linalg.inv(case.A[1:, 1:])
    cross = kept @ taken.T / k
    spread = np.sqrt(np.outer(given.diagonal(), prior - given.diagonal()) + 1e-300)
    assert np.abs(cross / spread).max() * np.sqrt(k) < 4.5
    z = ((kept**2).mean(axis=1) / given.diagonal() - 1.0) / np.sqrt(2.0 / k)
    assert np.abs(z).max() < 4.0
    z = (((kept + taken) ** 2).mean(axis=1) / prior - 1.0) / np.sqrt(2.0 / k)
    assert np.abs(z).max() < 4.0


@pytest.mark.parametrize("intercept", [False, True])
def test_variances_of_new_rows_and_coefficients_are_within_the_error_of_the_draws(intercept):
    case = Case((25, 60), intercept=intercept, rank=4)
    lead = int(intercept)
    new = Dense.plain(np.random.default_rng(5).normal(size=(25, 60)), intercept=intercept)
    given = np.linalg.inv(case.A[lead:, lead:])
    prior = 1.0 / case.precision[-1]
    rows = new.rows(np.arange(25))
    for got, wanted, own, whole in (
        (
            case.cg.root.row_quad(new),
            np.einsum("ij,jk,ik->i", rows, np.linalg.inv(case.A), rows),
            np.einsum("ij,jk,ik->i", rows[:, lead:], given, rows[:, lead:]),
            prior * new.norms(),
        ),
        (case.cg.root.squares()[lead:], case.dense.var[lead:], given.diagonal(), np.full(60, prior)),
    ):
        error = own * (1.0 - own / whole) * 2.0 / np.sqrt(PROBES)
        assert (np.abs(got - wanted) / error).max() < 4.0
    twice = case.cg.root.enlarged(2.0)
    np.testing.assert_allclose(twice.row_quad(new), 4.0 * case.cg.root.row_quad(new), rtol=1e-6)


def test_moving_and_spreading_keep_the_rest():
    case = Case((20, 30))
    a, b = case.dense.dilated(0.3).with_mean(np.ones(31)), case.cg.dilated(0.3).with_mean(np.ones(31))
    np.testing.assert_array_equal(b.mean, a.mean)
    assert b.logdet == pytest.approx(a.logdet, rel=1e-9)
    assert b.var.sum() == pytest.approx(a.var.sum(), rel=1e-6)
    x = np.linspace(-1.0, 1.0, 31)
    assert case.error(b.solve(x), a.solve(x)) < 2.0 * TOLERANCE
    np.testing.assert_allclose(Blocks(case.design).row_quad(b.root), case.design.row_quad(a.root), rtol=1e-7)
    np.testing.assert_allclose(case.cg.dilated(0.3).mean, np.exp(0.3) * case.cg.mean)
    np.testing.assert_allclose(
        b.root.noise(np.random.default_rng(0), 2), np.exp(0.3) * case.cg.root.noise(np.random.default_rng(0), 2)
    )


def test_dense_columns_are_refused():
    with pytest.raises(ValueError, match="solver='cg' works on a sparse X"):
        ConjugateGradients().coordinates(Dense.plain(np.eye(3)))


@pytest.mark.parametrize("a", [0.0, 1.0, 1e4, 1e9])
def test_the_precision_of_an_intercept_that_slopes_can_replace_is_positive(a):
    """One direction with the same value ``a`` in all n rows of weight 1: ``n / (1 + n a^2)``, and its logarithm."""
    n = 40
    rows = RowGaussian(np.full((n, 1), a), np.zeros(n), np.ones(n), 1e-30)
    assert rows.corner == pytest.approx(n / (1.0 + n * a * a), rel=1e-6)
    assert np.isfinite(rows.logdet)
