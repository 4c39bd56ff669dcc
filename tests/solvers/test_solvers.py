"""Solvers agree with each other and keep what rows see; ``test_checks`` compares them with a dense solve."""

import numpy as np
import pytest
import scipy.sparse as sp
from parts import SOLVERS, each, standardized

from softmargin.core.model import require
from softmargin.designs import Dense
from softmargin.priors import Ridge
from softmargin.solvers import Cholesky, Dual, Gaussian


@pytest.mark.parametrize("solver", each(SOLVERS))
def test_ridge_has_what_solvers_need(solver):
    require(solver, loss=None, prior=Ridge())


def test_dual_refuses_a_prior_that_rotations_change():
    with pytest.raises(TypeError, match="Dual needs a prior with 'isotropic', which NoneType does not have"):
        require(Dual(), loss=None, prior=None)


def posterior(solver, design, tau=2.0):
    """Mean, marginal variances and log |A| - p log tau of the coefficients under fixed messages."""
    rng = np.random.default_rng(1)
    n = design.shape[0]
    w, b = rng.exponential(size=n), rng.normal(size=n)
    coordinates = solver.coordinates(design)
    prior = np.full(coordinates.design.shape[1], tau)
    prior[: coordinates.lead] = 1e-8
    gram, linear = coordinates.design.gram(w, b)
    found = Gaussian.from_precision(gram + np.diag(prior), linear)
    unseen = coordinates.unseen()
    variance = np.sum(coordinates.lift_root(found.root) ** 2, axis=1)
    variance += 0.0 if unseen is None else unseen / tau
    return coordinates.mean(found.mean), variance, found.logdet - np.log(prior).sum()


@pytest.mark.parametrize("shape", [(40, 6), (12, 30), (25, 25)])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_dual_is_cholesky(shape, kind):
    design = standardized(kind(np.random.default_rng(2).normal(size=shape)))
    for got, wanted in zip(posterior(Dual(), design), posterior(Cholesky(), design), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8)


def test_dual_keeps_only_what_rows_see():
    """Fewer coordinates than rows where rows repeat or are centred; the rest keeps its prior variance."""
    X = np.random.default_rng(3).normal(size=(12, 30))
    assert Dual().coordinates(Dense.plain(X)).basis.shape == (30, 12)
    assert Dual().coordinates(standardized(X)).basis.shape == (30, 11)
    X[6:] = X[:6]
    coordinates = Dual().coordinates(Dense.plain(X, intercept=True))
    assert coordinates.basis.shape == (30, 6)
    unseen = coordinates.unseen()
    assert unseen[0] == 0.0
    assert unseen.sum() == pytest.approx(24.0)
    wanted = 1 - np.diag(np.linalg.pinv(X[:6]) @ X[:6])
    np.testing.assert_allclose(unseen[1:], wanted, atol=1e-12)


def test_cholesky_works_in_the_coefficients():
    design = Dense.plain(np.eye(3), intercept=True)
    coordinates = Cholesky().coordinates(design)
    assert coordinates.design is design and coordinates.basis is None and coordinates.unseen() is None
    with pytest.raises(ValueError, match="use the design as it is"):
        coordinates.features(design)


@pytest.mark.parametrize("noise", [1e-7, 1e-6])
def test_dual_basis_with_almost_repeated_rows(noise):
    """A direction is either orthonormal to the others or left out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 50))
    X[10:] = X[:10] + noise * rng.normal(size=(10, 50))
    basis = Dual().coordinates(Dense.plain(X)).basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-6)


def test_dual_basis_of_sparse_columns_away_from_zero():
    """The shift of sparse columns is a rank-one correction: what it leaves of the lost direction is rounding error."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        basis = Dual().coordinates(standardized(sp.csr_matrix(rng.normal(size=(50, 200)) + 10.0))).basis
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-6)
